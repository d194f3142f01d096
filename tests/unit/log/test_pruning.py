"""The law of pruning: a file that holds a matching row is never pruned. DuckDB's answer on the rows is the judge."""

import json
from collections.abc import Callable

import pytest
from hypothesis import assume, event, given
from hypothesis import strategies as st

from deltalakedb.log.bounds import Bound, FileBounds, bounds_columns, compute_bounds
from deltalakedb.log.predicate import Column, Predicate, parse_predicate
from deltalakedb.log.pruning import may_match, must_match
from tests.fixtures.judge import ZONES, Judge, filters_to_sql
from tests.fixtures.pruning import Table, filters, sql_predicates, tables


@pytest.fixture(scope="module")
def judge() -> Judge:
    return Judge()


def file_bounds(table: Table) -> Callable[[int], Callable[[Column], Bound | None]]:
    columns = bounds_columns(table.schema, table.partition_columns, {})
    places = {column.column_path: place for place, column in enumerate(columns)}
    files = [(f.stats, {"p": f.partition_text} if table.partition_type else {}) for f in table.files]
    bounds: FileBounds = compute_bounds(columns, files)

    def of_file(number: int) -> Callable[[Column], Bound | None]:
        def of_column(column: Column) -> Bound | None:
            place = places.get(json.dumps(list(column.physical_path), separators=(",", ":")))
            return None if place is None else bounds.bound(place, number)

        return of_column

    return of_file


def check(table: Table, predicate: Predicate, matching: set[int], failing: set[int]) -> None:
    of_file = file_bounds(table)
    kept = {number for number in range(len(table.files)) if may_match(predicate, of_file(number))}
    assert matching <= kept, f"pruned a file with a matching row; {predicate}"
    sure = {number for number in range(len(table.files)) if must_match(predicate, of_file(number))}
    assert not sure & failing, f"took a file as matching whole that does not; {predicate}"
    event(f"pruned {len(table.files) - len(kept)} of {len(table.files)}")


@given(data=st.data(), table=tables(), zone=st.sampled_from(ZONES))
def test_a_file_with_a_matching_row_is_never_pruned(
    judge: Judge, data: st.DataObject, table: Table, zone: str
) -> None:
    text = data.draw(sql_predicates(table))
    matching = judge.matching(table.rows(), text, zone=zone)
    failing = judge.failing(table.rows(), text, zone=zone)
    assume(matching is not None and failing is not None)
    assert matching is not None
    assert failing is not None
    check(table, parse_predicate(text, table.schema, table.partition_columns), matching, failing)


@given(data=st.data(), table=tables())
def test_filters_never_prune_a_file_with_a_matching_row(judge: Judge, data: st.DataObject, table: Table) -> None:
    groups = data.draw(filters(table))
    text, values = filters_to_sql(groups, dict(table.column_names()))
    matching = judge.matching(table.rows(), text, values=values)
    failing = judge.failing(table.rows(), text, values=values)
    assume(matching is not None and failing is not None)
    assert matching is not None
    assert failing is not None
    check(table, parse_predicate(groups, table.schema, table.partition_columns), matching, failing)
