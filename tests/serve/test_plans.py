"""Plans of Spark's scans over HTTP: trees of conditions, limits, vectors, statistics, aggregates, transactions."""

import json
from typing import Any

import pyarrow as pa
import pytest

import deltalakedb as dl
from deltalakedb import telemetry
from deltalakedb.serve import LocalEndpoint
from deltalakedb.serve.bridge.places import path_of
from tests.serve.wire import Answer, ask

Tree = dict[str, Any]


def compare(column: str, op: str, **value: Any) -> Tree:
    return {"k": "cmp", "c": [column], "o": op, "v": value}


class Table:
    """A table with three files: ids 0-9 in `a`, 10-19 in `b`, 20-29 in the partition without a name."""

    def __init__(self, endpoint: LocalEndpoint, catalog: dl.Catalog) -> None:
        self.endpoint = endpoint
        columns = "id long, price double, day date, part string"
        with catalog.begin() as tx:
            tx.create_table("shop.orders", columns, partition_by=["part"])
            for start, part in ((0, "a"), (10, "b"), (20, None)):
                numbers = list(range(start, start + 10))
                days = pa.array(numbers, pa.int32()).cast(pa.date32())
                prices = pa.array([number / 4 for number in numbers])
                rows = {"id": numbers, "price": prices, "day": days, "part": pa.array([part] * 10, pa.string())}
                tx.write("shop.orders", pa.table(rows), mode="append")
        self.path = path_of(catalog.table("shop.orders").table_uri)
        self.version = catalog.table("shop.orders").version()

    def ask(self, route: str, body: Any = None, **query: Any) -> Answer:
        where = {"path": self.path, "version": self.version} | query
        data = None if body is None else json.dumps(body).encode()
        return ask(self.endpoint.url, self.endpoint.token, "GET" if body is None else "POST", route, where, data)

    def plan(self, *filters: Tree, **body: Any) -> pa.Table:
        answer = self.ask("/plan", {"filters": list(filters)} | body)
        assert answer.status == 200, answer.body
        return pa.ipc.open_stream(answer.body).read_all()

    def parts(self, *filters: Tree) -> list[str | None]:
        values = self.plan(*filters).column("partition_values").to_pylist()
        return sorted((json.loads(value)["part"] for value in values), key=str)


@pytest.fixture
def table(endpoint: LocalEndpoint) -> Table:
    return Table(endpoint, endpoint.catalog)


ID_3, ID_13 = compare("id", "=", i=3), compare("id", "=", i=13)


CONDITIONS: list[tuple[Tree, list[str | None]]] = [
    (ID_3, ["a"]),
    (compare("ID", ">", i=15), [None, "b"]),
    (compare("price", "<", f="2.5"), ["a"]),
    (compare("price", "=", f="NaN"), [None, "a", "b"]),
    (compare("day", "<=", date=9), ["a"]),
    # Spark has dates that no file can have.
    (compare("day", "<", date=2932897), [None, "a", "b"]),
    ({"k": "in", "c": ["day"], "v": [{"date": -800000}, {"date": 3}]}, [None, "a", "b"]),
    ({"k": "or", "p": [ID_3, ID_13]}, ["a", "b"]),
    ({"k": "and", "p": [compare("id", ">", i=5), compare("id", "<", i=8)]}, ["a"]),
    ({"k": "in", "c": ["id"], "v": [{"i": 3}, {"i": 25}]}, [None, "a"]),
    ({"k": "in", "c": ["id"], "v": []}, []),
    ({"k": "null", "c": ["id"]}, []),
    ({"k": "notnull", "c": ["id"]}, [None, "a", "b"]),
    ({"k": "something new", "c": ["id"]}, [None, "a", "b"]),
    # An empty text may be stored: Spark decides about files of the partition without a name.
    (compare("part", "=", s="b"), [None, "b"]),
    ({"k": "prefix", "c": ["part"], "v": {"s": "a"}}, [None, "a"]),
]


def test_a_condition_keeps_the_files_that_may_hold_a_row(table: Table) -> None:
    for tree, parts in CONDITIONS:
        assert table.parts(tree) == sorted(parts, key=str), tree


def test_columns_without_values_are_left_out_unless_statistics_are_asked_for(table: Table) -> None:
    assert table.plan(ID_3).column_names == ["path", "partition_values", "size", "modification_time"]
    assert table.plan(ID_3, records=True).column("num_records").to_pylist() == [10]
    whole = table.plan(ID_3, stats=True)
    assert json.loads(whole.column("stats")[0].as_py())["minValues"]["id"] == 0
    assert whole.num_columns == 10


def test_a_limit_takes_as_few_files_as_hold_so_many_rows(table: Table) -> None:
    for limit, files in ((0, 0), (1, 1), (10, 1), (11, 2), (30, 3), (1000, 3)):
        assert table.plan(limit=limit, records=True).num_rows == files


def test_older_versions_the_state_and_aggregates(table: Table) -> None:
    assert table.plan(vectors=True).num_rows == 0
    older = pa.ipc.open_stream(table.ask("/plan", {"filters": [compare("id", ">", i=5)]}, version=2).body).read_all()
    assert older.num_rows == 2
    assert table.ask("/state").json == {"txns": [], "domains": []}
    answer = table.ask("/aggregates", {"min": ["id", "day"], "max": ["id", "price"]}).json
    assert answer == {"records": 30, "min": {"id": {"value": 0}, "day": {"value": 0}}, "max": {"id": {"value": 29}}}
    assert table.ask("/aggregates", {"min": ["id"]}, version=1).json == {"records": 10, "min": {}, "max": {}}


def test_scans_are_counted_with_those_that_spark_planned_itself(table: Table) -> None:
    series = (("database", ""), ("delta", "x" * 100))
    before = [telemetry.value_of(telemetry.SPARK_SCANS, *labels) or 0 for labels in series]
    table.plan(ID_3)
    assert table.ask("/fallback", {}, reason="x" * 500).status == 200
    after = [telemetry.value_of(telemetry.SPARK_SCANS, *labels) for labels in series]
    assert after == [count + 1 for count in before]


def test_what_cannot_be_planned_is_refused(table: Table) -> None:
    refused: list[tuple[Any, dict[str, Any], int]] = [
        ({"filters": "id = 3"}, {}, 422),
        ({"filters": [{"k": "cmp", "c": ["id"]}]}, {}, 422),
        ({"filters": [compare("no_such_column", "=", i=1)]}, {}, 422),
        ({"filters": [ID_3], "limit": 3}, {}, 422),
        ({"limit": -1}, {}, 422),
        ({}, {"version": 99}, 404),
        ({}, {"metadata_id": "of a table that was here before"}, 404),
        ({}, {"path": "/file/no/such/table"}, 404),
    ]
    for body, query, status in refused:
        assert table.ask("/plan", body, **query).status == status, (body, query)
