"""Aggregates that metadata answers exactly: row counts, minimum and maximum, counts per partition."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any, Final

import pyarrow as pa

from deltalakedb.exceptions import MalformedLogError
from deltalakedb.log.predicates.atoms import FLOATS, Column, Predicate
from deltalakedb.log.predicates.predicate import resolve_column
from deltalakedb.log.predicates.pruning import must_match
from deltalakedb.log.protocol.actions import Metadata
from deltalakedb.log.protocol.codec import from_sql_text, to_json, to_sql_text
from deltalakedb.log.schema.partitions import parse_partition_value
from deltalakedb.log.schema.types import DataType, DecimalType, StructType, parse_schema
from deltalakedb.log.statistics.bounds import Bound, compute_bounds
from deltalakedb.log.statistics.bounds_columns import bounds_columns
from deltalakedb.log.statistics.stats import parse_stats, typed_value, value_at
from deltalakedb.store.connection import LIVE, Connection, Row
from deltalakedb.store.planning import plan
from deltalakedb.store.registry import OpenTable

_MAX_WITNESSES: Final = 64
"""How many files are read to prove an extreme; if more share it, one of these most likely proves it."""

_EXACT_CHARS: Final = 32  # writers truncate longer strings
_EXACT_DIGITS: Final = 15  # longer decimals may have been converted to a double
_EXACT_INTEGER: Final = 2.0**53
_EPOCH_DAY: Final = date(1970, 1, 1).toordinal()


@dataclass(frozen=True, slots=True)
class PartitionCounts:
    """The files of one partition; `num_records` is None if some of them have no row count."""

    values: Mapping[str, str | None]
    num_files: int
    num_records: int | None
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Extreme:
    """A minimum or maximum proved by metadata; `value` is None if the column holds only nulls."""

    value: Any


def count_records(conn: Connection, opened: OpenTable, predicate: Predicate | None = None) -> int | None:
    """How many rows of the head satisfy a predicate; None if the rows must be read to tell.

    Exact for all rows, and for predicates that partition values alone decide.
    """
    head = opened.head
    if predicate is None or predicate.disjuncts == ((),):
        return head.num_records if head.files_without_records == 0 else None
    files = plan(conn, opened, predicate, columns=["partition_values", "num_records"]).files
    return count_planned(files, opened.metadata, predicate)


def count_planned(files: pa.Table, metadata: Metadata, predicate: Predicate) -> int | None:
    """How many rows of planned files (with `partition_values` and `num_records`) match; None if not exact."""
    sums = [("num_records", "sum"), ("num_records", "count"), ([], "count_all")]
    grouped = files.group_by("partition_values").aggregate(sums)
    decide = _partition_judge(metadata, predicate)
    total = 0
    for row in grouped.to_pylist():
        if row["num_records_count"] < row["count_all"]:
            return None
        if row["num_records_sum"] and not decide(json.loads(row["partition_values"])):
            return None
        total += row["num_records_sum"]
    return total


def _partition_judge(metadata: Metadata, predicate: Predicate) -> Callable[[Mapping[str, str | None]], bool]:
    """Returns a function that tells whether every row of a partition satisfies the predicate."""
    indexed_columns = bounds_columns(
        parse_schema(metadata.schema_string), metadata.partition_columns, metadata.configuration
    )
    columns = [column for column in indexed_columns if column.is_partition]
    places = {(column.physical_path, column.kind): place for place, column in enumerate(columns)}

    def decide(values: Mapping[str, str | None]) -> bool:
        bounds = compute_bounds(columns, [(None, values)])

        def of_column(column: Column) -> Bound | None:
            place = None if column.kind is None else places.get((column.physical_path, column.kind))
            return None if place is None else bounds.bound(place, 0)

        return must_match(predicate, of_column)

    return decide


def count_partitions(conn: Connection, opened: OpenTable) -> list[PartitionCounts]:
    """Files, rows and bytes of every partition of the head; values as in the log, by physical name."""
    rows = conn.all("plan_partition_counts", table_id=opened.table.table_id)
    return [
        PartitionCounts(
            json.loads(row["partition_values"]),
            int(row["num_files"]),
            None if row["files_without_records"] else int(row["num_records"]),
            int(row["size_bytes"]),
        )
        for row in rows
    ]


def minimum(conn: Connection, opened: OpenTable, name: str) -> Extreme | None:
    """The smallest value of a column at the head; None if metadata does not prove it."""
    return _Extremes(conn, opened, name).find("low")


def maximum(conn: Connection, opened: OpenTable, name: str) -> Extreme | None:
    """The largest value of a column at the head; None if metadata does not prove it."""
    return _Extremes(conn, opened, name).find("high")


class _Extremes:
    """Finds the edge of a column's bounds, then the files whose exact statistics prove it."""

    def __init__(self, conn: Connection, opened: OpenTable, name: str) -> None:
        schema = parse_schema(opened.metadata.schema_string)
        partitions = frozenset(part.casefold() for part in opened.metadata.partition_columns)
        parts = (name,) if schema.field(name) is not None else tuple(name.split("."))
        self._conn = conn
        self._column = resolve_column(schema, parts, partitions)
        self._type = _type_of(schema, self._column.path)
        self._table_id = opened.table.table_id
        self._epoch = opened.head.bounds_epoch
        self._kind = "text" if self._column.kind == "text" else "number"

    def find(self, end: str) -> Extreme | None:
        row = self._indexed()
        if row is None or not self._provable(end):
            return None
        scope = {"table_id": self._table_id, "epoch": self._epoch, "column_id": row["column_id"]}
        ends = self._conn.one(f"plan_extreme_{self._kind}s", **scope)
        if ends is None or (end == "high" and ends.get("endless")):
            return None
        edge = ends[end]
        if edge is None:
            return Extreme(None) if ends["low"] is None else None
        if edge in (float("inf"), float("-inf")):
            return None
        query, value = f"plan_files_at_{end}_{self._kind}", self._nearest(end, edge)
        witnesses = self._conn.all(query, **scope, value=value, max_rows=_MAX_WITNESSES)
        return self._proved(end, edge, witnesses)

    def _nearest(self, end: str, edge: Any) -> Any:
        """How far a file's bounds may be from the edge while its exact value can be the extreme: bounds are rounded."""
        if self._kind == "text" or self._column.kind == "date" or (self._is_integer and abs(edge) < _EXACT_INTEGER):
            return edge
        slack = abs(edge) * 2.0**-46
        return edge + slack if end == "low" else edge - slack

    @property
    def _is_integer(self) -> bool:
        is_number = self._column.kind == "number" and self._column.type_name not in FLOATS
        return is_number and not isinstance(self._type, DecimalType)

    def _indexed(self) -> Row | None:
        """The column's row of dl_bounds_columns, if every live file has bounds for it."""
        path = to_sql_text(to_json(list(self._column.physical_path)))
        rows = self._conn.all("select_bounds_columns", table_id=self._table_id)
        matches = [r for r in rows if (r["column_path"], r["kind"]) == (path, self._column.kind)]
        if not matches or matches[0]["first_file_id"] >= LIVE or self._column.unprunable:
            return None
        first = matches[0]["first_file_id"]
        older = self._conn.one("plan_files_without_bounds_exist", table_id=self._table_id, first_file_id=first)
        return None if older is not None else matches[0]

    def _provable(self, end: str) -> bool:
        """Whether statistics can be exact: they omit NaN, the largest float, and truncate timestamps to
        milliseconds."""
        if self._column.is_partition:
            return self._column.type_name not in ("float", "double", "timestamp")
        if isinstance(self._type, DecimalType):
            return self._type.precision <= _EXACT_DIGITS
        if self._column.type_name in FLOATS:
            return end == "low" and not self._column.fuzzy_float
        return self._column.kind in ("text", "date") or self._column.kind == "number"

    def _proved(self, end: str, edge: Any, witnesses: list[Row]) -> Extreme | None:
        """One file that reaches the edge proves it; otherwise all files near it must be exact."""
        values = [self._exact_value(end, row) for row in witnesses]
        exact_values = [value for value in values if value is not None]
        reached = [value for value in exact_values if _as_edge(value) == edge]
        if reached:
            return Extreme(reached[0])
        if not exact_values or len(exact_values) < len(values) or len(values) == _MAX_WITNESSES:
            return None
        return Extreme(min(exact_values) if end == "low" else max(exact_values))

    def _exact_value(self, end: str, row: Row) -> Any:
        if self._column.is_partition:
            if not row["num_records"]:
                return None
            (name,) = self._column.physical_path
            try:
                return parse_partition_value(json.loads(row["partition_values"]).get(name), self._type)
            except MalformedLogError:
                return None
        text = row["stats"]
        stats = None if text is None else parse_stats(from_sql_text(text), exact=True)
        if stats is None or not stats.tight_bounds or row["deletion_vector"] is not None:
            return None
        values = stats.min_values if end == "low" else stats.max_values
        value = typed_value(value_at(values, self._column.physical_path), self._type)
        return None if isinstance(value, str) and len(value) >= _EXACT_CHARS else value


def _as_edge(value: Any) -> Any:
    """Converts a value to the unit of stored bounds."""
    is_day = isinstance(value, date) and not isinstance(value, datetime)
    return value.toordinal() - _EPOCH_DAY if is_day else value


def _type_of(schema: StructType, path: tuple[str, ...]) -> DataType:
    kind: DataType = schema
    for part in path:
        field = kind.field(part) if isinstance(kind, StructType) else None
        assert field is not None, "the column was resolved"
        kind = field.type
    return kind
