"""Owns the bounds of a file's columns: intervals that contain every value of the file, in a form databases can index.

Numbers, dates (days) and timestamps (microseconds) are doubles rounded outwards. Text is cut outwards to 64 bytes and
never holds NUL or a surrogate, so it is stored unescaped (escaping would change its order). An unknown bound is the
interval of all values: (-inf, +inf), or ('', None) for text. A bound that cannot be read is unknown, never an error.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from deltalakedb.log.schema.types import DecimalType, PrimitiveType
from deltalakedb.log.statistics.bounds_columns import BoundsColumn
from deltalakedb.log.statistics.intervals import (
    EMPTY,
    POINT,
    RANGE,
    UNBOUNDED,
    Doubles,
    NumberColumn,
    lower_text_bound,
    round_integers,
    upper_text_bound,
    width_classes,
)
from deltalakedb.log.statistics.moments import Moments, Zone, parse_dates, parse_timestamps
from deltalakedb.log.statistics.stats import count_or_none, load_stats, value_at

__all__ = [
    "BOUNDS_SCHEMA",
    "EMPTY",
    "POINT",
    "RANGE",
    "UNBOUNDED",
    "Bound",
    "FileBounds",
    "compute_bounds",
]

PartitionValues: TypeAlias = Mapping[str, str | None]

# Statistics are truncated to the millisecond, downwards; before 1970 some writers truncate towards zero.
CUT_SLACK_US: Final = 999
# Text without a zone is in the unrecorded zone of a session; no zone is farther from UTC than this.
_ZONE_SLACK_US: Final = 18 * 3_600_000_000
_BOOLEANS: Final = {"true": True, "false": False}
_NOTHING: Final[dict[str, Any]] = {}

BOUNDS_SCHEMA = pa.schema(
    [
        pa.field("width_class", pa.int32()),
        pa.field("lower", pa.float64()),
        pa.field("upper", pa.float64()),
        pa.field("lower_text", pa.string()),
        pa.field("upper_text", pa.string()),
        pa.field("null_count", pa.int64()),
    ]
)


class Bound(NamedTuple):
    """One row of BOUNDS_SCHEMA. EMPTY: the file holds only nulls in this column, and lower and upper are null."""

    width_class: int
    lower: float | None
    upper: float | None
    lower_text: str | None
    upper_text: str | None
    null_count: int | None


@dataclass(frozen=True, slots=True)
class FileBounds:
    """Bounds of many files by column: `columns[i]` is a batch of BOUNDS_SCHEMA, aligned with the files."""

    columns: list[pa.RecordBatch]
    num_records: pa.Array
    unreadable_stats: int

    def bound(self, column: int, file: int) -> Bound:
        batch = self.columns[column]
        return Bound(*(batch.column(place)[file].as_py() for place in range(batch.num_columns)))


def compute_bounds(columns: Sequence[BoundsColumn], files: Iterable[tuple[str | None, PartitionValues]]) -> FileBounds:
    """Computes the bounds of each column in each file from its statistics and partition values.

    Works on one column of all files at a time, so pass batches of some thousands.
    """
    table = _StatsTable()
    partitions = [table.add(stats, values) for stats, values in files]
    counts = np.array(table.num_records, np.int64)
    tight = np.array(table.tight, np.bool_)
    batches = []
    for column in columns:
        if column.is_partition:
            batches.append(partition_batch(column, partitions, counts))
            continue
        path = column.physical_path
        lows, highs = _pick(table.min_values, path), _pick(table.max_values, path)
        null_count = _null_counts(_pick(table.null_count, path), counts, tight)
        absent = np.array([low is None and high is None for low, high in zip(lows, highs, strict=True)], np.bool_)
        empty = absent & (null_count == counts) & (counts >= 0)
        build = _text_batch if column.kind == "text" else _number_batch
        batches.append(build(column, lows, highs, empty, null_count))
    return FileBounds(batches, pa.array(counts, mask=counts < 0), table.unreadable)


class _StatsTable:
    """The parts of many statistics strings, side by side; unknown counts are -1."""

    def __init__(self) -> None:
        self.min_values: list[dict[str, Any]] = []
        self.max_values: list[dict[str, Any]] = []
        self.null_count: list[dict[str, Any]] = []
        self.num_records: list[int] = []
        self.tight: list[bool] = []
        self.unreadable = 0

    def add(self, stats: str | None, partition_values: PartitionValues) -> PartitionValues:
        value = load_stats(stats) if stats else None
        if value is None:
            self.unreadable += bool(stats)
            value = _NOTHING
        low, high, nulls = value.get("minValues"), value.get("maxValues"), value.get("nullCount")
        records = count_or_none(value.get("numRecords"))
        self.min_values.append(low if type(low) is dict else _NOTHING)
        self.max_values.append(high if type(high) is dict else _NOTHING)
        self.null_count.append(nulls if type(nulls) is dict else _NOTHING)
        self.num_records.append(-1 if records is None else records)
        self.tight.append(value.get("tightBounds") is not False)
        return partition_values


def _pick(values: list[dict[str, Any]], path: tuple[str, ...]) -> list[Any]:
    if len(path) == 1:
        name = path[0]
        return [row.get(name) for row in values]
    return [value_at(row, path) for row in values]


def _null_counts(
    raw: list[Any], num_records: npt.NDArray[np.int64], tight: npt.NDArray[np.bool_]
) -> npt.NDArray[np.int64]:
    counts = np.array([n if type(n) is int and 0 <= n < 2**63 else -1 for n in raw], np.int64)
    return known_null_counts(counts, num_records, tight)


def known_null_counts(
    counts: npt.NDArray[np.int64], num_records: npt.NDArray[np.int64], tight: npt.NDArray[np.bool_]
) -> npt.NDArray[np.int64]:
    """Null counts, -1 if unknown; if bounds are not tight, only "none" and "all" are reliable."""
    sensible = (num_records < 0) | (counts <= num_records)
    return np.where(sensible & (tight | (counts == 0) | (counts == num_records)), counts, -1)


def _number_batch(
    column: BoundsColumn,
    lows: list[Any],
    highs: list[Any],
    empty: npt.NDArray[np.bool_],
    null_count: npt.NDArray[np.int64],
) -> pa.RecordBatch:
    return number_batch(_intervals(column, lows)[0], _intervals(column, highs)[1], empty, null_count)


def number_batch(
    lower: Doubles, upper: Doubles, empty: npt.NDArray[np.bool_], null_count: npt.NDArray[np.int64]
) -> pa.RecordBatch:
    """Builds a batch from both ends; ends that contradict each other become unknown."""
    contradiction = lower > upper
    if contradiction.any():
        lower, upper = np.where(contradiction, -np.inf, lower), np.where(contradiction, np.inf, upper)
    lower, upper = lower + 0.0, upper + 0.0  # turns -0.0 into 0.0, which is the same number
    classes = np.where(empty, EMPTY, width_classes(lower, upper))
    return bounds_batch(classes, null_count, numbers=(lower, upper), empty=empty)


def _intervals(column: BoundsColumn, values: list[Any]) -> tuple[Doubles, Doubles]:
    """The interval that each value stands for."""
    if column.kind == "number":
        return number_column(column).intervals(values)
    if column.kind == "date":
        days, readable = parse_dates(values)
        return np.where(readable, days, -np.inf), np.where(readable, days, np.inf)
    return timestamp_intervals(column, parse_timestamps(values), slack_us=CUT_SLACK_US)


def number_column(column: BoundsColumn) -> NumberColumn:
    digits = column.type.precision if isinstance(column.type, DecimalType) else 0
    return NumberColumn(
        is_float=column.is_float,
        was_float32=column.was_float32 and column.is_float,
        digits=digits or 38,
        saturates=digits > 18,
    )


def timestamp_intervals(column: BoundsColumn, moments: Moments, *, slack_us: int) -> tuple[Doubles, Doubles]:
    micros, zone = moments
    lower, upper = micros - (micros < 0) * slack_us, micros + slack_us
    readable = zone != Zone.UNREADABLE
    if column.type == PrimitiveType("timestamp"):
        local = zone == Zone.NONE
        lower, upper = lower - local * _ZONE_SLACK_US, upper + local * _ZONE_SLACK_US
    else:
        readable &= zone != Zone.OFFSET
    return (
        np.where(readable, round_integers(lower)[0], -np.inf),
        np.where(readable, round_integers(upper)[1], np.inf),
    )


def text_class(lower: str, upper: str | None) -> int:
    """The class of a text's bounds: the length of the prefix that both ends, and so all values between, share."""
    if lower == upper:
        return POINT
    if upper is not None:
        for place, (low, high) in enumerate(zip(lower, upper, strict=False)):
            if low != high:
                return place
        return min(len(lower), len(upper))
    return RANGE


def _text_batch(
    _: BoundsColumn,
    lows: list[Any],
    highs: list[Any],
    empty: npt.NDArray[np.bool_],
    null_count: npt.NDArray[np.int64],
) -> pa.RecordBatch:
    lower = [lower_text_bound(low) if type(low) is str else "" for low in lows]
    upper = [upper_text_bound(high) if type(high) is str else None for high in highs]
    classes = []
    for place, (low, high) in enumerate(zip(lower, upper, strict=True)):
        if high is not None and low > high:
            lower[place], upper[place] = "", None
        classes.append(text_class(lower[place], upper[place]))
    return bounds_batch(np.where(empty, EMPTY, np.array(classes)), null_count, texts=(lower, upper), empty=empty)


def partition_batch(
    column: BoundsColumn, partitions: list[PartitionValues], num_records: npt.NDArray[np.int64]
) -> pa.RecordBatch:
    """Bounds of a partition column: a value is both ends; absent means unknown; null means that all rows are null."""
    (name,) = column.physical_path
    places: dict[Any, int] = {}
    codes = np.array([places.setdefault(row.get(name, ...), len(places)) for row in partitions], np.int64)
    values = [None if value is ... else value for value in places]
    is_null = np.array([value is None or value == "" for value in places], np.bool_)[codes]
    absent = np.array([value is ... for value in places], np.bool_)[codes]
    null_count = np.where(absent, -1, np.where(is_null, np.maximum(num_records, 1), 0))
    if column.kind == "text":
        lower = [lower_text_bound(value) if value else "" for value in values]
        upper = [upper_text_bound(value, exact=True) if value else None for value in values]
        texts = [lower[code] for code in codes], [upper[code] for code in codes]
        classes = np.array([text_class(low, high) for low, high in zip(lower, upper, strict=True)], np.int64)
        return bounds_batch(np.where(is_null, EMPTY, classes[codes]), null_count, texts=texts, empty=is_null)
    lows, highs = _partition_intervals(column, values)
    lows, highs = lows + 0.0, highs + 0.0
    classes = np.where(is_null, EMPTY, width_classes(lows, highs)[codes])
    return bounds_batch(classes, null_count, numbers=(lows[codes], highs[codes]), empty=is_null)


def _partition_intervals(column: BoundsColumn, values: list[str | None]) -> tuple[Doubles, Doubles]:
    if column.type == PrimitiveType("boolean"):
        return _intervals(column, [None if value is None else _BOOLEANS.get(value.lower()) for value in values])
    if column.kind == "timestamp":
        return timestamp_intervals(column, parse_timestamps(values), slack_us=0)
    return _intervals(column, values)


def bounds_batch(
    classes: npt.NDArray[Any],
    null_count: npt.NDArray[np.int64],
    *,
    empty: npt.NDArray[np.bool_],
    numbers: tuple[Doubles, Doubles] | None = None,
    texts: tuple[list[str], list[str | None]] | tuple[pa.Array, pa.Array] | None = None,
) -> pa.RecordBatch:
    count = len(classes)
    arrays: list[pa.Array] = [pa.nulls(count, pa.float64())] * 2 + [pa.nulls(count, pa.string())] * 2
    if numbers is not None:
        arrays[:2] = [pa.array(ends, pa.float64(), mask=empty) for ends in numbers]
    if texts is not None:
        arrays[2:] = [_texts(ends, empty) for ends in texts]
    counts = pa.array(null_count, pa.int64(), mask=null_count < 0)
    return pa.record_batch([pa.array(classes, pa.int32()), *arrays, counts], schema=BOUNDS_SCHEMA)


def _texts(ends: Sequence[str | None] | pa.Array, empty: npt.NDArray[np.bool_]) -> pa.Array:
    if isinstance(ends, pa.Array):
        return pc.if_else(pa.array(empty), pa.scalar(None, pa.string()), ends) if empty.any() else ends
    return pa.array(ends, pa.string(), mask=empty)
