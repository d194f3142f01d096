"""Special writes of a transaction: into new tables, and of Spark DataFrames."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING, Any

from deltalakedb.exceptions import ConfigError
from deltalakedb.log.protocol.actions import Metadata, Protocol
from deltalakedb.operations.target import Done, Target, Verb

if TYPE_CHECKING:
    from deltalakedb.operations.write import WriteRequest
    from deltalakedb.operations.written_files import WrittenFiles
    from deltalakedb.transactions.draft import TableDraft
    from deltalakedb.transactions.transaction import CatalogTransaction


def begin_table(draft: TableDraft, first: tuple[Protocol, Metadata], verb: Verb, written: WrittenFiles) -> Done:
    """Run a verb on a table that does not exist yet; return its first commit, including protocol and metadata."""
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
    result = verb(target)
    assert result.commit is not None, "a table's first statement makes its first version"
    return replace(result, commit=replace(result.commit, actions=(*first, *result.commit.actions), fenced=True))


def is_spark_frame(data: Any) -> bool:
    """Return whether data is a PySpark DataFrame, classic or Connect, without importing PySpark."""
    return str(getattr(type(data), "__module__", "")).startswith("pyspark.sql.") and type(data).__name__ == "DataFrame"


def write_spark_frame(tx: CatalogTransaction, table: str, data: Any, request: WriteRequest, **options: Any) -> None:
    """Let Spark write its DataFrame. The Spark pipeline is in a higher layer, so it is imported by name at run time."""
    if request.target_file_size is not None or request.writer_properties is not None:
        raise ConfigError(
            "target_file_size and writer_properties do not reach Spark's writers: repartition the DataFrame, or set "
            "spark.sql.files.maxRecordsPerFile and spark.sql.parquet.*"
        )
    pipeline = import_module("deltalakedb.spark.write")
    write_options = pipeline.WriteOptions(
        mode=request.mode,
        partition_by=request.partition_by,
        replace_where=request.predicate,
        merge_schema=request.schema_mode == "merge",
        overwrite_schema=request.schema_mode == "overwrite",
        **options,
    )
    pipeline.propose_frame(tx, table, data, write_options)
