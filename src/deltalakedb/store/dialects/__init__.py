"""One module per engine, and the pool two of them share."""
