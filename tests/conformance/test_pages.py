"""Large tables are read in pages: whatever is committed in between, they add up to the version that was asked for."""

import random
from typing import Any

import pytest

from deltalakedb.exceptions import VersionNotFoundError
from deltalakedb.log.protocol.actions import AddFile, RemoveFile
from deltalakedb.log.protocol.commit import Commit
from deltalakedb.log.protocol.rows import add_from_row, remove_from_row
from deltalakedb.log.protocol.snapshot import SnapshotState, replay
from deltalakedb.store import Store, pages
from deltalakedb.store import snapshot as snapshots
from deltalakedb.store.queries import spell
from deltalakedb.store.reader import SqlTxnLogReader
from deltalakedb.store.snapshot import SqlSnapshot
from tests.conformance.histories import METADATA, PROTOCOL, add, load, register


@pytest.fixture(autouse=True)
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshots, "LARGE_RESULT", 1)
    monkeypatch.setattr(pages, "FIRST_PAGE_ROWS", 7)
    monkeypatch.setattr(pages, "MOST_PAGE_ROWS", 11)
    monkeypatch.setattr(pages, "LARGE_PAGE", 9)
    monkeypatch.setattr(pages, "DAY_MS", 0)


def random_history(seed: int, versions: int) -> list[list[Any]]:
    """Adds, removals, removals of what is not there any more, and files that come back."""
    rng = random.Random(seed)
    history: list[list[Any]] = [[PROTOCOL, METADATA, *(add(f"first-{n}") for n in range(40))]]
    for version in range(1, versions):
        picked = rng.sample(range(60), 20)
        adds = [add(f"file-{n}", size=version) for n in picked[:12]]
        removes = [RemoveFile(f"file-{n}", True, version * 1000) for n in picked[12:]]
        removes.append(RemoveFile(f"first-{rng.randrange(40)}", True))
        history.append([*adds, *removes])
    return history


def files_of(snapshot: SqlSnapshot) -> dict[Any, AddFile]:
    rows = [row for batch in snapshot.files() for row in batch.to_pylist()]
    found = {action.key: action for action in map(add_from_row, rows)}
    assert len(found) == len(rows)
    return found


def tombstones_of(snapshot: SqlSnapshot, deleted_after_ms: int | None = None) -> dict[Any, RemoveFile]:
    rows = [row for batch in snapshot.tombstones(deleted_after_ms) for row in batch.to_pylist()]
    found = {action.key: action for action in map(remove_from_row, rows)}
    assert len(found) == len(rows)
    return found


def replayed(commits: list[Commit], version: int) -> SnapshotState:
    return replay(action for commit in commits[: version + 1] for action in commit.actions)


@pytest.mark.parametrize("seed", range(2))
def test_pages_of_every_version_add_up_to_its_replay(seed: int, store: Store) -> None:
    table = register(store)
    made = load(store, table, random_history(seed, 8))
    log = SqlTxnLogReader(store, table)
    for version in (0, 4, 7):
        state = replayed(made, version)
        snapshot = log.snapshot(version)
        assert files_of(snapshot) == state.files
        assert tombstones_of(snapshot) == state.tombstones
        young = {key: action for key, action in state.tombstones.items() if (action.deletion_timestamp or 0) > 4000}
        assert tombstones_of(snapshot, 4000) == young
        paths = [path for batch in snapshot.files(["path"]) for path in batch.column("path").to_pylist()]
        assert sorted(paths) == sorted(action.path for action in state.files.values())


def test_what_is_committed_between_two_pages_changes_nothing(store: Store) -> None:
    table = register(store)
    history = random_history(5, 10)
    made = load(store, table, history[:4])
    snapshot = SqlTxnLogReader(store, table).snapshot(3)
    reader = snapshot.files()
    rows = reader.read_next_batch().to_pylist()
    for version in range(4, 7):
        load(store, table, [history[version]], start=version)
        rows += reader.read_next_batch().to_pylist()
    rows += [row for batch in reader for row in batch.to_pylist()]
    found = [add_from_row(row) for row in rows]
    state = replayed(made, 3)
    assert {action.key: action for action in found} == state.files
    assert len(found) == len(state.files)
    assert tombstones_of(snapshot) == state.tombstones


def test_a_version_that_goes_while_it_is_read_is_an_error(store: Store) -> None:
    table = register(store)
    load(store, table, random_history(6, 3))
    reader = SqlTxnLogReader(store, table).snapshot(1).files()
    reader.read_next_batch()
    with store.write() as conn:
        conn.script([spell("delete from dl_table_versions where version = 1", store.dialect).text])
    with pytest.raises(VersionNotFoundError, match=r"sales\.orders: version 1 is missing"):
        reader.read_all()
