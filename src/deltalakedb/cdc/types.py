"""The types of captured columns: what a Postgres type becomes in the lake, asked of the source's own catalog."""

from __future__ import annotations

from collections.abc import Collection
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Final

from deltalakedb.cdc.tables import SourceColumn
from deltalakedb.log.types import ArrayType, DataType, DecimalType, PrimitiveType

if TYPE_CHECKING:
    import psycopg

STRING: Final = PrimitiveType("string")
MAX_PRECISION: Final = 38

_NUMERIC: Final = 1700
_NAMES: Final[dict[int, str]] = {
    16: "boolean",
    17: "binary",
    20: "long",
    21: "short",
    23: "integer",
    26: "long",  # oid has no sign
    700: "float",
    701: "double",
    1082: "date",
    1114: "timestamp_ntz",
    1184: "timestamp",
}


def source_columns(
    conn: psycopg.Connection, oid: int, *, as_text: Collection[str] = (), publication: str | None = None
) -> tuple[SourceColumn, ...]:
    """The live columns of a table in the order of their numbers, as the stream sends them.

    The columns in `as_text` become strings, whatever their type. With a publication, its list of columns and what it
    says of generated ones count; without, generated columns are left out, as they are by default.
    """
    rows = conn.execute(_query(), {"oid": oid, "publication": publication}).fetchall()
    return tuple(
        SourceColumn(
            name=name,
            type_oid=type_oid,
            type_modifier=type_modifier,
            type=STRING if name in as_text else delta_type(base, modifier, element, element_modifier),
            number=number,
            type_name=type_name,
        )
        for name, type_oid, type_modifier, number, type_name, base, modifier, element, element_modifier in rows
    )


def delta_type(
    oid: int, modifier: int = -1, element_oid: int | None = None, element_modifier: int | None = None
) -> DataType:
    """The Delta type of a Postgres type that is no domain; `element_oid` is that of an array's elements.

    What has no type of its own is a string: the text that psql prints.
    """
    if element_oid is not None:
        return ArrayType(delta_type(element_oid, -1 if element_modifier is None else element_modifier))
    if oid == _NUMERIC:
        return _decimal_type(modifier)
    name = _NAMES.get(oid)
    return STRING if name is None else PrimitiveType(name)


def _decimal_type(modifier: int) -> DataType:
    """`numeric(p, s)`: since Postgres 15 the scale has a sign, in 11 bits, and may be larger than the precision."""
    if modifier < 4:
        return STRING
    precision = (modifier - 4) >> 16 & 0xFFFF
    scale = (((modifier - 4) & 0x7FF) ^ 0x400) - 0x400
    return DecimalType(precision, scale) if precision <= MAX_PRECISION and 0 <= scale <= precision else STRING


@cache
def _query() -> str:
    return (resources.files("deltalakedb.cdc") / "sql" / "select_columns.sql").read_text(encoding="utf-8")
