"""Copies of tables on Spark: committed each when whole, cut and begun again, added later, made anew."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from psycopg.conninfo import make_conninfo
from pyspark.sql import SparkSession

import deltalakedb as dl
from deltalakedb.cdc.batches import commit_progress
from deltalakedb.cdc.buckets import buckets_of
from deltalakedb.cdc.control import Capture, begin_batch, change_server, load_capture, note_progress
from deltalakedb.cdc.copying import copy_tables, request_resnapshot
from deltalakedb.cdc.landing import SLOT_PROPERTY, SOURCE_PROPERTY
from deltalakedb.cdc.opening import add_tables, open_capture
from deltalakedb.cdc.server import connect
from deltalakedb.cdc.settings import CaptureSettings
from deltalakedb.cdc.slots import advance_slot, check_slot, drop_slot, find_slot
from deltalakedb.exceptions import CaptureError, CaptureSetupError, SourceUnavailableError, WrongServerError
from tests.cdc.conftest import Lake, Source
from tests.cdc.judging import check_current, check_mirror

pytestmark = [pytest.mark.spark, pytest.mark.pipeline]

ALL = "create publication shop for all tables"


class Told:
    """What a copy tells of its progress."""

    def __init__(self) -> None:
        self.begun: dict[str, tuple[int, int]] = {}
        self.rows: Counter[str] = Counter()
        self.ended: dict[str, int] = {}

    def table_begins(self, source: str, rows: int, tasks: int) -> None:
        self.begun[source] = rows, tasks

    def task_ended(self, source: str, rows: int) -> None:
        self.rows[source] += rows

    def table_ended(self, source: str, rows: int) -> None:
        self.ended[source] = rows


class Copying:
    """A capture whose source changes only between its copies, so that the stream has nothing to bring."""

    def __init__(self, lake: Lake, source: Source, spark: SparkSession) -> None:
        self.lake, self.source, self.spark = lake, source, spark
        self.dsn = source.dsn
        self.told = Told()
        self.drained: list[int] = []
        self.meanwhile: list[str] = []
        """What happens once, between the snapshot and the first task."""

    def settings(self, **given: Any) -> CaptureSettings:
        return CaptureSettings(self.dsn, "shop", **{"namespace": "shop", **given})

    def copy(self, *, check: Callable[[], None] | None = None, **given: Any) -> Capture:
        """Start the capture, and copy what waits for it."""
        settings = self.settings(**given)

        def drain(capture: Capture, lsn: int) -> Capture:
            self.drained.append(lsn)
            self.source.run(*self.meanwhile)
            self.meanwhile.clear()
            return commit_progress(self.lake.catalog, capture, lsn)

        with connect(self.dsn) as conn:
            capture = open_capture(self.lake.catalog, conn, settings)
            capture = add_tables(self.lake.catalog, conn, capture, settings)
        return copy_tables(
            self.spark, self.lake.catalog, capture, settings, drain=drain, progress=self.told, check=check
        )

    def saved(self) -> Capture:
        found = load_capture(self.lake.catalog, self.settings())
        assert found is not None
        return found

    def table(self, name: str) -> dl.DeltaTable:
        return self.lake.catalog.table(f"shop.{name}")

    def stages(self) -> dict[str, str]:
        return {source: table.stage for source, table in self.saved().tables.items()}


@pytest.fixture
def copying(lake: Lake, source: Source, spark: SparkSession) -> Copying:
    source.run(
        "create table orders (id int primary key, note text)",
        "create table items (id int primary key, price numeric(10, 2), at timestamptz)",
        "insert into orders select i, 'order ' || i from generate_series(1, 500) i",
        "insert into items select i, i / 7.0, now() + i * interval '1s' from generate_series(1, 70) i",
        "analyze",
        ALL,
    )
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
    assert "resnapshot" in reason
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


def test_a_table_of_the_lake_that_is_no_copy_is_never_replaced(copying: Copying) -> None:
    copying.lake.catalog.create_table("shop.orders", "id int")
    with pytest.raises(CaptureSetupError, match="public.orders would become shop.orders.*--namespace"):
        copying.copy()
    assert copying.table("orders").version() == 0


# ---- made anew


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
    with pytest.raises(CaptureError, match="there is no capture dl_shop in this lake"):
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
