"""The net effect of a batch on a table without a key: counts how many copies of each row are added or removed.

The order of changes does not matter for equal rows, so only their sum counts; n copies stay n copies.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Final

from deltalakedb.cdc.captured_table import CapturedTable
from deltalakedb.cdc.layers import AFTER, BEFORE, DELETE, INSERT, LSN, OP, ORDINAL, TRUNCATE, UNCHANGED, UPDATE
from deltalakedb.data.reader import FILE, ROW
from deltalakedb.log.predicates.atoms import ALWAYS, Predicate
from deltalakedb.log.predicates.predicate import parse_predicate
from deltalakedb.log.protocol.actions import Action
from deltalakedb.log.protocol.proposal import NOTHING_READ, WHOLE_TABLE, ProposedCommit, ReadSet
from deltalakedb.log.schema.types import DataType, DecimalType
from deltalakedb.operations.change_data import ChangeWriter, feeds_changes
from deltalakedb.operations.delete import delete
from deltalakedb.operations.expressions import quoted
from deltalakedb.operations.find import TouchedFile, gather_rows, touched_files
from deltalakedb.operations.rewriting import remove_rows
from deltalakedb.operations.target import Done, Target, open_engine
from deltalakedb.operations.write import WriteRequest, write, write_rows

if TYPE_CHECKING:
    import pyarrow as pa

    from deltalakedb.data.engine import Engine

_ORDERED: Final = frozenset({"short", "integer", "long", "string", "date", "timestamp", "timestamp_ntz"})
_MAX_BOUNDS: Final = 4
"""How many columns' bounds choose the files to read; more hardly exclude more files."""


def apply_keyless(target: Target, table: CapturedTable, changes: pa.RecordBatchReader) -> Done:
    """Add and remove as many copies of rows as the changes amount to."""
    with open_engine(target, joins_as_written=True) as engine:
        rows = _CountedRows(engine, table, changes)
        inserted, deleted = rows.counts()
        counts = {"inserted": inserted, "deleted": deleted}
        if rows.truncated:
            done = (
                write(target, rows.coming(), WriteRequest("overwrite", schema_mode="merge"))
                if inserted
                else delete(target)
            )
            return Done(done.commit, {**counts, "truncated": True}, done.read)
        touched, read = rows.find_going(target) if deleted else ((), NOTHING_READ)
        actions = _write(target, rows, touched, bool(inserted))
    if not actions:
        return Done(None, counts, read)
    metrics = {"num_target_rows_inserted": inserted, "num_target_rows_deleted": deleted}
    return Done(ProposedCommit(tuple(actions), "MERGE", {}, metrics, read), counts)


def _write(target: Target, rows: _CountedRows, touched: tuple[TouchedFile, ...], inserts: bool) -> list[Action]:
    actions: list[Action] = []
    with ExitStack() as stack:
        # Whole removed files need no change data; if a commit has any change data, it must have all of its changes.
        writes_changes = feeds_changes(target) and not all(file.is_whole for file in touched)
        changes = stack.enter_context(ChangeWriter(target)) if writes_changes else None
        if touched:
            actions += remove_rows(target, touched, changes=changes).actions
        if inserts:
            if changes is not None:
                for batch in rows.coming(target.schema.names):
                    changes.write(batch, "insert")
            actions += write_rows(target, rows.coming())
        if changes is not None:
            actions += changes.finish()
    return actions


class _CountedRows:
    """The rows of a batch inside the query engine: `counted` has each once, as v0, v1, ..., and how many copies are
    added (n > 0) or removed (n < 0)."""

    def __init__(self, engine: Engine, table: CapturedTable, changes: pa.RecordBatchReader) -> None:
        self._engine = engine
        self._table = table
        self._names = [f"v{place}" for place in range(len(table.columns))]
        engine.register("scan", changes)
        columns = ", ".join((OP, LSN, ORDINAL, UNCHANGED, BEFORE, AFTER))
        engine.execute(f"create temp table loaded as select {columns} from scan")
        engine.unregister("scan")
        last = engine.execute(
            f"select {LSN}, {ORDINAL} from loaded where {OP} = '{TRUNCATE}' order by 1 desc, 2 desc limit 1"
        )
        self.truncated = bool(last)
        self._count(f"({LSN}, {ORDINAL}) > ({last[0][0]}, {last[0][1]})" if last else "true")

    def _count(self, which: str) -> None:
        after = ", ".join(f"{_value_after(column.name)} as v{n}" for n, column in enumerate(self._table.columns))
        before = ", ".join(f"{_part(BEFORE, column.name)} as v{n}" for n, column in enumerate(self._table.columns))
        self._engine.execute(
            f"create temp table counted as select {', '.join(self._names)}, sum(n)::bigint as n from ("
            f"select {after}, 1 as n from loaded where {OP} in ('{INSERT}', '{UPDATE}') and {which} union all "
            f"select {before}, -1 as n from loaded where {OP} in ('{UPDATE}', '{DELETE}') and {which}"
            f") group by {', '.join(self._names)} having sum(n) <> 0"
        )

    def counts(self) -> tuple[int, int]:
        """How many rows are added, and how many are removed."""
        sql = "select coalesce(sum(n) filter (n > 0), 0), coalesce(-sum(n) filter (n < 0), 0) from counted"
        ((coming, going),) = self._engine.execute(sql)
        return int(coming), int(going)

    def coming(self, columns: Sequence[str] | None = None) -> pa.RecordBatchReader:
        """The added rows, each as often as it is added; with `columns`, in the order of the table's own columns."""
        values = {column.name: f"v{place}" for place, column in enumerate(self._table.columns)}
        chosen = ", ".join(f"{values.get(name, 'null')} as {quoted(name)}" for name in columns or values)
        return self._engine.reader(f"select {chosen} from (select *, unnest(range(n)) from counted where n > 0)")

    # -- the removed rows

    def find_going(self, target: Target) -> tuple[tuple[TouchedFile, ...], ReadSet]:
        """As many rows of the table as are removed, and what was read to find them."""
        predicate = self._bounds(target)
        read = WHOLE_TABLE if predicate.disjuncts == ALWAYS.disjuncts else ReadSet(predicates=(predicate,))
        files = target.plan(predicate)
        if not files.num_rows:
            return (), read
        columns = [column.name for column in self._table.columns]
        self._engine.register("scan", target.read(files, columns, positions=True))
        positions = gather_rows(self._engine.reader(self._find_sql()))
        self._engine.unregister("scan")
        return touched_files(files, positions), read

    def _find_sql(self) -> str:
        """Any copies of a row can be removed: the first ones are."""
        file, row = quoted(FILE), quoted(ROW)
        same = " and ".join(
            f"s.{quoted(column.name)} is not distinct from g.v{place}"
            for place, column in enumerate(self._table.columns)
        )
        return (
            f"select {file}, {row} from (select s.{file}, s.{row}, g.n, "
            f"row_number() over (partition by g.id order by s.{file}, s.{row}) as nth from scan s "
            f"join (select *, row_number() over () as id from counted where n < 0) g on {same}) "
            f"where nth <= -n order by {file}, {row}"
        )

    def _bounds(self, target: Target) -> Predicate:
        """A predicate that is true for every removed row, for pruning by the statistics of files."""
        filters: list[tuple[str, str, Any]] = []
        for place, column in enumerate(self._table.columns):
            if len(filters) < 2 * _MAX_BOUNDS and _is_ordered(column.type):
                filters += self._bounds_of(column.name, f"v{place}")
        if not filters:
            return ALWAYS
        return parse_predicate(filters, target.schema, target.metadata.partition_columns)

    def _bounds_of(self, name: str, value: str) -> Iterator[tuple[str, str, Any]]:
        bounds = self._engine.table(
            f"select min({value}) as lo, max({value}) as hi, bool_or({value} is null) as nulls from counted where n < 0"
        )
        try:
            row = bounds.to_pylist()[0]
        except (OverflowError, ValueError):  # a date outside of Python's range
            return
        if not row["nulls"] and row["lo"] is not None:
            yield (name, ">=", row["lo"])
            yield (name, "<=", row["hi"])


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _part(struct: str, name: str) -> str:
    """A field of a struct, in SQL."""
    return f"struct_extract({quoted(struct)}, {_literal(name)})"


def _value_after(name: str) -> str:
    """The SQL of a column's value after a change; a value that was not sent comes from the old row."""
    is_left_out = f"coalesce(list_contains({UNCHANGED}, {_literal(name)}), false)"
    return f"case when {is_left_out} then {_part(BEFORE, name)} else {_part(AFTER, name)} end"


def _is_ordered(data_type: DataType) -> bool:
    return isinstance(data_type, DecimalType) or str(data_type) in _ORDERED
