"""Plans made inside the database: they equal the definition of pruning, and never lose a file with a matching row."""

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deltalakedb.log.predicates.predicate import Predicate, parse_predicate
from deltalakedb.log.predicates.pruning import may_match
from deltalakedb.store import Store, candidates
from deltalakedb.store.planning import plan
from tests.fixtures.judge import ZONES, Judge, as_datafusion
from tests.fixtures.planned import TableInStore, bounds_of_files, numbers, store_table
from tests.fixtures.predicates import filters, sql_predicates
from tests.fixtures.pruning import Table, tables
from tests.fixtures.sizes import sized


@pytest.fixture(scope="module")
def judge() -> Judge:
    return Judge()


def planned(stored: TableInStore, predicate: Predicate, version: int | None = None) -> set[int]:
    opened = stored.open()
    with stored.store.read() as conn:
        found = plan(conn, opened, predicate, version=version)
    assert found.num_files == found.files.num_rows
    if version is None:
        assert found.num_files + found.num_pruned == opened.head.num_files
    return numbers(found.files.column("path").to_pylist())


def defined(table: Table, predicate: Predicate, live: Sequence[int]) -> set[int]:
    of_file = bounds_of_files(table.schema, table.partition_columns, table.files)
    return {number for number in live if may_match(predicate, of_file(number))}


@settings(max_examples=sized(8, 400))
@given(data=st.data(), table=tables(), zone=st.sampled_from(ZONES))
def test_a_plan_keeps_what_may_match_and_every_file_with_a_matching_row(
    store: Store, judge: Judge, monkeypatch: pytest.MonkeyPatch, data: st.DataObject, table: Table, zone: str
) -> None:
    # small caps make a small table go through all the rounds of counting
    monkeypatch.setattr(candidates, "COUNT_CAPS", data.draw(st.sampled_from([(256, 4096), (1, 2, 100)])))
    removed = data.draw(st.sets(st.integers(0, len(table.files) - 1), max_size=1))
    stored = store_table(store, table, removed=sorted(removed))
    live = [number for number in range(len(table.files)) if number not in removed]
    for _ in range(4):
        text = data.draw(sql_predicates(table))
        predicate = parse_predicate(text, table.schema, table.partition_columns)
        kept = planned(stored, predicate)
        assert kept == defined(table, predicate, live), predicate
        matching = judge.matching(table.rows(), text, zone=zone)
        assert matching is None or matching & set(live) <= kept, predicate
        meant = judge.matching(table.rows(), as_datafusion(text, table.schema))
        assert meant is None or meant & set(live) <= kept, predicate


@settings(max_examples=sized(5, 200))
@given(data=st.data(), table=tables())
def test_filters_and_older_versions_are_planned_by_the_same_definition(
    store: Store, data: st.DataObject, table: Table
) -> None:
    stored = store_table(store, table, removed=[0])
    live = list(range(1, len(table.files)))
    for _ in range(3):
        predicate = parse_predicate(data.draw(filters(table)), table.schema, table.partition_columns)
        assert planned(stored, predicate) == defined(table, predicate, live), predicate
        before = defined(table, predicate, [0, *live])
        assert planned(stored, predicate, version=1) == before, predicate
