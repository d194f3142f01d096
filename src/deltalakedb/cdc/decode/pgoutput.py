"""Decodes pgoutput: batches of messages become rows of changes, column by column and not row by row."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa

from deltalakedb.cdc.captured_table import CapturedTable
from deltalakedb.cdc.decode import messages as msg
from deltalakedb.cdc.decode.messages import Bools, Bytes, Ints, MessageBuffer, Relation, RowReader
from deltalakedb.exceptions import CaptureError, DeltaError, ValueNotHeld

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_ROWS: Final = (msg.INSERT, msg.UPDATE, msg.DELETE)
_IS_CHANGE: Final = np.isin(np.arange(256), (*_ROWS, msg.TRUNCATE))
_IS_KNOWN: Final = np.isin(
    np.arange(256),
    (*_ROWS, msg.TRUNCATE, msg.BEGIN, msg.COMMIT, msg.RELATION, msg.TYPE, msg.ORIGIN, msg.MESSAGE),
)
_SHORTEST: Final = np.ones(256, np.int64)
"""The fewest bytes of each kind of message."""
_SHORTEST[[msg.BEGIN, msg.COMMIT, msg.TRUNCATE]] = 21, 26, 6
_SHORTEST[list(_ROWS)] = 8
_EARLIEST: Final = int(datetime(1, 1, 1, tzinfo=UTC).timestamp()) * 1_000_000
_LATEST: Final = int(datetime(9999, 12, 31, tzinfo=UTC).timestamp()) * 1_000_000


@dataclass(frozen=True, slots=True)
class ChangeRows:
    """Changes of one table in their order, with the schema of `layers.changes_schema`."""

    source: str
    rows: pa.RecordBatch


@dataclass(frozen=True, slots=True)
class RelationChanged:
    """The columns of a table differ from the captured ones.

    No rows of the table follow. What was committed before `lsn` can be read with the captured columns.
    """

    source: str
    relation: Relation
    lsn: int


@dataclass(frozen=True, slots=True)
class Stopped:
    """A value in the transaction at `lsn` does not fit its column; no rows of the table follow."""

    source: str
    reason: str
    lsn: int


@dataclass(frozen=True, slots=True)
class RangeRead:
    """The end of a range, and what was in it."""

    transactions: int
    changes: int
    """Of the captured tables."""
    bytes: int
    """Size of the messages, also of tables that are not captured."""
    last_committed_at: datetime | None


Event: TypeAlias = ChangeRows | RelationChanged | Stopped | RangeRead


@dataclass(frozen=True, slots=True)
class _Transactions:
    """The transactions of a batch, beginning with the one open at its start; `place` is that of each message."""

    place: Ints
    lsns: Ints
    committed_at: Ints
    xids: Ints
    ordinals: Ints
    """The number of each message in its transaction, counting changes of all tables, captured or not."""


@dataclass(frozen=True, slots=True)
class _Open:
    """The transaction that is open at the end of a batch."""

    lsn: int = -1
    committed_at: int = 0
    xid: int = 0
    changes: int = 0


class Decoder:
    """Decodes the messages of one session in order; keeps relations and the open transaction between batches.

    The range [start, end) consists of the transactions whose commit record begins in it.
    """

    def __init__(self, tables: Sequence[CapturedTable], start: int, end: int, *, mask_key: str | None = None) -> None:
        self._start, self._end = start, end
        self._mask_key = mask_key
        self._tables = {table.oid: table for table in tables}
        self._sources = {table.source: table for table in tables}
        self._relations: dict[int, Relation] = {}
        self._readers: dict[int, RowReader] = {}
        self._ended: set[str] = set()
        self._open = _Open()
        self._transactions = self._changes = self._bytes = 0
        self._last_committed_at: int | None = None

    def decode(self, batch: pa.BinaryArray) -> Iterator[ChangeRows | RelationChanged | Stopped]:
        """Decode the next messages of the session; CaptureError if they are not as Postgres writes them."""
        try:
            yield from self._decode(batch)
        except DeltaError:
            raise
        except (struct.error, IndexError, ValueError) as error:
            raise CaptureError(
                f"the source sent messages that pgoutput does not have, or that are cut short: {error}"
            ) from error

    def _decode(self, batch: pa.BinaryArray) -> Iterator[ChangeRows | RelationChanged | Stopped]:
        if not len(batch):
            return
        buffer = MessageBuffer(batch)
        lengths = buffer.ends - buffer.starts
        if not lengths.all():
            raise CaptureError("the source sent a message without any bytes")
        tags = buffer.bytes[buffer.starts]
        if (lengths < _SHORTEST[tags]).any():
            raise CaptureError(
                f"the source sent a message {chr(int(tags[lengths < _SHORTEST[tags]][0]))!r} that is cut short"
            )
        if not _IS_KNOWN[tags].all():
            tag = chr(int(tags[~_IS_KNOWN[tags]][0]))
            raise CaptureError(f"the source sent a message {tag!r}, which protocol 1 of pgoutput does not have")
        self._bytes += int(buffer.ends[-1] - buffer.starts[0])
        transactions = self._follow(buffer, tags)
        in_range = (transactions.lsns >= self._start) & (transactions.lsns < self._end)
        is_wanted = in_range[transactions.place]
        for first, last in self._segments(buffer, tags):
            changed = np.flatnonzero(is_wanted[first:last] & _IS_CHANGE[tags[first:last]]) + first
            for oid, places in _by_relation(buffer, tags, changed):
                yield from self._read(oid, buffer, tags, transactions, places)

    def finish(self) -> RangeRead:
        last = self._last_committed_at
        moment = None if last is None else _EPOCH + timedelta(microseconds=last)
        return RangeRead(self._transactions, self._changes, self._bytes, moment)

    def _follow(self, buffer: MessageBuffer, tags: Bytes) -> _Transactions:
        """Assign the messages to transactions; the last one stays open for the next batch."""
        begins = tags == msg.BEGIN
        place = np.cumsum(begins)
        starts = buffer.starts[begins]
        lsns = np.concatenate(([self._open.lsn], buffer.int64(starts + 1)))
        committed_at = np.concatenate(([self._open.committed_at], buffer.int64(starts + 9) + msg.EPOCH_MICROS))
        if ((committed_at < _EARLIEST) | (committed_at > _LATEST)).any():
            raise CaptureError("the source sent a transaction whose time is not between the years 1 and 9999")
        xids = np.concatenate(([self._open.xid], buffer.uint32(starts + 17)))
        counts = np.cumsum(_IS_CHANGE[tags])
        before = np.concatenate(([-self._open.changes], counts[begins]))
        self._open = _Open(int(lsns[-1]), int(committed_at[-1]), int(xids[-1]), int(counts[-1] - before[-1]))
        in_range = (lsns[1:] >= self._start) & (lsns[1:] < self._end)
        if in_range.any():
            self._transactions += int(in_range.sum())
            self._last_committed_at = int(committed_at[1:][in_range][-1])
        return _Transactions(place, lsns, committed_at, xids, counts - before[place] - 1)

    def _segments(self, buffer: MessageBuffer, tags: Bytes) -> Iterator[tuple[int, int]]:
        """Ranges of messages within which no relation changes; `_relations` is valid for the range."""
        first = 0
        for place in np.flatnonzero(tags == msg.RELATION).tolist():
            relation = msg.parse_relation(buffer.message(place))
            previous = self._relations.get(relation.oid)
            if previous is not None and previous != relation:
                yield first, place
                first = place
                self._readers.pop(relation.oid, None)
            self._relations[relation.oid] = relation
        yield first, len(tags)

    def _read(
        self, oid: int, buffer: MessageBuffer, tags: Bytes, transactions: _Transactions, places: Ints
    ) -> Iterator[ChangeRows | RelationChanged | Stopped]:
        """The changes of one relation, which does not change between them."""
        relation = self._relations.get(oid)
        if relation is None:
            raise CaptureError(f"the source sent rows of the relation {oid} and never said what it is")
        table = self._tables.get(oid) or self._sources.get(relation.source)
        if table is None or table.source in self._ended:
            return
        lsns = transactions.lsns[transactions.place[places]]
        if table.start_lsn is not None and table.start_lsn > self._start:  # its copy has the changes before
            places, lsns = places[lsns >= table.start_lsn], lsns[lsns >= table.start_lsn]
        is_known = np.ones(len(lsns), np.bool_) if relation.matches(table) else self._is_former(relation, table, lsns)
        if is_known.any():
            yield from self._read_rows(table, relation, buffer, tags, transactions, places[is_known])
        if not is_known.all() and table.source not in self._ended:
            self._ended.add(table.source)
            yield RelationChanged(table.source, relation, int(lsns[~is_known][0]))

    def _is_former(self, relation: Relation, table: CapturedTable, lsns: Ints) -> Bools:
        """Which rows were sent before the ALTER TABLE, in the same transaction that changed the table's columns."""
        if relation.oid != table.oid or not any(map(relation.has_columns, table.former)):
            return np.zeros(len(lsns), np.bool_)
        return np.asarray(lsns == table.changed_lsn, np.bool_)

    def _read_rows(
        self,
        table: CapturedTable,
        relation: Relation,
        buffer: MessageBuffer,
        tags: Bytes,
        transactions: _Transactions,
        places: Ints,
    ) -> Iterator[ChangeRows | Stopped]:
        reader = self._readers.get(table.oid)
        if reader is None:
            sent = next(columns for columns in (table.sent, *table.former) if relation.has_columns(columns))
            reader = self._readers[table.oid] = RowReader(table, sent, self._mask_key)
        of = transactions.place[places]
        try:
            rows = reader.read(
                buffer,
                tags[places],
                places,
                lsns=transactions.lsns[of],
                xids=transactions.xids[of],
                ordinals=transactions.ordinals[places],
                committed_at=transactions.committed_at[of],
            )
        except ValueNotHeld as error:
            self._ended.add(table.source)
            yield Stopped(table.source, str(error), int(transactions.lsns[of[error.place]]))
            return
        self._changes += rows.num_rows
        yield ChangeRows(table.source, rows)


def _by_relation(buffer: MessageBuffer, tags: Bytes, places: Ints) -> Iterator[tuple[int, Ints]]:
    """Messages that change rows, by relation; a truncate may concern several."""
    emptied: dict[int, list[int]] = {}
    truncates = tags[places] == msg.TRUNCATE
    if truncates.any():
        for place in places[truncates].tolist():
            for oid in msg.parse_truncate(buffer.message(place)):
                emptied.setdefault(oid, []).append(place)
        places = places[~truncates]
    oids = buffer.uint32(buffer.starts[places] + 1)
    order = np.argsort(oids, kind="stable")
    unique_oids, firsts = np.unique(oids[order], return_index=True)
    of = dict(zip(unique_oids.tolist(), np.split(places[order], firsts[1:]), strict=False))
    for oid in sorted({*of, *emptied}):
        row_places = of.get(oid, places[:0])
        yield oid, np.sort(np.concatenate((row_places, emptied[oid]))) if oid in emptied else row_places
