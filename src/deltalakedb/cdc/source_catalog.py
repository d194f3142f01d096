"""The source's catalog as schema change asks it: which columns a table has and had, by number, and what names a row."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from deltalakedb.cdc.messages import Relation, RelationColumn
from deltalakedb.cdc.server import Connection, read_sql, translate_errors
from deltalakedb.cdc.tables import SourceColumn
from deltalakedb.cdc.types import delta_type
from deltalakedb.log.types import DataType
from deltalakedb.names import join_namespace

_ATTRIBUTES: Final = read_sql("select_attributes")
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
    """Whether rows from before the column was added have a value that is kept here and not in the rows."""
    missing: str | None
    computes: bool
    """Whether new rows get a value by themselves: a default, an identity, a generated column."""


@dataclass(frozen=True, slots=True)
class SourceRelation:
    """A row of `pg_class`, with what names the table's rows."""

    oid: int
    namespace: str
    name: str
    identity: str
    filenode: int | None
    primary_key: tuple[int, ...]
    identity_key: tuple[int, ...]
    """The columns that an old row is told by; none under FULL, where all are."""
    membership: int | None
    """What makes it a table of the publication, by its oid; None: nothing does."""
    has_column_list: bool
    """Whether the publication names the columns that are sent."""

    @property
    def source(self) -> str:
        return join_namespace([self.namespace, self.name])

    def to_message(self, columns: Iterable[SourceColumn]) -> Relation:
        """The message that the next change of the table would bring along."""
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
    """A type with its modifier, domains looked through."""

    shown: str
    """As `format_type` says it."""
    name: str
    """`pg_type.typname` of what it is based on, or `enum`; of an array that of its elements."""
    modifier: int
    is_array: bool
    type: DataType


def read_attributes(conn: Connection, oid: int) -> tuple[Attribute, ...]:
    """The columns that a table has or had; none when there is no such table any more."""
    with translate_errors():
        return tuple(Attribute(*row) for row in conn.execute(_ATTRIBUTES, {"oid": oid}).fetchall())


def read_relations(conn: Connection, oids: Iterable[int], publication: str) -> dict[int, SourceRelation]:
    """The tables that are still there, by oid."""
    with translate_errors():
        rows = conn.execute(_RELATIONS, {"oids": list(oids), "publication": publication}).fetchall()
    return {
        oid: SourceRelation(oid, namespace, name, identity, filenode, tuple(primary), tuple(key), member, listed)
        for oid, namespace, name, identity, filenode, primary, key, member, listed in rows
    }


def read_type(conn: Connection, oid: int, modifier: int) -> TypeFacts | None:
    """What a type is, or None when it has been dropped."""
    with translate_errors():
        row = conn.execute(_TYPE, {"oid": oid, "modifier": modifier}).fetchone()
    if row is None:
        return None
    shown, base, base_modifier, name, element, element_modifier, element_name = row
    kind = delta_type(base, base_modifier, element, element_modifier)
    if element is None:
        return TypeFacts(shown, name, base_modifier, False, kind)
    return TypeFacts(shown, element_name, element_modifier, True, kind)
