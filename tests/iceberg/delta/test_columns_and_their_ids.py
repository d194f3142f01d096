"""What Iceberg clients are told of columns: names that they would mix up, ids that files have, types of partitions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import deltalake
import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from deltalakedb import Catalog
from deltalakedb.exceptions import NotSayableInIcebergError
from deltalakedb.iceberg.catalog import IcebergCatalog
from deltalakedb.log.protocol.actions import AddFile
from tests.iceberg.delta.appending import Lake
from tests.iceberg.delta.judges import folder_of
from tests.iceberg.delta.lake import NAME, load
from tests.iceberg.delta.reading import Clients


@pytest.fixture
def uri(lake: Lake) -> str:
    """Where `duck` finds the catalog."""
    return lake.uri


@pytest.fixture
def clients(uri: str, duck: duckdb.DuckDBPyConnection) -> Clients:
    return Clients(uri, duck)


def write(catalog: Catalog, rows: pa.Table, **options: Any) -> None:
    with catalog.begin() as tx:
        tx.write("shop.t", rows, **options)


def check(catalog: Catalog, clients: Clients, *, but: tuple[str, ...] = ()) -> None:
    """Compare what each client reads of each version with what Delta readers do."""
    found = clients.differences("shop.t", lambda version: catalog.table("shop.t", version=version).to_pyarrow_table())
    assert [difference for difference in found if difference[0] not in but] == []


def with_ids(**ids: int) -> pa.Table:
    """One row of texts in columns with field ids, as Arrow keeps them when it reads a file that has some."""
    fields = [pa.field(name, pa.string(), metadata={"PARQUET:field_id": str(number)}) for name, number in ids.items()]
    return pa.table({name: [f"{name} {number}"] for name, number in ids.items()}, pa.schema(fields))


def test_a_nested_column_and_one_with_a_dot_are_not_mixed_up(catalog: Catalog) -> None:
    write(catalog, pa.table({"a.b": [1], "a": [{"b": 2}]}))
    with pytest.raises(NotSayableInIcebergError, match="two columns are called a.b"):
        load(catalog)


def test_rows_keep_their_ids_when_files_are_rewritten(catalog: Catalog) -> None:
    """The files then have a column with the ids: Iceberg's `_row_id`. PyIceberg asks for the name of each column."""
    write(catalog, pa.table({"id": [1, 2, 3]}), configuration={"delta.enableRowTracking": "true"})
    catalog.table("shop.t").update({"id": "20"}, predicate="id = 2")
    table = load(catalog)
    mapping = json.loads(table.metadata["properties"]["schema.name-mapping.default"])
    names = {item["field-id"]: item["names"][0] for item in mapping}
    assert names[1] == "id"
    assert names[2_147_483_540].startswith("_row-id-col-")
    assert any(name.startswith("_row-commit-version-col-") for name in names.values())
    assert sorted(catalog.iceberg("shop.t").scan().to_arrow()["id"].to_pylist()) == [1, 3, 20]


def test_names_that_differ_only_in_case_share_an_id(catalog: Catalog, clients: Clients) -> None:
    write(catalog, pa.table({"id": [1], "Name": [{"in": "a"}]}))
    load(catalog)
    other = pa.table({"ID": [2], "NAME": [{"IN": "b", "more": 3}]})
    write(catalog, other, mode="overwrite", schema_mode="overwrite")
    load(catalog)
    catalog.table("shop.t").restore(0)
    write(catalog, other, mode="overwrite", schema_mode="overwrite")
    check(catalog, clients)
    (first, second, *_) = load(catalog).metadata["schemas"]
    assert [item["id"] for item in first["fields"]] == [item["id"] for item in second["fields"]]


def test_ids_that_files_have_are_taken_over(catalog: Catalog, clients: Clients, tmp_path: Path) -> None:
    deltalake.write_deltalake(str(tmp_path / "t"), with_ids(a=2, b=1))
    catalog.attach_table(str(tmp_path / "t"), "shop.t")
    check(catalog, clients)
    deltalake.write_deltalake(str(tmp_path / "t"), pa.table({"a": ["x"], "b": ["y"]}), mode="append")
    check(catalog, clients)
    assert {item["name"]: item["id"] for item in load(catalog).metadata["schemas"][0]["fields"]} == {"a": 2, "b": 1}


def test_a_file_with_other_ids_than_the_table_is_refused(catalog: Catalog, clients: Clients, tmp_path: Path) -> None:
    deltalake.write_deltalake(str(tmp_path / "t"), pa.table({"a": ["x"], "b": ["y"]}))
    catalog.attach_table(str(tmp_path / "t"), "shop.t")
    check(catalog, clients)
    deltalake.write_deltalake(str(tmp_path / "t"), with_ids(a=2, b=1), mode="append")
    with pytest.raises(NotSayableInIcebergError, match="has the field id 2 for the column a, and the table has 1"):
        load(catalog)


def test_files_that_others_wrote_before_a_table_was_promoted_are_looked_into(catalog: Catalog, tmp_path: Path) -> None:
    place = str(tmp_path / "t")
    deltalake.write_deltalake(place, pa.table({"a": ["x"], "b": ["y"]}))
    catalog.attach_table(place, "shop.t")
    served = IcebergCatalog(catalog)
    served.load_table(NAME)
    deltalake.write_deltalake(place, with_ids(a=2, b=1), mode="append")
    catalog.promote_table("shop.t")
    for where in (served, IcebergCatalog(catalog)):
        with pytest.raises(NotSayableInIcebergError, match="has the field id 2 for the column a, and the table has 1"):
            where.load_table(NAME)


def test_files_that_users_wrote_by_themselves_are_looked_into(catalog: Catalog) -> None:
    write(catalog, pa.table({"a": ["x"], "b": ["y"]}))
    load(catalog)
    write(catalog, with_ids(a=2, b=1), mode="append")  # our writer gives files no ids
    load(catalog)
    path = folder_of(catalog, "shop.t") / "own.parquet"
    pq.write_table(with_ids(a=2, b=1), path)
    with catalog.begin() as tx:
        tx.commit_actions("shop.t", [AddFile(path.name, {}, path.stat().st_size, 1_700_000_000_000, True)])
    with pytest.raises(NotSayableInIcebergError, match=r"own.parquet has the field id 2 for the column a"):
        load(catalog)


def test_files_of_iceberg_clients_are_found_again_when_their_table_is_attached(
    catalog: Catalog, clients: Clients, lake: Lake
) -> None:
    """The catalog then does not know which names the columns had before: the ids are those in the footers."""
    write(catalog, pa.table({"x": ["x 1"], "a": ["a 1"], "b": ["b 1"]}))
    load(catalog)
    write(catalog, pa.table({"a": ["a 2"], "b": ["b 2"]}), mode="overwrite", schema_mode="overwrite")
    lake.load("t").append(pa.table({"a": ["a 3"], "b": ["b 3"]}))
    catalog.mirror.flush()
    place = str(catalog.table("shop.t").table_uri)
    catalog.detach_table("shop.t")
    catalog.drop_table("shop.t")
    catalog.attach_table(place, "shop.t", history="latest")
    check(catalog, clients)
    fields = load(catalog).metadata["schemas"][-1]["fields"]
    assert {item["name"]: item["id"] for item in fields} == {"a": 2, "b": 3}


@pytest.mark.parametrize("other", [pa.array([10], pa.int32()), pa.array([10], pa.int64())])
def test_a_partition_column_of_another_type(catalog: Catalog, clients: Clients, other: pa.Array) -> None:
    write(catalog, pa.table({"id": [1], "p": ["a"]}), partition_by=["p"])
    load(catalog)
    rows = pa.table({"id": [3], "p": other})
    write(catalog, rows, mode="overwrite", schema_mode="overwrite", partition_by=["p"])
    write(catalog, rows, mode="append")
    check(catalog, clients, but=("Polars",))
    with pytest.raises(pl.exceptions.ComputeError, match="unsupported type change"):
        clients.reads["Polars"]("shop.t", None)


@pytest.mark.parametrize("kind", ["array<long>", "map<string,long>", "struct<b:array<struct<c:long>>>"])
def test_lists_and_maps_of_tables_with_column_mapping_are_refused_to_duckdb(
    catalog: Catalog, duck: duckdb.DuckDBPyConnection, lake: Lake, kind: str
) -> None:
    """Their elements have no ids in the files, and DuckDB would read them as null."""
    values = {"array<long>": [1, 2], "map<string,long>": [("k", 1)]}.get(kind, {"b": [{"c": 1}]})
    catalog.create_table("shop.t", f"id long, a {kind}", properties={"delta.columnMapping.mode": "name"})
    schema = pa.schema(catalog.table("shop.t").schema().to_arrow())
    write(catalog, pa.Table.from_pylist([{"id": 1, "a": values}], schema), mode="append")
    with pytest.raises(duckdb.Error, match="column mapping gives field ids to columns, .* maps of its column a"):
        duck.sql("select * from lake.shop.t").fetchall()
    assert lake.load().scan().to_arrow()["a"].to_pylist() == [values]
