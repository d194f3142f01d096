"""The net effect of a batch on a table with a key: what has become of each row, whatever happened to it in between.

A row is followed through changes of its key, so that what it became is written over what it was: two rows that swapped
their keys are two updates, and a value that Postgres did not send again is the one the row has had all along.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final

from deltalakedb.cdc.buckets import bucket_sql
from deltalakedb.cdc.layers import AFTER, BEFORE, LSN, OP, ORDINAL, UNCHANGED
from deltalakedb.cdc.tables import CapturedTable
from deltalakedb.operations.expressions import quoted

if TYPE_CHECKING:
    import pyarrow as pa

    from deltalakedb.data.engine import Engine

ALIVE: Final = "alive"
_MAX_JUMPS: Final = 64
_MAX_BIGINT: Final = 2**62


@cache
def query(name: str) -> str:
    """The text of a query in `cdc/sql`."""
    return files("deltalakedb.cdc").joinpath(f"sql/{name}.sql").read_text(encoding="utf-8")


def literal(text: str) -> str:
    """A text as SQL writes it."""
    return "'" + text.replace("'", "''") + "'"


def part(struct: str, name: str) -> str:
    """A field of a struct, as SQL writes it."""
    return f"struct_extract({quoted(struct)}, {literal(name)})"


def is_left_out(name: str) -> str:
    """Whether a change does not have a column's value, as it left it alone."""
    return f"coalesce(list_contains({UNCHANGED}, {literal(name)}), false)"


def sent_value(name: str) -> str:
    """A column's value after a change; where it was left out, the old row shows it, under REPLICA IDENTITY FULL."""
    return f"case when {is_left_out(name)} then {part(BEFORE, name)} else {part(AFTER, name)} end"


class NetEffect:
    """The changes of one batch inside the query engine: `events` in their order, and `outcomes` of the rows."""

    def __init__(self, engine: Engine, table: CapturedTable, changes: pa.RecordBatchReader) -> None:
        self._engine = engine
        self._table = table
        self._load(changes)
        found = engine.table(query("net_summary")).to_pylist()[0]
        self.truncated = bool(found["truncates"])
        """Whether all rows that were there before the batch are gone."""
        self._moves = bool(found["moves"])
        self._define_events(found)
        self._partly = self._partly_sent() if found["partly"] else ()
        self._find_outcomes()

    def rows(self, buckets: int = 0) -> pa.RecordBatchReader:
        """What the rows became: `alive`, their old keys as k0, k1, ... (null: born in this batch), their values as v0,
        v1, ..., and for each column of `kept` whether it keeps the value it had. With `buckets` also `old_bucket` and
        `new_bucket`."""
        sql = f"{self._select()} where o.alive or not o.born"
        if buckets:
            columns = {column.name: (f"v{place}", column.type) for place, column in enumerate(self._table.columns)}
            new = [columns[name] for name in self._table.key]
            old = [(f"k{place}", columns[name][1]) for place, name in enumerate(self._table.key)]
            sql = (
                f"select *, case when k0 is not null then {bucket_sql(old, buckets)} end as old_bucket, "
                f"{bucket_sql(new, buckets)} as new_bucket from ({sql})"
            )
        return self._engine.reader(sql)

    @property
    def kept(self) -> dict[int, str]:
        """The columns that may keep their values, by their places, and what `rows` calls that."""
        return {place: f"u{place}" for place in self._partly}

    def counts(self) -> dict[str, int]:
        """How many rows came, stayed and went."""
        sql = (
            "select count(*) filter (where born and alive) as inserted, "
            "count(*) filter (where alive and not born) as updated, "
            "count(*) filter (where not alive and not born) as deleted from outcomes"
        )
        return dict(self._engine.table(sql).to_pylist()[0])

    # -- the changes in their order

    def _load(self, changes: pa.RecordBatchReader) -> None:
        key, was = self._key(AFTER, BEFORE), self._key(BEFORE, AFTER)
        columns = ", ".join((OP, LSN, ORDINAL, UNCHANGED, BEFORE, AFTER))
        self._engine.register("scan", changes)
        self._engine.execute(f"create temp table loaded as select {columns}, {key} as key, {was} as was from scan")
        self._engine.unregister("scan")

    def _key(self, first: str, second: str) -> str:
        """The key of one side of a change. Where that side has none it did not change, and the other side has it."""
        parts = [f"coalesce({part(first, name)}, {part(second, name)})" for name in self._table.key]
        if len(parts) == 1:
            return parts[0]
        return f"struct_pack({', '.join(f'k{place} := {one}' for place, one in enumerate(parts))})"

    def _define_events(self, found: dict[str, Any]) -> None:
        """`events`: those after the last truncate, `pos` counting them through."""
        low, step = found["first_lsn"] or 0, (found["last_ordinal"] or 0) + 1
        fits = ((found["last_lsn"] or 0) - low + 1) * step < _MAX_BIGINT
        pos = f"({LSN} - {low})::{'bigint' if fits else 'hugeint'} * {step} + {ORDINAL}"
        after = ""
        if self.truncated:
            last = f"(select max({pos}) from loaded where {OP} = 'truncate')"
            after = f" where {pos} > {last}"
        self._engine.execute(
            f"create temp view events as select {pos} as pos, {OP} = 'update' and was is distinct from key as is_move, "
            f"* from loaded{after}"
        )

    def _partly_sent(self) -> tuple[int, ...]:
        """The places of the columns that some change left out."""
        names = {row[0] for row in self._engine.execute(f"select distinct unnest({UNCHANGED}) from events")}
        return tuple(place for place, column in enumerate(self._table.columns) if column.name in names)

    # -- the rows

    def _find_outcomes(self) -> None:
        run = self._engine.execute
        run(query("net_moved_keys"))
        run(query("net_outcomes"))
        if self._moves:
            run(query("net_steps"))
            run(query("net_stays"))
            run(query("net_roots"))
            for _ in range(_MAX_JUMPS):
                if run(query("net_jump"))[0][0] == 0:
                    break
            run(query("net_moved_outcomes"))
        if self._partly:
            run(query("net_members"))
            if self._moves:
                run(query("net_moved_members"))

    def _select(self) -> str:
        columns = [f"o.{ALIVE} as {ALIVE}", *self._origins()]
        joins = ["from outcomes o join events e on e.pos = o.last"]
        for place, column in enumerate(self._table.columns):
            if place not in self._partly:
                columns.append(f"e.{AFTER}.{quoted(column.name)} as v{place}")
                continue
            # The last change that has the value: as it was sent, or as the old row shows it.
            value, before = sent_value(column.name), part(BEFORE, column.name)
            known = (
                f"select m.row, max_by(struct_pack(v := {value}), e.pos) as found from members m join events e on e.pos = m.pos "
                f"where e.{OP} <> 'delete' and (not {is_left_out(column.name)} or {before} is not null) group by 1"
            )
            joins.append(f"left join ({known}) w{place} on w{place}.row = o.first")
            columns.append(f"w{place}.found.v as v{place}")
            columns.append(f"(w{place}.row is null and not o.born) as u{place}")
        return f"select {', '.join(columns)} {' '.join(joins)}"

    def _origins(self) -> Sequence[str]:
        keys = self._table.key
        if len(keys) == 1:
            return ["case when not o.born then o.origin end as k0"]
        return [f"case when not o.born then o.origin.k{place} end as k{place}" for place in range(len(keys))]
