"""The pgoutput messages (protocol 1) that are parsed one by one: relation and truncate."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from deltalakedb.cdc.tables import CapturedTable, SourceColumn
from deltalakedb.store.names import join_namespace

BEGIN: Final = ord("B")
COMMIT: Final = ord("C")
RELATION: Final = ord("R")
TYPE: Final = ord("Y")
ORIGIN: Final = ord("O")
MESSAGE: Final = ord("M")
INSERT: Final = ord("I")
UPDATE: Final = ord("U")
DELETE: Final = ord("D")
TRUNCATE: Final = ord("T")

OLD_KEY: Final = ord("K")
OLD_ROW: Final = ord("O")

NULL: Final = ord("n")
UNCHANGED: Final = ord("u")
TEXT: Final = ord("t")

EPOCH_MICROS: Final = 946_684_800_000_000
"""Postgres counts microseconds from the beginning of 2000."""

_IS_KEY: Final = 1


@dataclass(frozen=True, slots=True)
class RelationColumn:
    """A column as the stream describes it, without its attribute number."""

    name: str
    type_oid: int
    type_modifier: int
    is_key: bool
    """Whether it is part of the replica identity."""

    def to_value(self) -> dict[str, Any]:
        return {"name": self.name, "typeOid": self.type_oid, "typeModifier": self.type_modifier, "isKey": self.is_key}

    @classmethod
    def from_value(cls, value: Mapping[str, Any]) -> RelationColumn:
        return cls(value["name"], value["typeOid"], value["typeModifier"], value["isKey"])


@dataclass(frozen=True, slots=True)
class Relation:
    """A relation message: how the rows that follow are sent."""

    oid: int
    namespace: str
    name: str
    identity: str
    """`relreplident`: d (key), i (index), f (full), n (nothing)."""
    columns: tuple[RelationColumn, ...]

    @property
    def source(self) -> str:
        return join_namespace([self.namespace, self.name])

    def matches(self, table: CapturedTable) -> bool:
        """Whether its rows fit `table` as captured: the same columns, and an identity that includes its key."""
        if self.oid != table.oid or not self.has_columns(table.sent):
            return False
        if not table.key:
            return self.identity == "f"
        keys = {column.name for column in self.columns if column.is_key}
        return set(table.key) == keys or (self.identity == "f" and set(table.key) <= keys)

    def has_columns(self, columns: Sequence[SourceColumn]) -> bool:
        """Whether its columns are these, by name and type, in order."""
        sent = [(column.name, column.type_oid, column.type_modifier) for column in self.columns]
        return sent == [(column.name, column.type_oid, column.type_modifier) for column in columns]

    def to_value(self) -> dict[str, Any]:
        return {
            "oid": self.oid,
            "namespace": self.namespace,
            "name": self.name,
            "identity": self.identity,
            "columns": [column.to_value() for column in self.columns],
        }

    @classmethod
    def from_value(cls, value: Mapping[str, Any]) -> Relation:
        return cls(
            oid=value["oid"],
            namespace=value["namespace"],
            name=value["name"],
            identity=value["identity"],
            columns=tuple(map(RelationColumn.from_value, value["columns"])),
        )


def parse_relation(data: bytes) -> Relation:
    """Parse a relation message."""
    (oid,) = struct.unpack_from(">I", data, 1)
    namespace, position = _text_at(data, 5)
    name, position = _text_at(data, position)
    identity, count = struct.unpack_from(">cH", data, position)
    position += 3
    columns = []
    for _ in range(count):
        flags = data[position]
        column, position = _text_at(data, position + 1)
        type_oid, modifier = struct.unpack_from(">Ii", data, position)
        position += 8
        columns.append(RelationColumn(column, type_oid, modifier, bool(flags & _IS_KEY)))
    # An empty namespace means pg_catalog.
    return Relation(oid, namespace or "pg_catalog", name, identity.decode(), tuple(columns))


def parse_truncate(data: bytes) -> tuple[int, ...]:
    """The oids of the relations that a truncate message truncates."""
    (count,) = struct.unpack_from(">I", data, 1)
    return struct.unpack_from(f">{count}I", data, 6)


def _text_at(data: bytes, at: int) -> tuple[str, int]:
    end = data.index(0, at)
    return data[at:end].decode(), end + 1
