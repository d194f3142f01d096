"""DuckDB between processes: nobody loses a commit, idle readers shut nobody out, and changes by others are seen."""

import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from deltalakedb.exceptions import StoreBusyError, StoreError
from deltalakedb.store import Store, open_store
from tests.fixtures.forked import Script, run_script, start_script

_ADVANCE = """
import sys
from deltalakedb.store import open_store
with open_store("duckdb", sys.argv[1]) as store:
    print("about to write", flush=True)
    for _ in range(int(sys.argv[2])):
        with store.write() as conn:
            expected = conn.one("select_next_table_id")["next_table_id"]
            assert conn.run("advance_next_table_id", expected=expected) == 1
        with store.read() as conn:
            assert conn.one("select_catalog")["next_table_id"] > expected
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "c.duckdb"


def advance_elsewhere(path: Path, times: int = 1) -> Script:
    return start_script(_ADVANCE, str(path), str(times))


def finish(script: Script) -> None:
    ended = script.wait()
    assert ended.returncode == 0, ended.stderr


def next_table_id(store: Store) -> int:
    with store.read() as conn:
        row = conn.one("select_catalog")
        assert row is not None
        return int(row["next_table_id"])


def test_processes_that_write_at_once_lose_nothing(path: Path) -> None:
    with open_store("duckdb", str(path)) as store:
        processes = [advance_elsewhere(path, 6) for _ in range(3)]
        for _ in range(6):
            next_table_id(store)
        for process in processes:
            finish(process)
        assert next_table_id(store) == 1 + 3 * 6


def test_an_idle_reader_shuts_nobody_out_and_sees_what_changed(path: Path) -> None:
    with open_store("duckdb", str(path)) as store:
        for expected in (1, 2, 3):
            assert next_table_id(store) == expected
            finish(advance_elsewhere(path))
        assert next_table_id(store) == 4
        run_elsewhere(path, "update dl_catalog set next_table_id = 100")
        assert next_table_id(store) == 100


def test_an_open_read_block_holds_writers_back(path: Path) -> None:
    with open_store("duckdb", str(path)) as store:
        with store.read() as conn:
            writer = advance_elsewhere(path)
            writer.wait_for("about to write\n")
            assert not writer.ends_in(1)
            row = conn.one("select_catalog")
            assert row is not None
            assert row["next_table_id"] == 1
            with pytest.raises(duckdb.IOException, match="lock"):
                run_elsewhere(path, "select 1")
        finish(writer)
        assert next_table_id(store) == 2


def run_elsewhere(path: Path, statement: str) -> None:
    """Use the file as a program would that knows nothing of our lock file."""
    script = f"import duckdb; duckdb.connect({str(path)!r}).execute({statement!r})"
    done = run_script(script)
    if done.returncode:
        raise duckdb.IOException(done.stderr)


def test_a_foreign_program_that_keeps_the_file_open_is_named_after_a_bounded_wait(path: Path) -> None:
    open_store("duckdb", str(path)).close()
    script = f"import duckdb, time; c = duckdb.connect({str(path)!r}); print('open', flush=True); time.sleep(60)"
    foreign = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    try:
        assert foreign.stdout is not None
        assert foreign.stdout.readline() == "open\n"
        with pytest.raises(StoreBusyError, match="another program"):
            open_store("duckdb", str(path), busy_timeout_seconds=0.3)
    finally:
        foreign.kill()
        foreign.wait()
        assert foreign.stdout is not None
        foreign.stdout.close()


def test_a_killed_writer_leaves_the_file_free_and_its_work_undone(path: Path) -> None:
    with open_store("duckdb", str(path)) as store:
        script = f"""
import os
from deltalakedb.store import open_store
with open_store("duckdb", {str(path)!r}) as store, store.write() as conn:
    conn.run("advance_next_table_id", expected=1)
    os.kill(os.getpid(), 9)
"""
        assert run_script(script).returncode == -9
        assert next_table_id(store) == 1


def test_threads_share_one_handle_and_two_stores_one_file(path: Path) -> None:
    with open_store("duckdb", str(path)) as one, open_store("duckdb", str(path)) as two:
        both_read = threading.Barrier(2, timeout=20)

        def read(store: Store) -> int:
            with store.read() as conn:
                both_read.wait()
                row = conn.one("select_catalog")
                assert row is not None
                return int(row["next_table_id"])

        with ThreadPoolExecutor(2) as pool:
            assert list(pool.map(read, (one, two))) == [1, 1]
        with one.write() as conn:
            conn.run("advance_next_table_id", expected=1)
        assert next_table_id(two) == 2
        one.close()
        assert next_table_id(two) == 2


def test_blocks_that_would_wait_for_themselves_are_refused_at_once(path: Path) -> None:
    with open_store("duckdb", str(path)) as store:
        refused = pytest.raises(StoreError, match="open in this thread")
        with store.write(), refused, store.read():
            pass
        with store.read(), refused, store.write():
            pass
        with store.read(), store.read() as conn:
            assert conn.one("select_catalog") is not None


def test_a_large_wal_is_checkpointed_and_a_small_one_is_left(path: Path) -> None:
    wal = Path(f"{path}.wal")
    with open_store("duckdb", str(path)) as store:
        with store.write() as conn:
            conn.run("advance_next_table_id", expected=1)
        assert 0 < wal.stat().st_size < 2**20
        with store.write() as conn:
            conn.sql(
                "insert into dl_audit (audit_id, at_ms, action, details) "
                "select cast(i as text), i, 'x', repeat(cast(i as text), 40) from range(200000) r(i)"
            )
        assert not wal.exists() or wal.stat().st_size < 2**20
        assert next_table_id(store) == 2


def test_a_folder_without_write_access_can_still_be_read(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    open_store("duckdb", str(path)).close()
    Path(f"{path}.lock").unlink()

    def refuse(*_: object, **__: object) -> int:
        raise PermissionError(13, "Permission denied")

    real_open = os.open
    monkeypatch.setattr(os, "open", lambda p, *a: refuse() if str(p).endswith(".lock") else real_open(p, *a))
    with open_store("duckdb", str(path), schema="error") as store:
        assert next_table_id(store) == 1


def advance(store: Store) -> int:
    with store.write() as conn:
        row = conn.one("select_next_table_id")
        assert row is not None
        expected = int(row["next_table_id"])
        assert conn.run("advance_next_table_id", expected=expected) == 1
    return expected + 1


def test_an_idle_writer_shuts_nobody_out_and_goes_on_from_what_others_wrote(path: Path) -> None:
    with open_store("duckdb", str(path)) as store:
        expected = 1
        for _ in range(4):
            expected += 1
            assert advance(store) == expected
            finish(advance_elsewhere(path))
            expected += 1
            assert next_table_id(store) == expected
        run_elsewhere(path, "update dl_catalog set next_table_id = 100; checkpoint")  # the WAL is gone, and not by us
        assert advance(store) == 101
        run_elsewhere(path, "update dl_catalog set next_table_id = 200")
        assert (next_table_id(store), advance(store)) == (200, 201)
    with open_store("duckdb", str(path)) as store:
        assert next_table_id(store) == 201


def test_a_writer_that_failed_leaves_nothing_for_the_next_one(path: Path) -> None:
    with open_store("duckdb", str(path)) as store:
        assert advance(store) == 2
        with pytest.raises(StoreError), store.write() as conn:
            conn.script(["update dl_catalog set next_table_id = 7", "select nonsense from nowhere"])
        assert next_table_id(store) == 2
        assert advance(store) == 3


def test_nothing_can_be_written_in_a_read_block(path: Path) -> None:
    with open_store("duckdb", str(path)) as store:
        advance(store)
        for single in (True, False):
            with pytest.raises(StoreError), store.read(single=single) as conn:
                conn.run("advance_next_table_id", expected=2)
        assert next_table_id(store) == 2


def test_users_read_a_file_that_was_just_written(path: Path) -> None:
    with open_store("duckdb", str(path)) as store:
        for expected in (2, 3):
            assert advance(store) == expected
            assert store.select("select next_table_id from dl_catalog").to_pylist() == [{"next_table_id": expected}]


def test_many_rows_at_once_are_written_into_the_file(path: Path) -> None:
    with open_store("duckdb", str(path)) as store:
        count = 30_000
        rows = pa.table({"lease": [f"x{n}" for n in range(count)], "holder": ["a"] * count, "until_ms": [1] * count})
        with store.write() as conn:
            conn.insert("dl_leases", rows)
        wal = Path(f"{path}.wal")
        assert not wal.exists() or wal.stat().st_size < 32 * 1024
        advance(store)
    with open_store("duckdb", str(path)) as store, store.read() as conn:
        assert conn.sql("select count(*) as count from dl_leases") == [{"count": count}]


def test_a_wal_that_every_opening_replays_stays_short(path: Path) -> None:
    sizes = []
    for number in range(30):
        with open_store("duckdb", str(path)) as store, store.write() as conn:
            conn.insert_few("dl_leases", {"lease": [f"x{number}"], "holder": ["h" * 1000], "until_ms": [1]})
        wal = Path(f"{path}.wal")
        sizes.append(wal.stat().st_size if wal.exists() else 0)
    assert sizes.count(0) <= 5, "a checkpoint now and then, not for each commit"
    assert max(sizes[1:]) < 16 * 1024
    with open_store("duckdb", str(path)) as store, store.read() as conn:
        assert conn.sql("select count(*) as count from dl_leases") == [{"count": 30}]
