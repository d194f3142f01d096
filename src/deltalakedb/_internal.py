"""Names of `deltalake._internal`, the compiled module of `deltalake`, that other libraries import from there."""

from __future__ import annotations

from deltalakedb.runtime.lazy import lazy_names

_HOMES = {
    "deltalakedb": ("TableFeatures", "convert_to_deltalake", "init_tracing", "rust_core_version"),
    "deltalakedb.exceptions": (
        "CommitFailedError",
        "DeltaError",
        "DeltaProtocolError",
        "SchemaMismatchError",
        "TableNotFoundError",
    ),
    "deltalakedb.schema": ("ArrayType", "Field", "MapType", "PrimitiveType", "Schema", "StructType", "VariantType"),
    "deltalakedb.tables.raw": ("RawDeltaTable",),
    "deltalakedb.transaction": ("RemoveAction", "Transaction", "create_table_with_add_actions"),
}

__getattr__ = lazy_names(__name__, {name: home for home, names in _HOMES.items() for name in names})
