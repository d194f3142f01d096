"""Iceberg clients read tables that live long, change their schemas, lose rows by vectors, or are followed."""

import datetime as dt
from pathlib import Path

import deltalake
import duckdb
import pyarrow as pa
import pytest

from deltalakedb import DeltaTable, connect, write_deltalake
from deltalakedb.serve.server import Endpoint
from tests.iceberg.delta.reading import Clients, rows_of
from tests.iceberg.served import address_of
from tests.interop.maker import Maker

"""What clients read does not depend on the database; manifests are tested on all of them."""


@pytest.fixture
def clients(uri: str, duck: duckdb.DuckDBPyConnection) -> Clients:
    return Clients(uri, duck)


@pytest.fixture
def address(endpoint: Endpoint, tmp_path: Path) -> str:
    return address_of(endpoint, "shop.t", tmp_path / "lake")


def check_all_versions(clients: Clients, address: str, *, but: tuple[str, ...] = ()) -> None:
    """Compare what each client reads of each version with what Delta readers do."""
    assert list(clients.snapshots("shop.t")) == list(range(DeltaTable(address).version() + 1))
    found = clients.differences("shop.t", lambda version: DeltaTable(address, version=version).to_pyarrow_table())
    assert [difference for difference in found if difference[0] not in but] == []


def numbers(*ids: int) -> pa.Table:
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "p": [f"p {number % 3}" for number in ids],
            "x": [number / 4 for number in ids],
        }
    )


def test_schemas_that_come_and_go(clients: Clients, address: str) -> None:
    write_deltalake(address, numbers(1, 2, 3), partition_by=["p"])
    wider = numbers(4).append_column("more", pa.array([{"a": 1, "l": [1, None]}]))
    write_deltalake(address, wider, mode="append", schema_mode="merge")
    other = pa.table({"x": ["text", None], "day": [dt.date(2024, 1, 1), None], "n": pa.array([1, 2], pa.int32())})
    write_deltalake(address, other, mode="overwrite", schema_mode="overwrite", partition_by=["day"])
    write_deltalake(address, other, mode="append", partition_by=["day"])
    back = pa.table({"id": [7], "x": pa.array([0.5])})
    write_deltalake(address, back, mode="overwrite", schema_mode="overwrite", partition_by=["id"])
    # PyIceberg reads no plan with a date or a null as a partition value.
    check_all_versions(clients, address, but=("PyIceberg, planned by the catalog",))


def test_deletes_updates_compaction_and_restore(clients: Clients, address: str) -> None:
    for start in range(0, 20, 5):
        write_deltalake(address, numbers(*range(start, start + 5)), mode="append", partition_by=["p"])
    DeltaTable(address).delete("id = 3")
    DeltaTable(address).update(updates={"x": "x + 1"}, predicate="p = 'p 1'")
    DeltaTable(address).optimize.compact()
    DeltaTable(address).delete("p = 'p 2'")
    write_deltalake(address, numbers(100), mode="append")
    DeltaTable(address).restore(4)
    check_all_versions(clients, address)


def test_vectors_make_a_table_one_of_format_3(clients: Clients, address: str) -> None:
    write_deltalake(address, numbers(*range(10)), partition_by=["p"])
    write_deltalake(address, numbers(*range(10, 20)), mode="append")
    assert clients.itself.load_table("shop.t").metadata.format_version == 2
    DeltaTable(address).alter.set_table_properties({"delta.enableDeletionVectors": "true"})
    for number in (3, 4, 15, 16):
        DeltaTable(address).delete(f"id = {number}")
    assert clients.itself.load_table("shop.t").metadata.format_version == 3
    write_deltalake(address, numbers(50), mode="append")
    DeltaTable(address).delete("id < 12")
    check_all_versions(clients, address)


def test_columns_mapped_by_id(endpoint: Endpoint, clients: Clients, address: str, tmp_path: Path) -> None:
    endpoint.catalog.create_namespace("shop")
    table = Maker(endpoint.catalog, "shop.t", tmp_path / "lake" / "t")
    table.create("id long, p string, x double", ["p"], columnMapping__mode="id")
    table.append(numbers(1, 2))
    with endpoint.catalog.begin() as tx:
        tx.add_columns("shop.t", "note string")
    table.append(numbers(3).append_column("note", [["n"]]))
    check_all_versions(clients, address)


def test_a_thousand_versions(clients: Clients, endpoint: Endpoint, tmp_path: Path) -> None:
    endpoint.catalog.create_namespace("shop")
    table = Maker(endpoint.catalog, "shop.t", tmp_path / "lake" / "t")
    table.create("id long")
    file = table.data_file(pa.table({"id": [0]}))
    for number in range(1_000):
        source = table.path / file.path
        (table.path / f"{number}.parquet").hardlink_to(source)
        added = type(file)(f"{number}.parquet", {}, file.size, file.modification_time, True, file.stats)
        table.actions(added)
    snapshots = clients.snapshots("shop.t")
    assert list(snapshots) == list(range(1_001))
    for version in (0, 1, 2, 60, 61, 62, 500, 999, 1_000):
        for client in ("PyIceberg", "DuckDB"):
            assert len(clients.reads[client]("shop.t", snapshots[version])) == version


def test_a_commit_is_seen_at_the_next_request_without_a_mirror(
    clients: Clients, endpoint: Endpoint, tmp_path: Path
) -> None:
    with connect(str(endpoint.catalog.uri), str(tmp_path / "lake"), mirror_mode="off") as catalog:
        catalog.create_namespace("shop")
        for count in range(1, 6):
            with catalog.begin() as tx:
                tx.write("shop.t", numbers(count), mode="append")
            for client, read in clients.reads.items():
                assert read("shop.t", None) == rows_of(numbers(*range(1, count + 1))), client
        catalog.table("shop.t").delete("id < 5")
        for client, read in clients.reads.items():
            assert read("shop.t", None) == rows_of(numbers(5)), client
        assert not list((tmp_path / "lake").rglob("_delta_log/*.json"))


def test_a_table_that_others_write_is_followed(clients: Clients, endpoint: Endpoint, tmp_path: Path) -> None:
    place = str(tmp_path / "others")
    deltalake.write_deltalake(place, numbers(1, 2), partition_by=["p"])
    endpoint.catalog.create_namespace("shop")
    endpoint.catalog.attach_table(place, "shop.t")
    for number in range(3, 6):
        for read in clients.reads.values():
            assert read("shop.t", None) == rows_of(numbers(*range(1, number)))
        deltalake.write_deltalake(place, numbers(number), mode="append")
    deltalake.DeltaTable(place).delete("id = 1")
    for read in clients.reads.values():
        assert read("shop.t", None) == rows_of(numbers(2, 3, 4, 5))
    deltalake.DeltaTable(place).vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    assert clients.reads["PyIceberg"]("shop.t", None) == rows_of(numbers(2, 3, 4, 5))


def test_a_followed_table_in_a_place_that_cannot_be_written_is_planned_by_the_catalog(
    clients: Clients, endpoint: Endpoint, tmp_path: Path
) -> None:
    place = tmp_path / "others"
    deltalake.write_deltalake(str(place), numbers(1, 2))
    endpoint.catalog.create_namespace("shop")
    endpoint.catalog.attach_table(str(place), "shop.t")
    (place / "_iceberg").write_text("not a folder")
    assert clients.reads["PyIceberg, planned by the catalog"]("shop.t", None) == rows_of(numbers(1, 2))


def test_pyiceberg_in_python_reads_delta_tables(endpoint: Endpoint, address: str) -> None:
    write_deltalake(address, numbers(1, 2), partition_by=["p"])
    table = endpoint.catalog.iceberg("shop.t")
    assert rows_of(table.scan().to_arrow()) == rows_of(numbers(1, 2))
    write_deltalake(address, numbers(3), mode="append")
    assert rows_of(table.refresh().scan(row_filter="id > 1").to_arrow()) == rows_of(numbers(2, 3))
