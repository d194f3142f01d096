"""The parts of DeltaTable: where its log is kept, what it is, its files, its rows, and what can be done to it."""
