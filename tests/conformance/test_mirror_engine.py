"""The mirror engine: what SQL has gets into the files, in order, once, whatever failed; nothing of others is lost."""

from __future__ import annotations

import ctypes
import json
import os
import random
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from deltalake import DeltaTable

from deltalakedb.exceptions import ExternalWriterError, NotWritableError
from deltalakedb.mirror.bookkeeping import MAX_BACKOFF_SECONDS, backoff_seconds, record_failure
from deltalakedb.mirror.engine import MirrorEngine
from deltalakedb.store import Store
from deltalakedb.store.reader import SqlTxnLogReader
from tests.conformance.lives import audited
from tests.conformance.mirrored import Managed, adds

FOREIGN = b'{"commitInfo":{"operation":"WRITE","engineInfo":"somebody else"}}\n'
Engines = Callable[..., MirrorEngine]


@pytest.fixture
def table(store: Store, tmp_path: Path) -> Managed:
    """A table of one version, which is not in its files yet."""
    return Managed.create(store, tmp_path / "lake" / "orders")[0]


@pytest.fixture
def engines(table: Managed) -> Iterator[Engines]:
    """Engines of the table; all are closed at the end."""
    opened: list[MirrorEngine] = []

    def open_one(**settings: object) -> MirrorEngine:
        opened.append(table.engine(**settings))
        return opened[-1]

    yield open_one
    for engine in opened:
        engine.close()


@pytest.fixture
def mirror(engines: Engines, table: Managed) -> MirrorEngine:
    """An engine that mirrors in line, and has mirrored the table's first version."""
    engine = engines()
    assert engine.mirror_table(table.row).error is None
    return engine


def rendered(table: Managed) -> dict[str, bytes]:
    """What must be in the files, by name."""
    commits = SqlTxnLogReader(table.store, table.row).mirror_commits(0)
    return {f"{commit.version:020d}.json": commit.data for commit in commits}


class Broken:
    """A folder in whose place there is a file: nothing can be written there until it is mended.

    The two change places in one step: a mirror in the background never finds the place free for a folder of its own.
    """

    def __init__(self, folder: Path) -> None:
        self._folder, self._away = folder, folder.with_name("away")

    def __enter__(self) -> Broken:
        self._folder.mkdir(parents=True, exist_ok=True)
        self._away.write_text("in the way")
        exchange(self._folder, self._away)
        return self

    def __exit__(self, *exc_info: object) -> None:
        exchange(self._folder, self._away)
        self._away.unlink()


def exchange(one: Path, other: Path) -> None:
    """Swaps two names at once, which Python's `os.rename` cannot: Linux' renameat2 with RENAME_EXCHANGE."""
    here, swap = -100, 2  # AT_FDCWD, RENAME_EXCHANGE
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.renameat2(here, os.fsencode(one), here, os.fsencode(other), swap) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), str(one))


# -- in line


def test_a_commit_is_in_the_files_when_the_call_returns(table: Managed, mirror: MirrorEngine) -> None:
    outcome = table.commit(adds("a"), adds("b", "c"))
    mirror.after_commit(outcome)
    assert [commit.version for commit in outcome.commits] == [1, 2]
    assert table.commits_on_disk() == rendered(table)
    for commit in outcome.commits:
        modified_ms = (table.folder / f"{commit.version:020d}.json").stat().st_mtime_ns // 1_000_000
        assert modified_ms == commit.timestamp_ms


def test_other_readers_open_what_was_mirrored_and_other_writers_are_fenced_off(
    table: Managed, mirror: MirrorEngine
) -> None:
    mirror.after_commit(table.commit(adds("a", "b")))
    opened = DeltaTable(table.folder.parent)
    assert opened.version() == 1
    assert sorted(opened.get_add_actions().column("path").to_pylist()) == ["a", "b"]
    protocol = opened.protocol()
    assert protocol.min_writer_version == 7
    assert "deltalakedb" in (protocol.writer_features or [])


def test_how_far_the_files_are_is_known_in_sql_at_the_latest_when_the_engine_closes(
    table: Managed, mirror: MirrorEngine
) -> None:
    for outcome in table.append(3):
        mirror.after_commit(outcome)
    assert mirror.known_version(table.row.table_id) == 3
    mirror.close()
    assert table.head.mirrored_version == 3


def test_a_mark_never_goes_back(table: Managed, mirror: MirrorEngine, engines: Engines) -> None:
    late = engines()
    late.mirror_table(table.row)
    for outcome in table.append(2):
        mirror.after_commit(outcome)
    mirror.flush()
    late.flush()
    assert table.head.mirrored_version == 2


def test_a_version_of_another_writer_that_never_came_is_mirrored_for_him(table: Managed, mirror: MirrorEngine) -> None:
    table.append(1)  # its process died between SQL and files
    (outcome,) = table.append(1)
    mirror.after_commit(outcome)
    assert table.commits_on_disk() == rendered(table)


def test_a_version_that_another_writer_is_about_to_put_is_waited_for(table: Managed, engines: Engines) -> None:
    first, second = engines(), engines()
    first.mirror_table(table.row)
    second.mirror_table(table.row)
    (one,), (two,) = table.append(1), table.append(1)
    waiting = threading.Thread(target=second.after_commit, args=(two,))
    waiting.start()
    time.sleep(0.02)
    first.after_commit(one)
    waiting.join(timeout=30)
    assert table.commits_on_disk() == rendered(table)
    assert table.failures() == []


def test_threads_that_commit_to_one_table_leave_its_files_in_order(table: Managed, mirror: MirrorEngine) -> None:
    def append(number: int) -> None:
        for step in range(5):
            mirror.after_commit(table.commit(adds(f"t{number}-{step}")))

    threads = [threading.Thread(target=append, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert table.head.current_version == 20
    assert table.commits_on_disk() == rendered(table)


def test_a_commit_too_large_to_be_held_is_read_back_from_sql(table: Managed, mirror: MirrorEngine) -> None:
    outcome = table.commit(adds(*(f"file-{n}.parquet" for n in range(3_000))))
    mirror.after_commit(outcome)
    assert table.commits_on_disk() == rendered(table)


# -- once and the same


def test_mirroring_again_writes_nothing(table: Managed, mirror: MirrorEngine, engines: Engines) -> None:
    for outcome in table.append(3):
        mirror.after_commit(outcome)
    mirror.flush()
    before = {path.name: path.stat() for path in table.folder.iterdir()}
    folder = table.folder.stat()
    forget_marks(table)
    result = engines().mirror_table(table.row)
    assert (result.from_version, result.to_version, result.num_written) == (-1, 3, 0)
    assert {path.name: path.stat().st_ino for path in table.folder.iterdir()} == {
        name: stat.st_ino for name, stat in before.items()
    }
    assert table.folder.stat().st_mtime_ns == folder.st_mtime_ns


def test_a_commit_that_says_the_same_in_other_bytes_is_ours(table: Managed, mirror: MirrorEngine) -> None:
    table.append(1)
    ours = rendered(table)["00000000000000000001.json"]
    respelled = b"".join(json.dumps(json.loads(line)).encode() + b"\n" for line in ours.splitlines())
    assert respelled != ours
    (table.folder / "00000000000000000001.json").write_bytes(respelled)
    assert mirror.mirror_table(table.row).error is None
    assert table.registered.state == "live"
    assert (table.folder / "00000000000000000001.json").read_bytes() == respelled


# -- others


def test_a_foreign_file_freezes_the_table_and_keeps_its_version(table: Managed, mirror: MirrorEngine) -> None:
    (table.folder / "00000000000000000001.json").write_bytes(FOREIGN)
    (outcome,) = table.append(1)
    mirror.after_commit(outcome)
    assert table.commits_on_disk()["00000000000000000001.json"] == FOREIGN
    assert table.registered.state == "frozen"
    assert audited(table.store)[-1] == "freeze"
    (failure,) = table.failures()
    assert failure["version"] == 1
    assert "engineInfo somebody else" in failure["error"]
    with pytest.raises(NotWritableError, match="frozen"):
        table.append(1)
    with pytest.raises(ExternalWriterError, match="version 1 in the files is not ours.*dl mirror resolve sales.orders"):
        mirror.mirror_table(table.row)
    assert audited(table.store).count("freeze") == 1


def test_nothing_is_put_on_top_of_a_foreign_file(table: Managed, mirror: MirrorEngine, engines: Engines) -> None:
    """Even by a process that has only the version after it at hand."""
    other = engines()
    other.mirror_table(table.row)
    (table.folder / "00000000000000000001.json").write_bytes(FOREIGN)
    table.append(1)
    (outcome,) = table.append(1)
    mirror.after_commit(outcome)
    assert sorted(table.commits_on_disk()) == ["00000000000000000000.json", "00000000000000000001.json"]
    assert table.registered.state == "frozen"


@pytest.mark.parametrize("content", [b"", b'{"commitInfo":{"operat', b"\xff\xfe"])
def test_a_file_that_cannot_be_read_is_foreign_and_stays(table: Managed, mirror: MirrorEngine, content: bytes) -> None:
    (table.folder / "00000000000000000001.json").write_bytes(content)
    mirror.after_commit(table.append(1)[0])
    assert table.registered.state == "frozen"
    assert (table.folder / "00000000000000000001.json").read_bytes() == content


def test_the_first_commit_of_a_process_looks_whether_somebody_wrote_meanwhile(
    table: Managed, mirror: MirrorEngine, engines: Engines
) -> None:
    mirror.flush()
    (table.folder / "00000000000000000001.json").write_bytes(FOREIGN)
    with pytest.raises(ExternalWriterError, match="version 1 is in the files, but not in SQL: written by engineInfo"):
        engines().probe(table.row, table.head)
    assert table.registered.state == "frozen"
    assert table.head.current_version == 0


def test_the_first_look_takes_our_own_files_without_marks_for_ours(
    table: Managed, mirror: MirrorEngine, engines: Engines
) -> None:
    for outcome in table.append(2):
        mirror.after_commit(outcome)
    mirror.flush()
    forget_marks(table)
    other = engines()
    other.probe(table.row)
    assert other.known_version(table.row.table_id) == 2
    other.flush()
    assert (table.registered.state, table.head.mirrored_version) == ("live", 2)


@pytest.mark.usefixtures("mirror")
def test_the_first_look_writes_nothing(table: Managed, engines: Engines) -> None:
    """Versions that wait for their mirror are left to it, also when it is being brought level at that moment."""
    table.append(3)
    forget_marks(table)
    other = engines(mode="off")
    other.probe(table.row)
    assert other.known_version(table.row.table_id) == 0
    assert len(table.commits_on_disk()) == 1


def test_a_database_from_an_old_backup_is_not_let_to_write_over_the_files(
    table: Managed, mirror: MirrorEngine, engines: Engines
) -> None:
    """SQL knows less than the files: they are ours, and yet not what SQL would write next."""
    mirror.flush()
    newer = rendered(table)["00000000000000000000.json"].replace(b"CREATE TABLE", b"WRITE")
    (table.folder / "00000000000000000001.json").write_bytes(newer)
    with pytest.raises(ExternalWriterError):
        engines().probe(table.row)
    assert table.registered.state == "frozen"


def test_files_that_cannot_be_looked_at_stop_no_commit(table: Managed, engines: Engines) -> None:
    with Broken(table.folder):
        engines().probe(table.row)
    assert table.registered.state == "live"


# -- failures


def test_a_failed_mirror_leaves_the_commit_a_row_and_a_warning(
    table: Managed, mirror: MirrorEngine, caplog: pytest.LogCaptureFixture
) -> None:
    with Broken(table.folder):
        mirror.after_commit(table.append(1)[0])
        (failure,) = table.failures()
        assert (failure["table_id"], failure["version"], failure["attempts"]) == (table.row.table_id, 1, 1)
        assert "_delta_log" in failure["error"]
        assert failure["next_try_ms"] > table.head.last_commit_ms
    assert table.head.current_version == 1
    assert "version 1 is not mirrored yet" in caplog.text


def test_what_failed_is_tried_again_by_itself_and_its_row_goes(table: Managed, engines: Engines) -> None:
    engine = engines(mirror_retry_backoff=0.05)
    engine.mirror_table(table.row)
    with Broken(table.folder):
        engine.after_commit(table.append(1)[0])
        assert len(table.failures()) == 1
    wait_until(lambda: table.commits_on_disk() == rendered(table))
    engine.flush()
    assert table.failures() == []


def test_commits_do_not_queue_up_behind_a_mirror_that_fails(table: Managed, engines: Engines) -> None:
    engine = engines(mirror_retry_backoff=60.0)
    engine.mirror_table(table.row)
    with Broken(table.folder):
        for outcome in table.append(5):
            engine.after_commit(outcome)
        (failure,) = table.failures()
        assert (failure["version"], failure["attempts"]) == (1, 1)
    assert engine.mirror_table(table.row).to_version == 5


def test_the_wait_doubles_up_to_five_minutes_and_is_spread() -> None:
    for attempts in range(1, 40):
        longest = min(MAX_BACKOFF_SECONDS, 2.0 ** (attempts - 1))
        waits = [backoff_seconds(attempts, 1.0) for _ in range(50)]
        assert all(longest / 2 <= wait <= longest for wait in waits)
        assert len(set(waits)) > 1


def test_a_failure_that_is_told_after_another_mirrored_the_version_leaves_no_row(
    table: Managed, mirror: MirrorEngine
) -> None:
    mirror.after_commit(table.append(1)[0])
    mirror.flush()
    late = record_failure(table.store, table.row.table_id, 1, "timed out", first_seconds=1.0)
    assert late is None
    assert table.failures() == []


def test_attempts_are_counted_over_processes(table: Managed, engines: Engines) -> None:
    table.append(1)
    with Broken(table.folder):
        for _ in range(3):
            assert engines(mirror_retry_backoff=60.0).mirror_table(table.row).error is not None
    (failure,) = table.failures()
    assert (failure["version"], failure["attempts"]) == (0, 3)


def test_a_commit_waits_for_its_mirror_only_so_long(table: Managed, engines: Engines) -> None:
    engine = engines(mirror_inline_timeout=0.0)
    table.append(3)
    engine.after_commit(table.append(1)[0])
    assert engine.flush()
    assert table.commits_on_disk() == rendered(table)


# -- background and off


def test_in_the_background_the_files_follow(table: Managed, engines: Engines) -> None:
    engine = engines(mode="background")
    for outcome in table.append(10):
        engine.after_commit(outcome)
    assert engine.flush()
    assert table.commits_on_disk() == rendered(table)
    assert table.head.mirrored_version == 10


def test_closing_finishes_what_is_in_the_background(table: Managed, engines: Engines) -> None:
    engine = engines(mode="background")
    for outcome in table.append(5):
        engine.after_commit(outcome)
    engine.close()
    assert table.commits_on_disk() == rendered(table)
    assert table.head.mirrored_version == 5


def test_off_writes_nothing(table: Managed, engines: Engines) -> None:
    engine = engines(mode="off")
    for outcome in table.append(2):
        engine.after_commit(outcome)
    engine.flush()
    assert not table.folder.exists()
    assert table.failures() == []


# -- all of it together


@pytest.mark.parametrize("seed", range(3))
def test_after_random_failures_the_files_converge_and_are_always_a_prefix(
    table: Managed, engines: Engines, seed: int
) -> None:
    """Engines that come, fail, forget and die in any order: what is in the files is never a gap, never another text."""
    chance = random.Random(seed)
    current = engines(mirror_retry_backoff=0.01)
    for _ in range(25):
        match chance.randrange(5):
            case 0:
                with Broken(table.folder):
                    current.after_commit(table.append(1)[0])
            case 1:
                current = engines(mirror_retry_backoff=0.01, mode=chance.choice(["inline", "background"]))
            case 2:
                table.append(1)
            case 3:
                forget_marks(table)
            case _:
                current.after_commit(table.append(1)[0])
        names = sorted(table.commits_on_disk())
        assert names == [f"{version:020d}.json" for version in range(len(names))]
    last = engines()
    assert last.mirror_table(table.row).error is None
    last.flush()
    assert table.commits_on_disk() == rendered(table)
    assert table.head.mirrored_version == table.head.current_version
    assert table.failures() == []


def forget_marks(table: Managed) -> None:
    """As after a crash of a database that kept its marks in memory."""
    with table.store.write() as conn:
        conn.sql(
            "update dl_table_heads set mirrored_version = -1 where table_id = :table_id returning table_id",
            table_id=table.row.table_id,
        )


def wait_until(holds: Callable[[], bool], seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)
