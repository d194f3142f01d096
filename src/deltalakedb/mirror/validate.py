"""Validate: compares SQL with `_delta_log`, and what each derives from its commits, and says what to do about drift.

Who is behind has not drifted: a follower's SQL catches up with its files, a managed table's files with SQL.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from deltalakedb.exceptions import DeltaProtocolError, LogGapError, TableNotFoundError
from deltalakedb.files.reader import FileTxnLogReader
from deltalakedb.log.commit import Commit, iter_actions
from deltalakedb.mirror import derived, remedies
from deltalakedb.mirror.compare import Difference, compare_commits, compare_states
from deltalakedb.store import registry
from deltalakedb.store.connection import Connection, Store
from deltalakedb.store.reader import SqlTxnLogReader
from deltalakedb.store.registry import Head, TableRow

CHECKSUMS = 200
"""So many of the newest checksums are compared: each is a file of its own to fetch."""

Part = Literal["commit", "state", "versions", "counters", "checkpoint", "pointer", "checksum"]


@dataclass(frozen=True, slots=True)
class Drift:
    """The first place in which SQL and the files disagree about one part of the log."""

    part: Part
    version: int
    difference: str
    in_sql: str
    in_files: str
    remedy: str


@dataclass(frozen=True, slots=True)
class ValidationReport:
    """What was compared, and where it differs; at most one difference of each part."""

    table: TableRow
    sql_version: int
    files_version: int
    """-1 when there is no log in the files yet."""
    num_commits_compared: int
    num_states_compared: int
    num_checkpoints_compared: int
    num_checksums_compared: int
    drifts: tuple[Drift, ...]

    @property
    def drift(self) -> Drift | None:
        """The first difference, if there is one."""
        return self.drifts[0] if self.drifts else None

    @property
    def lag(self) -> int:
        """Versions that whoever is not the authority still has to take over."""
        ahead = self.files_version - self.sql_version
        return max(0, -ahead if self.table.mode == "managed" else ahead)


def validate(
    store: Store,
    table: TableRow,
    *,
    storage_options: Mapping[str, str] | None = None,
    progress: Callable[[int], None] | None = None,
) -> ValidationReport:
    """Every commit both sides have, action by action; every base, checkpoint and the newest common state; counters."""
    ours = SqlTxnLogReader(store, table)
    theirs = FileTxnLogReader(table.location, storage_options, table=table.full_name)
    return _Check(store, table, ours, theirs, progress).run()


class _Check:
    def __init__(
        self,
        store: Store,
        table: TableRow,
        ours: SqlTxnLogReader,
        theirs: FileTxnLogReader,
        progress: Callable[[int], None] | None,
    ) -> None:
        self._store, self._table, self._ours, self._theirs = store, table, ours, theirs
        self._progress = progress
        self._num_commits = self._num_states = self._num_checkpoints = self._num_checksums = 0
        self._drifts: list[Drift] = []
        # Others write meanwhile. What SQL had before the look at the files bounds what these must have, and what it
        # has after it bounds what they may have.
        with store.read(single=True) as conn:
            self._before = self._read_head(conn)
        self._pointer = derived.read_pointer(theirs)
        self._listing = theirs.listing()
        self._files_version = -1 if self._listing.latest_version is None else self._listing.latest_version
        with store.read() as conn:
            self._head = self._read_head(conn)
            self._counters = derived.compare_counters(conn, self._head)
            rows = conn.all("select_version_numbers", table_id=table.table_id)
        self._is_base = {row["version"]: bool(row["is_base"]) for row in rows}

    def _read_head(self, conn: Connection) -> Head:
        head = registry.read_head(conn, self._table.table_id)
        if head is None:
            raise TableNotFoundError(f"table {self._table.full_name} has no versions in the database")
        return head

    def run(self) -> ValidationReport:
        self._check_ends()
        if not self._drifts and not self._check_commits():
            self._check_states()
            self._check_checkpoints()
            self._check_checksums()
        if self._counters is not None:
            self._found("counters", self._head.current_version, self._counters)
        return ValidationReport(
            self._table,
            self._head.current_version,
            self._files_version,
            self._num_commits,
            self._num_states,
            self._num_checkpoints,
            self._num_checksums,
            tuple(self._drifts),
        )

    @property
    def _common(self) -> int:
        """The newest version both sides have."""
        return min(self._head.current_version, self._files_version)

    def _check_ends(self) -> None:
        """Whether one side has versions that it can only have if something went wrong."""
        files = self._files_version
        if self._table.mode == "managed":
            sql, mirrored = self._head.current_version, self._before.mirrored_version
            if files > sql:
                self._found("versions", sql + 1, Difference("versions", f"{sql} as the newest", str(files)))
            elif files < mirrored:
                told = f"{mirrored} as the newest that was mirrored"
                self._found("versions", files + 1, Difference("versions", told, str(files)))
            elif (missing := self._missing_commit()) is not None:
                self._found("versions", missing, Difference(f"version {missing}", "its commit", "a gap in its place"))
        elif self._before.current_version > files:
            told = f"{self._before.current_version} as the newest that was read"
            self._found("versions", files + 1, Difference("versions", told, str(files)))

    def _missing_commit(self) -> int | None:
        """A version whose commit is gone from between others. Clean-up takes the oldest ones, and leaves no gap."""
        commits = self._listing.commits
        missing = self._listing.missing_commit(min(commits), max(commits)) if commits else None
        # A listing is not atomic: a commit made meanwhile may show up before the one below it.
        return None if missing is None or self._theirs.has_commit(missing) else missing

    def _check_commits(self) -> bool:
        """Compare the commits both sides have; whether a difference was found."""
        for first, last in self._runs():
            ours = self._ours.mirror_commits(first, last)
            theirs = self._theirs.commits(first, last)
            for version in range(first, last + 1):
                mirrored = next(ours)
                expected = _parsed(self._table.full_name, version, mirrored.data)
                try:
                    difference = compare_commits(expected, next(theirs))
                except LogGapError:
                    break  # cleaned up since it was listed
                except DeltaProtocolError as error:
                    difference = Difference("the file", "a commit", f"what cannot be read: {error}")
                self._num_commits += 1
                if difference is not None:
                    self._found("commit", version, difference)
                    return True
                if self._progress:
                    self._progress(1)
        return False

    def _runs(self) -> Iterator[tuple[int, int]]:
        """Unbroken runs of versions whose commits both sides have; what was cleaned up is covered by the states."""
        both = [v for v, is_base in self._is_base.items() if not is_base and v in self._listing.commits]
        start = previous = None
        for version in both:
            if start is None or previous is None:
                start = version
            elif version != previous + 1:
                yield start, previous
                start = version
            previous = version
        if start is not None and previous is not None:
            yield start, previous

    def _check_states(self) -> None:
        """A base has no actions of its own, so its state is compared; and so is the newest common version."""
        if self._files_version < 0:
            return
        wanted = [v for v, is_base in self._is_base.items() if is_base and v < self._common] + [self._common]
        for version in wanted:
            try:
                if version not in self._is_base or version < self._listing.earliest_version(self._table.full_name):
                    continue
                self._num_states += 1
                snapshot = self._ours.snapshot(version)
                theirs = self._theirs.snapshot(version)
                difference = compare_states(snapshot, theirs, protocol=derived.shown_protocol(snapshot))
            except DeltaProtocolError as error:
                difference = Difference("the state", "one", f"none that can be read: {error}")
            if difference is not None:
                self._found("state", version, difference)
                return

    def _check_checkpoints(self) -> None:
        """The newest checkpoint that both sides can speak about, and the pointer to it."""
        pointer = derived.compare_pointer(self._pointer, self._listing)
        if pointer is not None:
            self._found("pointer", *pointer)
        for entry in self._listing.checkpoints:
            if entry.version in self._is_base:
                self._num_checkpoints += 1
                difference = derived.compare_checkpoint(self._ours, self._theirs, entry)
                if difference is not None:
                    self._found("checkpoint", entry.version, difference)
                return

    def _check_checksums(self) -> None:
        kept = [version for version in derived.checksum_versions(self._theirs) if version in self._is_base]
        for version, difference in derived.compare_checksums(self._store, self._ours, self._theirs, kept[:CHECKSUMS]):
            self._num_checksums += 1
            if difference is not None:
                self._found("checksum", version, difference)
                return

    def _found(self, part: Part, version: int, difference: Difference) -> None:
        text = str(difference)
        if part == "counters":
            text = (
                f"{difference.place}: the head row says {difference.in_sql}, "
                f"its live files add up to {difference.in_files}"
            )
        remedy = remedies.remedy(part, version, self._table, mirrored_version=self._head.mirrored_version)
        self._drifts.append(Drift(part, version, text, difference.in_sql, difference.in_files, remedy))


def _parsed(table: str, version: int, data: bytes) -> Commit:
    return Commit(version, 0, tuple(iter_actions(data.split(b"\n"), table=table, version=version)))
