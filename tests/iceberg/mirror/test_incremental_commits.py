"""A mirror grows by commits that are put once: repeated, raced and killed calls leave each version once."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from pyiceberg.types import LongType

import deltalakedb
from deltalakedb import Catalog
from tests.conformance.transacting import numbers
from tests.iceberg.lake import create
from tests.iceberg.mirror.deleting import data_files, delete_positions
from tests.iceberg.mirror.judging import actions, check, check_every_commit, commits, folder_of, mirror


def versions(path: Path) -> list[int]:
    """The versions of the Iceberg table that the commits show."""
    return [
        action["txn"]["version"] for number in range(len(commits(path))) for action in actions(path, number)
        if "txn" in action
    ]  # fmt: skip


def test_each_version_that_changed_rows_or_columns_is_a_commit(catalog: Catalog) -> None:
    table = create(catalog, "shop.t", 1)
    table.append(numbers(2))
    with table.transaction() as change:
        change.set_properties(owner="ann")
    table.delete("id = 1")
    path, mirrored = mirror(catalog)
    assert (mirrored.version, mirrored.delta_version, mirrored.commits) == (4, 3, (0, 1, 2, 3))
    assert versions(path) == [0, 1, 2, 4]
    check_every_commit(catalog)


def test_a_repeated_call_adds_nothing(catalog: Catalog) -> None:
    table = create(catalog, "shop.t", 1)
    path, _ = mirror(catalog)
    before = commits(path)
    assert catalog.mirror_iceberg("shop.t").commits == ()
    assert commits(path) == before
    with table.transaction() as change:
        change.set_properties(owner="ann")
    assert catalog.mirror_iceberg("shop.t").commits == ()
    table.append(numbers(2))
    assert catalog.mirror_iceberg("shop.t").commits == (2,)
    assert {name: text for name, text in commits(path).items() if name in before} == before


def test_unchanged_files_and_vectors_are_not_written_again(catalog: Catalog) -> None:
    table = create(catalog, "shop.t", 1, 2, 3)
    delete_positions(catalog, {data_files(catalog)[0]: [1]})
    path, _ = mirror(catalog)
    vectors = set(path.glob("_delta_log/_vectors/*"))
    table.refresh()
    table.append(numbers(4))
    check(catalog, refusing=("pyarrow",))
    assert set(path.glob("_delta_log/_vectors/*")) == vectors
    newest = actions(path, len(commits(path)) - 1)
    assert sum("add" in action for action in newest) == 1
    assert not any("remove" in action or "metaData" in action for action in newest)


def test_a_change_of_columns_alone_keeps_the_files(catalog: Catalog) -> None:
    table = create(catalog, "shop.t", 1, 2)
    path, _ = mirror(catalog)
    with table.update_schema() as update:
        update.add_column("n", LongType())
    _, mirrored = mirror(catalog)
    newest = actions(path, mirrored.delta_version)
    assert [next(iter(action)) for action in newest] == ["commitInfo", "metaData", "txn"]


def test_racing_calls_put_each_commit_once(catalog: Catalog) -> None:
    table = create(catalog, "shop.t", 1)
    for number in range(2, 6):
        table.append(numbers(number))
    address, failures = str(catalog.uri), []

    def run() -> None:
        try:
            with deltalakedb.connect(address) as own:
                own.mirror_iceberg("shop.t")
        except Exception as error:  # reported below
            failures.append(error)

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    path = folder_of(catalog)
    assert versions(path) == [0, 1, 2, 3, 4, 5]
    check_every_commit(catalog)
    check(catalog)


@pytest.mark.parametrize("step", ["iceberg_mirror.vectors_written", "iceberg_mirror.prepared", "iceberg_mirror.put"])
def test_a_call_that_died_is_finished_by_the_next(catalog: Catalog, step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    create(catalog, "shop.t", 1, 2, 3)
    mirror(catalog)
    delete_positions(catalog, {data_files(catalog)[0]: [1]})

    def die(name: str) -> None:
        if name == step:
            raise KeyboardInterrupt

    monkeypatch.setattr("deltalakedb.iceberg.mirror.mirroring.reached", die)
    with pytest.raises(KeyboardInterrupt):
        catalog.mirror_iceberg("shop.t")
    monkeypatch.undo()
    check(catalog, refusing=("pyarrow",))
    check_every_commit(catalog)


def test_a_table_that_is_registered_again_goes_on_with_its_mirror(catalog: Catalog) -> None:
    table = create(catalog, "shop.t", 1)
    path, _ = mirror(catalog)
    catalog.drop_table("shop.t")
    again = catalog.iceberg().register_table("shop.t", table.metadata_location)
    assert catalog.mirror_iceberg("shop.t").commits == ()
    again.append(numbers(2))
    check(catalog)
    assert len(commits(path)) == 3


def test_a_version_whose_files_are_gone_is_passed_over(catalog: Catalog) -> None:
    table = create(catalog, "shop.t", 1)
    mirror(catalog)
    table.overwrite(numbers(2))
    (old,) = [Path(path.removeprefix("file://")) for path in data_files(catalog)]
    table.overwrite(numbers(3))
    old.unlink()
    check(catalog)


def test_a_long_log_gets_checkpoints(catalog: Catalog) -> None:
    table = create(catalog, "shop.t")
    for number in range(100):
        table.append(numbers(number))
    path, mirrored = mirror(catalog)
    assert mirrored.delta_version >= 99
    assert list(path.glob("_delta_log/*.checkpoint.parquet"))
    check(catalog)
    table.append(numbers(1000))
    check(catalog)
    assert sum("add" in action for action in actions(path, mirrored.delta_version + 1)) == 1
