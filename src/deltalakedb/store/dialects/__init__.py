"""One module per engine, and the pool that two of them share."""
