"""The event of a commit tells how many files and bytes it added and removed, whichever way the commit was made."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from deltalakedb import Catalog
from deltalakedb.exceptions import StoreError
from tests.conformance.transacting import StopAt, add, ids_in, numbers, open_catalog, remove

COUNTS = ("num_added_files", "added_bytes", "num_removed_files", "removed_bytes")


@pytest.fixture
def catalog(target: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> Iterator[Catalog]:
    caplog.set_level(logging.INFO, logger="deltalakedb.events")
    with open_catalog(target, tmp_path) as opened:
        yield opened


def commits(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    found = [record.__dict__["event"] for record in caplog.records if "event" in record.__dict__]
    return [event for event in found if event["event"] == "commit"]


def counts(fields: dict[str, Any]) -> tuple[int, ...]:
    return tuple(fields[name] for name in COUNTS)


def live_bytes(catalog: Catalog, name: str) -> int:
    return sum(catalog.table(name).get_add_actions(flatten=True).column("size_bytes").to_pylist())


def test_a_transaction_tells_the_counts_of_each_version_and_of_all(
    catalog: Catalog, caplog: pytest.LogCaptureFixture
) -> None:
    with catalog.begin() as tx:
        tx.create_table("s.a", "id long")
        tx.write("s.a", numbers(1, 2), mode="append")
        tx.write("s.b", numbers(3), mode="append")
    (event,) = commits(caplog)
    a, b = live_bytes(catalog, "s.a"), live_bytes(catalog, "s.b")
    told = {(one["table"], one["version"]): counts(one) for one in event["versions"]}
    assert told == {("s.a", 0): (0, 0, 0, 0), ("s.a", 1): (1, a, 0, 0), ("s.b", 0): (1, b, 0, 0)}
    assert counts(event) == (2, a + b, 0, 0)
    assert all(one["table_id"] for one in event["versions"])
    assert "repeated" not in event


def test_delete_overwrite_and_merge_tell_what_they_removed(catalog: Catalog, caplog: pytest.LogCaptureFixture) -> None:
    with catalog.begin() as tx:
        tx.write("s.a", numbers(1, 2, 3), mode="append")
    sizes = [live_bytes(catalog, "s.a")]
    catalog.table("s.a").delete("id = 3")
    sizes.append(live_bytes(catalog, "s.a"))
    table = catalog.table("s.a")
    table.merge(numbers(1), "t.id = s.id", source_alias="s", target_alias="t").when_matched_delete().execute()
    sizes.append(live_bytes(catalog, "s.a"))
    with catalog.begin() as tx:
        tx.write("s.a", numbers(9), mode="overwrite")
    sizes.append(live_bytes(catalog, "s.a"))
    _, deleted, merged, overwritten = commits(caplog)
    for event, before, after in zip((deleted, merged, overwritten), sizes, sizes[1:], strict=False):
        assert counts(event) == (1, after, 1, before)
    assert [one["operation"] for event in (deleted, merged, overwritten) for one in event["versions"]] == [
        "DELETE",
        "MERGE",
        "WRITE",
    ]


def test_the_counts_are_those_that_sql_has(catalog: Catalog, caplog: pytest.LogCaptureFixture) -> None:
    catalog.create_table("s.a", "id long")
    for number in range(3):
        with catalog.begin() as tx:
            tx.commit_actions("s.a", [add(f"{number}.parquet")])
    with catalog.begin() as tx:
        tx.commit_actions("s.a", [remove("0.parquet"), remove("1.parquet"), add("3.parquet")], read="table")
    rows = catalog.sql(
        "select version, num_added_files, num_removed_files from dl_table_versions order by version"
    ).to_pylist()
    told = [one for event in commits(caplog) for one in event["versions"]]
    assert [(one["version"], one["num_added_files"], one["num_removed_files"]) for one in told] == [
        (row["version"], row["num_added_files"], row["num_removed_files"]) for row in rows
    ]
    assert counts(told[-1]) == (1, 100, 2, 200)


def test_a_commit_whose_answer_was_lost_is_told_once_and_marked(
    catalog: Catalog, caplog: pytest.LogCaptureFixture
) -> None:
    catalog.create_table("s.a", "id long")
    caplog.clear()
    tx = catalog.begin()
    tx.write("s.a", numbers(1), mode="append")
    with StopAt("commit.committed", StoreError("the answer got lost")), pytest.raises(StoreError):
        tx.commit()
    assert commits(caplog) == []
    tx.commit()
    (event,) = commits(caplog)
    assert event["repeated"] is True
    assert counts(event) == (1, live_bytes(catalog, "s.a"), 0, 0)
    assert [one["version"] for one in event["versions"]] == [1]
    assert ids_in(catalog, "s.a") == [1]
