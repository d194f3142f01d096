"""PyIceberg, DuckDB and Polars create, change and read tables of the catalog, each what the others wrote."""

from __future__ import annotations

import datetime
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pytest
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import DayTransform, IdentityTransform
from pyiceberg.types import DoubleType, LongType, NestedField, StringType, TimestampType

from deltalakedb.serve.server import Endpoint

SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=False),
    NestedField(2, "region", StringType(), required=False),
    NestedField(3, "at", TimestampType(), required=False),
    NestedField(4, "amount", DoubleType(), required=False),
)
SPEC = PartitionSpec(
    PartitionField(2, 1000, IdentityTransform(), "region"), PartitionField(3, 1001, DayTransform(), "at_day")
)


def orders(*ids: int, region: str = "north") -> pa.Table:
    at = [datetime.datetime(2026, 1, 1 + number % 3) for number in ids]
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "region": [region] * len(ids),
            "at": pa.array(at, pa.timestamp("us")),
            "amount": [number * 0.5 for number in ids],
        }
    )


def ids_of(table: Any) -> list[int]:
    return sorted(table.to_arrow().column("id").to_pylist())


def test_pyiceberg_works_through_the_life_of_a_table(pyiceberg: RestCatalog) -> None:
    pyiceberg.create_namespace("shop", {"owner": "ann"})
    table = pyiceberg.create_table("shop.orders", SCHEMA, partition_spec=SPEC, properties={"comment": "all"})
    table.append(orders(1, 2, 3))
    table.append(orders(4, 5, region="south"))
    first, second = (snapshot.snapshot_id for snapshot in table.snapshots())
    assert ids_of(pyiceberg.load_table("shop.orders").scan()) == [1, 2, 3, 4, 5]
    assert ids_of(table.scan(row_filter="region = 'south'")) == [4, 5]
    assert ids_of(table.scan(snapshot_id=first)) == [1, 2, 3]
    table.delete("id = 2")
    table.overwrite(orders(9, region="south"), overwrite_filter="region = 'south'")
    assert ids_of(table.scan()) == [1, 3, 9]
    with table.update_schema() as update:
        update.add_column("note", StringType())
        update.rename_column("amount", "total")
    with table.update_spec() as spec:
        spec.remove_field("at_day")
    table.manage_snapshots().create_tag(second, "before").create_branch(first, "side").commit()
    table = pyiceberg.load_table("shop.orders")
    assert [field.name for field in table.schema().fields] == ["id", "region", "at", "total", "note"]
    assert ids_of(table.scan(snapshot_id=table.metadata.refs["before"].snapshot_id)) == [1, 2, 3, 4, 5]
    pyiceberg.rename_table("shop.orders", "shop.sales")
    assert pyiceberg.list_tables("shop") == [("shop", "sales")]
    assert ids_of(pyiceberg.load_table("shop.sales").scan()) == [1, 3, 9]
    pyiceberg.drop_table("shop.sales")
    with pytest.raises(NoSuchTableError):
        pyiceberg.load_table("shop.sales")


def test_two_writers_of_one_table_meet_one_conflict(pyiceberg: RestCatalog) -> None:
    pyiceberg.create_namespace("shop")
    table = pyiceberg.create_table("shop.orders", SCHEMA)
    other = pyiceberg.load_table("shop.orders")
    with table.update_schema() as update:
        update.add_column("note", StringType())
    with pytest.raises(CommitFailedException, match="Requirement failed"), other.update_schema() as update:
        update.add_column("note", StringType())
    table.append(orders(1).append_column("note", pa.array(["x"])))
    assert ids_of(pyiceberg.load_table("shop.orders").scan()) == [1]


def test_duckdb_creates_and_changes_tables_in_transactions(
    duck: duckdb.DuckDBPyConnection, pyiceberg: RestCatalog, endpoint: Endpoint
) -> None:
    duck.execute("create schema lake.shop")
    duck.execute("create table lake.shop.orders (id bigint, region varchar)")
    duck.execute("create table lake.shop.copied as select 1::bigint as id, 'x' as region")
    duck.execute("begin")
    duck.execute("insert into lake.shop.orders values (1, 'north'), (2, 'south')")
    duck.execute("insert into lake.shop.copied values (2, 'y')")
    duck.execute("commit")
    assert ids_of(pyiceberg.load_table("shop.orders").scan()) == [1, 2]
    assert ids_of(pyiceberg.load_table("shop.copied").scan()) == [1, 2]
    newest = endpoint.catalog.sql("select txn_id, count(*) as n from vw_table_history group by txn_id order by n desc")
    assert newest.to_pylist()[0]["n"] == 2
    duck.execute("begin")
    duck.execute("insert into lake.shop.orders values (7, 'never')")
    duck.execute("rollback")
    duck.execute("delete from lake.shop.orders where id = 1")
    assert duck.execute("select id, region from lake.shop.orders").fetchall() == [(2, "south")]
    assert ids_of(pyiceberg.load_table("shop.orders").scan()) == [2]
    duck.execute("drop table lake.shop.copied")
    assert pyiceberg.list_tables("shop") == [("shop", "orders")]


def test_polars_reads_and_writes_what_the_others_do(pyiceberg: RestCatalog, duck: duckdb.DuckDBPyConnection) -> None:
    pyiceberg.create_namespace("shop")
    table = pyiceberg.create_table("shop.orders", SCHEMA, partition_spec=SPEC)
    table.append(orders(1, 2, 3))
    frame = pl.scan_iceberg(table).filter(pl.col("id") > 1).collect()
    assert sorted(frame["id"].to_list()) == [2, 3]
    pl.DataFrame(orders(8)).write_iceberg(table, mode="append")
    assert sorted(row[0] for row in duck.execute("select id from lake.shop.orders").fetchall()) == [1, 2, 3, 8]
