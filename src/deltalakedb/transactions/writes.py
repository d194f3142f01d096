"""Writes into tables of a transaction that do not go the plain way: new tables, and DataFrames of Spark."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING, Any

from deltalakedb.exceptions import ConfigError
from deltalakedb.log.actions import Metadata, Protocol
from deltalakedb.operations.target import Done, Target, Verb

if TYPE_CHECKING:
    from deltalakedb.operations.write import WriteRequest
    from deltalakedb.operations.written_files import WrittenFiles
    from deltalakedb.transactions.draft import TableDraft
    from deltalakedb.transactions.transaction import CatalogTransaction


def begin_table(draft: TableDraft, first: tuple[Protocol, Metadata], verb: Verb, written: WrittenFiles) -> Done:
    """What a verb makes of a table that is about to be: its first commit, with what begins the table."""
    from deltalakedb.tables.file_snapshot import NewTableSnapshot

    snapshot = NewTableSnapshot(*first)
    target = Target(
        name=draft.row.full_name,
        location=draft.row.location,
        options=draft.options,
        snapshot=snapshot,
        plan=lambda predicate: snapshot.plan(predicate).files,
        written=written.for_table(draft.row.table_uuid),
    )
    done = verb(target)
    assert done.commit is not None, "a table's first statement makes its first version"
    return replace(done, commit=replace(done.commit, actions=(*first, *done.commit.actions), fenced=True))


def is_spark_frame(data: Any) -> bool:
    """Whether data is a DataFrame of PySpark, classic or Connect; told without importing it."""
    return type(data).__module__.startswith("pyspark.sql.") and type(data).__name__ == "DataFrame"


def write_spark_frame(tx: CatalogTransaction, table: str, data: Any, request: WriteRequest, **options: Any) -> None:
    """Let Spark write a DataFrame of its own. The pipeline lies above this layer: it is looked up, not imported."""
    if request.target_file_size is not None or request.writer_properties is not None:
        raise ConfigError(
            "target_file_size and writer_properties do not reach Spark's writers: repartition the DataFrame, or set "
            "spark.sql.files.maxRecordsPerFile and spark.sql.parquet.*"
        )
    pipeline = import_module("deltalakedb.spark.write")
    wanted = pipeline.WriteOptions(
        mode=request.mode,
        partition_by=request.partition_by,
        replace_where=request.predicate,
        merge_schema=request.schema_mode == "merge",
        overwrite_schema=request.schema_mode == "overwrite",
        **options,
    )
    pipeline.propose_frame(tx, table, data, wanted)
