"""SqlTxnLogReader: reads commits, snapshots, history, differences and lineage of one table from SQL alone."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from deltalakedb.exceptions import VersionNotFoundError
from deltalakedb.log.protocol import rows as row_forms
from deltalakedb.log.protocol.actions import Action, CommitInfo, Protocol
from deltalakedb.log.protocol.commit import Commit, render_commit
from deltalakedb.store.connection import LIVE, Connection, Row, Store
from deltalakedb.store.kept_versions import not_loaded, require_version, why_it_starts_there
from deltalakedb.store.registry import Head, TableRow, read_head
from deltalakedb.store.snapshot import SqlSnapshot

CHUNK_ACTIONS = 20_000
"""How many actions of consecutive commits are read at once."""

_ACTION_QUERIES: tuple[tuple[str, Callable[[Row], Action]], ...] = (
    ("select_add_actions", row_forms.add_from_row),
    ("select_remove_actions", row_forms.remove_from_row),
    ("select_cdc_actions", row_forms.cdc_from_row),
    ("select_metadata_actions", row_forms.metadata_from_row),
    ("select_protocol_actions", row_forms.protocol_from_row),
    ("select_txn_actions", row_forms.app_transaction_from_row),
    ("select_domain_actions", row_forms.domain_metadata_from_row),
    ("select_other_actions", row_forms.other_from_row),
)


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """One commit, without its files."""

    version: int
    timestamp_ms: int
    operation: str | None
    operation_parameters: Any
    operation_metrics: Any
    commit_info: CommitInfo | None
    is_base: bool
    num_actions: int
    num_added_files: int
    num_removed_files: int
    txn_id: str | None
    actor: str | None
    message: str | None


@dataclass(frozen=True, slots=True)
class MirrorCommit:
    """A commit and the bytes of its file."""

    version: int
    timestamp_ms: int
    txn_id: str | None
    data: bytes


@dataclass(frozen=True, slots=True)
class Difference:
    """The change from the state at `from_version` to that at `to_version`; files by key, with size and record count."""

    from_version: int
    to_version: int
    added: pa.Table
    removed: pa.Table
    metadata_changed: bool
    protocol_changed: bool


@dataclass(frozen=True, slots=True)
class LineageEntry:
    """A commit whose files, metadata or protocol are part of a version."""

    version: int
    timestamp_ms: int
    operation: str | None
    commit_info: CommitInfo | None
    is_base: bool
    num_files: int
    size_bytes: int
    actor: str | None
    message: str | None


class SqlTxnLogReader:
    """Reads the log of one registered table."""

    def __init__(self, store: Store, table: TableRow) -> None:
        self._store = store
        self.table = table

    def __repr__(self) -> str:
        return f"SqlTxnLogReader({self._store!r}, {self.table.full_name!r})"

    # -- versions

    def latest_version(self) -> int:
        with self._store.read(single=True) as conn:
            return self._head(conn).current_version

    def earliest_version(self) -> int:
        with self._store.read(single=True) as conn:
            return self._earliest(conn)

    def _earliest(self, conn: Connection) -> int:
        row = conn.one("select_earliest_version", table_id=self.table.table_id)
        if row is None:
            raise not_loaded(self.table)
        return int(row["version"])

    def versions(self) -> Iterator[int]:
        """The kept versions, in order."""
        with self._store.read(single=True) as conn:
            rows = conn.all("select_version_numbers", table_id=self.table.table_id)
        return iter([row["version"] for row in rows])

    def has_commit(self, version: int) -> bool:
        """Whether the version's own actions are kept; a base has only its state."""
        with self._store.read(single=True) as conn:
            row = conn.one("select_version", table_id=self.table.table_id, version=version)
        return row is not None and not row["is_base"]

    def version_at(self, timestamp_ms: int, *, or_oldest: bool = False) -> int:
        """The newest version committed at or before an instant; `or_oldest`: the oldest kept one if all are later."""
        with self._store.read() as conn:
            row = conn.one("select_version_at", table_id=self.table.table_id, at_ms=timestamp_ms)
            if row is None and or_oldest:
                return self._earliest(conn)
            if row is None:
                raise self._before_history(conn, timestamp_ms)
            next_row = conn.one("select_version_after", table_id=self.table.table_id, version=row["version"])
        if next_row and next_row["version"] > row["version"] + 1 and timestamp_ms > row["committed_at_ms"]:
            raise VersionNotFoundError(
                f"table {self.table.full_name}: at {timestamp_ms} ms the version lies between {row['version']} and "
                f"{next_row['version']}, whose commits were cleaned up before they could be read; choose a time up to "
                f"{row['committed_at_ms']} or from {next_row['committed_at_ms']} on"
            )
        return int(row["version"])

    def snapshot(self, version: int | None = None) -> SqlSnapshot:
        with self._store.read() as conn:
            if version is None:
                head = self._head(conn)
                return SqlSnapshot(self._store, self.table, head.current_version, head.last_commit_ms)
            row = require_version(conn, self.table, version)
        return SqlSnapshot(self._store, self.table, version, row["committed_at_ms"])

    # -- commits

    def commits(self, start: int, end: int | None = None) -> Iterator[Commit]:
        """Yields the commits from `start` through `end`, in order; raises if one of them is not kept."""
        with self._store.read() as conn:
            last = self._head(conn).current_version if end is None else end
            rows = conn.all(
                "select_versions", table_id=self.table.table_id, first_version=start, last_version=max(start, last)
            )
            if last >= start:
                self._check_complete(conn, start, last, rows)
        # Commits never change: each chunk is read in its own snapshot, so no transaction stays open in between.
        for chunk in _chunks(rows[: max(0, last - start + 1)]):
            yield from self._read_chunk(chunk)

    def _check_complete(self, conn: Connection, start: int, last: int, rows: list[Row]) -> None:
        rows_by_version = {row["version"]: row for row in rows}
        for version in range(start, last + 1):
            row = rows_by_version.get(version) or require_version(conn, self.table, version)
            if row["is_base"]:
                raise VersionNotFoundError(
                    f"table {self.table.full_name}: version {version} was taken from a checkpoint, or left as a "
                    "base by `dl gc`: its state is in the database, its commit is not; commits follow from version "
                    f"{version + 1}"
                )

    def _read_chunk(self, versions: list[Row]) -> Iterator[Commit]:
        bounds = {"first_version": versions[0]["version"], "last_version": versions[-1]["version"]}
        actions: dict[int, list[tuple[int, Action]]] = {row["version"]: [] for row in versions}
        with self._store.read() as conn:
            for query, build in _ACTION_QUERIES:
                for row in conn.all(query, table_id=self.table.table_id, **bounds):
                    actions[row["version"]].append((row["ordinal"], build(row)))
        for row in versions:
            ordered = actions.pop(row["version"])
            if row["commit_info"] is not None:
                ordered.append((row["commit_info_ordinal"], CommitInfo(row["commit_info"])))
            ordered.sort(key=lambda pair: pair[0])
            yield Commit(
                row["version"], row["committed_at_ms"], tuple(action for _, action in ordered), row["rendered_bytes"]
            )

    def mirror_commits(self, start: int, end: int | None = None) -> Iterator[MirrorCommit]:
        """Yields the commits as the mirror writes them, with the fence if the protocol's row says so."""
        for commit in self.commits(start, end):
            fenced = False
            if any(isinstance(action, Protocol) for action in commit.actions):
                with self._store.read(single=True) as conn:
                    row = conn.one("select_protocol", table_id=self.table.table_id, version=commit.version)
                fenced = row is not None and bool(row["fenced"])
            info = next((action for action in commit.actions if isinstance(action, CommitInfo)), None)
            data = render_commit(commit.actions, fenced=fenced)
            yield MirrorCommit(commit.version, commit.timestamp_ms, info.txn_id if info else None, data)

    # -- history, differences, lineage

    def history(
        self, limit: int | None = None, *, since_ms: int | None = None, until_ms: int | None = None
    ) -> list[HistoryEntry]:
        """The commits, newest first."""
        with self._store.read(single=True) as conn:
            rows = conn.all(
                "select_history",
                table_id=self.table.table_id,
                since_ms=since_ms,
                until_ms=until_ms,
                max_rows=LIVE if limit is None else limit,
            )
        return [_history_entry(row) for row in rows]

    def diff(self, from_version: int, to_version: int) -> Difference:
        """What changed between two versions, in either direction."""
        earlier, later = sorted((from_version, to_version))
        with self._store.read() as conn:
            require_version(conn, self.table, earlier)
            require_version(conn, self.table, later)
            ids = {"table_id": self.table.table_id}
            gained = conn.arrow("select_diff_added", **ids, earlier=earlier, later=later)
            lost = conn.arrow("select_diff_removed", **ids, earlier=earlier, later=later)
            changed = [
                _without_version(conn.one(query, **ids, version=earlier))
                != _without_version(conn.one(query, **ids, version=later))
                for query in ("select_metadata", "select_protocol")
            ]
        added, removed = (gained, lost) if from_version <= to_version else (lost, gained)
        return Difference(from_version, to_version, added, removed, *changed)

    def lineage(self, version: int | None = None) -> list[LineageEntry]:
        """The commits that contribute to a version, newest first."""
        with self._store.read() as conn:
            pinned_version = self._head(conn).current_version if version is None else version
            require_version(conn, self.table, pinned_version)
            rows = conn.all("select_lineage", table_id=self.table.table_id, version=pinned_version)
        return [
            LineageEntry(
                row["version"],
                row["committed_at_ms"],
                row["operation"],
                _commit_info(row),
                row["is_base"],
                int(row["num_files"]),
                int(row["size_bytes"]),
                row["actor"],
                row["message"],
            )
            for row in rows
        ]

    # -- errors for missing versions

    def _head(self, conn: Connection) -> Head:
        head = read_head(conn, self.table.table_id)
        if head is None:
            raise not_loaded(self.table)
        return head

    def _before_history(self, conn: Connection, timestamp_ms: int) -> Exception:
        first = conn.one("select_earliest_version", table_id=self.table.table_id)
        if first is None:
            return not_loaded(self.table)
        return VersionNotFoundError(
            f"table {self.table.full_name}: nothing is kept from before {timestamp_ms} ms; the first kept version is "
            f"{first['version']}, committed at {first['committed_at_ms']} ms{why_it_starts_there(conn, self.table)}"
        )


def _chunks(rows: Iterable[Row]) -> Iterator[list[Row]]:
    chunk: list[Row] = []
    size = 0
    for row in rows:
        if chunk and size + row["num_actions"] > CHUNK_ACTIONS:
            yield chunk
            chunk, size = [], 0
        chunk.append(row)
        size += row["num_actions"]
    if chunk:
        yield chunk


def _history_entry(row: Row) -> HistoryEntry:
    return HistoryEntry(
        row["version"],
        row["committed_at_ms"],
        row["operation"],
        _parsed(row["operation_params"]),
        _parsed(row["operation_metrics"]),
        _commit_info(row),
        row["is_base"],
        row["num_actions"],
        row["num_added_files"],
        row["num_removed_files"],
        row["txn_id"],
        row["actor"],
        row["message"],
    )


def _commit_info(row: Row) -> CommitInfo | None:
    return None if row["commit_info"] is None else CommitInfo(row["commit_info"])


def _parsed(text: str | None) -> Any:
    if text is None:
        return None
    try:
        return json.loads(text)
    except ValueError:  # some writers store plain text instead of an object
        return text


def _without_version(row: Row | None) -> Mapping[str, Any]:
    return {name: value for name, value in (row or {}).items() if name != "version"}
