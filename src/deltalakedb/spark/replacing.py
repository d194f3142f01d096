"""The files that an overwrite removes: all, those that match a condition, or those of the written partitions."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812  the usual name

from deltalakedb.exceptions import InvalidCommitError
from deltalakedb.log.protocol.actions import AddFile, Metadata, RemoveFile
from deltalakedb.log.protocol.features import is_enabled
from deltalakedb.log.protocol.proposal import NOTHING_READ, WHOLE_TABLE, ReadSet
from deltalakedb.log.protocol.rows import add_from_row
from deltalakedb.log.schema.partitions import parse_partition_value
from deltalakedb.log.schema.types import StructField, parse_schema
from deltalakedb.spark.schemas import to_spark
from deltalakedb.transactions.read_sets import parse_read

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from deltalakedb.spark.predicates import Where
    from deltalakedb.transactions.draft import Snapshot, TableDraft

_MAX_NAMED_PARTITIONS: Final = 1000
Texts: TypeAlias = tuple[str | None, ...]


@dataclass(frozen=True, slots=True)
class Replaced:
    """The removed files, and what counts as read for that."""

    files: pa.Table | None
    """With FILES_SCHEMA."""
    read: ReadSet
    rewrites: bool = False
    """Whether these files may contain rows that stay, which must be written again."""

    def removes(self) -> list[RemoveFile]:
        now_ms = time.time_ns() // 1_000_000
        rows = [] if self.files is None else self.files.to_pylist()
        return [RemoveFile.of(add_from_row(row), at_ms=now_ms) for row in rows]


NOTHING: Final = Replaced(None, NOTHING_READ)


def everything(snapshot: Snapshot) -> Replaced:
    return Replaced(snapshot.files_table(), WHOLE_TABLE)


def matching(draft: TableDraft, where: Where, spark: SparkSession) -> Replaced:
    """The files with rows that match a condition. A condition on partition columns alone removes whole files."""
    snapshot = draft.snapshot()
    predicate = parse_read(where.planned, snapshot)
    files = snapshot.plan(predicate).files
    read = ReadSet(predicates=(predicate,))
    partitions = set(snapshot.metadata.partition_columns)
    if where.columns <= partitions:
        return Replaced(_select_partitions(files, snapshot, where, spark), read)
    if files.num_rows:
        _refuse_rewriting(snapshot.metadata, draft.row.full_name)
    return Replaced(files, read, rewrites=True)


def _select_partitions(files: pa.Table, snapshot: Snapshot, where: Where, spark: SparkSession) -> pa.Table:
    """Filter planned files by Spark: a plan may keep too many files, because it must not lose one."""
    fields = _partition_fields(snapshot)
    texts = [_texts(text, fields) for text in files.column("partition_values").to_pylist()]
    groups = list(dict.fromkeys(texts))
    if not groups:
        return files
    names = [f"__dldb_{place}" for place in range(len(fields))]
    spelled = pa.table(
        {
            "__dldb_key": pa.array(range(len(groups)), pa.int64()),
            **{name: pa.array([values[i] for values in groups], pa.string()) for i, name in enumerate(names)},
        }
    )
    types = {item.name: item.dataType for item in to_spark(parse_schema(snapshot.metadata.schema_string)).fields}
    typed = [F.col(name).try_cast(types[item.name]).alias(item.name) for name, item in zip(names, fields, strict=True)]
    rows = spark.createDataFrame(spelled).select("__dldb_key", *typed).where(where.rows).select("__dldb_key").collect()
    matched = {groups[row[0]] for row in rows}
    return files.filter(pa.array([values in matched for values in texts], pa.bool_()))


def partitions_of(draft: TableDraft, written: Iterable[AddFile]) -> Replaced:
    """All files of the partitions that were written."""
    snapshot = draft.snapshot()
    fields = _partition_fields(snapshot)
    keys = {_values(tuple(add.partition_values.get(f.physical_name) for f in fields), fields) for add in written}
    files = snapshot.files_table()
    texts = files.column("partition_values").to_pylist()
    matches = {text: _values(_texts(text, fields), fields) in keys for text in set(texts)}
    removed = files.filter(pa.array([matches[text] for text in texts], pa.bool_()))
    return Replaced(removed, _read_partitions(snapshot, keys, fields))


def _partition_fields(snapshot: Snapshot) -> list[StructField]:
    metadata = snapshot.metadata
    schema = parse_schema(metadata.schema_string)
    return [item for name in metadata.partition_columns if (item := schema.field(name)) is not None]


def _texts(text: str | None, fields: Sequence[StructField]) -> Texts:
    values = json.loads(text or "{}")
    return tuple(values.get(item.physical_name) or None for item in fields)


def _values(texts: Texts, fields: Sequence[StructField]) -> tuple[Any, ...]:
    """Parsed values, because two writers may write one value differently, as 1.0 and 1.00; NaN equals itself here."""
    values = (parse_partition_value(text, item.type) for text, item in zip(texts, fields, strict=True))
    return tuple("NaN" if value != value else value for value in values)  # only NaN differs from itself


def _read_partitions(snapshot: Snapshot, keys: set[tuple[Any, ...]], fields: Sequence[StructField]) -> ReadSet:
    """Rows of these partitions count as read: a concurrent writer that adds to one of them conflicts with us."""
    if not keys:
        return NOTHING_READ
    if len(keys) > _MAX_NAMED_PARTITIONS:
        return WHOLE_TABLE
    filters = [[(item.name, "=", value) for item, value in zip(fields, key, strict=True)] for key in keys]
    return ReadSet(predicates=(parse_read(filters, snapshot),))


def _refuse_rewriting(metadata: Metadata, table: str) -> None:
    """InvalidCommitError if rows that stay would move to another file although the table tracks rows."""
    for name, why in (
        ("delta.enableChangeDataFeed", "its change data feed would show rows that did not change"),
        ("delta.enableRowTracking", "rows that stay would lose their ids"),
    ):
        if is_enabled(metadata.configuration, name):
            raise InvalidCommitError(
                f"table {table}: replace_where on columns that are no partition columns rewrites files, and {why} "
                f"({name}); use MERGE in a session of the bridge, or a condition on partition columns"
            )


def check_rows(where: Where, text: str, table: str) -> Any:
    """A filter that keeps every row, and fails the job at a row that does not match the condition."""
    message = f"table {table}: a row of the data is not within replace_where ({text}); nothing is written"
    return F.when(where.rows, F.lit(True)).otherwise(F.raise_error(F.lit(message)).cast("boolean"))
