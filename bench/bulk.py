"""The rows of large logs: a commit of many files against inserting its rows, and a checkpoint of a large table."""

from __future__ import annotations

import sqlite3
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import psycopg

import deltalakedb as dl
from bench.lab import Lab, say
from bench.measure import peak_memory_mb
from bench.ours import CatalogAt
from bench.report import Row, at_most, below
from bench.tables import COLUMNS, Spec, append_commit, file_batches
from deltalakedb.catalog.uri import parse_catalog_uri
from deltalakedb.log.protocol.actions import AddFile

LARGE_COMMIT_NOTE = (
    "a large commit: `commit_actions` from begin to return, against its rows of `dl_add_files` and `dl_file_bounds` "
    "inserted in one transaction into an empty catalog's tables: COPY of prepared bytes on Postgres, `executemany` on "
    "SQLite, Arrow on DuckDB; three runs. With the mirror in line, its JSON is written and synced too"
)
CHECKPOINT_NOTE = (
    "checkpoint: in a new process, `connect` to the last byte; `deltalake`: `DeltaTable(path)` + "
    "`create_checkpoint()`; memory is the peak of resident size, less the size after the imports"
)
ROUNDS = 3
_CACHE_KIB = 64 * 1024  # what our own connections have


def large_commit_rows(lab: Lab) -> list[Row]:
    adds = _adds(lab.sizes.adds)
    rows = []
    for engine in lab.engines:
        taken: dict[str, list[float]] = {"off": [], "inline": [], "rows": []}
        for round_ in range(ROUNDS):
            for mirror in ("off", "inline"):
                name = f"large_{mirror}_{round_}"
                catalog = lab.empty_catalog(engine, name)
                taken[mirror].append(_commit_seconds(catalog, lab.folder / engine / name, adds, mirror))
            empty = lab.empty_catalog(engine, f"large_rows_{round_}")
            with dl.connect(empty.uri):
                pass
            taken["rows"].append(say(f"inserting its rows on {engine}", partial(_INSERT[engine], catalog, empty)))
        medians = {name: statistics.median(seconds) for name, seconds in taken.items()}
        for mirror, what in (("off", ""), ("inline", ", mirror in line")):
            ratio = medians[mirror] / medians["rows"]
            against = f"inserting the rows {medians['rows']:.2f} s"
            name = f"a commit of {lab.sizes.adds:,} adds{what}"
            rows.append(
                Row(
                    name,
                    engine,
                    f"{medians[mirror]:.2f} s",
                    against,
                    ratio,
                    "x the time",
                    at_most(2),
                    LARGE_COMMIT_NOTE,
                )
            )
    return rows


def _adds(count: int) -> list[AddFile]:
    return [
        AddFile(path, {}, size, modified, True, stats)
        for batch in file_batches(Spec(count))
        for path, size, modified, stats in zip(
            *(batch[name].to_pylist() for name in ("path", "size", "modification_time", "stats")), strict=True
        )
    ]


def _commit_seconds(at: CatalogAt, location: Path, adds: list[AddFile], mirror: str) -> float:
    with dl.connect(at.uri, mirror_mode=mirror) as catalog:
        schema = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())
        catalog.create_table(at.table, schema, location=location)

        def commit() -> float:
            begin = time.perf_counter()
            with catalog.begin(tables=[at.table]) as tx:
                tx.commit_actions(at.table, adds)
            return time.perf_counter() - begin

        seconds = say(f"a commit of {len(adds):,} adds on {at.engine}, mirror {mirror}", commit)
        info = next(iter(catalog.table_infos()))
        assert info.num_files == len(adds), f"{info.num_files} files instead of {len(adds)}"
        if mirror == "inline":
            assert (location / "_delta_log" / f"{1:020}.json").exists(), "the commit returned before it was mirrored"
    return seconds


def _insert_sqlite(source: CatalogAt, target: CatalogAt) -> float:
    tables = {}
    with sqlite3.connect(_path(source)) as connection:
        for table in _TABLES:
            tables[table] = connection.execute(f"select * from {table}").fetchall()
    connection.close()
    connection = sqlite3.connect(_path(target), isolation_level=None)
    connection.execute("pragma synchronous = full")
    connection.execute(f"pragma cache_size = -{_CACHE_KIB}")
    begin = time.perf_counter()
    connection.execute("begin immediate")
    for table, rows in tables.items():
        connection.executemany(f"insert into {table} values ({', '.join('?' * len(rows[0]))})", rows)
    connection.execute("commit")
    seconds = time.perf_counter() - begin
    connection.close()
    return seconds


def _insert_duckdb(source: CatalogAt, target: CatalogAt) -> float:
    with duckdb.connect(_path(source)) as connection:
        tables = {table: connection.execute(f"from {table}").to_arrow_table() for table in _TABLES}
    with duckdb.connect(_path(target)) as connection:
        for table, rows in tables.items():
            connection.register(f"rows_of_{table}", rows)
        begin = time.perf_counter()
        connection.execute("begin")
        for table in tables:
            connection.execute(f"insert into {table} from rows_of_{table}")
        connection.execute("commit")
        return time.perf_counter() - begin


def _insert_postgres(source: CatalogAt, target: CatalogAt) -> float:
    tables = {}
    with _psycopg(source) as connection:
        for table in _TABLES:
            with connection.cursor().copy(f"copy deltalakedb.{table} to stdout (format binary)") as copy:
                tables[table] = b"".join(bytes(part) for part in copy)
    with _psycopg(target) as connection:
        begin = time.perf_counter()
        for table, content in tables.items():
            with connection.cursor().copy(f"copy deltalakedb.{table} from stdin (format binary)") as copy:
                copy.write(content)
        connection.commit()
        return time.perf_counter() - begin


_TABLES = ("dl_add_files", "dl_file_bounds")
_INSERT: dict[str, Callable[[CatalogAt, CatalogAt], float]] = {
    "sqlite": _insert_sqlite,
    "duckdb": _insert_duckdb,
    "postgres": _insert_postgres,
}


def _path(at: CatalogAt) -> str:
    return str(parse_catalog_uri(at.uri).target)


def _psycopg(at: CatalogAt) -> psycopg.Connection[Any]:
    target = parse_catalog_uri(at.uri).target
    assert isinstance(target, dict)
    return psycopg.connect(**target)


def checkpoint_rows(lab: Lab) -> list[Row]:
    """A checkpoint of all files of the large table."""
    num_files = lab.sizes.large_files
    log = lab.log_of(num_files)
    theirs = [_deltalake_checkpoint(lab, log, Spec(num_files), round_) for round_ in range(ROUNDS)]
    their_seconds, their_mb = (statistics.median(values) for values in zip(*theirs, strict=True))
    rows = []
    for engine in lab.engines:
        catalog = lab.catalog(engine, log)
        ours = [_our_checkpoint(lab, catalog, num_files, round_) for round_ in range(ROUNDS)]
        seconds, megabytes = (statistics.median(values) for values in zip(*ours, strict=True))
        what, bar = f"checkpoint, {num_files:,} files", at_most(2 if engine == "postgres" else 1)
        against = f"deltalake {their_seconds:.1f} s"
        rows.append(
            Row(what, engine, f"{seconds:.1f} s", against, seconds / their_seconds, "x the time", bar, CHECKPOINT_NOTE)
        )
        memory = f"deltalake +{their_mb:,.0f} MB"
        rows.append(
            Row(f"{what}, memory", engine, f"+{megabytes:,.0f} MB", memory, megabytes, " MB", below(1000, " MB"))
        )
    return rows


def _deltalake_checkpoint(lab: Lab, log: Path, spec: Spec, round_: int) -> tuple[float, float]:
    """On a copy with one commit after the checkpoint it comes with, so that there is one to write."""
    copy = lab.folder / "checkpoints" / f"deltalake_{round_}"
    (copy / "_delta_log").mkdir(parents=True)
    for file in (log / "_delta_log").iterdir():
        (copy / "_delta_log" / file.name).hardlink_to(file)
    version = append_commit(copy, spec)
    prepare = "import time\nfrom deltalake import DeltaTable"
    call = (
        "begin = time.perf_counter()\n"
        f"DeltaTable({str(copy)!r}).create_checkpoint()\n"
        "answer = time.perf_counter() - begin"
    )
    megabytes, seconds = say("a checkpoint by deltalake", lambda: peak_memory_mb(prepare, call))
    assert (copy / "_delta_log" / f"{version:020}.checkpoint.parquet").exists()
    return float(seconds), megabytes


def _our_checkpoint(lab: Lab, catalog: CatalogAt, num_files: int, round_: int) -> tuple[float, float]:
    folder = lab.folder / "checkpoints" / f"{catalog.engine}_{round_}"
    folder.mkdir(parents=True)
    prepare = (
        "import time\nimport deltalakedb as dl\n"
        "from deltalakedb.files.writer import FileTxnLogWriter\n"
        "from deltalakedb.store.names import parse_table_name\n"
        "from deltalakedb.catalog.entries import require_table\n"
        "from deltalakedb.store.reader import SqlTxnLogReader"
    )
    call = (
        "begin = time.perf_counter()\n"
        f"catalog = dl.connect({catalog.uri!r})\n"
        "with catalog.store.read() as conn:\n"
        f"    row = require_table(conn, parse_table_name({catalog.table!r}))\n"
        "snapshot = SqlTxnLogReader(catalog.store, row).snapshot()\n"
        f"writer = FileTxnLogWriter({str(folder)!r}, table={catalog.table!r})\n"
        "written = writer.write_checkpoint(snapshot, protocol=snapshot.protocol, tombstone_cutoff_ms=0)\n"
        "answer = [time.perf_counter() - begin, written.num_add_files]"
    )
    megabytes, (seconds, written) = say(f"a checkpoint from {catalog.engine}", lambda: peak_memory_mb(prepare, call))
    assert written == num_files, f"{written} files in the checkpoint instead of {num_files}"
    return float(seconds), megabytes
