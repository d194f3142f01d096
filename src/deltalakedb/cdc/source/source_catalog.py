"""The source's catalog: the columns of tables by number, their Delta types, their keys."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any, Final

from deltalakedb.cdc.captured_table import SourceColumn
from deltalakedb.cdc.decode.messages import Relation, RelationColumn
from deltalakedb.cdc.source.postgres import Connection, read_sql, translate_errors
from deltalakedb.log.schema.types import ArrayType, DataType, DecimalType, PrimitiveType, StructField, StructType
from deltalakedb.store.names import join_namespace

if TYPE_CHECKING:
    import psycopg

_ATTRIBUTES: Final = read_sql("select_attributes")
_MARK: Final = read_sql("select_catalog_mark")
_RELATIONS: Final = read_sql("select_relations")
_TYPE: Final = read_sql("select_type")


@dataclass(frozen=True, slots=True)
class Attribute:
    """A row of `pg_attribute`; a dropped column still has one, without its name and its type."""

    number: int
    name: str
    is_dropped: bool
    type_oid: int
    type_modifier: int
    has_missing: bool
    """Whether rows older than the column have a value that is stored here and not in the rows."""
    missing: str | None
    computes: bool
    """Whether new rows get a value automatically: a default, an identity, a generated column."""
    is_rewritten: bool | None = None
    """Whether a partition without such a value may have had one in its rows; None for a table with rows of its own,
    whose filenode tells."""


@dataclass(frozen=True, slots=True)
class SourceRelation:
    """A row of `pg_class`, with the keys of the table."""

    oid: int
    namespace: str
    name: str
    identity: str
    filenode: int | None
    primary_key: tuple[int, ...]
    identity_key: tuple[int, ...]
    """The columns that identify an old row; none under FULL, where all columns do."""
    membership: int | None
    """The oid of what makes it a table of the publication; None if it is not in it."""
    has_column_list: bool
    """Whether the publication has a list of columns for it."""
    is_partitioned: bool = False
    """Whether it has no rows but those of its partitions."""
    publishing: str | None = None
    """The mark of the publication's options."""

    @property
    def source(self) -> str:
        return join_namespace([self.namespace, self.name])

    def to_message(self, columns: Iterable[SourceColumn]) -> Relation:
        """The relation message that the next change of the table would send."""
        return Relation(
            self.oid,
            self.namespace,
            self.name,
            self.identity,
            tuple(
                RelationColumn(
                    column.name,
                    column.type_oid,
                    column.type_modifier,
                    self.identity == "f" or column.number in self.identity_key,
                )
                for column in columns
            ),
        )


@dataclass(frozen=True, slots=True)
class TypeFacts:
    """A type with its modifier; domains are replaced by their base type."""

    text: str
    """As `format_type` prints it."""
    name: str
    """`pg_type.typname` of its base type, or `enum`; for an array that of its elements."""
    modifier: int
    is_array: bool
    type: DataType


def catalog_mark(conn: Connection) -> str:
    """A text that changes whenever a table, a type or a publication of the source is changed."""
    with translate_errors():
        row = conn.execute(_MARK).fetchone()
    assert row is not None, "a sum is one row"
    return str(row[0])


def read_attributes(conn: Connection, oid: int) -> tuple[Attribute, ...]:
    """The present and dropped columns of a table; none if the table no longer exists."""
    with translate_errors():
        return tuple(Attribute(*row) for row in conn.execute(_ATTRIBUTES, {"oid": oid}).fetchall())


def read_relations(conn: Connection, oids: Iterable[int], publication: str) -> dict[int, SourceRelation]:
    """The tables that still exist, by oid."""
    with translate_errors():
        rows = conn.execute(_RELATIONS, {"oids": list(oids), "publication": publication}).fetchall()
    return {
        oid: SourceRelation(oid, namespace, name, identity, filenode, tuple(primary), tuple(key), *rest)
        for oid, namespace, name, identity, filenode, primary, key, *rest in rows
    }


def read_type(conn: Connection, oid: int, modifier: int) -> TypeFacts | None:
    """The facts of a type, or None if it was dropped."""
    with translate_errors():
        row = conn.execute(_TYPE, {"oid": oid, "modifier": modifier}).fetchone()
    if row is None:
        return None
    text, base, base_modifier, name, element, element_modifier, element_name = row
    kind = delta_type(base, base_modifier, element, element_modifier)
    if element is None:
        return TypeFacts(text, name, base_modifier, False, kind)
    return TypeFacts(text, element_name, element_modifier, True, kind)


STRING: Final = PrimitiveType("string")
MAX_PRECISION: Final = 38
_FIRST_OF_USERS: Final = 16384
"""Postgres' own types have lower oids, and none that a column can have is composite."""
_COMPOSITE: Final = "select typrelid::bigint from pg_catalog.pg_type where oid = %s::oid and typtype = 'c'"

_NUMERIC: Final = 1700
_NAMES: Final[dict[int, str]] = {
    16: "boolean",
    17: "binary",
    20: "long",
    21: "short",
    23: "integer",
    26: "long",  # oid is unsigned
    700: "float",
    701: "double",
    1082: "date",
    1114: "timestamp_ntz",
    1184: "timestamp",
}


@dataclass(frozen=True, slots=True)
class Shapes:
    """How the settings map the types of a table's columns."""

    as_text: Callable[[str], bool] = lambda _: False
    """Whether a column becomes a string, whatever its type."""
    composites: str = "text"
    """What composite types become: text, json or struct."""


def source_columns(
    conn: psycopg.Connection,
    tables: Mapping[int, Shapes],
    *,
    publication: str | None = None,
) -> dict[int, tuple[SourceColumn, ...]]:
    """The live columns of tables by oid, in the order of their numbers, as the stream sends them.

    All are read in one query, however many tables there are. With a publication, its column lists and its option for
    generated columns apply; without one, generated columns are left out, which is the default.
    """
    columns: dict[int, list[SourceColumn]] = {oid: [] for oid in tables}
    for oid, name, type_oid, type_modifier, number, type_name, *resolved in _attributes(conn, tables, publication):
        shapes = tables[oid]
        kind: DataType = STRING
        shape: DataType | None = None
        if not shapes.as_text(name):
            kind = delta_type(*resolved) if shapes.composites == "text" else _resolve(conn, *resolved)
        if shapes.composites == "json" and has_struct(kind):
            kind, shape = STRING, kind
        columns[oid].append(SourceColumn(name, type_oid, type_modifier, kind, number, type_name, shape=shape))
    return {oid: tuple(table_columns) for oid, table_columns in columns.items()}


def _attributes(conn: psycopg.Connection, oids: Iterable[int], publication: str | None) -> list[tuple[Any, ...]]:
    return conn.execute(_query(), {"oids": list(oids), "publication": publication}).fetchall()


def has_struct(kind: DataType) -> bool:
    """Whether it is the type of composite values, or of arrays of them."""
    return isinstance(kind, StructType) or (isinstance(kind, ArrayType) and has_struct(kind.element_type))


def _resolve(
    conn: psycopg.Connection, oid: int, modifier: int, element: int | None, element_modifier: int | None
) -> DataType:
    """Like `delta_type`, but a composite type is a struct of its attributes; one without attributes is a string."""
    if element is not None:
        return ArrayType(_resolve(conn, element, -1 if element_modifier is None else element_modifier, None, None))
    row = conn.execute(_COMPOSITE, [oid]).fetchone() if oid >= _FIRST_OF_USERS else None
    if row is None:
        return delta_type(oid, modifier)
    attributes = _attributes(conn, [row[0]], None)
    fields = tuple(StructField(name, _resolve(conn, *resolved), True) for _, name, _, _, _, _, *resolved in attributes)
    distinct = {item.name.casefold() for item in fields}
    return StructType(fields) if fields and len(distinct) == len(fields) else STRING


def delta_type(
    oid: int, modifier: int = -1, element_oid: int | None = None, element_modifier: int | None = None
) -> DataType:
    """The Delta type of a Postgres type that is not a domain; `element_oid` is that of an array's elements.

    Types without an equivalent are strings: the text that psql prints.
    """
    if element_oid is not None:
        return ArrayType(delta_type(element_oid, -1 if element_modifier is None else element_modifier))
    if oid == _NUMERIC:
        return _decimal_type(modifier)
    name = _NAMES.get(oid)
    return STRING if name is None else PrimitiveType(name)


def _decimal_type(modifier: int) -> DataType:
    """`numeric(p, s)`: since Postgres 15 the scale is signed, has 11 bits, and may be larger than the precision."""
    if modifier < 4:
        return STRING
    precision = (modifier - 4) >> 16 & 0xFFFF
    scale = (((modifier - 4) & 0x7FF) ^ 0x400) - 0x400
    return DecimalType(precision, scale) if precision <= MAX_PRECISION and 0 <= scale <= precision else STRING


@cache
def _query() -> str:
    return (resources.files("deltalakedb.cdc") / "sql" / "select_columns.sql").read_text(encoding="utf-8")
