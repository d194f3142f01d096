"""The pgoutput messages (protocol 1): relations and truncates parsed one by one, rows column by column."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from deltalakedb.cdc import layers
from deltalakedb.cdc.captured_table import CapturedTable, SourceColumn
from deltalakedb.cdc.decode.values import convert, convert_table_column
from deltalakedb.cdc.source_names import quote_source, resnapshot_command
from deltalakedb.exceptions import CaptureError, ValueNotHeld
from deltalakedb.log.schema.types import to_arrow_type
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


Ints: TypeAlias = npt.NDArray[np.int64]
Bools: TypeAlias = npt.NDArray[np.bool_]
Bytes: TypeAlias = npt.NDArray[np.uint8]

_OPS: Final = pa.array([layers.INSERT, layers.UPDATE, layers.DELETE, layers.TRUNCATE])
_OP_PLACES: Final = np.zeros(256, np.int8)
_OP_PLACES[[INSERT, UPDATE, DELETE, TRUNCATE]] = range(4)


class MessageBuffer:
    """The bytes of a batch of messages, and access to numbers anywhere in them."""

    __slots__ = ("_int64s", "_uint16s", "_uint32s", "bytes", "data", "ends", "starts")

    def __init__(self, batch: pa.BinaryArray) -> None:
        _, offsets, self.data = batch.buffers()
        all_offsets = np.frombuffer(offsets, np.int32, len(batch) + 1, batch.offset * 4).astype(np.int64)
        self.starts: Ints = all_offsets[:-1]
        self.ends: Ints = all_offsets[1:]
        self.bytes: Bytes = np.frombuffer(self.data, np.uint8)
        self._uint16s = self._at_every_byte(">u2")
        self._uint32s = self._at_every_byte(">u4")
        self._int64s = self._at_every_byte(">i8")

    def _at_every_byte(self, kind: str) -> Any:
        """The numbers that begin at each byte; they overlap, and are copied only on access."""
        dtype = np.dtype(kind)
        return np.ndarray((max(len(self.bytes) - dtype.itemsize + 1, 0),), dtype, self.bytes, strides=(1,))

    def uint16(self, at: Ints) -> Ints:
        return np.asarray(self._uint16s[at], np.int64)

    def uint32(self, at: Ints) -> Ints:
        return np.asarray(self._uint32s[at], np.int64)

    def int64(self, at: Ints) -> Ints:
        return np.asarray(self._int64s[at], np.int64)

    def lengths(self, at: Ints) -> Ints:
        """Numbers of four bytes; meaningless if `at` is past the last one."""
        return self.uint32(np.minimum(at, len(self.bytes) - 4))

    def message(self, place: int) -> bytes:
        return self.bytes[self.starts[place] : self.ends[place]].tobytes()


@dataclass(slots=True)
class _Cells:
    """A column of some tuples: for each tuple the kind, and the position of its text."""

    kinds: Bytes
    starts: Ints
    ends: Ints

    def texts(self, data: pa.Buffer) -> pa.Array:
        """The texts, null if there is none. They are in the order of the messages, so the texts and the gaps between
        them are the even and odd values of one array over the messages' own bytes."""
        count = len(self.kinds)
        spans = np.empty(2 * count, np.int32)
        spans[0::2] = self.starts
        spans[1::2] = self.ends
        both = pa.BinaryArray.from_buffers(pa.binary(), 2 * count - 1, [None, pa.py_buffer(spans), data])
        missing = self.kinds != TEXT
        places = np.arange(0, 2 * count, 2)
        return both.take(pa.array(places, mask=missing) if missing.any() else pa.array(places))


class RowReader:
    """Parses the rows of one table that are sent with the columns `sent`: its own, or former ones."""

    def __init__(self, table: CapturedTable, sent: Sequence[SourceColumn], mask_key: str | None = None) -> None:
        self._table = table
        self._mask_key = mask_key
        self._places = {column.number: place for place, column in enumerate(sent)}
        self._sent_count = len(sent)
        self._schema = layers.changes_schema(table).to_arrow()
        self._row_type = to_arrow_type(layers.current_schema(table))
        self._unchanged_type = self._schema.field(layers.UNCHANGED).type
        self._moment_type = self._schema.field(layers.COMMITTED_AT).type

    def read(
        self,
        buffer: MessageBuffer,
        tags: Bytes,
        places: Ints,
        *,
        lsns: Ints,
        xids: Ints,
        ordinals: Ints,
        committed_at: Ints,
    ) -> pa.RecordBatch:
        """The changes in the messages at `places`; ValueNotHeld has the place of the message that cannot be held."""
        starts = buffer.starts[places]
        has_new = (tags == INSERT) | (tags == UPDATE)
        markers = buffer.bytes[starts + 5]
        has_old = (tags == DELETE) | (tags == UPDATE) & ((markers == OLD_KEY) | (markers == OLD_ROW))
        old_rows, new_rows = np.flatnonzero(has_old), np.flatnonzero(has_new)
        after_at = starts + 6
        old, after_at[old_rows] = self._walk(buffer, after_at[old_rows])
        is_delete = tags == DELETE
        is_cut = (after_at != buffer.ends[places])[is_delete].any()
        after_at[old_rows] += 1  # skip the marker of the new tuple
        new, ends = self._walk(buffer, after_at[new_rows])
        if is_cut or (ends != buffer.ends[places[new_rows]]).any():
            raise CaptureError(f"the source sent rows of {self._table.source} that do not end where their message does")
        unchanged = self._fill(old, old_rows, new, new_rows, len(places))
        self._check_inserts(unchanged, tags)
        return pa.RecordBatch.from_arrays(
            [
                _OPS.take(pa.array(_OP_PLACES[tags])),
                pa.array(lsns),
                pa.array(xids),
                pa.array(ordinals),
                pa.array(committed_at).view(self._moment_type),
                self._name_unchanged(unchanged, len(places)),
                self._rows(buffer, old, old_rows, has_old, whole=self._table.identity == "f"),
                self._rows(buffer, new, new_rows, has_new, whole=True),
            ],
            schema=self._schema,
        )

    def _walk(self, buffer: MessageBuffer, at: Ints) -> tuple[list[_Cells], Ints]:
        """The columns of the tuples that begin at `at`, and where the tuples end."""
        count = self._sent_count
        if not len(at):
            return [], at
        if (buffer.uint16(at) != count).any():
            raise CaptureError(f"the source sent rows of {self._table.source} that have not {count} columns")
        at = at + 2
        columns = []
        for _ in range(count):
            kinds = buffer.bytes[at]
            is_text = kinds == TEXT
            if is_text.all():
                starts = at + 5
                ends = starts + buffer.uint32(at + 1)
            else:
                starts = at + 1 + 4 * is_text
                ends = starts + np.where(is_text, buffer.lengths(at + 1), 0)
            columns.append(_Cells(kinds, starts, ends))
            at = ends
        return columns, at

    def _fill(
        self, old: list[_Cells], old_rows: Ints, new: list[_Cells], new_rows: Ints, count: int
    ) -> dict[str, Ints]:
        """Copy large values that an update did not change from its old row; returns which rows lack which columns."""
        lacking: dict[str, Ints] = {}
        old_place = np.full(count, -1)
        old_place[old_rows] = np.arange(len(old_rows))
        for column in self._table.columns:
            place = self._places.get(column.number, -1)
            if place < 0 or not new:
                continue
            cells = new[place]
            rows = np.flatnonzero(cells.kinds == UNCHANGED)
            if not len(rows):
                continue
            source = old_place[new_rows[rows]]
            is_filled = source >= 0
            if is_filled.any():
                is_filled[is_filled] = old[place].kinds[source[is_filled]] == TEXT
                to, of = rows[is_filled], source[is_filled]
                cells.kinds = cells.kinds.copy()
                cells.kinds[to] = TEXT
                cells.starts[to], cells.ends[to] = old[place].starts[of], old[place].ends[of]
            if not is_filled.all():
                lacking[column.name] = new_rows[rows[~is_filled]]
        return lacking

    def _check_inserts(self, lacking: dict[str, Ints], tags: Bytes) -> None:
        """ValueNotHeld if a new row lacks a value. An update that brings a row under the row filter of the publication
        is sent as an insert, without the large values that it did not change: they are nowhere."""
        for name, rows in lacking.items():
            inserts = rows[tags[rows] == INSERT]
            if len(inserts):
                source = self._table.source
                raise ValueNotHeld(
                    f"a row came under the row filter of the publication by an update, and Postgres did not send its "
                    f"large value of {name}: alter table {quote_source(source)} replica identity full, then copy the "
                    f"table again: {resnapshot_command(source)}",
                    where=f"{source}.{name}",
                    place=int(inserts[0]),
                )

    def _name_unchanged(self, lacking: dict[str, Ints], count: int) -> pa.Array:
        if not lacking:
            return pa.nulls(count, self._unchanged_type)
        rows = np.concatenate(list(lacking.values()))
        names = np.repeat(np.arange(len(lacking)), [len(part) for part in lacking.values()])
        values = pa.array(list(lacking)).take(pa.array(names[np.argsort(rows, kind="stable")]))
        lengths = np.bincount(rows, minlength=count)
        offsets = np.concatenate(([0], np.cumsum(lengths))).astype(np.int32)
        return pa.ListArray.from_arrays(
            pa.array(offsets), values, type=self._unchanged_type, mask=pa.array(lengths == 0)
        )

    def _rows(self, buffer: MessageBuffer, cells: list[_Cells], rows: Ints, has: Bools, *, whole: bool) -> pa.Array:
        """A struct of all columns; null if a change has no such row. `whole`: whole rows, not keys alone."""
        count = len(has)
        if not len(rows):
            return pa.nulls(count, self._row_type)
        spread: Any = None
        if len(rows) < count:
            ranks = np.cumsum(has) - 1
            spread = pa.array(ranks, mask=~has)
        columns = []
        for column in self._table.columns:
            place = self._places.get(column.number)
            where = f"{self._table.source}.{column.name}"
            if place is None:
                # The column was added later in the same transaction; its default applies to rows that existed already.
                missing = convert(pa.array([column.missing if whole else None], pa.string()), column.type, where=where)
                columns.append(missing.take(pa.array(np.zeros(count, np.int64))))
                continue
            try:
                values = convert_table_column(cells[place].texts(buffer.data), column, self._table, self._mask_key)
            except ValueNotHeld as error:
                error.place = int(rows[error.place])
                raise
            columns.append(values if spread is None else values.take(spread))
        mask = None if spread is None else pa.array(~has)
        return pa.StructArray.from_arrays(columns, fields=list(self._row_type), mask=mask)
