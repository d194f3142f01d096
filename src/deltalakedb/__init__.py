"""The Delta Lake transaction log, kept losslessly in SQLite, DuckDB or Postgres, and answered from there."""

__version__ = "0.1.0"
