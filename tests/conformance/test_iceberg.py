"""Iceberg tables and views in the catalog: one registry with Delta tables, one conflict check, one transaction."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

import pytest

from deltalakedb import Catalog
from deltalakedb.exceptions import (
    BadIcebergRequestError,
    CommitFailedError,
    LocationOwnedError,
    NamespaceNotEmptyError,
    NamespaceNotFoundError,
    NotADeltaTableError,
    RequirementFailedError,
    TableExistsError,
    TableNotFoundError,
)
from deltalakedb.iceberg.catalog import IcebergCatalog, LoadedTable
from deltalakedb.iceberg.statements import TableChange
from deltalakedb.store.connection import Session
from deltalakedb.store.names import TableName
from tests.conformance.transacting import StopAt, numbers, open_catalog
from tests.fixtures.sizes import sized

SCHEMA = {
    "type": "struct",
    "fields": [
        {"id": 1, "name": "id", "type": "long", "required": False},
        {"id": 2, "name": "day", "type": "string", "required": False},
    ],
}
VIEW_REQUEST = {
    "schema": SCHEMA,
    "view-version": {
        "version-id": 1,
        "schema-id": 0,
        "timestamp-ms": 1,
        "summary": {},
        "representations": [{"type": "sql", "sql": "select 1", "dialect": "spark"}],
        "default-namespace": ["shop"],
    },
    "properties": {},
}
ORDERS, ITEMS, NEW = TableName("shop", "orders"), TableName("shop", "items"), TableName("shop", "new")


@pytest.fixture
def catalog(target: str, tmp_path: Path) -> Iterator[Catalog]:
    with open_catalog(target, tmp_path) as catalog:
        catalog.create_namespace("shop")
        yield catalog


@pytest.fixture
def iceberg(catalog: Catalog) -> IcebergCatalog:
    return IcebergCatalog(catalog)


def path_of(location: str) -> Path:
    return Path(unquote(urlparse(location).path))


def file_of(table: LoadedTable) -> dict[str, Any]:
    """The metadata as its file has it."""
    return dict(json.loads(path_of(table.metadata_location).read_bytes()))


def set_properties(table: LoadedTable, **properties: str) -> TableChange:
    return TableChange(
        table.name,
        [{"type": "assert-table-uuid", "uuid": table.metadata["table-uuid"]}],
        [{"action": "set-properties", "updates": properties}],
    )


def snapshot(table: LoadedTable, snapshot_id: int) -> TableChange:
    """A commit that adds a snapshot on top of the table's current one."""
    current = table.metadata.get("current-snapshot-id")
    parent = None if current in (None, -1) else current
    added: dict[str, Any] = {
        "snapshot-id": snapshot_id,
        "sequence-number": table.metadata["last-sequence-number"] + 1,
        "timestamp-ms": table.metadata["last-updated-ms"] + 1,
        "manifest-list": f"{table.metadata['location']}/metadata/snap-{snapshot_id}.avro",
        "summary": {"operation": "append", "total-records": "3", "total-data-files": "1", "total-files-size": "99"},
        "schema-id": 0,
        "someone-elses-field": {"kept": [1, 2]},
    }
    if parent is not None:
        added["parent-snapshot-id"] = parent
    return TableChange(
        table.name,
        [{"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": parent}],
        [
            {"action": "add-snapshot", "snapshot": added},
            {"action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "snapshot-id": snapshot_id},
        ],
    )


def test_a_created_table_is_loaded_as_its_metadata_file_has_it(iceberg: IcebergCatalog) -> None:
    created = iceberg.create_table(ORDERS, {"schema": SCHEMA, "properties": {"owner": "ann"}})
    loaded = iceberg.load_table(ORDERS)
    assert loaded == created
    assert loaded.metadata == file_of(loaded)
    assert loaded.metadata["properties"]["owner"] == "ann"
    assert path_of(loaded.metadata["location"]).is_dir()


def test_commits_keep_what_the_client_sent(iceberg: IcebergCatalog) -> None:
    table = iceberg.create_table(ORDERS, {"schema": SCHEMA})
    first = 2**62 + 1
    for snapshot_id in (first, 17):
        (table,) = iceberg.commit([snapshot(table, snapshot_id)])
        assert iceberg.load_table(ORDERS).metadata == table.metadata == file_of(table)
    assert [s["snapshot-id"] for s in table.metadata["snapshots"]] == [first, 17]
    assert table.metadata["snapshots"][0]["someone-elses-field"] == {"kept": [1, 2]}
    assert [entry["metadata-file"] for entry in table.metadata["metadata-log"]] != []
    removal = TableChange(ORDERS, [], [{"action": "remove-snapshots", "snapshot-ids": [first]}])
    (table,) = iceberg.commit([removal])
    assert [s["snapshot-id"] for s in iceberg.load_table(ORDERS).metadata["snapshots"]] == [17]
    info = iceberg.catalog.table_info("shop.orders")
    assert (info.mode, info.version, info.num_records, info.num_files, info.size_bytes) == ("iceberg", 3, 3, 1, 99)


def test_only_snapshots_of_branches_and_tags_are_loaded_if_wanted(iceberg: IcebergCatalog) -> None:
    table = iceberg.create_table(ORDERS, {"schema": SCHEMA})
    for snapshot_id in (1, 2, 3):
        (table,) = iceberg.commit([snapshot(table, snapshot_id)])
    loaded = iceberg.load_table(ORDERS, snapshots="refs")
    assert [s["snapshot-id"] for s in loaded.metadata["snapshots"]] == [3]


def test_iceberg_tables_are_found_after_commits_to_delta_tables(catalog: Catalog, iceberg: IcebergCatalog) -> None:
    """Appends of the same process make later transactions open tables in another way, on an engine that can."""
    for ids in ([1], [2], [3]):
        with catalog.begin() as tx:
            tx.write("shop.delta", numbers(*ids), mode="append")
    table = iceberg.create_table(ORDERS, {"schema": SCHEMA})
    (table,) = iceberg.commit([set_properties(table, owner="ann")])
    assert iceberg.load_table(ORDERS) == table


def test_a_commit_after_another_one_reads_no_metadata(catalog: Catalog, iceberg: IcebergCatalog) -> None:
    table = iceberg.create_table(ORDERS, {"schema": SCHEMA})
    queries: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        read = Session.one

        def one(session: Session, query: str, **parameters: Any) -> Any:
            queries.append(query)
            return read(session, query, **parameters)

        patch.setattr(Session, "one", one)
        for number in range(3):
            (table,) = iceberg.commit([set_properties(table, number=str(number))])
    assert "select_iceberg_version" not in queries
    (other,) = IcebergCatalog(catalog).commit([set_properties(table, number="of another process")])
    (table,) = iceberg.commit([snapshot(other, 7)])
    assert table.metadata["properties"]["number"] == "of another process"
    assert iceberg.load_table(ORDERS).metadata == table.metadata == file_of(table)


def test_names_are_shared_with_delta_tables_and_views(catalog: Catalog, iceberg: IcebergCatalog) -> None:
    catalog.create_table("shop.delta", "id long")
    iceberg.create_table(ORDERS, {"schema": SCHEMA})
    iceberg.create_view(ITEMS, VIEW_REQUEST)
    for name in (ORDERS, ITEMS, TableName("shop", "DELTA")):
        with pytest.raises(TableExistsError):
            iceberg.create_table(name, {"schema": SCHEMA})
        with pytest.raises(TableExistsError):
            iceberg.create_view(name, VIEW_REQUEST)
        with pytest.raises(TableExistsError):
            catalog.create_table(str(name), "id long")
    assert iceberg.list_tables("shop") == ["delta", "orders"]
    assert iceberg.list_views("shop") == ["items"]
    assert iceberg.load_table(TableName("shop", "delta")).metadata["format-version"] == 2
    for text in ("shop.orders", "shop.items"):
        with pytest.raises(NotADeltaTableError, match="not a Delta table"):
            catalog.table(text)
        with pytest.raises(NotADeltaTableError), catalog.begin() as tx:
            tx.write(text, numbers(1), mode="append")
    with pytest.raises(NamespaceNotEmptyError):
        catalog.drop_namespace("shop")
    assert catalog.tables() == ["shop.delta", "shop.items", "shop.orders"]


def test_tables_are_renamed_dropped_and_registered_again(catalog: Catalog, iceberg: IcebergCatalog) -> None:
    table = iceberg.create_table(ORDERS, {"schema": SCHEMA})
    catalog.create_namespace("archive")
    target = TableName("archive", "orders")
    iceberg.rename_table(ORDERS, target)
    assert not iceberg.table_exists(ORDERS)
    assert iceberg.load_table(target).metadata == table.metadata
    again = iceberg.create_table(ORDERS, {"schema": SCHEMA})
    assert again.metadata["location"] != table.metadata["location"]
    with pytest.raises(LocationOwnedError):
        iceberg.register_table(NEW, table.metadata_location)
    assert iceberg.unregister_table(target).metadata == table.metadata
    registered = iceberg.register_table(NEW, table.metadata_location)
    assert registered.metadata == table.metadata
    assert registered.metadata_location == table.metadata_location
    with pytest.raises(NamespaceNotFoundError):
        iceberg.rename_table(NEW, TableName("nowhere", "orders"))
    iceberg.drop_table(NEW)
    with pytest.raises(TableNotFoundError):
        iceberg.load_table(NEW)


def test_a_purged_table_leaves_no_file(iceberg: IcebergCatalog) -> None:
    table = iceberg.create_table(ORDERS, {"schema": SCHEMA})
    iceberg.commit([set_properties(table, a="b")])
    iceberg.drop_table(ORDERS, purge=True)
    assert not path_of(table.metadata["location"]).exists()


def test_a_staged_table_exists_once_it_is_committed(catalog: Catalog, iceberg: IcebergCatalog) -> None:
    staged = iceberg.create_table(ORDERS, {"schema": SCHEMA}, stage=True)
    assert not iceberg.table_exists(ORDERS)
    assert (
        path_of(
            staged.metadata["location"],
        )
        .joinpath("data")
        .is_dir()
    )
    updates = [
        {"action": "assign-uuid", "uuid": staged.metadata["table-uuid"]},
        {"action": "upgrade-format-version", "format-version": 2},
        {"action": "add-schema", "schema": staged.metadata["schemas"][0], "last-column-id": 2},
        {"action": "set-current-schema", "schema-id": -1},
        {"action": "add-spec", "spec": {"spec-id": 0, "fields": []}},
        {"action": "set-default-spec", "spec-id": -1},
        {"action": "add-sort-order", "sort-order": {"order-id": 0, "fields": []}},
        {"action": "set-default-sort-order", "sort-order-id": -1},
        {"action": "set-location", "location": staged.metadata["location"]},
        {"action": "set-properties", "updates": {}},
    ]
    change = TableChange(ORDERS, [{"type": "assert-create"}], updates)
    other = iceberg.create_table(ITEMS, {"schema": SCHEMA})
    created, changed = iceberg.commit([change, set_properties(other, a="b")])
    assert created.metadata["table-uuid"] == staged.metadata["table-uuid"]
    assert iceberg.load_table(ORDERS).metadata == created.metadata
    assert changed.metadata["properties"]["a"] == "b"
    assert catalog.table_info("shop.orders").files_owner == "catalog"
    with pytest.raises(RequirementFailedError, match="table already exists"):
        iceberg.commit([change])


def test_a_commit_of_two_tables_is_whole_or_nothing(catalog: Catalog, iceberg: IcebergCatalog) -> None:
    orders = iceberg.create_table(ORDERS, {"schema": SCHEMA})
    items = iceberg.create_table(ITEMS, {"schema": SCHEMA})
    stale = TableChange(ITEMS, [{"type": "assert-current-schema-id", "current-schema-id": 7}], [])
    with pytest.raises(RequirementFailedError):
        iceberg.commit([set_properties(orders, a="b"), stale])
    with StopAt("commit.written", CommitFailedError("stopped")), pytest.raises(CommitFailedError, match="stopped"):
        iceberg.commit([set_properties(orders, a="b"), set_properties(items, a="b")])
    assert iceberg.load_table(ORDERS) == orders
    assert iceberg.load_table(ITEMS) == items
    metadata_files = sorted(path_of(orders.metadata["location"]).glob("metadata/*.json"))
    assert [str(file) for file in metadata_files] == [str(path_of(orders.metadata_location))]
    iceberg.commit([set_properties(orders, a="b"), set_properties(items, a="b")])
    rows = catalog.sql("select name, txn_id from vw_table_history where version = 1").to_pylist()
    assert {row["name"] for row in rows} == {"orders", "items"}
    assert len({row["txn_id"] for row in rows}) == 1


def test_a_repeat_with_the_same_token_changes_nothing(iceberg: IcebergCatalog) -> None:
    table = iceberg.create_table(ORDERS, {"schema": SCHEMA})
    change = snapshot(table, 5)
    (first,) = iceberg.commit([change], token="key")
    (repeated,) = iceberg.commit([change], token="key")
    assert repeated == first
    assert iceberg.load_table(ORDERS).version == 1


def test_crossing_commits_of_many_clients_are_in_both_tables(iceberg: IcebergCatalog) -> None:
    for name in (ORDERS, ITEMS):
        iceberg.create_table(name, {"schema": SCHEMA})
    clients, each = 4, sized(4, 50)
    errors: list[BaseException] = []

    def client(number: int) -> None:
        names = (ORDERS, ITEMS) if number % 2 else (ITEMS, ORDERS)
        try:
            for count in range(each):
                updates = [{"action": "set-properties", "updates": {f"c{number}-{count}": "x"}}]
                iceberg.commit([TableChange(name, [], updates) for name in names])
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=client, args=(number,)) for number in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    expected = {f"c{number}-{count}" for number in range(clients) for count in range(each)}
    for name in (ORDERS, ITEMS):
        table = iceberg.load_table(name)
        assert {key for key in table.metadata["properties"] if key.startswith("c")} == expected
        assert table.version == clients * each
        assert file_of(table) == table.metadata


@pytest.mark.parametrize(
    "location", ["file:///etc/orders", "file:///tmp/../etc/x", "s3://elsewhere/x", "not a place", "", 7, None]
)
def test_locations_outside_of_the_warehouse_are_refused(iceberg: IcebergCatalog, location: object) -> None:
    if location is None:
        location = f"{iceberg.catalog.config.warehouse}/../other"
    with pytest.raises(BadIcebergRequestError):
        iceberg.create_table(ORDERS, {"schema": SCHEMA, "location": location})
    with pytest.raises(BadIcebergRequestError):
        iceberg.register_table(ORDERS, f"{location}/x.metadata.json")
    assert not iceberg.table_exists(ORDERS)


def test_views_are_created_replaced_and_dropped(iceberg: IcebergCatalog) -> None:
    view = iceberg.create_view(ORDERS, VIEW_REQUEST)
    assert iceberg.load_view(ORDERS) == view
    assert file_of(view) == view.metadata
    updates = [{"action": "set-properties", "updates": {"comment": "c"}}]
    requirements = [{"type": "assert-view-uuid", "uuid": view.metadata["view-uuid"]}]
    replaced = iceberg.replace_view(ORDERS, requirements, updates)
    assert replaced.metadata["properties"] == {"comment": "c"}
    iceberg.rename_view(ORDERS, NEW)
    assert iceberg.load_view(NEW).metadata == replaced.metadata
    with pytest.raises(TableNotFoundError):
        iceberg.load_table(NEW)
    with pytest.raises(TableNotFoundError):
        iceberg.drop_table(NEW)
    iceberg.drop_view(NEW)
    assert not iceberg.view_exists(NEW)
