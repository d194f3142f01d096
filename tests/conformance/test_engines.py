"""What every engine's connection does alike: types, transactions, bulk rows, errors, and closing."""

import hashlib
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from deltalakedb.exceptions import StoreBusyError, StoreError
from deltalakedb.store import LIVE, Store
from deltalakedb.store import registry as reg
from deltalakedb.store.connection import Connection, DuplicateRowError
from deltalakedb.store.rows import row_schema
from tests.conformance.conftest import OpenStore


def add_rows(
    paths: list[str], *, version: int = 0, first_id: int = 0, removed_version: int = LIVE, **values: Any
) -> pa.Table:
    rows = [
        {
            "table_id": 1,
            "version": version,
            "ordinal": number,
            "file_id": first_id + number,
            "removed_version": removed_version,
            "path": path,
            "dv_id": "",
            "key_hash": hashlib.sha256(path.encode()).digest(),
            "size": 10 + number,
            "modification_time": 5,
            "data_change": True,
            "num_records": None,
            "partition_values": "{}",
            "extra": "",
            **values,
        }
        for number, path in enumerate(paths)
    ]
    return pa.Table.from_pylist(rows, schema=row_schema("dl_add_files"))


def closes(paths: list[str], version: int) -> pa.Table:
    hashes = [hashlib.sha256(path.encode()).digest() for path in paths]
    return pa.table({"key_hash": pa.array(hashes, pa.binary()), "removed_version": pa.array([version] * len(paths))})


ODD_TEXTS = [
    "",
    " ",
    '"',
    '""',
    "a,b",
    "line\nbreak\r\n",
    "tab\t",
    "\\",
    "\\N",
    "\\.",
    "%s %(x)s {x} :x",
    "ünï\U0001f600",
    "'",
    "null",
]


def test_bulk_rows_come_back_as_they_went_in(store: Store) -> None:
    rows = add_rows([f"f{number}" for number in range(len(ODD_TEXTS))])
    texts = pa.array(ODD_TEXTS)
    for name in ("stats", "tags", "clustering_provider", "extra"):
        rows = rows.set_column(rows.schema.get_field_index(name), name, texts)
    sizes = pa.array([LIVE, -LIVE - 1, *range(len(ODD_TEXTS) - 2)], pa.int64())
    rows = rows.set_column(rows.schema.get_field_index("size"), "size", sizes)
    with store.write() as conn:
        conn.insert("dl_add_files", rows)
    with store.read() as conn:
        names = ", ".join(rows.schema.names)
        found = conn.sql_arrow(f"select {names} from dl_add_files order by ordinal")
        as_dicts = conn.sql(f"select {names} from dl_add_files order by ordinal")
    assert found.cast(rows.schema).equals(rows)
    assert as_dicts == rows.to_pylist()


def test_doubles_and_infinities_come_back_exactly(store: Store) -> None:
    numbers = [0.1, -0.0, 1e308, -5e-324, 2.0**53 + 2, float("inf"), float("-inf"), None]
    size = len(numbers)
    rows = pa.table(
        {
            "table_id": pa.array([1] * size, pa.int64()),
            "epoch": pa.array([0] * size, pa.int64()),
            "file_id": pa.array(range(size), pa.int64()),
            "column_id": pa.array([0] * size, pa.int32()),
            "width_class": pa.array([0] * size, pa.int32()),
            "lower": pa.array(numbers, pa.float64()),
        }
    )
    with store.write() as conn:
        conn.insert("dl_file_bounds", rows.to_batches()[0])
    with store.read() as conn:
        found = conn.sql_arrow("select lower from dl_file_bounds order by file_id")
        above = conn.sql("select file_id from dl_file_bounds where lower > :x order by file_id", x=1e300)
    assert found["lower"].to_pylist() == numbers  # SQLite keeps -0.0 as 0, which is equal
    assert [row["file_id"] for row in above] == [2, 5]


def test_large_results_keep_types_nulls_and_order_of_columns(store: Store) -> None:
    paths = [f"päth-{number:05d}" for number in range(3000)]
    rows = add_rows(paths)
    stats = [None if number % 3 else f'{{"n": {number}}}\n' for number in range(3000)]
    counts = pa.array([number if number % 7 else None for number in range(3000)], pa.int64())
    tags = [None] * 2000 + ["late"] * 1000
    bases = pa.array([5] * 2999 + [None], pa.int64())
    for name, values in {
        "stats": pa.array(stats),
        "num_records": counts,
        "tags": pa.array(tags),
        "base_row_id": bases,
        "clustering_provider": pa.array(["liquid"] * 3000),
    }.items():
        rows = rows.set_column(rows.schema.get_field_index(name), name, values)
    with store.write() as conn:
        conn.insert("dl_add_files", rows)
    columns = ["stats", "path", "num_records", "data_change", "tags", "base_row_id", "extra", "file_id"]
    columns += ["clustering_provider", "deletion_vector"]
    with store.read() as conn:
        found = conn.sql_arrow(f"select {', '.join(columns)} from dl_add_files where table_id = :table_id", table_id=1)
        mixed = conn.sql_arrow("select key_hash, file_id as size, path || '!' as stats from dl_add_files")
        counted = conn.sql_arrow("select path, file_id * 0.5 as half from dl_add_files order by path")
    assert found.sort_by("file_id").equals(rows.select(columns))
    assert mixed.num_rows == 3000
    assert min(mixed["stats"].to_pylist()) == "päth-00000!"
    assert counted["half"].to_pylist()[1] == 0.5


def test_an_empty_result_has_the_same_types_as_a_full_one(store: Store) -> None:
    with store.write() as conn:
        conn.insert("dl_add_files", add_rows(["f"], stats="{}"))
    with store.read() as conn:
        full = conn.arrow("select_live_files", table_id=1)
        empty = conn.arrow("select_live_files", table_id=2)
    assert empty.num_rows == 0
    assert full.schema.equals(empty.schema)
    assert full.schema.field("data_change").type == pa.bool_()


def test_closing_files_returns_what_was_closed(store: Store) -> None:
    with store.write() as conn:
        conn.insert("dl_add_files", add_rows(["a", "b", "c"]))
        closed = conn.close_files(1, closes(["a", "c", "missing"], 7))
        assert sorted(closed.select(["file_id", "size", "num_records"]).to_pylist(), key=str) == [
            {"file_id": 0, "size": 10, "num_records": None},
            {"file_id": 2, "size": 12, "num_records": None},
        ]
        assert set(closed["key_hash"].to_pylist()) == set(closes(["a", "c"], 0)["key_hash"].to_pylist())
        assert conn.close_files(1, closes(["a"], 8)).num_rows == 0
        assert conn.close_files(2, closes(["b"], 8)).num_rows == 0
        assert conn.close_files(1, closes([], 8)).num_rows == 0
    with store.read() as conn:
        live = conn.arrow("select_live_files", table_id=1)
    assert live["path"].to_pylist() == ["b"]


def test_a_key_can_be_closed_and_added_again_many_times_in_one_transaction(store: Store) -> None:
    paths = [f"f{number}" for number in range(50)]
    with store.write() as conn:
        conn.insert("dl_add_files", add_rows(paths))
    with store.write() as conn:
        for version in range(1, 6):
            assert conn.close_files(1, closes(paths, version)).num_rows == 50
            conn.insert("dl_add_files", add_rows(paths, version=version, first_id=50 * version))
    with store.write() as conn:
        assert conn.close_files(1, closes(paths[:10], 6)).num_rows == 10
        conn.insert("dl_add_files", add_rows(paths[:10], version=6, first_id=900))
    with store.read() as conn:
        for version in range(7):
            found = conn.arrow("select_files_added_up_to", table_id=1, version=version)
            assert sorted(found["path"].to_pylist()) == sorted(paths), version
            other = conn.arrow("select_files_removed_after", table_id=1, version=version)
            assert sorted(other["path"].to_pylist()) == sorted(paths), version


@pytest.mark.parametrize("engine", ["sqlite", "postgres"], indirect=True)
def test_two_live_rows_of_one_key_are_refused(store: Store) -> None:
    """DuckDB keeps no keys on this table; there the exclusive write lock and the loader see to it."""
    with store.write() as conn:
        conn.insert("dl_add_files", add_rows(["a"]))
    with pytest.raises(DuplicateRowError, match="key") as caught, store.write() as conn:
        conn.insert("dl_add_files", add_rows(["a"], version=1, first_id=9))
    assert "key" in caught.value.constraint
    assert caught.value.__cause__ is not None


def test_a_read_block_sees_one_state(store: Store, engine: str, open_again: OpenStore) -> None:
    if engine == "duckdb":  # a writer waits for readers there
        with store.read(), pytest.raises(StoreBusyError), open_again_in_thread(open_again):
            pass
        return
    with store.write() as conn:
        conn.insert("dl_add_files", add_rows(["a"]))
    with store.read() as conn:
        assert conn.arrow("select_live_files", table_id=1).num_rows == 1
        with store.write() as other:
            other.insert("dl_add_files", add_rows(["b"], version=1))
        assert conn.arrow("select_live_files", table_id=1).num_rows == 1
    with store.read() as conn:
        assert conn.arrow("select_live_files", table_id=1).num_rows == 2


class open_again_in_thread:  # noqa: N801 - reads like the block it stands for
    """A write block on another store of the same process, from another thread."""

    def __init__(self, open_again: OpenStore) -> None:
        self._store = open_again(busy_timeout_seconds=0.2)

    def __enter__(self) -> None:
        with ThreadPoolExecutor(1) as pool:
            pool.submit(self._write).result()

    def __exit__(self, *exc_info: object) -> None:
        pass

    def _write(self) -> None:
        with self._store.write():
            pass


def test_a_second_writer_waits_and_then_gives_up(store: Store, open_again: OpenStore) -> None:
    impatient = open_again(busy_timeout_seconds=0.3)
    with store.write() as conn:
        conn.sql("select * from dl_catalog")
        lock_all(conn)
        with ThreadPoolExecutor(1) as pool, pytest.raises(StoreBusyError) as caught:
            pool.submit(write_to_catalog, impatient).result()
    assert caught.value.__cause__ is None or "password" not in str(caught.value)
    write_to_catalog(impatient)


@pytest.mark.parametrize("engine", ["postgres"], indirect=True)
def test_postgres_locks_heads_one_by_one(store: Store, open_again: OpenStore) -> None:
    impatient = open_again(busy_timeout_seconds=0.3)
    with store.write() as conn:
        for table_id in (1, 2):
            reg.insert_head(conn, reg.Head(table_id, *[0] * 12))
    with store.write() as conn:
        reg.lock_head(conn, 1)
        with impatient.write() as other:
            assert reg.lock_head(other, 2) is not None
        with pytest.raises(StoreBusyError, match="lock timeout"), impatient.write() as other:
            reg.lock_head(other, 1)


def lock_all(conn: Connection) -> None:
    conn.one("select_next_table_id")


def write_to_catalog(store: Store) -> None:
    with store.write() as conn:
        row = conn.one("select_next_table_id")
        assert row is not None
        conn.run("advance_next_table_id", expected=row["next_table_id"])


def test_many_threads_write_and_read_without_losing_anything(store: Store) -> None:
    seen: list[int] = []

    def work() -> None:
        for _ in range(5):
            write_to_catalog(store)
            with store.read() as conn:
                row = conn.one("select_catalog")
                assert row is not None
                seen.append(row["next_table_id"])

    with ThreadPoolExecutor(6) as pool:
        for future in [pool.submit(work) for _ in range(6)]:
            future.result()
    assert max(seen) == 31


@pytest.mark.parametrize("engine", ["sqlite", "postgres"], indirect=True)
def test_connections_are_bounded(open_again: OpenStore) -> None:
    store = open_again(max_connections=2, busy_timeout_seconds=0.2)
    busy = pytest.raises(StoreBusyError, match="all 2 connections stayed in use")
    with store.read(), store.read(), busy, store.read():
        pass
    with store.read():
        pass


@pytest.mark.parametrize("engine", ["sqlite", "postgres"], indirect=True)
def test_a_waiting_reader_gets_the_connection_that_comes_back(open_again: OpenStore) -> None:
    store = open_again(max_connections=1)
    entered = threading.Event()

    def read() -> bool:
        entered.set()
        with store.read() as conn:
            return conn.one("select_catalog") is not None

    with ThreadPoolExecutor(1) as pool:
        with store.read():
            waiting = pool.submit(read)
            entered.wait()
        assert waiting.result(timeout=20)


def test_a_closed_store_says_so(store: Store) -> None:
    store.close()
    store.close()
    with pytest.raises(StoreError, match="is closed"), store.read():
        pass
    with pytest.raises(StoreError, match="is closed"), store.write():
        pass


@pytest.mark.parametrize("engine", ["postgres"], indirect=True)
def test_closing_a_postgres_store_ends_its_sessions(store: Store, open_again: OpenStore) -> None:
    with store.read(), store.read(), store.read():
        pass
    store.close()
    sessions = open_again().select("select count(*) as n from pg_stat_activity where application_name = 'deltalakedb'")
    assert sessions["n"].to_pylist() == [1]


@pytest.mark.parametrize("engine", ["postgres"], indirect=True)
def test_a_session_that_the_server_ended_is_replaced(store: Store, open_again: OpenStore) -> None:
    killer = open_again()
    with store.read(), store.read():
        pass
    killed = killer.select(
        "select count(pg_terminate_backend(pid)) as n from pg_stat_activity "
        "where application_name = 'deltalakedb' and pid <> pg_backend_pid()"
    )
    assert killed["n"].to_pylist() == [2]
    with store.read() as conn:
        assert conn.one("select_catalog") is not None
    with store.write() as conn:
        assert conn.one("select_catalog") is not None


@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
def test_sqlite_is_durable_and_in_wal_mode(store: Store, target: str) -> None:
    with store.read() as conn:
        assert conn.sql("pragma synchronous") == [{"synchronous": 2}]
        assert conn.sql("pragma journal_mode") == [{"journal_mode": "wal"}]
    assert Path(target).exists()


def test_wrong_parameters_are_an_error_of_the_caller(store: Store) -> None:
    with store.read() as conn:
        with pytest.raises(TypeError, match="takes \\['table_id'\\]"):
            conn.one("select_head")
        with pytest.raises(TypeError, match="table_id"):
            conn.one("select_head", table_id=1, other=2)
        with pytest.raises(KeyError):
            conn.one("no_such_query")


def test_run_many_and_row_counts(store: Store) -> None:
    rows = [
        {"namespace_key": key, "namespace": key, "properties": "{}", "created_at_ms": 1, "from_ms": 1} for key in "abc"
    ]
    with store.write() as conn:
        conn.run_many("insert_namespace", rows)
        conn.run_many("insert_namespace", [])
        assert conn.run("end_namespace", namespace_key="a", until_ms=5) == 1
        assert conn.run("end_namespace", namespace_key="zzz", until_ms=5) == 0
        assert conn.run("insert_namespace", **rows[1]) == 0
    with store.read() as conn:
        assert [row["namespace"] for row in conn.all("select_namespaces", at_ms=2**62)] == ["b", "c", "default"]
        assert abs(conn.now_ms() - 1_000_000_000_000) > 0


def test_the_clock_moves_within_a_transaction(store: Store) -> None:
    with store.write() as conn:
        first = conn.now_ms()
        threading.Event().wait(0.02)
        assert conn.now_ms() > first > 1_600_000_000_000
