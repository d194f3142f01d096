"""Copies of source tables: while the stream waits, or beside it."""
