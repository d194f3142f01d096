"""Rows of a source table and of its table in the lake in one form that loses nothing: Python knows no year 4713 BC."""

from collections.abc import Iterator
from typing import Any

import psycopg
import pyarrow as pa
import pyarrow.compute as pc
from psycopg.rows import TupleRow

from deltalakedb.cdc.captured_table import CapturedTable, SourceColumn
from deltalakedb.log.schema.types import type_to_value
from tests.cdc.judging import plain

_INSTANT = (
    "case when isfinite({0}) then (extract(epoch from {0}) * 1000000)::bigint "
    "when {0} > '2000-01-01' then 9223372036854775807 when {0} < '2000-01-01' then -9223372036854775807 end"
)
_DAY = (
    "case when isfinite({0}) then {0} - date '1970-01-01' "
    "when {0} > '2000-01-01' then 2147483647 when {0} < '2000-01-01' then -2147483647 end"
)
_FORMS = {
    "array<string>": "{0}::text[]",
    "date": _DAY,
    "double": "float8send({0})",
    "float": "float4send({0})",
    "string": "case when num_nulls({0}) = 0 then format('%s', {0}) end",
    "timestamp": _INSTANT,
    "timestamp_ntz": _INSTANT,
}
"""How the source is asked for values that Python may not know, or not to the last bit."""


def kind_of(column: SourceColumn) -> str:
    """The type in Delta, as a text."""
    value = type_to_value(column.type)
    return value if isinstance(value, str) else f"array<{value['elementType']}>"


def in_source(connection: psycopg.Connection[TupleRow], table: CapturedTable) -> Iterator[tuple[Any, ...]]:
    """The rows of the source."""
    connection.execute("set timezone = 'UTC'")
    columns = [_FORMS.get(kind_of(column), "{0}").format(f'"{column.name}"') for column in table.columns]
    for row in connection.execute(f"select {', '.join(columns)} from {table.source}".encode()):
        yield tuple(map(plain, row))


def in_lake(rows: pa.Table, table: CapturedTable) -> Iterator[tuple[Any, ...]]:
    """The rows of the lake."""
    return zip(*(_values(rows[column.name], kind_of(column)) for column in table.columns), strict=True)


def _values(values: pa.ChunkedArray, kind: str) -> list[Any]:
    if kind in ("float", "double"):
        return list(_bits(values))
    if kind in ("timestamp", "timestamp_ntz"):
        values = values.cast(pa.int64())
    elif kind == "date":
        values = values.cast(pa.int32())
    return [plain(value) for value in values.to_pylist()]


def _bits(values: pa.ChunkedArray) -> Iterator[bytes | None]:
    """The bytes of each float: zero has a sign."""
    width = values.type.bit_width // 8
    numbers = pc.fill_null(values, 0.0).combine_chunks().to_numpy(zero_copy_only=False)
    data = numbers.astype(f">f{width}").tobytes()
    for place, null in enumerate(values.is_null().to_pylist()):
        yield None if null else data[place * width : (place + 1) * width]
