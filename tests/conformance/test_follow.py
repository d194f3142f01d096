"""Following a table that others write: commit by commit, twice at once, past clean-up, and never the wrong table."""

import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import deltalake
import pytest

from deltalakedb.exceptions import TableNotFoundError, TableReplacedError, VersionNotFoundError
from deltalakedb.mirror.follow import Gap, attach, follow
from deltalakedb.mirror.validate import validate
from deltalakedb.store.connection import Store
from deltalakedb.store.reader import SqlTxnLogReader
from tests.conformance.test_attach import expected_paths, live_paths, write_rows
from tests.fixtures.forked import start_script
from tests.fixtures.handmade import HandmadeTable, add, remove


@pytest.fixture
def table_path(tmp_path: Path) -> Path:
    path = tmp_path / "orders"
    for number in range(3):
        write_rows(path, number)
    return path


def test_new_commits_are_taken_in_and_a_second_run_finds_nothing(store: Store, table_path: Path) -> None:
    table = attach(store, str(table_path), namespace="default", name="orders").table
    write_rows(table_path, 10)
    deltalake.DeltaTable(table_path).delete("id = 1")
    result = follow(store, table)
    assert (result.from_version, result.to_version, result.num_commits, result.gap) == (2, 4, 2, None)
    assert follow(store, table).num_commits == 0
    for version in range(5):
        assert live_paths(store, table, version) == expected_paths(table_path, version), version
    assert validate(store, table).drift is None


def test_followers_at_the_same_time_take_each_commit_in_once(store: Store, table_path: Path) -> None:
    table = attach(store, str(table_path), namespace="default", name="orders").table
    for number in range(10):
        write_rows(table_path, 100 + number)
    with ThreadPoolExecutor(4) as pool:
        results = [future.result() for future in [pool.submit(follow, store, table) for _ in range(4)]]
    assert {result.to_version for result in results} == {12}
    assert list(SqlTxnLogReader(store, table).versions()) == list(range(13))
    assert live_paths(store, table) == expected_paths(table_path, 12)
    assert validate(store, table).drift is None


def test_processes_that_follow_at_the_same_time_take_each_commit_in_once(
    store: Store, target: str, table_path: Path
) -> None:
    table = attach(store, str(table_path), namespace="default", name="orders").table
    for number in range(8):
        write_rows(table_path, 100 + number)
    script = "import sys, deltalakedb as dl\nwith dl.connect(sys.argv[1]) as cat: print(cat.follow()[0].to_version)"
    for ended in [follower.wait() for follower in [start_script(script, target) for _ in range(3)]]:
        assert (ended.returncode, ended.stdout.strip()) == (0, "10"), ended.stderr
    assert list(SqlTxnLogReader(store, table).versions()) == list(range(11))
    assert validate(store, table).drift is None


def test_clean_up_that_outran_us_is_bridged_by_a_checkpoint_and_recorded_as_a_gap(
    store: Store, table_path: Path
) -> None:
    table = attach(store, str(table_path), namespace="default", name="orders").table
    for number in range(5):
        write_rows(table_path, 100 + number)
    deltalake.DeltaTable(table_path).delete("id = 0")
    deltalake.DeltaTable(table_path).create_checkpoint()
    write_rows(table_path, 200)
    for version in range(8):
        (table_path / "_delta_log" / f"{version:020d}.json").unlink()
    result = follow(store, table)
    assert (result.to_version, result.gap) == (9, Gap(3, 7))
    reader = SqlTxnLogReader(store, table)
    assert list(reader.versions()) == [0, 1, 2, 8, 9]
    assert live_paths(store, table, 8) == expected_paths(table_path, 8)
    assert live_paths(store, table) == expected_paths(table_path, 9)
    assert len(live_paths(store, table, 2)) == 3
    with pytest.raises(VersionNotFoundError, match="8"):
        reader.snapshot(5)
    with store.read() as conn:
        audit = conn.sql("select action, details from dl_audit where action = 'gap'")
    assert len(audit) == 1
    assert '"first":3' in audit[0]["details"]
    assert validate(store, table).drift is None
    write_rows(table_path, 300)
    assert follow(store, table).to_version == 10
    assert live_paths(store, table) == expected_paths(table_path, 10)


@pytest.mark.parametrize("num_versions", [1, 3, 6], ids=["shorter", "as long", "longer"])
def test_a_folder_deleted_and_made_anew_is_noticed_however_long_its_log(
    store: Store, table_path: Path, num_versions: int
) -> None:
    table = attach(store, str(table_path), namespace="default", name="orders").table
    shutil.rmtree(table_path)
    for number in range(num_versions):
        write_rows(table_path, number)
    with pytest.raises(TableReplacedError, match="default.orders"):
        follow(store, table)
    assert SqlTxnLogReader(store, table).latest_version() == 2


def test_a_folder_that_is_gone_is_said_to_be_gone(store: Store, table_path: Path) -> None:
    table = attach(store, str(table_path), namespace="default", name="orders").table
    shutil.rmtree(table_path)
    with pytest.raises(TableNotFoundError, match="orders"):
        follow(store, table)


def test_a_broken_commit_stops_the_follower_where_it_was(store: Store, handmade: HandmadeTable) -> None:
    handmade.create().commit(add("a"))
    table = attach(store, str(handmade.path), namespace="default", name="t").table
    handmade.commit(add("b")).commit('{"add":{"path":"c","partitionVal')
    with pytest.raises(Exception, match="version 3"):
        follow(store, table)
    assert SqlTxnLogReader(store, table).latest_version() == 1
    handmade.commit_path(3).write_bytes(b"")
    handmade.version = 2
    handmade.commit(remove("a"), add("c"))
    assert follow(store, table).to_version == 3
    assert live_paths(store, table) == {"b", "c"}


def test_a_rewrite_of_the_whole_table_keeps_the_older_versions(store: Store, handmade: HandmadeTable) -> None:
    handmade.create().commit(*(add(f"a{n}") for n in range(30)))
    table = attach(store, str(handmade.path), namespace="default", name="t").table
    for generation in ("b", "c"):
        before = "a" if generation == "b" else "b"
        handmade.commit(*(remove(f"{before}{n}") for n in range(30)), *(add(f"{generation}{n}") for n in range(30)))
        follow(store, table)
    for version, generation in ((1, "a"), (2, "b"), (3, "c")):
        assert live_paths(store, table, version) == {f"{generation}{n}" for n in range(30)}
    with store.read() as conn:
        left = conn.sql("select count(distinct file_id) as n from dl_file_bounds")[0]["n"]
    assert left == 30, "only the live files have bounds"
