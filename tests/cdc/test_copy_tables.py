"""Copies of tables on Spark: committed each when whole, cut and begun again, added later."""

import pytest
from psycopg.conninfo import make_conninfo
from pyspark.sql import SparkSession

from deltalakedb.cdc.apply.buckets import buckets_of
from deltalakedb.cdc.apply.landing import SOURCE_PROPERTY
from deltalakedb.cdc.copy.resnapshot import request_resnapshot
from deltalakedb.cdc.run.status import TableStatus, capture_status
from deltalakedb.cdc.source.postgres import connect
from deltalakedb.cdc.source.slots import check_slot
from deltalakedb.exceptions import SourceUnavailableError
from tests.cdc.conftest import Lake, Source
from tests.cdc.copying import Copying
from tests.cdc.judging import check_current, check_mirror

pytestmark = pytest.mark.spark


@pytest.fixture
def copying(lake: Lake, source: Source, spark: SparkSession) -> Copying:
    return Copying(lake, source, spark)


def test_all_tables_are_copied_at_one_lsn_and_then_follow_the_stream_from_there(copying: Copying) -> None:
    capture = copying.copy()
    check_current(copying.lake.catalog, copying.source, capture)
    check_mirror(copying.lake.catalog, capture)
    assert capture == copying.saved()
    assert {(table.stage, table.start_lsn) for table in capture.tables.values()} == {("streaming", capture.lsn)}
    for table in capture.tables.values():
        current, changes = copying.lake.catalog.table(table.current), copying.lake.catalog.table(table.changes)
        assert current.transaction_version(capture.app_id) == capture.lsn
        assert (current.version(), changes.version(), changes.count()) == (0, 0, 0)
        assert current.metadata().configuration[SOURCE_PROPERTY] == table.source
    with connect(copying.source.dsn) as conn:
        assert check_slot(conn, capture.slot, capture.lsn).confirmed_lsn == capture.lsn
    assert copying.drained == [], "nothing followed the stream yet"
    told = copying.told
    assert told.begun == {"public.orders": (500, 1), "public.items": (70, 1)}
    assert told.rows == told.ended == {"public.orders": 500, "public.items": 70}


def test_tables_of_any_name_are_copied(copying: Copying) -> None:
    copying.source.run(
        'create table "a.b/c" (id int primary key)',
        'insert into "a.b/c" select generate_series(1, 20)',
    )
    capture = copying.copy()
    check_current(copying.lake.catalog, copying.source, capture)
    check_mirror(copying.lake.catalog, capture)
    assert capture == copying.saved()
    assert capture.tables["public.`a.b/c`"].stage == "streaming"


def test_a_copy_with_nothing_to_do_takes_no_snapshot(copying: Copying) -> None:
    first = copying.copy()
    assert copying.copy() == first


def test_the_files_of_a_copy_that_was_cut_go_and_finished_tables_stay(copying: Copying) -> None:
    class Cut(Exception):
        pass

    def cut() -> None:
        if copying.told.ended:
            raise Cut

    with pytest.raises(Cut):
        copying.copy(check=cut, parallelism=1)
    (finished,) = copying.told.ended
    (other,) = {"public.orders", "public.items"} - {finished}
    assert copying.stages() == {finished: "streaming", other: "pending"}
    first = copying.saved().lsn
    left = [path for path in (copying.lake.warehouse / "shop").rglob("*.parquet") if other[7:] in str(path)]
    assert left == []

    copying.source.run("insert into items values (1000, 0, null)", "insert into orders values (1000, null)")
    copying.source.run(f"delete from {finished} where id = 1000")
    copying.source.run("select pg_log_standby_snapshot()")
    capture = copying.copy()
    assert capture.lsn > first
    assert copying.drained == [capture.lsn], "what followed the stream was brought to the new snapshot first"
    assert (capture.tables[finished].start_lsn, capture.tables[other].start_lsn) == (first, capture.lsn)
    assert copying.table(finished[7:]).version() == 0, "it was not copied again"
    check_current(copying.lake.catalog, copying.source, capture)


def test_a_copy_whose_snapshot_is_lost_says_so_and_the_next_one_succeeds(copying: Copying) -> None:
    def end_exporter() -> None:
        if copying.told.begun:
            copying.source.run(
                "select pg_terminate_backend(pid, 5000) from pg_stat_activity where backend_type = 'walsender'"
            )

    copying.source.run("insert into orders select i, repeat('x', 1500) from generate_series(501, 14000) i")
    with pytest.raises(SourceUnavailableError, match="snapshot|broke"):
        copying.copy(check=end_exporter, parallelism=1, tables=("orders", "items"))
    capture = copying.copy(tables=("orders", "items"))
    check_current(copying.lake.catalog, copying.source, capture)
    assert copying.told.begun["public.orders"][1] > 1, "a large table has several tasks"


def test_a_table_that_is_truncated_under_its_copy_is_copied_at_another_snapshot_and_the_others_are_not(
    copying: Copying,
) -> None:
    copying.copy(tables=("items",))
    copying.source.run("create table more (id int primary key)", "insert into more values (1)")
    copying.meanwhile = ["truncate orders", "insert into orders values (1, 'new')"]
    capture = copying.copy()
    assert copying.drained == [capture.tables["public.more"].start_lsn, capture.tables["public.orders"].start_lsn]
    assert capture.lsn == copying.drained[1] > copying.drained[0]
    assert copying.told.ended == {"public.items": 70, "public.more": 1, "public.orders": 1}
    check_current(copying.lake.catalog, copying.source, capture)


def test_a_table_that_goes_while_it_waits_for_its_copy_stops_and_the_others_go_on(copying: Copying) -> None:
    copying.copy(tables=("items",))
    copying.source.run("create table more (id int primary key)", "insert into more values (1)")
    copying.meanwhile = ["drop table orders"]
    capture = copying.copy()
    assert copying.stages() == {"public.items": "streaming", "public.more": "streaming", "public.orders": "stopped"}
    assert "not in the publication shop any more" in (capture.tables["public.orders"].reason or "")


def test_a_table_that_is_added_later_gets_a_copy_and_the_others_keep_theirs(copying: Copying) -> None:
    first = copying.copy()
    copying.source.run("create table late (id int primary key)", "insert into late values (1), (2)")
    capture = copying.copy()
    assert copying.drained == [capture.lsn]
    assert {source: table.start_lsn for source, table in capture.tables.items()} == {
        "public.orders": first.lsn,
        "public.items": first.lsn,
        "public.late": capture.lsn,
    }
    check_current(copying.lake.catalog, copying.source, capture)


def test_a_role_that_may_replicate_and_read_the_tables_needs_no_more(copying: Copying) -> None:
    role = f"capture_{copying.source.database}"
    copying.source.run(
        f"create role {role} login replication", f"grant select on all tables in schema public to {role}"
    )
    copying.dsn = make_conninfo(copying.source.dsn, user=role)
    try:
        check_current(copying.lake.catalog, copying.source, copying.copy())
        request_resnapshot(copying.lake.catalog, copying.settings(), ["orders"])
        check_current(copying.lake.catalog, copying.source, copying.copy())
    finally:
        copying.source.run(f"drop owned by {role}", f"drop role {role}")


def test_a_long_backlog_is_brought_in_before_the_snapshot_is_taken(copying: Copying) -> None:
    copying.copy(batch_bytes=1 << 16)
    copying.source.run(
        "create table late (id int primary key, note text)",
        "insert into late select i, repeat('x', 100) from generate_series(1, 1000) i",
        "select pg_switch_wal()",
    )
    capture = copying.copy(batch_bytes=1 << 16)
    assert len(copying.drained) == 2
    assert copying.drained[0] < copying.drained[1] == capture.lsn
    check_current(copying.lake.catalog, copying.source, capture)


def test_a_partitioned_table_without_partitions_is_an_empty_table(copying: Copying) -> None:
    copying.source.run(
        "create table events (id int primary key) partition by range (id)",
        "alter publication shop set (publish_via_partition_root = true)",
    )
    capture = copying.copy()
    assert capture.tables["public.events"].stage == "streaming"
    assert copying.table("events").count() == 0


def test_a_value_that_cannot_be_held_stops_its_table_alone(copying: Copying) -> None:
    copying.source.run("insert into items values (0, 'NaN', null)")
    capture = copying.copy()
    assert copying.stages() == {"public.orders": "streaming", "public.items": "stopped"}
    reason = capture.tables["public.items"].reason or ""
    assert "public.items.price" in reason
    assert "dl cdc resnapshot public.items copies it anew" in reason
    items = table_status(copying, "public.items")
    assert (items.start_lsn, items.rows, items.captured) == (None, None, None), "it was never copied"
    assert "shop.items" not in copying.lake.catalog.tables()
    request_resnapshot(copying.lake.catalog, copying.settings(), ["items"])
    capture = copying.copy(text_columns=("public.items.price",))
    assert copying.stages() == {"public.orders": "streaming", "public.items": "streaming"}
    assert "NaN" in copying.table("items").to_pyarrow_table()["price"].to_pylist()


def test_the_settings_of_new_tables_are_those_of_the_capture(copying: Copying) -> None:
    copying.copy(change_data_feed=True, column_mapping=True, deletion_vectors=False)
    current = copying.table("orders").metadata().configuration
    assert current["delta.enableChangeDataFeed"] == "true"
    assert current["delta.columnMapping.mode"] == "name"
    assert "delta.enableDeletionVectors" not in current
    assert copying.table("orders_changes").metadata().configuration["delta.columnMapping.mode"] == "name"
    check_current(copying.lake.catalog, copying.source, copying.saved())


def test_rows_are_copied_into_the_buckets_of_their_keys_and_another_copy_may_have_others(copying: Copying) -> None:
    for buckets in (4, 0):
        capture = copying.copy(buckets=buckets)
        current = copying.table("orders")
        check_current(copying.lake.catalog, copying.source, capture)
        check_mirror(copying.lake.catalog, capture)
        assert current.metadata().partition_columns == (["_bucket"] if buckets else [])
        assert buckets_of(current.metadata().configuration) == buckets
        found = current.to_pyarrow_table()
        assert len(set(found["_bucket"].to_pylist()) if buckets else ()) == buckets
        request_resnapshot(copying.lake.catalog, copying.settings())


def test_a_table_of_the_lake_that_is_no_copy_is_never_replaced_and_stops_nobody_else(copying: Copying) -> None:
    copying.lake.catalog.create_table("shop.orders", "id int")
    reason = copying.copy().tables["public.orders"].reason or ""
    assert "public.orders would become shop.orders" in reason
    assert "--namespace" in reason
    assert copying.table("orders").version() == 0
    orders = table_status(copying, "public.orders")
    assert (orders.rows, orders.version, orders.last_commit_at) == (None, None, None), "they are another table's"
    assert copying.stages() == {"public.orders": "stopped", "public.items": "streaming"}


def table_status(copying: Copying, source: str) -> TableStatus:
    tables = capture_status(copying.lake.catalog, copying.settings()).tables
    return next(table for table in tables if table.source == source)


def test_a_table_that_the_role_may_not_read_stops_alone(copying: Copying) -> None:
    role = f"half_{copying.source.database}"
    copying.source.run(f"create role {role} login replication", f"grant select on items to {role}")
    copying.dsn = make_conninfo(copying.source.dsn, user=role)
    try:
        reason = copying.copy().tables["public.orders"].reason or ""
        assert f"grant select on public.orders to {role}" in reason
        assert "dl cdc resnapshot public.orders" in reason
        assert copying.stages() == {"public.orders": "stopped", "public.items": "streaming"}
    finally:
        copying.source.run(f"drop owned by {role}", f"drop role {role}")
