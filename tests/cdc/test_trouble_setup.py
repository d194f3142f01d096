"""Captures in trouble that need no Spark: a full disk, publications that go and come, other servers, keys that go."""

import resource
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import deltalakedb as dl
from deltalakedb.cdc.control import Capture
from deltalakedb.cdc.copy.resnapshot import request_resnapshot
from deltalakedb.cdc.decode.reading import TaskFailed
from deltalakedb.cdc.run.opening import add_tables, check_start, open_capture, stop_departed
from deltalakedb.cdc.run.status import capture_status
from deltalakedb.cdc.settings import CaptureSettings
from deltalakedb.cdc.source.postgres import connect, flush_lsn
from deltalakedb.cdc.source.slots import find_slot
from deltalakedb.exceptions import CaptureError, CaptureSetupError, DeltaError, WrongServerError
from tests.cdc.conftest import Lake, Source, SourceCluster, new_cluster_folder
from tests.cdc.evolving import Evolving, evolving

ORDERS = "create table orders (id bigint primary key, name text)"
ITEMS = "create table items (id int primary key, note text)"
SMALL_BYTES = 1 << 20


@contextmanager
def a_full_disk() -> Iterator[None]:
    """No file of this process may grow beyond a megabyte: what is too large fails as on a disk that is full."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (SMALL_BYTES, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def parquet_files(lake: Lake) -> set[Path]:
    return set(lake.warehouse.rglob("*.parquet"))


def large_rows(source: Source, first: int, last: int) -> None:
    """Texts that cannot be compressed: about 40 KB each."""
    source.run(
        "insert into orders select n, (select string_agg(md5(random()::text || i || n), '') "
        f"from generate_series(1, 1250) i) from generate_series({first}, {last}) n"
    )


def test_a_disk_that_is_full_while_changes_are_written_loses_nothing(lake: Lake, source: Source) -> None:
    with evolving(lake, source, ORDERS, ITEMS) as capture:
        source.run("insert into orders values (0, 'small')")
        capture.catch_up()
        before, at = parquet_files(lake), capture.capture.lsn
        large_rows(source, 1, 60)
        end = flush_lsn(capture.conn)
        with a_full_disk():
            (failed,) = [one for one in capture.read(end=end) if isinstance(one, TaskFailed)]
        error = failed.to_error()
        assert isinstance(error, CaptureError)
        assert "cannot be written" in str(error)
        assert parquet_files(lake) == before, "files are left"
        assert capture.capture.lsn == at
        capture.catch_up()
        capture.check_equal(source)


def test_a_disk_that_is_full_while_rows_are_merged_loses_nothing(lake: Lake, source: Source) -> None:
    with evolving(lake, source, ORDERS) as capture:
        large_rows(source, 1, 5)
        capture.catch_up()
        source.run("delete from orders where id = 3", "update orders set name = name || '!' where id = 2")
        large_rows(source, 10, 60)
        end = flush_lsn(capture.conn)
        read = capture.read(end=end)
        before, at = parquet_files(lake), capture.capture.lsn
        with a_full_disk(), pytest.raises(DeltaError) as told:
            capture.commit(read, end)
        assert "cannot write file:" in str(told.value)
        assert "orders/part-" in str(told.value)
        assert capture.capture.lsn == at
        assert parquet_files(lake) < before, "the files of the batch are gone too"
        capture.catch_up()
        capture.check_equal(source)


def test_a_publication_that_is_missing_is_told_with_what_to_do(lake: Lake, source: Source) -> None:
    with evolving(lake, source, ORDERS) as capture:
        source.run("insert into orders values (1, 'a')")
        capture.catch_up()
        source.run("drop publication shop", "insert into orders values (2, 'b')")
        (failed,) = [one for one in capture.read() if isinstance(one, TaskFailed)]
        assert isinstance(failed.to_error(), CaptureSetupError)
        assert "create publication shop for all tables" in failed.message
        assert "dl cdc resnapshot" in failed.message
        with pytest.raises(CaptureSetupError, match="create publication shop for all tables"):
            open_capture(lake.catalog, capture.conn, capture.settings)


@pytest.mark.parametrize(
    "statements",
    [
        ("drop publication shop", "insert into orders values (2, 'lost')", "create publication shop for all tables"),
        (
            "drop publication shop",
            "create publication shop for table orders, items",
            "alter publication shop drop table orders",
            "insert into orders values (2, 'lost')",
            "alter publication shop add table orders",
        ),
    ],
)
def test_what_was_not_published_for_a_while_is_not_silently_missing(
    lake: Lake, source: Source, statements: tuple[str, ...]
) -> None:
    with evolving(lake, source, ORDERS, ITEMS) as capture:
        source.run("insert into orders values (1, 'a')")
        capture.catch_up()
        source.run(*statements, "insert into orders values (3, 'c')")
        capture.settle()
        reason = capture.table().reason or ""
        assert "for a while, and what was changed meanwhile is in no message" in reason
        assert "dl cdc resnapshot public.orders" in reason


def test_another_server_with_the_same_names_is_refused(lake: Lake, source: Source) -> None:
    with evolving(lake, source, ORDERS) as capture, new_cluster_folder() as folder:
        other = SourceCluster(folder)
        try:
            with other.connect() as connection:
                connection.execute(f"create database {source.database}".encode())
            there = Source(other, source.database)
            there.run(ORDERS, "create publication shop for all tables")
            there.run(f"select pg_create_logical_replication_slot('{capture.settings.slot}', 'pgoutput')")
            with connect(there.dsn) as conn, pytest.raises(WrongServerError, match="another server"):
                open_capture(lake.catalog, conn, replace(capture.settings, source=there.dsn))
        finally:
            other.remove()


def test_a_captured_table_that_loses_its_key_stops_nobody_else_at_the_next_start(lake: Lake, source: Source) -> None:
    with evolving(lake, source, ORDERS, ITEMS) as capture:
        source.run("insert into items values (1, 'x')", "alter table orders drop constraint orders_pkey")
        capture.catch_up()
        capture.capture = restarted(capture)
        assert "nothing names its rows" in (capture.table().reason or "")
        assert capture.table("public.items").stage == "streaming"


def test_a_table_that_comes_and_cannot_be_captured_stops_alone_until_it_can(lake: Lake, source: Source) -> None:
    with evolving(lake, source, ORDERS) as capture:
        source.run(
            "create table loose (x int)",
            'create table "a\nb" (id int primary key)',
            'create table "ORDERS" (id int primary key)',
            "insert into loose values (1)",
            "insert into orders values (1, 'one')",
        )
        capture.capture = restarted(capture)
        capture.catch_up()
        capture.check_equal(source, "public.orders")
        stages = {name: table.stage for name, table in capture.capture.tables.items()}
        assert stages == dict.fromkeys(stages, "stopped") | {"public.orders": "streaming"}
        found = capture_status(lake.catalog, capture.settings)
        told = "\n".join(found.problems)
        assert "public.loose is stopped: nothing names its rows: give it a primary key, or alter table" in told
        assert "then dl cdc resnapshot public.loose copies it" in told
        assert "public.ORDERS is stopped: it and public.orders would both be lake.ORDERS" in told
        assert "control character U+000A" in told
        assert restarted(capture) == capture.capture, "the next start has nothing to add"
        # Asked for too early it is refused; with a key it waits for its copy.
        with pytest.raises(CaptureSetupError, match=r"public\.loose: nothing names its rows"):
            request_resnapshot(lake.catalog, capture.settings, ["loose"])
        source.run("alter table loose add primary key (x)")
        request_resnapshot(lake.catalog, capture.settings, ["loose"])
        capture.capture = restarted(capture)
        assert capture.table("public.loose").stage == "pending"
        assert [column.name for column in capture.table("public.loose").columns] == ["x"]


def test_the_first_start_leaves_out_a_table_that_it_cannot_capture_and_goes_on(lake: Lake, source: Source) -> None:
    with evolving(lake, source, ORDERS, "create table loose (x int)") as capture:
        source.run("insert into orders values (1, 'one')")
        capture.catch_up()
        capture.check_equal(source)
        (problem,) = capture_status(lake.catalog, capture.settings).problems
        assert "public.loose is stopped: nothing names its rows: give it a primary key" in problem


@pytest.mark.parametrize(
    ("statements", "given", "said"),
    [
        (["create table loose (x int)"], {}, r"public\.loose.*replica identity full.*--tables"),
        ([ORDERS, "create table loose (x int)"], {"tables": ("orders", "loose")}, r"public\.loose.*replica identity"),
        ([ORDERS], {"tables": ("orders", "nowhere")}, "there is no table public.nowhere"),
        ([ORDERS], {"publication": "other"}, "has no publication other; there are shop"),
    ],
)
def test_a_first_start_that_is_refused_leaves_nothing_behind(
    lake: Lake, source: Source, statements: list[str], given: dict[str, Any], said: str
) -> None:
    source.run(*statements, "create publication shop for all tables")
    settings = CaptureSettings(**{"source": source.dsn, "publication": "shop", "namespace": "lake", **given})
    with connect(source.dsn) as conn:
        for start in (check_start, open_capture):
            with pytest.raises(CaptureSetupError, match=said):
                start(lake.catalog, conn, settings)
        assert find_slot(conn, settings.slot) is None
    assert lake.catalog.tables() == []


def test_a_slot_whose_capture_cannot_be_noted_goes_again(
    lake: Lake, source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DL_SQL_BUSY_TIMEOUT", "1")
    source.run(ORDERS, "create publication shop for all tables")
    settings = CaptureSettings(source.dsn, "shop", namespace="lake")
    lake.catalog.create_namespace("lake")
    lake.catalog.create_table("lake.orders", "id int")
    with (
        dl.connect(lake.uri, warehouse=str(lake.warehouse)) as catalog,
        connect(source.dsn) as conn,
        closed_for_writing(lake),
        pytest.raises((DeltaError, OSError)),
    ):
        open_capture(catalog, conn, settings)
    with connect(source.dsn) as conn:
        assert find_slot(conn, settings.slot) is None


@contextmanager
def closed_for_writing(lake: Lake) -> Iterator[None]:
    """As if the catalog's database could only be read: a transaction of somebody else is in the way of all."""
    path = lake.uri.removeprefix("deltasql://sqlite/")
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("begin immediate")
    try:
        yield
    finally:
        other.close()


def test_a_later_start_says_before_spark_that_a_table_it_is_to_add_is_missing(lake: Lake, source: Source) -> None:
    with evolving(lake, source, ORDERS) as capture:
        check_start(lake.catalog, capture.conn, capture.settings)
        more = replace(capture.settings, tables=("orders", "nowhere"))
        with pytest.raises(CaptureSetupError, match="there is no table public.nowhere"):
            check_start(lake.catalog, capture.conn, more)


def test_a_captured_table_that_was_asked_for_by_name_and_dropped_stops_alone(lake: Lake, source: Source) -> None:
    with evolving(lake, source, ORDERS, ITEMS, tables=("orders", "public.items")) as capture:
        source.run("drop table orders", "insert into items values (1, 'x')")
        capture.catch_up()
        capture.capture = restarted(capture)
        assert capture.table().stage == "stopped"
        capture.check_equal(source, "public.items")


def restarted(capture: Evolving) -> Capture:
    """What a start and a look at the publication make of it."""
    catalog, conn, settings = capture.lake.catalog, capture.conn, capture.settings
    opened = add_tables(catalog, conn, open_capture(catalog, conn, settings), settings)
    return stop_departed(catalog, conn, opened, settings)
