"""Replication slots: made, moved, lost; and snapshots exported at a slot."""

import time
from contextlib import closing

import pytest

from deltalakedb.cdc.lsn import format_lsn
from deltalakedb.cdc.settings import CaptureSettings
from deltalakedb.cdc.source.copy_plan import session_at
from deltalakedb.cdc.source.peek import RangeRead, read_changes
from deltalakedb.cdc.source.postgres import connect, flush_lsn
from deltalakedb.cdc.source.publication import published_tables
from deltalakedb.cdc.source.slots import (
    advance_slot,
    check_slot,
    create_slot,
    drop_slot,
    exported_snapshot,
    find_slot,
    keep_restart_near,
)
from deltalakedb.exceptions import CaptureError, CaptureSetupError, SlotLostError, SourceUnavailableError
from tests.cdc.conftest import Source


def slots_become(source: Source, names: list[str]) -> bool:
    """Whether these are the slots, now or soon: a temporary one goes when the backend of its session has ended."""
    query = f"select slot_name from pg_replication_slots where database = '{source.database}' order by 1"
    deadline = time.monotonic() + 30
    while [str(name) for (name,) in source.run(query)] != names:
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def changes_from(source: Source, slot: str, start: int) -> int:
    """How many changes the slot has to tell of."""
    with connect(source.dsn) as conn:
        tables = published_tables(conn, CaptureSettings(source.dsn, "shop"))
        *_, read = read_changes(source.dsn, slot, "shop", start, flush_lsn(conn), tables)
    assert isinstance(read, RangeRead)
    return read.changes


def commit_row(source: Source) -> int:
    """Insert a row; the flushed end of the log after it."""
    source.run("set synchronous_commit = on", "insert into t default values")
    with connect(source.dsn) as conn:
        conn.execute("select pg_log_standby_snapshot()")
        return flush_lsn(conn)


def with_table(source: Source) -> None:
    source.run("create table t (id serial primary key)", "create publication shop for all tables")


def test_a_slot_is_made_found_moved_and_dropped(source: Source) -> None:
    with_table(source)
    with connect(source.dsn) as conn:
        assert find_slot(conn, "own") is None
        lsn = create_slot(conn, "own")
        made = check_slot(conn, "own", lsn)
        assert (made.name, made.database, made.confirmed_lsn, made.wal_status) == (
            "own",
            source.database,
            lsn,
            "reserved",
        )
        assert made.restart_lsn is not None
        assert made.restart_lsn <= lsn
        assert made.active_pid is None
        assert made.invalidation_reason is None
        assert not made.is_lost
        further = commit_row(source)
        advance_slot(conn, "own", further)
        assert check_slot(conn, "own", further).confirmed_lsn == further
        advance_slot(conn, "own", lsn)
        assert check_slot(conn, "own", further).confirmed_lsn == further, "a slot does not go back"
        drop_slot(conn, "own")
        drop_slot(conn, "own")
        assert find_slot(conn, "own") is None


def test_a_slot_that_is_gone_is_a_slot_lost(source: Source) -> None:
    with connect(source.dsn) as conn:
        lsn = flush_lsn(conn)
        with pytest.raises(SlotLostError, match="the slot own is not there any more.*dl cdc resnapshot"):
            check_slot(conn, "own", lsn)
        with pytest.raises(SlotLostError, match="own"):
            advance_slot(conn, "own", lsn)


def test_a_slot_that_was_moved_past_what_was_captured_is_a_slot_lost(source: Source) -> None:
    with_table(source)
    with connect(source.dsn) as conn:
        lsn = create_slot(conn, "own")
        further = commit_row(source)
        advance_slot(conn, "own", further)
        with pytest.raises(SlotLostError, match=f"moved to {format_lsn(further)}.*before {format_lsn(lsn)} only"):
            check_slot(conn, "own", lsn)


def test_a_slot_of_the_same_name_is_not_taken_over(source: Source) -> None:
    with connect(source.dsn) as conn:
        create_slot(conn, "own")
        with pytest.raises(CaptureSetupError, match=r"already exists.*pg_drop_replication_slot\('own'\)"):
            create_slot(conn, "own")


def test_a_place_to_begin_at_is_written_where_readers_begin_too_far_back(source: Source) -> None:
    with_table(source)
    with connect(source.dsn) as conn:
        lsn = create_slot(conn, "own")
        source.run("insert into t select from generate_series(1, 1000)")
        assert not keep_restart_near(conn, "own", 1 << 30), "near enough"
        assert not keep_restart_near(conn, "gone", 0)
        begun = []
        for _ in range(3):
            source.run("insert into t default values")
            lsn = flush_lsn(conn)
            advance_slot(conn, "own", lsn)
            assert keep_restart_near(conn, "own", 0)
            begun.append(check_slot(conn, "own", lsn).restart_lsn)
        assert begun[-1] is not None
        assert begun[0] is not None
        assert begun[-1] > begun[0], "readers begin later than they did"
        conn.execute("create role plain login replication")
        try:
            conn.execute("set role plain")
            assert not keep_restart_near(conn, "own", 0), "without the right to, nothing is done"
        finally:
            conn.execute("reset role")
            conn.execute("drop role plain")


def test_a_slot_that_another_session_reads_cannot_be_moved(source: Source) -> None:
    with_table(source)
    with connect(source.dsn) as conn, closing(connect(source.dsn, replication=True)) as reader:
        lsn = create_slot(conn, "own")
        further = commit_row(source)
        start = f"START_REPLICATION SLOT own LOGICAL {format_lsn(lsn)} (proto_version '1', publication_names 'shop')"
        reader.pgconn.exec_(start.encode())
        with pytest.raises(CaptureError, match="the slot own is in use.*pg_terminate_backend"):
            advance_slot(conn, "own", further)
        found = find_slot(conn, "own")
        assert found is not None
        assert found.active_pid == reader.info.backend_pid


def test_an_exported_snapshot_has_what_was_committed_before_its_lsn_and_nothing_else(source: Source) -> None:
    with_table(source)
    with connect(source.dsn) as conn:
        create_slot(conn, "own")
        commit_row(source)
        with exported_snapshot(source.dsn) as (snapshot, lsn):
            commit_row(source)
            with session_at(source.dsn, snapshot) as held:
                assert held.execute("select count(*) from public.t").fetchone() == (1,)
            assert changes_from(source, "own", lsn) == 1, "the stream from there has the other row"
        assert slots_become(source, ["own"])
        with (
            pytest.raises(SourceUnavailableError, match="snapshot .* is gone"),
            session_at(source.dsn, snapshot),
        ):
            pass


def test_a_snapshot_that_waits_for_an_open_transaction_can_be_given_up(source: Source) -> None:
    class Enough(Exception):
        pass

    asked = []

    def check() -> None:
        asked.append(1)
        if len(asked) == 2:
            raise Enough

    with_table(source)
    with closing(source.connect(autocommit=False)) as writer:
        writer.execute("insert into t default values")
        with pytest.raises(Enough), exported_snapshot(source.dsn, check):
            pass
        assert slots_become(source, [])
        writer.commit()
    with exported_snapshot(source.dsn, check) as (snapshot, _), session_at(source.dsn, snapshot) as held:
        assert held.execute("select count(*) from public.t").fetchone() == (1,)


def test_a_snapshot_without_room_for_its_slot_says_so(source: Source) -> None:
    with closing(source.connect()) as conn:
        free = conn.execute(
            "select current_setting('max_replication_slots')::int - count(*)::int from pg_replication_slots"
        ).fetchone()
        assert free is not None
        try:
            conn.execute(f"select pg_create_physical_replication_slot('p' || i) from generate_series(1, {free[0]}) i")
            with (
                pytest.raises(CaptureSetupError, match="all replication slots are in use"),
                exported_snapshot(source.dsn),
            ):
                pass
        finally:
            conn.execute(
                "select pg_drop_replication_slot(slot_name) from pg_replication_slots where slot_type = 'physical'"
            )
