"""The metadata of Iceberg tables and views as JSON objects: pure functions without I/O, clock and randomness."""
