"""The queries that read rows by key once more, for a copy beside the stream."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from psycopg import sql

from deltalakedb.cdc.source.snapshot import PageRange
from deltalakedb.cdc.tables import CapturedTable, source_parts

if TYPE_CHECKING:
    import pyarrow as pa

_KEYS_A_QUERY: Final = 1000


def patch_ranges(table: CapturedTable, keys: pa.Table) -> tuple[PageRange, ...] | None:
    """Queries that read rows by their keys; None if a key cannot be written as a text that Postgres reads."""
    columns = {column.name: column for column in table.columns}
    if any(columns[name].mask is not None for name in table.key):  # the lake does not have the source's keys
        return None
    names = sql.SQL(", ").join(sql.Identifier(name) for name in columns)
    key = sql.SQL(", ").join(map(sql.Identifier, table.key))
    types = [columns[name].type_name for name in table.key]
    relation = sql.Identifier(*source_parts(table.source))
    lock = sql.SQL("lock table {} in access share mode").format(relation).as_string(None)
    ranges = []
    values = [column.to_pylist() for column in keys.columns]
    rows = list(zip(*values, strict=True))
    for start in range(0, len(rows), _KEYS_A_QUERY):
        tuples = []
        for row in rows[start : start + _KEYS_A_QUERY]:
            texts = [_text_of(value) for value in row]
            if None in texts:
                return None
            parts = [
                sql.SQL("{}::{}").format(sql.Literal(text), sql.SQL(kind))
                for text, kind in zip(texts, types, strict=True)
            ]
            tuples.append(sql.SQL("({})").format(sql.SQL(", ").join(parts)))
        query = sql.SQL("copy (select {} from {} where ({}) in ({})) to stdout (format csv)").format(
            names, relation, key, sql.SQL(", ").join(tuples)
        )
        ranges.append(PageRange(table.oid, 0, lock, query.as_string(None), is_whole=True))
    return tuple(ranges)


def _text_of(value: Any) -> str | None:
    """A value of a key as a text that Postgres reads, or None."""
    match value:
        case str():
            return value
        case bool():
            return "true" if value else "false"
        case int() | Decimal() | float():
            return str(value)
        case bytes():
            return "\\x" + value.hex()
        case datetime() | date():
            return value.isoformat()
        case _:
            return None
