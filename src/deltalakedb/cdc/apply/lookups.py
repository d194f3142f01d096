"""Looks up the final rows of a batch in the files of its changes, by position."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from deltalakedb.cdc.apply.net import left_out_rows
from deltalakedb.cdc.layers import AFTER, BEFORE, UNCHANGED
from deltalakedb.cdc.tables import CapturedTable
from deltalakedb.log.schema.types import to_arrow_type

ALIVE: Final = "alive"
_COLUMNS: Final = (UNCHANGED, BEFORE, AFTER)
ReadChanges: TypeAlias = Callable[[Sequence[str]], Iterable[pa.RecordBatch]]
"""Reads some columns of all changes, always in the same order."""
Places: TypeAlias = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class RowLookup:
    """Makes rows from the result of `NetEffect`: `alive`, the old key as k0, k1, ..., the values as v0, v1, ..., and
    for columns that may keep their values, as u<place>, whether they do; with buckets these too."""

    table: CapturedTable
    read: ReadChanges
    left_out: tuple[int, ...] = ()
    partly_sent: bool = False
    """Whether some values come from old rows, or from other changes."""
    buckets: bool = False

    @property
    def schema(self) -> pa.Schema:
        types = [to_arrow_type(column.type) for column in self.table.columns]
        keys = [types[place] for name in self.table.key for place in (self._place(name),)]
        return pa.schema(
            [
                (ALIVE, pa.bool_()),
                *((f"k{number}", key) for number, key in enumerate(keys)),
                *((f"v{place}", value) for place, value in enumerate(types)),
                *((f"u{place}", pa.bool_()) for place in self.left_out),
                *((name, pa.int32()) for name in (("old_bucket", "new_bucket") if self.buckets else ())),
            ]
        )

    def _place(self, name: str) -> int:
        return next(place for place, column in enumerate(self.table.columns) if column.name == name)

    def rows(self, alive: pa.Table, gone: pa.Table | None = None) -> pa.RecordBatchReader:
        """The rows that exist after the batch, and the keys of those that do not."""
        return pa.RecordBatchReader.from_batches(self.schema, self._rows(alive, gone))

    def _rows(self, alive: pa.Table, gone: pa.Table | None) -> Iterator[pa.RecordBatch]:
        places = _to_places(alive.column("place"))
        looked_up = self._look_up(alive)
        schema, start = self.schema, 0
        for changes in self.read(_COLUMNS if self.partly_sent else (AFTER,)) if len(places) else ():
            first, last = np.searchsorted(places, [start, start + changes.num_rows])
            if first < last:
                part = alive.slice(first, last - first).combine_chunks()
                arrays = self._build_rows(changes, places[first:last] - start, part, looked_up)
                yield pa.RecordBatch.from_arrays([arrays[name] for name in schema.names], schema=schema)
            start += changes.num_rows
        for batch in () if gone is None else gone.to_batches():
            arrays = {name: batch.column(name) for name in batch.schema.names}
            arrays[ALIVE] = pa.repeat(pa.scalar(False), batch.num_rows)
            columns = [
                arrays[item.name] if item.name in arrays else pa.nulls(batch.num_rows, item.type) for item in schema
            ]
            yield pa.RecordBatch.from_arrays(columns, schema=schema)

    def _build_rows(
        self, changes: pa.RecordBatch, rows: Places, alive: pa.Table, looked_up: Mapping[int, _Values]
    ) -> dict[str, pa.Array]:
        arrays = {name: alive.column(name).combine_chunks() for name in alive.schema.names}
        arrays[ALIVE] = pa.repeat(pa.scalar(True), len(rows))
        indices = None if len(rows) == changes.num_rows else pa.array(rows)
        left_out = left_out_rows(changes.column(UNCHANGED)) if self.partly_sent else {}
        for place, column in enumerate(self.table.columns):
            values = _sent_values(changes, column.name, left_out)
            values = values if indices is None else values.take(indices)
            if place in looked_up:
                source = arrays[f"w{place}"]
                values = looked_up[place].fill(values, source, alive.column("place").combine_chunks())
                arrays[f"u{place}"] = source.is_null()
            arrays[f"v{place}"] = values
        return arrays

    # -- values from other changes

    def _look_up(self, alive: pa.Table) -> dict[int, _Values]:
        places_of = {}
        for place in self.left_out:
            source = alive.column(f"w{place}")
            elsewhere = source.filter(pc.not_equal(source, alive.column("place")))
            places_of[place] = np.unique(_to_places(elsewhere.drop_null()))
        parts: dict[int, list[pa.Array]] = {place: [] for place in places_of}
        start = 0
        for changes in self.read(_COLUMNS) if any(map(len, places_of.values())) else ():
            left_out = left_out_rows(changes.column(UNCHANGED))
            for place, places in places_of.items():
                first, last = np.searchsorted(places, [start, start + changes.num_rows])
                if first < last:
                    values = _sent_values(changes, self.table.columns[place].name, left_out)
                    parts[place].append(values.take(pa.array(places[first:last] - start)))
            start += changes.num_rows
        types = {place: to_arrow_type(self.table.columns[place].type) for place in places_of}
        return {
            place: _Values(places, pa.concat_arrays([pa.nulls(0, types[place]), *parts[place]]))
            for place, places in places_of.items()
        }


@dataclass(frozen=True, slots=True)
class _Values:
    """Values of one column, and the sorted positions of the changes that have them."""

    places: Places
    values: pa.Array

    def fill(self, own: pa.Array, source: pa.Array, place: pa.Array) -> pa.Array:
        """The values of rows: their own or another change's, as `source` says, or null if no change has it."""
        chosen = np.arange(len(own), dtype=np.int64)
        theirs = source.fill_null(-1).to_numpy()
        other = (theirs >= 0) & (theirs != place.to_numpy())
        chosen[other] = len(own) + np.searchsorted(self.places, theirs[other])
        indices = pa.array(chosen, mask=theirs < 0)
        return pa.concat_arrays([own, self.values]).take(indices)


def _sent_values(changes: pa.RecordBatch, name: str, left_out: Mapping[str, Places]) -> pa.Array:
    """A column's values after the changes; values that were not sent come from the old row (REPLICA IDENTITY FULL)."""
    after = pc.struct_field(changes.column(AFTER), name)
    rows = left_out.get(name)
    if rows is None or not len(rows):
        return after
    mask = np.zeros(changes.num_rows, np.bool_)
    mask[rows] = True
    return pc.if_else(pa.array(mask), pc.struct_field(changes.column(BEFORE), name), after)


def _to_places(values: pa.ChunkedArray) -> Places:
    places: Places = values.to_numpy()
    return places
