"""Loader: writes the commits of one table, or a checkpoint's state, into SQL inside the caller's transaction."""

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from deltalakedb.exceptions import InvalidCommitError, LogGapError, MalformedLogError
from deltalakedb.log.protocol.actions import (
    Action,
    AddFile,
    AppTransaction,
    CommitInfo,
    DomainMetadata,
    Metadata,
    Protocol,
    RemoveFile,
)
from deltalakedb.log.protocol.codec import from_sql_text, key_hash, key_hashes, to_sql_text
from deltalakedb.log.protocol.commit import Commit
from deltalakedb.log.protocol.features import check_readable
from deltalakedb.log.protocol.fence import unfence
from deltalakedb.log.protocol.rows import adds_to_batch, protocol_from_row
from deltalakedb.store.bounds_index import BoundsIndex
from deltalakedb.store.commit_sizes import FILES_WITH_BOUNDS, MANY_FILES
from deltalakedb.store.connection import Connection, Row
from deltalakedb.store.insert_pipeline import InsertPipeline
from deltalakedb.store.registry import Head, advance_head, head_values, insert_head
from deltalakedb.store.rows import (
    ActionRows,
    HeadDraft,
    RecordCounter,
    RowBuffer,
    VersionDraft,
    add_rows,
    keys_to_close,
    tombstone_rows,
)

logger = logging.getLogger(__name__)

FLUSH_ROWS = 20_000
"""How many action rows are held in memory before they are written."""

SLICE_FILES = 12_500
"""If files are many, this many are written while the next ones are prepared."""

INDEXED_FROM = ("stats", "partition_values")
"""The columns of a file that its bounds are computed from."""

Progress = Callable[[int], None]
"""Called with the number of file actions just loaded."""


@dataclass(frozen=True, slots=True)
class BaseState:
    """A table's state at one version, taken from a checkpoint: the start of the history in SQL."""

    version: int
    timestamp_ms: int
    protocol: Protocol
    metadata: Metadata
    app_transactions: Iterable[AppTransaction]
    domain_metadata: Iterable[DomainMetadata]
    files: Iterable[pa.RecordBatch]
    tombstones: Iterable[pa.RecordBatch]
    commit_info: CommitInfo | None = None


@dataclass(frozen=True, slots=True)
class Known:
    """Values that a loader needs, already read by the caller under the head's lock."""

    total_added: int
    total_closed: int
    bounds_columns: Sequence[Row]
    live_keys: frozenset[bytes] | None = None
    """Which of the keys in the commits are live; None if not looked up."""


class Loader:
    """Loads a table's commits in order. Nothing is visible before the caller's transaction is committed.

    Rows are buffered and written in bulk. A file added and removed within one buffer is written once, already
    closed; files that were in SQL before are closed by one statement per flush.
    """

    def __init__(
        self,
        conn: Connection,
        table_id: int,
        *,
        table: str,
        head: Head | None = None,
        metadata: Metadata | None = None,
        progress: Progress | None = None,
        with_bounds: bool = True,
        known: Known | None = None,
        strict: bool = False,
    ) -> None:
        """`strict`: a removed file must be live, as in our own commits; other writers may remove a file twice."""
        self._conn = conn
        self._table_id = table_id
        self._table = table
        self._is_new = head is None
        self._read_version = -1 if head is None else head.current_version
        self._strict = strict
        self._live_keys = known.live_keys if known else None
        self._to_remove: dict[bytes, str] = {}  # key hash -> path of a file that must be live
        self._head = HeadDraft(table_id) if head is None else HeadDraft(**head_values(head))
        self._progress = progress
        self._bounds = None
        if with_bounds:
            columns = known.bounds_columns if known else conn.all("select_bounds_columns", table_id=table_id)
            self._bounds = BoundsIndex(conn, table_id, self._head.bounds_epoch, columns)
        if metadata is not None and self._bounds is not None:
            self._bounds.use_metadata(metadata, self._head.next_file_id)
        self._total_added, self._total_closed = (
            (known.total_added, known.total_closed) if known else self._read_totals()
        )
        self._rows = ActionRows(table_id)
        self._records = RecordCounter()
        self._protocol: Protocol | None = None  # in force, once loaded or read
        self._versions: list[VersionDraft] = []
        self._live: dict[bytes, int] = {}  # key hash -> row in the buffer of adds
        self._closes: dict[bytes, int] = {}  # key hash -> the version that closes the file if it is in SQL
        self._closed: dict[int, int] = {}  # version -> number of files it closed

    @property
    def known(self) -> Known:
        """What the next loader needs, valid once this one has finished."""
        return Known(self._total_added, self._total_closed, self._bounds.indexed if self._bounds else ())

    @property
    def current_version(self) -> int:
        return self._head.current_version

    def append(self, commit: Commit, *, fenced: bool | None = None) -> None:
        """Loads the next commit; the caller has checked its actions against each other.

        `fenced`: whether the mirror adds the fence to its protocol action; None: whether the action itself shows it.
        """
        expected = self._head.current_version + 1
        if commit.version != expected:
            raise LogGapError(self._table, expected, f"the next commit found is {commit.version}")
        for action in commit.actions:
            if isinstance(action, Metadata):
                self._change_metadata(action, commit.version)
        draft = VersionDraft(commit.version, commit.timestamp_ms, size_bytes=commit.size_bytes, fenced=fenced)
        adds = [ordinal for ordinal, action in enumerate(commit.actions) if isinstance(action, AddFile)]
        many = len(adds) >= MANY_FILES
        if many:
            self.flush()
        for ordinal, action in enumerate(commit.actions):
            if not (many and isinstance(action, AddFile)):
                self._take(action, draft, ordinal)
        draft.num_actions = len(commit.actions)
        draft.num_added = len(adds)
        self._take_version(draft)
        if many:
            self._load_adds(commit, adds)
        if len(self._rows) + len(self._versions) >= FLUSH_ROWS:
            self.flush()

    def load_base(self, base: BaseState) -> None:
        """Starts, or restarts after a gap, from a state: all files that were live are closed at its version."""
        if base.version <= self._head.current_version:
            raise MalformedLogError(
                f"{self._table}: a state at version {base.version} cannot follow version {self._head.current_version}"
            )
        self.flush()
        self._close_all(base.version)
        self._change_metadata(base.metadata, base.version)
        draft = VersionDraft(base.version, base.timestamp_ms, is_base=True, commit_info=base.commit_info)
        self._take_base_actions(base, draft)
        self._load_files(base, draft)
        self._load_tombstones(base, draft)
        self._head.base_version = base.version
        self._take_version(draft)
        self.flush()

    def finish(self) -> Head:
        """Writes the buffered rows, then the head; the caller commits."""
        self.flush()
        if self._head.metadata_version < 0 or self._head.protocol_version < 0:
            raise MalformedLogError(f"{self._table}: the log does not start with a protocol and a metaData action")
        if self._bounds is not None:
            self._head.bounds_epoch = self._bounds.epoch
            self._bounds.save()
        head = Head(**head_values(self._head))
        if self._records.num_unreadable:
            logger.warning(
                "%s: the statistics of %d files are not JSON; they are kept as they are and not used for planning",
                self._table,
                self._records.num_unreadable,
            )
        if self._is_new:
            insert_head(self._conn, head)
        else:
            advance_head(self._conn, head, self._read_version)
        self._is_new, self._read_version = False, head.current_version
        return head

    def flush(self) -> None:
        """Writes the buffered rows: first closes the files they remove, then inserts."""
        self._close_files()
        if self._live_keys is not None:  # the keys that were looked up before the load do not include them
            self._live_keys |= self._live.keys()
        self._index_live_adds()
        for buffer in self._rows.buffers:
            buffer.flush_to(self._conn)
        self._write_versions()

    # -- loading actions

    def _change_metadata(self, metadata: Metadata, version: int) -> None:
        # The bounds of a flush are computed with one schema, so a schema change flushes the buffer.
        self.flush()
        if self._bounds is not None:
            self._bounds.use_metadata(metadata, self._head.next_file_id)
        self._head.metadata_version = version

    def _take(self, action: Action, draft: VersionDraft, ordinal: int) -> None:
        match action:
            case AddFile():
                self._take_add(action, draft.version, ordinal)
                return
            case RemoveFile():
                hashed = key_hash(action.path, action.dv_id)
                if self._strict and hashed not in self._live and not action.ends_vectors:
                    self._to_remove[hashed] = action.path
                self._end(hashed, draft.version)
                draft.num_removed += 1
            case Protocol():
                check_readable(action, self._table)
                logical, shows_fence = unfence(action)
                if shows_fence:
                    logical, _ = unfence(action, self._protocol_in_force())
                self._head.protocol_version, self._protocol = draft.version, logical
                fenced = shows_fence if draft.fenced is None else draft.fenced
                if shows_fence:
                    draft.size_bytes = None  # the size of the file with the fence, which is longer than the kept commit
                self._rows.put(logical, draft.version, ordinal, fenced=fenced)
                return
            case CommitInfo() if draft.commit_info is None:
                draft.commit_info, draft.commit_info_ordinal = action, ordinal
                return
        self._rows.put(action, draft.version, ordinal)

    def _protocol_in_force(self) -> Protocol | None:
        if self._protocol is None and self._head.protocol_version >= 0:
            ids = {"table_id": self._table_id, "version": self._head.protocol_version}
            self._protocol = next(map(protocol_from_row, self._conn.all("select_protocol", **ids)), None)
        return self._protocol

    def _take_add(self, add: AddFile, version: int, ordinal: int) -> None:
        hashed = key_hash(add.path, add.dv_id)
        self._end(hashed, version)
        records = self._records.live(add.stats, add.deletion_vector.cardinality if add.deletion_vector else 0)
        self._live[hashed] = len(self._rows.adds)
        self._rows.put_add(add, version, ordinal, file_id=self._head.next_file_id, key_hash=hashed, num_records=records)
        self._head.count(+1, add.size, records)
        self._head.next_file_id += 1
        self._total_added += 1

    def _end(self, hashed: bytes, version: int) -> None:
        """Closes the live file of this key, in the buffer or in SQL, at `version`."""
        row = self._live.pop(hashed, None)
        if row is None:
            self._closes.setdefault(hashed, version)
            return
        adds = self._rows.adds
        adds.columns["removed_version"][row] = version
        self._head.count(-1, adds.columns["size"][row], adds.columns["num_records"][row])
        self._closed[version] = self._closed.get(version, 0) + 1

    def _take_version(self, draft: VersionDraft) -> None:
        # Clocks and file times may go backwards; version times may not (Delta's own readers adjust them the same way).
        draft.timestamp_ms = max(draft.timestamp_ms, self._head.last_commit_ms + 1)
        self._versions.append(draft)
        self._head.current_version = draft.version
        self._head.last_commit_ms = draft.timestamp_ms
        if self._progress and not draft.is_base:
            self._progress(draft.num_added + draft.num_removed)

    # -- a base

    def _take_base_actions(self, base: BaseState, draft: VersionDraft) -> None:
        actions: list[Action] = [base.protocol, base.metadata, *base.app_transactions, *base.domain_metadata]
        base_domains = {to_sql_text(action.domain) for action in actions if isinstance(action, DomainMetadata)}
        # A domain that was removed during the gap must not survive from the versions before it.
        domain_rows = self._conn.all("select_domain_metadata", table_id=self._table_id, version=base.version)
        removed_domains = (from_sql_text(row["domain"]) for row in domain_rows if row["domain"] not in base_domains)
        actions.extend(DomainMetadata(domain, "", removed=True) for domain in removed_domains)
        for ordinal, action in enumerate(actions):
            self._take(action, draft, ordinal)
        draft.num_actions = len(actions)

    def _load_files(self, base: BaseState, draft: VersionDraft) -> None:
        with InsertPipeline(self._conn) as inserts:
            for batch in base.files:
                ordinals = range(draft.num_actions, draft.num_actions + batch.num_rows)
                self._load_batch(batch, base.version, ordinals, inserts)
                draft.num_added += batch.num_rows
                draft.num_actions += batch.num_rows
                if self._progress:
                    self._progress(batch.num_rows)

    def _load_adds(self, commit: Commit, ordinals: Sequence[int]) -> None:
        """Loads the adds of a commit if they are many; everything buffered before is already in SQL."""
        adds = [action for action in commit.actions if isinstance(action, AddFile)]
        hashes = key_hashes([add.path for add in adds], [add.dv_id for add in adds])
        if self._total_added:
            self._closes = dict.fromkeys(hashes, commit.version) | self._closes
        self._close_files()
        with InsertPipeline(self._conn) as inserts:
            for start in range(0, len(adds), SLICE_FILES):
                part = slice(start, start + SLICE_FILES)
                self._load_batch(adds_to_batch(adds[part]), commit.version, ordinals[part], inserts, hashes[part])

    def _load_batch(
        self,
        batch: pa.RecordBatch,
        version: int,
        ordinals: Sequence[int],
        inserts: InsertPipeline,
        hashes: Sequence[bytes] | None = None,
    ) -> None:
        first_id = self._head.next_file_id
        bounds = None if self._bounds is None else self._bounds.compute(batch)
        table = add_rows(
            batch,
            self._table_id,
            version,
            ordinals=ordinals,
            first_file_id=first_id,
            physical_records=self._records.physical(batch) if bounds is None else bounds.num_records,
            hashes=hashes,
        )
        inserts.insert("dl_add_files", table)
        if self._bounds is not None and bounds is not None:
            self._bounds.insert(range(first_id, first_id + batch.num_rows), bounds, into=inserts)
            self._records.num_unreadable += bounds.unreadable_stats
        records = table.column("num_records")
        self._head.next_file_id += batch.num_rows
        self._head.num_files += batch.num_rows
        self._head.num_records += pc.sum(records).as_py() or 0
        self._head.files_without_records += records.null_count
        self._head.size_bytes += pc.sum(table.column("size")).as_py() or 0
        self._total_added += batch.num_rows

    def _load_tombstones(self, base: BaseState, draft: VersionDraft) -> None:
        for batch in base.tombstones:
            table = tombstone_rows(batch, self._table_id, base.version, first_ordinal=draft.num_actions)
            self._conn.insert("dl_remove_files", table)
            draft.num_removed += batch.num_rows
            draft.num_actions += batch.num_rows

    def _close_all(self, version: int) -> None:
        if not self._head.num_files:
            return
        self._closed[version] = self._conn.run("close_all_files", table_id=self._table_id, version=version)
        if self._bounds is not None:
            self._bounds.clear()
        self._head.num_files = self._head.num_records = self._head.files_without_records = self._head.size_bytes = 0

    # -- writing

    def _close_files(self) -> None:
        closes, self._closes = self._closes, {}
        if self._live_keys is not None:  # keys of new files are not live: skips the round trip that would close them
            closes = {hashed: version for hashed, version in closes.items() if hashed in self._live_keys}
        nothing_in_sql = self._total_added == len(self._rows.adds)
        if not closes or nothing_in_sql:
            if self._to_remove:
                self._check_removed(())
            return
        closed = self._conn.close_files(self._table_id, keys_to_close(closes))
        self._check_removed(closed.column("key_hash").to_pylist())
        for row in closed.select(["key_hash", "size", "num_records"]).to_pylist():
            version = closes[row["key_hash"]]
            self._closed[version] = self._closed.get(version, 0) + 1
            self._head.count(-1, row["size"], row["num_records"])
        if self._bounds is not None and closed.num_rows:
            versions = [closes[hashed] for hashed in closed.column("key_hash").to_pylist()]
            num_left = self._head.num_files - len(self._live)
            self._bounds.remove(min(versions), max(versions), num_closed=closed.num_rows, num_left=num_left)

    def _check_removed(self, closed: Iterable[bytes]) -> None:
        """Raises in a strict load if a removed file was not live, in SQL or added by a commit of this load."""
        to_remove, self._to_remove = self._to_remove, {}
        missing = to_remove.keys() - set(closed)
        if missing:
            raise InvalidCommitError(
                f"{self._table}: the commit of version {self._head.current_version} removes {to_remove[min(missing)]}, "
                "which is not in the table; open the table again and take the files to remove from there"
            )

    def _index_live_adds(self) -> None:
        live, self._live = sorted(self._live.values()), {}
        if self._bounds is None or not live:
            return
        adds = self._rows.adds
        if len(live) <= FILES_WITH_BOUNDS and self._bounds.insert_few(
            (adds.columns["file_id"][row], adds.columns["stats"][row], adds.columns["partition_values"][row])
            for row in live
        ):
            return
        files = {name: pa.array([adds.columns[name][row] for row in live], pa.string()) for name in INDEXED_FROM}
        bounds = self._bounds.compute(pa.RecordBatch.from_pydict(files))
        self._bounds.insert([adds.columns["file_id"][row] for row in live], bounds)

    def _write_versions(self) -> None:
        drafts, self._versions = self._versions, []
        if not drafts:
            return
        closed, self._closed = self._closed, {}
        buffer = RowBuffer("dl_table_versions")
        total_added = self._total_added - sum(draft.num_added for draft in drafts)
        for draft in drafts:
            total_added += draft.num_added
            self._total_closed += closed.get(draft.version, 0)
            row = draft.to_row(self._table_id, total_added=total_added, total_closed=self._total_closed)
            buffer.append_cells(tuple(row), row.values())
        buffer.flush_to(self._conn)

    def _read_totals(self) -> tuple[int, int]:
        if self._is_new:
            return 0, 0
        row = self._conn.one("select_version", table_id=self._table_id, version=self._head.current_version)
        return (row["total_added"], row["total_closed"]) if row else (0, 0)
