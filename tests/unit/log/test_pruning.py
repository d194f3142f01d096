"""The law of pruning: a file that holds a matching row is never pruned. DuckDB's answer on the rows is the judge."""

import pytest
from hypothesis import assume, event, given
from hypothesis import strategies as st

from deltalakedb.log.predicates.predicate import Predicate, parse_predicate
from deltalakedb.log.predicates.pruning import may_match, must_match
from tests.fixtures.judge import ZONES, Judge, as_datafusion, filters_to_sql
from tests.fixtures.planned import bounds_of_files
from tests.fixtures.predicates import filters, sql_predicates
from tests.fixtures.pruning import Table, tables


@pytest.fixture(scope="module")
def judge() -> Judge:
    return Judge()


def check(table: Table, predicate: Predicate, matching: set[int], failing: set[int]) -> None:
    of_file = bounds_of_files(table.schema, table.partition_columns, table.files)
    kept = {number for number in range(len(table.files)) if may_match(predicate, of_file(number))}
    assert matching <= kept, f"pruned a file with a matching row; {predicate}"
    sure = {number for number in range(len(table.files)) if must_match(predicate, of_file(number))}
    assert not sure & failing, f"took a file as matching whole that does not; {predicate}"
    event(f"pruned {len(table.files) - len(kept)} of {len(table.files)}")


@given(data=st.data(), table=tables(), zone=st.sampled_from(ZONES))
def test_a_file_with_a_matching_row_is_never_pruned(judge: Judge, data: st.DataObject, table: Table, zone: str) -> None:
    text = data.draw(sql_predicates(table))
    matching = judge.matching(table.rows(), text, zone=zone)
    failing = judge.failing(table.rows(), text, zone=zone)
    assume(matching is not None and failing is not None)
    assert matching is not None
    assert failing is not None
    check(table, parse_predicate(text, table.schema, table.partition_columns), matching, failing)


@given(data=st.data(), table=tables())
def test_a_file_with_a_row_that_matches_in_datafusion_is_never_pruned(
    judge: Judge, data: st.DataObject, table: Table
) -> None:
    """There, a literal with a point is a double, a backslash escapes, and the offset of a time counts."""
    text = data.draw(sql_predicates(table))
    condition = as_datafusion(text, table.schema)
    matching, failing = judge.matching(table.rows(), condition), judge.failing(table.rows(), condition)
    assume(matching is not None and failing is not None and condition != "false")
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
