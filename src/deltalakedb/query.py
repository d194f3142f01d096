"""QueryBuilder: SQL over tables, run by DuckDB in this process; columns and filters reach each table's plan."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from deltalakedb.data.engine import own_column
from deltalakedb.data.engine_functions import DIVIDED_BY_ZERO
from deltalakedb.exceptions import DeltaError, PredicateError
from deltalakedb.runtime.arguments import check_settings, check_text

if TYPE_CHECKING:
    import arro3.core
    import pyarrow as pa
    import pyarrow.dataset as ds

    from deltalakedb.data.engine import Engine
    from deltalakedb.operations.query_sql import Query
    from deltalakedb.table import DeltaTable


IsKind: TypeAlias = Callable[[Any], bool]


class QueryBuilder:
    """Queries in DuckDB's SQL, which is close to that of DataFusion, on tables registered under names."""

    def __init__(self, session_config: Mapping[str, str] | None = None) -> None:
        """`session_config` takes the settings of DataFusion (`datafusion.*`) that `deltalake` takes. They mean nothing
        to DuckDB; memory and spilling are set by `data.memory_limit` and `data.temp_folder`."""
        check_settings(session_config)
        for key in session_config or {}:
            if not key.startswith("datafusion."):
                raise DeltaError(
                    f'Invalid or Unsupported Configuration: Could not find config namespace "{key.partition(".")[0]}" '
                    f"for {key!r}: settings of a session start with `datafusion.`"
                )
        self._tables: dict[str, ds.Dataset] = {}
        self._views: dict[str, _View] = {}

    def register(self, table_name: str, delta_table: DeltaTable) -> QueryBuilder:
        """Let queries read a table under this name, at the version it is at now, wherever the object moves later."""
        check_text(table_name, required=True)
        if table_name in self._tables or table_name in self._views:
            raise DeltaError(f"Execution error: The table {table_name} already exists in this QueryBuilder")
        self._tables[table_name] = copy(delta_table).lazy_dataset()
        return self

    def execute(self, sql: str) -> arro3.core.RecordBatchReader:
        """The answer to one query, as a stream; `create view` and `drop view` give names to queries of this object."""
        from deltalakedb.operations.query_statements import (
            Create,
            Describe,
            Drop,
            Explain,
            describe_columns,
            read_statement,
            show_plan,
        )
        from deltalakedb.tables.streams import stream, with_views

        check_text(sql, required=True)
        match read_statement(sql):
            case Describe(name) if name in self._schemas():
                answer = with_views(describe_columns(self._schemas()[name]).to_reader())
            case Explain(query, runs):
                engine = self._open()
                plan = engine.execute(f"explain {'analyze ' if runs else ''}{self._translate(engine, query)[0]}")[0][1]
                answer = with_views(show_plan("Plan with Metrics" if runs else "physical_plan", plan).to_reader())
            case Create() as view:
                answer = self._create(view.name, view.query, replaces=view.replaces)
            case Drop(name, may_be_missing):
                answer = self._drop(name, may_be_missing=may_be_missing)
            case _:
                answer = self._run(sql)
        return stream(answer.schema, answer)

    def _run(self, sql: str) -> pa.RecordBatchReader:
        engine = self._open()
        text, query = self._translate(engine, sql)
        try:
            return self._answer(engine, text, query)
        except PredicateError as error:
            said = None if query is None else query.explain(str(error))
            if said is None:
                raise
            raise PredicateError(said) from error

    def _open(self) -> Engine:
        """An engine that knows the tables and the views."""
        from deltalakedb.data.engine import Engine
        from deltalakedb.runtime.config import load_config

        config = load_config()
        engine = Engine(config.data_memory_limit, config.data_temp_folder)
        for name, dataset in self._tables.items():
            engine.register(own_column(name), dataset)
            self._show(engine, name, _FLOATS)
        for name, view in self._views.items():
            engine.execute(f"create or replace temp view {_quoted(name)} as {view.sql}")
        return engine

    def _schemas(self) -> dict[str, pa.Schema]:
        return {name: one.schema for name, one in (*self._tables.items(), *self._views.items())}

    def _translate(self, engine: Engine, sql: str) -> tuple[str, Query | None]:
        """A query in DuckDB's SQL, and what is known of its columns."""
        from deltalakedb.operations.query_sql import read_query

        query = read_query(sql, self._schemas(), lambda value: _is_null(engine, value))
        return (_one_query(sql) if query is None else query.sql), query

    def _create(self, name: str, sql: str, *, replaces: bool) -> pa.RecordBatchReader:
        if not replaces and name in self._schemas():
            raise DeltaError(f"Execution error: Table '{name}' already exists; `create or replace` takes its place")
        if name in self._tables:
            raise DeltaError(f"{name} is a registered table: give the view another name")
        self._views[name] = _View(self._translate(self._open(), sql)[0], self._run(sql).schema)
        return _nothing()

    def _drop(self, name: str, *, may_be_missing: bool) -> pa.RecordBatchReader:
        if self._views.pop(name, None) is None and self._tables.pop(name, None) is None and not may_be_missing:
            raise DeltaError(f"Execution error: Table '{name}' doesn't exist.")
        return _nothing()

    def _answer(self, engine: Engine, text: str, query: Query | None) -> pa.RecordBatchReader:
        """The rows, with columns as `deltalake` describes them."""
        from deltalakedb.tables.streams import with_views

        kept = self._kept_from_scans(engine, text)
        if kept:
            for name in self._tables:
                self._show(engine, name, (*_FLOATS, *kept))
        answer = _answer(engine, _with_longs(engine, text), casts_columns=query is not None and query.casts_columns)
        return with_views(answer) if query is None else with_views(_described(answer, query), plain=query.plain)

    def _kept_from_scans(self, engine: Engine, sql: str) -> tuple[IsKind, ...]:
        """The kinds of columns, beside floats, whose conditions must not be handed to the tables in this query."""
        nodes = _nodes_of_plan(engine, sql)
        if any("DISTINCT FROM" in filters for _, filters in nodes):
            return _ALL
        kinds = _INSTANTS if _hands_lists_to_scans(nodes) else ()
        if any("JOIN" in name for name, _ in nodes):
            kinds = (*kinds, *_STRUCTS)
        has_some = any(_columns_of(dataset.schema, kinds) for dataset in self._tables.values())
        return kinds if has_some else ()

    def _show(self, engine: Engine, name: str, judged_here: Sequence[IsKind]) -> None:
        """Let queries see a table; conditions on columns of these kinds are judged by DuckDB itself.

        All others it hands to the table, whose plan they reach. Arrow orders NaN otherwise, so conditions on floats
        must not go there; to hand over a list of instants DuckDB needs the package pytz, and it plans to hand over
        `is distinct from`, which `is not false` is too, but cannot. Of a struct it hands over single fields; below a
        join, which a list of many values becomes, it then confuses the columns and fails (DuckDB 1.5.5).
        """
        columns = map(_quoted, _columns_of(self._tables[name].schema, judged_here))
        replaced = ", ".join(f"coalesce({column}, {column}) as {column}" for column in columns)
        engine.execute(
            f"create or replace temp view {_quoted(name)} as "
            f"select *{f' replace ({replaced})' if replaced else ''} from {_quoted(own_column(name))}"
        )


@dataclass(frozen=True, slots=True)
class _View:
    """A query that has a name, in DuckDB's SQL, and what it answers."""

    sql: str
    schema: pa.Schema


def _nothing() -> pa.RecordBatchReader:
    """The answer of a statement that has none."""
    import pyarrow as pa

    return pa.table({}).to_reader()


def _is_null(engine: Engine, value: str) -> bool:
    """Whether an expression without columns is null; one that cannot be computed may be."""
    try:
        return bool(engine.execute(f"select ({value}) is null")[0][0])
    except DeltaError:
        return True


def _columns_of(schema: pa.Schema, kinds: Sequence[IsKind]) -> list[str]:
    """The columns that are of one of these kinds, or structs with a part that is."""
    return [item.name for item in schema if _has(item.type, kinds)]


def _has(kind: pa.DataType, kinds: Sequence[IsKind]) -> bool:
    import pyarrow.types as pt

    if any(is_kind(kind) for is_kind in kinds):
        return True
    return pt.is_struct(kind) and any(_has(item.type, kinds) for item in kind)


def _is_float(kind: pa.DataType) -> bool:
    import pyarrow.types as pt

    return bool(pt.is_floating(kind))


def _is_instant(kind: pa.DataType) -> bool:
    import pyarrow.types as pt

    return bool(pt.is_timestamp(kind)) and kind.tz is not None


def _is_struct(kind: pa.DataType) -> bool:
    import pyarrow.types as pt

    return bool(pt.is_struct(kind))


_FLOATS: Final[tuple[IsKind, ...]] = (_is_float,)
_INSTANTS: Final[tuple[IsKind, ...]] = (_is_instant,)
_STRUCTS: Final[tuple[IsKind, ...]] = (_is_struct,)
_ALL: Final[tuple[IsKind, ...]] = (lambda _: True,)


def _hands_lists_to_scans(nodes: Sequence[tuple[str, str]]) -> bool:
    """Whether DuckDB may hand a list of values to a scan: that of an `in`, or the keys of the other side of a join."""
    return any(" IN " in filters or "JOIN" in name for name, filters in nodes)


def _nodes_of_plan(engine: Engine, sql: str) -> list[tuple[str, str]]:
    """The steps of DuckDB's plan: what each is called, and the conditions it takes over."""
    waiting, nodes = list(json.loads(engine.execute(f"explain (format json) {sql}")[0][1])), []
    while waiting:
        node = waiting.pop()
        nodes.append((node.get("name", ""), str(node.get("extra_info", {}).get("Filters", ""))))
        waiting += node.get("children", ())
    return nodes


def _with_longs(engine: Engine, sql: str) -> str:
    """Sums of whole numbers as longs, as they are in `deltalake`; DuckDB gives them 38 digits."""
    described = engine.execute(f"describe {sql}")
    names = [row[0] for row in described]
    wide = [name for name, kind, *_ in described if kind == "HUGEINT"]
    if not wide or len(set(names)) < len(names):
        return sql
    longs = ", ".join(f"cast({name} as bigint) as {name}" for name in map(_quoted, wide))
    return f"select * replace ({longs}) from ({sql})"


_OF_VALUES: Final = (
    "Execution error: ", "Out of Range Error: ", "Invalid Input Error: ", "Conversion Error: Date out ",
    "Conversion Error: Time out ",
)  # fmt: skip
"""How errors begin of functions that a value was no argument for."""


def _answer(engine: Engine, sql: str, *, casts_columns: bool) -> pa.RecordBatchReader:
    """The rows of a query. One that divides by zero, or that has a value which a cast or a function refuses, fails
    while its rows are read, as in `deltalake`."""
    import pyarrow as pa

    try:
        return engine.reader(sql)
    except PredicateError as error:
        cannot_cast = casts_columns and str(error).startswith(("Cast error: ", "Parser error: "))
        cannot_compute = str(error).startswith(_OF_VALUES)
        if DIVIDED_BY_ZERO not in str(error) and not cannot_cast and not cannot_compute:
            raise
        said = f"Arrow error: {error}" if cannot_cast else str(error) if cannot_compute else DIVIDED_BY_ZERO
        failure = Exception(f"External error: {said}")
        failure.__cause__ = error
    schema = engine.table(f"select * from ({sql}) limit 0").schema
    return pa.RecordBatchReader.from_batches(schema, map(_raise, [failure]))


def _raise(error: Exception) -> pa.RecordBatch:
    raise error


def _described(answer: pa.RecordBatchReader, query: Query) -> pa.RecordBatchReader:
    """The answer with the names, types and nullability that its columns have in `deltalake`."""
    import pyarrow as pa

    schema = query.describe(answer.schema)
    if str(schema) == str(answer.schema):  # `equals` does not look at the names of elements
        return answer

    def batches() -> Iterator[pa.RecordBatch]:
        for batch in answer:
            columns = [_cast(one, item.type) for one, item in zip(batch.columns, schema, strict=True)]
            yield pa.RecordBatch.from_arrays(columns, schema=schema)

    return pa.RecordBatchReader.from_batches(schema, batches())


def _cast(values: pa.Array, kind: pa.DataType) -> pa.Array:
    import pyarrow as pa

    return pa.nulls(len(values)) if pa.types.is_null(kind) else values.cast(kind)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _one_query(sql: str) -> str:
    """One statement, and one that only reads."""
    import duckdb

    try:
        statements = duckdb.extract_statements(sql)
    except duckdb.Error as error:
        raise PredicateError(f"SQL error: {str(error).partition(chr(10))[0]} in {sql!r}") from error
    if not statements:
        raise DeltaError("Error during planning: No SQL statements were provided in the query string")
    if len(statements) > 1:
        raise DeltaError(
            "This feature is not implemented: The context currently only supports a single SQL statement, and this "
            f"text has {len(statements)}"
        )
    if statements[0].type != duckdb.StatementType.SELECT:
        raise DeltaError("a query only reads; write with `write_deltalake`, `delete`, `update` or `merge`")
    return str(statements[0].query).strip().rstrip(";")
