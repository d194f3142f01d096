"""A plain consumer of logical replication, as one writes it with psycopg2 and `deltalake`: the peer of the captures."""

from __future__ import annotations

import json
import select
import struct
import sys
import time
from collections.abc import Callable
from datetime import datetime
from decimal import Decimal
from typing import Any

import psycopg2
import psycopg2.extras
import pyarrow as pa
from deltalake import write_deltalake

ROWS_PER_WRITE = 100_000
SCHEMA = pa.schema(
    [
        ("id", pa.int64()), ("customer", pa.int32()), ("amount", pa.decimal128(12, 2)), ("status", pa.string()),
        ("placed_at", pa.timestamp("us", "UTC")), ("note", pa.string()),
        ("_op", pa.string()), ("_lsn", pa.int64()), ("_xid", pa.int64()), ("_ordinal", pa.int64()),
    ]
)  # fmt: skip
CASTS: tuple[Callable[[str], Any], ...] = (int, int, Decimal, str, datetime.fromisoformat, str)


class Consumer:
    """Gathers inserts; at the end of a transaction that fills a batch they are appended, then the slot moves on."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._rows: list[tuple[Any, ...]] = []
        self._lsn = self._xid = self._ordinal = 0
        self.total = 0

    def take(self, data: bytes) -> int | None:
        """The LSN up to which everything is written, when it has moved on."""
        tag = data[:1]
        if tag == b"I":
            self._rows.append((*_values(data), "insert", self._lsn, self._xid, self._ordinal))
            self._ordinal += 1
        elif tag == b"B":
            self._lsn, _, self._xid = struct.unpack(">QQI", data[1:21])
            self._ordinal = 0
        elif tag == b"C" and len(self._rows) >= ROWS_PER_WRITE:
            return self.write(struct.unpack(">Q", data[10:18])[0])
        return None

    def write(self, lsn: int) -> int:
        if self._rows:
            columns = list(zip(*self._rows, strict=True))
            arrays = [pa.array(column, kind) for column, kind in zip(columns, SCHEMA.types, strict=True)]
            write_deltalake(self._folder, pa.Table.from_arrays(arrays, schema=SCHEMA), mode="append")
            self.total += len(self._rows)
            self._rows = []
        return lsn


def _values(data: bytes) -> list[Any]:
    """The columns of an insert: a relation, `N`, and for each column its kind, its length and its text."""
    [count] = struct.unpack(">H", data[6:8])
    place = 8
    values: list[Any] = []
    for column in range(count):
        kind = data[place]
        place += 1
        if kind != 0x74:
            values.append(None)
            continue
        length = int.from_bytes(data[place : place + 4], "big")
        values.append(CASTS[column](data[place + 4 : place + 4 + length].decode()))
        place += 4 + length
    return values


def consume(dsn: str, slot: str, publication: str, end: int, folder: str) -> dict[str, float]:
    """Everything up to `end`; seconds and rows."""
    connection = psycopg2.connect(dsn, connection_factory=psycopg2.extras.LogicalReplicationConnection)
    cursor = connection.cursor()
    consumer = Consumer(folder)
    begin = time.perf_counter()
    cursor.start_replication(
        slot_name=slot, decode=False, options={"proto_version": "1", "publication_names": publication}
    )
    seen = 0
    while seen < end:
        message = cursor.read_message()
        if message is None:
            select.select([cursor], [], [], 1)
            seen = max(seen, cursor.wal_end)
            continue
        written = consumer.take(message.payload)
        if message.payload[:1] == b"C":
            seen = struct.unpack(">Q", message.payload[10:18])[0]
        if written is not None:
            cursor.send_feedback(flush_lsn=written)
    cursor.send_feedback(flush_lsn=consumer.write(seen), force=True)
    seconds = time.perf_counter() - begin
    connection.close()
    return {"seconds": seconds, "rows": consumer.total}


if __name__ == "__main__":
    print(json.dumps(consume(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), sys.argv[5])))
