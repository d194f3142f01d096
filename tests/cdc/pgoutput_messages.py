"""Messages of pgoutput as Postgres writes them, for tests that need no server."""

import struct
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Final, Literal

from deltalakedb.cdc.captured_table import CapturedTable
from deltalakedb.cdc.decode.messages import Relation, RelationColumn

UNCHANGED: Final = object()
"""A large value that an update left alone."""

Cell = str | bytes | None | object
_EPOCH = datetime(2000, 1, 1, tzinfo=UTC)


def relation_of(table: CapturedTable) -> Relation:
    """How the source describes a table that is as it is known."""
    namespace, _, name = table.source.partition(".")
    columns = [
        RelationColumn(item.name, item.type_oid, item.type_modifier, table.identity == "f" or item.name in table.key)
        for item in table.columns
    ]
    return Relation(table.oid, namespace, name, table.identity, tuple(columns))


def begin(lsn: int, committed_at: datetime, xid: int) -> bytes:
    return b"B" + struct.pack(">Qqi", lsn, (committed_at - _EPOCH) // (_EPOCH.resolution), xid)


def commit(lsn: int) -> bytes:
    return b"C\0" + struct.pack(">QQq", lsn, lsn + 50, 0)


def relation(described: Relation) -> bytes:
    parts = [
        b"R",
        struct.pack(">I", described.oid),
        _text(described.namespace),
        _text(described.name),
        described.identity.encode(),
        struct.pack(">H", len(described.columns)),
    ]
    for column in described.columns:
        types = struct.pack(">Ii", column.type_oid, column.type_modifier)
        parts += [bytes([column.is_key]), _text(column.name), types]
    return b"".join(parts)


def insert(oid: int, row: Sequence[Cell]) -> bytes:
    return b"I" + struct.pack(">I", oid) + b"N" + _tuple(row)


def update(oid: int, row: Sequence[Cell], old: Mapping[Literal["K", "O"], Sequence[Cell]] | None = None) -> bytes:
    before = b"".join(kind.encode() + _tuple(cells) for kind, cells in (old or {}).items())
    return b"U" + struct.pack(">I", oid) + before + b"N" + _tuple(row)


def delete(oid: int, kind: Literal["K", "O"], row: Sequence[Cell]) -> bytes:
    return b"D" + struct.pack(">I", oid) + kind.encode() + _tuple(row)


def truncate(*oids: int) -> bytes:
    return b"T" + struct.pack(">IB", len(oids), 0) + struct.pack(f">{len(oids)}I", *oids)


def origin(name: str) -> bytes:
    return b"O" + struct.pack(">Q", 7) + _text(name)


def type_message(oid: int, name: str) -> bytes:
    return b"Y" + struct.pack(">I", oid) + _text("public") + _text(name)


def logical_message(prefix: str, content: bytes) -> bytes:
    return b"M\1" + struct.pack(">Q", 9) + _text(prefix) + struct.pack(">I", len(content)) + content


def _tuple(cells: Sequence[Cell]) -> bytes:
    return struct.pack(">H", len(cells)) + b"".join(map(_cell, cells))


def _cell(cell: Cell) -> bytes:
    if cell is None:
        return b"n"
    if cell is UNCHANGED:
        return b"u"
    data = cell.encode() if isinstance(cell, str) else cell
    assert isinstance(data, bytes)
    return b"t" + struct.pack(">I", len(data)) + data


def _text(text: str) -> bytes:
    return text.encode() + b"\0"
