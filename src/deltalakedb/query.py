"""QueryBuilder: SQL over tables, run by DuckDB in this process; columns and filters reach each table's plan."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from .arguments import check_text
from .data.engine import own_column
from .exceptions import DeltaError, PredicateError

if TYPE_CHECKING:
    import arro3.core
    import pyarrow as pa
    import pyarrow.dataset as ds

    from .data.engine import Engine
    from .table import DeltaTable


IsKind: TypeAlias = Callable[[Any], bool]


class QueryBuilder:
    """Queries in DuckDB's SQL, which is close to that of DataFusion, on tables registered under names."""

    def __init__(self, session_config: Mapping[str, str] | None = None) -> None:
        """`session_config` takes the settings of DataFusion (`datafusion.*`) that `deltalake` takes. They mean nothing
        to DuckDB; memory and spilling are set by `data.memory_limit` and `data.temp_folder`."""
        for key in session_config or {}:
            if not key.startswith("datafusion."):
                raise DeltaError(f"{key!r} is no setting of a session: those start with `datafusion.`")
        self._tables: dict[str, ds.Dataset] = {}

    def register(self, table_name: str, delta_table: DeltaTable) -> QueryBuilder:
        """Let queries read a table, at the version it is at, under this name."""
        check_text(table_name, required=True)
        if table_name in self._tables:
            raise DeltaError(f"the table {table_name} already exists in this QueryBuilder")
        self._tables[table_name] = delta_table.lazy_dataset()
        return self

    def execute(self, sql: str) -> arro3.core.RecordBatchReader:
        """The answer to one query, as a stream."""
        from .config import load_config
        from .data.engine import Engine
        from .tables.streams import stream

        text = _one_query(sql)
        config = load_config()
        engine = Engine(config.data_memory_limit, config.data_temp_folder)
        for name, dataset in self._tables.items():
            engine.register(own_column(name), dataset)
            self._show(engine, name, _FLOATS)
        if any(_columns_of(dataset.schema, _INSTANTS) for dataset in self._tables.values()) and _hands_lists_to_scans(
            engine, text
        ):
            for name in self._tables:
                self._show(engine, name, (*_FLOATS, *_INSTANTS))
        answer = engine.reader(_with_longs(engine, text))
        return stream(answer.schema, answer)

    def _show(self, engine: Engine, name: str, judged_here: Sequence[IsKind]) -> None:
        """Let queries see a table; conditions on columns of these kinds are judged by DuckDB itself.

        All others it hands to the table, whose plan they reach. Arrow orders NaN otherwise, so conditions on floats
        must not go there, and to hand over a list of instants DuckDB needs the package pytz.
        """
        columns = map(_quoted, _columns_of(self._tables[name].schema, judged_here))
        replaced = ", ".join(f"coalesce({column}, {column}) as {column}" for column in columns)
        engine.execute(
            f"create or replace temp view {_quoted(name)} as "
            f"select *{f' replace ({replaced})' if replaced else ''} from {_quoted(own_column(name))}"
        )


def _columns_of(schema: pa.Schema, kinds: Sequence[IsKind]) -> list[str]:
    """The columns that are of one of these kinds, or structs with a part that is."""
    return [item.name for item in schema if _has(item.type, kinds)]


def _has(kind: pa.DataType, kinds: Sequence[IsKind]) -> bool:
    import pyarrow.types as pt

    if pt.is_struct(kind):
        return any(_has(item.type, kinds) for item in kind)
    return any(is_kind(kind) for is_kind in kinds)


def _is_float(kind: pa.DataType) -> bool:
    import pyarrow.types as pt

    return bool(pt.is_floating(kind))


def _is_instant(kind: pa.DataType) -> bool:
    import pyarrow.types as pt

    return bool(pt.is_timestamp(kind)) and kind.tz is not None


_FLOATS: Final[tuple[IsKind, ...]] = (_is_float,)
_INSTANTS: Final[tuple[IsKind, ...]] = (_is_instant,)


def _hands_lists_to_scans(engine: Engine, sql: str) -> bool:
    """Whether DuckDB may hand a list of values to a scan: that of an `in`, or the keys of the other side of a join."""
    plan = json.loads(engine.execute(f"explain (format json) {sql}")[0][1])
    waiting = list(plan)
    while waiting:
        node = waiting.pop()
        if " IN " in str(node.get("extra_info", {}).get("Filters", "")) or "JOIN" in node.get("name", ""):
            return True
        waiting += node.get("children", ())
    return False


def _with_longs(engine: Engine, sql: str) -> str:
    """Sums of whole numbers as longs, as they are in `deltalake`; DuckDB gives them 38 digits."""
    described = engine.execute(f"describe {sql}")
    names = [row[0] for row in described]
    wide = [name for name, kind, *_ in described if kind == "HUGEINT"]
    if not wide or len(set(names)) < len(names):
        return sql
    longs = ", ".join(f"cast({name} as bigint) as {name}" for name in map(_quoted, wide))
    return f"select * replace ({longs}) from ({sql})"


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _one_query(sql: str) -> str:
    """One statement, and one that only reads."""
    import duckdb

    try:
        statements = duckdb.extract_statements(sql)
    except duckdb.Error as error:
        raise PredicateError(f"cannot read the query: {str(error).partition(chr(10))[0]}") from error
    if len(statements) != 1:
        raise DeltaError(f"a query is one statement; this text has {len(statements)}")
    if statements[0].type != duckdb.StatementType.SELECT:
        raise DeltaError("a query only reads; write with `write_deltalake`, `delete`, `update` or `merge`")
    return str(statements[0].query).strip().rstrip(";")
