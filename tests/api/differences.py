"""Where calls of `deltalake` are not calls of ours: what is absent, what differs, and why. The docs show this."""

from __future__ import annotations

ABSENT: dict[str, str] = {
    "DeltaTable.__datafusion_table_provider__": (
        "DataFusion takes the table as Arrow: `ctx.from_arrow(table.scan(...))`; there is no Rust provider here"
    ),
    "TableFeatures.TimestampNanos": "nanosecond timestamps are no type of the protocol, and are not written here",
}
"""Members that we do not have."""

DIFFERENT: dict[str, str] = {
    "Metadata": "`DeltaTable.metadata()` makes it; what its constructor takes is each library's own affair",
    "TableFeatures": "an enum of Python's; in neither library a caller makes one",
    "table.TableMerger": "`DeltaTable.merge()` makes it; what its constructor takes is each library's own affair",
}
"""Members whose calls differ."""

_READER = "a reader of pyarrow, where `deltalake` returns one of arro3"
_STRICT = "is refused; `deltalake` passes over it"

NOTES: dict[str, str] = {
    "DeltaTable": (
        "opens `deltasql://...?table=ns.name`, a name or a registered location with DL_CATALOG, or a plain path; "
        "`without_files`, `log_buffer_size` and `skip_stats` are taken and change nothing"
    ),
    "DeltaTable.cleanup_metadata": "of the files; a catalog keeps its own history until `dl gc`",
    "DeltaTable.count": "with a predicate: how many rows match, where metadata knows it",
    "DeltaTable.deletion_vectors": _READER,
    "DeltaTable.get_add_actions": "a table of pyarrow, where `deltalake` returns one of arro3",
    "DeltaTable.history": "`since` and `until` choose by time",
    "DeltaTable.load_cdf": _READER,
    "DeltaTable.scan": _READER,
    "DeltaTable.update": (
        f"a column that the table does not have {_STRICT}; the change data feed also tells of rows that were set "
        "to what they were, as delta-spark's does"
    ),
    "PostCommitHookProperties": "tables of a catalog leave checkpoints and clean-up to the mirror, by its settings",
    "CommitProperties": (
        "an application version that is not above the recorded one is refused (`ConcurrentTransactionError`, a "
        "`CommitFailedError`): the work was committed before; `deltalake` records it again"
    ),
    "QueryBuilder": (
        "the SQL is DuckDB's, where `deltalake` has DataFusion's; NaN is found also where `deltalake` loses it to "
        "statistics"
    ),
    "QueryBuilder.execute": _READER,
    "Transaction": "the `txn` action itself",
    "enable_nanosecond_timestamps": "raises RuntimeError, as a `deltalake` that is built without them",
    "init_tracing": "needs opentelemetry-sdk and opentelemetry-exporter-otlp-proto-http, and says so",
    "rust_core_version": "the version of this package: there is no Rust of its own",
    "write_deltalake": (
        "columns of the partitioning stay where they are when others are added; an empty text in them is null, as the "
        "protocol has it"
    ),
    "table.TableAlterer.add_columns": f"a new column that must not be null {_STRICT}",
    "table.TableAlterer.set_table_properties": f"a value that the protocol does not allow {_STRICT}",
}
"""Members that are called alike, and do something else somewhere."""
