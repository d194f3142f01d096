"""QueryBuilder: SQL over tables, run by DuckDB in this process; columns and filters reach each table's plan."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from .exceptions import DeltaError, PredicateError

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.dataset as ds

    from .data.engine import Engine
    from .table import DeltaTable


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
        if table_name in self._tables:
            raise DeltaError(f"the table {table_name} already exists in this QueryBuilder")
        self._tables[table_name] = delta_table.lazy_dataset()
        return self

    def execute(self, sql: str) -> pa.RecordBatchReader:
        """The answer to one query, as a stream of pyarrow's that anything reads that reads Arrow streams."""
        from .config import load_config
        from .data.engine import Engine

        text = _one_query(sql)
        config = load_config()
        engine = Engine(config.data_memory_limit, config.data_temp_folder)
        for name, dataset in self._tables.items():
            engine.register(name, dataset)
        return engine.reader(_with_longs(engine, text))


def _with_longs(engine: Engine, sql: str) -> str:
    """Sums of whole numbers as longs, as they are in `deltalake`; DuckDB gives them 38 digits."""
    described = engine.execute(f"describe {sql}")
    names = [row[0] for row in described]
    wide = [name for name, kind, *_ in described if kind == "HUGEINT"]
    if not wide or len(set(names)) < len(names):
        return sql
    quoted = ['"' + name.replace('"', '""') + '"' for name in wide]
    return f"select * replace ({', '.join(f'cast({name} as bigint) as {name}' for name in quoted)}) from ({sql})"


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
