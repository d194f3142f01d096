"""DeltaTable.delete does what `deltalake`'s does."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from deltalakedb.exceptions import DeltaError
from deltalakedb.log.protocol.rows import add_from_row
from tests.api.both import Both

ROWS = {
    "id": list(range(10)),
    "v": [*map(float, range(8)), None, -99.5],
    "s": [f"s{i}" for i in range(9)] + [None],
    "p": [i % 2 for i in range(10)],
}


@pytest.mark.parametrize(
    "predicate",
    [
        "id < 3",
        "id > 1000",
        "v > 3",
        "v is null",
        "not (v > 3)",
        "s like 's%'",
        "upper(s) = 'S1'",
        "s = 1",
        "id = '3'",
        "id in (1, 2, 77)",
        "id between 2 and 4 or s is null",
        "id % 2 = 0",
        "id / 4 = 0",
        "cast(id as string) = '3'",
        "arrow_cast(id, 'Utf8') = '4'",
        "array_length(make_array(1, 2)) = id",
        "coalesce(s, 'none') = 'none'",
        "case when id > 5 then true else false end",
        '`id` = 4 and "p" = 0',
        "true",
        "null",
        None,
    ],
)
def test_the_same_rows_go_for_a_predicate(both: Both, predicate: str | None) -> None:
    both.seed(ROWS)
    both.same(lambda lib: lib.table().delete(predicate), exactly=True)
    both.same_rows()
    both.same_version()
    both.same_history()


@pytest.mark.parametrize(
    "predicate", ["p = 1", "p = 7", "p = 1 and id > 5", "p is null", "p in (0, 1)", "p = 0 or p is null"]
)
def test_partitions_are_deleted_whole_where_the_predicate_says_so(both: Both, predicate: str) -> None:
    rows = {**ROWS, "p": [0, 0, 0, 1, 1, 1, 1, None, None, None]}
    both.seed(rows, partition_by=["p"])
    both.same(lambda lib: lib.table().delete(predicate), exactly=True)
    both.same_rows()
    both.same_version()
    both.mirror_agrees()


def test_a_predicate_on_partitions_opens_no_file(both: Both) -> None:
    both.seed(ROWS, partition_by=["p"])
    for file in both.ours.folder.rglob("*.parquet"):
        if "_delta_log" not in file.parts:
            file.write_bytes(b"no parquet")
    metrics = both.ours.table().delete("p = 1")
    assert metrics["num_removed_files"] == 1
    assert metrics["num_deleted_rows"] == 5


@pytest.mark.parametrize(
    "predicate", ["nosuch = 1", "id =", "id", "id + 1", "sum(id) > 3", "nope(id) = 3", "id in (select 1)", ""]
)
def test_what_is_no_predicate_is_refused_and_changes_nothing(both: Both, predicate: str) -> None:
    both.seed(ROWS)
    both.fails(lambda lib: lib.table().delete(predicate))
    both.same_rows()


def test_history_tells_predicate_and_metrics(both: Both) -> None:
    both.seed(ROWS)
    both.same(lambda lib: lib.table().delete("id < 3 and p = 1"))
    entries = [library.table().history(1)[0] for library in both.libraries]
    theirs, ours = entries
    assert ours["operation"] == theirs["operation"] == "DELETE"
    assert ours["operationParameters"] == theirs["operationParameters"] == {"predicate": "id < 3 AND p = 1"}
    assert ours["operationMetrics"].keys() == theirs["operationMetrics"].keys()
    assert both.ours.table().delete("id > 1000")["num_removed_files"] == 0
    assert len(both.ours.table().history()) == len(both.theirs.table().history())


def test_untouched_files_stay_as_they_are(both: Both) -> None:
    both.seed({"id": [1, 2]}, {"id": [3, 4]}, {"id": [5, 6]})
    before = set(both.ours.table().file_uris())
    both.same(lambda lib: lib.table().delete("id = 3"), exactly=True)
    assert len(before & set(both.ours.table().file_uris())) == 2
    both.same(lambda lib: lib.table().delete("id > 4"), exactly=True)
    assert both.same_rows().num_rows == 3


def test_an_append_only_table_keeps_its_rows(both: Both) -> None:
    both.seed(ROWS, configuration={"delta.appendOnly": "true"})
    both.fails(lambda lib: lib.table().delete("id = 1"))
    both.fails(lambda lib: lib.table().delete())


def test_commit_properties_are_noted(both: Both) -> None:
    both.seed(ROWS)

    def delete(lib: Any) -> Any:
        noted = lib.module.CommitProperties(custom_metadata={"job": "nightly"})
        return lib.table().delete("id = 1", commit_properties=noted)

    both.same(delete)
    assert [library.table().history(1)[0]["job"] for library in both.libraries] == ["nightly", "nightly"]


def test_properties_given_by_position_are_taken_with_a_warning(both: Both) -> None:
    both.seed(ROWS)
    outcome = both.same(lambda lib: lib.table().delete("id = 1", None, lib.module.PostCommitHookProperties()))
    assert outcome.warned == ("DeprecationWarning",)
    both.same_rows()


def test_a_table_is_emptied_and_filled_again(everywhere: Both) -> None:
    everywhere.seed(ROWS, ROWS)
    everywhere.same(lambda lib: lib.table().delete("v > 2 and id < 6"), exactly=True)
    everywhere.same_rows()
    everywhere.same(lambda lib: lib.table().delete())
    assert everywhere.same_rows().num_rows == 0
    everywhere.mirror_agrees()


def test_nested_columns_and_columns_with_odd_names_are_judged(both: Both) -> None:
    rows = pa.table(
        {"we ird": [1, 2, 3], "st": [{"x": 1, "y": "a"}, {"x": 2, "y": None}, None], "l": [[1, 2], [], None]}
    )
    both.seed(rows)
    both.same(lambda lib: lib.table().delete('"we ird" = 3'), exactly=True)
    both.same_rows()
    both.same(lambda lib: lib.table().delete("st['x'] = 2"), exactly=True)
    assert both.same_rows().num_rows == 1


def test_where_nobody_has_counted_the_rows_their_number_is_left_out(both: Both) -> None:
    both.seed(ROWS, partition_by=["p"])
    name = both.ours.uri.partition("table=")[2]
    adds = [add_from_row(row) for row in both.ours.table()._snapshot.files_table().to_pylist()]
    with both.ours.catalog.begin() as tx:
        tx.commit_actions(name, [replace(add, stats=None) for add in adds])
    metrics = both.ours.table().delete("p = 1")
    assert "num_deleted_rows" not in metrics
    assert metrics["num_removed_files"] == 1
    assert both.ours.table().delete("id in (0, 2)")["num_deleted_rows"] == 2
    assert both.ours.table().delete("id > 2")["num_deleted_rows"] == 3
    assert both.ours.rows().num_rows == 0


def test_a_failing_statement_leaves_no_file_behind(both: Both) -> None:
    both.seed(ROWS)
    before = {file.name for file in both.ours.folder.rglob("*.parquet")}
    with pytest.raises(DeltaError):
        both.ours.table().delete("cast(s as bigint) = 1")
    assert {file.name for file in both.ours.folder.rglob("*.parquet")} == before
    assert both.same_version() == 1
