"""Reads the statistics of many files with Arrow into columns, if each value has the form that its type requires.

`stats.load_stats` reads any one string. Here one unusual value in any file makes the result None, and the caller takes
the slow path; a test checks that both paths give the same bounds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from deltalakedb.log.schema.types import DataType, PrimitiveType

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
