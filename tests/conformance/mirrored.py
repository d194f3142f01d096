"""Managed tables for the tests of the mirror: committed to by the writer alone, mirrored by whoever tests it."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from deltalakedb.log.protocol.actions import Action, AddFile, Format, Metadata, Protocol, RemoveFile
from deltalakedb.log.protocol.proposal import NOTHING_READ, WHOLE_TABLE, ProposedCommit
from deltalakedb.mirror.engine import MirrorEngine
from deltalakedb.runtime.config import Config
from deltalakedb.store import Store
from deltalakedb.store import registry as reg
from deltalakedb.store.proposals import NEW_TABLE, Outcome, Proposal, TableProposal
from deltalakedb.store.registry import Head, TableRow
from deltalakedb.store.writer import SqlTxnLogWriter

SCHEMA = json.dumps(
    {"type": "struct", "fields": [{"name": "id", "type": "long", "nullable": True, "metadata": {}}]},
)
PROTOCOL = Protocol(1, 2)


def adds(*paths: str, size: int = 100, num_records: int | None = 10) -> tuple[AddFile, ...]:
    """Files, without statistics when `num_records` is None."""
    stats = {"numRecords": num_records, "minValues": {"id": 0}, "maxValues": {"id": 9}, "nullCount": {"id": 0}}
    text = None if num_records is None else json.dumps(stats)
    return tuple(AddFile(path, {}, size, 1_700_000_000_000, True, stats=text) for path in paths)


def removes(*paths: str) -> tuple[RemoveFile, ...]:
    return tuple(RemoveFile(path, True, 1_700_000_000_000) for path in paths)


@dataclass(slots=True)
class Managed:
    """A table that SQL decides about, and its folder."""

    store: Store
    row: TableRow
    metadata: Metadata
    protocol: Protocol = PROTOCOL
    options: Mapping[str, str] | None = None

    @classmethod
    def create(
        cls,
        store: Store,
        location: str | Path,
        name: str = "orders",
        *,
        configuration: Mapping[str, str] | None = None,
        features: Sequence[str] = (),
        options: Mapping[str, str] | None = None,
    ) -> tuple[Managed, Outcome]:
        metadata = Metadata(str(uuid.uuid4()), Format(), SCHEMA, (), dict(configuration or {}), None, None, 5)
        row = TableRow(NEW_TABLE, str(uuid.uuid4()), "sales", name, _uri(location), "managed", "live", {})
        protocol = Protocol(1, 7, writer_features=tuple(features)) if features else PROTOCOL
        commit = ProposedCommit((protocol, metadata), "CREATE TABLE", fenced=True)
        outcome = _commit(store, TableProposal(row, -1, (commit,)))
        return cls(store, outcome.tables[row.full_name], metadata, protocol, options), outcome

    @classmethod
    def open(cls, store: Store, table_id: int) -> Managed:
        """One that another process has made."""
        with store.read() as conn:
            row = reg.table_by_id(conn, table_id)
            assert row is not None
            opened = reg.open_table(conn, row.namespace, row.name)
        assert opened is not None
        return cls(store, row, opened.metadata, opened.protocol)

    def commit(self, *statements: Sequence[Action], reads: bool = False) -> Outcome:
        """One transaction, a version for each list of actions; made of the whole table, or blindly."""
        read = WHOLE_TABLE if reads else NOTHING_READ
        return self.propose(*(ProposedCommit(tuple(actions), "WRITE", read=read) for actions in statements))

    def propose(self, *commits: ProposedCommit, changes: Mapping[str, Any] | None = None) -> Outcome:
        version = self.head.current_version
        return _commit(
            self.store,
            TableProposal(
                self.row, version, commits, protocol=self.protocol, metadata=self.metadata, changes=changes or {}
            ),
        )

    def append(self, number: int = 1, first: int = 0) -> list[Outcome]:
        """So many transactions with a file each."""
        start = self.head.current_version
        return [self.commit(adds(f"f-{first}-{start + 1 + n}.parquet")) for n in range(number)]

    def delete(self, *paths: str) -> Outcome:
        return self.commit(removes(*paths), reads=True)

    @property
    def head(self) -> Head:
        with self.store.read() as conn:
            head = reg.read_head(conn, self.row.table_id)
        assert head is not None
        return head

    @property
    def folder(self) -> Path:
        return Path(self.row.location.removeprefix("file://")) / "_delta_log"

    @property
    def registered(self) -> TableRow:
        with self.store.read() as conn:
            row = reg.table_by_id(conn, self.row.table_id)
        assert row is not None
        return row

    def commits_on_disk(self) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in sorted(self.folder.glob("*.json"))}

    def failures(self) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = self.store.select(
            "select table_id, version, attempts, error, next_try_ms from dl_mirror_status order by table_id, version"
        ).to_pylist()
        return rows

    def engine(self, **settings: Any) -> MirrorEngine:
        mode = settings.pop("mode", "inline")
        return MirrorEngine(
            self.store,
            config=replace(Config(), **settings),
            options_of=lambda _row: self.options,
            mode=mode,
        )


def _commit(store: Store, proposal: TableProposal) -> Outcome:
    txn_id = str(uuid.uuid4())
    return SqlTxnLogWriter(store).commit(Proposal((proposal,), txn_id, f"token-{txn_id}"))


def _uri(location: str | Path) -> str:
    return Path(location).absolute().as_uri() if isinstance(location, Path) else location
