"""Captures in trouble: servers that restart, connections that break, slots that others use, move or drop."""

import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import psycopg
import pytest
from pyspark.sql import SparkSession

from deltalakedb import cdc
from deltalakedb.cdc.copy.resnapshot import request_resnapshot
from deltalakedb.cdc.settings import CaptureSettings
from deltalakedb.cdc.source.postgres import connect
from deltalakedb.cdc.source.slots import find_slot
from deltalakedb.exceptions import SlotLostError, SourceUnavailableError, TableNotFoundError
from tests.cdc.capturing import Capturing, capture_once, wait_until
from tests.cdc.conftest import Lake, Source
from tests.cdc.judging import captured, check_current, check_replayed
from tests.faults.cutting_proxy import cutting

PUBLICATION = "trouble"
SLOT = "dl_trouble"
WHAT: dict[str, Any] = {"publication": PUBLICATION, "slot": SLOT, "namespace": "lake"}
TABLES = (
    "create table orders (id bigint primary key, name text)",
    "create table items (id bigint primary key, order_id bigint)",
    f"create publication {PUBLICATION} for all tables",
)
PATIENCE_SECONDS = 60


class Shop:
    """Writes to both tables in one transaction, again and again; `numbers` says how far it is."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self.numbers = 0

    def sell(self, count: int = 5) -> None:
        """Through restarts: what was not committed is done again."""
        end = self.numbers + count
        deadline = time.monotonic() + PATIENCE_SECONDS
        while self.numbers < end:
            with suppress(psycopg.OperationalError), self._source.connect() as connection:
                self.numbers = max(self._last(connection), self.numbers)
                while self.numbers < end:
                    with connection.transaction():
                        self._transact(connection, self.numbers + 1)
                    self.numbers += 1
            assert time.monotonic() < deadline, "the source does not come back"

    def _last(self, connection: psycopg.Connection[tuple[object, ...]]) -> int:
        row = connection.execute("select coalesce(max(id), 0) from orders").fetchone()
        assert row is not None
        return int(str(row[0]))

    def _transact(self, connection: psycopg.Connection[tuple[object, ...]], number: int) -> None:
        connection.execute("insert into orders values (%s, %s)", [number, f"order {number}"])
        connection.execute("insert into items select %s * 10 + n, %s from generate_series(1, 3) n", [number, number])
        if number % 3 == 0:
            connection.execute("update orders set name = 'changed' where id = %s", [number - 1])
            connection.execute("delete from items where order_id = %s", [number - 2])


@pytest.fixture
def shop(source: Source) -> Shop:
    source.run(*TABLES)
    made = Shop(source)
    made.sell(3)
    return made


def settings_of(source: Source) -> CaptureSettings:
    return CaptureSettings(source.dsn, PUBLICATION, slot=SLOT, namespace="lake")


def check(lake: Lake, source: Source, spark: SparkSession) -> None:
    """After one more run everything is there, once."""
    capture_once(lake, source, spark, **WHAT)
    capture = captured(lake.catalog, settings_of(source))
    check_current(lake.catalog, source, capture)
    check_replayed(lake.catalog, source, capture)


def arrived(lake: Lake, shop: Shop) -> Callable[[], bool]:
    """Whether the lake has the newest order and an item of it."""

    def look() -> bool:
        try:
            orders, items = (lake.catalog.table(f"lake.{name}").to_pyarrow_table() for name in ("orders", "items"))
        except TableNotFoundError:  # not copied yet
            return False
        return shop.numbers in orders["id"].to_pylist() and shop.numbers * 10 + 1 in items["id"].to_pylist()

    return look


@pytest.mark.slow
def test_a_restarted_server_and_killed_connections_are_survived(
    lake: Lake, source: Source, shop: Shop, spark: SparkSession
) -> None:
    with Capturing(lake, source, spark, **WHAT) as capturing:
        wait_until(arrived(lake, shop), capturing)
        for how in ("fast", "immediate"):
            shop.sell()
            source.cluster.restart(how=how)
            shop.sell()
            wait_until(arrived(lake, shop), capturing)
        for _ in range(2):
            shop.sell(2)
            with source.cluster.connect() as connection:
                connection.execute(
                    "select pg_terminate_backend(pid) from pg_stat_activity where datname = %s", [source.database]
                )
            shop.sell(2)
            wait_until(arrived(lake, shop), capturing)
    check(lake, source, spark)


@pytest.mark.parametrize("statement", [b"pg_replication_slot_advance", b"pg_copy_logical_replication_slot"])
def test_a_connection_that_is_cut_in_the_middle_loses_nothing(
    lake: Lake, source: Source, shop: Shop, spark: SparkSession, statement: bytes
) -> None:
    socket = f"{source.cluster.socket_folder}/.s.PGSQL.{source.cluster.port}"
    capture_once(lake, source, spark, **WHAT)
    shop.sell(2)
    with cutting(socket, cuts=2, commits_by=statement) as proxy:
        through = f"host=127.0.0.1 port={proxy.port} user=postgres dbname={source.database} sslmode=disable"
        for _ in range(2):
            with pytest.raises(SourceUnavailableError):
                cdc.run(lake.catalog, through, spark=spark, once=True, **WHAT)
            shop.sell(2)
        cdc.run(lake.catalog, through, spark=spark, once=True, **WHAT)
        assert proxy.num_cut == 2
    check(lake, source, spark)


def test_a_slot_that_somebody_else_reads_is_read_all_the_same_and_moved_later(
    lake: Lake, source: Source, shop: Shop, spark: SparkSession
) -> None:
    capture_once(lake, source, spark, **WHAT)
    before = slot_lsn(source)
    shop.sell()
    with connect(source.dsn, replication=True) as other:
        other.pgconn.send_query(
            f"START_REPLICATION SLOT {SLOT} LOGICAL 0/0 (proto_version '1', publication_names '{PUBLICATION}')".encode()
        )
        wait_for_reader(source)
        report = capture_once(lake, source, spark, **WHAT)
        assert sum(report.changes["public.orders"].values()) >= 5
        assert slot_lsn(source) == before, "the other one holds it"
        other.close()
    shop.sell(1)
    check(lake, source, spark)
    assert slot_lsn(source) > before


def test_a_slot_that_is_dropped_ends_the_capture_until_the_tables_are_copied_anew(
    lake: Lake, source: Source, shop: Shop, spark: SparkSession
) -> None:
    with Capturing(lake, source, spark, **WHAT) as capturing:
        wait_until(arrived(lake, shop), capturing)
        drop_slot_of(source)
        shop.sell()
        error = capturing.wait_for_end()
    assert isinstance(error, SlotLostError), error
    assert "dl cdc resnapshot" in str(error)
    with pytest.raises(SlotLostError, match="dl cdc resnapshot"):
        capture_once(lake, source, spark, **WHAT)
    request_resnapshot(lake.catalog, settings_of(source))
    shop.sell()
    check(lake, source, spark)


def test_a_slot_that_somebody_moved_on_ends_the_capture_until_the_tables_are_copied_anew(
    lake: Lake, source: Source, shop: Shop, spark: SparkSession
) -> None:
    capture_once(lake, source, spark, **WHAT)
    shop.sell()
    source.run(f"select pg_replication_slot_advance('{SLOT}', pg_current_wal_flush_lsn())")
    with pytest.raises(SlotLostError, match="was moved to .* by somebody else"):
        capture_once(lake, source, spark, **WHAT)
    request_resnapshot(lake.catalog, settings_of(source))
    check(lake, source, spark)


def slot_lsn(source: Source) -> int:
    with connect(source.dsn) as connection:
        slot = find_slot(connection, SLOT)
    assert slot is not None
    return slot.confirmed_lsn


def wait_for_reader(source: Source) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    with connect(source.dsn) as connection:
        while (slot := find_slot(connection, SLOT)) is None or slot.active_pid is None:
            assert time.monotonic() < deadline
            time.sleep(0.05)


def drop_slot_of(source: Source) -> None:
    """It may be in use for a moment."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            source.run(f"select pg_drop_replication_slot('{SLOT}')")
            return
        except psycopg.errors.ObjectInUse:
            assert time.monotonic() < deadline
            time.sleep(0.05)


def test_a_table_that_somebody_drops_from_the_lake_stops_alone(
    lake: Lake, source: Source, shop: Shop, spark: SparkSession
) -> None:
    capture_once(lake, source, spark, **WHAT)
    for dropped, other in (("lake.items", "orders"), ("lake.orders_changes", None)):
        lake.catalog.drop_table(dropped)
        shop.sell(2)
        report = capture_once(lake, source, spark, **WHAT)
        name = dropped.removeprefix("lake.").removesuffix("_changes")
        assert "is gone from the lake" in report.stopped[f"public.{name}"]
        assert f"dl cdc resnapshot public.{name}" in report.stopped[f"public.{name}"]
        if other is not None:
            assert shop.numbers in lake.catalog.table(f"lake.{other}").to_pyarrow_table()["id"].to_pylist()
    request_resnapshot(lake.catalog, settings_of(source))
    check(lake, source, spark)
