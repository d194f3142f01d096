"""Compares a predicate with the bounds of one file: may one of its rows match, must every row match.

This is the definition of pruning. The store computes the same inside the database, and tests compare the two. For the
check of conflicts, FileMatcher compares predicates with the actions of files.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final, TypeVar

from deltalakedb.log.predicates.atoms import Atom, Column, IsNotNull, IsNull, Kind, Predicate, Within
from deltalakedb.log.predicates.ranges import NumberRange, TextRange
from deltalakedb.log.protocol.actions import AddFile, Metadata, RemoveFile
from deltalakedb.log.schema.types import StructType
from deltalakedb.log.statistics.bounds import EMPTY, POINT, Bound, compute_bounds
from deltalakedb.log.statistics.bounds_columns import BoundsColumn, bounds_columns

BoundsOf = Callable[[Column], Bound | None]
"""Returns a file's bound of a column; None if it is unknown."""


def may_match(predicate: Predicate, bounds_of: BoundsOf) -> bool:
    """False only if no row of the file satisfies the predicate."""
    return any(all(atom_may_match(atom, bounds_of) for atom in atoms) for atoms in predicate.disjuncts)


def must_match(predicate: Predicate, bounds_of: BoundsOf) -> bool:
    """True only if every row of the file satisfies the predicate."""
    return any(all(_must(atom, bounds_of) for atom in atoms) for atoms in predicate.disjuncts)


def atom_may_match(atom: Atom, bounds_of: BoundsOf) -> bool:
    if not isinstance(atom, Within | IsNull | IsNotNull):
        return True
    bound = bounds_of(atom.column)
    if bound is None:
        return True
    if isinstance(atom, IsNull):
        return bound.null_count != 0
    if bound.width_class == EMPTY:
        return False
    return isinstance(atom, IsNotNull) or _within(atom, bound)


def _within(atom: Within, bound: Bound) -> bool:
    if atom.nan:
        return True  # statistics omit NaN, so any file may hold one
    if atom.column.kind == "text":
        return bound.lower_text is None or _some_text(atom, bound.lower_text, bound.upper_text)
    return bound.lower is None or bound.upper is None or _some_number(atom, bound.lower, bound.upper)


def _some_number(atom: Within, lower: float, upper: float) -> bool:
    """Whether a range overlaps the bounds; ranges are sorted, so the first that does not end below the file decides."""
    position = bisect_left(atom.ranges, lower, key=lambda item: item.hi)
    return position < len(atom.ranges) and _number(atom.ranges[position]).keeps(lower, upper)


def _some_text(atom: Within, lower: str, upper: str | None) -> bool:
    ends = len(atom.ranges) if atom.ranges and atom.ranges[-1].hi is not None else len(atom.ranges) - 1
    position = bisect_left(atom.ranges, lower, hi=max(ends, 0), key=lambda item: item.hi)
    # The first range may be open and end at `lower` itself; then the next one decides.
    return any(_text(item).keeps(lower, upper) for item in atom.ranges[position : position + 2])


def _number(item: NumberRange | TextRange) -> NumberRange:
    assert isinstance(item, NumberRange)
    return item


def _text(item: NumberRange | TextRange) -> TextRange:
    assert isinstance(item, TextRange)
    return item


def _must(atom: Atom, bounds_of: BoundsOf) -> bool:
    if not isinstance(atom, Within | IsNull | IsNotNull):
        return False
    bound = bounds_of(atom.column)
    if bound is None:
        return False
    if isinstance(atom, IsNull):
        return bound.width_class == EMPTY
    if bound.null_count != 0 or bound.width_class == EMPTY:
        return False
    if isinstance(atom, IsNotNull):
        return True
    # A partition value is exact if both ends are equal; statistics may be loose or omit NaN.
    exact = atom.exact and atom.column.is_partition and bound.width_class == POINT
    return exact and _within(Within(atom.column, atom.ranges), bound)


_BATCH: Final = 2048
_File = TypeVar("_File", AddFile, RemoveFile)


class FileMatcher:
    """Compares predicates on one table with file actions; parses the schema only when needed."""

    def __init__(self, schema: StructType, metadata: Metadata) -> None:
        self._schema = schema
        self._metadata = metadata

    def first_match(self, files: Sequence[_File], predicates: Sequence[Predicate]) -> tuple[_File, Predicate] | None:
        """The first file that may hold a row of one of the predicates. A file without statistics may hold any row."""
        if not files or not predicates:
            return None
        columns = self._columns(predicates)
        partitions = [column for column in columns if column.is_partition]
        for start in range(0, len(files), _BATCH):
            batch = files[start : start + _BATCH]
            if partitions and len(partitions) < len(columns):
                # Drops most files of other partitions before their statistics are parsed, which costs most.
                batch = [file for file, _ in _matches(batch, predicates, partitions, with_stats=False)]
            match = next(_matches(batch, predicates, columns), None)
            if match is not None:
                return match
        return None

    def _columns(self, predicates: Sequence[Predicate]) -> list[BoundsColumn]:
        paths = {column.physical_path for predicate in predicates for column in predicate.columns}
        columns = bounds_columns(self._schema, self._metadata.partition_columns, self._metadata.configuration)
        return [column for column in columns if column.physical_path in paths]


def _matches(
    files: Sequence[_File], predicates: Sequence[Predicate], columns: Sequence[BoundsColumn], *, with_stats: bool = True
) -> Iterator[tuple[_File, Predicate]]:
    for file, bounds_of in zip(files, _bounds_of_files(columns, files, with_stats=with_stats), strict=True):
        predicate = next((candidate for candidate in predicates if may_match(candidate, bounds_of)), None)
        if predicate is not None:
            yield file, predicate


def _bounds_of_files(
    columns: Sequence[BoundsColumn], files: Sequence[AddFile] | Sequence[RemoveFile], *, with_stats: bool
) -> Iterator[BoundsOf]:
    stats_and_partitions = ((file.stats if with_stats else None, file.partition_values or {}) for file in files)
    bounds_by_column = compute_bounds(columns, stats_and_partitions)
    # Converts whole columns to Python at once: one value at a time costs ten times as much.
    parts = [zip(*(part.to_pylist() for part in column.columns), strict=True) for column in bounds_by_column.columns]
    paths = [(column.physical_path, column.kind) for column in columns]
    for _ in files:
        bounds = {path: Bound(*next(part)) for path, part in zip(paths, parts, strict=True)}
        yield partial(_bound_of, bounds)


def _bound_of(bounds: dict[tuple[tuple[str, ...], Kind], Bound], column: Column) -> Bound | None:
    return None if column.kind is None else bounds.get((column.physical_path, column.kind))
