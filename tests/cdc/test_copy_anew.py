"""Copies made anew: of tables, after a slot was lost, of another server."""

from collections import Counter
from dataclasses import replace

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import deltalakedb as dl
from deltalakedb.cdc.apply.landing import SLOT_PROPERTY
from deltalakedb.cdc.control import begin_batch, change_server, note_progress
from deltalakedb.cdc.copy.resnapshot import request_resnapshot
from deltalakedb.cdc.source.postgres import connect
from deltalakedb.cdc.source.slots import advance_slot, check_slot, drop_slot, find_slot
from deltalakedb.exceptions import CaptureError, CaptureSetupError, WrongServerError
from tests.cdc.conftest import Lake, Source
from tests.cdc.copying import Copying
from tests.cdc.judging import check_current, check_mirror

pytestmark = pytest.mark.spark


@pytest.fixture
def copying(lake: Lake, source: Source, spark: SparkSession) -> Copying:
    return Copying(lake, source, spark)


def test_a_new_copy_replaces_the_rows_and_keeps_versions_and_changes(copying: Copying) -> None:
    first = copying.copy(change_data_feed=True)
    copying.source.run("delete from orders where id > 100", "update orders set note = null where id < 10")
    assert request_resnapshot(copying.lake.catalog, copying.settings(), ["orders"]) == copying.saved()
    assert copying.stages() == {"public.orders": "pending", "public.items": "streaming"}
    capture = copying.copy()
    assert capture.tables["public.orders"].start_lsn == capture.lsn > first.lsn
    check_current(copying.lake.catalog, copying.source, capture)
    check_mirror(copying.lake.catalog, capture)
    assert [copying.table(name).version() for name in ("orders", "orders_changes", "items")] == [1, 0, 0]
    before = copying.table("orders")
    before.load_as_version(0)
    assert before.to_pyarrow_table().num_rows == 500
    feed = pa.table(copying.table("orders").load_cdf(starting_version=1))["_change_type"].to_pylist()
    assert Counter(feed) == {"delete": 500, "insert": 100}


def fields_after(changes: dl.DeltaTable) -> list[str]:
    """The columns of a table whose changes these are."""
    rows = changes.to_pyarrow_table().schema.field("after").type
    return [item.name for item in rows.fields]


@pytest.mark.parametrize("column_mapping", [False, True])
def test_a_new_copy_has_the_columns_of_now(copying: Copying, column_mapping: bool) -> None:
    copying.copy(column_mapping=column_mapping)
    copying.source.run(
        "alter table orders add column tags text[] default '{a,b}'",
        "alter table items drop column at",
        "alter table items alter price type text using price::text",
    )
    request_resnapshot(copying.lake.catalog, copying.settings())
    capture = copying.copy(column_mapping=column_mapping)
    check_current(copying.lake.catalog, copying.source, capture)
    check_mirror(copying.lake.catalog, capture)
    fields = {name: [item.name for item in copying.table(name).schema().fields] for name in ("orders", "items")}
    assert fields == {"orders": ["id", "note", "tags"], "items": ["id", "price"]}
    old = f"items_changes_until_{capture.lsn:x}"
    names = {name.removeprefix("shop.") for name in copying.lake.catalog.tables()}
    assert names >= {"orders_changes", "items_changes", old}, "changes with columns of other types stay, apart"
    after = {name: fields_after(copying.table(name)) for name in ("orders_changes", "items_changes", old)}
    assert after == {
        "orders_changes": ["id", "note", "tags"],
        "items_changes": ["id", "price"],
        old: ["id", "price", "at"],
    }


def test_a_slot_that_is_lost_is_made_anew_and_every_table_is_copied_again(copying: Copying) -> None:
    first = copying.copy()
    with connect(copying.source.dsn) as conn:
        drop_slot(conn, first.slot)
    copying.source.run("delete from orders where id > 100", "insert into items values (1000, 1, null)")
    asked = request_resnapshot(copying.lake.catalog, copying.settings(), ["orders"])
    assert copying.stages() == {"public.orders": "pending", "public.items": "pending"}
    assert asked.lsn > first.lsn
    with connect(copying.source.dsn) as conn:
        assert check_slot(conn, asked.slot, asked.lsn).confirmed_lsn == asked.lsn
    check_current(copying.lake.catalog, copying.source, copying.copy())


def test_a_slot_that_went_on_without_us_is_made_anew(copying: Copying) -> None:
    first = copying.copy()
    copying.source.run("delete from orders where id > 100", "select pg_log_standby_snapshot()")
    with connect(copying.source.dsn) as conn:
        (end,) = conn.execute("select pg_current_wal_flush_lsn() - '0/0'::pg_lsn").fetchone() or (0,)
        advance_slot(conn, first.slot, int(end))
        moved = find_slot(conn, first.slot)
    request_resnapshot(copying.lake.catalog, copying.settings())
    assert moved is not None
    assert moved.confirmed_lsn > first.lsn
    check_current(copying.lake.catalog, copying.source, copying.copy())


def test_a_capture_whose_server_was_replaced_goes_on_with_the_new_one(copying: Copying) -> None:
    first = copying.copy()
    # As after a restore of an older backup into another cluster: other LSNs, and a slot that nobody knows.
    was = replace(first.server, system_id="1", timeline=7)
    with begin_batch(copying.lake.catalog, first, "as if") as tx:
        note_progress(tx, change_server(tx, first, was), 1 << 62)
    copying.source.run("delete from orders where id > 100")
    with pytest.raises(WrongServerError, match="dl cdc resnapshot has every table copied anew"):
        copying.copy()
    with pytest.raises(WrongServerError, match="dl cdc resnapshot without names"):
        request_resnapshot(copying.lake.catalog, copying.settings(), ["orders"])
    asked = request_resnapshot(copying.lake.catalog, copying.settings())
    assert asked == copying.saved()
    assert (asked.server, set(copying.stages().values())) == (first.server, {"pending"})
    assert first.lsn < asked.lsn < 1 << 62
    check_current(copying.lake.catalog, copying.source, copying.copy())


def test_a_slot_of_another_database_is_left_alone(copying: Copying) -> None:
    copying.copy()
    other = replace(copying.settings(), source=copying.source.cluster.dsn("postgres"))
    with pytest.raises(CaptureSetupError, match=f"is one of the database {copying.source.database}"):
        request_resnapshot(copying.lake.catalog, other)
    assert set(copying.stages().values()) == {"streaming"}


def test_a_new_copy_of_what_is_not_captured_is_refused(copying: Copying) -> None:
    with pytest.raises(CaptureError, match="there is no capture dl_source_.*_shop in this lake"):
        request_resnapshot(copying.lake.catalog, copying.settings())
    copying.copy()
    with pytest.raises(CaptureError, match="has no table public.other; it has public.items, public.orders"):
        request_resnapshot(copying.lake.catalog, copying.settings(), ["other"])


def test_a_capture_that_lost_its_control_table_takes_its_own_tables_again(copying: Copying) -> None:
    copying.copy()
    copying.lake.catalog.drop_table(copying.settings().control_table, purge=True)
    copying.source.run("delete from orders where id > 100")
    capture = copying.copy()
    check_current(copying.lake.catalog, copying.source, capture)
    assert copying.table("orders").metadata().configuration[SLOT_PROPERTY] == capture.slot
