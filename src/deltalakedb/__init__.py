"""The Delta Lake transaction log, kept losslessly in SQLite, DuckDB or Postgres, and answered from there."""

from typing import TYPE_CHECKING

from deltalakedb.exceptions import (
    CommitFailedError,
    DeltaError,
    DeltaProtocolError,
    SchemaMismatchError,
    TableNotFoundError,
    VersionNotFoundError,
)
from deltalakedb.runtime.lazy import lazy_names
from deltalakedb.runtime.version import __version__

if TYPE_CHECKING:
    from deltalakedb.catalog.catalog import Catalog, begin, connect
    from deltalakedb.catalog.view import CatalogView
    from deltalakedb.query import QueryBuilder
    from deltalakedb.schema import DataType, Field, Schema, VariantType
    from deltalakedb.table import DeltaTable
    from deltalakedb.tables.answers import ColumnStats, Metadata, Plan, ProtocolVersions, TableFeatures
    from deltalakedb.telemetry.process import enable_nanosecond_timestamps, init_tracing, rust_core_version
    from deltalakedb.transaction import CommitProperties, PostCommitHookProperties, Transaction
    from deltalakedb.transactions.transaction import CatalogTransaction
    from deltalakedb.writer import (
        BloomFilterProperties,
        ColumnProperties,
        WriterProperties,
        convert_to_deltalake,
        write_deltalake,
    )

__all__ = [
    "BloomFilterProperties",
    "Catalog",
    "CatalogTransaction",
    "CatalogView",
    "ColumnProperties",
    "ColumnStats",
    "CommitFailedError",
    "CommitProperties",
    "DataType",
    "DeltaError",
    "DeltaProtocolError",
    "DeltaTable",
    "Field",
    "Metadata",
    "Plan",
    "PostCommitHookProperties",
    "ProtocolVersions",
    "QueryBuilder",
    "Schema",
    "SchemaMismatchError",
    "TableFeatures",
    "TableNotFoundError",
    "Transaction",
    "VariantType",
    "VersionNotFoundError",
    "WriterProperties",
    "__version__",
    "begin",
    "connect",
    "convert_to_deltalake",
    "enable_nanosecond_timestamps",
    "init_tracing",
    "rust_core_version",
    "write_deltalake",
]

__getattr__ = lazy_names(
    __name__,
    {
        "Catalog": "deltalakedb.catalog",
        "CatalogView": "deltalakedb.catalog.view",
        "CatalogTransaction": "deltalakedb.transactions.transaction",
        "begin": "deltalakedb.catalog",
        "connect": "deltalakedb.catalog",
        "DeltaTable": "deltalakedb.table",
        "ColumnStats": "deltalakedb.tables.answers",
        "Metadata": "deltalakedb.tables.answers",
        "Plan": "deltalakedb.tables.answers",
        "ProtocolVersions": "deltalakedb.tables.answers",
        "Schema": "deltalakedb.schema",
        "CommitProperties": "deltalakedb.transaction",
        "PostCommitHookProperties": "deltalakedb.transaction",
        "Transaction": "deltalakedb.transaction",
        "enable_nanosecond_timestamps": "deltalakedb.telemetry.process",
        "init_tracing": "deltalakedb.telemetry.process",
        "rust_core_version": "deltalakedb.telemetry.process",
        "QueryBuilder": "deltalakedb.query",
        "TableFeatures": "deltalakedb.tables.answers",
        "DataType": "deltalakedb.schema",
        "Field": "deltalakedb.schema",
        "VariantType": "deltalakedb.schema",
        "BloomFilterProperties": "deltalakedb.writer",
        "ColumnProperties": "deltalakedb.writer",
        "WriterProperties": "deltalakedb.writer",
        "convert_to_deltalake": "deltalakedb.writer",
        "write_deltalake": "deltalakedb.writer",
    },
)
