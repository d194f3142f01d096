"""Computes the planning index of manifest entries: which columns have bounds, and the interval of each in each file.

NaN counts as above every number, as Iceberg orders it: a float column may reach up to infinity unless its NaN count
says that there is none.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from deltalakedb.iceberg.planning.column_stats import ColumnStats
from deltalakedb.iceberg.planning.manifests import Entry, PartitionValue
from deltalakedb.iceberg.planning.schema import Field, PartitionField, TableShape
from deltalakedb.iceberg.planning.types import Primitive, Value, from_bytes, is_decimal
from deltalakedb.log.statistics.bounds import EMPTY, Bound, bounds_batch, number_batch, text_class
from deltalakedb.log.statistics.intervals import (
    Doubles,
    lower_text_bound,
    round_exact,
    round_integers,
    upper_text_bound,
)

MAX_COLUMNS: Final = 32
"""How many columns of a table have bounds in SQL, besides its partition fields."""


@dataclass(frozen=True, slots=True)
class IndexColumn:
    """A column or a partition field with bounds; `key` stays the same when the column's type is promoted."""

    key: str
    type: Primitive
    field_id: int | None = None
    partition: PartitionField | None = None

    @property
    def kind(self) -> str:
        return "text" if self.type.is_text else "number"


def column_key(field_id: int, type_: Primitive) -> str:
    return f"{field_id}:{type_.family}"


def partition_field_key(part: PartitionField) -> str:
    """The key of a transform of a column, whichever spec has it."""
    family = "" if part.type is None else part.type.family
    return f"{part.source_id}:{part.transform}:{family}"


def index_columns(shape: TableShape) -> list[IndexColumn]:
    """The partition fields of all specs, and the first columns of the current schema that can have bounds."""
    parts = [part for part in shape.partition_fields() if part.type is not None and part.transform.name != "void"]
    partitions = [IndexColumn(partition_field_key(part), part.type, None, part) for part in parts if part.type]
    fields = [field for field in shape.schema.fields if field.has_bounds and field.type is not None][:MAX_COLUMNS]
    return [*partitions, *(column_of(field) for field in fields)]


def column_of(field: Field) -> IndexColumn:
    assert field.type is not None
    return IndexColumn(column_key(field.field_id, field.type), field.type, field.field_id)


def compute_bounds(column: IndexColumn, entries: Sequence[Entry], shape: TableShape) -> pa.RecordBatch:
    """The bounds of one column in each of the files."""
    records = np.array([entry.num_records for entry in entries], np.int64)
    if column.partition is not None:
        return _partition_batch(column, _partition_values(column.partition, entries, shape), records)
    assert column.field_id is not None
    return _column_batch(column.type, column.field_id, [entry.stats for entry in entries], records)


def bound_of(column: IndexColumn, stats: ColumnStats, num_records: int) -> Bound:
    """The bounds of one column in one file, from its statistics."""
    assert column.field_id is not None
    batch = _column_batch(column.type, column.field_id, [stats], np.array([num_records], np.int64))
    return Bound(*(array[0].as_py() for array in batch.columns))


# ---- columns


def _column_batch(
    type_: Primitive, field_id: int, stats: Sequence[ColumnStats], records: npt.NDArray[np.int64]
) -> pa.RecordBatch:
    nulls = _counts([item.null_counts.get(field_id) for item in stats])
    values = _counts([item.value_counts.get(field_id) for item in stats])
    values = np.where(values < 0, records, values)
    empty = (nulls == values) & (values > 0)
    lows = [item.lower_bounds.get(field_id) for item in stats]
    highs = [item.upper_bounds.get(field_id) for item in stats]
    if type_.is_text:
        return _text_batch(_values(type_, lows), _values(type_, highs), empty, nulls)
    if type_.family == "float":
        nans = _counts([item.nan_counts.get(field_id) for item in stats])
        lower, upper = _float_ends(_values(type_, lows), _values(type_, highs), nans, values - np.maximum(nulls, 0))
        return number_batch(lower, upper, empty, nulls)
    return number_batch(_ends(type_, lows)[0], _ends(type_, highs)[1], empty, nulls)


def _counts(raw: Sequence[Any]) -> npt.NDArray[np.int64]:
    """Counts, -1 if unknown."""
    return np.array([-1 if count is None or not 0 <= count < 2**63 else count for count in raw], np.int64)


def _values(type_: Primitive, raws: Iterable[bytes | None]) -> list[Any]:
    return [None if raw is None else from_bytes(type_, raw) for raw in raws]


def _ends(type_: Primitive, raws: Sequence[bytes | None]) -> tuple[Doubles, Doubles]:
    """Each value as the interval of doubles around it; all numbers if it is unknown."""
    present = [raw for raw in raws if raw is not None]
    if not is_decimal(type_) and present and all(len(raw) == 8 for raw in present):
        unknown = np.array([raw is None for raw in raws], np.bool_)
        filled = b"".join(bytes(8) if raw is None else raw for raw in raws)
        lower, upper = round_integers(np.frombuffer(filled, "<i8").astype(np.int64))
        return np.where(unknown, -np.inf, lower), np.where(unknown, np.inf, upper)
    return intervals(_values(type_, raws))


def intervals(values: Sequence[Value | Any | None]) -> tuple[Doubles, Doubles]:
    """Numbers as intervals of doubles; None and `...` are unknown."""
    pairs = np.array([_interval(value) for value in values], np.float64).reshape(-1, 2)
    return pairs[:, 0], pairs[:, 1]


def _interval(value: Any) -> tuple[float, float]:
    if isinstance(value, int | Decimal):
        return round_exact(value)
    if isinstance(value, float):
        value = math.inf if math.isnan(value) else value
        return value, value
    return -math.inf, math.inf


def _float_ends(
    lows: Sequence[Any], highs: Sequence[Any], nans: npt.NDArray[np.int64], not_null: npt.NDArray[np.int64]
) -> tuple[Doubles, Doubles]:
    lower = np.array([-math.inf if low is None or math.isnan(low) else low for low in lows], np.float64)
    upper = np.array([math.inf if high is None or math.isnan(high) else high for high in highs], np.float64)
    only_nan = (nans > 0) & (nans == not_null)
    return np.where(only_nan, np.inf, lower), np.where(nans == 0, upper, np.inf)


def _text_batch(
    lows: Sequence[Any],
    highs: Sequence[Any],
    empty: npt.NDArray[np.bool_],
    nulls: npt.NDArray[np.int64],
) -> pa.RecordBatch:
    lower = ["" if low is None else lower_text_bound(_text(low)) for low in lows]
    upper = [None if high is None else upper_text_bound(_text(high), exact=True) for high in highs]
    classes = []
    for place, (low, high) in enumerate(zip(lower, upper, strict=True)):
        if high is not None and low > high:  # some writers order uuids as signed numbers
            lower[place], upper[place] = "", None
        classes.append(text_class(lower[place], upper[place]))
    numbers = np.array(classes, np.int64)
    return bounds_batch(np.where(empty, EMPTY, numbers), nulls, texts=(lower, upper), empty=empty)


def _text(value: str | bytes) -> str:
    return value.hex() if isinstance(value, bytes) else value


# ---- partition fields


def _partition_values(part: PartitionField, entries: Sequence[Entry], shape: TableShape) -> list[PartitionValue]:
    """The values of a transform in each file; `...` in files whose spec does not have it."""
    key = (part.source_id, str(part.transform))
    places = {
        spec.spec_id: place
        for spec in shape.specs.values()
        for place, item in enumerate(spec.fields)
        if (item.source_id, str(item.transform)) == key
    }
    return [entry.partition[places[entry.spec_id]] if entry.spec_id in places else ... for entry in entries]


def _partition_batch(
    column: IndexColumn, values: Sequence[PartitionValue], records: npt.NDArray[np.int64]
) -> pa.RecordBatch:
    """A value is both ends; null means that the column is null in all rows."""
    empty = np.array([value is None for value in values], np.bool_)
    unknown = np.array([value is ... for value in values], np.bool_)
    nulls = np.where(unknown, -1, np.where(empty, np.maximum(records, 1), 0))
    if column.type.is_text:
        texts = [value if isinstance(value, str | bytes) else None for value in values]
        return _text_batch(texts, texts, empty, nulls)
    lower, upper = intervals(values)
    return number_batch(lower, upper, empty, nulls)
