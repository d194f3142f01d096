"""The Delta protocol as values and pure functions: no I/O, no SQL, no clock."""
