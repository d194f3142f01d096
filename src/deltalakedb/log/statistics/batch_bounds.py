"""Computes the bounds of a batch of files without a Python object per value; same result as `bounds.compute_bounds`."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from deltalakedb.log.protocol.codec import from_sql_text
from deltalakedb.log.schema.types import DataType, PrimitiveType
from deltalakedb.log.statistics.bounds import (
    CUT_SLACK_US,
    EMPTY,
    POINT,
    FileBounds,
    PartitionValues,
    bounds_batch,
    compute_bounds,
    known_null_counts,
    number_batch,
    number_column,
    partition_batch,
    text_class,
    timestamp_intervals,
)
from deltalakedb.log.statistics.bounds_columns import BoundsColumn
from deltalakedb.log.statistics.intervals import RANGE, Doubles, lower_text_bound, upper_text_bound
from deltalakedb.log.statistics.moments import (
    TIMESTAMP_BYTES,
    Moments,
    parse_dates,
    parse_timestamp_bytes,
    parse_timestamps,
)

_SHORT_BYTES: Final = 31
"""A text of up to this many bytes, without NUL, is its own lower and upper bound."""

_NOTHING: Final[dict[str, Any]] = {}
_Bools = npt.NDArray[np.bool_]
_Counts = npt.NDArray[np.int64]


def compute_bounds_of_batch(columns: Sequence[BoundsColumn], files: pa.RecordBatch) -> FileBounds:
    """`compute_bounds` for the columns `stats` and `partition_values` of FILES_SCHEMA."""
    partitions = _partitions(files.column("partition_values"))
    data = [(column.physical_path, column.type) for column in columns if not column.is_partition]
    stats = _unescaped(files.column("stats"))
    file_stats = None if stats is None else read_stats_columns(data, stats)
    if file_stats is None:
        texts = [None if text is None else from_sql_text(text) for text in files.column("stats").to_pylist()]
        return compute_bounds(columns, zip(texts, partitions, strict=True))
    batches = [
        partition_batch(column, partitions, file_stats.num_records)
        if column.is_partition
        else _data_batch(column, file_stats)
        for column in columns
    ]
    return FileBounds(batches, pa.array(file_stats.num_records, mask=file_stats.num_records < 0), 0)


def _unescaped(stats: pa.Array) -> pa.Array | None:
    """Undoes `to_sql_text`; None if Arrow cannot hold the texts."""
    if not pc.any(pc.match_substring(stats, "\\")).as_py():
        return stats
    try:
        return pa.array([None if text is None else from_sql_text(text) for text in stats.to_pylist()], pa.string())
    except UnicodeEncodeError:
        return None


def _partitions(column: pa.Array) -> list[PartitionValues]:
    parsed: dict[str | None, PartitionValues] = {None: _NOTHING}
    texts = column.to_pylist()
    for text in set(texts).difference(parsed):
        parsed[text] = json.loads(text)
    return [parsed[text] for text in texts]


def _data_batch(column: BoundsColumn, stats: StatsColumns) -> pa.RecordBatch:
    path, counts = column.physical_path, stats.num_records
    lows, highs = stats.lows(path), stats.highs(path)
    null_count = known_null_counts(stats.null_counts(path), counts, stats.tight)
    absent = _bools(pc.and_(pc.is_null(lows), pc.is_null(highs)))
    empty = absent & (null_count == counts) & (counts >= 0)
    if column.kind == "text":
        return _text_batch(lows, highs, empty, null_count)
    return number_batch(_intervals(column, lows)[0], _intervals(column, highs)[1], empty, null_count)


def _intervals(column: BoundsColumn, values: pa.Array) -> tuple[Doubles, Doubles]:
    if column.kind == "number":
        if pa.types.is_boolean(values.type):
            values = values.cast(pa.int64())
        return number_column(column).known_intervals(values.fill_null(0).to_numpy(False), _bools(pc.is_null(values)))
    if column.kind == "date":
        coded = values.dictionary_encode()
        days, readable = parse_dates([*coded.dictionary.to_pylist(), None])
        places = coded.indices.fill_null(len(coded.dictionary)).to_numpy(False)
        days, readable = days[places], readable[places]
        return np.where(readable, days, -np.inf), np.where(readable, days, np.inf)
    return timestamp_intervals(column, _moments(values), slack_us=CUT_SLACK_US)


def _moments(values: pa.Array) -> Moments:
    texts = values.fill_null("")
    if pc.max(pc.binary_length(texts)).as_py() > TIMESTAMP_BYTES or not pc.all(pc.string_is_ascii(texts)).as_py():
        return parse_timestamps(values.to_pylist())
    return parse_timestamp_bytes(_bytes(texts, TIMESTAMP_BYTES), lambda place: values[place].as_py())


def _text_batch(lows: pa.Array, highs: pa.Array, empty: _Bools, null_count: _Counts) -> pa.RecordBatch:
    lower = _cut(lows, lower_text_bound).fill_null("")
    upper = _cut(highs, upper_text_bound)
    contradiction = pc.fill_null(pc.greater(lower, upper), False)
    if contradiction.true_count:
        lower = pc.if_else(contradiction, "", lower)
        upper = pc.if_else(contradiction, pa.scalar(None, pa.string()), upper)
    classes = np.where(empty, EMPTY, _text_classes(lower, upper))
    return bounds_batch(classes, null_count, texts=(lower, upper), empty=empty)


def _cut(values: pa.Array, cut: Callable[[str], str | None]) -> pa.Array:
    to_cut = pc.or_(pc.greater(pc.binary_length(values), _SHORT_BYTES), pc.match_substring(values, "\0"))
    to_cut = to_cut.fill_null(False)
    if not to_cut.true_count:
        return values
    return pc.replace_with_mask(values, to_cut, pa.array(map(cut, values.filter(to_cut).to_pylist()), pa.string()))


def _text_classes(lower: pa.Array, upper: pa.Array) -> _Counts:
    """Computes `text_class` of each pair."""
    upper_text = upper.fill_null("")
    width = max(1, *(pc.max(pc.binary_length(ends)).as_py() or 0 for ends in (lower, upper_text)))
    # Bounds never contain NUL, so the padding differs from any character of the longer text.
    differ = _bytes(lower, width) != _bytes(upper_text, width)
    classes: _Counts = differ.argmax(axis=1).astype(np.int64)
    classes[~differ.any(axis=1)] = POINT
    classes[_bools(pc.is_null(upper))] = RANGE
    plain = pc.and_(pc.string_is_ascii(lower), pc.string_is_ascii(upper_text))
    for place in np.flatnonzero(~_bools(plain)).tolist():  # in texts beyond ASCII, bytes are not characters
        classes[place] = text_class(lower[place].as_py(), upper[place].as_py())
    return classes


def _bytes(texts: pa.Array, width: int) -> npt.NDArray[np.uint8]:
    padded = pc.ascii_rpad(texts, width, padding="\0")
    return np.frombuffer(padded.buffers()[2], np.uint8, count=len(texts) * width).reshape(-1, width)


def _bools(values: pa.Array) -> _Bools:
    array: _Bools = values.to_numpy(False)
    return array


_BLOCK_BYTES: Final = 1 << 20
_INTEGERS: Final = ("byte", "short", "integer", "long")
_TYPES: Final[Mapping[str, pa.DataType]] = {
    **dict.fromkeys(_INTEGERS, pa.int64()),
    **dict.fromkeys(("float", "double"), pa.float64()),
    **dict.fromkeys(("string", "date", "timestamp", "timestamp_ntz"), pa.string()),
    "boolean": pa.bool_(),
}
_Path = tuple[str, ...]
_PARTS: Final = ("minValues", "maxValues", "nullCount")


class StatsColumns:
    """The parts of many statistics, one array per column; null if a file has no value."""

    def __init__(self, parsed: pa.Table) -> None:
        self._parts = {name: _whole(parsed.column(name)) for name in _PARTS if name in parsed.column_names}
        self.num_records = counts(_whole(parsed.column("numRecords")))
        """Row counts; -1 if unknown."""
        self.tight: npt.NDArray[np.bool_] = _whole(parsed.column("tightBounds")).fill_null(True).to_numpy(False)

    def lows(self, path: _Path) -> pa.Array:
        return self._of("minValues", path)

    def highs(self, path: _Path) -> pa.Array:
        return self._of("maxValues", path)

    def null_counts(self, path: _Path) -> npt.NDArray[np.int64]:
        """Null counts as in the statistics; -1 if unknown."""
        return counts(self._of("nullCount", path))

    def _of(self, part: str, path: _Path) -> pa.Array:
        return pc.struct_field(self._parts[part], list(path))


def counts(values: pa.Array) -> npt.NDArray[np.int64]:
    """Row counts; -1 for invalid values."""
    numbers: npt.NDArray[np.int64] = values.fill_null(-1).to_numpy(False)
    return np.maximum(numbers, -1)


def read_stats_columns(columns: Sequence[tuple[_Path, DataType]], texts: pa.Array) -> StatsColumns | None:
    """Reads the statistics of files for these columns; None if one of them has another form than expected."""
    schema = _schema(columns)
    if schema is None or not len(texts):
        return None
    # Imported late, because it loads Arrow's dataset readers.
    from pyarrow import json as pyarrow_json

    try:
        lines = _lines(texts)
        if lines is None:
            return None
        parsed = pyarrow_json.read_json(
            pa.BufferReader(lines),
            read_options=pyarrow_json.ReadOptions(block_size=_BLOCK_BYTES),
            parse_options=pyarrow_json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore"),
        )
    except pa.ArrowInvalid:
        return None
    return StatsColumns(parsed) if parsed.num_rows == len(texts) else None


def _lines(texts: pa.Array) -> bytes | None:
    """Joins the texts, one per line; None if a reader could parse them as more or fewer objects."""
    if texts.null_count:
        texts = texts.fill_null("{}")
    if not pc.min(pc.binary_length(texts)).as_py():
        texts = pc.if_else(pc.equal(texts, ""), "{}", texts)
    joined = pc.binary_join(pa.ListArray.from_arrays([0, len(texts)], texts), "\n")
    lines: bytes = joined[0].as_buffer().to_pybytes()
    # With these checks an object cannot span two lines, nor be nested in another.
    breaks = len(texts) - 1
    if lines.count(b"\n") != breaks or lines.count(b"}\n{") != breaks or b"\r" in lines:
        return None
    return lines if lines[:1] == b"{" and lines[-1:] == b"}" else None


def _schema(columns: Sequence[tuple[_Path, DataType]]) -> pa.Schema | None:
    values: dict[str, Any] = {}
    nulls: dict[str, Any] = {}
    for path, data_type in columns:
        kind = _TYPES.get(data_type.name) if isinstance(data_type, PrimitiveType) else None
        if kind is None:
            return None
        _place(values, path, kind)
        _place(nulls, path, pa.int64())
    fields = [("numRecords", pa.int64()), ("tightBounds", pa.bool_())]
    if columns:
        fields += [("minValues", _struct(values)), ("maxValues", _struct(values)), ("nullCount", _struct(nulls))]
    return pa.schema(fields)


def _place(tree: dict[str, Any], path: _Path, kind: pa.DataType) -> None:
    for name in path[:-1]:
        tree = tree.setdefault(name, {})
    tree[path[-1]] = kind


def _struct(tree: Mapping[str, Any]) -> pa.DataType:
    return pa.struct([(name, _struct(child) if isinstance(child, dict) else child) for name, child in tree.items()])


def _whole(column: pa.ChunkedArray) -> pa.Array:
    array = column.combine_chunks()
    return array if isinstance(array, pa.Array) else pa.concat_arrays(array.chunks)
