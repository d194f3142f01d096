"""Statements of a DeltaTable that is not at the newest version."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest

from deltalakedb.exceptions import CommitFailedError, MetadataChangedError
from tests.api.both import Both


@pytest.fixture
def seeded(anywhere: Both) -> Both:
    anywhere.ours.seed([pa.table({"id": [1, 2, 3]})], [], {})
    return anywhere


def test_an_overwrite_replaces_rows_that_were_appended_since(seeded: Both) -> None:
    ours, old = seeded.ours, seeded.ours.table()
    ours.module.write_deltalake(ours.uri, pa.table({"id": [4]}), mode="append")
    ours.module.write_deltalake(old, pa.table({"id": [5]}), mode="overwrite")
    assert old.version() == 3
    assert old.to_pyarrow_table()["id"].to_pylist() == [5]


def test_a_delete_of_all_rows_deletes_those_that_were_appended_since(seeded: Both) -> None:
    ours, old = seeded.ours, seeded.ours.table()
    ours.module.write_deltalake(ours.uri, pa.table({"id": [4]}), mode="append")
    assert old.delete()["num_deleted_rows"] == 4
    assert ours.table().count() == 0


def test_an_overwrite_from_before_a_change_of_the_schema_is_refused(seeded: Both) -> None:
    ours, old = seeded.ours, seeded.ours.table()
    ours.table().alter.add_columns([ours.module.Field("more", "long")])
    with pytest.raises(MetadataChangedError):
        ours.module.write_deltalake(old, pa.table({"id": [5]}), mode="overwrite")


@pytest.mark.parametrize(
    "change",
    [
        lambda lib, table, given: lib.write_deltalake(table, pa.table({"id": [5]}), mode="append", **given),
        lambda lib, table, given: lib.write_deltalake(table, pa.table({"id": [5]}), mode="overwrite", **given),
        lambda _, table, given: table.delete("id = 1", **given),
        lambda _, table, given: table.update({"id": "id + 1"}, predicate="id = 1", **given),
    ],
    ids=["append", "overwrite", "delete", "update"],
)
def test_a_commit_without_retries_must_be_the_next_one(seeded: Both, change: Callable[..., None]) -> None:
    ours, old = seeded.ours, seeded.ours.table()
    ours.module.write_deltalake(ours.uri, pa.table({"id": [4]}), mode="append")
    given = {"commit_properties": ours.module.CommitProperties(max_commit_retries=0)}
    with pytest.raises(CommitFailedError, match="max_commit_retries is 0"):
        change(ours.module, old, given)
    assert ours.table().version() == 2
    old.update_incremental()
    change(ours.module, old, given)
    assert old.version() == 3
