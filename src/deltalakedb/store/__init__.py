"""The authoritative log, in SQLite, DuckDB or Postgres."""

from deltalakedb.store.connection import LIVE, Connection, SchemaMode, Store
from deltalakedb.store.opening import ENGINES, open_store

__all__ = ["ENGINES", "LIVE", "Connection", "SchemaMode", "Store", "open_store"]
