"""PathSnapshot: a table at one version whose log is in files; the list of its data files is cached."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from deltalakedb.exceptions import MalformedLogError
from deltalakedb.files.reader import FileTxnLogReader
from deltalakedb.files.snapshot import FileSnapshot
from deltalakedb.log.predicates.atoms import Predicate
from deltalakedb.log.protocol.actions import AppTransaction, DomainMetadata, Metadata, Protocol
from deltalakedb.log.protocol.codec import deletion_vector_from_json
from deltalakedb.log.protocol.txnlog import FILES_SCHEMA
from deltalakedb.log.statistics.batch_bounds import compute_bounds_of_batch
from deltalakedb.runtime.lazy import cached_property
from deltalakedb.store.candidates import PlanStep
from deltalakedb.store.planning import PLAN_SCHEMA, PlannedFiles, files_that_may_match
from deltalakedb.store.snapshot import FileTotals

PAGE_ROWS = 20_000
"""How many files are checked against a predicate at a time."""

MAX_HISTORY = 1_000
"""How many commits are read at most to find the features that a table has used."""

_MAX_LOADS = 3


class PathSnapshot:
    """A version as DeltaTable needs it; `FileSnapshot` reads it."""

    def __init__(self, reader: FileTxnLogReader, loaded: FileSnapshot) -> None:
        self._reader = reader
        self.loaded = loaded

    def __repr__(self) -> str:
        return f"PathSnapshot({self._reader.location!r}, version={self.version})"

    @property
    def version(self) -> int:
        return self.loaded.version

    @property
    def timestamp_ms(self) -> int:
        return self.loaded.timestamp_ms

    @property
    def protocol(self) -> Protocol:
        return self.loaded.protocol

    @property
    def metadata(self) -> Metadata:
        return self.loaded.metadata

    def app_transactions(self) -> Mapping[str, AppTransaction]:
        return self.loaded.app_transactions()

    def app_transaction(self, app_id: str) -> AppTransaction | None:
        return self.loaded.app_transactions().get(app_id)

    def domain_metadata(self) -> Mapping[str, DomainMetadata]:
        return self.loaded.domain_metadata()

    def metadata_history(self) -> list[Metadata] | None:
        """Return the metadata of every version; None if commits were cleaned up, or are too many to read."""
        if self.version > MAX_HISTORY or self._reader.listing().first_contiguous(self.version) > 0:
            return None
        commits = self._reader.commits(0, self.version)
        return [action for commit in commits for action in commit.actions if isinstance(action, Metadata)]

    def files(self) -> pa.RecordBatchReader:
        return self._files.to_reader()

    def tombstones(self, deleted_after_ms: int | None = None) -> pa.RecordBatchReader:
        return self.loaded.tombstones(deleted_after_ms)

    def files_table(self, columns: Sequence[str] | None = None) -> pa.Table:
        """Return the live files, all in memory: the log has no index, so every query needs all of them."""
        return self._files if columns is None else self._files.select(list(columns))

    @cached_property
    def _files(self) -> pa.Table:
        for _ in range(_MAX_LOADS - 1):
            try:
                return self.loaded.files().read_all()
            except (MalformedLogError, FileNotFoundError):
                # The checkpoint is broken, or was cleaned up meanwhile: the reader avoids it if it can.
                self.loaded = self._reader.snapshot(self.version)
        return self.loaded.files().read_all()

    @cached_property
    def _records(self) -> pa.ChunkedArray:
        """The number of rows of each file, without deleted rows; null if its statistics do not have it."""
        parts = []
        for page in self._files.to_batches(max_chunksize=PAGE_ROWS):
            num_records = compute_bounds_of_batch([], page).num_records
            vectors = page.column("deletion_vector")
            if vectors.null_count < len(vectors):
                texts = vectors.to_pylist()
                deleted = [0 if text is None else deletion_vector_from_json(text).cardinality for text in texts]
                num_records = pc.subtract(num_records, pa.array(deleted, pa.int64()))
            parts.append(num_records.cast(pa.int64()))
        return pa.chunked_array(parts, pa.int64())

    def totals(self) -> FileTotals:
        records = self._records
        return FileTotals(
            num_files=self._files.num_rows,
            size_bytes=pc.sum(self._files.column("size")).as_py() or 0,
            num_records=pc.sum(records).as_py() or 0,
            files_without_records=records.null_count,
        )

    def plan(
        self,
        predicate: Predicate,
        columns: Sequence[str] | None = None,
        *,
        explain: bool = False,  # noqa: ARG002  every file is checked against every condition
    ) -> PlannedFiles:
        """Return the files that may hold a row for which the predicate is true, by partition values and statistics."""
        names = list(FILES_SCHEMA.names if columns is None else columns)
        schema = pa.schema([PLAN_SCHEMA.field(name) for name in names])
        files = self._with_columns(set(names))
        pages: list[pa.Table] = []
        for start in range(0, files.num_rows if predicate.disjuncts else 0, PAGE_ROWS):
            page = files.slice(start, PAGE_ROWS)
            pages.append(files_that_may_match(page, self.metadata, predicate).select(names))
        matching = pa.concat_tables(pages).cast(schema) if pages else schema.empty_table()
        return PlannedFiles(matching, matching.num_rows, files.num_rows - matching.num_rows, _steps(predicate))

    def _with_columns(self, names: set[str]) -> pa.Table:
        """Return the files, with the columns that only a plan has."""
        files = self._files
        if "num_records" in names:
            files = files.append_column(PLAN_SCHEMA.field("num_records"), self._records)
        if "file_id" in names:
            files = files.append_column(PLAN_SCHEMA.field("file_id"), pa.array(range(files.num_rows), pa.int64()))
        return files


def _steps(predicate: Predicate) -> list[PlanStep]:
    total = len(predicate.disjuncts)
    if not total:
        return [PlanStep("", predicate.text, "can never be true")]
    return [
        PlanStep(
            f"alternative {number} of {total}" if total > 1 else "",
            str(atom),
            "held against the partition values and statistics of each file",
        )
        for number, atoms in enumerate(predicate.disjuncts, start=1)
        for atom in atoms
    ]


@dataclass(frozen=True, slots=True)
class NewTableSnapshot:
    """The state that the first statement on a new table sees: its definition, and no files."""

    protocol: Protocol
    metadata: Metadata
    version: int = -1

    def app_transaction(self, app_id: str) -> AppTransaction | None:  # noqa: ARG002  a new table has none
        return None

    def metadata_history(self) -> tuple[Metadata, ...]:
        return (self.metadata,)

    def files_table(self, columns: Sequence[str] | None = None) -> pa.Table:
        return FILES_SCHEMA.empty_table().select(list(FILES_SCHEMA.names if columns is None else columns))

    def plan(self, predicate: Predicate) -> PlannedFiles:
        return PlannedFiles(FILES_SCHEMA.empty_table(), 0, 0, _steps(predicate))
