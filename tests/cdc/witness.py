"""A second slot on the same publication, read by the shortest code there is: what really happened, in its order."""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from tests.cdc.conftest import Source

_EPOCH = datetime(2000, 1, 1, tzinfo=UTC)
_OPS = {b"I": "insert", b"U": "update", b"D": "delete", b"T": "truncate"}


@dataclass(frozen=True, slots=True, order=True)
class Happened:
    """One change of one table."""

    lsn: int
    xid: int
    committed_at: datetime
    op: str
    table: str


class Witness:
    """Sees every change from the moment it is made."""

    def __init__(self, source: Source, publication: str, slot: str = "witness") -> None:
        self._source, self._publication, self._slot = source, publication, slot
        source.run(f"select pg_create_logical_replication_slot('{slot}', 'pgoutput')")
        self._seen: list[Happened] = []
        self._names: dict[int, str] = {}

    def happened(self) -> list[Happened]:
        """All changes so far, in the order of their commits."""
        messages = self._source.run(
            f"select data from pg_logical_slot_get_binary_changes('{self._slot}', null, null, "
            f"'proto_version', '1', 'publication_names', '{self._publication}')"
        )
        self._seen += self._parse(bytes(data) for (data,) in messages)
        return self._seen

    def _parse(self, messages: Iterator[bytes]) -> Iterator[Happened]:
        lsn, at, xid = 0, _EPOCH, 0
        for data in messages:
            tag = data[:1]
            if tag == b"B":
                lsn, microseconds, xid = struct.unpack(">QQI", data[1:21])
                at = _EPOCH + timedelta(microseconds=microseconds)
            elif tag == b"R":
                [oid] = struct.unpack(">I", data[1:5])
                namespace, name, _ = data[5:].split(b"\0", 2)
                self._names[oid] = f"{namespace.decode()}.{name.decode()}"
            elif tag == b"T":
                count, _ = struct.unpack(">IB", data[1:6])
                for oid in struct.unpack(f">{count}I", data[6:]):
                    yield Happened(lsn, xid, at, "truncate", self._names[oid])
            elif tag in _OPS:
                [oid] = struct.unpack(">I", data[1:5])
                yield Happened(lsn, xid, at, _OPS[tag], self._names[oid])
