"""The second phase of a change: removes or changes rows of files, by writing new files or deletion vectors.

Files that lose all rows are not read, unless the change data feed needs their rows. Other files are rewritten, several
at a time; if the table uses deletion vectors, only rows with new values are written.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np
import pyarrow as pa

from deltalakedb.log.protocol.actions import Action, AddFile, RemoveFile
from deltalakedb.log.protocol.codec import to_json
from deltalakedb.log.protocol.features import is_enabled, writer_features
from deltalakedb.log.protocol.rows import adds_to_batch
from deltalakedb.log.schema.types import StructType
from deltalakedb.log.statistics.stats import load_stats
from deltalakedb.operations.ahead import read_ahead
from deltalakedb.operations.change_data import ChangeWriter
from deltalakedb.operations.find import Numbers, TouchedFile
from deltalakedb.operations.moving import RowIds
from deltalakedb.operations.target import Target, WrittenFiles
from deltalakedb.operations.write import write_rows

if TYPE_CHECKING:
    from deltalakedb.operations.parquet_options import Properties

ChangeRows: TypeAlias = Callable[[pa.RecordBatch], pa.RecordBatch]
"""Returns rows with their new values; called by several threads."""

# Small files are rewritten together, up to this size.
_UNIT_BYTES: Final = 32 * 1024 * 1024
_AHEAD_BYTES: Final = 96 * 1024 * 1024
_WORKERS: Final = max(2, os.cpu_count() or 1)
_TIGHT: Final = re.compile(r'("tightBounds"\s*:\s*)true')


@dataclass(frozen=True, slots=True)
class Rewritten:
    """The actions of a change, and its counts."""

    adds: tuple[AddFile, ...]
    removes: tuple[RemoveFile, ...]
    new_files: int
    gone_files: int
    copied_rows: int | None
    """Rows that were written again unchanged; None if unknown."""

    @property
    def actions(self) -> tuple[Action, ...]:
        return (*self.removes, *self.adds)


def uses_vectors(target: Target) -> bool:
    """Return whether rows of this table are deleted by deletion vectors."""
    enabled = is_enabled(target.metadata.configuration, "delta.enableDeletionVectors")
    return enabled and "deletionVectors" in writer_features(target.protocol)


def remove_rows(
    target: Target,
    files: Sequence[TouchedFile],
    *,
    changes: ChangeWriter | None = None,
    writer_properties: Properties | None = None,
) -> Rewritten:
    """Remove the matching rows from their files."""
    whole_files, partial_files = [f for f in files if f.is_whole], [f for f in files if not f.is_whole]
    job = _Job(target, None, changes, writer_properties)
    if changes is not None:
        job.read_changed([*whole_files, *partial_files] if uses_vectors(target) else whole_files)
    removes = [*map(_end, whole_files)]
    if uses_vectors(target):
        restated = mark_deleted(target, partial_files)
        removes += map(_end, partial_files)
        return Rewritten(tuple(restated), tuple(removes), 0, len(whole_files), 0)
    adds = job.rewrite(partial_files)
    removes += map(_end, partial_files)
    return Rewritten(tuple(adds), tuple(removes), len(adds), len(files), job.copied)


class CutFiles:
    """Files that lose their matching rows, while their other rows move into files that another statement writes."""

    def __init__(self, target: Target, files: Sequence[TouchedFile], changes: ChangeWriter | None) -> None:
        self._target = target
        self._files = files
        self._tells = changes is not None
        self._partial = [file for file in files if not file.is_whole]
        self._job = _Job(target, None, changes, None)

    def schema(self, schema: StructType) -> StructType | None:
        """Return the schema of files that the remaining rows move to; None if it is the table's own."""
        row_ids = RowIds.of(self._target)
        return None if row_ids is None or not self._partial else row_ids.extend(schema)

    def staying(self) -> Iterable[pa.RecordBatch]:
        """Return the rows that must move; none if all files are removed whole, or deletion vectors are used."""
        if uses_vectors(self._target):
            return ()
        return self._job.become(self._partial) if self._partial else ()

    @property
    def moved_rows(self) -> int:
        """How many rows moved; known once they have been read."""
        return self._job.copied

    def finish(self) -> tuple[Action, ...]:
        """Return the actions that remove the files; call it after reading the rows that move."""
        vectors = uses_vectors(self._target)
        if self._tells:
            self._job.read_changed(self._files if vectors else [file for file in self._files if file.is_whole])
        restated = mark_deleted(self._target, self._partial) if vectors else []
        return (*map(_end, self._files), *restated)


def replace_rows(
    target: Target,
    files: Sequence[TouchedFile],
    change: ChangeRows,
    columns: Collection[str],
    *,
    changes: ChangeWriter | None = None,
    writer_properties: Properties | None = None,
) -> Rewritten:
    """Give the matching rows new values in some columns."""
    job = _Job(target, change, changes, writer_properties, columns)
    if not uses_vectors(target):
        adds = job.rewrite(files)
        return Rewritten(tuple(adds), tuple(map(_end, files)), len(adds), len(files), job.copied)
    adds = job.rewrite(files, only_changed=True)
    whole_files, partial_files = [f for f in files if f.is_whole], [f for f in files if not f.is_whole]
    restated = mark_deleted(target, partial_files)
    removes = tuple(map(_end, (*whole_files, *partial_files)))
    return Rewritten((*restated, *adds), removes, len(adds), len(whole_files), 0)


def _end(file: TouchedFile) -> RemoveFile:
    return RemoveFile.of(file.add, at_ms=time.time_ns() // 1_000_000)


class _Job:
    """The rewriting of files for one change."""

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
        """Write new files with the contents of the files after the change, or only with their changed rows."""
        units = list(units_of(files, _UNIT_BYTES))
        self._is_alone = len(units) < _WORKERS
        if len(units) <= 1:
            return [add for unit in units for add in self._rewrite_unit(unit, only_changed)]
        with ThreadPoolExecutor(_WORKERS, thread_name_prefix="deltalakedb-rewrite") as pool:
            futures = [pool.submit(self._rewrite_unit, unit, only_changed) for unit in units]
            try:
                return [add for future in futures for add in future.result()]
            except BaseException:
                pool.shutdown(wait=True, cancel_futures=True)
                self._forget([future.result() for future in futures if not (future.cancelled() or future.exception())])
                raise

    def _forget(self, finished: Sequence[Sequence[AddFile]]) -> None:
        """Delete files of a failed statement: its transaction may go on, and nobody else can use them."""
        unused = WrittenFiles()
        for adds in finished:
            unused.remember(self._target.storage, adds)
        unused.remove()

    def _rewrite_unit(self, unit: Sequence[TouchedFile], only_changed: bool) -> list[AddFile]:
        rows = self._become(unit, only_changed)
        if self._is_alone:  # with fewer units than processors, a thread reads ahead of the writer
            rows = read_ahead(rows, lambda batch: batch.nbytes, _AHEAD_BYTES)
        return write_rows(
            self._target,
            pa.RecordBatchReader.from_batches(self._schema.to_arrow(), rows),
            schema=None if self._row_ids is None else self._schema,
            writer_properties=self._properties,
            rules=False,
        )

    def become(self, files: Sequence[TouchedFile]) -> Iterator[pa.RecordBatch]:
        """Yield the contents of the files after the change, one file after another."""
        for unit in units_of(files, _UNIT_BYTES):
            yield from self._become(unit, only_changed=False)

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
        """Write rows to the change data feed that are deleted without rewriting their files."""
        assert self._changes is not None
        for unit in units_of(files, _UNIT_BYTES):
            for file, rows, numbers in self._read(unit, only_changed=True):
                deleted_rows = rows if file.rows is None else rows.filter(pa.array(file.rows.mask(numbers)))
                self._changes.write(deleted_rows, "delete")

    def _read(
        self, unit: Sequence[TouchedFile], only_changed: bool
    ) -> Iterator[tuple[TouchedFile, pa.RecordBatch, Numbers]]:
        """Yield the rows of files, or of the row groups with matching rows, and their row numbers in the file."""
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
    """Group files to read and write together: small ones with their neighbours."""
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
    """Return the rows with those of the mask replaced, in the columns that change."""
    indices = np.arange(rows.num_rows)
    indices[mask] = rows.num_rows + np.arange(after.num_rows)
    index_array = pa.array(indices)
    columns = [
        pa.concat_arrays([old, new]).take(index_array) if name in changed else old
        for name, old, new in zip(rows.schema.names, rows.columns, after.columns, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=rows.schema)


def mark_deleted(target: Target, files: Sequence[TouchedFile]) -> list[AddFile]:
    """Return the files with deletion vectors that include the matching rows; one new file holds all vectors."""
    from deltalakedb.data.deletion_vectors import DeletionVectors, write_vectors

    if not files:
        return []
    stored_vectors = DeletionVectors(target.storage)
    deleted = []
    for file in files:
        assert file.rows is not None
        rows = file.rows.all().astype(np.uint64)
        old = file.add.deletion_vector
        deleted.append(rows if old is None else np.union1d(stored_vectors.rows(old), rows))
    vectors, path = write_vectors(target.storage, deleted)
    target.written.remember_path(target.storage, path)
    return [
        replace(file.add, deletion_vector=vector, stats=_loose(target, file.add), data_change=True, extra="")
        for file, vector in zip(files, vectors, strict=True)
    ]


def _loose(target: Target, add: AddFile) -> str:
    """Return the statistics of a file with deleted rows: its bounds still hold, but are not tight any more.

    The rest of the text is unchanged, as its numbers may have more digits than a double.
    """
    text = (add.stats or "{}").strip()
    stats = load_stats(text) or {}
    if not isinstance(stats.get("numRecords"), int):
        return to_json({"numRecords": count_stored(target, add), "tightBounds": False})
    if stats.get("tightBounds") is False:
        return text
    if "tightBounds" not in stats:
        return '{"tightBounds":false,' + text[1:]
    loosened, count = _TIGHT.subn(r"\1false", text)
    return loosened if count == 1 else to_json({**stats, "tightBounds": False})


def count_stored(target: Target, add: AddFile) -> int:
    """Return the number of rows in a data file, from its footer."""
    import pyarrow.parquet as pq

    from deltalakedb.storage.location import open_logged

    with open_logged(target.storage, add.path, add.size) as file:
        return int(pq.ParquetFile(file).metadata.num_rows)
