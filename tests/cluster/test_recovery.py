"""Drivers, workers and endpoints of a cluster are killed: each row is written once, by its rows and `txn` actions."""

import json
import os
import signal
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

import deltalakedb as dl
from deltalakedb.catalog.entries import require_table
from deltalakedb.store.names import parse_table_name
from tests.cluster.conftest import StartDriver
from tests.cluster.serving import ServedCatalog
from tests.cluster.streams import written
from tests.faults.spark_driver import deliver
from tests.fixtures.cluster import Cluster
from tests.fixtures.sizes import sized
from tests.spark.peer import Peer

pytestmark = [pytest.mark.spark, pytest.mark.cluster]

KILLS = sized(2, 8)
FILES = 3 * KILLS + 2
ROWS = 30
WAIT_SECONDS = 120.0


def wait_until(what: str, is_true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not is_true():
        assert time.monotonic() < deadline, f"it did not happen in time: {what}"
        time.sleep(0.05)


def is_newer(catalog: dl.Catalog, table: str, version: int) -> bool:
    return catalog.table(table).version() > version


def kill_driver(driver: Peer) -> None:
    """The Python process and its JVM, at once."""
    python = driver._process.pid
    jvm = Path(f"/proc/{python}/task/{python}/children").read_text().split()
    for pid in (python, *map(int, jvm)):
        os.kill(pid, signal.SIGKILL)
    driver._process.wait()
    driver.close()


def create_tables(driver: Peer, namespace: str, disk: Path) -> None:
    driver.sql(
        f"create table {namespace}.events (id long) using delta location '{disk / namespace / 'events'}'",
        f"create table {namespace}.copy (id long) using delta",
        f"create table {namespace}.totals (id long, rows long) using delta",
    )


def application_versions(catalog: dl.Catalog, table: str) -> dict[str, list[int]]:
    """The `txn` actions of a table's commits, by application, in order."""
    with catalog.store.read() as conn:
        table_id = require_table(conn, parse_table_name(table)).table_id
    rows = catalog.sql(
        f"select app_id, app_version from dl_txn_actions where table_id = {table_id:d} order by version"
    ).to_pylist()
    found: dict[str, list[int]] = {}
    for row in rows:
        found.setdefault(row["app_id"], []).append(row["app_version"])
    return found


def check_streams(catalog: dl.Catalog, namespace: str, *, files: int | None) -> None:
    """Each row that is there is there once, each batch was noted once; with `files`, all of them are there."""
    for table in (f"{namespace}.events", f"{namespace}.copy"):
        ids = sorted(catalog.table(table).to_pyarrow_table()["id"].to_pylist())
        assert ids == list(range(len(ids))), table
        assert len(ids) % ROWS == 0
        if files is not None:
            assert len(ids) == files * ROWS
        versions = application_versions(catalog, table)
        assert len(versions) == bool(ids), table
        for found in versions.values():
            # One file a batch, or two where a killed driver had chosen the first of them and noted it nowhere.
            assert found == list(range(len(found))), table
            assert len(ids) // (2 * ROWS) <= len(found) <= len(ids) // ROWS, table
    totals = {row["id"]: row["rows"] for row in catalog.table(f"{namespace}.totals").to_pyarrow_table().to_pylist()}
    copied = catalog.table(f"{namespace}.copy").to_pyarrow_table().num_rows
    assert totals == {remainder: copied // 3 for remainder in range(3) if copied}


def test_streams_whose_driver_is_killed_go_on_and_write_each_row_once(
    start_driver: StartDriver, catalog: dl.Catalog, disk: Path, tmp_path: Path
) -> None:
    namespace, tables = "killed", ("killed.events", "killed.copy")
    deliver(tmp_path / "in", FILES, ROWS)
    arguments = f"{namespace!r}, {str(tmp_path / 'in')!r}, {str(tmp_path / 'checkpoint')!r}"
    code = f"from tests.cluster import streams\nqueries = streams.start(spark, {arguments})"
    for kill in range(KILLS):
        driver = start_driver()
        if kill == 0:
            create_tables(driver, namespace, disk)
        # In turn, one of them has written in this life, and is in the middle of its next batch.
        watched = tables[kill % 2]
        before = catalog.table(watched).version()
        driver.ask(code)
        wait_until(f"{watched} was written", partial(is_newer, catalog, watched, before))
        kill_driver(driver)
        check_streams(catalog, namespace, files=None)
    driver = start_driver()
    ran = driver.ask(f"{code}\nanswer = streams.finish(queries)")
    assert any(ran), "nothing was left for the last driver to do"
    check_streams(catalog, namespace, files=FILES)
    driver.close()


def test_a_worker_that_is_killed_in_the_middle_of_a_write_loses_and_doubles_no_row(
    driver: Peer, cluster: Cluster, catalog: dl.Catalog, disk: Path
) -> None:
    table, folder = "worker.rows", disk / "worker"
    driver.sql(f"create table {table} (id long) using delta location '{folder}'")
    driver.ask("from tests.cluster import streams; answer = streams.slowly(spark, 8, 8, 0.01).count()")
    driver.tell(f"streams.slowly(spark, 400, 20, 0.5).write.format('delta').mode('append').saveAsTable({table!r})")
    wait_until("some tasks have written", lambda: len(written(folder)) >= 4)
    assert catalog.table(table).version() == 0
    cluster.kill_worker(0)
    driver.answer()
    assert catalog.table(table).version() == 1
    assert sorted(catalog.table(table).to_pyarrow_table()["id"].to_pylist()) == list(range(400))
    live = {uri.rpartition("/")[2] for uri in catalog.table(table).file_uris()}
    assert live <= written(folder)
    report = catalog.validate(table)
    assert (report.drifts, report.lag) == ((), 0)
    cluster.start_worker()
    cluster.wait_for_workers(2)


def test_an_endpoint_that_is_killed_and_started_again_loses_and_doubles_no_row(
    driver: Peer, served: ServedCatalog, catalog: dl.Catalog, disk: Path, tmp_path: Path
) -> None:
    files, namespace = 6, "restarted"
    deliver(tmp_path / "in", files, ROWS)
    create_tables(driver, namespace, disk)
    arguments = f"{namespace!r}, {str(tmp_path / 'in')!r}, {str(tmp_path / 'checkpoint')!r}"
    driver.ask(f"from tests.cluster import streams\nqueries = streams.start(spark, {arguments})")
    for version in (0, 2):
        wait_until("a stream wrote", partial(is_newer, catalog, f"{namespace}.copy", version))
        served.kill()
        time.sleep(1.0)
        served.start()
    assert driver.ask("answer = streams.finish(queries)") == [files, files]
    check_streams(catalog, namespace, files=files)
    code, said = served.dl("validate", "--all", "--json")
    assert code == 0, said
    assert json.loads(said.partition("[")[1] + said.partition("[")[2])
