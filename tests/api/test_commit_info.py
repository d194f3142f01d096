"""What commits say of themselves, and what a caller may say in them, is what `deltalake` writes."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from tests.api.both import Both, Library
from tests.api.plain import commit_info

ROWS = {"id": [1, 2, 3], "p": ["a", "b", "c"], "n": [1, 2, 3]}
GIVEN: list[dict[str, Any]] = [
    {"clientVersion": "mine", "userName": "ann", "userMetadata": "nightly", "more": {"list": [1, None]}},
    {"operationParameters": {"job": "load", "mode": "not this", "n": 1, "on": True, "none": None, "deep": {"a": [1]}}},
    {"readVersion": 5, "isBlindAppend": False, "isolationLevel": "WriteSerializable"},
]


def info(lib: Library) -> dict[str, Any]:
    return commit_info(lib.folder, lib.table().version())


def noted(lib: Library, given: Any) -> Any:
    return lib.module.CommitProperties(custom_metadata=given)


def test_fields_of_a_caller_stand_in_the_commit_and_in_the_history(anywhere: Both) -> None:
    anywhere.write(ROWS)
    for given in GIVEN:
        anywhere.same(lambda lib, given=given: lib.write(ROWS, mode="append", commit_properties=noted(lib, given)))  # type: ignore[misc]  # a default binds the loop
        for read in (info, lambda lib: lib.table().history(1)[0]):
            theirs, ours = ({key: read(lib)[key] for key in given} for lib in anywhere.libraries)
            assert ours == theirs
    given = {"readVersion": 77, "isBlindAppend": True, "operationParameters": {"predicate": "not this", "job": 1}}
    anywhere.same(lambda lib: lib.table().delete("id = 1", commit_properties=noted(lib, given)))
    theirs, ours = ({key: info(lib).get(key) for key in given} for lib in anywhere.libraries)
    assert ours["operationParameters"] == theirs["operationParameters"] == {"predicate": "id = 1", "job": "1"}
    assert ours["isBlindAppend"] is False, "a commit that has read is not called blind, whatever a caller says"
    assert ours["readVersion"] != 77, "which version a statement has read is not a caller's to say"


@pytest.mark.parametrize("given", [[("a", 1)], "text", 5, 0, (), {"a": object()}, {1: 2}, {"a": float("nan")},
                                   {"operation": "X"}, {"operationParameters": "x"}])  # fmt: skip
def test_what_cannot_be_recorded_is_refused_when_it_is_used(anywhere: Both, given: Any) -> None:
    anywhere.same(lambda lib: noted(lib, given))
    for call in (
        lambda lib: lib.write(ROWS, commit_properties=noted(lib, given)),
        lambda lib: lib.create(pa.schema([("id", pa.int64())]), commit_properties=noted(lib, given)),
    ):
        assert isinstance(anywhere.fails(call), ValueError)
    assert not list(anywhere.ours.folder.rglob("*.parquet"))
    anywhere.write(ROWS)
    assert isinstance(anywhere.fails(lambda lib: lib.table().delete(commit_properties=noted(lib, given))), ValueError)


CONSTRAINTS = [
    "id > 0", "p is not null", "p <> 'it''s'", '"id" > 0', "`id` > 0 and p != 'q'", "id = 1 or id > 1",
    "id in (1, 2, 3)", "id not in (7, 8)", "id in (1, 2, 3, 4, 5)", "id between 0 and 9", "not (id < 0)",
    "id % 2 >= 0", "upper(p) != 'X'", "(id > 0 or n > 0) and p like '_%'", "id + n * 2 > -1", "id is distinct from 7",
]  # fmt: skip


def test_constraints_are_kept_as_deltalake_spells_them(anywhere: Both) -> None:
    anywhere.write(ROWS)
    for number, text in enumerate(CONSTRAINTS):
        anywhere.same(lambda lib, text=text, n=number: lib.table().alter.add_constraint({f"c{n}": text}))  # type: ignore[misc]  # a default binds the loop
        theirs, ours = (info(lib)["operationParameters"] for lib in anywhere.libraries)
        assert ours == theirs
    anywhere.same(lambda lib: lib.table().alter.add_constraint({"c0": "id   >  0"}))
    anywhere.same(lambda lib: lib.table().metadata().configuration, exactly=True)
    anywhere.same(lambda lib: lib.write(ROWS, mode="append"))


def test_names_that_need_quotes_have_those_that_spark_reads_too(anywhere: Both) -> None:
    rows = {"my col": [1], "select": [1], "tick`s": [1]}
    anywhere.write(rows)
    for name in rows:
        anywhere.same(lambda lib, name=name: lib.table().alter.add_constraint({name[:2]: f'"{name}" > 0'}))  # type: ignore[misc]  # a default binds the loop
    texts = set(anywhere.ours.table().metadata().configuration.values())
    assert texts == {"`my col` > 0", "`select` > 0", "`tick``s` > 0"}
    anywhere.same(lambda lib: lib.write(rows, mode="append"))
    anywhere.fails(lambda lib: lib.write({**rows, "my col": [-1]}, mode="append"))


@pytest.mark.parametrize("partition_by", [[], ["p"]], ids=["flat", "partitioned"])
def test_a_merge_says_what_it_looked_for(anywhere: Both, partition_by: list[str]) -> None:
    """`deltalake` knows the keys of a source only where it is not streamed."""
    source = pa.table({"id": [1, 2], "p": ["a", "b"], "n": [7, 8]})
    for number, (predicate, streamed) in enumerate(
        [
            ("t.id = s.id", True), ("t.id = s.id", False), ("t.id = s.id and t.p = 'a'", True),
            ("t.id = s.id and t.p in ('a', 'b') and s.p != 'q'", True), ("t.id = s.id and t.n > 0", False),
            ("t.id = s.id and t.p = s.p", False), ("t.p = s.p", False),
        ]
    ):  # fmt: skip
        pair = anywhere.other(f"m{number}")
        pair.write(ROWS, partition_by=partition_by or None)

        def merge(lib: Library, predicate: str = predicate, streamed: bool = streamed) -> Any:
            merger = lib.table().merge(source, predicate, source_alias="s", target_alias="t", streamed_exec=streamed)
            return merger.when_matched_update({"n": "s.n"}).when_not_matched_insert_all("s.p <> 'q'").execute()

        pair.same(merge)
        theirs, ours = (info(lib)["operationParameters"] for lib in pair.libraries)
        parts = [sorted(found.pop("predicate", "").split(" OR ")) for found in (theirs, ours)]
        assert parts[1] == parts[0], predicate  # the keys come in any order
        assert ours == theirs
