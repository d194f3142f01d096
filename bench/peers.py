"""The peers: `deltalake` on the generated log, DuckLake on a catalog filled with the same files."""

from __future__ import annotations

import importlib
import shutil
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from bench.postgres import Postgres
from bench.tables import COLUMNS, ROWS_PER_FILE, Spec, file_batches

# --- deltalake -------------------------------------------------------------------------------------------------------


def deltalake_open(location: str) -> tuple[int, int]:
    table = DeltaTable(location)
    return table.version(), len(table.schema().fields)


def deltalake_plan(location: str, predicate: str) -> int:
    return len(DeltaTable(location).file_uris(file_pruning_predicate=predicate))


def deltalake_list(location: str) -> int:
    """The quicker of its two ways to list (the other is `file_uris`), and the one that gives Arrow."""
    return int(pa.table(DeltaTable(location).get_add_actions()).num_rows)


# --- DuckLake --------------------------------------------------------------------------------------------------------

_TYPES = {"long": "bigint", "integer": "integer", "double": "double", "string": "varchar", "date": "date"}
_EXTENSIONS = {"duckdb": (), "sqlite": ("sqlite_scanner",), "postgres": ("postgres_scanner",)}
_REAL_FILES = 100


@dataclass(frozen=True, slots=True)
class DuckLake:
    """A DuckLake catalog that holds the generated table as `t`."""

    engine: str
    target: str
    data_path: str

    @property
    def attach_statement(self) -> str:
        prefix = "" if self.engine == "duckdb" else f"{self.engine}:"
        return f"attach 'ducklake:{prefix}{self.target}' as lake (data_path '{self.data_path}')"


def duckdb_with(*extensions: str) -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect(
        ":memory:", config={"autoinstall_known_extensions": "false", "autoload_known_extensions": "false"}
    )
    for name in extensions:
        package = Path(str(importlib.import_module(f"duckdb_extension_{name}").__file__)).parent
        connection.execute(f"load '{package}/extensions/v{duckdb.__version__}/{name}.duckdb_extension'")
    return connection


class DuckLakeSession:
    """One DuckDB with the extensions loaded. Loading them again and again costs more than anything measured here."""

    def __init__(self, lake: DuckLake) -> None:
        self.lake = lake
        self.connection = duckdb_with("ducklake", *_EXTENSIONS[lake.engine])

    def plan(self, predicate: str) -> int:
        """Attach and count: `explain` lists no files, `ducklake_list_files` takes no filter; what is kept is tiny."""
        with self._attached():
            row = self.connection.execute(f"select count(*) from lake.t where {predicate}").fetchone()
            return int(row[0]) if row else 0

    def list_files(self) -> int:
        with self._attached():
            listed = self.connection.execute("from ducklake_list_files('lake', 't')")
            return int(listed.to_arrow_table().num_rows)

    def files_read(self, predicate: str) -> int:
        """What DuckDB itself says about pruning; it checks the filled catalog and is not timed."""
        with self._attached():
            (row,) = self.connection.execute(f"explain analyze select * from lake.t where {predicate}").fetchall()
        return int(str(row[1]).split("Total Files Read: ", 1)[1].split()[0])

    def insert(self, table: str) -> None:
        """Attach, insert what is registered as `data`, detach: what a process does that comes for one commit."""
        with self._attached():
            self.connection.execute(f"insert into lake.{table} select * from data")

    def close(self) -> None:
        self.connection.close()

    @contextmanager
    def _attached(self) -> Iterator[None]:
        self.connection.execute(self.lake.attach_statement)
        try:
            yield
        finally:
            self.connection.execute("detach lake")


def ducklake_plan_from_nothing(lake: DuckLake, predicate: str) -> int:
    """The same in a DuckDB that is opened, and loads the extension, for this one plan."""
    with closing(DuckLakeSession(lake)) as session:
        return session.plan(predicate)


def new_lake(
    engine: str, folder: Path, postgres: Postgres | None, tables: Sequence[str], *, inlined: bool = False
) -> DuckLake:
    """A lake with empty tables; unless `inlined`, every insert writes a Parquet file, as Delta does."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    lake = _new_lake(engine, folder, postgres)
    with closing(duckdb_with("ducklake", *_EXTENSIONS[engine])) as connection:
        connection.execute(lake.attach_statement)
        if not inlined:
            connection.execute("call lake.set_option('data_inlining_row_limit', 0)")
        for table in tables:
            connection.execute(f"create table lake.{table} ({_columns()})")
    return lake


def _columns() -> str:
    return ", ".join(f"{name} {_TYPES.get(kind, 'timestamptz')}" for name, kind in COLUMNS.items())


def fill_ducklake(engine: str, folder: Path, spec: Spec, postgres: Postgres | None = None) -> DuckLake:
    """A table made by DuckLake, then one row a file and one a column bulk-inserted into its metadata tables.

    The files in the middle, which the predicates keep, are real (links to one small Parquet file); the others need
    not exist. Registering 100,000 real files through `ducklake_add_data_files` gives the same rows, far slower.
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    lake = _new_lake(engine, folder, postgres)
    with closing(duckdb_with("ducklake", *_EXTENSIONS[engine])) as connection:
        connection.execute(lake.attach_statement)
        connection.execute("call lake.set_option('data_inlining_row_limit', 0)")
        connection.execute(f"create table lake.t ({_columns()})")
        connection.execute("insert into lake.t select i, 1, 1.5, 'x', date '2024-06-01', now() from range(10) r(i)")
        connection.execute("detach lake")
        _fill_metadata(connection, lake, spec)
    return lake


def _new_lake(engine: str, folder: Path, postgres: Postgres | None) -> DuckLake:
    data_path = f"{folder}/data/"
    if engine == "postgres":
        assert postgres is not None, "a Postgres catalog needs a server"
        database = "_".join(("ducklake", *folder.parts[-2:]))
        postgres.create_database(database)
        return DuckLake(engine, postgres.dsn(database), data_path)
    return DuckLake(engine, f"{folder}/catalog.{engine}", data_path)


def _fill_metadata(connection: duckdb.DuckDBPyConnection, lake: DuckLake, spec: Spec) -> None:
    kind = "" if lake.engine == "duckdb" else f"(type {lake.engine})"
    connection.execute(f"attach '{lake.target}' as meta {kind}")
    row = connection.execute("select path, file_size_bytes, footer_size from meta.ducklake_data_file").fetchone()
    assert row is not None, "DuckLake wrote no data file"
    (real,) = Path(lake.data_path).rglob(str(row[0]))
    connection.execute("begin")
    for table in ("ducklake_data_file", "ducklake_file_column_stats"):
        connection.execute(f"delete from meta.{table}")
    first_file = 0
    for batch in file_batches(spec):
        files = _data_files(batch, first_file, spec, real, int(row[1]), int(row[2]))
        connection.register("files", files).execute(_INSERT_FILES)
        connection.register("stats", _column_stats(batch, first_file)).execute(_INSERT_STATS)
        first_file += batch.num_rows
    rows = spec.num_files * ROWS_PER_FILE
    connection.execute(
        "update meta.ducklake_snapshot set next_file_id = ? where snapshot_id = 2", [spec.num_files]
    ).execute("update meta.ducklake_table_stats set record_count = ?, next_row_id = ?", [rows, rows])
    connection.execute(
        "update meta.ducklake_table_column_stats set contains_null = true, min_value = null, max_value = null"
    )
    connection.execute("commit").execute("detach meta")


_INSERT_FILES = """
    insert into meta.ducklake_data_file
        (data_file_id, table_id, begin_snapshot, path, path_is_relative, file_format, record_count, file_size_bytes,
         footer_size, row_id_start)
    select file_id, 1, 2, path, true, 'parquet', 1000, size, footer_size, file_id * 1000 from files
"""
_INSERT_STATS = """
    insert into meta.ducklake_file_column_stats
        (data_file_id, table_id, column_id, column_size_bytes, value_count, null_count, min_value, max_value,
         contains_nan)
    select file_id, 1, column_id, 4000, 1000, null_count, min_value, max_value,
           case when column_id = 3 then false end
    from stats
"""


def _data_files(
    batch: pa.RecordBatch, first_file: int, spec: Spec, real: Path, size_bytes: int, footer_bytes: int
) -> pa.Table:
    ids = pa.array(range(first_file, first_file + batch.num_rows))
    paths = batch["path"].to_pylist()
    sizes = batch["size"].to_pylist()
    middle = range(spec.num_files // 2 - _REAL_FILES // 2, spec.num_files // 2 + _REAL_FILES // 2)
    for file_id in range(max(middle.start, first_file), min(middle.stop, first_file + batch.num_rows)):
        paths[file_id - first_file] = f"{file_id}.parquet"
        sizes[file_id - first_file] = size_bytes
        real.with_name(f"{file_id}.parquet").hardlink_to(real)
    return pa.table({"file_id": ids, "path": paths, "size": sizes, "footer_size": pa.repeat(footer_bytes, len(ids))})


def _column_stats(batch: pa.RecordBatch, first_file: int) -> pa.Table:
    ids = pa.array(range(first_file, first_file + batch.num_rows))
    parts = []
    for column_id, name in enumerate(COLUMNS, start=1):
        low, high = (_duckdb_text(batch[f"{side}_{name}"]) for side in ("min", "max"))
        columns: dict[str, Any] = {
            "file_id": ids,
            "column_id": pa.repeat(column_id, len(ids)),
            "null_count": pa.repeat(0 if name == "id" else 3, len(ids)),
            "min_value": low,
            "max_value": high,
        }
        parts.append(pa.table(columns))
    return pa.concat_tables(parts)


def _duckdb_text(values: pa.Array) -> pa.Array:
    text = values.cast(pa.string())
    return pc.replace_substring(text, "Z", "+00") if pa.types.is_timestamp(values.type) else text
