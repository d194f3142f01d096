"""The second phase of a merge: rewrites files without the rows that change, and writes the new rows."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from deltalakedb.data.arrow_types import arrow_to_schema
from deltalakedb.data.conform import Conformer
from deltalakedb.data.reader import FILE, POSITIONS, ROW, read_files
from deltalakedb.log.protocol.actions import Action, AddCDCFile, AddFile, FileKey, RemoveFile
from deltalakedb.log.protocol.rows import adds_to_batch
from deltalakedb.log.schema.types import StructType
from deltalakedb.operations.ahead import read_ahead
from deltalakedb.operations.change_data import ChangeType, ChangeWriter, feeds_changes
from deltalakedb.operations.evolution import Definition
from deltalakedb.operations.find import TouchedFile
from deltalakedb.operations.merge_request import ActionType, MergeRequest
from deltalakedb.operations.merge_rows import MergeRows
from deltalakedb.operations.merge_values import ClauseValues
from deltalakedb.operations.moving import RowIds
from deltalakedb.operations.parquet_options import to_parquet_options
from deltalakedb.operations.rewriting import mark_deleted, units_of, uses_vectors
from deltalakedb.operations.rules import Rules
from deltalakedb.operations.target import Target, WrittenFiles
from deltalakedb.operations.write import write_rows

_CHANGED_ROWS: Final = 256 * 1024
"""How many changed rows are collected before they are passed to the query engine."""
_UNIT_BYTES: Final = 64 * 1024 * 1024
"""Small files are rewritten together, up to this size."""
_AHEAD_BYTES: Final = 96 * 1024 * 1024
_WORKERS: Final = max(2, os.cpu_count() or 1)
_BEFORE: Final[dict[ActionType, ChangeType]] = {"update": "update_preimage", "delete": "delete"}


@dataclass
class Written:
    """The file actions of a merge."""

    adds: list[AddFile] = field(default_factory=list)
    restated: list[AddFile] = field(default_factory=list)
    """Files that stay, with a new deletion vector."""
    removes: list[RemoveFile] = field(default_factory=list)
    changes: list[AddCDCFile] = field(default_factory=list)
    copied_rows: int = 0

    @property
    def actions(self) -> list[Action]:
        return [*self.removes, *self.restated, *self.adds, *self.changes]

    @property
    def gone_files(self) -> int:
        return len(self.removes) - len(self.restated)


class MergeWriter:
    """Writes the files of one merge. `places` are the indexes of the touched files among all files that were read."""

    def __init__(
        self,
        target: Target,
        definition: Definition,
        request: MergeRequest,
        values: ClauseValues,
        rows: MergeRows,
        places: Mapping[FileKey, int],
    ) -> None:
        self._target = target
        self._definition = definition
        self._request = request
        self._values = values
        self._rows = rows
        self._places = places
        self._row_ids = RowIds.of(target)
        schema = definition.schema
        self._schema = schema if self._row_ids is None else self._row_ids.extend(schema)
        self._metadata = replace(definition.metadata, schema_string=self._schema.to_json())
        self._arrow = self._schema.to_arrow()
        self._rules = Rules.of(self._metadata, definition.protocol, table=target.name)
        self._keeps = not uses_vectors(target)
        """Whether unchanged rows are written again; with deletion vectors they stay in their files."""
        self._busy = threading.Lock()
        self._waiting: list[pa.RecordBatch] = []
        self._changes: ChangeWriter | None = None
        self._written = Written()

    def write(self, files: Sequence[TouchedFile], *, updates: bool, inserts: bool) -> Written:
        """Write the contents of these files after the merge, and new rows; if that fails, all new files are deleted."""
        try:
            with ExitStack() as stack:
                if feeds_changes(self._target):
                    self._changes = stack.enter_context(self._feed())
                self._write(files, updates, inserts)
                if self._changes is not None:
                    self._written.changes = self._changes.finish()
        except BaseException:
            unused = WrittenFiles()
            unused.remember(self._target.storage, self._written.adds)
            unused.remove()
            raise
        return self._written

    def _feed(self) -> ChangeWriter:
        schema, columns = self._definition.schema, self._metadata.partition_columns
        return ChangeWriter(self._target, schema, to_parquet_options(self._request.writer_properties, schema, columns))

    def _write(self, files: Sequence[TouchedFile], updates: bool, inserts: bool) -> None:
        wants_changed = self._changes is not None or (updates and self._needs_old_rows())
        whole, partial = [f for f in files if f.is_whole], [f for f in files if not f.is_whole]
        now_ms = time.time_ns() // 1_000_000
        self._written.removes = [RemoveFile.of(file.add, at_ms=now_ms) for file in (*whole, *partial)]
        files_to_read = [*whole, *partial] if wants_changed else partial if self._keeps else []
        *others, last = list(units_of(files_to_read, _UNIT_BYTES)) or [[]]
        with ThreadPoolExecutor(_WORKERS, thread_name_prefix="deltalakedb-merge") as pool:
            futures = [pool.submit(self._write_unit, unit, wants_changed) for unit in others]
            try:
                self._written.adds += self._write_rows(self._last(last, futures, wants_changed, updates, inserts))
            except BaseException:
                pool.shutdown(wait=True, cancel_futures=True)
                raise
        if not self._keeps:
            self._written.restated = mark_deleted(self._target, partial)

    def _needs_old_rows(self) -> bool:
        """Whether changed rows must be read: not if updates set all columns without using old values."""
        computed = {rule.column for rule in self._rules.generated}
        columns = [name for name in self._schema.names if name not in computed]
        return self._row_ids is not None or self._rows.needs_old_rows(self._values, columns)

    def _write_unit(self, unit: Sequence[TouchedFile], wants_changed: bool) -> None:
        adds = self._write_rows(self._kept(unit, wants_changed))
        with self._busy:
            self._written.adds += adds

    def _write_rows(self, batches: Iterator[pa.RecordBatch]) -> list[AddFile]:
        return write_rows(
            self._target,
            pa.RecordBatchReader.from_batches(self._arrow, batches),
            metadata=self._metadata,
            protocol=self._definition.protocol,
            writer_properties=self._request.writer_properties,
            rules=False,
        )

    def _last(
        self,
        unit: Sequence[TouchedFile],
        others: Sequence[Future[None]],
        wants_changed: bool,
        updates: bool,
        inserts: bool,
    ) -> Iterator[pa.RecordBatch]:
        """Yield the remaining unchanged rows and then, when the other files are done, all new rows: a small merge
        writes them into one file."""
        yield from self._kept(unit, wants_changed, alone=len(others) < _WORKERS)
        for other in others:
            other.result()
        self._hand_over()
        if self._changes is not None:
            for action, change in _BEFORE.items():
                self._tell_before(action, change, self._changes)
        for number, clause in enumerate(self._request.clauses):
            if updates and clause.action == "update":
                yield from self._made(number, "update_postimage")
            elif inserts and clause.action == "insert":
                yield from self._made(number, "insert")

    # -- existing rows

    def _kept(
        self, unit: Sequence[TouchedFile], wants_changed: bool, *, alone: bool = False
    ) -> Iterator[pa.RecordBatch]:
        """Yield the unchanged rows of files; changed rows go to the query engine.

        If few other threads are working (`alone`), another thread reads ahead of the writer.
        """
        copied = 0
        batches = self._read(unit)
        for file, rows, numbers in read_ahead(batches, lambda one: one[1].nbytes, _AHEAD_BYTES) if alone else batches:
            mask = np.ones(rows.num_rows, np.bool_) if file.rows is None else file.rows.mask(numbers.to_numpy())
            changed = int(np.count_nonzero(mask))
            if changed and wants_changed:
                self._take_changed(file, rows, numbers, mask)
            if self._keeps and changed < rows.num_rows:
                copied += rows.num_rows - changed
                yield rows.filter(pa.array(~mask)) if changed else rows
        with self._busy:
            self._written.copied_rows += copied

    def _read(self, unit: Sequence[TouchedFile]) -> Iterator[tuple[TouchedFile, pa.RecordBatch, pa.Array]]:
        """Yield the rows of files by batch, with their row numbers in the file.

        If unchanged rows are not written again, row groups without a changed row are skipped.
        """
        if not unit:
            return

        def is_touched(place: int, start: int, end: int) -> bool:
            rows = unit[place].rows
            return rows is None or rows.any_within(start, end)

        batches = read_files(
            pa.Table.from_batches([adds_to_batch(file.add for file in unit)]),
            storage=self._target.storage,
            schema=self._schema,
            partition_columns=self._metadata.partition_columns,
            configuration=self._metadata.configuration,
            positions=True,
            is_wanted=None if self._keeps else is_touched,
        )
        names = list(self._arrow.names)
        for batch in batches:
            file, numbers = unit[batch.column(FILE)[0].as_py()], batch.column(ROW)
            rows = batch.select(names)
            yield file, rows if self._row_ids is None else self._row_ids.materialize(rows, numbers, file.add), numbers

    def _take_changed(
        self, file: TouchedFile, rows: pa.RecordBatch, numbers: pa.Array, mask: npt.NDArray[np.bool_]
    ) -> None:
        row_mask = pa.array(mask)
        changed = rows.filter(row_mask)
        file_index = pa.repeat(pa.scalar(self._places[file.add.key], pa.int32()), changed.num_rows)
        arrays = [*changed.columns, file_index, numbers.filter(row_mask)]
        with self._busy:
            self._waiting.append(pa.RecordBatch.from_arrays(arrays, schema=pa.schema([*rows.schema, *POSITIONS])))
            if sum(batch.num_rows for batch in self._waiting) >= _CHANGED_ROWS:
                self._hand_over()

    def _hand_over(self) -> None:
        if self._waiting:
            self._rows.keep_changed(self._waiting)
            self._waiting = []

    def _tell_before(self, action: ActionType, change: ChangeType, changes: ChangeWriter) -> None:
        reader = self._rows.before(action, self._definition.schema)
        for batch in () if reader is None else self._fitted(reader, self._definition.schema):
            changes.write(batch, change)

    # -- new rows

    def _made(self, number: int, change: ChangeType) -> Iterator[pa.RecordBatch]:
        """Yield the rows that a clause makes, after applying the table's rules; also writes them to the change feed."""
        values = self._values[number]
        computed = [*self._rules.generated, *(self._rules.defaults if change == "insert" else ())]
        left_out = frozenset(rule.column for rule in computed if rule.column not in values)
        make = self._rows.inserted if change == "insert" else self._rows.updated
        nulls = frozenset() if self._row_ids is None else frozenset({self._row_ids.version_column})
        reader = self._rows.read(make(number, values, self._schema, left_out, nulls))
        for batch in self._fitted(self._rules.apply(reader), self._schema):
            if self._changes is not None:
                self._changes.write(batch.select(self._definition.schema.names), change)
            yield batch

    def _fitted(self, reader: pa.RecordBatchReader, schema: StructType) -> Iterator[pa.RecordBatch]:
        """Yield rows of the query engine in the exact types of the table."""
        arrow = schema.to_arrow()
        conform = Conformer(reader.schema, arrow_to_schema(arrow))
        for batch in reader:
            arrays = dict(zip((item.name for item in conform.fields), conform(batch), strict=True))
            # Files have no column of type void.
            columns = [arrays[item.name] if item.name in arrays else pa.nulls(batch.num_rows) for item in arrow]
            yield pa.RecordBatch.from_arrays(columns, schema=arrow)
