"""Rows at their edges: nulls, NaN, instants, odd names, and filters whose values are of another type."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import partial
from math import inf, nan
from pathlib import Path
from typing import Any

import deltalake
import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import deltalakedb as dl
from deltalakedb.polars import read_delta
from tests.api.both import Both, Library
from tests.fixtures.sizes import every

WITH_NULLS = pa.table({"v": pa.array([2, None, 5], pa.int64())})
INSTANTS = [datetime(2020, 1, day, tzinfo=UTC) for day in (1, 2, 3)]
FLOATS = [1.0, nan, None, 3.0, inf]


def ids(rows: Any) -> list[int]:
    return sorted(pa.table(rows)["id"].to_pylist())


# -- datasets


@pytest.mark.parametrize(
    ("expression", "count"),
    [(pc.field("v") > 1, 2), (pc.field("v").is_null(), 1), (pc.field("v") == 2, 1), (~(pc.field("v") > 2), 1)],
)
def test_a_dataset_keeps_null_and_bounds_apart(anywhere: Both, expression: pc.Expression, count: int) -> None:
    anywhere.write(WITH_NULLS)
    told = anywhere.same(lambda lib: lib.table().to_pyarrow_dataset().to_table(filter=expression).num_rows)
    assert told.value == count


def test_polars_and_duckdb_over_a_dataset_see_its_nulls(anywhere: Both) -> None:
    anywhere.write(WITH_NULLS)
    dataset = anywhere.ours.table().to_pyarrow_dataset()
    assert duckdb.sql("select count(*) from dataset where v > 1").fetchall() == [(2,)]
    assert duckdb.sql("select count(*) from dataset where v is null").fetchall() == [(1,)]
    assert pl.scan_pyarrow_dataset(dataset).filter(pl.col("v") > 1).collect().height == 2
    assert pl.scan_pyarrow_dataset(dataset).filter(pl.col("v").is_null()).collect().height == 1


def put_stats(lib: Library, stats: dict[str, Any]) -> None:
    """Rewrites the statistics in the log of a path, as another writer would have put them."""
    (log,) = sorted(Path(lib.folder, "_delta_log").glob("*.json"))
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    for line in lines:
        if "add" in line:
            line["add"]["stats"] = json.dumps(stats)
    log.write_text("".join(json.dumps(line) + "\n" for line in lines))


def test_wrong_bounds_of_booleans_hide_no_row_behind_any_door(on_paths: Both) -> None:
    on_paths.write({"id": [1, 2], "flag": [True, False]})
    wrong = {"numRecords": 2, "minValues": {"flag": True}, "maxValues": {"flag": True}, "nullCount": {"flag": 0}}
    for lib in on_paths.libraries:
        put_stats(lib, wrong)
    table = on_paths.ours.table()
    assert len(table.plan("not flag").files) == 1
    assert table.to_pyarrow_dataset().to_table(filter=~pc.field("flag")).num_rows == 1
    assert table.to_pyarrow_table(filters=[("flag", "=", False)]).num_rows == 1
    assert ids(dl.QueryBuilder().register("t", table).execute("select id from t where not flag")) == [2]
    assert read_delta(table).filter(~pl.col("flag")).height == 1
    on_paths.same(partial(delete, text="flag = false"), exactly=True)
    on_paths.same_rows()


# -- filters on files


DAYS = pa.table({"id": [0, 1, 2, 3], "p": ["3", "4", None, "x"]})
NUMBERS = pa.table({"id": [0, 1, 2], "p": pa.array([3, 4, None], pa.int64())})
OTHERS: dict[str, tuple[pa.Table, list[Any]]] = {
    "texts": (DAYS, [3, True, 3.0, "", "3", None, date(2020, 1, 1), b"3", object(), Decimal(3)]),
    "numbers": (NUMBERS, ["3", 3, 3.0, "x", True, 3.5, "", None, "9999999999999999999999"]),
    "dates": (
        pa.table({"id": [0, 1], "p": [date(2020, 1, 1), None]}),
        [date(2020, 1, 1), "2020-01-01", datetime(2020, 1, 1), 3],
    ),
    "flags": (pa.table({"id": [0, 1, 2], "p": [True, False, None]}), [True, "true", "True", 1, "1", ""]),
    "floats": (pa.table({"id": [0, 1, 2], "p": [1.5, nan, None]}), [1.5, "1.5", 1, 2, "nan", nan]),
    "instants": (
        pa.table({"id": [0, 1], "p": pa.array([INSTANTS[0], None], pa.timestamp("us", "UTC"))}),
        [INSTANTS[0], INSTANTS[0].replace(tzinfo=None), "2020-01-01 00:00:00", "2020-01-01T00:00:00Z", "2020-01-01", 3],
    ),
    "decimals": (
        pa.table({"id": [0, 1], "p": pa.array([Decimal("1.50"), None], pa.decimal128(9, 2))}),
        ["1.5", "1.50", 1.5, Decimal("1.50")],
    ),
}
DOORS: dict[str, Callable[[Any, Any], Any]] = {
    "file_uris": lambda table, filters: len(table.file_uris(filters)),
    "file_pruning_predicate": lambda table, filters: len(table.file_uris(file_pruning_predicate=filters)),
    "dataset": lambda table, filters: sorted(table.to_pyarrow_dataset(filters).to_table()["id"].to_pylist()),
    "table": lambda table, filters: sorted(table.to_pyarrow_table(filters)["id"].to_pylist()),
    "partitions": lambda table, filters: len(table.partitions(filters)),
    "compact": lambda table, filters: table.optimize.compact(partition_filters=filters)["totalConsideredFiles"],
}


def look(lib: Library, door: Callable[[Any, Any], Any], filters: Any) -> Any:
    return door(lib.table(), filters)


@pytest.mark.parametrize("kind", every(2, OTHERS))
def test_filters_on_files_read_a_value_by_the_type_of_its_column(anywhere: Both, kind: str) -> None:
    rows, values = OTHERS[kind]
    anywhere.write(rows, partition_by=["p"])
    filters = [("p", operator, value) for value in values for operator in ("=", "!=", ">")]
    filters += [("p", operator, [value]) for value in values for operator in ("in", "not in")]
    for item in filters:
        for door in DOORS.values():
            anywhere.same(partial(look, door=door, filters=[item]), exactly=True)


@pytest.mark.parametrize(
    "filters",
    [
        [("nosuch", "=", "1")], [("id", "=", "1")], [("id", ">", 5)], [("id", "=", "abc")], [("p", "like", "3")],
        [("p", "==", "3")], [("p", "=", ["3"])], [("p", "in", "3")], [("p", "in", {"3"})], [("P", "=", "3")],
        [("p", "IN", ["3"])], [("p", "=")], [("", "=", "3")], [], [("p", "=", 3), ("id", "=", 0)],
        [[("p", "=", "3")], [("p", "=", "4")]],
        [[("p", "=", "3"), ("id", "=", "0")], [("p", "=", "4"), ("id", ">", 9)]],
    ],
    ids=str,
)  # fmt: skip
def test_filters_on_files_are_refused_where_deltalake_refuses_them(anywhere: Both, filters: Any) -> None:
    anywhere.write(DAYS, partition_by=["p"])
    for door in DOORS.values():
        anywhere.same(partial(look, door=door, filters=filters), exactly=True)


@pytest.mark.parametrize(
    "filters",
    [
        [("p", "=", 3)], [("p", "=", "3")], [("p", "in", ["3"])], [("p", "in", [3])], [("p", "=", "x")],
        [("p", "=", "")], [[("p", "=", "3")]], [("nosuch", "=", "3")], [("id", "=", "0")], [], None, [("p", ">", "3")],
        [("p", "=", None)], [("p", "=", ["3"])], [("p", "in", "3")], "p = 3", [("p", "in", ("3",))],
    ],
    ids=str,
)  # fmt: skip
@pytest.mark.parametrize("mode", ["overwrite", "append"])
def test_an_overwrite_of_partitions_ends_their_files_and_no_others(anywhere: Both, filters: Any, mode: str) -> None:
    """A value of another type is a TypeError: as a filter that chooses everything it would empty the table."""
    anywhere.write(NUMBERS, partition_by=["p"])
    anywhere.same(lambda lib: lib.table().create_write_transaction([], mode, lib.table().schema(), ["p"], filters))
    anywhere.same_rows()


# -- NaN and instants in conditions


NAN = "cast('NaN' as double)"
CONDITIONS = {
    "f > 1.5": [1, 3, 4],
    "f <= 3": [0, 3],
    "f <> 1": [1, 3, 4],
    f"f = {NAN}": [1],
    f"f < {NAN}": [0, 3, 4],
    "not (f > 1.5)": [0],
    "f > 1 and id < 4": [1, 3],
}


def ask(lib: Library, query: str) -> list[int]:
    return ids(lib.module.QueryBuilder().register("t", lib.table()).execute(query))


@pytest.mark.parametrize("partitioned", [True, False])
@pytest.mark.parametrize("kind", [pa.float64(), pa.float32()], ids=str)
def test_nan_is_above_every_number_in_each_statement(anywhere: Both, kind: pa.DataType, partitioned: bool) -> None:
    """As in SQL; `deltalake` itself loses NaN where it prunes by statistics, or refuses to compare."""
    rows = pa.table({"id": range(5), "f": pa.array(FLOATS, kind)})
    ours = anywhere.ours
    for text, expected in CONDITIONS.items():
        ours.write(rows, partition_by=["f"] if partitioned else None, mode="overwrite")
        assert ask(ours, f"select id from t where {text}") == expected, text
        assert ids(ours.table().scan(predicate=text)) == expected, text
        assert update(ours, text) == len(expected), text
        changed = [number + 100 * (number in expected) for number in range(5)]
        assert ids(ours.rows()) == sorted(changed), text
        ours.write(rows, partition_by=["f"] if partitioned else None, mode="overwrite")
        assert delete(ours, text) == len(expected), text
        assert ids(ours.rows()) == sorted(set(range(5)) - set(expected)), text


def shown(lib: Library) -> list[str]:
    """The rows as texts: NaN is equal to no NaN."""
    return sorted(str(sorted(row.items())) for row in lib.rows().to_pylist())


def update(lib: Library, text: str) -> int:
    return int(lib.table().update({"id": "id + 100"}, predicate=text)["num_updated_rows"])


def delete(lib: Library, text: str) -> int:
    return int(lib.table().delete(text)["num_deleted_rows"])


def test_an_overwrite_of_some_rows_replaces_nan_too(anywhere: Both) -> None:
    for partition_by in (["f"], None):
        anywhere.write({"id": [1, 2, 3], "f": [1.0, nan, 2.0]}, partition_by=partition_by, mode="overwrite")
        anywhere.write({"id": [9], "f": [5.0]}, mode="overwrite", predicate="f > 1.5")
        assert anywhere.same(shown, exactly=True).value == ["[('f', 1.0), ('id', 1)]", "[('f', 5.0), ('id', 9)]"]


@pytest.mark.parametrize("partitioned", [True, False])
def test_a_list_of_instants_needs_no_other_package(anywhere: Both, partitioned: bool) -> None:
    rows = pa.table({"id": [1, 2, 3], "ts": pa.array(INSTANTS, pa.timestamp("us", "UTC"))})
    anywhere.write(rows, partition_by=["ts"] if partitioned else None)
    chosen = "ts in ('2020-01-01T00:00:00Z', '2020-01-03T00:00:00Z')"
    anywhere.same(partial(ask, query=f"select id from t where {chosen}"), exactly=True)
    anywhere.same(partial(ask, query="select a.id from t a join t b on a.ts = b.ts"), exactly=True)
    anywhere.same(partial(update, text=chosen), exactly=True)
    anywhere.same(partial(delete, text=chosen), exactly=True)
    anywhere.same_rows()


def test_a_query_hands_conditions_on_other_columns_to_the_plan(anywhere: Both) -> None:
    for number in range(3):
        rows = {"id": [number], "f": [float(number)], "ts": [INSTANTS[number]]}
        anywhere.write(rows, mode="append")
    table = anywhere.ours.table()
    (wanted,) = table.file_uris(file_pruning_predicate="id = 1")
    for path in set(table.file_uris()) - {wanted}:
        Path(path).unlink()
    for text in ("id = 1", "ts = '2020-01-02T00:00:00Z'"):
        assert ids(dl.QueryBuilder().register("t", table).execute(f"select id from t where {text} and f < 2")) == [1]


# -- application versions


def test_a_second_step_from_the_same_version_of_a_table_is_refused(anywhere: Both) -> None:
    anywhere.write({"id": [1]})
    opened = {lib.name: [lib.table(), lib.table()] for lib in anywhere.libraries}

    def step(lib: Library, place: int, version: int, app_id: str = "loader") -> None:
        noted = lib.module.CommitProperties(app_transactions=[lib.module.Transaction(app_id, version)])
        table = opened[lib.name][place]
        lib.module.write_deltalake(table, pa.table({"id": [version]}), mode="append", commit_properties=noted)

    anywhere.same(lambda lib: step(lib, 0, 1))
    failed = anywhere.fails(lambda lib: step(lib, 1, 2))
    assert isinstance(failed, dl.exceptions.CommitFailedError)
    anywhere.same(lambda lib: step(lib, 1, 1, "another"))
    anywhere.same(lambda lib: step(lib, 1, 2))
    anywhere.same_rows()


# -- files of other writers


@pytest.mark.parametrize("kind", ["large_list", "list_view", "fixed_size_list"])
def test_a_file_may_say_that_its_lists_were_large(anywhere: Both, kind: str) -> None:
    anywhere.write({"id": [0], "tags": [["a", "b"]]})
    made = {"large_list": pa.large_list(pa.large_string()), "list_view": pa.list_view(pa.string())}
    of = made.get(kind, pa.list_(pa.string(), 2))
    rows = pa.table({"id": [1, 2, 3], "tags": pa.array([["c", "d"], None, ["e", None]], of)})
    for lib in anywhere.libraries:
        target = lib.folder / "large.parquet"
        pq.write_table(rows, target)
        add = lib.find("transaction.AddAction")(
            target.name, target.stat().st_size, {}, 1_700_000_000_000, True, json.dumps({"numRecords": 3})
        )
        lib.table().create_write_transaction([add], "append", lib.table().schema())
    anywhere.same_rows()
    assert anywhere.ours.table().to_pyarrow_dataset().to_table().num_rows == 4
    anywhere.same(partial(delete, text="id = 1"), exactly=True)
    anywhere.same_rows()


# -- names


@pytest.mark.parametrize("vectors", [False, True])
def test_columns_may_be_called_what_we_call_ours(anywhere: Both, vectors: bool) -> None:
    names = ["__row", "__file", "__source", "__clause", "__p", "__place", "__none", "__z_order"]
    rows = pa.table({"id": [1, 2, 3], **{name: [10, 20, 30] for name in names}})
    configuration = {"delta.enableDeletionVectors": "true"} if vectors else {}
    anywhere.seed(rows, configuration=configuration)
    table = anywhere.ours.table()
    assert table.update({"__file": "__row + 1"}, predicate="__row = 20")["num_updated_rows"] == 1
    assert table.delete("__file = 30 and __none = 30")["num_deleted_rows"] == 1
    source = pa.table({"id": [1, 9], **{name: [11, 99] for name in names}})
    merger = table.merge(source, "__p.__row = __source.__row - 1", source_alias="__source", target_alias="__p")
    told = merger.when_matched_update_all().when_not_matched_insert_all().execute()
    assert (told["num_target_rows_updated"], told["num_target_rows_inserted"]) == (1, 1)
    table.optimize.z_order(["__row", "__z_order"])
    found = table.to_pyarrow_table().sort_by("id").select(["id", "__row", "__file"]).to_pylist()
    assert [tuple(row.values()) for row in found] == [(1, 11, 11), (2, 20, 21), (9, 99, 99)]


@pytest.mark.parametrize("condition", ["(p is distinct from 2) or p = 2", "(p is not distinct from 2) or p = 3"])
def test_a_query_may_ask_whether_values_are_distinct(both: Both, condition: str) -> None:
    rows = pa.table({"id": [1, 2, 3, 4], "p": pa.array([2, 3, None, 4], pa.int64())})
    query = f"select id from t where {condition}"
    found = []
    for lib in both.libraries:
        lib.module.write_deltalake(lib.uri, rows, partition_by=["p"])
        found.append(ids(lib.module.QueryBuilder().register("t", lib.table()).execute(query)))
    assert found[0] == found[1] == ([1, 2, 3, 4] if "not" not in condition else [1, 2])


def test_a_query_may_ask_what_is_not_false(tmp_path: Path) -> None:
    dl.write_deltalake(tmp_path / "t", pa.table({"id": [1, 2, 3], "p": [True, False, None]}), partition_by=["p"])
    query = dl.QueryBuilder().register("t", dl.DeltaTable(tmp_path / "t"))
    assert ids(query.execute("select id from t where p is not false or p = false")) == [1, 2, 3]


def test_a_filter_list_finds_every_nan_and_every_zero(tmp_path: Path) -> None:
    odd = np.array([0x7FF8000000000001, 0xFFF8000000000000], np.uint64).view(np.float64)
    dl.write_deltalake(tmp_path / "t", pa.table({"id": range(4), "f": pa.array([*odd, 0.0, 1.0], pa.float64())}))
    table = dl.DeltaTable(tmp_path / "t")
    assert ids(table.to_pyarrow_table(filters=[("f", "in", [nan])])) == [0, 1]
    assert ids(table.to_pyarrow_table(filters=[("f", "in", [0.0, nan])])) == [0, 1, 2]
    assert ids(table.to_pyarrow_table(filters=[("f", "not in", [nan, 1.0])])) == [2]


def test_a_null_is_in_no_list_with_nan(tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    dl.write_deltalake(path, pa.table({"id": [1, 2], "f": pa.array([None, 1.0], pa.float32())}))
    for values, expected in (([nan], [1, 2]), ([nan, 1.0], [1])):
        filters = [("f", "not in", values)]
        assert sorted(dl.DeltaTable(path).to_pyarrow_table(filters=filters)["id"].to_pylist()) == expected
        assert sorted(deltalake.DeltaTable(path).to_pyarrow_table(filters=filters)["id"].to_pylist()) == expected


def test_a_query_with_a_long_list_and_a_condition_on_a_struct_is_answered(tmp_path: Path) -> None:
    """DuckDB makes a join of a list of many values, below which it cannot filter single fields of a struct."""
    costs = pa.array([{"cost": Decimal(number)} for number in range(20)], pa.struct([("cost", pa.decimal128(9, 2))]))
    dl.write_deltalake(tmp_path / "t", pa.table({"id": range(20), "part": costs}))
    query = dl.QueryBuilder().register("t", dl.DeltaTable(tmp_path / "t"))
    text = "select id from t where (id in (1, 3, 5, 7, 9, 11, 13) or id > 17) and part.cost < 9"
    assert pa.table(query.execute(text))["id"].to_pylist() == [1, 3, 5, 7]


def test_a_join_that_names_its_columns_keeps_the_order_of_the_left_table(tmp_path: Path) -> None:
    """The shared column stands where the left table has it, with its own values."""
    dl.write_deltalake(tmp_path / "a", pa.table({"x": [10, 20], "k": [1, 2]}))
    dl.write_deltalake(tmp_path / "b", pa.table({"y": ["p", "q"], "k": [1, 2]}))
    for module in (dl, deltalake):
        query = module.QueryBuilder()
        for name in ("a", "b"):
            query.register(name, module.DeltaTable(str(tmp_path / name)))
        for kind in ("", "left "):
            rows = pa.table(query.execute(f"select * from a {kind}join b using (k) order by x")).to_pylist()
            assert rows == [{"x": 10, "k": 1, "y": "p"}, {"x": 20, "k": 2, "y": "q"}]


def test_a_condition_inside_a_subquery_is_judged_by_the_subquerys_own_columns(tmp_path: Path) -> None:
    dl.write_deltalake(tmp_path / "a", pa.table({"k": [1, 2], "flag": [True, False]}))
    dl.write_deltalake(tmp_path / "b", pa.table({"k": [1, 2], "flag": [0, 1]}))
    for module in (dl, deltalake):
        query = module.QueryBuilder()
        for name in ("a", "b"):
            query.register(name, module.DeltaTable(str(tmp_path / name)))
        answer = query.execute("select k from a where k in (select k from b where flag = 1)")
        assert pa.table(answer)["k"].to_pylist() == [2]
