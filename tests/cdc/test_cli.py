"""`dl cdc` as somebody types it: what is wrong, what is running, what is stopped."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from urllib.request import urlopen

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner, Result

from deltalakedb.cdc.run.presence import RunnerPresence
from deltalakedb.cli import app
from deltalakedb.cli.cdc import served_metrics
from deltalakedb.exceptions import ConfigError
from tests.cdc.capturing import Capturing, wait_until
from tests.cdc.conftest import Lake, Source

Dl = Callable[..., Result]
PROGRAM = [sys.executable, "-c", "from deltalakedb.cli import main; main()"]
SHOP = (
    "create table orders (id int primary key, note text)",
    "insert into orders select n, 'note ' || n from generate_series(1, 20) n",
    "create publication shop for table orders",
)


@pytest.fixture
def dl(lake: Lake, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Dl:
    """Runs `dl` on the lake, without any setting of this machine's own."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "no-config"))
    monkeypatch.setenv("DL_CATALOG", lake.uri)
    monkeypatch.setenv("DL_WAREHOUSE", str(lake.warehouse))

    def run(*arguments: str) -> Result:
        return CliRunner().invoke(app, [*arguments], prog_name="dl")

    return run


def slot_of(source: Source) -> str:
    """What a capture of the publication calls its slot."""
    return f"dl_{source.database}_shop"


def start(dl: Dl, source: Source, *more: str) -> Result:
    return dl("cdc", "start", "--source", source.dsn, "--publication", "shop", "--namespace", "shop", *more)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "a capture needs a source"),
        (["--source", "dbname=x"], "a capture needs a publication"),
        (["--source", "what is this", "--publication", "shop"], "no connection string"),
        (["--source", "dbname=x", "--publication", "shop", "--batch-size", "lots"], "setting cdc.batch_size: 'lots'"),
        (["--source", "dbname=x", "--publication", "shop", "--batch-window", "soon"], "setting cdc.batch_window"),
        (["--source", "dbname=x", "--publication", "shop", "--slot", "No!"], "cannot name a slot"),
        (["--config", "nowhere.toml"], "nowhere.toml does not exist"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_what_is_written_wrongly_is_said_before_anything_starts(dl: Dl, arguments: list[str], said: str) -> None:
    result = dl("cdc", "start", *arguments)
    assert result.exit_code == 2, result.output
    assert said in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1


def test_a_source_that_does_not_answer_or_refuses_us_is_named_without_its_password(dl: Dl, source: Source) -> None:
    nowhere = dl("cdc", "start", "--source", "postgresql://me:geheim@localhost:1/shop", "--publication", "shop")
    assert nowhere.exit_code == 1
    assert "cannot be reached" in nowhere.stderr
    assert "localhost:1/shop" in nowhere.stderr
    assert "geheim" not in nowhere.output
    wrong = source.dsn.replace(source.database, "no_such_database")
    refused = dl("cdc", "start", "--source", wrong, "--publication", "shop")
    assert refused.exit_code == 1
    assert 'database "no_such_database" does not exist' in refused.stderr


def test_a_publication_that_is_not_there_is_said_with_the_sql_that_makes_it(dl: Dl, source: Source) -> None:
    result = start(dl, source)
    assert result.exit_code == 1
    assert "create publication shop for all tables" in result.stderr


@pytest.mark.parametrize(
    ("statements", "more", "said"),
    [
        (["create table loose (x int)"], [], "nothing names its rows"),
        (["create table orders (id int primary key)"], ["--tables", "orders,lost"], "there is no table public.lost"),
        (["create table orders (id int primary key)"], ["--tables", "a.b.c"], "is not schema.name"),
    ],
)
def test_what_the_source_refuses_is_said_before_spark_starts_and_leaves_nothing(
    dl: Dl,
    lake: Lake,
    source: Source,
    monkeypatch: pytest.MonkeyPatch,
    statements: list[str],
    more: list[str],
    said: str,
) -> None:
    monkeypatch.setenv("JAVA_HOME", "/nowhere")  # a Spark that began to start would complain of it
    source.run(*statements, "create publication shop for all tables")
    result = start(dl, source, *more)
    assert result.exit_code in (1, 2)
    assert said in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1
    assert lake.catalog.tables() == []
    assert source.run(f"select count(*) from pg_replication_slots where slot_name = '{slot_of(source)}'") == [(0,)]


def test_status_ends_with_1_when_something_needs_a_person(dl: Dl, source: Source) -> None:
    source.run("create publication shop")
    empty = dl("cdc", "status", "--source", source.dsn, "--publication", "shop")
    assert empty.exit_code == 1, empty.output
    assert "the publication shop has no tables" in empty.stderr
    source.run("create table orders (id int primary key)", "alter publication shop add table orders")
    assert dl("cdc", "status", "--source", source.dsn, "--publication", "shop").exit_code == 0


def test_before_the_first_start_status_says_so_and_stop_finds_nobody(dl: Dl, source: Source) -> None:
    source.run(*SHOP)
    status = dl("cdc", "status", "--source", source.dsn, "--publication", "shop")
    assert status.exit_code == 0, status.output
    assert "not started yet; dl cdc start begins it" in status.stdout
    unknown = dl("cdc", "status")
    assert unknown.exit_code == 2
    assert "the catalog has no such capture" in unknown.stderr
    stop = dl("cdc", "stop", "--source", source.dsn, "--publication", "shop")
    assert stop.exit_code == 0
    assert "no process runs the capture" in stop.stderr
    again = dl("cdc", "resnapshot", "--source", source.dsn, "--publication", "shop")
    assert again.exit_code == 1
    assert "was never started" in again.stderr


def test_a_second_start_is_refused_and_stop_says_who_is_still_busy(dl: Dl, source: Source) -> None:
    source.run(*SHOP)
    with RunnerPresence(source.dsn, slot_of(source)):
        second = start(dl, source)
        assert second.exit_code == 1
        assert "is running already (process " in second.stderr
        stop = dl("cdc", "stop", "--source", source.dsn, "--publication", "shop", "--timeout", "0.1")
        assert stop.exit_code == 1
        assert "still busy" in stop.stderr


def test_a_start_that_is_ended_while_spark_begins_captures_nothing_and_is_no_failure(
    lake: Lake, source: Source, tmp_path: Path
) -> None:
    source.run(*SHOP)
    # A Java that never gets as far as Spark, so that the test need not either.
    java = tmp_path / "java" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text('#!/bin/sh\ntouch "$JAVA_HOME/began.$PPID"\nsleep 4\nexit 1\n')
    java.chmod(0o755)
    command = [*PROGRAM, "cdc", "start", "--source", source.dsn, "--publication", "shop"]
    environment = {
        **os.environ,
        "JAVA_HOME": str(tmp_path / "java"),
        "XDG_CONFIG_HOME": str(tmp_path / "no-config"),
        "DL_CATALOG": lake.uri,
        "DL_WAREHOUSE": str(lake.warehouse),
    }
    runs = {
        number: subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True, start_new_session=True)
        for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        wait_until(lambda: len(list((tmp_path / "java").glob("began.*"))) == len(runs))
        for number, process in runs.items():
            os.killpg(process.pid, number)  # as a terminal does, and a service manager: Java hears of it, too
        for process in runs.values():
            _, said = process.communicate(timeout=60)
            assert process.returncode == 0, said
            assert "stopped before anything was captured" in said
            assert "Traceback" not in said
    finally:
        for process in runs.values():
            process.kill()
    assert lake.catalog.tables() == []
    with RunnerPresence(source.dsn, slot_of(source)):
        assert source.run(f"select count(*) from pg_replication_slots where slot_name = '{slot_of(source)}'") == [(0,)]


def test_a_capture_once_from_a_toml_file_is_shown_by_status_and_copied_anew_on_demand(
    dl: Dl, source: Source, spark: SparkSession, tmp_path: Path
) -> None:
    assert spark.version
    source.run(*SHOP)
    file = tmp_path / "capture.toml"
    file.write_text(f'[cdc]\nsource = "{source.dsn}"\npublication = "shop"\nnamespace = "shop"\nbatch_size = "1MB"\n')
    first = dl("cdc", "start", "--once", "--config", str(file))
    assert first.exit_code == 0, first.output
    assert "public.orders: copied, 20 rows" in first.stderr
    source.run("update orders set note = 'new' where id < 4", "delete from orders where id = 4")
    second = dl("cdc", "start", "--once", "--config", str(file), "--json")
    assert second.exit_code == 0, second.output
    *batches, ended = [json.loads(line) for line in second.stdout.splitlines()]
    assert [batch["changes"] for batch in batches] == [{"public.orders": {"update": 3, "delete": 1}}]
    assert (ended["rows"], ended["transactions"], ended["stopped"]) == (4, 2, {})

    status = dl("cdc", "status", "--config", str(file), "--json")
    assert status.exit_code == 0, status.output
    shown = json.loads(status.stdout)
    assert (shown["state"], shown["problems"], shown["slot"]) == ("stopped", [], slot_of(source))
    (table,) = shown["tables"]
    assert (table["stage"], table["rows"], table["captured"]) == ("streaming", 19, 4)
    assert table["rows_per_second"] > 0
    assert shown["slot_health"]["wal_status"] == "reserved"
    page = dl("cdc", "status", "--config", str(file))
    assert "stopped; dl cdc start goes on with it" in page.stdout
    without = dl("cdc", "status")  # the lake alone, found by its control table
    assert "unknown, the source was not asked" in without.stdout

    unknown = dl("cdc", "resnapshot", "customers", "--config", str(file))
    assert unknown.exit_code == 1
    assert "has no table public.customers; it has public.orders" in unknown.stderr
    would = dl("cdc", "resnapshot", "--dry-run", "--config", str(file))
    assert would.stdout == "public.orders would be copied again\n"
    with RunnerPresence(source.dsn, slot_of(source)):
        asked = dl("cdc", "resnapshot", "orders", "--config", str(file))
    assert asked.stdout == "public.orders will be copied again by the running capture\n"
    asked = dl("cdc", "resnapshot", "orders", "--config", str(file))
    assert asked.stdout == "public.orders will be copied again by the next dl cdc start\n"
    waiting = json.loads(dl("cdc", "status", "--config", str(file), "--json").stdout)
    assert waiting["tables"][0]["stage"] == "pending"
    assert waiting["problems"] == ["public.orders waits for its copy: dl cdc start makes it"]


def test_metrics_are_served_while_the_block_lasts() -> None:
    with served_metrics(0) as port, urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        assert b"deltalakedb_cdc_lag_bytes" in answer.read()
        with pytest.raises(ConfigError, match=f"port {port}"), served_metrics(port):
            pass
    with served_metrics(None) as nowhere:
        assert nowhere is None


def test_a_running_capture_is_seen_and_stopped(dl: Dl, source: Source, lake: Lake, spark: SparkSession) -> None:
    source.run(*SHOP)
    with Capturing(lake, source, spark, batch_window="200ms") as capturing:
        wait_until(lambda: _rows(lake) == 20, capturing)
        source.run("insert into orders values (100, 'while it runs')")
        wait_until(lambda: _rows(lake) == 21, capturing)
        shown = json.loads(dl("cdc", "status", "--source", source.dsn, "--json").stdout)
        assert shown["state"] == "running"
        assert shown["runner"]["pid"] == os.getpid()
        assert shown["lag_seconds"] is not None
        stop = dl("cdc", "stop", "--source", source.dsn)
        assert stop.exit_code == 0, stop.output
        assert f"stopped: process {os.getpid()}" in stop.stderr
        stopped = dl("cdc", "status", "--source", source.dsn)
        assert "stopped; dl cdc start goes on with it" in stopped.stdout


def _rows(lake: Lake) -> int:
    return lake.catalog.table("shop.orders").count() if "shop.orders" in lake.catalog.tables() else 0
