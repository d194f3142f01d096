"""Commits are put into `_delta_log` whole, durable and never in place of another, on disk and in object stores."""

import errno
import multiprocessing
import os
import signal
import stat
import subprocess
import sys
import textwrap
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from obstore.exceptions import AlreadyExistsError, GenericError, PermissionDeniedError

from deltalakedb.exceptions import MirrorError
from deltalakedb.files import FileTxnLogReader, FileTxnLogWriter
from deltalakedb.files.log_folder import LogFolder
from deltalakedb.runtime import steps
from deltalakedb.runtime.backoff import Backoff
from deltalakedb.storage import disk, object_store
from deltalakedb.storage.object_store import ObjectStorage
from tests.fixtures.handmade import HandmadeTable
from tests.fixtures.s3 import ACCESS_KEY_ID, S3, SECRET_ACCESS_KEY

OpenWriter = Callable[[], FileTxnLogWriter]


@pytest.fixture(params=["local", "memory", "s3"])
def open_writer(request: pytest.FixtureRequest, tmp_path: Path) -> OpenWriter:
    """A function that gives writers of one and the same table that is not there yet."""
    if request.param == "local":
        return lambda: FileTxnLogWriter(tmp_path / "not" / "there yet", table="t")
    if request.param == "memory":
        uri = f"memory://{uuid.uuid4().hex}/lake/t"
        return lambda: FileTxnLogWriter(uri, table="t")
    s3: S3 = request.getfixturevalue("s3")
    return lambda: FileTxnLogWriter(s3.uri("lake/t"), s3.storage_options, table="t")


def test_the_first_of_two_puts_is_kept(open_writer: OpenWriter) -> None:
    writer = open_writer()
    assert writer.read_commit(0) is None
    assert not writer.has_commit(0)
    assert writer.put_commit(0, b"first\n", modified_ms=1) == "written"
    assert open_writer().put_commit(0, b"second\n", modified_ms=2) == "exists"
    assert open_writer().put_commit(0, b"first\n", modified_ms=3) == "exists"
    assert writer.read_commit(0) == b"first\n"
    assert writer.has_commit(0)
    assert writer.read_commit(1) is None


def test_what_is_put_is_what_the_reader_reads(open_writer: OpenWriter, handmade: HandmadeTable) -> None:
    data = handmade.create().commit_path(0).read_bytes()
    writer = open_writer()
    writer.put_commit(0, data, modified_ms=1)
    assert writer.read_commit(0) == data


def test_a_local_commit_carries_its_own_time_and_ordinary_permissions(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        FileTxnLogWriter(tmp_path, table="t").put_commit(7, b"x", modified_ms=1_600_000_000_123)
    finally:
        os.umask(before)
    path = tmp_path / "_delta_log" / "00000000000000000007.json"
    assert path.stat().st_mtime_ns == 1_600_000_000_123_000_000
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert [path.name] == os.listdir(tmp_path / "_delta_log")


def test_the_time_of_a_local_commit_is_what_travelling_readers_see(handmade: HandmadeTable, tmp_path: Path) -> None:
    data = handmade.create().commit_path(0).read_bytes()
    FileTxnLogWriter(tmp_path / "t", table="t").put_commit(0, data, modified_ms=1_234_567)
    [commit] = FileTxnLogReader(tmp_path / "t").commits(0)
    assert commit.timestamp_ms == 1_234_567


def test_the_steps_of_a_put_are_named(tmp_path: Path, s3: S3, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []

    def observe(step: str) -> None:
        if step.startswith("mirror.json"):  # a catalog that another test left open may still be at work
            seen.append(step)

    monkeypatch.setattr(steps, "_observers", [observe])
    FileTxnLogWriter(tmp_path, table="t").put_commit(0, b"x", modified_ms=1)
    assert seen == ["mirror.json_temp", "mirror.json_linked"]
    seen.clear()
    FileTxnLogWriter(s3.uri("t"), s3.storage_options, table="t").put_commit(0, b"x", modified_ms=1)
    assert seen == ["mirror.json_put"]


def _race(location: str, options: dict[str, str], number: int, start: Any, answers: Any) -> None:
    writer = FileTxnLogWriter(location, options, table="t")
    start.wait()
    for version in range(20):
        data = f"{number}\n".encode() * 2000
        answers.put((version, number, writer.put_commit(version, data, modified_ms=1)))


@pytest.mark.parametrize("place", ["local", "s3"])
def test_of_racing_processes_exactly_one_wins_each_version(place: str, tmp_path: Path, s3: S3) -> None:
    location = str(tmp_path / "t") if place == "local" else s3.uri("t")
    options = {} if place == "local" else s3.storage_options
    spawn = multiprocessing.get_context("spawn")
    start, answers = spawn.Barrier(4), spawn.Queue()
    racers = [spawn.Process(target=_race, args=(location, options, n, start, answers)) for n in range(4)]
    for racer in racers:
        racer.start()
    outcomes = [answers.get(timeout=120) for _ in range(4 * 20)]
    for racer in racers:
        racer.join()
        assert racer.exitcode == 0
    writer = FileTxnLogWriter(location, options, table="t")
    for version in range(20):
        winners = [number for v, number, result in outcomes if v == version and result == "written"]
        assert len(winners) == 1
        assert writer.read_commit(version) == f"{winners[0]}\n".encode() * 2000


@pytest.mark.parametrize("step", ["mirror.json_temp", "mirror.json_linked"])
def test_a_process_killed_between_the_steps_leaves_no_torn_commit(step: str, tmp_path: Path) -> None:
    script = f"""
        import os, signal, sys
        from deltalakedb.runtime import steps
        from deltalakedb.files import FileTxnLogWriter
        steps.observe(lambda step: os.kill(os.getpid(), signal.SIGKILL) if step == {step!r} else None)
        FileTxnLogWriter(sys.argv[1], table="t").put_commit(0, b"whole" * 1000, modified_ms=1)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script), str(tmp_path)], check=False)
    assert done.returncode == -signal.SIGKILL
    writer = FileTxnLogWriter(tmp_path, table="t")
    there = writer.read_commit(0)
    assert there == (None if step == "mirror.json_temp" else b"whole" * 1000)
    assert writer.put_commit(0, b"whole" * 1000, modified_ms=1) == ("written" if there is None else "exists")
    assert writer.read_commit(0) == b"whole" * 1000
    left = [name for name in os.listdir(tmp_path / "_delta_log") if not name.endswith(".json")]
    assert len(left) == 1
    assert left[0].startswith(".")


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
def test_a_full_disk_is_a_clear_error_and_leaves_nothing(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_descriptor: int) -> None:
        raise OSError(number, os.strerror(number))

    writer = FileTxnLogWriter(tmp_path, table="sales.orders")
    writer.put_commit(0, b"x", modified_ms=1)
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fail)
        with pytest.raises(MirrorError, match=r"table sales\.orders: cannot write .*00001\.json: "):
            writer.put_commit(1, b"x", modified_ms=1)
    assert os.listdir(tmp_path / "_delta_log") == ["00000000000000000000.json"]
    assert writer.put_commit(1, b"x", modified_ms=1) == "written"


def without_hard_links(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on FAT and on some network file systems."""

    def refuse(*_paths: str) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)


def test_without_hard_links_a_commit_is_renamed_and_never_over_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_hard_links(monkeypatch)
    writer = FileTxnLogWriter(tmp_path, table="t")
    assert writer.put_commit(0, b"x", modified_ms=1) == "written"
    exists = os.path.lexists
    with monkeypatch.context() as patch:  # the other writer comes between the look and the rename
        patch.setattr(os.path, "lexists", lambda path: not str(path).endswith(".json") and exists(path))
        assert writer.put_commit(0, b"y", modified_ms=1) == "exists"
    assert writer.read_commit(0) == b"x"
    assert os.listdir(tmp_path / "_delta_log") == [f"{0:020}.json"]


def test_of_racing_threads_without_hard_links_exactly_one_wins_each_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_hard_links(monkeypatch)
    writer = FileTxnLogWriter(tmp_path, table="t")
    with ThreadPoolExecutor(4) as pool:
        for version in range(20):
            answers = list(pool.map(lambda n, v=version: writer.put_commit(v, b"%d" % n, modified_ms=1), range(4)))
            assert sorted(answers) == ["exists", "exists", "exists", "written"]
            assert writer.read_commit(version) == b"%d" % answers.index("written")


def test_a_file_system_that_can_neither_link_nor_rename_safely_is_refused_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_hard_links(monkeypatch)
    monkeypatch.setattr(disk, "_rename_call", lambda: None)
    with pytest.raises(MirrorError, match=r"no hard links, and cannot rename .*; keep the table elsewhere"):
        FileTxnLogWriter(tmp_path, table="t").put_commit(0, b"x", modified_ms=1)
    assert os.listdir(tmp_path / "_delta_log") == []


def test_a_location_that_is_a_file_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(MirrorError, match="table t: cannot write file:///.*: Not a directory"):
        FileTxnLogWriter(tmp_path / "file", table="t").put_commit(0, b"x", modified_ms=1)


class Flaky:
    """A store in which the next puts go wrong, before or after they have reached the endpoint."""

    def __init__(self, store: Any, *failures: tuple[str, type[Exception]]) -> None:
        self._store = store
        self.failures = list(failures)
        self.puts = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def put(self, *args: Any, **kwargs: Any) -> Any:
        self.puts += 1
        if self.failures:
            when, error = self.failures.pop(0)
            if when == "after":
                self._store.put(*args, **kwargs)
            raise error("as told")
        return self._store.put(*args, **kwargs)


def flaky(s3: S3, monkeypatch: pytest.MonkeyPatch, *failures: tuple[str, type[Exception]]) -> tuple[LogFolder, Flaky]:
    monkeypatch.setattr(object_store, "_RETRIES", Backoff(0.001, 0.002))
    writer = FileTxnLogWriter(s3.uri("t"), s3.storage_options, table="t")
    folder = writer._folder
    storage = folder.storage
    assert isinstance(storage, ObjectStorage)
    store = Flaky(storage._single, *failures)
    monkeypatch.setattr(storage, "_single", store)
    return folder, store


def test_a_put_that_failed_before_it_arrived_is_made_again(s3: S3, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, store = flaky(s3, monkeypatch, ("before", GenericError), ("before", GenericError))
    assert folder.put("0.json", b"x") == "written"
    assert store.puts == 3
    assert folder.read("0.json") == b"x"


def test_a_put_that_arrived_although_it_timed_out_counts_as_written(s3: S3, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, store = flaky(s3, monkeypatch, ("after", GenericError))
    assert folder.put("0.json", b"x") == "written"
    assert store.puts == 2


def test_an_uncertain_put_that_another_writer_won_is_exists(s3: S3, monkeypatch: pytest.MonkeyPatch) -> None:
    s3.put("t/_delta_log/0.json", b"another's")
    folder, _ = flaky(s3, monkeypatch, ("before", GenericError))
    assert folder.put("0.json", b"x") == "exists"
    assert folder.read("0.json") == b"another's"


def test_a_conflict_with_a_put_under_way_is_tried_again(s3: S3, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, store = flaky(s3, monkeypatch, ("before", AlreadyExistsError), ("before", AlreadyExistsError))
    assert folder.put("0.json", b"x") == "written"
    assert store.puts == 3


@pytest.mark.parametrize("error", [GenericError, AlreadyExistsError])
def test_attempts_are_bounded(error: type[Exception], s3: S3, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, store = flaky(s3, monkeypatch, *[("before", error)] * 100)
    with pytest.raises(MirrorError, match="table t: cannot write s3://.*/t/_delta_log/0.json: "):
        folder.put("0.json", b"x")
    assert store.puts == 8
    with pytest.raises(MirrorError, match="cannot write"):
        folder.put("0.json", b"x", timeout_seconds=0)
    assert store.puts == 9


def test_a_refused_put_is_not_repeated(s3: S3, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, store = flaky(s3, monkeypatch, ("before", PermissionDeniedError))
    with pytest.raises(MirrorError, match="as told"):
        folder.put("0.json", b"x")
    assert store.puts == 1


def test_a_failing_endpoint_is_an_error_without_secrets(s3: S3) -> None:
    options = s3.storage_options | {"AWS_ENDPOINT_URL": "http://127.0.0.1:1"}
    writer = FileTxnLogWriter(s3.uri("t"), options, table="t")
    with pytest.raises(MirrorError, match="table t: cannot write s3://") as caught:
        writer.put_commit(0, b"x", modified_ms=1, timeout_seconds=0.2)
    error: BaseException | None = caught.value
    while error is not None:
        assert SECRET_ACCESS_KEY not in repr(error)
        assert ACCESS_KEY_ID not in repr(error)
        error = error.__cause__
    assert SECRET_ACCESS_KEY not in repr(writer)
