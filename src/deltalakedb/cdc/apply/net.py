"""The net effect of a batch on a table with a key: the final state of each row, looked up in the files of its changes.

A row is followed through changes of its key, so that its final state is written over its first one: two rows that
swapped their keys are two updates, and a value that Postgres did not send again is the one that the row had before.
Only keys and positions are read for that; the rows themselves stay in the files until it is known which are needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from deltalakedb.cdc.apply.buckets import bucket_sql
from deltalakedb.cdc.captured_table import CapturedTable
from deltalakedb.cdc.layers import AFTER, BEFORE, DELETE, INSERT, LSN, OP, ORDINAL, TRUNCATE, UNCHANGED
from deltalakedb.log.schema.types import to_arrow_type

if TYPE_CHECKING:
    from deltalakedb.data.engine import Engine

COLUMNS: Final = (OP, LSN, ORDINAL, UNCHANGED, BEFORE, AFTER)
"""The columns of the table of changes that are needed for the net effect."""
_SIDES: Final = {"old_bucket": "o.origin", "new_bucket": "o.key"}
"""The two bucket columns, and the keys that they are computed from."""
_MAX_JUMPS: Final = 64
_MAX_BIGINT: Final = 2**62
_BITS: Final = 62


@cache
def query(name: str) -> str:
    """The text of a query in `cdc/sql`."""
    return files("deltalakedb.cdc").joinpath(f"sql/{name}.sql").read_text(encoding="utf-8")


def left_out_rows(names: pa.Array) -> dict[str, npt.NDArray[np.int64]]:
    """For each column named in `_unchanged`, the rows that name it."""
    if names.null_count == len(names):
        return {}
    rows, encoded = pc.list_parent_indices(names).to_numpy(), pc.list_flatten(names).dictionary_encode()
    codes = encoded.indices.to_numpy()
    return {name: rows[codes == code] for code, name in enumerate(encoded.dictionary.to_pylist())}


@dataclass
class _Summary:
    """Facts about a batch, collected while it is read."""

    rows: int = 0
    first_lsn: int = 2**63 - 1
    last_lsn: int = 0
    last_ordinal: int = 0
    truncates: bool = False
    may_move: bool = False
    partly: bool = False
    """Whether some change did not send all columns."""
    left_out: set[int] = field(default_factory=set)
    """The positions of columns that some change neither sent nor had in its old row."""


class NetEffect:
    """The changes of one batch inside the query engine: `events` in their order, and `outcomes` of the rows."""

    def __init__(self, engine: Engine, table: CapturedTable, changes: Iterable[pa.RecordBatch]) -> None:
        self._engine = engine
        self._table = table
        self._summary = _Summary()
        self._load(changes)
        self.truncated = self._summary.truncates
        """Whether all rows from before the batch are gone."""
        self.left_out = tuple(sorted(self._summary.left_out))
        """The positions of columns whose value a row may have to keep."""
        self.partly_sent = self._summary.partly
        """Whether values must be looked up in old rows."""
        self._define_events()
        self._find_outcomes()

    def alive(self, buckets: int = 0) -> pa.Table:
        """The rows that exist after the batch, in the order of the changes in the files: `place` of the change that has
        the row, its key before the batch as k0, k1, ... (null: it is new), and for each column of `left_out` as
        w<place> the place of the change that has its value (null: it keeps its value). With `buckets` also
        `old_bucket` and `new_bucket`."""
        return self._select_alive(*self._origins(), *self._buckets(buckets))

    def gone(self, buckets: int = 0) -> pa.Table:
        """The keys of rows that existed before the batch and do not exist after it."""
        columns = ", ".join([*self._origins(), *self._buckets(buckets)])
        return self._engine.table(f"select {columns} from outcomes o where not o.alive and not o.born")

    def final(self, buckets: int = 0) -> pa.Table:
        """The same as `alive`, but each row by its key after the batch."""
        return self._select_alive(
            *self._keys("o.key"), *self._buckets(buckets, {"old_bucket": "o.key", "new_bucket": "o.key"})
        )

    def _select_alive(self, *columns: str) -> pa.Table:
        columns, rows = ("o.place", *columns), "from outcomes o"
        if self.left_out:
            columns += tuple(f"w.w{place}" for place in self.left_out)
            rows += f" join ({self._last_values()}) w on w.row = o.first"
        return self._engine.table(f"select {', '.join(columns)} {rows} where o.alive order by o.place")

    def vacated(self, buckets: int = 0) -> pa.Table:
        """The keys that a row had during the batch, and none has after it."""
        columns = ", ".join(
            [*self._keys("t.key"), *self._buckets(buckets, {"old_bucket": "t.key", "new_bucket": "t.key"})]
        )
        return self._engine.table(
            f"select {columns} from (select key from events where not truncates union select was as key from events "
            "where not truncates) t anti join (select key from outcomes where alive) o using (key)"
        )

    def moves(self) -> pa.Table:
        """The keys that rows left for another one, or came to, and the LSN of the last such change as `moved_at`."""
        columns = ", ".join([*self._keys("m.key"), "max(m.lsn) as moved_at"])
        return self._engine.table(
            f"select {columns} from (select was as key, lsn from events where is_move union all "
            "select key, lsn from events where is_move) m group by m.key"
        )

    # -- the changes in their order

    def _load(self, changes: Iterable[pa.RecordBatch]) -> None:
        narrow = self._narrowed(changes)
        keys = range(len(self._table.key))
        key, was = ([f"{side}{number}" for number in keys] for side in ("k", "w"))
        columns = ["lsn", "ordinal", "place", "inserts", "deletes", "truncates", *self._masks()]
        columns += [f"{_combine(key)} as key", f"{_combine(was)} as was"]
        self._engine.register("scan", narrow)
        self._engine.execute(f"create temp table loaded as select {', '.join(columns)} from scan")
        self._engine.unregister("scan")

    def _masks(self) -> list[str]:
        """Columns of bits that say which columns a change did not send, _BITS per number."""
        return [f"left_out{number}" for number in range(len(self._table.columns) // _BITS + 1)]

    def _narrowed(self, changes: Iterable[pa.RecordBatch]) -> pa.RecordBatchReader:
        types = {column.name: to_arrow_type(column.type) for column in self._table.columns}
        keys = [types[name] for name in self._table.key]
        schema = pa.schema(
            [
                *((name, pa.int64()) for name in ("lsn", "ordinal", "place", *self._masks())),
                *((name, pa.bool_()) for name in ("inserts", "deletes", "truncates")),
                *((f"{side}{number}", key) for side in ("k", "w") for number, key in enumerate(keys)),
            ]
        )
        batches = (pa.RecordBatch.from_arrays(self._narrow(batch), schema=schema) for batch in changes)
        return pa.RecordBatchReader.from_batches(schema, batches)

    def _narrow(self, batch: pa.RecordBatch) -> list[pa.Array]:
        summary, ops = self._summary, batch.column(OP)
        inserts, deletes, truncates = (pc.equal(ops, op) for op in (INSERT, DELETE, TRUNCATE))
        places = np.arange(summary.rows, summary.rows + batch.num_rows, dtype=np.int64)
        lsn, ordinal = batch.column(LSN), batch.column(ORDINAL)
        if batch.num_rows:
            summary.first_lsn = min(summary.first_lsn, pc.min(lsn).as_py())
            summary.last_lsn = max(summary.last_lsn, pc.max(lsn).as_py())
            summary.last_ordinal = max(summary.last_ordinal, pc.max(ordinal).as_py())
        summary.rows += batch.num_rows
        summary.truncates = summary.truncates or bool(pc.any(truncates).as_py())
        before, after = batch.column(BEFORE), batch.column(AFTER)
        has_before = before.null_count < len(before)
        summary.may_move = summary.may_move or has_before
        # If one side of a change has no key, the key did not change, and the other side has it.
        new = [pc.struct_field(after, name) for name in self._table.key]
        if has_before:
            old = [pc.struct_field(before, name) for name in self._table.key]
            key = [pc.coalesce(new_part, old_part) for new_part, old_part in zip(new, old, strict=True)]
            was = [pc.coalesce(old_part, new_part) for new_part, old_part in zip(new, old, strict=True)]
        else:
            key = was = new
        masks = self._left_out(batch.column(UNCHANGED), before if has_before else None)
        return [lsn, ordinal, pa.array(places), *masks, inserts, deletes, truncates, *key, *was]

    def _left_out(self, names: pa.Array, before: pa.Array | None) -> list[pa.Array]:
        """The masks of a batch. Under REPLICA IDENTITY FULL the old row has what an update did not send."""
        masks = [np.zeros(len(names), np.int64) for _ in self._masks()]
        if names.null_count < len(names):
            places = {column.name: place for place, column in enumerate(self._table.columns)}
            for name, rows in left_out_rows(names).items():
                self._summary.partly = True
                if name not in places:
                    continue
                place = places[name]
                if before is not None:
                    is_shown = pc.is_valid(pc.struct_field(before, name)).to_numpy(zero_copy_only=False)
                    rows = rows[~is_shown[rows]]
                masks[place // _BITS][rows] |= 1 << (place % _BITS)
                if len(rows):
                    self._summary.left_out.add(place)
        return [pa.array(mask) for mask in masks]

    def _define_events(self) -> None:
        """Create `events`: the changes after the last truncate, numbered by `pos`."""
        summary = self._summary
        low, step = min(summary.first_lsn, summary.last_lsn), summary.last_ordinal + 1
        fits = (summary.last_lsn - low + 1) * step < _MAX_BIGINT
        pos = f"(lsn - {low})::{'bigint' if fits else 'hugeint'} * {step} + ordinal"
        after = f" where {pos} > (select max({pos}) from loaded where truncates)" if summary.truncates else ""
        is_move = "not inserts and not deletes and was is distinct from key" if summary.may_move else "false"
        self._engine.execute(
            f"create temp view events as select {pos} as pos, {is_move} as is_move, * from loaded{after}"
        )

    # -- the rows

    def _find_outcomes(self) -> None:
        run = self._engine.execute
        moves = self._summary.may_move and run(query("net_moved_keys"))[0][0] > 0
        run(_without_moved("net_outcomes", moves))
        if moves:
            run(query("net_steps"))
            run(query("net_stays"))
            run(query("net_roots"))
            for _ in range(_MAX_JUMPS):
                if run(query("net_jump"))[0][0] == 0:
                    break
            run(query("net_moved_outcomes"))
        if self.left_out:
            run(_without_moved("net_members", moves))
            if moves:
                run(query("net_moved_members"))

    def _last_values(self) -> str:
        """For each row, and each column that was left out, the last change that has its value."""
        columns = ", ".join(
            f"max_by(e.place, e.pos) filter (((left_out{place // _BITS} >> {place % _BITS}) & 1) = 0) as w{place}"
            for place in self.left_out
        )
        return (
            f"select m.row, {columns} from members m join events e on e.pos = m.pos where not e.deletes group by m.row"
        )

    def _origins(self) -> Iterator[str]:
        for number in range(len(self._table.key)):
            yield f"case when not o.born then o.origin{self._part(number)} end as k{number}"

    def _part(self, number: int) -> str:
        return "" if len(self._table.key) == 1 else f".k{number}"

    def _keys(self, key: str) -> Iterator[str]:
        for number in range(len(self._table.key)):
            yield f"{key}{self._part(number)} as k{number}"

    def _buckets(self, count: int, keys: Mapping[str, str] = _SIDES) -> Iterator[str]:
        types = {column.name: column.type for column in self._table.columns}
        for which, key in keys.items() if count else ():
            parts = [(f"{key}{self._part(place)}", types[name]) for place, name in enumerate(self._table.key)]
            bucket = bucket_sql(parts, count)
            yield f"{f'case when not o.born then {bucket} end' if key == 'o.origin' else bucket} as {which}"


def _without_moved(name: str, moves: bool) -> str:
    return query(name).replace("{but moved}", "anti join moved_keys using (key)" if moves else "")


def _combine(columns: list[str]) -> str:
    """Columns combined into one value."""
    if len(columns) == 1:
        return columns[0]
    return f"struct_pack({', '.join(f'k{place} := {name}' for place, name in enumerate(columns))})"


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
