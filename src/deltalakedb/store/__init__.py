"""The authoritative log, in SQLite, DuckDB or Postgres."""

from typing import TYPE_CHECKING

from deltalakedb.runtime.lazy import lazy_names

if TYPE_CHECKING:
    from deltalakedb.store.connection import LIVE, Connection, SchemaMode, Store
    from deltalakedb.store.opening import ENGINES, open_store

__all__ = ["ENGINES", "LIVE", "Connection", "SchemaMode", "Store", "open_store"]

# Lazy, so that names can be parsed without loading PyArrow: `dl --help` does.
_CONNECTION = "deltalakedb.store.connection"
_OPENING = "deltalakedb.store.opening"
__getattr__ = lazy_names(
    __name__,
    {
        "ENGINES": _OPENING,
        "LIVE": _CONNECTION,
        "Connection": _CONNECTION,
        "SchemaMode": _CONNECTION,
        "Store": _CONNECTION,
        "open_store": _OPENING,
    },
)
