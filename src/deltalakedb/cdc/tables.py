"""Captured tables: what of a source table is known and agreed on, and which tables of the lake hold it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from deltalakedb.exceptions import TableNameError
from deltalakedb.log.types import DataType, type_from_value, type_to_value
from deltalakedb.names import join_namespace, split_name

Stage = Literal["pending", "streaming", "stopped"]
"""Waiting for its first (or next) copy; following the stream; left alone until somebody asks for a new copy."""


def parse_source(text: str) -> str:
    """A source table that a user names, by `schema.name` or a name in `public`, as `CapturedTable` has it."""
    parts = split_name(text)
    if len(parts) > 2:
        raise TableNameError(
            f"{text!r} is not schema.name: a name that has a dot in it is written in backticks, for example "
            "public.`a.b`"
        )
    return join_namespace(parts if len(parts) == 2 else ["public", *parts])


def source_parts(source: str) -> list[str]:
    """Schema and name of a `CapturedTable.source`, even of one that the lake cannot have."""
    return split_name(source, checks=False)


def requote_source(source: str) -> str:
    """A source table as an older capture may have noted it, without backticks, in the form it has now."""
    try:
        parts = source_parts(source)
    except TableNameError:  # quotes and slashes had no backticks around them
        parts = []
    return join_namespace(parts if len(parts) == 2 else source.partition(".")[::2])


def _requote_name(name: str) -> str:
    """A table of the lake as an older capture may have noted it, even one that could not be captured."""
    try:
        parts = split_name(name, checks=False)
    except TableNameError:
        namespace, _, last = name.rpartition(".")
        parts = [*namespace.split("."), last]
    return join_namespace(parts)


@dataclass(frozen=True, slots=True)
class SourceColumn:
    """One column of a source table, and the Delta type its values get."""

    name: str
    type_oid: int
    type_modifier: int
    type: DataType
    number: int
    """`attnum`: stays the same when the column is renamed, and is never given to another one."""
    type_name: str = ""
    """As `format_type` says it, for messages."""
    missing: str | None = None
    """What rows from before it was added have in it, as text: a constant default, which no message brings."""

    def to_value(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "typeOid": self.type_oid,
            "typeModifier": self.type_modifier,
            "type": type_to_value(self.type),
            "number": self.number,
            "typeName": self.type_name,
            "missing": self.missing,
        }

    @classmethod
    def from_value(cls, value: Mapping[str, Any]) -> SourceColumn:
        return cls(
            name=value["name"],
            type_oid=value["typeOid"],
            type_modifier=value["typeModifier"],
            type=type_from_value(value["type"]),
            number=value["number"],
            type_name=value.get("typeName", ""),
            missing=value.get("missing"),
        )


@dataclass(frozen=True, slots=True)
class CapturedTable:
    """A source table and its two tables in the lake."""

    source: str
    """`schema.name` in Postgres, each part in backticks where it needs them."""
    oid: int
    columns: tuple[SourceColumn, ...]
    key: tuple[str, ...]
    """The columns that name a row; empty when the whole row does (REPLICA IDENTITY FULL without a primary key)."""
    current: str
    """The lake's table of rows as they are now."""
    changes: str
    """The lake's append-only table of what happened to them."""
    stage: Stage = "pending"
    start_lsn: int | None = None
    """Where its last copy was made: the copy has what was committed before, the stream brings the rest."""
    identity: str = "d"
    """`relreplident`: d (key), i (index), f (full)."""
    reason: str | None = None
    """Why it is stopped."""
    stopped_lsn: int | None = None
    """Since when: of transactions whose commit begins here or later, what they did to this table is not in the lake."""
    notes: tuple[str, ...] = field(default=())
    """What whoever reads the tables should know, such as a column that the source has dropped."""
    changed_lsn: int | None = None
    """The transaction that brought the columns as they are now."""
    former: tuple[tuple[SourceColumn, ...], ...] = field(default=())
    """The columns that rows of that same transaction have when they came before its ALTER TABLE, told by `number`."""
    filenode: int | None = None
    """`pg_relation_filenode` when the columns were looked at: another one means that the rows may be rewritten."""
    newest: int = 0
    """The highest number that a column had then, also of those that are not sent: a new column has a higher one."""
    membership: int | None = None
    """What made it a table of the publication, by its oid: another one means that it was not, in between."""

    @property
    def is_keyed(self) -> bool:
        return bool(self.key)

    def column(self, name: str) -> SourceColumn | None:
        return next((column for column in self.columns if column.name == name), None)

    def to_value(self) -> dict[str, Any]:
        return {
            "source": self.source,
            "oid": self.oid,
            "columns": [column.to_value() for column in self.columns],
            "key": list(self.key),
            "current": self.current,
            "changes": self.changes,
            "stage": self.stage,
            "startLsn": self.start_lsn,
            "identity": self.identity,
            "reason": self.reason,
            "stoppedLsn": self.stopped_lsn,
            "notes": list(self.notes),
            "changedLsn": self.changed_lsn,
            "former": [[column.to_value() for column in columns] for columns in self.former],
            "filenode": self.filenode,
            "newest": self.newest,
            "membership": self.membership,
        }

    @classmethod
    def from_value(cls, value: Mapping[str, Any]) -> CapturedTable:
        return cls(
            source=requote_source(value["source"]),
            oid=value["oid"],
            columns=tuple(map(SourceColumn.from_value, value["columns"])),
            key=tuple(value["key"]),
            current=_requote_name(value["current"]),
            changes=_requote_name(value["changes"]),
            stage=value["stage"],
            start_lsn=value["startLsn"],
            identity=value.get("identity", "d"),
            reason=value["reason"],
            stopped_lsn=value.get("stoppedLsn"),
            notes=tuple(value.get("notes", ())),
            changed_lsn=value.get("changedLsn"),
            former=tuple(tuple(map(SourceColumn.from_value, columns)) for columns in value.get("former", ())),
            filenode=value.get("filenode"),
            newest=value.get("newest", 0),
            membership=value.get("membership"),
        )
