"""Writes data into a table of a transaction: new Parquet files, and the commit that names them."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal

from deltalakedb.exceptions import ConfigError, InvalidCommitError, SchemaMismatchError
from deltalakedb.log.actions import Action, AddFile, AppTransaction, Metadata, Protocol, RemoveFile
from deltalakedb.log.codec import to_json
from deltalakedb.log.features import is_enabled
from deltalakedb.log.proposal import NOTHING_READ, WHOLE_TABLE, ProposedCommit
from deltalakedb.log.rows import add_from_row
from deltalakedb.log.stats import parse_stats
from deltalakedb.log.types import parse_schema
from deltalakedb.transactions.draft import Snapshot, TableDraft

if TYPE_CHECKING:
    import pyarrow as pa

    from deltalakedb.operations.written_files import WrittenFiles
    from deltalakedb.transactions.transaction import CatalogTransaction

WriteMode = Literal["error", "append", "overwrite", "ignore"]
WRITE_MODES = ("error", "append", "overwrite", "ignore")


def write_data(
    draft: TableDraft,
    data: pa.RecordBatchReader,
    *,
    first: tuple[Protocol, Metadata] | None,
    mode: WriteMode,
    partition_by: Sequence[str] | str | None,
    app_transactions: Sequence[AppTransaction],
    target_file_size: int | None,
    user_info: Mapping[str, Any],
    written: WrittenFiles,
) -> ProposedCommit:
    """Write the files and return the commit; nothing is proposed yet. `first` begins a new table."""
    from deltalakedb.data import check_schema, write_files
    from deltalakedb.log.features import data_writable
    from deltalakedb.storage import open_data_storage

    name = draft.row.full_name
    snapshot = None if first is not None else draft.snapshot()
    protocol, metadata = first if first is not None else _in_force(draft)
    data_writable(protocol, metadata, name)
    check_partitioning(metadata, partition_by, name)
    schema = parse_schema(metadata.schema_string)
    check_schema(data.schema, schema, table_name=name)
    overwrites = mode == "overwrite" and snapshot is not None
    if overwrites and is_enabled(metadata.configuration, "delta.appendOnly"):
        raise InvalidCommitError(
            f"table {name} is append-only (delta.appendOnly): its rows cannot be overwritten; append, or set that "
            "property to false first"
        )
    storage = open_data_storage(draft.row.location, draft.options)
    adds = write_files(
        data,
        storage=storage,
        schema=schema,
        partition_columns=metadata.partition_columns,
        configuration=metadata.configuration,
        target_file_size=target_file_size,
    )
    written.remember(storage, adds)
    removes = _removes(snapshot) if overwrites and snapshot is not None else []
    actions: list[Action] = [*(first or ()), *app_transactions, *removes, *adds]
    return ProposedCommit(
        actions=tuple(actions),
        operation="WRITE",
        operation_parameters={
            "mode": {"error": "ErrorIfExists", "ignore": "Ignore"}.get(mode, mode.capitalize()),
            "partitionBy": to_json(list(metadata.partition_columns)),
        },
        operation_metrics=metrics_of(adds, removes),
        read=WHOLE_TABLE if overwrites else NOTHING_READ,
        user_info=user_info,
        fenced=True if first is not None else None,
    )


def is_spark_frame(data: Any) -> bool:
    """Whether data is a DataFrame of PySpark, classic or Connect; told without importing it."""
    return type(data).__module__.startswith("pyspark.sql.") and type(data).__name__ == "DataFrame"


def write_spark_frame(tx: CatalogTransaction, table: str, data: Any, **options: Any) -> None:
    """Let Spark write a DataFrame of its own. The pipeline lies above this layer: it is looked up, not imported."""
    if options.pop("target_file_size") is not None:
        raise ConfigError(
            "target_file_size does not reach Spark's writers: repartition the DataFrame, or set "
            "spark.sql.files.maxRecordsPerFile"
        )
    pipeline = import_module("deltalakedb.spark.write")
    pipeline.propose_frame(tx, table, data, pipeline.WriteOptions(**options))


def _in_force(draft: TableDraft) -> tuple[Protocol, Metadata]:
    snapshot = draft.snapshot()
    return snapshot.protocol, snapshot.metadata


def check_mode(mode: str) -> None:
    if mode not in WRITE_MODES:
        raise ConfigError(f"the mode of a write is one of {', '.join(WRITE_MODES)}, not {mode!r}")


def check_partitioning(metadata: Metadata, partition_by: Sequence[str] | str | None, table: str) -> None:
    """A table keeps the partition columns it has."""
    if partition_by is None:
        return
    wanted = [partition_by] if isinstance(partition_by, str) else list(partition_by)
    if [name.casefold() for name in wanted] != [name.casefold() for name in metadata.partition_columns]:
        now = ", ".join(metadata.partition_columns) or "no column"
        raise SchemaMismatchError(
            f"table {table} is partitioned by {now}, not by {', '.join(wanted) or 'no column'}; leave partition_by out"
        )


def _removes(snapshot: Snapshot) -> list[RemoveFile]:
    """Everything that is live goes, under the very keys it is live under."""
    now_ms = time.time_ns() // 1_000_000
    return [RemoveFile.of(add_from_row(row), at_ms=now_ms) for row in snapshot.files_table().to_pylist()]


def metrics_of(adds: Sequence[AddFile], removes: Sequence[RemoveFile]) -> dict[str, int]:
    """What a write did, in the words of Spark."""
    rows = [stats.num_records for add in adds if (stats := parse_stats(add.stats)) is not None]
    metrics = {
        "numFiles": len(adds),
        "numOutputRows": sum(count or 0 for count in rows),
        "numOutputBytes": sum(add.size for add in adds),
    }
    if removes:
        metrics["numRemovedFiles"] = len(removes)
        metrics["numRemovedBytes"] = sum(remove.size or 0 for remove in removes)
    return metrics
