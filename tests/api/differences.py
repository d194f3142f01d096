"""Where calls of `deltalake` are not calls of ours: what is absent, what differs, and why. The docs show this."""

from __future__ import annotations

ABSENT: dict[str, str] = {}
"""Members that we do not have."""

DIFFERENT: dict[str, str] = {
    "Metadata": "`DeltaTable.metadata()` makes it; what its constructor takes is each library's own affair",
    "table.TableMerger": "`DeltaTable.merge()` makes it; what its constructor takes is each library's own affair",
}
"""Members whose calls differ."""

_READER = "a reader of arro3, as in `deltalake`; texts and binaries are views, as there"
_BROKEN = "works here; in `deltalake` it raises, whatever the arguments are"
_STRICT = "is refused; `deltalake` passes over it"

NOTES: dict[str, str] = {
    "DeltaTable": (
        "opens `deltasql://...?table=ns.name`, a name or a registered location with DL_CATALOG, or a plain path; "
        "`without_files`, `log_buffer_size` and `skip_stats` are taken and change nothing"
    ),
    "DeltaTable.__datafusion_table_provider__": (
        "raises RuntimeError, as in `deltalake` without DataFusion: there is no Rust provider here. DataFusion takes "
        "the table as Arrow, `ctx.from_arrow(table.scan(...))`"
    ),
    "DeltaTable.cleanup_metadata": "of the files, by their times; a catalog keeps its own history until `dl gc`",
    "DeltaTable.count": "with a predicate: how many rows match, where metadata knows it",
    "DeltaTable.create_checkpoint": (
        "in a catalog the checkpoint's protocol names the fence, `deltalakedb`, as the commits do: without it another "
        "writer that starts from the checkpoint would write past the catalog; a catalog also makes checkpoints by "
        "itself, as Spark does: of versions that are multiples of `mirror.checkpoint_interval` (10) or of "
        "`delta.checkpointInterval`; those of `deltalake` and of paths come with every 100th commit"
    ),
    "DeltaTable.create_write_transaction": (
        "a file with an absolute path is read from there; `deltalake` looks for it inside of the table"
    ),
    "DeltaTable.file_uris": (
        "the folder of a local table is spelled as the file system does, so that the paths can be opened; `deltalake` "
        "writes `%20` for a space in it"
    ),
    "convert_to_deltalake": (
        "columns come in the order in which the files, sorted by their paths, have them; `deltalake` takes the files "
        "in the order in which the file system happens to list them"
    ),
    "DeltaTable.history": (
        "`since` and `until` choose by time; on SQL it begins with the first version that the catalog has, also where "
        "older commits are in the files"
    ),
    "DeltaTable.load_cdf": _READER,
    "DeltaTable.merge": (
        "generated columns follow the new values, where `deltalake` fails; with `streamed_exec=False` the commit notes "
        "the keys of the source only where the condition says that columns are equal"
    ),
    "DeltaTable.protocol": (
        "a table with deletion vectors, or with protocol versions 3 and 7 by properties, does not list variantType, "
        "which locks out readers that do not know it; `delta.minWriterVersion=7` leaves the reader version alone; a "
        "move to table features lists what any version has used, as the protocol demands; `delta.checkpointPolicy=v2` "
        "comes with its feature"
    ),
    "DeltaTable.scan": _READER,
    "DeltaTable.update": (
        f"a column that the table does not have {_STRICT}; generated columns follow the new values, where `deltalake` "
        "fails; the change data feed also tells of rows that were set to what they were, as delta-spark's does"
    ),
    "PostCommitHookProperties": (
        "tables of a catalog leave checkpoints and clean-up to the mirror, by its settings; a checkpoint there is of "
        "all commits since the last one, so `create_checkpoint=False` does not put it off"
    ),
    "CommitProperties": (
        "an application version that is not above the recorded one is refused (`ConcurrentTransactionError`, a "
        "`CommitFailedError`): the work was committed before; `deltalake` records it again; `isBlindAppend` cannot be "
        "set for a commit that has read rows, since conflicts are judged by it"
    ),
    "QueryBuilder": (
        "the SQL is DuckDB's, where `deltalake` has DataFusion's; NaN is found also where `deltalake` loses it to "
        "statistics"
    ),
    "QueryBuilder.execute": _READER,
    "Transaction": "the `txn` action itself",
    "enable_nanosecond_timestamps": (
        "raises RuntimeError, as a `deltalake` that is built without them ([why](#nanosecond-timestamps))"
    ),
    "init_tracing": "needs opentelemetry-sdk and opentelemetry-exporter-otlp-proto-http, and says so",
    "rust_core_version": "the version of this package: there is no Rust of its own",
    "write_deltalake": (
        "columns of the partitioning stay where they are when others are added; an empty text in them is null, as the "
        "protocol has it; generated columns may use Spark's functions, and `date_format` takes Spark's patterns"
    ),
    "table.TableAlterer.add_columns": (
        f"a new column that must not be null {_STRICT}, and so is a generated one inside of a struct"
    ),
    "table.TableAlterer.add_constraint": (
        "names that need quotes are kept in backquotes, which Spark reads too: between `deltalake`'s double quotes it "
        "reads a text; more functions are taken"
    ),
    "table.TableAlterer.add_feature": "features that another one needs come with it: domainMetadata with rowTracking",
    "table.TableAlterer.set_table_properties": f"a value that the protocol does not allow {_STRICT}",
    "Schema.to_arrow": "the entries of a map are called `entries`, as Arrow recommends; `deltalake` says `key_value`",
    "fs.DeltaStorageHandler.copy_file": _BROKEN,
    "fs.DeltaStorageHandler.delete_dir_contents": _BROKEN,
    "fs.DeltaStorageHandler.delete_root_dir_contents": _BROKEN,
    "fs.DeltaStorageHandler.equals": _BROKEN,
    "fs.DeltaStorageHandler.open_output_stream": "takes what pyarrow writes; `deltalake` fails on buffers of pyarrow",
}
"""Members that are called alike, and do something else somewhere."""
