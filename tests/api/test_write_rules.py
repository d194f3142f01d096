"""What a table demands of its rows, the same calls on both libraries: nothing is written when a rule is broken."""

from __future__ import annotations

import json
import re
from datetime import UTC, date, datetime
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


def test_a_generated_column_of_dates_is_what_deltalake_makes_it(anywhere: Both) -> None:
    """Those of Spark that `deltalake` knows; the others are compared with Spark's in tests/spark."""
    expressions = {
        "year": ("date", "trunc(d, 'YEAR')"),
        "month": ("date", "trunc(d, 'MM')"),
        "hour": ("timestamp", "date_trunc('hour', t)"),
        "day": ("date", "cast(t as date)"),
        "whole": ("integer", "cast(f as int)"),
        "either": ("string", "coalesce(s, 'none')"),
    }
    given: list[tuple[str, str, dict[str, Any]]] = [
        ("d", "date", {}),
        ("t", "timestamp", {}),
        ("f", "double", {}),
        ("s", "string", {}),
    ]
    made = [(name, kind, {"delta.generationExpression": text}) for name, (kind, text) in expressions.items()]
    create(anywhere, *given, *made)
    days = [date(2024, 3, 7), date(1969, 12, 31), None]
    times = [datetime(2024, 3, 7, 13, 45, tzinfo=UTC), datetime(1960, 1, 1, tzinfo=UTC), None]
    rows = pa.table({"d": days, "t": times, "f": [1.9, -2.5, None], "s": ["a", "b", None]})
    anywhere.write(rows.cast(rows.schema.set(1, pa.field("t", pa.timestamp("us", "UTC")))), mode="append")
    assert anywhere.same_rows().column("whole").to_pylist() == [1, -2, None]


def test_a_generated_column_that_must_not_be_null_may_be_left_out(anywhere: Both) -> None:
    def schema(lib: Library) -> Any:
        make = lib.find("schema.Field")
        twice = make("twice", "long", nullable=False, metadata={"delta.generationExpression": "id * 2"})
        return lib.module.Schema([make("id", "long"), twice])

    anywhere.same(lambda lib: lib.create(schema(lib)))
    anywhere.write({"id": [1]}, mode="append")
    anywhere.fails(lambda lib: lib.write(pa.table({"id": pa.array([None], pa.int64())}), mode="append"))
    anywhere.same_rows()


UNKNOWN = ["hash(id)", "months_between(d, d)", "trunc(d, 'decade')", "date_format(d, 'G')", "nosuch(id)", "rand()",
           "sha2('a', 512)", "no_column + 1", "count(id)", "id +"]  # fmt: skip


def test_what_cannot_be_evaluated_is_refused_before_anything_is_written(anywhere: Both) -> None:
    nothing = pa.table({"id": pa.array([], pa.int64()), "d": pa.array([], pa.date32())})
    for number, text in enumerate(UNKNOWN):
        ours = anywhere.other(f"u{number}").ours
        generated = ("g", "string", {"delta.generationExpression": text})
        ours.create(fields(ours, ("id", "long", {}), ("d", "date", {}), generated))
        with pytest.raises(ours.module.DeltaError, match=re.escape(text.partition("(")[0].split()[0])):
            ours.write(nothing, mode="append")
        assert ours.table().version() == 0
        assert not list(ours.folder.rglob("*.parquet"))


def test_a_generated_column_does_not_come_later(anywhere: Both) -> None:
    """The rows that are there would not have its values."""
    generated = {"delta.generationExpression": "id + 1"}
    both = anywhere
    both.write({"id": [1]})
    both.fails(lambda lib: lib.table().alter.add_columns([lib.find("schema.Field")("g", "long", metadata=generated)]))
    both.fails(lambda lib: lib.table().alter.set_column_metadata("id", generated))
    both.fails(lambda lib: lib.table().alter.set_column_metadata("id", {"delta.columnMapping.id": "7"}))
    g = pa.field("g", pa.int64(), metadata=generated)
    rows = pa.table([pa.array([5]), pa.array([6])], pa.schema([pa.field("id", pa.int64()), g]))
    both.fails(lambda lib: lib.write(rows, mode="append", schema_mode="merge"))
    both.fails(lambda lib: lib.write(rows, mode="overwrite", schema_mode="merge"))
    both.fails(
        lambda lib: (
            lib.table()
            .merge(rows, "t.id = s.id", source_alias="s", target_alias="t", merge_schema=True)
            .when_not_matched_insert_all()
            .execute()
        )
    )
    if both.ours.catalog is not None:
        with pytest.raises(both.ours.module.DeltaError, match="generated"):
            both.ours.catalog.add_columns("api.t", rows.schema.field("g"))
    both.write(rows, mode="overwrite", schema_mode="overwrite")
    both.write({"id": [7]}, mode="append")
    assert sorted(both.same_rows().column("g").to_pylist()) == [6, 8]


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
