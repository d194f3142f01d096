"""Every door to the rows of a table is sound: it gives the rows for which a predicate is true, and no others.

Tables and predicates are random (tests/fixtures/pruning.py, predicates.py): all types, partitioned and not, nulls, NaN,
infinities, -0.0, zones, decimals, statistics of several writers, damaged and wrong ones, deletion vectors, column
mapping. The judge sees the rows in memory and knows nothing of files: DuckDB for SQL, plain Python for filters.
"""

from collections.abc import Callable
from functools import cache, reduce
from operator import and_, or_
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow.parquet import filters_to_expression

import deltalakedb as dl
from deltalakedb.polars import scan_delta
from tests.fixtures.filtering import filtered_ids
from tests.fixtures.judge import Judge, as_datafusion
from tests.fixtures.predicates import filters, sql_predicates
from tests.fixtures.sizes import sized
from tests.fixtures.stored import Stored, arrow_type, back_to_start, stored_tables

TABLES = sized(5, 2000)
PREDICATES = sized(4, 10)
"""Of each table."""


@pytest.fixture(scope="module")
def judge() -> Judge:
    return Judge()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("doors") / "t"


def ids(rows: Any) -> list[int]:
    return sorted(pa.table(rows)["id"].to_pylist())


# -- doors that take SQL


def by_scan(table: dl.DeltaTable, text: str) -> list[int]:
    return ids(table.scan(["id"], text))


def by_query(table: dl.DeltaTable, text: str) -> list[int]:
    return ids(dl.QueryBuilder().register("t", table).execute(f"select id from t where {text}"))


def by_dataset_of_chosen_files(table: dl.DeltaTable, text: str) -> list[int]:
    """The files that a plan chooses, asked once more."""
    chosen = table.to_pyarrow_dataset(file_pruning_predicate=text).to_table()
    return ids(another_judge().rows_matching(chosen, text))


@cache
def another_judge() -> Judge:
    return Judge()


def by_delete(table: dl.DeltaTable, text: str) -> list[int]:
    before = set(ids(table.to_pyarrow_table(columns=["id"])))
    table.delete(text)
    return sorted(before - set(ids(table.to_pyarrow_table(columns=["id"]))))


def by_update(table: dl.DeltaTable, text: str) -> list[int]:
    table.update({"id": "-1 - id"}, predicate=text)
    return sorted(-1 - number for number in ids(table.to_pyarrow_table(columns=["id"])) if number < 0)


def by_merge(table: dl.DeltaTable, text: str) -> list[int]:
    source = pa.table({"other": [1]})
    table.merge(source, text, source_alias="source_", target_alias="target_").when_matched_update(
        {"id": "-1 - target_.id"}
    ).execute()
    return sorted(-1 - number for number in ids(table.to_pyarrow_table(columns=["id"])) if number < 0)


def by_feed(table: dl.DeltaTable, text: str) -> list[int]:
    return ids(table.load_cdf(0, columns=["id"], predicate=text))


SQL_DOORS: dict[str, Callable[[dl.DeltaTable, str], list[int]]] = {
    "scan": by_scan,
    "query": by_query,
    "files": by_dataset_of_chosen_files,
    "delete": by_delete,
    "update": by_update,
    "merge": by_merge,
    "feed": by_feed,
}


@pytest.mark.parametrize("door", SQL_DOORS)
@settings(max_examples=TABLES)
@given(data=st.data())
def test_a_door_gives_the_rows_for_which_sql_is_true(
    judge: Judge, folder: Path, door: str, data: st.DataObject
) -> None:
    stored = data.draw(stored_tables(is_fed=door == "feed"))
    rows = stored.rows()
    stored.put(folder)
    for _ in range(PREDICATES):
        text = data.draw(sql_predicates(stored.table))
        expected = judge.rows_matching(rows, as_datafusion(text, stored.table.schema))
        if expected is None:
            continue
        try:
            found = SQL_DOORS[door](dl.DeltaTable(str(folder)), text)
        finally:
            back_to_start(folder)
        assert found == ids(expected), text


# -- doors that take filters


def by_filters(table: dl.DeltaTable, groups: Any) -> list[int]:
    return ids(table.to_pyarrow_table(filters=groups))


def by_dataset(table: dl.DeltaTable, groups: Any) -> list[int]:
    return ids(table.to_pyarrow_dataset().to_table(filter=to_expression(groups)))


def by_lazy_dataset(table: dl.DeltaTable, groups: Any) -> list[int]:
    return ids(table.lazy_dataset().to_table(filter=to_expression(groups)))


def to_expression(groups: Any) -> Any:
    return filters_to_expression(groups)


FILTER_DOORS: dict[str, Callable[[dl.DeltaTable, Any], list[int]]] = {
    "filters": by_filters,
    "dataset": by_dataset,
    "lazy dataset": by_lazy_dataset,
}


def typed(stored: Stored, groups: Any) -> Any:
    """The values as scalars of their columns' types, as pyarrow compares no others."""
    kinds = dict(stored.table.column_names())

    def scalar(name: str, value: Any) -> Any:
        if isinstance(value, list):
            return [scalar(name, one) for one in value]
        return pa.scalar(value, arrow_type(kinds[name]))

    return [[(name, operator, scalar(name, value)) for name, operator, value in group] for group in groups]


@pytest.mark.parametrize("door", FILTER_DOORS)
@settings(max_examples=TABLES)
@given(data=st.data())
def test_a_door_gives_the_rows_for_which_filters_are_true(folder: Path, door: str, data: st.DataObject) -> None:
    stored = data.draw(stored_tables())
    rows = stored.rows().to_pylist()
    table = stored.put(folder)
    for _ in range(PREDICATES):
        groups = flat(data.draw(filters(stored.table)))
        if door != "filters":
            groups = without_odd_lists(groups)
        if groups:
            assert FILTER_DOORS[door](table, typed(stored, groups)) == filtered_ids(rows, groups), groups


def without_odd_lists(groups: Any) -> Any:
    """Without lists that have a zero or NaN of floats: in a dataset pyarrow judges them, by the bits of the values and
    by the statistics of the Parquet files, and does not find a zero in a file of zeros."""

    def is_odd(value: Any) -> bool:
        return isinstance(value, list) and any(isinstance(one, float) and not abs(one) > 0 for one in value)

    kept = [[item for item in group if not is_odd(item[2])] for group in groups]
    return [group for group in kept if group]


def flat(groups: Any) -> Any:
    """Filters on whole columns: parts of structs are no columns to pyarrow's filters."""
    kept = [[item for item in group if "." not in item[0]] for group in groups]
    return [group for group in kept if group]


# -- Polars


def to_polars(groups: Any, schema: Any) -> pl.Expr:
    def one(name: str, operator: str, value: Any) -> pl.Expr:
        column, kind = pl.col(name), schema[name]
        if operator in ("in", "not in"):
            chosen = column.is_in(pl.Series(value, dtype=kind))
            return chosen if operator == "in" else ~chosen
        literal = pl.lit(value, dtype=kind)
        return {
            "=": column == literal,
            "==": column == literal,
            "!=": column != literal,
            "<": column < literal,
            "<=": column <= literal,
            ">": column > literal,
            ">=": column >= literal,
        }[operator]

    return reduce(or_, (reduce(and_, (one(*item) for item in group)) for group in groups))


@settings(max_examples=TABLES)
@given(data=st.data())
def test_polars_gives_the_rows_that_it_gives_of_the_same_rows_in_memory(folder: Path, data: st.DataObject) -> None:
    stored = data.draw(stored_tables())
    table = stored.put(folder)
    in_memory = pl.DataFrame(stored.rows())
    assert isinstance(in_memory, pl.DataFrame)
    for _ in range(PREDICATES):
        groups = flat(data.draw(filters(stored.table)))
        if groups:
            condition = to_polars(groups, in_memory.schema)
            expected = sorted(in_memory.filter(condition)["id"].to_list())
            assert sorted(scan_delta(table).filter(condition).collect()["id"].to_list()) == expected, groups
