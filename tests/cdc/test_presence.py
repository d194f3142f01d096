"""One runner at a time: it is seen, refused a second time, asked to stop, and gone with its connection."""

import os
import subprocess
import sys
import threading
import time

import pytest

from deltalakedb.cdc.run.presence import RunnerPresence, channel_of, find_runner, request_stop
from deltalakedb.cdc.source.postgres import connect
from deltalakedb.exceptions import CaptureError, CaptureRunningError, SourceUnavailableError
from tests.cdc.conftest import Source


def test_a_runner_is_seen_with_its_pid_and_gone_after_its_block(source: Source) -> None:
    with connect(source.dsn) as conn:
        assert find_runner(conn, "dl_shop") is None
        with RunnerPresence(source.dsn, "dl_shop") as presence:
            found = find_runner(conn, "dl_shop")
            assert found is not None
            assert found.pid == os.getpid()
            assert str(os.getpid()) in str(found)
            assert find_runner(conn, "dl_other") is None
            assert not presence.should_stop()
            assert presence.flushed_lsn()
            again = find_runner(conn, "dl_shop")
            assert again is not None
            assert again.pid == os.getpid(), "asking for the LSN leaves the runner's name where others read it"
        assert find_runner(conn, "dl_shop") is None


def test_a_second_runner_is_refused_and_told_who_runs(source: Source) -> None:
    with (
        RunnerPresence(source.dsn, "dl_shop"),
        pytest.raises(CaptureRunningError, match=rf"process {os.getpid()} on .*dl cdc stop --slot dl_shop"),
        RunnerPresence(source.dsn, "dl_shop"),
    ):
        pass
    with RunnerPresence(source.dsn, "dl_shop"), RunnerPresence(source.dsn, "dl_other"):
        pass


def test_a_runner_hears_that_it_should_stop_and_the_asker_waits_for_it(source: Source) -> None:
    slot = "s" * 63  # longer than the name of a channel may be
    assert len(channel_of(slot)) <= 63
    heard = threading.Event()

    def run() -> None:
        with RunnerPresence(source.dsn, slot) as presence:
            until = time.monotonic() + 30
            while not presence.should_stop() and time.monotonic() < until:
                time.sleep(0.02)
            if presence.should_stop():
                heard.set()

    runner = threading.Thread(target=run)
    runner.start()
    with connect(source.dsn) as conn:
        until = time.monotonic() + 30
        while find_runner(conn, slot) is None and time.monotonic() < until:
            time.sleep(0.02)
        asked = request_stop(conn, slot, 30)
        assert asked is not None
        assert asked.pid == os.getpid()
        assert find_runner(conn, slot) is None
        assert request_stop(conn, slot, 1) is None
    runner.join()
    assert heard.is_set()


def test_a_stop_that_was_meant_for_the_runner_before_stops_nobody(source: Source) -> None:
    with RunnerPresence(source.dsn, "dl_shop") as presence, connect(source.dsn) as conn:
        runner = find_runner(conn, "dl_shop")
        assert runner is not None
        assert runner.pid == os.getpid()
        conn.execute("select pg_notify(%s, %s)", [channel_of("dl_shop"), str(runner.backend_pid - 1)])
        assert presence.flushed_lsn()
        assert not presence.should_stop()
        conn.execute("select pg_notify(%s, %s)", [channel_of("dl_shop"), str(runner.backend_pid)])
        assert presence.flushed_lsn()
        assert presence.should_stop()


def test_a_runner_that_does_not_stop_is_named(source: Source) -> None:
    with (
        RunnerPresence(source.dsn, "dl_shop"),
        connect(source.dsn) as conn,
        pytest.raises(CaptureError, match=rf"still busy .*process {os.getpid()}"),
    ):
        request_stop(conn, "dl_shop", 0.2)


def test_the_lock_of_a_killed_runner_is_free_at_once(source: Source) -> None:
    code = (
        "import sys, time; from deltalakedb.cdc.run.presence import RunnerPresence\n"
        "with RunnerPresence(sys.argv[1], 'dl_shop'):\n    print('held', flush=True)\n    time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", code, source.dsn], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        process.kill()
        with RunnerPresence(source.dsn, "dl_shop") as presence:
            assert not presence.should_stop()


def test_a_runner_whose_connection_is_gone_is_told_so(source: Source) -> None:
    with RunnerPresence(source.dsn, "dl_shop") as presence:
        with source.connect() as admin:
            found = find_runner(admin, "dl_shop")
            assert found is not None
            admin.execute("select pg_terminate_backend(%s, 5000)", [found.backend_pid])
        with pytest.raises(SourceUnavailableError):
            _ask_for_a_while(presence)


def _ask_for_a_while(presence: RunnerPresence) -> None:
    for _ in range(100):
        presence.should_stop()
        time.sleep(0.02)
