"""Opens a store: loads the engine's module and driver, and migrates the schema."""

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from deltalakedb.exceptions import CatalogUriError, MissingExtraError
from deltalakedb.store.connection import SchemaMode, Store
from deltalakedb.store.migrations import ensure_schema

ENGINES = ("sqlite", "duckdb", "postgres")


def open_store(
    engine: str,
    target: str | Mapping[str, Any],
    *,
    schema: SchemaMode = "create_if_missing",
    max_connections: int = 4,
    busy_timeout_seconds: float = 30,
) -> Store:
    """Opens a database: `target` is a file path, or a Postgres DSN or its parts; `schema="manual"` skips migration."""
    if engine not in ENGINES:
        raise CatalogUriError(f"there is no engine {engine!r}; engines are {', '.join(ENGINES)}")
    if schema not in ("create_if_missing", "error", "manual"):
        raise CatalogUriError(f"sql.schema is create_if_missing or error, not {schema!r}")
    try:
        dialect = import_module(f"deltalakedb.store.dialects.{engine}")
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("deltalakedb"):
            raise
        raise MissingExtraError(f"the engine {engine}", engine) from error
    store: Store = getattr(dialect, f"open_{engine}")(
        target, schema=schema, max_connections=max_connections, busy_timeout_seconds=busy_timeout_seconds
    )
    try:
        ensure_schema(store, schema)
    except BaseException:
        store.close()
        raise
    return store
