"""What `deltalake` refuses we refuse, with an error of the same name, and nothing is written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.api.both import Both, Library

Call = Callable[[Library], Any]
ROWS = {"id": [1, 2], "p": ["a", "b"], "n": [10, 20]}


def rows(**columns: Any) -> pa.Table:
    return pa.table({"id": [1], "p": ["a"], "n": [1], **columns})


def merging(source: pa.Table, on: str = "t.id = s.id") -> Call:
    return lambda lib: lib.table().merge(source, on, source_alias="s", target_alias="t")


def then(first: Call, *clauses: tuple[str, Any]) -> Call:
    """A merge with clauses, executed."""

    def run(lib: Library) -> Any:
        merger = first(lib)
        for name, argument in clauses:
            merger = getattr(merger, name)(*argument)
        return merger.execute()

    return run


TWICE = pa.table({"id": [1, 1], "p": ["a", "a"], "n": [7, 8]})

WRITES: dict[str, Call] = {
    "a column of another type": lambda lib: lib.write(rows(id=["x"]), mode="append"),
    "a column too many": lambda lib: lib.write(rows(z=[1]), mode="append"),
    "a column too few": lambda lib: lib.write(pa.table({"id": [1], "p": ["a"]}), mode="append"),
    "another type with schema_mode merge": lambda lib: lib.write(rows(id=["x"]), mode="append", schema_mode="merge"),
    "a table that is there": lambda lib: lib.write(rows()),
    "an unknown mode": lambda lib: lib.write(rows(), mode="upsert"),
    "another schema on append": lambda lib: lib.write(rows(), mode="append", schema_mode="overwrite"),
    "other partitions on append": lambda lib: lib.write(rows(), mode="append", partition_by=["id"]),
    "other partitions on overwrite": lambda lib: lib.write(rows(), mode="overwrite", partition_by=["id"]),
    "rows outside what is replaced": lambda lib: lib.write(rows(), mode="overwrite", predicate="id = 2"),
    "an unknown column to replace by": lambda lib: lib.write(rows(), mode="overwrite", predicate="nosuch = 2"),
    "no data": lambda lib: lib.write(5, mode="append"),
}
CHANGES: dict[str, Call] = {
    "delete by an unknown column": lambda lib: lib.table().delete("nosuch = 1"),
    "delete by what is no SQL": lambda lib: lib.table().delete("id = = 1"),
    "delete by what is no condition": lambda lib: lib.table().delete("id + 1"),
    "update by an unknown column": lambda lib: lib.table().update({"n": "1"}, predicate="nosuch = 1"),
    "update of nothing": lambda lib: lib.table().update(),
    "update in two ways": lambda lib: lib.table().update(updates={"n": "1"}, new_values={"n": 1}),
    "update with another type": lambda lib: lib.table().update({"n": "'x'"}),
    "update with no value of SQL": lambda lib: lib.table().update(new_values={"n": object()}),
    "update with a text for a number": lambda lib: lib.table().update(new_values={"n": "abc"}),
    "merge with several matches": then(merging(TWICE), ("when_matched_update_all", ())),
    "merge by an unknown column": then(merging(rows(), "t.zz = s.id"), ("when_matched_update_all", ())),
    "merge of no data": lambda lib: lib.table().merge(5, "t.id = s.id"),
}
UPKEEP: dict[str, Call] = {
    "vacuum below the retention": lambda lib: lib.table().vacuum(1),
    "vacuum of negative hours": lambda lib: lib.table().vacuum(-1),
    "restore to a version to come": lambda lib: lib.table().restore(77),
    "restore to no version": lambda lib: lib.table().restore(1.5),
    "z-order by an unknown column": lambda lib: lib.table().optimize.z_order(["zz"]),
    "z-order by nothing": lambda lib: lib.table().optimize.z_order([]),
    "z-order by a partition": lambda lib: lib.table().optimize.z_order(["p"]),
    "a constraint that rows break": lambda lib: lib.table().alter.add_constraint({"c": "id > 1"}),
    "a constraint that is not there": lambda lib: lib.table().alter.drop_constraint("zz"),
    "a property nobody knows": lambda lib: lib.table().alter.set_table_properties({"foo": "bar"}),
    "a table that exists": lambda lib: lib.create(rows().schema),
}
READS: dict[str, Call] = {
    "a version to come": lambda lib: lib.table(version=77),
    "travel to a version to come": lambda lib: lib.table().load_as_version(77),
    "travel to no version": lambda lib: lib.table().load_as_version(1.5),
    "travel to no time": lambda lib: lib.table().load_as_version("yesterday"),
    "an unknown column": lambda lib: lib.table().to_pyarrow_table(columns=["zz"]),
    "an unknown column in filters": lambda lib: lib.table().to_pyarrow_table(filters=[("zz", "=", 1)]),
    "an unknown column of a scan": lambda lib: lib.table().scan(columns=["zz"]),
    "an unknown column in a scan's predicate": lambda lib: lib.table().scan(predicate="zz = 1"),
    "an unknown operator": lambda lib: lib.table().file_uris([("p", "~", "a")]),
    "changes where none are kept": lambda lib: lib.table().load_cdf(),
}
CASES = {**WRITES, **CHANGES, **UPKEEP, **READS}


@pytest.mark.parametrize("what", CASES)
def test_what_deltalake_refuses_is_refused(both: Both, what: str) -> None:
    both.seed(ROWS, partition_by=["p"])
    both.fails(CASES[what])
    assert both.same_rows().num_rows == 2


@pytest.mark.parametrize("what", ["a column too many", "delete by an unknown column", "merge with several matches"])
def test_at_a_path_too(on_paths: Both, what: str) -> None:
    on_paths.seed(ROWS, partition_by=["p"])
    on_paths.fails(CASES[what])
    assert on_paths.same_rows().num_rows == 2


BREAKING: dict[str, Call] = {
    "append": lambda lib: lib.write(rows(id=[-1]), mode="append"),
    "overwrite": lambda lib: lib.write(rows(id=[-1]), mode="overwrite"),
    "update": lambda lib: lib.table().update({"id": "-1"}),
    "merge that inserts": then(merging(rows(id=[-5])), ("when_not_matched_insert_all", ())),
    "merge that updates": then(merging(rows(id=[1])), ("when_matched_update", ({"id": "-5"},))),
}


@pytest.mark.parametrize("verb", BREAKING)
def test_rows_that_break_a_constraint_are_not_written(both: Both, verb: str) -> None:
    both.seed(ROWS)
    both.same(lambda lib: lib.table().alter.add_constraint({"positive": "id > 0"}))
    before = files_below(both.ours.folder)
    both.fails(BREAKING[verb])
    both.same_rows()
    assert files_below(both.ours.folder) == before, "a file of the statement that failed is left"


@pytest.mark.parametrize("verb", ["append", "update", "merge that inserts"])
def test_a_column_that_must_not_be_null_is_never_null(both: Both, verb: str) -> None:
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("p", pa.string())])
    both.seed(pa.table({"id": [1], "p": ["a"]}, schema=schema))
    null = pa.table({"id": pa.array([None], pa.int64()), "p": ["b"]})
    calls: dict[str, Call] = {
        "append": lambda lib: lib.write(null, mode="append"),
        "update": lambda lib: lib.table().update({"id": "null"}),
        "merge that inserts": then(merging(null), ("when_not_matched_insert_all", ())),
    }
    both.fails(calls[verb])
    both.same_rows()


@pytest.mark.parametrize("verb", ["delete", "overwrite", "update"])
def test_a_table_that_only_grows_loses_no_row(both: Both, verb: str) -> None:
    both.seed(ROWS, configuration={"delta.appendOnly": "true"})
    calls: dict[str, Call] = {
        "delete": lambda lib: lib.table().delete("id = 1"),
        "overwrite": lambda lib: lib.write(rows(), mode="overwrite"),
        "update": lambda lib: lib.table().update({"n": "0"}),
    }
    both.fails(calls[verb])
    both.write(rows(), mode="append")
    assert both.same_rows().num_rows == 3


def test_a_version_whose_files_vacuum_took_cannot_be_restored(both: Both) -> None:
    both.seed(ROWS)
    both.write(rows(id=[9]), mode="overwrite")
    both.same(lambda lib: lib.table().vacuum(0, dry_run=False, enforce_retention_duration=False))
    both.fails(lambda lib: lib.table().restore(1))
    both.same_rows()


def test_a_table_that_is_not_there_is_not_opened(both: Both) -> None:
    assert type(both.fails(lambda lib: lib.table())).__name__ == "TableNotFoundError"
    both.same(lambda lib: lib.module.DeltaTable.is_deltatable(lib.uri), exactly=True)


def test_a_new_table_is_not_partitioned_by_a_column_it_has_not(both: Both) -> None:
    both.fails(lambda lib: lib.write(rows(), partition_by=["zz"]))
    both.fails(lambda lib: lib.create(rows().schema, partition_by=["zz"]))
    both.fails(lambda lib: lib.create(rows().schema, configuration={"foo": "bar"}))


def files_below(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*.parquet")}
