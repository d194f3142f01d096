"""What a table demands of its rows, the same calls on both libraries: nothing is written when a rule is broken."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from tests.api.both import Both, Library


def fields(lib: Library, *given: tuple[str, str, dict[str, Any]], nullable: bool = True) -> Any:
    made = [lib.find("schema.Field")(name, kind, nullable=nullable, metadata=meta) for name, kind, meta in given]
    return lib.module.Schema(made)


def create(both: Both, *given: tuple[str, str, dict[str, Any]], nullable: bool = True) -> None:
    both.same(lambda lib: lib.create(fields(lib, *given, nullable=nullable)))


def test_a_constraint_holds_for_every_row(anywhere: Both) -> None:
    anywhere.write({"id": [1, 2], "day": ["a", "b"]})
    anywhere.same(lambda lib: lib.table().alter.add_constraint({"positive": "id > 0 and day <> 'never'"}))
    for id_, day in ((-1, "a"), (1, "never"), (None, "a"), (1, None)):
        rows = pa.table({"id": pa.array([5, id_], pa.int64()), "day": pa.array(["a", day], pa.string())})
        anywhere.fails(lambda lib, rows=rows: lib.write(rows, mode="append"))  # type: ignore[misc]  # a default binds the loop
        anywhere.fails(lambda lib, rows=rows: lib.write(rows, mode="overwrite"))  # type: ignore[misc]  # a default binds the loop
    anywhere.write({"id": [3], "day": ["c"]}, mode="append")
    assert anywhere.same_rows().num_rows == 3


def test_an_invariant_holds_for_every_row(both: Both) -> None:
    invariant = json.dumps({"expression": {"expression": "id > 3"}})
    create(both, ("id", "long", {"delta.invariants": invariant}))
    both.fails(lambda lib: lib.write({"id": [4, 3]}, mode="append"))
    both.write({"id": [4, 5]}, mode="append")
    both.same_rows()


def test_a_column_that_must_not_be_null_is_not(both: Both) -> None:
    create(both, ("id", "long", {}), nullable=False)
    both.fails(lambda lib: lib.write(pa.table({"id": pa.array([1, None], pa.int64())}), mode="append"))
    both.write({"id": [1]}, mode="append")
    both.same_rows()


def test_a_generated_column_is_computed_or_checked(anywhere: Both) -> None:
    create(anywhere, ("id", "long", {}), ("twice", "long", {"delta.generationExpression": "id * 2"}))
    anywhere.write({"id": [1, 2]}, mode="append")
    anywhere.write({"id": [3], "twice": [6]}, mode="append")
    anywhere.fails(lambda lib: lib.write({"id": [4], "twice": [9]}, mode="append"))
    nothing = pa.table({"id": [4], "twice": pa.array([None], pa.int64())})
    anywhere.fails(lambda lib: lib.write(nothing, mode="append"))
    assert sorted(anywhere.same_rows().column("twice").to_pylist()) == [2, 4, 6]


def test_no_file_is_left_where_a_rule_is_broken(both: Both) -> None:
    both.write({"id": [1]})
    both.same(lambda lib: lib.table().alter.add_constraint({"positive": "id > 0"}))
    before = sorted(both.ours.folder.rglob("*.parquet"))

    def stream() -> Any:
        yield pa.record_batch({"id": list(range(1, 200_000))})
        yield pa.record_batch({"id": [-1]})

    with pytest.raises(both.ours.module.DeltaError, match="positive"):
        both.ours.write(stream(), mode="append", target_file_size=200_000)
    assert sorted(both.ours.folder.rglob("*.parquet")) == before
