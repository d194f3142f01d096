"""Attaching a table: all of its log is in SQL afterwards, or nothing is."""

import shutil
import signal
from pathlib import Path
from urllib.parse import unquote

import deltalake
import pyarrow as pa
import pytest

from deltalakedb.exceptions import TableExistsError, TableNotFoundError, VersionNotFoundError
from deltalakedb.log.protocol.codec import from_sql_text
from deltalakedb.mirror.follow import attach
from deltalakedb.store import registry
from deltalakedb.store.connection import Store
from deltalakedb.store.reader import SqlTxnLogReader
from deltalakedb.store.registry import TableRow
from tests.conformance.conftest import OpenStore
from tests.fixtures.forked import run_script
from tests.fixtures.handmade import HandmadeTable, add, remove


def write_rows(path: Path, *values: int, mode: str = "append") -> None:
    deltalake.write_deltalake(path, pa.table({"id": pa.array(values, pa.int64())}), mode=mode)  # type: ignore[call-overload]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("made") / "orders"
    for number in range(6):
        write_rows(path, number, number + 100)
    deltalake.DeltaTable(path).create_checkpoint()
    deltalake.DeltaTable(path).delete("id = 3")
    write_rows(path, 50, mode="overwrite")
    for number in range(4):
        write_rows(path, 60 + number)
    return path


@pytest.fixture
def table_path(made: Path, tmp_path: Path) -> Path:
    """Twelve versions by `deltalake`: appends, a delete, an overwrite, a checkpoint at version 5."""
    return Path(shutil.copytree(made, tmp_path / "orders"))


def live_paths(store: Store, table: TableRow, version: int | None = None) -> set[str]:
    files = SqlTxnLogReader(store, table).snapshot(version).files().read_all()
    return {from_sql_text(path) for path in files.column("path").to_pylist()}


def expected_paths(path: Path, version: int) -> set[str]:
    uris = deltalake.DeltaTable(path, version=version).file_uris()
    return {unquote(uri).rsplit("/", 1)[-1] for uri in uris}


def test_every_version_of_an_attached_table_has_the_files_that_deltalake_sees(store: Store, table_path: Path) -> None:
    result = attach(store, str(table_path), namespace="default", name="orders")
    assert result.head.current_version == 11
    for version in range(12):
        assert live_paths(store, result.table, version) == expected_paths(table_path, version), version


def test_history_latest_starts_at_the_newest_checkpoint_and_says_so_when_asked_for_more(
    store: Store, table_path: Path
) -> None:
    result = attach(store, str(table_path), namespace="default", name="orders", history="latest")
    assert result.head.base_version == 5
    for version in range(5, 12):
        assert live_paths(store, result.table, version) == expected_paths(table_path, version), version
    with pytest.raises(VersionNotFoundError, match="5"):
        SqlTxnLogReader(store, result.table).snapshot(4)


def test_a_log_that_was_cleaned_up_is_taken_from_its_oldest_checkpoint(store: Store, table_path: Path) -> None:
    for version in range(4):
        (table_path / "_delta_log" / f"{version:020d}.json").unlink()
    result = attach(store, str(table_path), namespace="default", name="orders")
    assert (result.head.base_version, result.head.current_version) == (5, 11)
    assert live_paths(store, result.table) == expected_paths(table_path, 11)


class Interrupted(Exception):
    """Stands for Ctrl-C in the middle."""


def test_an_interrupted_attach_leaves_nothing_and_can_be_run_again(store: Store, table_path: Path) -> None:
    def interrupt(_files: int) -> None:
        raise Interrupted

    with pytest.raises(Interrupted):
        attach(store, str(table_path), namespace="default", name="orders", progress=interrupt)
    with store.read() as conn:
        assert registry.list_tables(conn) == []
        for name in ("dl_table_heads", "dl_table_versions", "dl_add_files", "dl_file_bounds", "dl_audit"):
            assert conn.sql(f"select count(*) as n from {name}")[0]["n"] == 0, name
    result = attach(store, str(table_path), namespace="default", name="orders")
    assert live_paths(store, result.table) == expected_paths(table_path, 11)


def test_a_process_killed_while_it_attaches_leaves_nothing(
    open_again: OpenStore, target: str, table_path: Path
) -> None:
    script = (
        "import os, signal, sys, deltalakedb as dl\n"
        "kill = lambda files: os.kill(os.getpid(), signal.SIGKILL)\n"
        "dl.connect(sys.argv[1]).attach_table(sys.argv[2], 'orders', progress=kill)"
    )
    done = run_script(script, target, str(table_path))
    assert done.returncode == -signal.SIGKILL, done.stderr
    store = open_again()
    with store.read() as conn:
        assert registry.list_tables(conn) == []
        for name in ("dl_table_heads", "dl_table_versions", "dl_add_files", "dl_file_bounds", "dl_audit"):
            assert conn.sql(f"select count(*) as n from {name}")[0]["n"] == 0, name
    result = attach(store, str(table_path), namespace="default", name="orders")
    assert live_paths(store, result.table) == expected_paths(table_path, 11)


def test_attaching_again_changes_nothing(store: Store, table_path: Path) -> None:
    first = attach(store, str(table_path), namespace="default", name="orders")
    again = attach(store, f"{table_path}/", namespace="DEFAULT", name="Orders")
    assert again.already_attached
    assert (again.table, again.head) == (first.table, first.head)


def test_one_name_has_one_location_and_one_location_one_name(store: Store, table_path: Path, tmp_path: Path) -> None:
    attach(store, str(table_path), namespace="default", name="orders")
    shutil.copytree(table_path, tmp_path / "copy")
    with pytest.raises(TableExistsError, match="default.orders exists already"):
        attach(store, str(tmp_path / "copy"), namespace="default", name="orders")
    with pytest.raises(TableExistsError, match="belongs to the table default.orders"):
        attach(store, str(table_path), namespace="default", name="other")
    (tmp_path / "link").symlink_to(table_path)
    with pytest.raises(TableExistsError, match="belongs to the table default.orders"):
        attach(store, str(tmp_path / "link"), namespace="default", name="other")


def test_a_folder_without_a_log_is_not_a_table(store: Store, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(TableNotFoundError, match="empty"):
        attach(store, str(tmp_path / "empty"), namespace="default", name="empty")
    with store.read() as conn:
        assert registry.list_tables(conn) == []


def test_the_head_counts_equal_a_recount_at_every_version(store: Store, handmade: HandmadeTable) -> None:
    handmade.create().commit(add("a", records=3), add("b", records=None))
    handmade.commit(remove("a"), add("c", records=7))
    handmade.commit(add("c", records=8))  # a second add of a live file replaces its statistics
    handmade.commit(remove("b"), remove("never-there"))
    handmade.commit(add("a", records=1), add("d", records=2, deletionVector=VECTOR))
    handmade.commit(remove("d", deletionVector=VECTOR), add("d", records=2))
    table = attach(store, str(handmade.path), namespace="default", name="t").table
    reader = SqlTxnLogReader(store, table)
    expected = {1: {"a", "b"}, 2: {"b", "c"}, 3: {"b", "c"}, 4: {"c"}, 5: {"a", "c", "d"}, 6: {"a", "c", "d"}}
    for version, paths in expected.items():
        assert live_paths(store, table, version) == paths, version
    with store.read() as conn:
        head = registry.read_head(conn, table.table_id)
        assert head is not None
        totals = conn.sql("select version, total_added, total_closed from dl_table_versions order by version")
    assert (head.num_files, head.num_records, head.files_without_records, head.size_bytes) == (3, 1 + 8 + 2, 0, 300)
    assert [(row["total_added"], row["total_closed"]) for row in totals] == [
        (0, 0), (2, 0), (3, 1), (4, 2), (4, 3), (6, 3), (7, 4),
    ]  # fmt: skip
    assert reader.snapshot(3).files().read_all().num_rows == 2


VECTOR = {
    "storageType": "u",
    "pathOrInlineDv": "ab^-aqEH.-t@S}K{vb[*k^",
    "offset": 4,
    "sizeInBytes": 40,
    "cardinality": 1,
}
