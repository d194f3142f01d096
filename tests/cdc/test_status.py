"""The state of a capture, as the lake and the source tell it; what is wrong is said with what to do."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from deltalakedb import telemetry
from deltalakedb.cdc.captured_table import NOT_ASKED_FOR, CapturedTable
from deltalakedb.cdc.control import Capture, Server, begin_batch, create_capture, note_progress, save_tables
from deltalakedb.cdc.run.configured import find_settings, load_settings
from deltalakedb.cdc.run.presence import RunnerPresence
from deltalakedb.cdc.run.report import LagMeter, record_batch, record_failure, record_slot, record_tables
from deltalakedb.cdc.run.status import CaptureStatus, capture_status, is_close_to_limit
from deltalakedb.cdc.settings import CaptureSettings
from deltalakedb.cdc.source.postgres import connect, identify
from deltalakedb.cdc.source.slots import Slot, advance_slot, create_slot, drop_slot
from deltalakedb.cli.cdc_output import show_status
from deltalakedb.exceptions import ConfigError, SlotLostError
from tests.cdc.conftest import Lake, Source, both_versions


def settings_of(source: Source) -> CaptureSettings:
    # Slots are the server's, and other tests have theirs.
    return CaptureSettings(source.dsn, "shop", slot=f"slot_{source.database}", namespace="shop")


def begin(lake: Lake, source: Source) -> Capture:
    """A capture of one table that streams, made without Spark."""
    settings = settings_of(source)
    source.run("create table orders (id bigint primary key)", "create publication shop for all tables")
    with connect(source.dsn) as conn:
        capture = create_capture(lake.catalog, settings, identify(conn), create_slot(conn, settings.slot))
    for name in ("shop.orders", "shop.orders_changes"):
        lake.catalog.create_table(name, "id long")
    table = CapturedTable(
        "public.orders", 1, (), ("id",), "shop.orders", "shop.orders_changes", stage="streaming", start_lsn=capture.lsn
    )
    return change(lake, capture, table)


def change(lake: Lake, capture: Capture, table: CapturedTable) -> Capture:
    with begin_batch(lake.catalog, capture, "a change") as tx:
        return note_progress(tx, save_tables(tx, capture, [table]), capture.lsn)


def status_of(lake: Lake, source: Source) -> CaptureStatus:
    return capture_status(lake.catalog, settings_of(source))


def test_a_capture_that_was_never_started_is_new(lake: Lake, source: Source) -> None:
    found = status_of(lake, source)
    assert (found.state, found.lag_bytes, found.lag_seconds, found.tables, found.problems) == (
        "new",
        None,
        None,
        (),
        (),
    )
    assert found.to_value()["slot_health"] is None


def test_the_lag_is_told_in_bytes_and_seconds_with_what_the_slot_keeps(lake: Lake, source: Source) -> None:
    begin(lake, source)
    source.run("create table noise (id int)", "insert into noise select generate_series(1, 20000)", "checkpoint")
    found = status_of(lake, source)
    assert found.state == "stopped"
    assert found.lag_bytes is not None
    assert found.lag_bytes > 1 << 20
    assert found.lag_seconds is not None
    assert 0 <= found.lag_seconds < 120
    assert found.retained_bytes is not None
    assert found.retained_bytes >= found.lag_bytes
    assert found.slot is not None
    assert found.slot.wal_status in ("reserved", "extended")
    (table,) = found.tables
    assert (table.stage, table.rows, table.captured, table.version) == ("streaming", 0, 0, 0)
    assert table.last_commit_at is not None
    assert found.problems == ()
    with RunnerPresence(source.dsn, settings_of(source).slot):
        assert status_of(lake, source).state == "running"


def test_without_a_source_the_lake_tells_what_it_knows(lake: Lake, source: Source) -> None:
    capture = begin(lake, source)
    found = capture_status(lake.catalog, replace(settings_of(source), source=""))
    assert (found.state, found.lag_bytes, found.problems) == ("unknown", None, ())
    assert found.capture == capture
    away = capture_status(lake.catalog, replace(settings_of(source), source="host=localhost port=1 password=geheim"))
    assert away.state == "unknown"
    assert "could not be asked" in away.problems[0]
    assert "geheim" not in str(away.to_value())


def test_a_slot_that_is_gone_or_was_moved_is_a_problem_that_names_the_remedy(lake: Lake, source: Source) -> None:
    capture = begin(lake, source)
    source.run("create table noise (id int)", "select pg_switch_wal()")
    with connect(source.dsn) as conn:
        row = conn.execute("select pg_current_wal_flush_lsn() - '0/0'::pg_lsn").fetchone()
        assert row is not None
        advance_slot(conn, capture.slot, int(row[0]))
        (moved,) = status_of(lake, source).problems
        drop_slot(conn, capture.slot)
    (gone,) = status_of(lake, source).problems
    assert status_of(lake, source).is_slot_lost
    assert "was moved to" in moved
    assert "is gone" in gone
    for problem in (moved, gone):
        assert f"dl cdc resnapshot --slot {capture.slot}" in problem
    with connect(source.dsn) as conn, pytest.raises(SlotLostError):
        advance_slot(conn, capture.slot, capture.lsn)


def test_a_publication_without_tables_or_that_is_gone_is_a_problem(lake: Lake, source: Source) -> None:
    source.run("create publication shop")
    (empty,) = status_of(lake, source).problems
    assert "the publication shop has no tables" in empty
    assert "alter publication shop add table" in empty
    source.run("drop publication shop")
    begin(lake, source)
    assert status_of(lake, source).problems == ()
    source.run("drop publication shop")
    (gone,) = status_of(lake, source).problems
    assert "has no publication shop any more: create publication shop for all tables, then dl cdc resnapshot" in gone


@both_versions
def test_tables_whose_changes_are_in_no_log_are_told(lake: Lake, source: Source) -> None:
    begin(lake, source)
    source.run(
        "create unlogged table cache (id int primary key)",
        "create foreign data wrapper elsewhere",
        "create server other foreign data wrapper elsewhere",
        'create foreign table "far away" (id int) server other',
    )
    found = status_of(lake, source)
    assert found.coverage is not None
    assert {name: reason.partition(",")[0] for name, reason in found.coverage.left_out.items()} == {
        "public.cache": "it is unlogged",
        "public.`far away`": "it is a foreign table",
    }
    assert found.to_value()["left_out"] == found.coverage.left_out
    assert found.problems == (), "nobody need do anything about them"
    source.run("drop publication shop", "create publication shop for table orders")
    assert status_of(lake, source).to_value()["left_out"] == {}, "nobody has asked for them"


def test_what_the_server_keeps_for_a_slot_at_most_is_told_and_its_end_before_it_comes(
    lake: Lake, source: Source, capsys: pytest.CaptureFixture[str]
) -> None:
    begin(lake, source)

    def shown() -> str:
        show_status(status_of(lake, source))
        return capsys.readouterr().out

    assert "no limit but the source's disk" in shown()
    source.run("create table noise (id int)", "insert into noise select generate_series(1, 20000)", "checkpoint")
    alert = replace(settings_of(source), slot_alert_bytes=1 << 20)
    (kept,) = capture_status(lake.catalog, alert).problems
    assert "more than slot_alert = 1 MB" in kept
    with limited(source, "max_slot_wal_keep_size", "32MB"):
        assert "left before it is lost" in shown()
        found = status_of(lake, source)
        assert found.slot is not None
        assert found.slot.keep_bytes == 32 << 20
        assert found.problems == ()
        close = replace(found.slot, safe_wal_size=5 << 20)
        assert is_close_to_limit(close)
        assert not is_close_to_limit(replace(close, safe_wal_size=9 << 20))
        for _ in range(5):
            source.run("insert into noise values (1)", "select pg_switch_wal()")
        source.run("checkpoint")
        lost = status_of(lake, source)
        assert lost.is_slot_lost
        page = shown()
    assert "stopped; its slot is lost, and dl cdc start refuses until dl cdc resnapshot has begun it anew" in page
    assert "no limit" not in page
    assert "goes on with it" not in page
    (problem,) = lost.problems
    assert "is lost" in problem


def test_a_server_that_drops_idle_slots_sooner_than_a_capture_moves_them_is_a_problem(
    lake: Lake, source: Source, postgres_version: int
) -> None:
    if postgres_version < 18:
        pytest.skip("slots have a time-out from Postgres 18 on")
    begin(lake, source)
    with limited(source, "idle_replication_slot_timeout", "60s"):
        (problem,) = status_of(lake, source).problems
    assert "idle_replication_slot_timeout" in problem
    assert "60 s" in problem


@contextmanager
def limited(source: Source, setting: str, value: str) -> Iterator[None]:
    """A setting of the whole server, for the time of the block."""
    source.run(f"alter system set {setting} = '{value}'", "select pg_reload_conf()", "select pg_sleep(0.5)")
    try:
        yield
    finally:
        source.run(f"alter system reset {setting}", "select pg_reload_conf()", "select pg_sleep(0.5)")


def test_a_stopped_table_says_why_and_since_when_transactions_are_incomplete(lake: Lake, source: Source) -> None:
    capture = begin(lake, source)
    table = replace(
        capture.tables["public.orders"], stage="stopped", reason="its key is gone", stopped_lsn=0x1_0000_00AB
    )
    change(lake, capture, table)
    found = status_of(lake, source)
    assert found.problems == (
        "public.orders is stopped: its key is gone; transactions that touched it are incomplete in the lake since 1/AB",
    )
    assert found.to_value()["tables"][0]["incomplete_since"] == "1/AB"


def test_a_stopped_table_is_a_problem_whether_the_source_answers_or_not(lake: Lake, source: Source) -> None:
    capture = begin(lake, source)
    change(lake, capture, replace(capture.tables["public.orders"], stage="stopped", reason="its key is gone"))
    (problem,) = capture_status(lake.catalog, replace(settings_of(source), source="")).problems
    assert problem.startswith("public.orders is stopped: its key is gone")


def test_a_table_that_was_taken_out_of_the_capture_is_no_problem(lake: Lake, source: Source) -> None:
    capture = begin(lake, source)
    change(lake, capture, replace(capture.tables["public.orders"], stage="stopped", reason=NOT_ASKED_FOR))
    assert status_of(lake, source).problems == ()


def test_a_publication_that_was_made_anew_is_a_problem(lake: Lake, source: Source) -> None:
    capture = begin(lake, source)
    ((oid, membership),) = source.run(
        "select 'orders'::regclass::oid::bigint, oid::bigint from pg_publication where pubname = 'shop'"
    )
    change(lake, capture, replace(capture.tables["public.orders"], oid=oid, membership=membership))
    assert status_of(lake, source).problems == ()
    source.run("drop publication shop", "create publication shop for all tables")
    (problem,) = status_of(lake, source).problems
    assert "made anew" in problem
    assert "dl cdc resnapshot" in problem


def test_another_server_than_the_captured_one_is_a_problem(lake: Lake, source: Source) -> None:
    capture = begin(lake, source)
    other = replace(settings_of(source), source=source.cluster.dsn("postgres"))
    with connect(other.source) as conn:
        assert identify(conn) != capture.server
    (problem,) = capture_status(lake.catalog, other).problems
    assert "not the server (or database) that was captured" in problem
    assert capture_status(lake.catalog, other).is_slot_lost
    assert not status_of(lake, source).is_slot_lost


def test_a_runner_that_notes_no_progress_for_long_is_a_problem(lake: Lake, source: Source) -> None:
    begin(lake, source)
    source.run("create table noise (id int)", "checkpoint")
    impatient = replace(settings_of(source), heartbeat_seconds=0.001, batch_seconds=0.0)
    with RunnerPresence(source.dsn, impatient.slot):
        (problem,) = capture_status(lake.catalog, impatient).problems
    assert "has noted no progress for" in problem


def test_settings_come_from_the_file_then_the_environment_then_keywords(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "capture.toml"
    file.write_text(
        '[cdc]\nsource = "dbname=shop"\npublication = "shop"\nbatch_size = "1MB"\nbatch_window = 2\n'
        'heartbeat = "1min"\ntables = ["orders", "lines"]\ndeletion_vectors = false\nbuckets = 8\n'
    )
    monkeypatch.setenv("DL_CONFIG", str(file))
    monkeypatch.setenv("DL_CDC_BATCH_SIZE", "2MB")
    monkeypatch.setenv("DL_CDC_BUCKETS", "16")
    monkeypatch.setenv("DL_CDC_TEXT_COLUMNS", "public.orders.note, public.lines.note")
    found = load_settings({"buckets": 32, "namespace": None, "tables": ()})
    assert (found.source, found.publication, found.slot) == ("dbname=shop", "shop", "dl_shop_shop")
    assert (found.batch_bytes, found.batch_seconds, found.heartbeat_seconds) == (2 << 20, 2.0, 60.0)
    assert (found.tables, found.buckets, found.deletion_vectors) == (("orders", "lines"), 32, False)
    assert found.text_columns == ("public.orders.note", "public.lines.note")
    with pytest.raises(ConfigError, match=r"unknown setting 'cdc.batchsize'.*did you mean cdc.batch_size"):
        load_settings({"batchsize": "1MB"})


def test_a_started_capture_is_found_by_what_is_given_of_it(lake: Lake, source: Source) -> None:
    with pytest.raises(ConfigError, match="no such capture"):
        find_settings(lake.catalog, {})
    capture = begin(lake, source)
    found = find_settings(lake.catalog, {})
    assert (found.slot, found.publication, found.namespace, found.source) == (capture.slot, "shop", "shop", "")
    lake.catalog.create_table("shop.cdc_notes", "id long")  # somebody's own table
    assert find_settings(lake.catalog, {"slot": capture.slot}).control_table == capture.control
    assert find_settings(lake.catalog, {"publication": "other"}).control_table == "cdc.cdc_dl_other"
    second = CaptureSettings(source.dsn, "shop", slot="another")
    create_capture(lake.catalog, second, capture.server, capture.lsn)
    with pytest.raises(ConfigError, match="several captures .*say which one with --slot"):
        find_settings(lake.catalog, {})
    assert find_settings(lake.catalog, {"slot": "another"}).namespace is None


def test_the_metrics_of_a_capture_say_lag_rows_batches_and_failures() -> None:
    slot = "dl_metrics"
    record_batch(slot, seconds=1.5, rows={"public.m": {"insert": 3, "delete": 1}}, lsn=10, flushed_lsn=110)
    record_batch(slot, seconds=0.5, rows={"public.m": {"insert": 2}}, lsn=110, flushed_lsn=110)
    record_failure(slot, SlotLostError("gone"))
    assert telemetry.value_of(telemetry.CDC_ROWS, "public.m", "insert") == 5
    assert telemetry.value_of(telemetry.CDC_ROWS, "public.m", "delete") == 1
    assert telemetry.value_of(telemetry.CDC_BATCHES, slot) == 2
    assert telemetry.value_of(telemetry.CDC_LAG_BYTES, slot) == 0
    assert telemetry.value_of(telemetry.CDC_FAILURES, slot, "SlotLostError") == 1
    assert (telemetry.value_of(telemetry.CDC_TABLE_CHANGED, slot, "public.m") or 0) > 1_700_000_000
    tables = {"public.m": CapturedTable("public.m", 1, (), (), "m", "m_changes", stage="streaming")}
    tables["public.s"] = replace(tables["public.m"], source="public.s", stage="stopped")
    record_tables(Capture("c", Server("1", 1, "d"), "shop", slot, 10, tables))
    assert telemetry.value_of(telemetry.CDC_TABLE_STREAMING, slot, "public.m") == 1
    assert telemetry.value_of(telemetry.CDC_TABLE_STREAMING, slot, "public.s") == 0
    kept = Slot(slot, "d", 100, 90, "reserved", 1000, None, None, None)
    record_slot(kept, 190)
    assert telemetry.value_of(telemetry.CDC_SLOT_RETAINED, slot) == 100
    assert telemetry.value_of(telemetry.CDC_SLOT_LEFT, slot) == 1000
    record_slot(replace(kept, safe_wal_size=None), 190)
    assert telemetry.value_of(telemetry.CDC_SLOT_LEFT, slot) is None
    text = telemetry.exposition().decode()
    assert 'deltalakedb_cdc_rows_total{op="insert",table="public.m"} 5.0' in text
    assert 'deltalakedb_cdc_batch_seconds_bucket{le="1.0"}' in text


def test_the_lag_in_seconds_is_the_age_of_the_last_look_that_is_all_captured(monkeypatch: pytest.MonkeyPatch) -> None:
    now = timedelta(seconds=1000)
    monkeypatch.setattr(time, "monotonic", lambda: now.total_seconds())
    meter, lags = LagMeter("dl_meter"), []
    for seconds, flushed, captured in ((0, 100, 100), (5, 200, 100), (10, 300, 150), (15, 400, 250), (20, 400, 400)):
        now = timedelta(seconds=1000 + seconds)
        assert meter.is_due()
        meter.record(flushed_lsn=flushed, lsn=captured)
        assert not meter.is_due()
        lags.append(telemetry.value_of(telemetry.CDC_LAG_SECONDS, "dl_meter"))
    assert lags == [0, 5, 10, 10, 0]
