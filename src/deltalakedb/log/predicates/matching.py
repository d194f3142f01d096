"""Finds the first file action that may hold a row of a predicate, by partition values and statistics."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final, TypeVar

from deltalakedb.log.predicates.atoms import Column, Kind, Predicate
from deltalakedb.log.predicates.pruning import BoundsOf, may_match
from deltalakedb.log.protocol.actions import AddFile, Metadata, RemoveFile
from deltalakedb.log.schema.types import StructType
from deltalakedb.log.statistics.bounds import Bound, compute_bounds
from deltalakedb.log.statistics.bounds_columns import BoundsColumn, bounds_columns

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
