"""The start of a capture: what it makes, what it finds again, and what it refuses."""

import re
from dataclasses import replace

import pytest

from deltalakedb.cdc.apply.batches import reload_capture
from deltalakedb.cdc.control import Server, create_capture
from deltalakedb.cdc.run.configured import load_settings
from deltalakedb.cdc.run.opening import add_tables, check_start, open_capture, stop_departed
from deltalakedb.cdc.settings import CaptureSettings, default_slot
from deltalakedb.cdc.source.postgres import connect, flush_lsn
from deltalakedb.cdc.source.slots import drop_slot, find_slot
from deltalakedb.exceptions import CaptureSetupError, ConfigError, SlotLostError, WrongServerError
from tests.cdc.conftest import Lake, Source
from tests.cdc.taking import PUBLICATION, create_shop, taking


def settings_of(source: Source, **more: object) -> CaptureSettings:
    return CaptureSettings(source.dsn, PUBLICATION, namespace="lake", **more)  # type: ignore[arg-type]  # settings by name


def test_the_first_start_makes_a_slot_and_a_control_table_and_the_second_finds_them(lake: Lake, source: Source) -> None:
    create_shop(source)
    settings = settings_of(source)
    with connect(source.dsn) as conn:
        first = open_capture(lake.catalog, conn, settings)
        slot = find_slot(conn, settings.slot)
        assert slot is not None
        assert slot.confirmed_lsn == first.lsn
        with_tables = add_tables(lake.catalog, conn, first, settings)
        assert {name: table.stage for name, table in with_tables.tables.items()} == {
            "public.items": "pending",
            "public.orders": "pending",
        }
        assert open_capture(lake.catalog, conn, settings) == with_tables
        assert add_tables(lake.catalog, conn, with_tables, settings) is with_tables


def test_a_slot_that_this_lake_knows_nothing_of_is_refused(lake: Lake, source: Source) -> None:
    """It may be that of another lake, whose changes would be lost."""
    create_shop(source)
    settings = settings_of(source)
    source.run(f"select pg_create_logical_replication_slot('{settings.slot}', 'pgoutput')")
    with connect(source.dsn) as conn:
        for start in (check_start, open_capture):
            with pytest.raises(CaptureSetupError, match="may be that of another lake.*pg_drop_replication_slot"):
                start(lake.catalog, conn, settings)
        assert lake.catalog.tables() == []
        drop_slot(conn, settings.slot)
        assert open_capture(lake.catalog, conn, settings).lsn > 0


def test_a_slot_that_is_gone_is_loud_once_tables_follow_it(lake: Lake, source: Source) -> None:
    create_shop(source)
    with taking(lake, source) as shop:
        drop_slot(shop.conn, shop.settings.slot)
        with pytest.raises(SlotLostError, match="dl cdc resnapshot"):
            open_capture(lake.catalog, shop.conn, shop.settings)


def test_a_slot_that_is_ahead_of_the_lake_is_loud(lake: Lake, source: Source) -> None:
    create_shop(source)
    with taking(lake, source) as shop:
        source.run("insert into orders values (1, 'one', 1)")
        end = flush_lsn(shop.conn)
        source.run(f"select pg_replication_slot_advance('{shop.settings.slot}', pg_current_wal_flush_lsn())")
        assert end > shop.capture.lsn
        with pytest.raises(SlotLostError, match="moved to"):
            open_capture(lake.catalog, shop.conn, shop.settings)


def test_before_any_table_follows_it_a_lost_slot_is_made_anew(lake: Lake, source: Source) -> None:
    create_shop(source)
    settings = settings_of(source)
    with connect(source.dsn) as conn:
        first = add_tables(lake.catalog, conn, open_capture(lake.catalog, conn, settings), settings)
        drop_slot(conn, settings.slot)
        source.run("insert into orders values (1, 'one', 1)")
        again = open_capture(lake.catalog, conn, settings)
        slot = find_slot(conn, settings.slot)
        assert slot is not None
        assert slot.confirmed_lsn == again.lsn > first.lsn
        assert reload_capture(lake.catalog, settings) == again


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"system_id": "1"}, "another server"),
        ({"timeline": 99}, "on timeline 1 instead of 99"),
        ({"database": "other"}, "another database"),
    ],
)
def test_another_server_is_refused(lake: Lake, source: Source, change: dict[str, object], said: str) -> None:
    create_shop(source)
    settings = settings_of(source)
    with connect(source.dsn) as conn:
        real = Server(
            *conn.execute("select system_identifier::text, 1, current_database() from pg_control_system()").fetchone()
        )  # type: ignore[misc]  # fields by name
        create_capture(lake.catalog, settings, replace(real, **change), 100)  # type: ignore[arg-type]  # fields by name
        with pytest.raises(WrongServerError, match=said):
            open_capture(lake.catalog, conn, settings)


def test_a_capture_belongs_to_its_publication(lake: Lake, source: Source) -> None:
    create_shop(source)
    source.run("create publication other for all tables")
    settings = settings_of(source)
    with connect(source.dsn) as conn:
        open_capture(lake.catalog, conn, settings)
        other = replace(settings, publication="other")
        with pytest.raises(ConfigError, match="one of the publication shop"):
            open_capture(lake.catalog, conn, other)


def test_slots_of_two_databases_do_not_meet_and_an_older_capture_keeps_its_own(lake: Lake, source: Source) -> None:
    create_shop(source)
    given = {"source": source.dsn, "publication": PUBLICATION, "namespace": "lake"}
    assert load_settings(given, lake.catalog).slot == f"dl_{source.database}_shop"
    other = load_settings({**given, "source": source.cluster.dsn("other")}, lake.catalog)
    assert other.slot == "dl_other_shop"
    with connect(source.dsn) as conn:
        open_capture(lake.catalog, conn, settings_of(source, slot="dl_shop"))
    assert load_settings(given, lake.catalog).slot == "dl_shop"
    assert load_settings({**given, "slot": "mine"}, lake.catalog).slot == "mine"
    assert load_settings({**given, "source": other.source}, lake.catalog).slot == "dl_other_shop"
    # The same database, which this DSN does not name.
    unnamed = f"host={source.cluster.socket_folder} user=postgres"
    assert load_settings({**given, "source": unnamed}, lake.catalog).slot == "dl_shop"


@pytest.mark.parametrize(
    ("database", "publication", "slot"),
    [
        ("sales", "shop", "dl_sales_shop"),
        ("", "shop", "dl_shop"),
        ("Sales", "my/pub", "dl_sales_my_pub_[0-9a-f]{8}"),
        ("sales", "my-pub", "dl_sales_my_pub_[0-9a-f]{8}"),
        ("d" * 63, "p" * 63, "dl_d{51}_[0-9a-f]{8}"),
    ],
)
def test_every_database_and_publication_has_a_slot_of_its_own(database: str, publication: str, slot: str) -> None:
    assert re.fullmatch(slot, default_slot(database, publication))
    assert CaptureSettings(f"dbname='{database}'", publication).slot == default_slot(database, publication)


def test_a_slot_of_another_database_is_refused(lake: Lake, source: Source) -> None:
    create_shop(source)
    name = f"{source.database}_too"
    source.run(f"create database {name}")
    try:
        other = Source(source.cluster, name)
        create_shop(other)
        settings = settings_of(source)
        other.run(f"select pg_create_logical_replication_slot('{settings.slot}', 'pgoutput')")
        with connect(source.dsn) as conn, pytest.raises(CaptureSetupError, match=f"the database {name}"):
            open_capture(lake.catalog, conn, settings)
        other.drop_slots()
    finally:
        source.run(f"drop database {name} with (force)")


def test_a_table_that_left_the_publication_stops_and_one_that_came_is_taken_in(lake: Lake, source: Source) -> None:
    source.run(
        "create table orders (id bigint primary key)",
        "create table items (id bigint primary key)",
        f"create publication {PUBLICATION} for table orders",
    )
    with taking(lake, source) as shop:
        source.run(f"alter publication {PUBLICATION} set table items")
        capture = add_tables(lake.catalog, shop.conn, shop.capture, shop.settings)
        assert {name: table.stage for name, table in capture.tables.items()} == {
            "public.orders": "streaming",
            "public.items": "pending",
        }
        capture = stop_departed(lake.catalog, shop.conn, capture, shop.settings)
        stopped = capture.tables["public.orders"]
        assert stopped.stage == "stopped"
        assert stopped.reason is not None
        assert "not in the publication shop any more" in stopped.reason
        assert reload_capture(lake.catalog, shop.settings) == capture


def test_a_table_that_waits_for_its_copy_is_looked_at_anew(lake: Lake, source: Source) -> None:
    create_shop(source)
    settings = settings_of(source)
    with connect(source.dsn) as conn:
        capture = add_tables(lake.catalog, conn, open_capture(lake.catalog, conn, settings), settings)
        source.run(
            "alter table orders add column more int", "drop table items", "create table items (id int primary key)"
        )
        again = add_tables(lake.catalog, conn, capture, settings)
        assert [column.name for column in again.tables["public.orders"].columns] == ["id", "name", "amount", "more"]
        assert again.tables["public.items"].oid != capture.tables["public.items"].oid
