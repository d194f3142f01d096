"""The first phase of a change: finds the files it touches, and their matching rows; writes nothing.

The plan skips files in which no row can match. If partition values decide, no file is opened. Of other files, only
the columns of the condition are read.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from deltalakedb.data.engine import arrow_name, own_column
from deltalakedb.data.reader import FILE, ROW
from deltalakedb.exceptions import PredicateError
from deltalakedb.log.predicates.predicate import parse_predicate
from deltalakedb.log.protocol.actions import AddFile
from deltalakedb.log.protocol.proposal import WHOLE_TABLE, ReadSet
from deltalakedb.log.protocol.rows import add_from_row
from deltalakedb.log.schema.partitions import parse_partition_value
from deltalakedb.log.schema.types import StructType, to_arrow_type
from deltalakedb.log.statistics.stats import record_count
from deltalakedb.operations.expressions import Expression, quoted
from deltalakedb.operations.target import Target, open_engine

if TYPE_CHECKING:
    from deltalakedb.data.engine import Engine

Numbers: TypeAlias = npt.NDArray[np.int64]

_BITS_PER_NUMBER = 32
NO_COLUMN: Final = own_column("none")
"""Added to the columns of a condition, so that there is at least one."""
_PLACE: Final = own_column("place")


class RowNumbers:
    """Distinct row numbers in one file; stored as bits if they are many."""

    def __init__(self, numbers: Numbers) -> None:
        self.count = len(numbers)
        last = int(numbers[-1]) + 1 if self.count else 0
        self._bits: npt.NDArray[np.uint8] | None = None
        self._numbers: npt.NDArray[np.uint32] | None = None
        if self.count * _BITS_PER_NUMBER > last or last > np.iinfo(np.uint32).max:
            mask = np.zeros(last, np.bool_)
            mask[numbers] = True
            self._bits = np.packbits(mask)
        else:
            self._numbers = numbers.astype(np.uint32)

    def all(self) -> Numbers:
        """Return the numbers, in order."""
        if self._numbers is not None:
            return self._numbers.astype(np.int64)
        assert self._bits is not None
        return np.flatnonzero(np.unpackbits(self._bits)).astype(np.int64)

    def any_within(self, start: int, end: int) -> bool:
        """Return whether any number is in `start` up to `end`, which is excluded."""
        return bool(self.mask(np.arange(start, end)).any())

    def mask(self, rows: Numbers) -> npt.NDArray[np.bool_]:
        """Return which of these rows (in order) are among the numbers."""
        if not len(rows):
            return np.zeros(0, np.bool_)
        start, end = int(rows[0]), int(rows[-1]) + 1
        within = np.zeros(end - start, np.bool_)
        if self._numbers is not None:
            first, last = np.searchsorted(self._numbers, [start, end])
            within[self._numbers[first:last].astype(np.int64) - start] = True
        elif self._bits is not None:
            bits = np.unpackbits(self._bits[start // 8 : (end + 7) // 8])[start % 8 :][: end - start]
            within[: len(bits)] = bits
        return within if len(rows) == len(within) else within[rows - start]


@dataclass(frozen=True, slots=True)
class TouchedFile:
    """A live file and its matching rows: all of them if `rows` is None."""

    add: AddFile
    rows: RowNumbers | None
    matched: int | None
    """How many rows match; None if only reading the file would tell."""
    live: int | None
    """How many rows the file has, without those deleted by its deletion vector."""

    @property
    def is_whole(self) -> bool:
        return self.rows is None


@dataclass(frozen=True, slots=True)
class Found:
    """The files and rows that a condition matches."""

    files: tuple[TouchedFile, ...]
    read: ReadSet
    """What was read to find them."""

    @property
    def matched(self) -> int | None:
        """How many rows match; None if it is unknown for any file."""
        counts = [file.matched for file in self.files]
        return None if any(count is None for count in counts) else sum(count or 0 for count in counts)


def find_rows(target: Target, condition: Expression | None) -> Found:
    """Return the rows for which a condition is true (not null), or all rows without one."""
    if condition is None:
        return Found(tuple(_whole(add) for add in _adds(target.snapshot.files_table())), WHOLE_TABLE)
    predicate = parse_predicate(condition.source, target.schema, target.metadata.partition_columns)
    read = ReadSet(predicates=(predicate,))
    with open_engine(target) as engine:
        check_condition(engine, condition, target.schema)
        planned = target.plan(predicate)
        if not planned.num_rows:
            return Found((), read)
        if condition.is_stable and condition.columns <= set(target.metadata.partition_columns):
            indexes = _by_partition(engine, target, planned, condition)
            return Found(tuple(_whole(add) for add in _adds(planned.take(pa.array(indexes, pa.int64())))), read)
        return Found(tuple(_by_reading(engine, target, planned, condition)), read)


def check_condition(engine: Engine, condition: Expression, schema: StructType) -> None:
    """Raise for a condition that the engine cannot evaluate or that is not boolean, before any file is read."""
    fields = [item for item in schema.fields if item.name in condition.columns]
    rows = pa.schema([*StructType(tuple(fields)).to_arrow(), pa.field(NO_COLUMN, pa.bool_())])
    engine.register("rows", rows.empty_table())
    (kind,) = engine.types(f"select {condition.sql} from rows where {condition.sql}")
    engine.unregister("rows")
    if kind not in ("BOOLEAN", '"NULL"') and condition.source.strip().upper() != "NULL":
        raise PredicateError(
            f"Error during planning: Cannot create filter with non-boolean predicate '{condition.text}' returning "
            f"{arrow_name(kind)}"
        )


def _adds(files: pa.Table) -> Iterator[AddFile]:
    return map(add_from_row, files.to_pylist())


def _whole(add: AddFile) -> TouchedFile:
    live = _live_rows(add)
    return TouchedFile(add, None, live, live)


def _live_rows(add: AddFile) -> int | None:
    records = record_count(add.stats)
    return None if records is None else records - (add.deletion_vector.cardinality if add.deletion_vector else 0)


def _by_partition(engine: Engine, target: Target, planned: pa.Table, condition: Expression) -> list[int]:
    """Return the indexes of files whose partition values make the condition true, for all their rows."""
    texts = planned.column("partition_values")
    distinct = texts.unique().to_pylist()
    values = [json.loads(text or "{}") for text in distinct]
    columns: dict[str, Any] = {_PLACE: pa.array(range(len(values)), pa.int32())}
    for item in target.schema.fields:
        if item.name in condition.columns:
            typed = [parse_partition_value(partition.get(item.physical_name), item.type) for partition in values]
            columns[item.name] = pa.array(typed, to_arrow_type(item.type))
    engine.register("rows", pa.table(columns))
    matching = engine.execute(f"select {quoted(_PLACE)} from rows where {_in_engine(condition)}")
    engine.unregister("rows")
    chosen_texts = {distinct[index] for (index,) in matching}
    return [index for index, text in enumerate(texts.to_pylist()) if text in chosen_texts]


def _by_reading(engine: Engine, target: Target, planned: pa.Table, condition: Expression) -> tuple[TouchedFile, ...]:
    columns = [name for name in target.schema.names if name in condition.columns]
    rows = target.read(planned, columns, positions=True)
    engine.register("rows", rows)
    matching = engine.reader(f"select {quoted(FILE)}, {quoted(ROW)} from rows where {_in_engine(condition)}")
    return touched_files(planned, gather_rows(matching))


def _in_engine(condition: Expression) -> str:
    """Return the condition in a form that DuckDB evaluates itself. Other forms are pushed down to Arrow, which orders
    NaN differently and needs another package for timestamps with zones."""
    return f"coalesce({condition.sql}, false)"


def touched_files(planned: pa.Table, rows_by_file: Mapping[int, RowNumbers]) -> tuple[TouchedFile, ...]:
    """Return files with some matching rows, by their position in `planned`; if all rows match, the whole file."""
    adds = _adds(planned.take(pa.array(rows_by_file, pa.int64())))
    return tuple(map(_touched_file, adds, rows_by_file.values()))


def _touched_file(add: AddFile, rows: RowNumbers) -> TouchedFile:
    live = _live_rows(add)
    return TouchedFile(add, None if rows.count == live else rows, rows.count, live)


def gather_rows(batches: Iterable[pa.RecordBatch]) -> dict[int, RowNumbers]:
    """Collect batches of FILE and ROW into the rows of each file; the rows of one file come mostly in sequence."""
    rows_by_file: dict[int, RowNumbers] = {}
    open_index, parts = -1, list[Numbers]()
    for batch in batches:
        files, rows = batch.column(0).to_numpy(), batch.column(1).to_numpy()
        if not len(files):
            continue
        cuts = np.flatnonzero(np.diff(files)) + 1
        for part, index in zip(np.split(rows, cuts), files[np.concatenate(([0], cuts))].tolist(), strict=True):
            if index != open_index:
                _close(rows_by_file, open_index, parts)
                open_index, parts = index, []
            parts.append(part)
    _close(rows_by_file, open_index, parts)
    return dict(sorted(rows_by_file.items()))


def _close(done: dict[int, RowNumbers], place: int, parts: list[Numbers]) -> None:
    if not parts:
        return
    if place in done:
        parts = [done[place].all(), *parts]
    numbers = np.concatenate(parts)
    done[place] = RowNumbers(numbers if np.all(numbers[:-1] < numbers[1:]) else np.unique(numbers))
