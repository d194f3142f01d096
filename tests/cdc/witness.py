"""Two more slots beside the capture's, one of `test_decoding`, read by the shortest code there is: what happened."""

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import psycopg

from tests.cdc.conftest import Source

_EPOCH = datetime(2000, 1, 1, tzinfo=UTC)
_OPS = {b"I": "insert", b"U": "update", b"D": "delete", b"T": "truncate"}
_LINE = re.compile(r"table ([^:]+): (INSERT|UPDATE|DELETE|TRUNCATE):")


@dataclass(frozen=True, slots=True, order=True)
class Happened:
    """One change of one table."""

    lsn: int
    xid: int
    committed_at: datetime
    op: str
    table: str


class Witness:
    """Sees every change from the moment it is made.

    Debian's Postgres has `test_decoding`: there both plugins must agree on what happened. The wheel's 18 has only
    pgoutput, whose messages are then parsed by code that shares nothing with the capture's.
    """

    def __init__(self, source: Source, publication: str, slot: str = "witness") -> None:
        self._source, self._publication, self._slot = source, publication, slot
        source.run(f"select pg_create_logical_replication_slot('{slot}', 'pgoutput')")
        self._has_lines = True
        try:
            source.run(f"select pg_create_logical_replication_slot('{slot}_lines', 'test_decoding')")
        except psycopg.errors.UndefinedFile:
            self._has_lines = False
        self._seen: list[Happened] = []
        self._names: dict[int, str] = {}

    def happened(self) -> list[Happened]:
        """All changes so far, in the order of their commits; nobody may write meanwhile."""
        messages = self._source.run(
            f"select data from pg_logical_slot_get_binary_changes('{self._slot}', null, null, "
            f"'proto_version', '1', 'publication_names', '{self._publication}')"
        )
        changes = list(self._parse(bytes(data) for (data,) in messages))
        if self._has_lines:
            seen = [(one.xid, one.op, one.table) for one in changes]
            assert seen == list(self._parse_lines()), "pgoutput and test_decoding disagree"
        self._seen += changes
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
                for table in sorted(self._names[oid] for oid in struct.unpack(f">{count}I", data[6:])):
                    yield Happened(lsn, xid, at, "truncate", table)
            elif tag in _OPS:
                [oid] = struct.unpack(">I", data[1:5])
                yield Happened(lsn, xid, at, _OPS[tag], self._names[oid])

    def _parse_lines(self) -> Iterator[tuple[int, str, str]]:
        """The transaction, operation and table of each change, from the text of `test_decoding`.

        It knows no publications: tables that are not published are left out here, and partitions are their root.
        """
        published = self._published()
        xid = 0
        for (line,) in self._source.run(
            f"select data from pg_logical_slot_get_changes('{self._slot}_lines', null, null, 'skip-empty-xacts', '1')"
        ):
            if line.startswith("BEGIN "):
                xid = int(line.split()[1])
            elif match := _LINE.match(line):
                tables = sorted({published[name] for name in match[1].split(", ") if name in published})
                yield from ((xid, match[2].lower(), table) for table in tables)

    def _published(self) -> dict[str, str]:
        """What each published table, and each partition of one, is called in the publication."""
        rows = self._source.run(
            "set search_path = ''",
            "with tables as (select schemaname || '.' || tablename as name, "
            "format('%I.%I', schemaname, tablename)::regclass as id from pg_publication_tables "
            f"where pubname = '{self._publication}') "
            "select id::text, name from tables union all "
            "select p.relid::text, name from tables, pg_partition_tree(id) p where p.parentrelid is not null",
        )
        return {row[0]: row[1] for row in rows}
