"""The manifests of a version are those of the one before, but for what it changed, on every engine."""

import random
import threading
from pathlib import Path

import pytest

from deltalakedb import Catalog
from deltalakedb.iceberg.catalog import IcebergCatalog
from deltalakedb.iceberg.delta import delta_lists, list_building
from deltalakedb.log.protocol.actions import Action, AppTransaction
from tests.conformance.transacting import open_catalog
from tests.iceberg.delta.lake import (
    NAME,
    add,
    commit,
    create,
    files_in,
    folder,
    lists,
    load,
    manifests,
    numbers,
    remove,
)


@pytest.fixture
def table(catalog: Catalog) -> Catalog:
    create(catalog)
    return catalog


@pytest.fixture
def small_manifests(monkeypatch: pytest.MonkeyPatch) -> None:
    """Manifests of 10 files, of which five small ones are merged."""
    monkeypatch.setattr(list_building, "MANIFEST_FILES", 10)
    monkeypatch.setattr(list_building, "SMALL_FILES", 5)
    monkeypatch.setattr(list_building, "MAX_SMALL", 5)


def live_at(history: list[tuple[set[int], set[int]]]) -> list[list[int]]:
    """The numbers of the files of each version; version 0 created the table."""
    state: set[int] = set()
    states: list[list[int]] = [[]]
    for added, removed in history:
        state = (state - removed) | added
        states.append(sorted(state))
    return states


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.usefixtures("small_manifests")
def test_every_version_has_its_files_however_often_clients_ask(
    table: Catalog, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delta_lists, "BATCH_VERSIONS", 7)
    monkeypatch.setattr(delta_lists, "PAGE_FILES", 8)
    monkeypatch.setattr(list_building, "HELD_ENTRIES", 20)
    chance = random.Random(seed)
    history: list[tuple[set[int], set[int]]] = []
    live: list[int] = []
    for step in range(40):
        added = {step * 100 + number for number in range(chance.choice([0, 1, 1, 1, 2, 25]))}
        removed = set(chance.sample(live, min(len(live), chance.choice([0, 0, 0, 1, 2, 30]))))
        history.append((added, removed))
        live = sorted(set(live) - removed | added)
        actions: list[Action] = [*map(add, sorted(added)), *map(remove, sorted(removed))]
        commit(table, *(actions or [AppTransaction("app", step)]))
        if chance.random() < 0.2:
            load(table)
    states = live_at(history)
    paths = lists(load(table))
    assert {version: numbers(path) for version, path in paths.items()} == dict(enumerate(states))
    assert len(manifests(paths[40])) <= 5 + 2 * len(live) / 5 + 1


def test_a_commit_of_one_file_writes_one_small_manifest_whatever_the_size_of_the_table(table: Catalog) -> None:
    commit(table, *map(add, range(5_000)))
    load(table)
    before = files_in(folder(table))
    commit(table, add(9_999))
    newest = lists(load(table))[2]
    new = sorted(files_in(folder(table)) - before)
    assert [name.partition("-")[0] for name in new] == ["00002", "m", "snap"]
    assert sum((folder(table) / name).stat().st_size for name in new) < 12_000
    assert len(manifests(newest)) == 6
    commit(table, remove(1_234))
    newest, before = lists(load(table))[3], files_in(folder(table))
    assert [manifest.existing_files_count for manifest in manifests(newest) if manifest.sequence_number == 4] == [999]


def test_many_small_commits_are_merged(table: Catalog) -> None:
    for number in range(150):
        commit(table, add(number))
    paths = lists(load(table))
    assert numbers(paths[150]) == list(range(150))
    assert len(manifests(paths[150])) <= list_building.MAX_SMALL + 1
    for version in (1, 60, 61, 62, 63, 100):
        assert numbers(paths[version]) == list(range(version))


def test_nothing_is_written_again(table: Catalog) -> None:
    commit(table, add(1))
    first = load(table)
    before = files_in(folder(table))
    assert load(table).metadata_location == first.metadata_location
    assert files_in(folder(table)) == before


def test_processes_that_write_at_once_agree(table: Catalog, target: str, tmp_path: Path) -> None:
    for number in range(30):
        commit(table, add(number))
    found: list[dict[int, str]] = []
    barrier = threading.Barrier(4)

    def ask() -> None:
        with open_catalog(target, tmp_path) as other:
            service = IcebergCatalog(other)
            barrier.wait()
            found.append(lists(service.load_table(NAME)))

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    assert all(paths == found[0] for paths in found)
    assert {version: numbers(path) for version, path in found[0].items()} == {n: list(range(n)) for n in range(31)}
    names = {path.rpartition("/")[2] for path in found[0].values()}
    assert {name for name in files_in(folder(table)) if name.startswith("snap-")} == names
