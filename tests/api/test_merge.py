"""`DeltaTable.merge` does what `deltalake` does: clause by clause, and with the same errors for bad input."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from typing import Any

import pyarrow as pa
import pytest

import deltalakedb as dl
from tests.api.both import Both, Library

Merger = Any
Clauses = Callable[[Merger], Merger]

BASE = {"id": [1, 2, 3, 4], "v": ["a", "b", "c", "d"], "n": [10, 20, 30, 40]}
SOURCE = pa.table({"id": [1, 2, 9], "v": ["x", "y", "z"], "n": [1, 2, 3]})
TWICE = pa.table({"id": [1, 1, 9], "v": ["x", "y", "z"], "n": [1, 2, 3]})
ON = "t.id = s.id"
METRICS = (
    "num_source_rows",
    "num_target_rows_inserted",
    "num_target_rows_updated",
    "num_target_rows_deleted",
    "num_target_rows_copied",
    "num_output_rows",
)


def merging(clauses: Clauses, source: Any = SOURCE, on: str = ON, **arguments: Any) -> Callable[[Library], Any]:
    def run(lib: Library) -> Any:
        options = {"source_alias": "s", "target_alias": "t", **arguments}
        return clauses(lib.table().merge(source, on, **options)).execute()

    return run


def same_merge(both: Both, clauses: Clauses, source: Any = SOURCE, on: str = ON, **arguments: Any) -> None:
    """The same merge on both: the same counts of rows, the same rows."""
    run = merging(clauses, source, on, **arguments)

    def counted(lib: Library) -> dict[str, Any]:
        metrics = run(lib)
        return {key: value if key in METRICS else type(value).__name__ for key, value in metrics.items()}

    both.same(counted, exactly=True)
    both.same_rows()


WORKING: dict[str, Clauses] = {
    "update all": lambda m: m.when_matched_update_all(),
    "update all but one": lambda m: m.when_matched_update_all(except_cols=["v"]),
    "update some": lambda m: m.when_matched_update({"v": "s.v || t.v", "t.n": "s.n + t.n"}),
    "update nothing": lambda m: m.when_matched_update({}),
    "update to null": lambda m: m.when_matched_update({"v": "NULL"}),
    "update where": lambda m: m.when_matched_update_all("s.n > 1"),
    "update where null": lambda m: m.when_matched_update_all("s.v = NULL").when_matched_delete(),
    "delete": lambda m: m.when_matched_delete(),
    "delete where": lambda m: m.when_matched_delete("t.n = 10"),
    "insert all": lambda m: m.when_not_matched_insert_all(),
    "insert all but one": lambda m: m.when_not_matched_insert_all(except_cols=["n"]),
    "insert some": lambda m: m.when_not_matched_insert({"id": "s.id * 2", "v": "upper(s.v)"}),
    "insert where": lambda m: m.when_not_matched_insert_all("s.n > 3"),
    "insert nothing but a row": lambda m: m.when_not_matched_insert({}),
    "insert what the target has not": lambda m: m.when_not_matched_insert({"id": "s.id", "v": "t.v"}),
    "update by source": lambda m: m.when_not_matched_by_source_update({"v": "'gone'"}),
    "update by source where": lambda m: m.when_not_matched_by_source_update({"n": "t.n + 1"}, "t.n > 30"),
    "update by source with what the source has not": lambda m: m.when_not_matched_by_source_update({"v": "s.v"}),
    "delete by source": lambda m: m.when_not_matched_by_source_delete(),
    "delete by source where": lambda m: m.when_not_matched_by_source_delete("t.v = 'd'"),
    "upsert": lambda m: m.when_matched_update_all().when_not_matched_insert_all(),
    "sync": lambda m: m.when_matched_update_all().when_not_matched_insert_all().when_not_matched_by_source_delete(),
    "the first clause that is true": lambda m: (
        m.when_matched_update({"v": "'one'"}, "s.n = 1")
        .when_matched_delete("s.n = 2")
        .when_matched_update({"v": "'never'"})
        .when_not_matched_insert({"id": "s.id"}, "s.n = 100")
        .when_not_matched_insert({"id": "s.id", "n": "7"})
        .when_not_matched_by_source_update({"v": "'three'"}, "t.id = 3")
        .when_not_matched_by_source_delete()
    ),
    "nothing after a clause for all": lambda m: (
        m.when_matched_update({"v": "'1'"}).when_matched_update({"v": "'2'"}).when_matched_delete()
    ),
    "a column that the target has not": lambda m: m.when_matched_update({"zz": "s.v"}),
    "case": lambda m: m.when_matched_update({"v": "case when s.n > 1 then upper(s.v) else concat(s.v, '!') end"}),
    "whole division": lambda m: m.when_matched_update({"n": "t.n / 3"}),
    "no clause": lambda m: m,
}


@pytest.mark.parametrize("name", WORKING)
def test_a_clause_does_what_it_does_in_deltalake(both: Both, name: str) -> None:
    both.seed(BASE)
    same_merge(both, WORKING[name])
    both.same_version()


@pytest.mark.parametrize(
    ("source", "on"),
    [
        (SOURCE, "t.id = s.id and t.n > 10"),
        (SOURCE, "t.id = s.id and s.n > 1"),
        (SOURCE, "s.id = t.id AND t.v in ('a', 'c')"),
        (SOURCE, "t.id is not distinct from s.id"),
        (SOURCE, "coalesce(t.id, 0) = coalesce(s.id, 0)"),
        (SOURCE, "t.id + 0 = s.id"),
        (SOURCE, "false"),
        (SOURCE.slice(0, 1), "true"),
        (SOURCE.slice(0, 0), ON),
        (SOURCE.rename_columns(["sid", "v", "n"]), "id = sid"),
        (pa.table({"id": ["1", "7"], "v": ["x", "y"], "n": [1, 2]}), ON),
        (pa.table({"id": pa.array([1, 7], pa.int32()), "v": ["x", "y"], "n": [1.9, -1.9]}), ON),
    ],
)
def test_conditions_match_as_in_deltalake(both: Both, source: pa.Table, on: str) -> None:
    both.seed(BASE)
    same_merge(both, lambda m: m.when_matched_update({"v": "s.v", "n": "s.n"} if "n" in source.column_names else {}),
               source, on)  # fmt: skip
    same_merge(both, lambda m: m.when_matched_delete().when_not_matched_insert({"v": "s.v"}), source, on)


def test_a_null_key_matches_nothing(both: Both) -> None:
    both.seed({"id": pa.array([1, None], pa.int64()), "v": ["a", "b"]})
    source = pa.table({"id": pa.array([1, None], pa.int64()), "v": ["A", "B"]})
    same_merge(both, lambda m: m.when_matched_update_all().when_not_matched_insert_all(), source)
    same_merge(both, lambda m: m.when_not_matched_by_source_delete(), source)


def test_a_null_key_matches_a_null_key_when_asked_for(both: Both) -> None:
    both.seed({"id": pa.array([1, None, 3], pa.int64()), "v": ["a", "b", "c"]})
    source = pa.table({"id": pa.array([1, None], pa.int64()), "v": ["A", "B"]})
    same_merge(both, lambda m: m.when_matched_update_all(), source, "t.id is not distinct from s.id")


FAILING: dict[str, Callable[[Library], Any]] = {
    "several matches, updated": merging(lambda m: m.when_matched_update_all(), TWICE),
    "several matches, updated and deleted": merging(
        lambda m: m.when_matched_update_all("s.v = 'x'").when_matched_delete("s.v = 'y'"), TWICE
    ),
    "several matches, deleted where": merging(lambda m: m.when_matched_delete("s.n > 0"), TWICE),
    "an unknown column in the condition": merging(lambda m: m.when_matched_delete(), on="t.id = s.nope"),
    "an unknown alias": merging(lambda m: m.when_matched_delete(), on="t.id = q.id"),
    "a column that may be either's": merging(lambda m: m.when_matched_delete(), on="id = s.id"),
    "a value that may be either's": merging(lambda m: m.when_matched_update({"v": "v"})),
    "an unknown column in a value": merging(lambda m: m.when_matched_update({"v": "s.zz"})),
    "an unknown column in a clause's predicate": merging(lambda m: m.when_matched_delete("t.zz = 1")),
    "a condition that is no SQL": merging(lambda m: m.when_matched_delete(), on="t.id = ("),
    "a value that is no SQL": merging(lambda m: m.when_matched_update({"v": "s.v ++ ("})),
    "a condition that is a number": merging(lambda m: m.when_matched_delete(), on="t.id"),
    "setting a column of the source": merging(lambda m: m.when_matched_update({"s.v": "s.v"})),
    "one alias for both": merging(lambda m: m.when_matched_delete(), on="t.id = t.id", source_alias="t"),
    "a value that does not fit": merging(lambda m: m.when_matched_update({"n": "s.v"})),
    "a struct for a number": merging(
        lambda m: m.when_matched_update({"n": "s.n"}), pa.table({"id": [1], "n": [{"a": 1}]})
    ),
    "no predicate": lambda lib: lib.table().merge(SOURCE, None),
    "no updates": lambda lib: lib.table().merge(SOURCE, ON).when_matched_update(None),
    "a value that is no text": lambda lib: lib.table().merge(SOURCE, ON).when_matched_update({"n": 5}),
    "no source": lambda lib: lib.table().merge("x", ON),
    "a negative limit": lambda lib: lib.table().merge(SOURCE, ON, max_spill_size=-1),
}  # fmt: skip


@pytest.mark.parametrize("name", FAILING)
def test_what_deltalake_refuses_is_refused_and_nothing_is_written(both: Both, name: str) -> None:
    both.seed(BASE)
    both.fails(FAILING[name])
    both.same_rows()


def test_the_error_for_several_matches_says_what_to_do(both: Both) -> None:
    both.seed(BASE)
    error = both.fails(FAILING["several matches, updated"])
    assert "MERGE matched a target row with multiple source rows" in str(error)
    assert "unique" in str(error)


def test_several_matches_may_delete_a_row_once(both: Both) -> None:
    both.seed(BASE)
    same_merge(both, lambda m: m.when_matched_delete().when_not_matched_insert_all(), TWICE)


def test_several_matches_of_which_one_is_taken(both: Both) -> None:
    both.seed(BASE)
    same_merge(both, lambda m: m.when_matched_update_all("s.v = 'x'"), TWICE)


def test_rows_of_the_source_may_be_inserted_twice(both: Both) -> None:
    both.seed(BASE)
    same_merge(both, lambda m: m.when_not_matched_insert_all(), pa.concat_tables([SOURCE, SOURCE]))


def test_values_that_do_not_fit_become_null_when_asked_for(both: Both) -> None:
    both.seed(BASE)
    source = pa.table({"id": [1, 9], "v": ["x", "z"], "n": ["q", "7"]})
    same_merge(both, lambda m: m.when_matched_update_all().when_not_matched_insert_all(), source,
               error_on_type_mismatch=False)  # fmt: skip


def test_values_are_cast_to_the_columns_types(both: Both) -> None:
    both.seed({"id": [1, 2], "d": [date(2020, 1, 1)] * 2, "v": ["a", "b"], "f": [1.5, 2.5]})
    source = pa.table({"id": [1, 3], "d": ["2024-01-02", "2024-02-03"], "v": [5, 6], "f": [7, 8]})
    same_merge(both, lambda m: m.when_matched_update_all().when_not_matched_insert_all(), source)


def test_rows_move_between_partitions(both: Both) -> None:
    both.seed(BASE, {"id": [5], "v": ["a"], "n": [50]}, partition_by=["v"])
    same_merge(both, lambda m: m.when_matched_update_all().when_not_matched_insert_all())
    same_merge(both, lambda m: m.when_matched_update({"n": "s.n"}), on="t.v = s.v and t.id = s.id")
    same_merge(both, lambda m: m.when_not_matched_by_source_delete("t.v = 'x'"))


def test_names_may_have_spaces_and_digits(both: Both) -> None:
    table = pa.table({"my col": [1, 2], "1y": [4, 5], "A": ["x", "y"]})
    both.seed(table)
    source = table.set_column(1, "1y", pa.array([9, 8]))
    on = "t.`my col` = s.`my col`"
    same_merge(both, lambda m: m.when_matched_update({"`1y`": "s.`1y` + t.`1y`", "t.A": "s.A || 'q'"}), source, on)
    same_merge(both, lambda m: m.when_matched_update_all().when_not_matched_insert_all(), source, on)
    same_merge(both, lambda m: m.when_matched_update({'"1y"': 's."1y"'}), source, 't."my col" = s."my col"')


def test_rows_with_nested_columns_are_merged(both: Both) -> None:
    kind = pa.schema([("id", pa.int64()), ("s", pa.struct([("a", pa.int64()), ("b", pa.string())])),
                      ("l", pa.list_(pa.int64())), ("m", pa.map_(pa.string(), pa.int64()))])  # fmt: skip
    row = {"s": {"a": 1, "b": "x"}, "l": [1, 2], "m": [("k", 1)]}
    both.seed(pa.Table.from_pylist([{"id": 1, **row}, {"id": 2, **row}, {"id": 3, "s": None}], schema=kind))
    new = {"s": {"a": 8, "b": None}, "l": [None, 3], "m": [("q", None)]}
    source = pa.Table.from_pylist([{"id": 1, **new}, {"id": 7, **new}], schema=kind)
    same_merge(both, lambda m: m.when_matched_update_all().when_not_matched_insert_all(), source, "t.id = q.id",
               source_alias="q")  # fmt: skip


@pytest.mark.parametrize(
    "clauses",
    [
        lambda m: m.when_matched_update_all().when_not_matched_insert_all(),
        lambda m: m.when_matched_update({"extra": "s.extra"}),
        lambda m: m.when_not_matched_insert_all(),
        lambda m: m.when_matched_update_all(except_cols=["extra"]),
        lambda m: m.when_matched_update_all("s.n > 1000"),
        lambda m: m.when_matched_update({"v": "s.v"}),
        lambda m: m.when_matched_delete(),
    ],
)
def test_merge_schema_adds_the_columns_that_clauses_set(both: Both, clauses: Clauses) -> None:
    both.seed(BASE)
    source = SOURCE.append_column("extra", pa.array([1.5, 2.5, 3.5]))
    same_merge(both, clauses, source, merge_schema=True)
    both.same_schema()
    both.same_version()


def test_without_merge_schema_a_column_too_many_is_left_out(both: Both) -> None:
    both.seed(BASE)
    source = SOURCE.append_column("extra", pa.array([1, 2, 3]))
    same_merge(both, lambda m: m.when_matched_update_all().when_not_matched_insert_all(), source)
    both.same_schema()


def test_merge_schema_refuses_a_column_of_neither(both: Both) -> None:
    both.seed(BASE)
    both.fails(merging(lambda m: m.when_matched_update({"other": "5"}), merge_schema=True))


def test_history_tells_of_a_merge_as_deltalake_does(both: Both) -> None:
    both.seed(BASE)
    for name in ("the first clause that is true", "upsert"):
        both.same(merging(WORKING[name], on="t.id=s.id and t.n>0"))
        theirs, ours = (lib.table().history(1)[0] for lib in both.libraries)
        for key in ("operation", "operationParameters"):
            assert ours[key] == theirs[key]
        assert set(ours["operationMetrics"]) == set(theirs["operationMetrics"])


def test_commit_properties_and_writer_properties_are_taken(both: Both) -> None:
    both.seed(BASE)

    def run(lib: Library) -> Any:
        properties = lib.module.CommitProperties(
            custom_metadata={"who": "me"}, app_transactions=[lib.module.Transaction("app", 3)]
        )
        merger = lib.table().merge(
            SOURCE, ON, source_alias="s", target_alias="t", commit_properties=properties,
            writer_properties=lib.module.WriterProperties(compression="ZSTD"), max_spill_size=100_000_000,
            max_temp_directory_size=100_000_000, streamed_exec=False,
            post_commithook_properties=lib.module.PostCommitHookProperties(),
        )  # fmt: skip
        return merger.when_matched_update_all().execute()

    both.same(run)
    both.same(lambda lib: (lib.table().history(1)[0]["who"], lib.table().transaction_version("app")), exactly=True)
    both.same_rows()


def test_commit_arguments_by_position_are_taken_with_a_warning(both: Both) -> None:
    both.seed(BASE)

    def run(lib: Library) -> Any:
        hooks, properties = lib.module.PostCommitHookProperties(), lib.module.CommitProperties({"a": "b"})
        merger = lib.table().merge(SOURCE, ON, "s", "t", False, True, None, True, None, None, hooks, properties)
        return merger.when_matched_update_all().execute()

    assert both.same(run).warned == ("DeprecationWarning",)
    both.same(lambda lib: lib.table().history(1)[0]["a"], exactly=True)


def test_frames_and_batches_can_be_sources(both: Both) -> None:
    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    both.seed(BASE)
    row = {"id": [1, 9], "v": ["p", "q"], "n": [0, 1]}
    for source in (pandas.DataFrame(row), polars.DataFrame(row), pa.record_batch(row)):
        both.same(merging(WORKING["upsert"], source))
    both.same(lambda lib: merging(WORKING["upsert"], pa.table(row).to_reader())(lib))
    both.same_rows()


def test_a_constraint_holds_for_merged_rows(both: Both) -> None:
    both.seed(BASE, configuration={})
    both.same(lambda lib: lib.table().alter.add_constraint({"pos": "n > 0"}))
    low = pa.table({"id": [1, 9], "v": ["x", "y"], "n": [-1, -1]})
    both.fails(merging(lambda m: m.when_matched_update_all(), low))
    both.fails(merging(lambda m: m.when_not_matched_insert_all(), low))
    same_merge(both, lambda m: m.when_matched_delete(), low)


def test_a_column_that_must_not_be_null_stays_so(both: Both) -> None:
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("v", pa.string())])
    both.seed(pa.table({"id": [1, 2], "v": ["a", "b"]}, schema=schema))
    both.fails(merging(lambda m: m.when_not_matched_insert({"v": "s.v"}), pa.table({"id": [5], "v": ["q"]})))
    both.fails(merging(lambda m: m.when_matched_update({"id": "NULL"}), pa.table({"id": [1], "v": ["q"]})))
    same_merge(both, lambda m: m.when_matched_update_all(), pa.table({"id": [1], "v": ["q"]}))


def test_an_append_only_table_takes_inserts_alone(both: Both) -> None:
    both.seed(BASE, configuration={"delta.appendOnly": "true"})
    same_merge(both, lambda m: m.when_not_matched_insert_all())
    both.fails(merging(lambda m: m.when_matched_update_all()))


def test_a_merge_is_executed_once(both: Both) -> None:
    both.seed(BASE)
    merger = both.ours.table().merge(SOURCE, ON, "s", "t").when_matched_update_all()
    merger.execute()
    with pytest.raises(dl.DeltaError, match="executed before"):
        merger.execute()


def test_columns_of_a_source_are_found_without_regard_to_case_and_names_in_sql_are_not(both: Both) -> None:
    both.seed(BASE)
    table = both.ours.table()
    source = pa.table({"ID": [1, 9], "V": ["x", "z"], "n": [1, 3]})
    with pytest.raises(dl.DeltaError, match="Column names are case sensitive"):
        table.merge(source, "t.Id = s.ID", "s", "t").when_matched_update_all().execute()
    table.merge(source, "t.id = s.ID", "s", "t").when_matched_update_all().when_not_matched_insert_all().execute()
    found = {row["id"]: row["v"] for row in table.to_pyarrow_table().to_pylist()}
    assert found == {1: "x", 2: "b", 3: "c", 4: "d", 9: "z"}


@pytest.mark.parametrize(
    ("source", "target"), [("p", "c"), ("target", "source"), ("pairs", "changed"), ("A b", "scan")]
)
def test_aliases_are_free(both: Both, source: str, target: str) -> None:
    both.seed(BASE)
    table = both.ours.table()
    merger = table.merge(SOURCE, f"`{target}`.id = `{source}`.id", source_alias=source, target_alias=target)
    merger = merger.when_matched_update({"v": f"concat(`{source}`.v, `{target}`.v)"}).when_not_matched_insert_all()
    merger.when_not_matched_by_source_delete(f"`{target}`.v = 'd'").execute()
    assert sorted(table.to_pyarrow_table().column("v").to_pylist()) == ["c", "xa", "yb", "z"]


def test_without_aliases_the_two_are_called_source_and_target(both: Both) -> None:
    both.seed(BASE)
    table = both.ours.table()
    table.merge(SOURCE, "target.id = source.id").when_matched_update_all().execute()
    assert sorted(table.to_pyarrow_table().column("v").to_pylist()) == ["c", "d", "x", "y"]


def test_a_merge_works_on_every_engine_and_on_paths(everywhere: Both) -> None:
    everywhere.seed(BASE)
    same_merge(everywhere, WORKING["sync"])
    everywhere.mirror_agrees()
