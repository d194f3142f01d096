"""Owns the second phase of a change: files lose rows or get rows with new values, by new files or deletion vectors.

Files whose rows all go are not read, unless a change data feed must tell of them. The others are rewritten, several at
a time; where the table has deletion vectors, only rows with new values are written.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np
import pyarrow as pa

from deltalakedb.log.actions import Action, AddFile, RemoveFile
from deltalakedb.log.codec import to_json
from deltalakedb.log.features import is_enabled, writer_features
from deltalakedb.log.rows import adds_to_batch
from deltalakedb.log.stats import load_stats
from deltalakedb.operations.ahead import read_ahead
from deltalakedb.operations.change_data import ChangeWriter
from deltalakedb.operations.find import Numbers, TouchedFile
from deltalakedb.operations.row_ids import RowIds
from deltalakedb.operations.target import Target
from deltalakedb.operations.write import write_rows
from deltalakedb.operations.written_files import WrittenFiles

if TYPE_CHECKING:
    from deltalakedb.operations.parquet_options import Properties

ChangeRows: TypeAlias = Callable[[pa.RecordBatch], pa.RecordBatch]
"""Rows of the table as they become; called by several threads."""

# Small files that are rewritten become one file.
_UNIT_BYTES: Final = 32 * 1024 * 1024
_AHEAD_BYTES: Final = 96 * 1024 * 1024
_WORKERS: Final = max(2, os.cpu_count() or 1)
_TIGHT: Final = re.compile(r'("tightBounds"\s*:\s*)true')


@dataclass(frozen=True, slots=True)
class Rewritten:
    """The actions of a change, and what it did."""

    adds: tuple[AddFile, ...]
    removes: tuple[RemoveFile, ...]
    new_files: int
    gone_files: int
    copied_rows: int | None
    """Rows that were written again as they were; None when nobody knows."""

    @property
    def actions(self) -> tuple[Action, ...]:
        return (*self.removes, *self.adds)


def uses_vectors(target: Target) -> bool:
    """Whether rows of this table are deleted by deletion vectors."""
    wanted = is_enabled(target.metadata.configuration, "delta.enableDeletionVectors")
    return wanted and "deletionVectors" in writer_features(target.protocol)


def remove_rows(
    target: Target,
    files: Sequence[TouchedFile],
    *,
    changes: ChangeWriter | None = None,
    writer_properties: Properties | None = None,
) -> Rewritten:
    """Take the rows that match out of their files."""
    whole, partial = [f for f in files if f.is_whole], [f for f in files if not f.is_whole]
    job = _Job(target, None, changes, writer_properties)
    if changes is not None and partial:
        job.read_changed([*whole, *partial] if uses_vectors(target) else whole)
    removes = [*map(_end, whole)]
    if uses_vectors(target):
        restated = mark_deleted(target, partial)
        removes += map(_end, partial)
        return Rewritten(tuple(restated), tuple(removes), 0, len(whole), 0)
    adds = job.rewrite(partial)
    removes += map(_end, partial)
    return Rewritten(tuple(adds), tuple(removes), len(adds), len(files), job.copied)


def replace_rows(
    target: Target,
    files: Sequence[TouchedFile],
    change: ChangeRows,
    columns: Collection[str],
    *,
    changes: ChangeWriter | None = None,
    writer_properties: Properties | None = None,
) -> Rewritten:
    """Give the rows that match new values, in some columns."""
    job = _Job(target, change, changes, writer_properties, columns)
    if not uses_vectors(target):
        adds = job.rewrite(files)
        return Rewritten(tuple(adds), tuple(map(_end, files)), len(adds), len(files), job.copied)
    adds = job.rewrite(files, only_changed=True)
    whole, partial = [f for f in files if f.is_whole], [f for f in files if not f.is_whole]
    restated = mark_deleted(target, partial)
    removes = tuple(map(_end, (*whole, *partial)))
    return Rewritten((*restated, *adds), removes, len(adds), len(whole), 0)


def _end(file: TouchedFile) -> RemoveFile:
    return RemoveFile.of(file.add, at_ms=time.time_ns() // 1_000_000)


class _Job:
    """One change on its way through the files."""

    def __init__(
        self,
        target: Target,
        change: ChangeRows | None,
        changes: ChangeWriter | None,
        writer_properties: Properties | None,
        columns: Collection[str] = (),
    ) -> None:
        self._target = target
        self._change = change
        self._changes = changes
        self._properties = writer_properties
        self._row_ids = RowIds.of(target)
        self._schema = target.schema if self._row_ids is None else self._row_ids.extend(target.schema)
        ids = () if self._row_ids is None else (self._row_ids.version_column,)
        self._columns = frozenset((*columns, *ids))
        self._copied: list[int] = []
        self._is_alone = False

    @property
    def copied(self) -> int:
        return sum(self._copied)

    def rewrite(self, files: Sequence[TouchedFile], *, only_changed: bool = False) -> list[AddFile]:
        """New files with what the files become, or only with their rows that have new values."""
        units = list(units_of(files, _UNIT_BYTES))
        self._is_alone = len(units) < _WORKERS
        if len(units) <= 1:
            return [add for unit in units for add in self._rewrite_unit(unit, only_changed)]
        with ThreadPoolExecutor(_WORKERS, thread_name_prefix="deltalakedb-rewrite") as pool:
            waiting = [pool.submit(self._rewrite_unit, unit, only_changed) for unit in units]
            try:
                return [add for one in waiting for add in one.result()]
            except BaseException:
                pool.shutdown(wait=True, cancel_futures=True)
                self._forget([one.result() for one in waiting if not (one.cancelled() or one.exception())])
                raise

    def _forget(self, finished: Sequence[Sequence[AddFile]]) -> None:
        """A statement that fails may be one of a transaction that goes on: its files are of no use to anybody."""
        gone = WrittenFiles()
        for adds in finished:
            gone.remember(self._target.storage, adds)
        gone.remove()

    def _rewrite_unit(self, unit: Sequence[TouchedFile], only_changed: bool) -> list[AddFile]:
        rows = self._become(unit, only_changed)
        if self._is_alone:  # with fewer units than processors another thread reads, a row group ahead of who writes
            rows = read_ahead(rows, lambda batch: batch.nbytes, _AHEAD_BYTES)
        return write_rows(
            self._target,
            pa.RecordBatchReader.from_batches(self._schema.to_arrow(), rows),
            schema=None if self._row_ids is None else self._schema,
            writer_properties=self._properties,
            rules=False,
        )

    def _become(self, unit: Sequence[TouchedFile], only_changed: bool) -> Iterator[pa.RecordBatch]:
        copied = 0
        for file, rows, numbers in self._read(unit, only_changed):
            mask = np.ones(rows.num_rows, np.bool_) if file.rows is None else file.rows.mask(numbers)
            matched = int(np.count_nonzero(mask))
            if not only_changed:
                copied += rows.num_rows - matched
            if matched:
                yield from self._split(rows, mask, matched, only_changed)
            elif not only_changed:
                yield rows
        self._copied.append(copied)

    def _split(self, rows: pa.RecordBatch, mask: Any, matched: int, only_changed: bool) -> Iterator[pa.RecordBatch]:
        if self._change is None:
            if self._changes is not None:
                self._changes.write(rows.filter(pa.array(mask)), "delete")
            yield rows.filter(pa.array(~mask))
            return
        before = rows if matched == rows.num_rows else rows.filter(pa.array(mask))
        after = self._change(before)
        if self._row_ids is not None:
            after = self._row_ids.changed(after)
        if self._changes is not None:
            self._changes.write(before, "update_preimage")
            self._changes.write(after, "update_postimage")
        yield after if only_changed or matched == rows.num_rows else _merged(rows, mask, after, self._columns)

    def read_changed(self, files: Sequence[TouchedFile]) -> None:
        """Tell the change data feed of rows that go without their files being rewritten."""
        assert self._changes is not None
        for unit in units_of(files, _UNIT_BYTES):
            for file, rows, numbers in self._read(unit, only_changed=True):
                gone = rows if file.rows is None else rows.filter(pa.array(file.rows.mask(numbers)))
                self._changes.write(gone, "delete")

    def _read(
        self, unit: Sequence[TouchedFile], only_changed: bool
    ) -> Iterator[tuple[TouchedFile, pa.RecordBatch, Numbers]]:
        """The rows of files, or of row groups that hold matching rows; with their numbers in the file."""
        from deltalakedb.data import read_files
        from deltalakedb.data.reader import FILE, ROW

        def is_touched(place: int, start: int, end: int) -> bool:
            rows = unit[place].rows
            return rows is None or rows.any_within(start, end)

        metadata = self._target.metadata
        batches = read_files(
            pa.Table.from_batches([adds_to_batch(file.add for file in unit)]),
            storage=self._target.storage,
            schema=self._schema,
            partition_columns=metadata.partition_columns,
            configuration=metadata.configuration,
            positions=True,
            is_wanted=is_touched if only_changed else None,
        )
        names = list(self._schema.names)
        for batch in batches:
            file, numbers = unit[batch.column(FILE)[0].as_py()], batch.column(ROW)
            rows = batch.select(names)
            if self._row_ids is not None:
                rows = self._row_ids.materialize(rows, numbers, file.add)
            yield file, rows, numbers.to_numpy()


def units_of(files: Sequence[TouchedFile], max_bytes: int) -> Iterator[list[TouchedFile]]:
    """Files that are read and written together: small ones with their neighbours."""
    unit: list[TouchedFile] = []
    size = 0
    for file in files:
        if unit and size + file.add.size > max_bytes:
            yield unit
            unit, size = [], 0
        unit.append(file)
        size += file.add.size
    if unit:
        yield unit


def _merged(rows: pa.RecordBatch, mask: Any, after: pa.RecordBatch, changed: Collection[str]) -> pa.RecordBatch:
    """The rows with those of the mask replaced, in the columns that change."""
    places = np.arange(rows.num_rows)
    places[mask] = rows.num_rows + np.arange(after.num_rows)
    taken = pa.array(places)
    columns = [
        pa.concat_arrays([old, new]).take(taken) if name in changed else old
        for name, old, new in zip(rows.schema.names, rows.columns, after.columns, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=rows.schema)


def mark_deleted(target: Target, files: Sequence[TouchedFile]) -> list[AddFile]:
    """The same files with deletion vectors that also have the rows which match; one new file holds all vectors."""
    from deltalakedb.data.deletion_vectors import DeletionVectors, write_vectors

    if not files:
        return []
    known = DeletionVectors(target.storage)
    deleted = []
    for file in files:
        assert file.rows is not None
        rows = file.rows.all().astype(np.uint64)
        old = file.add.deletion_vector
        deleted.append(rows if old is None else np.union1d(known.rows(old), rows))
    vectors, path = write_vectors(target.storage, deleted)
    target.written.remember_path(target.storage, path)
    return [
        replace(file.add, deletion_vector=vector, stats=_loose(target, file.add), data_change=True, extra="")
        for file, vector in zip(files, vectors, strict=True)
    ]


def _loose(target: Target, add: AddFile) -> str:
    """Statistics of a file some rows of which are deleted: its bounds still hold, but no row need reach them.

    The text is kept but for that, as its numbers may have more digits than a double.
    """
    text = (add.stats or "{}").strip()
    known = load_stats(text) or {}
    if not isinstance(known.get("numRecords"), int):
        return to_json({"numRecords": count_stored(target, add), "tightBounds": False})
    if known.get("tightBounds") is False:
        return text
    if "tightBounds" not in known:
        return '{"tightBounds":false,' + text[1:]
    loosened, count = _TIGHT.subn(r"\1false", text)
    return loosened if count == 1 else to_json({**known, "tightBounds": False})


def count_stored(target: Target, add: AddFile) -> int:
    """How many rows a data file holds, as its footer says."""
    import pyarrow.parquet as pq

    from deltalakedb.data.storage import open_logged

    with open_logged(target.storage, add.path, add.size) as opened:
        return int(pq.ParquetFile(opened).metadata.num_rows)
