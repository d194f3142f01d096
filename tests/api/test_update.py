"""DeltaTable.update does what `deltalake`'s does."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Any

import pyarrow as pa
import pytest

from tests.api.both import Both

ROWS = {
    "id": list(range(10)),
    "v": [*map(float, range(9)), None],
    "s": [f"s{i}" for i in range(10)],
    "p": [i % 2 for i in range(10)],
}
KINDS = pa.table(
    {
        "i": pa.array([1, 2], pa.int64()),
        "i8": pa.array([1, 2], pa.int8()),
        "b": [True, False],
        "f": pa.array([1.5, 2.5], pa.float32()),
        "d": pa.array([date(2020, 1, 1)] * 2),
        "ts": pa.array([datetime(2020, 1, 1, tzinfo=UTC)] * 2, pa.timestamp("us", "UTC")),
        "l": pa.array([[1], [2, 3]], pa.list_(pa.int64())),
        "dec": pa.array([1, 2], pa.decimal128(10, 2)),
        "bin": pa.array([b"a", b"b"]),
        "st": pa.array([{"x": 1, "y": "a"}, {"x": 2, "y": "b"}]),
        "s": ["a", "b"],
    }
)


@pytest.mark.parametrize(
    "updates",
    [
        {"s": "'x'"},
        {"v": "v + 1", "id": "id * 2"},
        {"id": "'12'"},
        {"id": "null"},
        {"id": "1.5"},
        {"v": "id / 4"},
        {"s": "id"},
        {"s": "concat(s, '_old')", "p": "p + 1"},
        {"id": "case when id > 3 then 1 else 2 end"},
        {"s": "True"},
        {"id": "v"},
        {"s": "s || 'x'"},
        {"v": "round(v / 3, 1)"},
        {},
    ],
)
def test_rows_get_the_same_values(both: Both, updates: dict[str, str]) -> None:
    both.seed(ROWS)
    both.same(lambda lib: lib.table().update(updates=updates, predicate="id >= 8"), exactly=True)
    both.same_rows()
    both.same_version()


@pytest.mark.parametrize("predicate", ["id = 3", "id = 300", "v is null or s = 's2'", "v > 3", "true", "null", None])
def test_the_same_rows_are_updated_for_a_predicate(both: Both, predicate: str | None) -> None:
    both.seed(ROWS)
    both.same(lambda lib: lib.table().update({"s": "upper(s)"}, predicate=predicate), exactly=True)
    both.same_rows()
    both.same_version()
    both.same_history()


@pytest.mark.parametrize(
    "updates",
    [
        {"i8": "i8 + 1"},
        {"f": "i"},
        {"d": "'2021-02-03'"},
        {"d": "date '2021-02-03'"},
        {"ts": "timestamp '2021-02-03 04:05:06'"},
        {"ts": "'2021-02-03T04:05:06Z'"},
        {"l": "make_array(1, 2)"},
        {"l": "[7]"},
        {"dec": "dec * 2"},
        {"bin": "'xy'"},
        {"st": "named_struct('x', 9, 'y', 'q')"},
        {"b": "not b"},
    ],
    ids=str,
)
def test_expressions_of_every_type_fit_their_columns(both: Both, updates: dict[str, str]) -> None:
    both.seed(KINDS)
    both.same(lambda lib: lib.table().update(updates, predicate="i = 2"), exactly=True)
    both.same_rows()


@pytest.mark.parametrize(
    "values",
    [
        {"i": 5, "i8": 5, "b": True, "f": 2.25, "s": "plain"},
        {"d": "2021-02-03", "l": [4, 5], "dec": 3.14},
        {"ts": datetime(2021, 2, 3, 4, 5, 6, tzinfo=UTC)},
        {"i": "7", "s": 5},
        {"ts": "2021-02-03 04:05:06"},
    ],
    ids=str,
)
def test_python_values_become_the_same_values(both: Both, values: dict[str, Any]) -> None:
    both.seed(KINDS)
    both.same(lambda lib: lib.table().update(new_values=values, predicate="i = 2"), exactly=True)
    both.same_rows()


def test_a_text_may_hold_a_quote(both: Both) -> None:
    both.seed(KINDS)
    both.ours.table().update(new_values={"s": "it's"}, predicate="i = 2")
    assert sorted(both.ours.rows().column("s").to_pylist()) == ["a", "it's"]


@pytest.mark.parametrize(
    "updates", [{"id": "nosuch"}, {"id": "'abc'"}, {"id": "id + "}, {"id": "sum(id)"}, {"id": "9223372036854775808"}]
)
def test_what_cannot_be_set_is_refused_and_changes_nothing(both: Both, updates: dict[str, str]) -> None:
    both.seed(ROWS)
    both.fails(lambda lib: lib.table().update(updates, predicate="id >= 8"))
    both.same_rows()


@pytest.mark.parametrize("updates", [{"id": "'abc'"}, {"id": "9223372036854775808"}, {"id": "s"}])
def test_without_an_error_a_value_that_does_not_fit_is_null(both: Both, updates: dict[str, str]) -> None:
    both.seed(ROWS)
    both.same(lambda lib: lib.table().update(updates, predicate="id >= 8", error_on_type_mismatch=False), exactly=True)
    both.same_rows()


def test_arguments_that_contradict_each_other_are_refused(both: Both) -> None:
    both.seed(ROWS)
    both.fails(lambda lib: lib.table().update(updates={"id": "1"}, new_values={"id": 2}))
    both.fails(lambda lib: lib.table().update())
    both.fails(lambda lib: lib.table().update(updates={"id": 1}))
    both.fails(lambda lib: lib.table().update(new_values={"s": None}))
    both.fails(lambda lib: lib.table().update(new_values={"s": b"x"}))
    both.fails(lambda lib: lib.table().update({"id": "1"}, predicate="nosuch = 1"))
    both.fails(lambda lib: lib.table().update({"id": "1"}, predicate="id"))


def test_a_column_that_is_not_there_is_left_out_with_a_warning(both: Both, caplog: pytest.LogCaptureFixture) -> None:
    both.seed(ROWS)
    both.same(lambda lib: lib.table().update({"nosuch": "1", "v": "7"}, predicate="id = 1"))
    both.same_rows()
    assert "it has no column 'nosuch'" in caplog.text


def test_rows_move_to_another_partition(both: Both) -> None:
    both.seed(ROWS, partition_by=["p"])
    both.same(lambda lib: lib.table().update({"p": "p + 10"}, predicate="id < 4"))
    both.same_rows()
    assert {entry["p"] for entry in both.ours.table().partitions()} == {"0", "1", "10", "11"}
    both.same(lambda lib: lib.table().update({"v": "0"}, predicate="p = 10"), exactly=True)
    both.same_rows()
    both.mirror_agrees()


def test_an_append_only_table_keeps_its_values(both: Both) -> None:
    both.seed(ROWS, configuration={"delta.appendOnly": "true"})
    both.fails(lambda lib: lib.table().update({"s": "'x'"}))


def test_a_constraint_that_new_values_break_stops_the_update(both: Both) -> None:
    both.seed(ROWS)
    both.same(lambda lib: lib.table().alter.add_constraint({"small": "id < 100"}))
    both.fails(lambda lib: lib.table().update({"id": "id + 95"}, predicate="id > 3"))
    both.same(lambda lib: lib.table().update({"id": "id + 80"}, predicate="id > 3"), exactly=True)
    both.same_rows()


def test_an_update_is_the_same_wherever_the_log_is_kept(everywhere: Both) -> None:
    everywhere.seed(ROWS, ROWS)
    everywhere.same(lambda lib: lib.table().update({"s": "concat(s, '!')", "v": "v * 2"}, predicate="id % 3 = 0"))
    everywhere.same_rows()
    everywhere.mirror_agrees()


def test_what_must_not_be_null_cannot_be_set_to_null(both: Both) -> None:
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("s", pa.string())])
    both.seed(pa.table({"id": [1, 2], "s": ["a", None]}, schema=schema))
    both.fails(lambda lib: lib.table().update({"id": "null"}, predicate="id = 1"))
    both.fails(lambda lib: lib.table().update({"id": "length(s)"}))
    both.same(lambda lib: lib.table().update({"s": "null"}), exactly=True)
    both.same_rows()


def test_an_empty_table_has_nothing_to_change(both: Both) -> None:
    both.seed(ROWS)
    for library in both.libraries:
        library.table().delete()
    both.same(lambda lib: lib.table().update({"s": "'x'"}), exactly=True)
    both.same(lambda lib: lib.table().update({"s": "'x'"}, predicate="id = 1"), exactly=True)
    both.same(lambda lib: lib.table().delete("id = 1"), exactly=True)
    both.same_version()
