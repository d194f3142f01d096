"""Validate finds the first difference between SQL and the files, wherever it is."""

import json
from pathlib import Path

import pytest

from deltalakedb.mirror.follow import attach
from deltalakedb.mirror.validate import validate
from deltalakedb.store.connection import Store
from tests.conformance.test_attach import write_rows
from tests.fixtures.handmade import HandmadeTable, add, remove


@pytest.fixture
def log(handmade: HandmadeTable) -> HandmadeTable:
    return handmade.create().commit(add("a"), add("b")).commit(remove("a"), add("c")).commit(add("d"))


def test_a_faithful_copy_has_no_drift(store: Store, log: HandmadeTable) -> None:
    report = validate(store, attach(store, str(log.path), namespace="default", name="t").table)
    assert (report.drift, report.num_commits_compared, report.lag) == (None, 4, 0)
    assert report.num_states_compared == 1


def test_a_follower_that_is_behind_lags_but_has_not_drifted(store: Store, log: HandmadeTable) -> None:
    table = attach(store, str(log.path), namespace="default", name="t").table
    log.commit(add("e"))
    report = validate(store, table)
    assert (report.drift, report.lag) == (None, 1)


@pytest.mark.parametrize(
    ("statement", "version", "words"),
    [
        ("update dl_add_files set size = 101 where path = 'b'", 1, "action 2"),
        ("update dl_add_files set stats = '{}' where path = 'c'", 2, "action 2"),
        ("delete from dl_remove_files", 2, "action 1"),
        ("update dl_add_files set removed_version = 3 where path = 'b'", 3, "active files"),
        ("update dl_table_versions set commit_info = '{}', commit_info_ordinal = 1 where version = 3", 3, "action 2"),
    ],
)
def test_a_change_in_sql_is_found_at_its_version(
    store: Store, log: HandmadeTable, statement: str, version: int, words: str
) -> None:
    table = attach(store, str(log.path), namespace="default", name="t").table
    with store.write() as conn:
        conn.sql(f"{statement} returning table_id")
    drift = validate(store, table).drift
    assert drift is not None
    assert drift.version == version
    assert words in drift.difference


def test_a_change_in_the_files_is_found_at_its_version(store: Store, log: HandmadeTable) -> None:
    table = attach(store, str(log.path), namespace="default", name="t").table
    log.commit_path(2).write_text(json.dumps(remove("a")) + "\n" + json.dumps(add("other")) + "\n")
    drift = validate(store, table).drift
    assert drift is not None
    assert drift.version == 2
    assert "other" in drift.difference


def test_versions_taken_from_a_checkpoint_are_compared_by_their_state(store: Store, tmp_path: Path) -> None:
    import deltalake

    path = tmp_path / "t"
    for number in range(4):
        write_rows(path, number)
    deltalake.DeltaTable(path).create_checkpoint()
    write_rows(path, 9)
    table = attach(store, str(path), namespace="default", name="t", history="latest").table
    report = validate(store, table)
    assert (report.drift, report.num_commits_compared, report.num_states_compared) == (None, 1, 2)
