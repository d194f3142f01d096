"""What an overwrite takes away: everything, the rows of a condition, or the partitions that are written again."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812  the usual name

from deltalakedb.exceptions import InvalidCommitError
from deltalakedb.log.actions import AddFile, Metadata, RemoveFile
from deltalakedb.log.features import is_enabled
from deltalakedb.log.partitions import parse_partition_value
from deltalakedb.log.proposal import NOTHING_READ, WHOLE_TABLE, ReadSet
from deltalakedb.log.rows import add_from_row
from deltalakedb.log.types import StructField, parse_schema
from deltalakedb.spark.schemas import to_spark
from deltalakedb.store.overlay import OverlaySnapshot, plan_pinned
from deltalakedb.transactions.read_sets import parsed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from deltalakedb.spark.predicates import Where
    from deltalakedb.transactions.draft import Snapshot, TableDraft

_MAX_NAMED_PARTITIONS: Final = 1000
Texts: TypeAlias = tuple[str | None, ...]


@dataclass(frozen=True, slots=True)
class Replaced:
    """The files that go, and what counts as read for that."""

    files: pa.Table | None
    """Of FILES_SCHEMA."""
    read: ReadSet
    rewrites: bool = False
    """Whether these files may hold rows that stay, which must then be written again."""

    def removes(self) -> list[RemoveFile]:
        now_ms = time.time_ns() // 1_000_000
        rows = [] if self.files is None else self.files.to_pylist()
        return [RemoveFile.of(add_from_row(row), at_ms=now_ms) for row in rows]


NOTHING: Final = Replaced(None, NOTHING_READ)


def everything(snapshot: Snapshot) -> Replaced:
    return Replaced(snapshot.files_table(), WHOLE_TABLE)


def matching(draft: TableDraft, where: Where, spark: SparkSession) -> Replaced:
    """The files with rows for which a condition is true. One on partition columns alone takes files as a whole."""
    snapshot = draft.snapshot()
    predicate = parsed(where.planned, snapshot)
    if isinstance(snapshot, OverlaySnapshot):
        files = snapshot.plan(predicate).files
    else:
        files = plan_pinned(draft.store, draft.row, snapshot, predicate).files
    read = ReadSet(predicates=(predicate,))
    partitions = set(snapshot.metadata.partition_columns)
    if where.columns <= partitions:
        return Replaced(_of_partitions(files, snapshot, where, spark), read)
    if files.num_rows:
        _refuse_rewriting(snapshot.metadata, draft.row.full_name)
    return Replaced(files, read, rewrites=True)


def _of_partitions(files: pa.Table, snapshot: Snapshot, where: Where, spark: SparkSession) -> pa.Table:
    """A plan may keep too many files, as it must not lose one; here Spark says which partitions are meant."""
    fields = _partition_fields(snapshot)
    texts = [_texts(text, fields) for text in files.column("partition_values").to_pylist()]
    known = list(dict.fromkeys(texts))
    if not known:
        return files
    names = [f"__dldb_{place}" for place in range(len(fields))]
    spelled = pa.table(
        {
            "__dldb_key": pa.array(range(len(known)), pa.int64()),
            **{name: pa.array([one[i] for one in known], pa.string()) for i, name in enumerate(names)},
        }
    )
    types = {item.name: item.dataType for item in to_spark(parse_schema(snapshot.metadata.schema_string)).fields}
    typed = [F.col(name).try_cast(types[item.name]).alias(item.name) for name, item in zip(names, fields, strict=True)]
    rows = spark.createDataFrame(spelled).select("__dldb_key", *typed).where(where.rows).select("__dldb_key").collect()
    meant = {known[row[0]] for row in rows}
    return files.filter(pa.array([one in meant for one in texts], pa.bool_()))


def partitions_of(draft: TableDraft, written: Iterable[AddFile]) -> Replaced:
    """All files of the partitions that were written again."""
    snapshot = draft.snapshot()
    fields = _partition_fields(snapshot)
    keys = {_values(tuple(add.partition_values.get(f.physical_name) for f in fields), fields) for add in written}
    files = snapshot.files_table()
    texts = files.column("partition_values").to_pylist()
    meant = {text: _values(_texts(text, fields), fields) in keys for text in set(texts)}
    gone = files.filter(pa.array([meant[text] for text in texts], pa.bool_()))
    return Replaced(gone, _read_partitions(snapshot, keys, fields))


def _partition_fields(snapshot: Snapshot) -> list[StructField]:
    metadata = snapshot.metadata
    schema = parse_schema(metadata.schema_string)
    return [item for name in metadata.partition_columns if (item := schema.field(name)) is not None]


def _texts(text: str | None, fields: Sequence[StructField]) -> Texts:
    values = json.loads(text or "{}")
    return tuple(values.get(item.physical_name) or None for item in fields)


def _values(texts: Texts, fields: Sequence[StructField]) -> tuple[Any, ...]:
    """Two writers may spell one value differently, as 1.0 and 1.00; NaN is itself here."""
    values = (parse_partition_value(text, item.type) for text, item in zip(texts, fields, strict=True))
    return tuple("NaN" if value != value else value for value in values)  # only NaN is not itself


def _read_partitions(snapshot: Snapshot, keys: set[tuple[Any, ...]], fields: Sequence[StructField]) -> ReadSet:
    """Rows of these partitions count as read: who adds to one of them meanwhile is in conflict with us."""
    if not keys:
        return NOTHING_READ
    if len(keys) > _MAX_NAMED_PARTITIONS:
        return WHOLE_TABLE
    filters = [[(item.name, "=", value) for item, value in zip(fields, key, strict=True)] for key in keys]
    return ReadSet(predicates=(parsed(filters, snapshot),))


def _refuse_rewriting(metadata: Metadata, table: str) -> None:
    """Rows that stay in a file move to another one: what keeps track of rows would have to be told."""
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
    """A filter that keeps every row, and ends the job at one for which a condition is not true."""
    message = f"table {table}: a row of the data is not within replace_where ({text}); nothing is written"
    return F.when(where.rows, F.lit(True)).otherwise(F.raise_error(F.lit(message)).cast("boolean"))
