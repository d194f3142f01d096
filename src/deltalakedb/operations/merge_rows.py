"""The rows of a merge in the query engine: the source, the matched pairs, and the resulting rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
import pyarrow as pa

from deltalakedb.data.arrow_types import arrow_to_schema
from deltalakedb.data.conform import Conformer
from deltalakedb.data.engine import Engine, own_column
from deltalakedb.data.reader import FILE, ROW
from deltalakedb.exceptions import PredicateError
from deltalakedb.log.schema.types import PrimitiveType, StructField, StructType
from deltalakedb.operations.expressions import Expression, cast_sql, quoted, sql_type
from deltalakedb.operations.find import RowNumbers, gather_rows
from deltalakedb.operations.merge_request import Clause, MergeRequest
from deltalakedb.operations.merge_values import Names

_SOURCE_COLUMN: Final = own_column("source")
# Quoted for SQL.
_FILE: Final = quoted(FILE)
_ROW: Final = quoted(ROW)
_SOURCE_ROW: Final = quoted(_SOURCE_COLUMN)
_CLAUSE: Final = quoted(own_column("clause"))
_PAIRS: Final = quoted(own_column("pairs"))


def source_schema(arrow: pa.Schema) -> StructType:
    """Return the source's columns as Delta types; a column of only nulls becomes a string column."""
    void, text = PrimitiveType("void"), PrimitiveType("string")
    fields = arrow_to_schema(arrow).fields
    return StructType(tuple(replace(item, type=text if item.type == void else item.type) for item in fields))


def load_source(engine: Engine, source: pa.RecordBatchReader, schema: StructType) -> int:
    """Load the source into the engine with numbered rows; return the number of rows."""
    nullable = StructType(tuple(replace(item, nullable=True) for item in schema.fields))
    number = pa.field(_SOURCE_COLUMN, pa.int64())
    arrow = pa.schema([*nullable.to_arrow(), number])

    def batches() -> Iterator[pa.RecordBatch]:
        conform, start = Conformer(source.schema, nullable), 0
        for batch in source:
            rows = pa.array(np.arange(start, start + batch.num_rows, dtype=np.int64))
            start += batch.num_rows
            yield pa.RecordBatch.from_arrays([*conform(batch), rows], schema=arrow)

    engine.register("given", pa.RecordBatchReader.from_batches(arrow, batches()))
    ((count,),) = engine.execute("create temp table source as select * from given")
    engine.unregister("given")
    return int(count)


@dataclass
class Taken:
    """The target rows that clauses apply to."""

    touched: dict[int, RowNumbers] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=lambda: {"update": 0, "delete": 0, "insert": 0})
    twice: tuple[int, int] | None = None
    """A row to which clauses apply for several source rows: its file index and row number."""


class MergeRows:
    """The engine's tables during a merge: `source`, `nothing`, `pairs`, `unmatched` and `changed`."""

    def __init__(self, engine: Engine, request: MergeRequest, names: Names) -> None:
        self._engine = engine
        self._request = request
        self._names = names
        self._condition = names.read(request.predicate)
        self._predicates = {
            number: names.read(clause.predicate)
            for number, clause in enumerate(request.clauses)
            if clause.predicate is not None
        }
        self._matched = request.of_kind("matched")
        self._unmatched = request.of_kind("not_matched_by_source")
        self._inserts = request.of_kind("not_matched")

    def check(self, schema: StructType) -> None:
        """Raise for a condition that the engine cannot evaluate or that is not boolean, before any file is read."""
        self._make_nothing(schema)
        conditions = [self._condition, *self._predicates.values()]
        kinds = self._engine.types(
            f"select {', '.join(condition.sql for condition in conditions)} "
            f"from nothing as {self._names.t} cross join source as {self._names.s}"
        )
        for condition, kind in zip(conditions, kinds, strict=True):
            if kind not in ("BOOLEAN", '"NULL"'):
                raise PredicateError(f"a condition is true or false; {condition.text!r} gives {kind}")

    # -- matching: reads only the columns that decide

    def columns_to_match(self, schema: StructType) -> list[str]:
        """Return the target columns that decide which rows match, and which clause applies."""
        terms = [self._condition, *(self._predicates[n] for n, _ in self._deciding() if n in self._predicates)]
        used = {name for term in terms for name in self._names.looks_at(term, self._names.target)}
        return [name for name in schema.names if name in used]

    def _deciding(self) -> list[tuple[int, Clause]]:
        return [*self._matched, *self._unmatched]

    def match(self, scan: pa.RecordBatchReader) -> None:
        """Fill `pairs`: the matched pairs to which a clause applies or that an insert must know, and the target rows
        without a match to which a clause applies."""
        t, s = self._names.t, self._names.s
        matched = self._case(self._matched)
        clause = f"case when {s}.{_SOURCE_ROW} is null then {self._case(self._unmatched)} else {matched} end"
        is_wanted = f"{_CLAUSE} is not null" + (f" or {_SOURCE_ROW} is not null" if self._inserts else "")
        self._engine.register("scan", scan)
        self._engine.execute(
            f"create temp table pairs as select * from (select {t}.{_FILE}, {t}.{_ROW}, {s}.{_SOURCE_ROW}, "
            f"{clause if self._unmatched else matched} as {_CLAUSE} "
            f"from scan as {t} {'left' if self._unmatched else 'inner'} join source as {s} on {self._on()}) "
            f"where {is_wanted}"
        )
        self._engine.unregister("scan")

    def _on(self) -> str:
        """Return the join condition, in a form of which no part is pushed down to Arrow: it orders NaN differently."""
        parts = [self._names.read(text) for text in self._names.conjuncts(self._request.predicate)]
        source = self._names.source
        return " and ".join(
            part.sql if self._names.looks_at(part, source) else f"coalesce({part.sql}, false)" for part in parts
        )

    def match_nothing(self) -> None:
        """Create an empty `pairs`, for a target without any file to read."""
        self._engine.execute(
            f"create temp table pairs ({_FILE} integer, {_ROW} bigint, {_SOURCE_ROW} bigint, {_CLAUSE} integer)"
        )

    def _case(self, clauses: Sequence[tuple[int, Clause]]) -> str:
        """Return SQL for the number of the first clause that applies to a row."""
        whens = " ".join(f"when {self._predicate(number)} then {number}" for number, _ in clauses)
        return f"case {whens} end" if whens else "null::integer"

    def _predicate(self, number: int) -> str:
        return f"({self._predicates[number].sql})::boolean" if number in self._predicates else "true"

    def taken(self) -> Taken:
        """Return the target rows to which clauses apply, by file index, and the number of rows for each action."""
        pairs = self._engine.reader(
            f"select {_FILE}, {_ROW}, min({_CLAUSE}) as {_CLAUSE}, count({_SOURCE_ROW}) as sources from pairs "
            f"where {_CLAUSE} is not null group by {_FILE}, {_ROW} order by {_FILE}, {_ROW}"
        )
        taken = Taken()
        taken.touched = gather_rows(self._counted(pairs, taken))
        return taken

    def _counted(self, batches: Iterable[pa.RecordBatch], taken: Taken) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            clauses, sources = batch.column(2).to_numpy(), batch.column(3).to_numpy()
            for number, rows in enumerate(np.bincount(clauses).tolist()):
                if rows:
                    taken.counts[self._request.clauses[number].action] += rows
            if taken.twice is None and (sources > 1).any():
                index = int(np.argmax(sources > 1))
                taken.twice = (batch.column(0)[index].as_py(), batch.column(1)[index].as_py())
            yield batch

    # -- the resulting rows

    def needs_old_rows(self, values: Mapping[int, Mapping[str, Expression]], columns: Sequence[str]) -> bool:
        """Return whether updated rows depend on old values: a column that is not set, or an expression that uses a
        target column."""
        for number, clause in enumerate(self._request.clauses):
            if clause.action == "update":
                set_to = values[number]
                if any(name not in set_to for name in columns):
                    return True
                if any(self._names.looks_at(expression, self._names.target) for expression in set_to.values()):
                    return True
        return False

    def keep_changed(self, batches: Sequence[pa.RecordBatch]) -> None:
        """Store whole target rows that clauses change, with their positions, for `updated` to read."""
        rows = pa.Table.from_batches(batches)
        self._engine.register("given", rows)
        statement = "insert into changed by name" if self._has_changed else "create temp table changed as"
        self._engine.execute(f"{statement} select * from given")
        self._engine.unregister("given")
        self._has_changed = True

    _has_changed = False

    def before(self, action: str, schema: StructType) -> pa.RecordBatchReader | None:
        """Return the rows to which clauses with an action apply, before the change."""
        numbers = [n for n, clause in self._deciding() if clause.action == action]
        if not numbers or not self._has_changed:
            return None
        columns = ", ".join(f"c.{quoted(name)}" for name in schema.names)
        return self._engine.reader(
            f"select {columns} from (select distinct {_FILE}, {_ROW} from pairs where {_CLAUSE} in "
            f"({', '.join(map(str, numbers))})) {_PAIRS} join changed c on c.{_FILE} = {_PAIRS}.{_FILE} "
            f"and c.{_ROW} = {_PAIRS}.{_ROW}"
        )

    def read(self, sql: str) -> pa.RecordBatchReader:
        """Run a query returned by `updated` or `inserted`."""
        return self._engine.reader(sql)

    def updated(
        self,
        number: int,
        values: dict[str, Expression],
        schema: StructType,
        left_out: frozenset[str],
        nulls: frozenset[str],
    ) -> str:
        """Return the query for the rows that an update makes. Columns that it does not set stay; `left_out` columns are
        omitted, and `nulls` are set to null."""
        t, s = self._names.t, self._names.s
        rows = f"from (select * from pairs where {_CLAUSE} = {number}) {_PAIRS} "
        if self._has_changed:
            rows += f"join changed as {t} on {t}.{_FILE} = {_PAIRS}.{_FILE} and {t}.{_ROW} = {_PAIRS}.{_ROW} "
        rows += f"left join source as {s} on {s}.{_SOURCE_ROW} = {_PAIRS}.{_SOURCE_ROW}"
        unset = {
            item.name: f"null::{sql_type(item.type)}" if item.name in nulls else f"{t}.{quoted(item.name)}"
            for item in schema.fields
            if item.name not in values and item.name not in left_out
        }
        return self._select(values, unset, rows, schema)

    def inserted(
        self,
        number: int,
        values: dict[str, Expression],
        schema: StructType,
        left_out: frozenset[str],
        nulls: frozenset[str],  # noqa: ARG002  every column that is not set is null
    ) -> str:
        """Return the query for the rows that an insert makes; columns that it does not set are null."""
        rows = f"from (select * from unmatched where {_CLAUSE} = {number}) as {self._names.s}"
        if any(self._names.looks_at(expression, self._names.target) for expression in values.values()):
            rows += f" cross join nothing as {self._names.t}"
        unset = {
            item.name: f"null::{sql_type(item.type)}"
            for item in _typed(schema)
            if item.name not in values and item.name not in left_out
        }
        return self._select(values, unset, rows, schema)

    def _make_nothing(self, schema: StructType) -> None:
        """Create `nothing`, the target row that is joined to an inserted row: all null."""
        nulls = ", ".join(f"null::{sql_type(item.type)} as {quoted(item.name)}" for item in _typed(schema))
        self._engine.execute(f"create temp table nothing as select {nulls}")

    def find_unmatched(self) -> int:
        """Fill `unmatched`, the source rows to insert, and return their number."""
        s, t = self._names.s, self._names.t
        ((count,),) = self._engine.execute(
            f"create temp table unmatched as select * from (select {s}.*, {self._case(self._inserts)} as {_CLAUSE} "
            f"from (select * from source where {_SOURCE_ROW} not in "
            f"(select {_SOURCE_ROW} from pairs where {_SOURCE_ROW} is not null)) as {s} cross join nothing as {t}) "
            f"where {_CLAUSE} is not null"
        )
        return int(count)

    def _select(self, values: dict[str, Expression], kept: dict[str, str], rows: str, schema: StructType) -> str:
        fields = {item.name: item for item in schema.fields}
        types = dict(zip(values, self._types(values, rows), strict=True))
        strict = self._request.error_on_type_mismatch
        set_columns = {
            name: _cast(expression.sql, types[name], fields[name], strict) for name, expression in values.items()
        }
        columns = [
            f"{(set_columns | kept)[name]} as {quoted(name)}" for name in fields if name in set_columns or name in kept
        ]
        return f"select {', '.join(columns)} {rows}"

    def _types(self, values: dict[str, Expression], rows: str) -> list[str]:
        plain_types = {name: self._names.column_type(expression) for name, expression in values.items()}
        untyped = [expression.sql for name, expression in values.items() if plain_types[name] is None]
        engine_types = iter(self._engine.types(f"select {', '.join(untyped)} {rows}") if untyped else ())
        return [next(engine_types) if data_type is None else sql_type(data_type) for data_type in plain_types.values()]


def _typed(schema: StructType) -> list[StructField]:
    return [item for item in schema.fields if item.type != PrimitiveType("void")]


def _cast(sql: str, engine_type: str, item: StructField, strict: bool) -> str:
    return cast_sql(sql, engine_type, item.type, strict=strict)
