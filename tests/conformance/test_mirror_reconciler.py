"""The reconciler: every table gets level, those on their way out too; nobody is kept waiting by a table that fails."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from deltalakedb.log.protocol.proposal import ProposedCommit
from deltalakedb.mirror.engine import MirrorResult
from deltalakedb.mirror.reconciler import Reconciler
from deltalakedb.runtime.config import Config
from deltalakedb.store import Store
from deltalakedb.store import namespaces as spaces
from tests.conformance.lives import audited
from tests.conformance.mirrored import PROTOCOL, Managed, adds
from tests.conformance.proposing import drop


def reconciler(store: Store, **settings: object) -> Reconciler:
    return Reconciler(store, config=replace(Config(), **settings), options_of=lambda _row: None, workers=2)  # type: ignore[arg-type]


def once(store: Store, **settings: object) -> dict[str, MirrorResult]:
    with reconciler(store, **settings) as one:
        return {result.table.name: result for result in one.once()}


def make_tables(store: Store, folder: Path, number: int) -> list[Managed]:
    tables = [Managed.create(store, folder / f"t{n}", f"t{n}")[0] for n in range(number)]
    for table in tables:
        table.append(2)
    return tables


def wait_until(holds: Callable[[], bool], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)


def test_all_tables_get_level_and_one_that_fails_is_alone(store: Store, tmp_path: Path) -> None:
    tables = make_tables(store, tmp_path / "lake", 3)
    bad = tables[1].folder.parent
    bad.parent.mkdir(parents=True, exist_ok=True)
    bad.write_text("in the way")
    results = once(store)
    assert {name: result.error is None for name, result in results.items()} == {"t0": True, "t1": False, "t2": True}
    assert [table.head.mirrored_version for table in tables] == [2, -1, 2]
    (failure,) = tables[1].failures()
    assert (failure["table_id"], failure["version"]) == (tables[1].row.table_id, 0)
    bad.unlink()
    assert once(store)["t1"].num_written == 3
    assert tables[1].failures() == []
    assert once(store) == {}


def test_a_table_with_a_foreign_file_is_frozen_and_then_left_alone(store: Store, tmp_path: Path) -> None:
    first, second = make_tables(store, tmp_path / "lake", 2)
    first.folder.mkdir(parents=True)
    (first.folder / "00000000000000000000.json").write_bytes(b'{"commitInfo":{}}\n')
    results = once(store)
    assert "is not ours" in (results["t0"].error or "")
    assert results["t1"].error is None
    assert first.registered.state == "frozen"
    assert second.registered.state == "live"
    assert once(store) == {}


def test_a_dropped_table_is_mirrored_to_the_end(store: Store, tmp_path: Path) -> None:
    (table,) = make_tables(store, tmp_path / "lake", 1)
    with store.write() as conn:
        drop(conn, table.row, at_ms=conn.now_ms())
    (row,) = store.select("select state, versions_behind from vw_mirror_lag").to_pylist()
    assert (row["state"], row["versions_behind"]) == ("dropped", 3)
    assert once(store)["t0"].to_version == 2
    assert len(table.commits_on_disk()) == 3
    assert store.select("select * from vw_mirror_lag").num_rows == 0


@pytest.mark.parametrize("is_level", [False, True])
def test_a_table_whose_detach_was_cut_short_is_detached(store: Store, tmp_path: Path, is_level: bool) -> None:
    (table,) = make_tables(store, tmp_path / "lake", 1)
    commit = ProposedCommit((PROTOCOL,), "DETACH", fenced=False)
    table.propose(commit, changes={"state": "detaching"})
    if is_level:
        with table.engine() as engine:
            engine.mirror_table(table.row)
    once(store)
    assert (table.registered.mode, table.registered.state) == ("detached", "live")
    assert audited(store)[-1] == "detach"
    assert len(table.commits_on_disk()) == 4
    assert once(store) == {}


def test_rounds_go_on_while_a_table_is_being_worked_on_and_end_when_told(store: Store, tmp_path: Path) -> None:
    slow, quick = make_tables(store, tmp_path / "lake", 2)
    slow.commit(*(adds(f"s-{n}") for n in range(300)))
    told: list[MirrorResult] = []
    with reconciler(store) as one:
        thread = threading.Thread(target=one.run, args=(0.01, told.append, pytest.fail))
        thread.start()
        wait_until(lambda: quick.head.mirrored_version == 2)
        for _ in range(3):
            quick.append(1)
        wait_until(lambda: quick.head.mirrored_version == 5)
        wait_until(lambda: slow.head.mirrored_version == 302)
        one.stop.set()
        thread.join(timeout=30)
        assert not thread.is_alive()
    assert {result.table.name for result in told} == {"t0", "t1"}
    assert all(result.error is None for result in told)


def test_a_database_that_goes_away_is_told_of_and_tried_again(store: Store, tmp_path: Path, engine: str) -> None:
    make_tables(store, tmp_path / "lake", 1)
    complaints: list[Exception] = []
    one = reconciler(store)
    store.close()
    thread = threading.Thread(target=one.run, args=(0.01, lambda _result: None, complaints.append))
    thread.start()
    wait_until(lambda: len(complaints) >= 2)
    one.stop.set()
    thread.join(timeout=30)
    assert "closed" in str(complaints[0])
    assert engine
    one.close()


# -- what the engine promises beside


def test_a_write_that_need_not_be_durable_leaves_the_next_one_durable(store: Store, engine: str) -> None:
    setting = {"sqlite": "pragma synchronous", "postgres": "show synchronous_commit"}.get(engine)

    def ask(*, durable: bool) -> object:
        with store.write(durable=durable) as conn:
            spaces.ensure_namespace(conn, f"durable-{durable}", at_ms=1)
            return None if setting is None else next(iter(conn.sql(setting)[0].values()))

    before = ask(durable=True)
    without = ask(durable=False)
    with pytest.raises(RuntimeError), store.write(durable=False):
        raise RuntimeError("in between")
    assert ask(durable=True) == before
    if setting is not None:
        assert without in (1, "off")
        assert before in (2, "on", "off")  # the tests' own Postgres is not durable at all
    with store.read() as conn:
        names = {namespace.namespace for namespace in spaces.list_namespaces(conn)}
    assert {"durable-True", "durable-False"} <= names


def test_a_fork_of_a_process_that_mirrors_can_mirror_too(store: Store, tmp_path: Path) -> None:
    table, outcome = Managed.create(store, tmp_path / "lake" / "orders")
    engine = table.engine()
    engine.after_commit(outcome)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            engine.after_commit(table.append(1)[0])
            engine.close()
            status = 0 if table.head.mirrored_version == 1 else 2
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    engine.after_commit(table.append(1)[0])
    engine.close()
    assert len(table.commits_on_disk()) == 3
    assert table.head.mirrored_version == 2
