"""The harness itself: what it lets pass, and what it does not."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import deltalakedb as dl
from tests.api.both import Both, Library
from tests.api.judging import attempt, check_same


def test_a_seeded_table_is_the_same_on_both_sides(both: Both) -> None:
    both.seed({"id": [1, 2]}, {"id": [3]}, configuration={"delta.appendOnly": "false"})
    assert both.same_rows().num_rows == 3
    both.same_schema()
    assert both.same_version() == 2
    both.mirror_agrees()
    assert both.ours.table().metadata().configuration == both.theirs.table().metadata().configuration


def test_a_table_of_ours_may_lie_on_any_engine_or_at_a_path(everywhere: Both) -> None:
    everywhere.seed({"id": [1, 2], "day": ["a", "b"]}, partition_by=["day"])
    everywhere.other("u").seed({"id": [3]})
    assert everywhere.same_rows().num_rows == 2
    everywhere.write({"id": [3], "day": ["c"]}, mode="append")
    everywhere.same(lambda lib: lib.table().delete("id = 1"), exactly=True)
    everywhere.same_rows()
    everywhere.mirror_agrees()


def test_errors_match_by_the_name_of_their_class_or_of_one_above_it(both: Both) -> None:
    class TableNotFoundError(Exception): ...

    theirs = attempt(lambda: _fail(TableNotFoundError()))
    check_same(theirs, attempt(lambda: _fail(dl.TableNotFoundError("none"))), "here")
    with pytest.raises(AssertionError, match="instead of"):
        check_same(theirs, attempt(lambda: _fail(dl.DeltaError("other"))), "here")
    with pytest.raises(AssertionError, match="only deltalake fails"):
        check_same(theirs, attempt(lambda: 1), "here")
    both.fails(lambda lib: lib.table())


def test_rows_are_compared_with_their_types_and_without_their_order() -> None:
    theirs = attempt(lambda: pa.table({"a": [1, 2]}))
    check_same(theirs, attempt(lambda: pa.table({"a": [2, 1]})), "here")
    for other in (pa.table({"a": [1, 3]}), pa.table({"a": pa.array([1, 2], pa.int32())}), pa.table({"b": [1, 2]})):
        with pytest.raises(AssertionError):
            check_same(theirs, attempt(lambda other=other: other), "here")  # type: ignore[misc]  # a default binds the loop


def test_metrics_are_compared_by_their_keys_and_exactly_when_asked(both: Both) -> None:
    def answer(lib: Library) -> dict[str, Any]:
        return {"num_rows": 1 if lib.is_ours else 2, "scan_time_ms": 7 if lib.is_ours else 8}

    both.same(answer)
    with pytest.raises(AssertionError, match="num_rows"):
        both.same(answer, exactly=True)


def _fail(error: Exception) -> None:
    raise error
