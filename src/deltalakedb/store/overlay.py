"""OverlaySnapshot: a pinned version with a transaction's own proposed commits on top."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from deltalakedb.log.predicates.atoms import Predicate
from deltalakedb.log.protocol.actions import Action, AppTransaction, DomainMetadata, FileKey, Metadata, Protocol
from deltalakedb.log.protocol.codec import deletion_vector_from_json, from_sql_text, to_sql_text
from deltalakedb.log.protocol.rows import adds_to_batch, removes_to_batch
from deltalakedb.log.protocol.snapshot import SnapshotState, replay
from deltalakedb.log.protocol.txnlog import FILES_SCHEMA, TOMBSTONES_SCHEMA, deleted_after
from deltalakedb.log.statistics.stats import parse_stats
from deltalakedb.runtime.lazy import cached_property
from deltalakedb.store.connection import Store
from deltalakedb.store.planning import PLAN_SCHEMA, PlannedFiles, files_that_may_match
from deltalakedb.store.registry import TableRow
from deltalakedb.store.snapshot import FileTotals, SqlSnapshot

_KEY_COLUMNS = ("path", "deletion_vector")


class OverlaySnapshot:
    """A table that a transaction has written to, as the transaction sees it; its commits are not in the database yet.

    `base` is None for a table that the transaction creates. `version` is the version it will have if no other commit
    comes first.
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
        """Files of the base that the transaction removed, or added again with other statistics."""
        return frozenset(self._own.file_keys())

    def check_kept(self) -> None:
        """Raises if `dl gc` has removed the pinned version."""
        if self._base is not None:
            self._base.check_kept()

    # -- protocol, metadata, transactions, domains

    @property
    def protocol(self) -> Protocol:
        own_protocol = self._own.protocol
        return own_protocol if own_protocol is not None else self._needed_base.protocol

    @property
    def metadata(self) -> Metadata:
        own_metadata = self._own.metadata
        return own_metadata if own_metadata is not None else self._needed_base.metadata

    def metadata_history(self) -> list[Metadata] | None:
        history = [] if self._base is None else self._base.metadata_history()
        return (
            None if history is None else history + [action for action in self._actions if isinstance(action, Metadata)]
        )

    @property
    def _needed_base(self) -> SqlSnapshot:
        assert self._base is not None, "a table's first commit carries protocol and metadata"
        return self._base

    def app_transactions(self) -> Mapping[str, AppTransaction]:
        base_transactions = {} if self._base is None else self._base.app_transactions()
        return {**base_transactions, **self._own.app_transactions}

    def app_transaction(self, app_id: str) -> AppTransaction | None:
        """The transaction of one application, without reading the others."""
        txn = self._own.app_transactions.get(app_id)
        return txn if txn is not None or self._base is None else self._base.app_transaction(app_id)

    def domain_metadata(self) -> Mapping[str, DomainMetadata]:
        return self._own.domains_over({} if self._base is None else self._base.domain_metadata())

    # -- files

    def files(self, columns: Sequence[str] | None = None) -> pa.RecordBatchReader:
        return self.files_table(columns).to_reader()

    def files_table(self, columns: Sequence[str] | None = None) -> pa.Table:
        """The live files; `columns` selects some columns."""
        names = list(FILES_SCHEMA.names if columns is None else columns)
        added = self._own_files().select(names)
        if self._base is None:
            return added
        base_files = self._base.files_table(_with(names, _KEY_COLUMNS))
        return pa.concat_tables([added, self._without_hidden(base_files).select(names)])

    def tombstones(self, deleted_after_ms: int | None = None) -> pa.RecordBatchReader:
        own_tombstones = removes_to_batch(self._own.tombstones.values())
        recent = own_tombstones if deleted_after_ms is None else deleted_after(own_tombstones, deleted_after_ms)
        removed = pa.Table.from_batches([recent], TOMBSTONES_SCHEMA)
        if self._base is None:
            return removed.to_reader()
        older = self._without_hidden(self._base.tombstones(deleted_after_ms).read_all())
        return pa.concat_tables([older, removed]).to_reader()

    def totals(self) -> FileTotals:
        """Totals of the files: added to the base's totals if none of its files was removed, else computed."""
        own_totals = _count(self._own_files())
        if self._base is None:
            return own_totals
        if not self._own.tombstones and not self._adds_again():
            base_totals = self._base.totals()
            return FileTotals(
                base_totals.num_files + own_totals.num_files,
                base_totals.size_bytes + own_totals.size_bytes,
                base_totals.num_records + own_totals.num_records,
                base_totals.files_without_records + own_totals.files_without_records,
            )
        return _count(self.files_table(["path", "size", "stats", "deletion_vector"]))

    def plan(
        self, predicate: Predicate, columns: Sequence[str] | None = None, *, explain: bool = False
    ) -> PlannedFiles:
        """Returns the pinned and own files that may hold a row for which the predicate is true."""
        names = list(FILES_SCHEMA.names if columns is None else columns)
        own_files = self._own_files()
        added = files_that_may_match(own_files, self.metadata, predicate)
        own_matches = _with_counts(added, names)
        if self._base is None:
            return PlannedFiles(own_matches, own_matches.num_rows, own_files.num_rows - own_matches.num_rows)
        needed = _with(names, _KEY_COLUMNS)
        base_plan = self._base.plan(predicate, needed, explain=explain)
        pinned = self._without_hidden(base_plan.files)
        files = pa.concat_tables([own_matches, pinned.select(names)])
        # Hidden files count neither as kept nor as pruned: the transaction does not see them.
        total = self.totals().num_files
        return PlannedFiles(files, files.num_rows, max(total - files.num_rows, 0), base_plan.described)

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
        """Marks the rows that the transaction replaces: filtered by path first, then by the whole key."""
        paths = pa.array({to_sql_text(path) for path, _ in self._hidden}, pa.string())
        same_path = pc.is_in(files.column("path"), value_set=paths).combine_chunks()
        places = pc.indices_nonzero(same_path)
        rows = files.select(list(_KEY_COLUMNS)).take(places).to_pylist()
        matching = {place.as_py() for place, row in zip(places, rows, strict=True) if _key(row) in self._hidden}
        return pa.array((place in matching for place in range(files.num_rows)), pa.bool_())


def _key(row: Mapping[str, str | None]) -> FileKey:
    path, vector = row["path"] or "", row["deletion_vector"]
    return from_sql_text(path), "" if vector is None else deletion_vector_from_json(vector).unique_id


def _with(names: Sequence[str], needed: Sequence[str]) -> list[str]:
    return [*names, *(name for name in needed if name not in names)]


def _records(files: pa.Table) -> pa.Array:
    """The rows of each file without those deleted by its vector; null if the statistics do not have the number."""
    counts = []
    pairs = zip(files.column("stats").to_pylist(), files.column("deletion_vector").to_pylist(), strict=True)
    for text, vector in pairs:
        stats = parse_stats(None if text is None else from_sql_text(text))
        num_records = None if stats is None else stats.num_records
        deleted = 0 if vector is None else deletion_vector_from_json(vector).cardinality
        counts.append(None if num_records is None else num_records - deleted)
    return pa.array(counts, pa.int64())


def _with_counts(files: pa.Table, names: Sequence[str]) -> pa.Table:
    """Own files in the columns of a plan; file_id is null, because they are not committed."""
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
