"""Queries on the source's catalog for schema changes: the columns of a table by number, and its key."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from deltalakedb.cdc.decode.messages import Relation, RelationColumn
from deltalakedb.cdc.source.server import Connection, read_sql, translate_errors
from deltalakedb.cdc.source.types import delta_type
from deltalakedb.cdc.tables import SourceColumn
from deltalakedb.log.schema.types import DataType
from deltalakedb.store.names import join_namespace

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
