"""Opening what cannot be opened: clear errors, the driver's as their cause, and never a secret in sight."""

import sqlite3
import subprocess
import sys
import traceback
from pathlib import Path

import duckdb
import pytest

from deltalakedb.exceptions import CatalogUriError, MissingExtraError, NotADatabaseError, StoreError
from deltalakedb.store import Store, open_store


@pytest.mark.parametrize("embedded", ["sqlite", "duckdb"])
@pytest.mark.parametrize("content", [b"hello, I am a text file. " * 50, b"PAR1" + bytes(500), b"x"])
def test_a_file_that_is_no_database_is_named(tmp_path: Path, embedded: str, content: bytes) -> None:
    path = tmp_path / "notes.txt"
    path.write_bytes(content)
    with pytest.raises(NotADatabaseError, match=r"notes\.txt is not a") as caught:
        open_store(embedded, str(path))
    assert path.read_bytes() == content
    assert list(tmp_path.iterdir()) == [path]
    assert "engine" in str(caught.value)


def test_a_database_of_the_other_engine_is_named(tmp_path: Path) -> None:
    lite, duck = tmp_path / "lite.db", tmp_path / "duck.db"
    with sqlite3.connect(lite) as connection:
        connection.execute("create table t (a)")
    connection.close()
    duckdb.connect(duck).close()
    with pytest.raises(NotADatabaseError, match="is a SQLite database, not a DuckDB one; use the engine sqlite"):
        open_store("duckdb", str(lite))
    with pytest.raises(NotADatabaseError, match="is a DuckDB database, not a SQLite one; use the engine duckdb"):
        open_store("sqlite", str(duck))


@pytest.mark.parametrize("embedded", ["sqlite", "duckdb"])
def test_a_folder_that_does_not_exist_is_an_error_of_the_store(tmp_path: Path, embedded: str) -> None:
    with pytest.raises(StoreError, match="nowhere"):
        open_store(embedded, str(tmp_path / "nowhere" / "c.db"))
    with pytest.raises(StoreError):
        open_store(embedded, str(tmp_path))


def test_an_empty_file_becomes_a_database(tmp_path: Path) -> None:
    path = tmp_path / "empty.db"
    path.touch()
    with open_store("sqlite", str(path)) as store, store.read() as conn:
        assert conn.one("select_catalog") is not None


def test_odd_paths_are_paths(tmp_path: Path) -> None:
    for engine in ("sqlite", "duckdb"):
        path = tmp_path / f"a &mode=memory#x%20'ü {engine}.db"
        with open_store(engine, str(path)) as store, store.read() as conn:
            assert conn.one("select_catalog") is not None
        assert path.exists()
    with open_store("sqlite", str(tmp_path / "a?mode=memory")) as store:
        assert store.select("select count(*) as n from dl_catalog")["n"].to_pylist() == [1]
    assert (tmp_path / "a?mode=memory").exists()
    with pytest.raises(StoreError, match=r"takes what follows the \? for options"):
        open_store("duckdb", str(tmp_path / "a?b.duckdb"))


def test_engines_that_do_not_exist_are_answered_with_those_that_do() -> None:
    with pytest.raises(CatalogUriError, match="no engine 'oracle'; engines are sqlite, duckdb, postgres"):
        open_store("oracle", "x")
    with pytest.raises(CatalogUriError, match="create_if_missing or error"):
        open_store("sqlite", "x", schema="sometimes")  # type: ignore[arg-type]


def test_a_missing_driver_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "deltalakedb.store.dialects.postgres", raising=False)
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'deltalakedb\[postgres\]'"):
        open_store("postgres", "dbname=x")


SECRET = "hunter2-s3cr3t"
ADDRESSES = [
    f"postgresql://ann:{SECRET}@127.0.0.1:9/lake?connect_timeout=2",
    f"host=127.0.0.1 port=9 user=ann password={SECRET} dbname=lake",
    {"host": "127.0.0.1", "port": "9", "user": "ann", "password": SECRET, "dbname": "lake"},
    f"host=/nonexistent user=ann password='{SECRET}' sslpassword={SECRET}",
]


@pytest.mark.parametrize("address", ADDRESSES)
def test_postgres_that_is_down_is_an_error_without_its_password(address: str | dict[str, str]) -> None:
    with pytest.raises(StoreError, match="cannot be reached.*check that it runs") as caught:
        open_store("postgres", address)
    shown = "".join(traceback.format_exception(caught.value)) + repr(caught.value.__cause__)
    assert SECRET not in shown
    assert "127.0.0.1" in shown or "/nonexistent" in shown
    assert caught.value.__cause__ is not None


def test_an_address_that_cannot_be_parsed_does_not_show_its_password() -> None:
    for address in (f"postgresql://ann:{SECRET}@[bad/lake", f"host=x password={SECRET} nonsense"):
        with pytest.raises(StoreError) as caught:
            open_store("postgres", address)
        assert SECRET not in "".join(traceback.format_exception(caught.value)), address


@pytest.mark.parametrize("engine", ["postgres"], indirect=True)
def test_no_secret_reaches_a_repr_or_an_error(target: str) -> None:
    with open_store("postgres", f"{target} password={SECRET}") as store:
        assert SECRET not in repr(store)
        assert "dbname=conformance" in repr(store)
        with pytest.raises(StoreError) as caught:
            store.select("select broken from nowhere")
        assert SECRET not in "".join(traceback.format_exception(caught.value))
        store.close()
        with pytest.raises(StoreError) as closed, store.read():
            pass
        assert SECRET not in str(closed.value)


@pytest.mark.parametrize("engine", ["postgres"], indirect=True)
def test_a_database_that_does_not_exist_is_named(target: str) -> None:
    with pytest.raises(StoreError, match="no_such_database"):
        open_store("postgres", target.replace("dbname=conformance", "dbname=no_such_database"))


def test_opening_reads_and_closing_leave_no_descriptor_behind(store: Store, engine: str, target: str) -> None:
    def descriptors() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    store.close()
    open_store(engine, target).close()
    before = descriptors()
    for _ in range(5):
        with open_store(engine, target) as again:
            with again.read(), again.read():
                pass
            again.select("select 1 as x")
    assert descriptors() == before


def test_users_sql_beside_an_open_block_of_the_same_thread_is_answered_or_refused_at_once(
    store: Store, engine: str
) -> None:
    with store.read():
        if engine == "duckdb":  # it cannot have the file open in two ways at once; waiting would never end
            with pytest.raises(StoreError, match="a block is open in this thread"):
                store.select("select 1 as x")
        else:
            assert store.select("select 1 as x").to_pylist() == [{"x": 1}]
    assert store.select("select 1 as x").to_pylist() == [{"x": 1}]


_FORK = """
import os, sys
from deltalakedb.store import open_store
store = open_store(sys.argv[1], sys.argv[2])
def look():
    with store.read() as conn:
        return conn.one("select_catalog")["catalog_id"]
mine = look()
child = os.fork()
if child == 0:
    ok = look() == mine
    with store.write() as conn:
        conn.run("insert_namespace", namespace_key="child", namespace="child", properties="{}", created_at_ms=1,
                 from_ms=1)
    store.close()
    os._exit(0 if ok else 3)
_, code = os.waitpid(child, 0)
assert code == 0, code
assert look() == mine
with store.read() as conn:
    print([row["namespace"] for row in conn.all("select_namespaces", at_ms=2**62)])
"""


def test_a_forked_process_gets_connections_of_its_own(engine: str, target: str) -> None:
    command = [sys.executable, "-c", _FORK, engine, target]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, "['child', 'default']"), done.stderr
