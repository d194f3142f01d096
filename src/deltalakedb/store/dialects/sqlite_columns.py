"""Large SQLite results as Arrow without a Python object per value: SQLite itself concatenates each column.

Measured with 100,000 files of 12 columns: 170 ms of CPU, against 450 ms through rows of Python values.
"""

import sqlite3
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from deltalakedb.store.queries import arrow_types


def fetch_columns(
    connection: sqlite3.Connection, statement: str, names: Sequence[str], parameters: Mapping[str, Any]
) -> pa.Table | None:
    """The result as a table; None when a column's type is not known, or it is too large for one SQLite value."""
    kinds = [arrow_types().get(name) for name in names]
    if len(set(names)) < len(names) or not all(map(_can_concatenate, kinds)):
        return None
    parts = [part for name, kind in zip(names, kinds, strict=True) for part in _concatenated(f'"{name}"', kind)]
    try:
        row = connection.execute(f"select count(*), {', '.join(parts)} from ({statement})", parameters).fetchone()
        size = row[0]
        arrays = [
            _strings(size, data, numbers) if kind == pa.string() else _integers(size, data, numbers, kind)
            for kind, data, numbers in zip(kinds, row[1::2], row[2::2], strict=True)
        ]
    except (sqlite3.DataError, ValueError, pa.ArrowInvalid):  # too big; or a user's own alias with other values in it
        return None
    return pa.table(arrays, names=list(names))


def _can_concatenate(kind: pa.DataType | None) -> bool:
    # Not doubles: SQLite prints them with 15 digits.
    return kind is not None and (kind == pa.string() or kind == pa.bool_() or pa.types.is_integer(kind))


def _concatenated(column: str, kind: pa.DataType) -> tuple[str, str]:
    if kind == pa.string():
        lengths = f"group_concat(coalesce(length(cast({column} as blob)), -1))"
        return f"cast(group_concat({column}, '') as blob)", lengths
    return f"count({column})", f"group_concat(coalesce({column}, ''))"


def _strings(size: int, data: bytes | None, lengths: str) -> pa.Array:
    sizes: npt.NDArray[np.int64] = _split(lengths, size).cast(pa.int64()).to_numpy()
    is_null = sizes < 0
    offsets = np.zeros(size + 1, np.int32)
    np.cumsum(np.where(is_null, 0, sizes), out=offsets[1:])
    if offsets[-1] != len(data or b""):
        raise ValueError("lengths and data differ")
    valid = np.packbits(~is_null, bitorder="little") if is_null.any() else None
    buffers = [None if valid is None else pa.py_buffer(valid), pa.py_buffer(offsets), pa.py_buffer(data or b"")]
    return pa.Array.from_buffers(pa.string(), size, buffers)


def _integers(size: int, num_values: int, text: str, kind: pa.DataType) -> pa.Array:
    if not num_values:
        return pa.nulls(size, kind)
    values = _split(text, size)
    if num_values < size:
        values = pc.if_else(pc.equal(values, ""), None, values)
    return values.cast(pa.int64()).cast(kind)


def _split(text: str, size: int) -> pa.Array:
    values = pc.split_pattern(pa.array([text]), ",").values
    if len(values) != size:
        raise ValueError("not one number per row")
    return values
