"""Validate: compares SQL with `_delta_log` and what each derives from its commits, and suggests remedies for drift.

Lag is not drift: a follower's SQL catches up with its files, a managed table's files with SQL.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from deltalakedb.exceptions import DeltaProtocolError, LogGapError, TableNotFoundError
from deltalakedb.files.checkpoint_reader import read_checkpoint
from deltalakedb.files.log_folder import LAST_CHECKPOINT, LOG_FOLDER, CheckpointEntry, LogListing, Segment
from deltalakedb.files.optional_files import CHECKSUM, json_checksum
from deltalakedb.files.reader import FileTxnLogReader
from deltalakedb.files.snapshot import FileSnapshot
from deltalakedb.log.protocol.actions import Metadata, Protocol
from deltalakedb.log.protocol.commit import parse_action
from deltalakedb.log.protocol.snapshot import SnapshotState
from deltalakedb.mirror.checkpoints import Totals, totals_at
from deltalakedb.mirror.compare import Difference, compare_action, compare_commits, compare_states, parse_commit
from deltalakedb.mirror.external import shown_protocol
from deltalakedb.store import registry
from deltalakedb.store.connection import Connection, Store
from deltalakedb.store.reader import SqlTxnLogReader
from deltalakedb.store.registry import Head, TableRow
from deltalakedb.store.snapshot import SqlSnapshot

CHECKSUMS = 200
"""How many of the newest checksums to compare: each is a file to fetch."""

Part = Literal["commit", "state", "versions", "counters", "checkpoint", "pointer", "checksum", "metadata"]


@dataclass(frozen=True, slots=True)
class Drift:
    """The first difference between SQL and the files in one part of the log."""

    part: Part
    version: int
    difference: str
    in_sql: str
    in_files: str
    remedy: str


@dataclass(frozen=True, slots=True)
class ValidationReport:
    """What was compared and where it differs; at most one drift for each part."""

    table: TableRow
    sql_version: int
    files_version: int
    """-1 if the files have no log yet."""
    num_commits_compared: int
    num_states_compared: int
    num_checkpoints_compared: int
    num_checksums_compared: int
    drifts: tuple[Drift, ...]

    @property
    def drift(self) -> Drift | None:
        """The first drift, or None."""
        return self.drifts[0] if self.drifts else None

    @property
    def lag(self) -> int:
        """How many versions the copy is behind the authority."""
        ahead = self.files_version - self.sql_version
        return max(0, -ahead if self.table.mode == "managed" else ahead)


def validate(
    store: Store,
    table: TableRow,
    *,
    storage_options: Mapping[str, str] | None = None,
    progress: Callable[[int], None] | None = None,
) -> ValidationReport:
    """Compare SQL with the files: common commits, bases, newest common state and checkpoint, checksums, counters."""
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
        # Others commit meanwhile. The head read before the listing gives the versions that the files must have, that
        # read after it the versions that they may have.
        with store.read(single=True) as conn:
            self._before = self._read_head(conn)
        self._pointer = read_pointer(theirs)
        self._listing = theirs.listing()
        self._files_version = -1 if self._listing.latest_version is None else self._listing.latest_version
        with store.read() as conn:
            self._head = self._read_head(conn)
            self._counters = compare_counters(conn, self._head)
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
            self._add_drift("counters", self._head.current_version, self._counters)
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
        """Check whether one side has versions that it cannot have unless something went wrong."""
        files_version = self._files_version
        if self._table.mode == "managed":
            sql_version, mirrored_version = self._head.current_version, self._before.mirrored_version
            if files_version > sql_version:
                self._add_drift(
                    "versions",
                    sql_version + 1,
                    Difference("versions", f"{sql_version} as the newest", str(files_version)),
                )
            elif files_version < mirrored_version:
                in_sql = f"{mirrored_version} as the newest that was mirrored"
                self._add_drift("versions", files_version + 1, Difference("versions", in_sql, str(files_version)))
            elif (missing := self._missing_commit()) is not None:
                self._add_drift(
                    "versions", missing, Difference(f"version {missing}", "its commit", "a gap in its place")
                )
        elif self._before.current_version > files_version:
            in_sql = f"{self._before.current_version} as the newest that was read"
            self._add_drift("versions", files_version + 1, Difference("versions", in_sql, str(files_version)))

    def _missing_commit(self) -> int | None:
        """A missing version between existing commits. Clean-up removes the oldest commits and leaves no gap."""
        commits = self._listing.commits
        missing = self._listing.missing_commit(min(commits), max(commits)) if commits else None
        # A listing is not atomic: it may show a new commit but not the one before it.
        return None if missing is None or self._theirs.has_commit(missing) else missing

    def _check_commits(self) -> bool:
        """Compare the commits that both sides have; return whether a difference was found."""
        for first, last in self._runs():
            ours = self._ours.mirror_commits(first, last)
            theirs = self._theirs.commits(first, last)
            for version in range(first, last + 1):
                mirrored = next(ours)
                expected = parse_commit(self._table.full_name, version, mirrored.data)
                try:
                    difference = compare_commits(expected, next(theirs))
                except LogGapError:
                    break  # deleted by clean-up after it was listed
                except DeltaProtocolError as error:
                    difference = Difference("the file", "a commit", f"what cannot be read: {error}")
                self._num_commits += 1
                if difference is not None:
                    self._add_drift("commit", version, difference)
                    return True
                if self._progress:
                    self._progress(1)
        return False

    def _runs(self) -> Iterator[tuple[int, int]]:
        """Ranges of consecutive versions whose commits both sides have; the states cover cleaned-up versions."""
        common_versions = [v for v, is_base in self._is_base.items() if not is_base and v in self._listing.commits]
        start = previous = None
        for version in common_versions:
            if start is None or previous is None:
                start = version
            elif version != previous + 1:
                yield start, previous
                start = version
            previous = version
        if start is not None and previous is not None:
            yield start, previous

    def _check_states(self) -> None:
        """Compare the state of each base, which has no actions of its own, and of the newest common version."""
        if self._files_version < 0:
            return
        versions = [v for v, is_base in self._is_base.items() if is_base and v < self._common] + [self._common]
        for version in versions:
            try:
                if version not in self._is_base or version < self._listing.earliest_version(self._table.full_name):
                    continue
                self._num_states += 1
                snapshot = self._ours.snapshot(version)
                theirs = self._theirs.snapshot(version)
                difference = compare_states(snapshot, theirs, protocol=shown_protocol(snapshot))
            except DeltaProtocolError as error:
                difference = Difference("the state", "one", f"none that can be read: {error}")
            if difference is not None:
                self._add_drift("state", version, difference)
                return

    def _check_checkpoints(self) -> None:
        """Compare the newest checkpoint of a version that SQL has, and the pointer to it."""
        pointer = compare_pointer(self._pointer, self._listing)
        if pointer is not None:
            self._add_drift("pointer", *pointer)
        for entry in self._listing.checkpoints:
            if entry.version in self._is_base:
                self._num_checkpoints += 1
                difference = compare_checkpoint(self._ours, self._theirs, entry)
                if difference is not None:
                    self._add_drift("checkpoint", entry.version, difference)
                return

    def _check_checksums(self) -> None:
        versions = [version for version in checksum_versions(self._theirs) if version in self._is_base]
        for version, difference in compare_checksums(self._store, self._ours, self._theirs, versions[:CHECKSUMS]):
            self._num_checksums += 1
            if difference is not None:
                self._add_drift("checksum", version, difference)
                return

    def _add_drift(self, part: Part, version: int, difference: Difference) -> None:
        text = str(difference)
        if part == "counters":
            text = (
                f"{difference.place}: the head row says {difference.in_sql}, "
                f"its live files add up to {difference.in_files}"
            )
        remedy = _find_remedy(part, version, self._table, mirrored_version=self._head.mirrored_version)
        self._drifts.append(Drift(part, version, text, difference.in_sql, difference.in_files, remedy))


def _find_remedy(part: str, version: int, table: TableRow, *, mirrored_version: int) -> str:
    """What the user should do about a drift at `version`."""
    name = table.full_name
    if part == "counters":
        return (
            f"{name} still reads right, only its totals are wrong: somebody changed rows by hand, or this is a bug to "
            "report; a database restored from its backup has the right ones"
        )
    if table.mode != "managed":
        return _find_remedy_of_followed(part, table)
    if part in ("commit", "versions") and version > mirrored_version:
        return (
            f"another writer, or a database older than its files: `dl mirror resolve {name} --adopt` takes the files' "
            "commits in and puts ours after them, `--overrule` undoes theirs by a commit of its own"
        )
    if part in ("commit", "versions", "state"):
        return (
            "SQL is the authority and has the right commits: what was mirrored is missing or was changed afterwards. "
            f"Move a changed file out of `_delta_log`, then `dl validate {name} --repair` puts back what is missing"
        )
    if part == "pointer":
        return (
            "readers take it as a hint and may fail on a wrong one: delete `_last_checkpoint`; the next checkpoint "
            "writes it anew"
        )
    if part == "checkpoint":
        return (
            "readers that start from it see another table than SQL: delete that file and `_last_checkpoint`, then "
            f"`dl validate {name} --repair` writes a checkpoint of the newest version"
        )
    return "readers that trust it may refuse the version: delete that `.crc` file, they do without"


def _find_remedy_of_followed(part: str, table: TableRow) -> str:
    if part in ("checkpoint", "checksum", "pointer"):
        return "the files disagree with themselves: tell whoever writes them; SQL was read from the commits"
    return (
        f"the files are the authority and are not those that SQL has read: `dl drop {table.full_name}` and `dl attach` "
        "it again"
    )


_CHECKSUM_NAME = re.compile(r"([0-9]{20})\.crc")
_COUNTERS = ("num_files", "size_bytes", "num_records", "files_without_records")


def compare_counters(conn: Connection, head: Head) -> Difference | None:
    """Compare the head's counters with a recount of the live files in the same database snapshot."""
    row = conn.one("count_live_files", table_id=head.table_id) or {}
    for name in _COUNTERS:
        stored, counted = getattr(head, name), int(row.get(name) or 0)
        if stored != counted:
            return Difference(name, str(stored), str(counted))
    return None


def compare_checkpoint(ours: SqlTxnLogReader, theirs: FileTxnLogReader, entry: CheckpointEntry) -> Difference | None:
    """Compare a checkpoint alone, without the commits around it, with the state at its version."""
    try:
        content = read_checkpoint(theirs.storage, entry, table=theirs.table)
        checkpoint_state = FileSnapshot.of(
            theirs.storage, theirs.table, Segment(entry.version, entry, ()), content, SnapshotState(), set()
        )
        snapshot = ours.snapshot(entry.version)
        return compare_states(snapshot, checkpoint_state, protocol=shown_protocol(snapshot))
    except DeltaProtocolError as error:
        return Difference(entry.names[0], "a readable state", f"a checkpoint that cannot be read: {error}")


def read_pointer(theirs: FileTxnLogReader) -> bytes | None:
    """The content of `_last_checkpoint`; read before the listing, because it is written after its checkpoint."""
    return _read(theirs, LAST_CHECKPOINT)


def compare_pointer(text: bytes | None, listing: LogListing) -> tuple[int, Difference] | None:
    """Check the checksum of `_last_checkpoint`, and that the checkpoint that it names exists."""
    if text is None:
        return None
    newest = listing.checkpoints[0].version if listing.checkpoints else -1
    try:
        value = json.loads(text)
        version, checksum = int(value["version"]), value.get(CHECKSUM)
    except (ValueError, KeyError, TypeError, RecursionError):
        return max(newest, 0), Difference(LAST_CHECKPOINT, "JSON with a version", "something else")
    if checksum is not None and checksum != json_checksum(value):
        return version, Difference(LAST_CHECKPOINT, f"the checksum {json_checksum(value)}", str(checksum))
    if all(entry.version != version for entry in listing.checkpoints):
        in_files = f"{newest} as the newest checkpoint" if newest >= 0 else "no checkpoint at all"
        return version, Difference(f"{LAST_CHECKPOINT} names the checkpoint of version {version}", "that one", in_files)
    return None


def checksum_versions(theirs: FileTxnLogReader) -> list[int]:
    """The versions that have a checksum, newest first."""
    matches = map(_CHECKSUM_NAME.fullmatch, theirs.storage.names(LOG_FOLDER))
    return sorted((int(match[1]) for match in matches if match), reverse=True)


def compare_checksums(
    store: Store, ours: SqlTxnLogReader, theirs: FileTxnLogReader, versions: list[int]
) -> Iterator[tuple[int, Difference | None]]:
    """Compare each checksum with SQL's totals for its version, oldest first."""
    with store.read() as conn:
        head = registry.read_head(conn, ours.table.table_id)
        totals = totals_at(conn, head, versions) if head else {}
    for version in sorted(totals):
        text = _read(theirs, f"{version:020d}.crc")
        if text is not None:
            yield version, _compare_checksum(ours.snapshot(version), totals[version], text)


def _compare_checksum(snapshot: SqlSnapshot, totals: Totals, text: bytes) -> Difference | None:
    try:
        value: Mapping[str, Any] = json.loads(text)
        metadata, protocol = _action(value, "metadata", "metaData"), _action(value, "protocol", "protocol")
        expected_totals = {"numFiles": totals.num_files, "tableSizeBytes": totals.size_bytes}
        for name, expected in expected_totals.items():
            if value[name] != expected:
                return Difference(f"checksum, {name}", str(expected), str(value[name]))
    except (ValueError, KeyError, TypeError, RecursionError, DeltaProtocolError) as error:
        return Difference("checksum", "a checksum", f"a file that cannot be read as one ({type(error).__name__})")
    assert isinstance(metadata, Metadata)
    assert isinstance(protocol, Protocol)
    return compare_action("checksum, metadata", snapshot.metadata, metadata) or compare_action(
        "checksum, protocol", shown_protocol(snapshot), protocol
    )


def _action(value: Mapping[str, Any], name: str, kind: str) -> Any:
    return parse_action(json.dumps({kind: value[name]}), where="a checksum")


def _read(theirs: FileTxnLogReader, name: str) -> bytes | None:
    try:
        return theirs.storage.get(f"{LOG_FOLDER}/{name}")
    except FileNotFoundError:
        return None
