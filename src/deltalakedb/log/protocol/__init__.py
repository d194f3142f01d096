"""The protocol's actions and commits, in JSON, in Arrow, and as a table's state."""
