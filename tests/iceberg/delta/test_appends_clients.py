"""Appends to Delta tables by DuckDB, which sends every commit as one of several tables, and never again."""

from __future__ import annotations

from typing import Any

import duckdb
import pyarrow as pa
import pytest

from deltalakedb import Catalog
from tests.conformance.transacting import days, ids_in, numbers
from tests.iceberg.delta.appending import Lake
from tests.iceberg.delta.judges import check_readers


@pytest.fixture
def uri(lake: Lake) -> str:
    """Where `duck` finds the catalog."""
    return lake.uri


def create(catalog: Catalog, rows: pa.Table, name: str = "t", **options: Any) -> None:
    with catalog.begin() as tx:
        tx.write(f"shop.{name}", rows, **options)


def test_duckdb_inserts_rows(catalog: Catalog, lake: Lake, duck: duckdb.DuckDBPyConnection) -> None:
    create(catalog, days((1, "a b"), (2, "ä")), partition_by=["day"])
    for rows in ("(3, 'a b'), (4, 'k+0')", "(5, null)"):
        duck.execute(f"insert into lake.shop.t values {rows}")
    expected = pa.table({"id": pa.array([1, 2, 3, 4, 5], pa.int64()), "day": ["a b", "ä", "a b", "k+0", None]})
    check_readers(catalog, lake, expected, served=False)


def test_duckdb_inserts_into_several_tables_at_once(catalog: Catalog, duck: duckdb.DuckDBPyConnection) -> None:
    for name in ("t", "u"):
        create(catalog, numbers(1), name)
    catalog.iceberg().create_table("shop.native", numbers().schema)
    duck.execute("begin")
    for name in ("t", "u", "native"):
        duck.execute(f"insert into lake.shop.{name} values (2)")
    assert ids_in(catalog, "shop.t") == [1]
    duck.execute("commit")
    assert (ids_in(catalog, "shop.t"), ids_in(catalog, "shop.u")) == ([1, 2], [1, 2])
    assert catalog.iceberg("shop.native").scan().to_arrow()["id"].to_pylist() == [2]
    assert len({catalog.table(f"shop.{name}").history(1)[0]["txnId"] for name in "tu"}) == 1


def test_an_insert_of_duckdb_after_others_is_rebased(
    catalog: Catalog, lake: Lake, duck: duckdb.DuckDBPyConnection
) -> None:
    create(catalog, numbers(1))
    duck.execute("begin")
    duck.execute("insert into lake.shop.t values (2)")
    create(catalog, numbers(3), mode="append")
    duck.execute("commit")
    check_readers(catalog, lake, numbers(1, 2, 3))


def test_other_statements_of_duckdb_change_nothing(catalog: Catalog, duck: duckdb.DuckDBPyConnection) -> None:
    create(catalog, numbers(1, 2))
    for statement in (
        "delete from lake.shop.t where id = 1",
        "update lake.shop.t set id = 5 where id = 1",
        "alter table lake.shop.t add column more integer",
    ):
        with pytest.raises(duckdb.Error):
            duck.execute(statement)
    assert (catalog.table("shop.t").version(), ids_in(catalog, "shop.t")) == (0, [1, 2])


def test_duckdb_inserts_beside_rows_that_a_vector_deletes(
    catalog: Catalog, lake: Lake, duck: duckdb.DuckDBPyConnection
) -> None:
    """The table's format is v3 then: manifests have row ids, and lists have those of delete files."""
    create(catalog, numbers(1, 2, 3), properties={"delta.enableDeletionVectors": "true"})
    catalog.table("shop.t").delete("id = 2")
    duck.execute("insert into lake.shop.t values (4)")
    duck.execute("insert into lake.shop.t values (5)")
    check_readers(catalog, lake, numbers(1, 3, 4, 5))


def test_duckdb_keeps_the_rules_of_the_table(catalog: Catalog, duck: duckdb.DuckDBPyConnection) -> None:
    create(catalog, numbers(1))
    catalog.table("shop.t").alter.add_constraint({"positive": "id > 0"})
    with pytest.raises(duckdb.Error, match="these rows break the constraint positive"):
        duck.execute("insert into lake.shop.t values (-1)")
    duck.execute("insert into lake.shop.t values (2)")
    assert ids_in(catalog, "shop.t") == [1, 2]
