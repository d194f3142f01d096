"""Owns the first phase of a change: which files it touches, and which rows of them; nothing is written.

Files that no row can match are left out by the plan, those whose partition values decide are never opened, and of the
others only the columns of the condition are read.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from deltalakedb.data.engine import own_column
from deltalakedb.data.reader import FILE, ROW
from deltalakedb.exceptions import PredicateError
from deltalakedb.log.actions import AddFile
from deltalakedb.log.partitions import parse_partition_value
from deltalakedb.log.predicate import parse_predicate
from deltalakedb.log.proposal import WHOLE_TABLE, ReadSet
from deltalakedb.log.rows import add_from_row
from deltalakedb.log.stats import parse_stats
from deltalakedb.log.types import StructType, to_arrow_type
from deltalakedb.operations.engines import open_engine
from deltalakedb.operations.expressions import Expression, quoted
from deltalakedb.operations.target import Target

if TYPE_CHECKING:
    from deltalakedb.data.engine import Engine

Numbers: TypeAlias = npt.NDArray[np.int64]

_BITS_PER_NUMBER = 32
NO_COLUMN: Final = own_column("none")
"""Beside the columns of a condition, so that there is always one."""
_PLACE: Final = own_column("place")


class RowNumbers:
    """Numbers of rows in one file, each once; many of them are kept as bits."""

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
        """The numbers, in order."""
        if self._numbers is not None:
            return self._numbers.astype(np.int64)
        assert self._bits is not None
        return np.flatnonzero(np.unpackbits(self._bits)).astype(np.int64)

    def any_within(self, start: int, end: int) -> bool:
        """Whether any number lies from `start` up to `end`."""
        return bool(self.mask(np.arange(start, end)).any())

    def mask(self, rows: Numbers) -> npt.NDArray[np.bool_]:
        """Which of these rows (in order) are among the numbers."""
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
    """A live file, and its rows that match: all of them when `rows` is None."""

    add: AddFile
    rows: RowNumbers | None
    matched: int | None
    """How many rows match; None when nobody knows without reading the file."""
    live: int | None
    """How many rows it has, those left out that its deletion vector has deleted."""

    @property
    def is_whole(self) -> bool:
        return self.rows is None


@dataclass(frozen=True, slots=True)
class Found:
    """What a condition matches."""

    files: tuple[TouchedFile, ...]
    read: ReadSet
    """What was looked at to know that."""

    @property
    def matched(self) -> int | None:
        """How many rows match, when all files know it."""
        counts = [file.matched for file in self.files]
        return None if any(count is None for count in counts) else sum(count or 0 for count in counts)


def find_rows(target: Target, condition: Expression | None) -> Found:
    """The rows for which a condition is true, and not null; all rows when there is none."""
    if condition is None:
        return Found(tuple(_whole(add) for add in _adds(target.snapshot.files_table())), WHOLE_TABLE)
    predicate = parse_predicate(condition.text, target.schema, target.metadata.partition_columns)
    read = ReadSet(predicates=(predicate,))
    with open_engine(target) as engine:
        check_condition(engine, condition, target.schema)
        planned = target.plan(predicate)
        if not planned.num_rows:
            return Found((), read)
        if condition.is_stable and condition.columns <= set(target.metadata.partition_columns):
            places = _by_partition(engine, target, planned, condition)
            return Found(tuple(_whole(add) for add in _adds(planned.take(pa.array(places, pa.int64())))), read)
        return Found(tuple(_by_reading(engine, target, planned, condition)), read)


def check_condition(engine: Engine, condition: Expression, schema: StructType) -> None:
    """Refuse what the engine cannot judge, or what is no condition, before any file is read."""
    fields = [item for item in schema.fields if item.name in condition.columns]
    rows = pa.schema([*StructType(tuple(fields)).to_arrow(), pa.field(NO_COLUMN, pa.bool_())])
    engine.register("rows", rows.empty_table())
    (kind,) = engine.types(f"select {condition.sql} from rows where {condition.sql}")
    engine.unregister("rows")
    if kind not in ("BOOLEAN", '"NULL"') and condition.text.upper() != "NULL":
        raise PredicateError(f"a predicate is true or false; {condition.text!r} gives {kind}")


def _adds(files: pa.Table) -> Iterator[AddFile]:
    return map(add_from_row, files.to_pylist())


def _whole(add: AddFile) -> TouchedFile:
    live = _live_rows(add)
    return TouchedFile(add, None, live, live)


def _live_rows(add: AddFile) -> int | None:
    stats = parse_stats(add.stats)
    if stats is None or stats.num_records is None:
        return None
    return stats.num_records - (add.deletion_vector.cardinality if add.deletion_vector else 0)


def _by_partition(engine: Engine, target: Target, planned: pa.Table, condition: Expression) -> list[int]:
    """The places of files whose partition values make the condition true, of all their rows."""
    texts = planned.column("partition_values")
    distinct = texts.unique().to_pylist()
    values = [json.loads(text or "{}") for text in distinct]
    columns: dict[str, Any] = {_PLACE: pa.array(range(len(values)), pa.int32())}
    for item in target.schema.fields:
        if item.name in condition.columns:
            typed = [parse_partition_value(one.get(item.physical_name), item.type) for one in values]
            columns[item.name] = pa.array(typed, to_arrow_type(item.type))
    engine.register("rows", pa.table(columns))
    matching = engine.execute(f"select {quoted(_PLACE)} from rows where {_in_engine(condition)}")
    engine.unregister("rows")
    chosen = {distinct[place] for (place,) in matching}
    return [place for place, text in enumerate(texts.to_pylist()) if text in chosen]


def _by_reading(engine: Engine, target: Target, planned: pa.Table, condition: Expression) -> Iterator[TouchedFile]:
    from deltalakedb.data import read_files

    rows = read_files(
        planned,
        storage=target.storage,
        schema=target.schema,
        partition_columns=target.metadata.partition_columns,
        configuration=target.metadata.configuration,
        columns=[name for name in target.schema.names if name in condition.columns],
        positions=True,
    )
    engine.register("rows", rows)
    matching = engine.reader(f"select {quoted(FILE)}, {quoted(ROW)} from rows where {_in_engine(condition)}")
    found = gather_rows(matching)
    for place, add in zip(found, _adds(planned.take(pa.array(found, pa.int64()))), strict=True):
        yield touched_file(add, found[place])


def _in_engine(condition: Expression) -> str:
    """The condition in a form that DuckDB judges by itself. It hands others down to Arrow, which orders NaN otherwise
    and needs another package to be told of instants."""
    return f"coalesce({condition.sql}, false)"


def touched_file(add: AddFile, rows: RowNumbers) -> TouchedFile:
    """A file with some rows that match; when these are all it has, the file as a whole."""
    live = _live_rows(add)
    return TouchedFile(add, None if rows.count == live else rows, rows.count, live)


def gather_rows(batches: Iterable[pa.RecordBatch]) -> dict[int, RowNumbers]:
    """Batches of FILE and ROW as the rows of each file; the rows of one file come in one go, or nearly so."""
    done: dict[int, RowNumbers] = {}
    open_place, parts = -1, list[Numbers]()
    for batch in batches:
        files, rows = batch.column(0).to_numpy(), batch.column(1).to_numpy()
        if not len(files):
            continue
        cuts = np.flatnonzero(np.diff(files)) + 1
        for part, place in zip(np.split(rows, cuts), files[np.concatenate(([0], cuts))].tolist(), strict=True):
            if place != open_place:
                _close(done, open_place, parts)
                open_place, parts = place, []
            parts.append(part)
    _close(done, open_place, parts)
    return dict(sorted(done.items()))


def _close(done: dict[int, RowNumbers], place: int, parts: list[Numbers]) -> None:
    if not parts:
        return
    if place in done:
        parts = [done[place].all(), *parts]
    numbers = np.concatenate(parts)
    done[place] = RowNumbers(numbers if np.all(numbers[:-1] < numbers[1:]) else np.unique(numbers))
