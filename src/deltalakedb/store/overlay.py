"""OverlaySnapshot: a pinned version with a transaction's own proposed commits on top, as the transaction sees it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

import pyarrow as pa
import pyarrow.compute as pc

from deltalakedb.log.actions import Action, AppTransaction, DomainMetadata, FileKey, Metadata, Protocol
from deltalakedb.log.atoms import Predicate
from deltalakedb.log.codec import deletion_vector_from_json
from deltalakedb.log.rows import adds_to_batch, removes_to_batch
from deltalakedb.log.snapshot import SnapshotState, replay
from deltalakedb.log.stats import parse_stats
from deltalakedb.log.text import from_sql_text, to_sql_text
from deltalakedb.log.txnlog import FILES_SCHEMA, TOMBSTONES_SCHEMA, deleted_after
from deltalakedb.store.connection import Store
from deltalakedb.store.planning import PLAN_SCHEMA, PlannedFiles, files_that_may_match, plan
from deltalakedb.store.registry import OpenTable, TableRow, read_head
from deltalakedb.store.snapshot import FileTotals, SqlSnapshot
from deltalakedb.store.vacuums import check_not_purged

_KEY_COLUMNS = ("path", "deletion_vector")


class OverlaySnapshot:
    """What a transaction sees of a table it has written to: nothing of it is in the database yet.

    `base` is None for a table that the transaction creates. Its version is the one it will have if nobody else
    commits meanwhile.
    """

    def __init__(
        self, store: Store, table: TableRow, base: SqlSnapshot | None, commits: Sequence[Sequence[Action]]
    ) -> None:
        self._store = store
        self._table = table
        self._base = base
        self._actions = [action for commit in commits for action in commit]
        self.version = (-1 if base is None else base.version) + len(commits)
        self.timestamp_ms = 0 if base is None else base.timestamp_ms

    def __repr__(self) -> str:
        return f"OverlaySnapshot({self._table.full_name!r}, version={self.version})"

    @cached_property
    def _own(self) -> SnapshotState:
        return replay(self._actions)

    @cached_property
    def _hidden(self) -> frozenset[FileKey]:
        """Files of the base that own commits removed, or added again with other statistics."""
        return frozenset(self._own.files) | frozenset(self._own.tombstones)

    def check_kept(self) -> None:
        """Raise if `dl gc` has removed the pinned version since."""
        if self._base is not None:
            self._base.check_kept()

    # -- beside files

    @property
    def protocol(self) -> Protocol:
        own = self._own.protocol
        return own if own is not None else self._needed_base.protocol

    @property
    def metadata(self) -> Metadata:
        own = self._own.metadata
        return own if own is not None else self._needed_base.metadata

    def metadata_history(self) -> list[Metadata] | None:
        known = [] if self._base is None else self._base.metadata_history()
        return None if known is None else known + [one for one in self._actions if isinstance(one, Metadata)]

    @property
    def _needed_base(self) -> SqlSnapshot:
        assert self._base is not None, "a table's first commit carries protocol and metadata"
        return self._base

    def app_transactions(self) -> Mapping[str, AppTransaction]:
        known = {} if self._base is None else self._base.app_transactions()
        return {**known, **self._own.app_transactions}

    def app_transaction(self, app_id: str) -> AppTransaction | None:
        """How far one application has come, without reading the others."""
        own = self._own.app_transactions.get(app_id)
        return own if own is not None or self._base is None else self._base.app_transaction(app_id)

    def domain_metadata(self) -> Mapping[str, DomainMetadata]:
        known = {} if self._base is None else self._base.domain_metadata()
        own = {action.domain: action for action in self._actions if isinstance(action, DomainMetadata)}
        return {domain: action for domain, action in {**known, **own}.items() if not action.removed}

    # -- files

    def files(self, columns: Sequence[str] | None = None) -> pa.RecordBatchReader:
        return self.files_table(columns).to_reader()

    def files_table(self, columns: Sequence[str] | None = None) -> pa.Table:
        """The live files; only some columns when `columns` names them."""
        names = list(FILES_SCHEMA.names if columns is None else columns)
        added = self._own_files().select(names)
        if self._base is None:
            return added
        read = self._base.files_table(_with(names, _KEY_COLUMNS))
        return pa.concat_tables([self._without_hidden(read).select(names), added])

    def tombstones(self, deleted_after_ms: int | None = None) -> pa.RecordBatchReader:
        own = removes_to_batch(self._own.tombstones.values())
        recent = own if deleted_after_ms is None else deleted_after(own, deleted_after_ms)
        removed = pa.Table.from_batches([recent], TOMBSTONES_SCHEMA)
        if self._base is None:
            return removed.to_reader()
        older = self._without_hidden(self._base.tombstones(deleted_after_ms).read_all())
        return pa.concat_tables([older, removed]).to_reader()

    def totals(self) -> FileTotals:
        """Counts of the files: added to what the base remembers while nothing of it was removed, else counted."""
        own = _count(self._own_files())
        if self._base is None:
            return own
        if not self._own.tombstones and not self._adds_again():
            known = self._base.totals()
            return FileTotals(
                known.num_files + own.num_files,
                known.size_bytes + own.size_bytes,
                known.num_records + own.num_records,
                known.files_without_records + own.files_without_records,
            )
        return _count(self.files_table(["path", "size", "stats", "deletion_vector"]))

    def plan(
        self, predicate: Predicate, *, columns: Sequence[str] | None = None, explain: bool = False
    ) -> PlannedFiles:
        """The files, pinned and own, that may hold a row for which the predicate is true."""
        names = list(FILES_SCHEMA.names if columns is None else columns)
        own = self._own_files()
        added = files_that_may_match(own, self.metadata, predicate)
        kept = _with_counts(added, names)
        if self._base is None:
            return PlannedFiles(kept, kept.num_rows, own.num_rows - kept.num_rows)
        wanted = _with(names, _KEY_COLUMNS)
        found = plan_pinned(self._store, self._table, self._base, predicate, columns=wanted, explain=explain)
        pinned = self._without_hidden(found.files)
        files = pa.concat_tables([pinned.select(names), kept])
        # Hidden files count neither as kept nor as pruned: for the transaction they are gone.
        total = self.totals().num_files
        return PlannedFiles(files, files.num_rows, max(total - files.num_rows, 0), found.steps)

    def _own_files(self) -> pa.Table:
        return pa.Table.from_batches([adds_to_batch(self._own.files.values())], FILES_SCHEMA)

    def _adds_again(self) -> bool:
        assert self._base is not None
        return self._touched(self._base.files_table(list(_KEY_COLUMNS))).true_count > 0 if self._own.files else False

    def _without_hidden(self, files: pa.Table) -> pa.Table:
        if not self._hidden or files.num_rows == 0:
            return files
        return files.filter(pc.invert(self._touched(files)))

    def _touched(self, files: pa.Table) -> pa.BooleanArray:
        """Which rows own commits stand in for: found by path first, then by the whole key."""
        paths = pa.array({to_sql_text(path) for path, _ in self._hidden}, pa.string())
        near = pc.is_in(files.column("path"), value_set=paths).combine_chunks()
        places = pc.indices_nonzero(near)
        rows = files.select(list(_KEY_COLUMNS)).take(places).to_pylist()
        hit = {place.as_py() for place, row in zip(places, rows, strict=True) if _key(row) in self._hidden}
        return pa.array((place in hit for place in range(files.num_rows)), pa.bool_())


def plan_pinned(
    store: Store,
    table: TableRow,
    snapshot: SqlSnapshot,
    predicate: Predicate,
    *,
    columns: Sequence[str] | None = None,
    explain: bool = False,
) -> PlannedFiles:
    """Plan a version as the database has it."""
    with store.read() as conn:
        # The head of this very read: a commit since the version was opened may have taken bounds away.
        head = read_head(conn, table.table_id)
        assert head is not None, "a table with a version has a head"
        check_not_purged(table, head)
        opened = OpenTable(table, head, snapshot.protocol, snapshot.metadata, fenced=False)
        return plan(conn, opened, predicate, version=snapshot.version, columns=columns, explain=explain)


def _key(row: Mapping[str, str | None]) -> FileKey:
    path, vector = row["path"] or "", row["deletion_vector"]
    return from_sql_text(path), "" if vector is None else deletion_vector_from_json(vector).unique_id


def _with(names: Sequence[str], needed: Sequence[str]) -> list[str]:
    return [*names, *(name for name in needed if name not in names)]


def _records(files: pa.Table) -> pa.Array:
    """The rows of each file that its deletion vector has left; null where the statistics do not say."""
    counts = []
    pairs = zip(files.column("stats").to_pylist(), files.column("deletion_vector").to_pylist(), strict=True)
    for text, vector in pairs:
        stats = parse_stats(None if text is None else from_sql_text(text))
        known = None if stats is None else stats.num_records
        deleted = 0 if vector is None else deletion_vector_from_json(vector).cardinality
        counts.append(None if known is None else known - deleted)
    return pa.array(counts, pa.int64())


def _with_counts(files: pa.Table, names: Sequence[str]) -> pa.Table:
    """Own files in the columns of a plan; one that is not committed has no id."""
    whole = files.append_column("num_records", _records(files))
    whole = whole.append_column("file_id", pa.nulls(files.num_rows, pa.int64()))
    return whole.select(list(names)).cast(pa.schema([PLAN_SCHEMA.field(name) for name in names]))


def _count(files: pa.Table) -> FileTotals:
    records = _records(files)
    return FileTotals(
        num_files=files.num_rows,
        size_bytes=pc.sum(files.column("size")).as_py() or 0,
        num_records=pc.sum(records).as_py() or 0,
        files_without_records=records.null_count,
    )
