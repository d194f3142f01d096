"""Aggregates from metadata: right where they are given, and not given where metadata does not prove them."""

import json
from typing import Any

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deltalakedb.exceptions import PredicateError
from deltalakedb.log.predicates.predicate import parse_predicate
from deltalakedb.log.protocol.actions import AddFile, DeletionVector, Protocol
from deltalakedb.log.schema.types import parse_schema
from deltalakedb.store import Store
from deltalakedb.store.aggregates import Extreme, count_partitions, count_records, maximum, minimum
from tests.conformance.test_planning_cases import XYS, add, create, schema_of, spread, stats
from tests.fixtures.planned import TableInStore, metadata_of, remove, store_table
from tests.fixtures.predicates import sql_predicates
from tests.fixtures.pruning import Table, tables
from tests.fixtures.sizes import sized


def count(stored: TableInStore, text: str | None = None) -> int | None:
    opened = stored.open()
    predicate = None
    if text is not None:
        schema = parse_schema(opened.metadata.schema_string)
        predicate = parse_predicate(text, schema, opened.metadata.partition_columns)
    with stored.store.read() as conn:
        return count_records(conn, opened, predicate)


def extremes(stored: TableInStore, name: str) -> tuple[Extreme | None, Extreme | None]:
    opened = stored.open()
    with stored.store.read() as conn:
        return minimum(conn, opened, name), maximum(conn, opened, name)


def test_rows_are_counted_from_the_head_when_every_file_says_how_many(store: Store) -> None:
    stored = create(store, XYS, spread(20))
    assert count(stored) == 200
    stored.commit([remove(3)])
    assert count(stored) == 190
    stored.commit([add(50, None)])
    assert count(stored) is None


def test_rows_of_partitions_are_counted(store: Store) -> None:
    schema = schema_of(x="long", day="date", region="string")
    files = [
        add(n, stats({"x": n}, {"x": n}, records=n + 1), day=f"2026-01-{n % 3 + 1:02d}", region="eu" if n % 2 else "us")
        for n in range(12)
    ]
    stored = create(store, schema, files, ["day", "region"])
    assert count(stored, "region = 'eu'") == sum(n + 1 for n in range(1, 12, 2))
    assert count(stored, "day >= '2026-01-02' and region <> 'eu'") == sum(n + 1 for n in range(0, 12, 2) if n % 3)
    assert count(stored, "day is null") == 0
    assert count(stored, "x = 5") is None
    assert count(stored, "x = 500") == 0
    assert count(stored, "region = 'eu' and x >= 0") is None
    opened = stored.open()
    with store.read() as conn:
        found = count_partitions(conn, opened)
    assert sum(part.num_records or 0 for part in found) == count(stored)
    assert {(part.values["day"], part.values["region"]): part.num_files for part in found}[("2026-01-01", "us")] == 2


def test_minimum_and_maximum_are_given_where_statistics_prove_them(store: Store) -> None:
    stored = create(store, XYS, spread(20))
    assert extremes(stored, "x") == (Extreme(0), Extreme(199))
    assert extremes(stored, "Y") == (Extreme(-19), Extreme(0))
    assert extremes(stored, "s") == (Extreme("k00000"), Extreme("k00019~"))
    with pytest.raises(PredicateError):
        extremes(stored, "nope")


def test_integers_beyond_doubles_are_exact(store: Store) -> None:
    values = [2**53, 2**53 + 1, 2**60 + 1, 2**60 + 2]
    stored = create(store, schema_of(x="long"), [add(n, stats({"x": v}, {"x": v})) for n, v in enumerate(values)])
    assert extremes(stored, "x") == (Extreme(2**53), Extreme(2**60 + 2))


def test_what_statistics_do_not_prove_is_not_given(store: Store) -> None:
    loose = json.dumps({"numRecords": 1, "tightBounds": False, "minValues": {"x": -5}, "maxValues": {"x": 500}})
    vector = DeletionVector("i", "abc", 4, 1)
    deleted = AddFile(
        "91.parquet",
        {},
        1,
        1,
        data_change=True,
        stats=stats({"x": 0, "y": -19}, {"x": 900, "y": 0}),
        deletion_vector=vector,
    )
    assert extremes(create(store, XYS, [*spread(3), add(90, loose)]), "x") == (None, None)
    assert extremes(create(store, XYS, [*spread(3), add(90, None)]), "x") == (None, None)
    stored = create(store, XYS, [*spread(20), deleted])
    assert extremes(stored, "x") == (Extreme(0), None), "the deletion vector may have taken the 900 away"
    assert extremes(stored, "y") == (Extreme(-19), Extreme(0)), "another file proves both"
    floats = create(store, schema_of(g="double"), [add(0, stats({"g": 1.5}, {"g": 2.5}))])
    assert extremes(floats, "g") == (Extreme(1.5), None)
    times = create(
        store,
        schema_of(t="timestamp"),
        [add(0, stats({"t": "2026-01-01T00:00:00.000Z"}, {"t": "2026-01-01T00:00:00.000Z"}))],
    )
    assert extremes(times, "t") == (None, None)
    long_text = create(store, schema_of(s="string"), [add(0, stats({"s": "a" * 32}, {"s": "b" * 32}))])
    assert extremes(long_text, "s") == (None, None)


def test_nothing_but_nulls_has_a_null_minimum(store: Store) -> None:
    nulls = json.dumps({"numRecords": 3, "minValues": {}, "maxValues": {}, "nullCount": {"x": 3}})
    stored = create(store, schema_of(x="long"), [add(0, nulls)])
    assert extremes(stored, "x") == (Extreme(None), Extreme(None))
    empty = TableInStore(store)
    empty.commit([Protocol(1, 2), metadata_of(XYS, ())])
    assert extremes(empty, "x") == (Extreme(None), Extreme(None))
    assert count(empty) == 0


@settings(max_examples=sized(5, 300))
@given(data=st.data(), table=tables())
def test_aggregates_are_right_wherever_they_are_given(store: Store, data: st.DataObject, table: Table) -> None:
    stored = store_table(store, table)
    judge = duckdb.connect()
    judge.execute("set TimeZone = 'UTC'")
    judge.register("given", table.rows())
    judge.execute("create temp table rows as from given")

    def truth(query: str) -> Any:
        row = judge.execute(query).fetchone()
        assert row is not None
        return row[0]

    found = count(stored)
    assert found is None or found == truth("select count(*) from rows")
    text = data.draw(sql_predicates(table))
    found = count(stored, text)
    try:
        expected = truth(f"select count(*) from rows where {text}")
    except duckdb.Error:
        expected = found
    assert found is None or found == expected, text
    for name, _ in table.column_names():
        low, high = extremes(stored, name)
        assert low is None or low.value == truth(f"select min({name}) from rows"), name
        assert high is None or high.value == truth(f"select max({name}) from rows"), name
