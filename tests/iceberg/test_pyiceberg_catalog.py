"""A catalog as a `pyiceberg.catalog.Catalog` in the same process."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlparse

import pyarrow as pa
import pytest
from pyiceberg.exceptions import (
    BadRequestError,
    CommitFailedException,
    NamespaceAlreadyExistsError,
    NamespaceNotEmptyError,
    NoSuchIdentifierError,
    NoSuchNamespaceError,
    NoSuchTableError,
    NoSuchViewError,
    TableAlreadyExistsError,
    ViewAlreadyExistsError,
)
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import SortField, SortOrder
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType

from deltalakedb import Catalog
from deltalakedb.exceptions import NotADeltaTableError, NotWritableError, TableNotFoundError
from tests.conformance.transacting import days, numbers, open_catalog
from tests.fixtures.s3 import S3
from tests.iceberg.lake import SCHEMA, create, files_below, ids_in, ids_of, names_with_modes, view_version


def test_a_table_is_created_appended_to_and_read(catalog: Catalog) -> None:
    table = create(catalog, "shop.orders", 1, 2)
    table.append(numbers(3))
    assert ids_in(table) == ids_of(catalog, "shop.orders") == [1, 2, 3]
    assert catalog.table_info("shop.orders").mode == "iceberg"
    assert catalog.table_info("shop.orders").version == 2


def test_the_metadata_file_is_the_table_that_pyiceberg_has(catalog: Catalog) -> None:
    table = create(catalog, "shop.orders", 1)
    content = json.loads(Path(urlparse(table.metadata_location).path).read_bytes())
    assert content["current-snapshot-id"] == table.metadata.current_snapshot_id
    assert content["table-uuid"] == str(table.metadata.table_uuid)


def test_partitioning_order_and_properties_of_a_new_table_are_kept(catalog: Catalog) -> None:
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "day", StringType()))
    spec = PartitionSpec(PartitionField(source_id=2, field_id=1000, transform=IdentityTransform(), name="day"))
    order = SortOrder(SortField(source_id=1, transform=IdentityTransform()))
    created = catalog.iceberg().create_table(
        "shop.days", schema, partition_spec=spec, sort_order=order, properties={"owner": "ann"}
    )
    created.append(days((1, "mon"), (2, "tue")))
    table = catalog.iceberg("shop.days")
    assert [field.name for field in table.spec().fields] == ["day"]
    assert [field.source_id for field in table.sort_order().fields] == [1]
    assert table.properties["owner"] == "ann"
    assert table.scan(row_filter="day = 'tue'").to_arrow()["id"].to_pylist() == [2]


def test_rows_are_overwritten_deleted_and_the_schema_evolves(catalog: Catalog) -> None:
    table = create(catalog, "shop.orders", 1, 2, 3)
    table.delete("id = 2")
    with table.update_schema() as update:
        update.add_column("note", StringType())
    table.overwrite(pa.table({"id": [9], "note": ["new"]}))
    assert catalog.iceberg("shop.orders").scan().to_arrow().to_pylist() == [{"id": 9, "note": "new"}]


def test_branches_and_time_travel_within_a_table_work(catalog: Catalog) -> None:
    table = create(catalog, "shop.orders", 1)
    first = table.metadata.current_snapshot_id
    assert first is not None
    table.manage_snapshots().create_tag(first, "before").commit()
    table.append(numbers(2))
    again = catalog.iceberg("shop.orders")
    assert ids_in(again) == [1, 2]
    assert again.scan(snapshot_id=again.metadata.refs["before"].snapshot_id).to_arrow()["id"].to_pylist() == [1]


def test_a_staged_creation_makes_the_table_with_its_first_rows(catalog: Catalog) -> None:
    iceberg = catalog.iceberg()
    with iceberg.create_table_transaction("shop.orders", SCHEMA) as creation:
        creation.append(numbers(1))
        assert not iceberg.table_exists("shop.orders")
    assert ids_of(catalog, "shop.orders") == [1]


def test_a_staged_creation_that_comes_second_fails(catalog: Catalog) -> None:
    creation = catalog.iceberg().create_table_transaction("shop.orders", SCHEMA)
    create(catalog, "shop.orders")
    with pytest.raises(CommitFailedException):
        creation.commit_transaction()


def test_eight_threads_that_append_lose_nothing(catalog: Catalog) -> None:
    create(catalog, "shop.orders", **{"commit.retry.num-retries": "50", "commit.retry.max-wait-ms": "500"})

    def append(number: int) -> None:
        for place in range(3):
            catalog.iceberg("shop.orders").append(numbers(10 * number + place))

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(append, range(8)))
    assert ids_of(catalog, "shop.orders") == [10 * number + place for number in range(8) for place in range(3)]
    assert catalog.table_info("shop.orders").version == 24


def test_a_commit_on_an_old_snapshot_is_rejected_or_rebased_by_pyiceberg(catalog: Catalog) -> None:
    create(catalog, "shop.orders", 1, **{"commit.retry.num-retries": "0"})
    one, other = catalog.iceberg("shop.orders"), catalog.iceberg("shop.orders")
    one.append(numbers(2))
    with pytest.raises(CommitFailedException, match="main"):
        other.append(numbers(3))
    assert ids_of(catalog, "shop.orders") == [1, 2]


def test_old_metadata_files_are_deleted_as_the_properties_say(catalog: Catalog, tmp_path: Path) -> None:
    table = create(
        catalog,
        "shop.orders",
        **{"write.metadata.delete-after-commit.enabled": "true", "write.metadata.previous-versions-max": "2"},
    )
    for number in range(5):
        table.append(numbers(number))
    files = [file for file in files_below(tmp_path / "lake") if file.endswith(".metadata.json")]
    assert len(files) == 3


def test_tables_are_renamed_dropped_and_registered_again(catalog: Catalog) -> None:
    create(catalog, "shop.orders", 1)
    iceberg = catalog.iceberg()
    renamed = iceberg.rename_table("shop.orders", "shop.old")
    assert renamed.name() == ("shop", "old")
    iceberg.drop_table("shop.old")
    assert catalog.tables() == []
    registered = iceberg.register_table("shop.back", renamed.metadata_location)
    assert ids_in(registered) == [1]
    registered.append(numbers(2))
    assert ids_of(catalog, "shop.back") == [1, 2]


def test_a_table_outside_of_the_warehouse_is_created_and_registered(catalog: Catalog, tmp_path: Path) -> None:
    iceberg = catalog.iceberg()
    table = iceberg.create_table("shop.orders", SCHEMA, location=f"file://{tmp_path}/elsewhere/orders")
    table.append(numbers(1))
    assert files_below(tmp_path / "elsewhere")
    iceberg.drop_table("shop.orders")
    assert ids_in(iceberg.register_table("shop.again", table.metadata_location)) == [1]


def test_a_warehouse_whose_path_needs_encoding_holds_all_files(target: str, tmp_path: Path) -> None:
    with open_catalog(target, tmp_path / "my ünusual folder") as catalog:
        catalog.create_namespace("shop")
        table = create(catalog, "shop.`order items`", 1)
        assert ids_of(catalog, "shop.`order items`") == [1]
        assert table.name() == ("shop", "order items")
    assert {path.name for path in tmp_path.iterdir() if path.is_dir()} == {"my ünusual folder"}


def test_names_are_tuples_or_texts_in_any_case(catalog: Catalog) -> None:
    catalog.create_namespace("outer.`in.ner`")
    iceberg = catalog.iceberg()
    iceberg.create_table(("outer", "in.ner", "a.b"), SCHEMA)
    assert iceberg.table_exists("OUTER.`in.ner`.`A.B`")
    assert iceberg.list_tables(("outer", "in.ner")) == [("outer", "in.ner", "a.b")]
    assert iceberg.list_namespaces() == [("default",), ("shop",)]


def test_namespaces_are_created_described_and_dropped(catalog: Catalog) -> None:
    iceberg = catalog.iceberg()
    iceberg.create_namespace("stage", {"owner": "ann", "old": "1"})
    iceberg.create_namespace("stage.raw")
    assert iceberg.list_namespaces("stage") == [("stage", "raw")]
    summary = iceberg.update_namespace_properties("stage", {"old", "never"}, {"owner": "bob"})
    assert (summary.removed, summary.updated, summary.missing) == (["old"], ["owner"], ["never"])
    assert iceberg.load_namespace_properties("stage") == {"owner": "bob"}
    iceberg.drop_namespace("stage.raw")
    iceberg.drop_namespace("stage")
    assert not iceberg.namespace_exists("stage")


def test_views_are_created_loaded_listed_and_dropped(catalog: Catalog) -> None:
    iceberg = catalog.iceberg()
    created = iceberg.create_view("shop.recent", SCHEMA, view_version("select 7"))
    loaded = iceberg.load_view("shop.recent")
    assert loaded == created
    text = loaded.sql_for("spark")
    assert text is not None
    assert text.sql == "select 7"
    assert iceberg.list_views("shop") == [("shop", "recent")]
    assert iceberg.list_tables("shop") == []
    assert names_with_modes(catalog) == {"shop.recent": "view"}
    iceberg.drop_view("shop.recent")
    assert not iceberg.view_exists("shop.recent")


def test_errors_are_those_of_pyiceberg(catalog: Catalog) -> None:
    iceberg = catalog.iceberg()
    create(catalog, "shop.orders")
    iceberg.create_view("shop.recent", SCHEMA, view_version())
    with pytest.raises(NoSuchTableError):
        iceberg.load_table("shop.none")
    with pytest.raises(NoSuchTableError):
        iceberg.drop_table("shop.none")
    with pytest.raises(TableAlreadyExistsError):
        iceberg.create_table("shop.orders", SCHEMA)
    with pytest.raises(NoSuchNamespaceError):
        iceberg.create_table("nowhere.orders", SCHEMA)
    with pytest.raises(NamespaceAlreadyExistsError):
        iceberg.create_namespace("shop")
    with pytest.raises(NamespaceNotEmptyError):
        iceberg.drop_namespace("shop")
    with pytest.raises(NoSuchViewError):
        iceberg.load_view("shop.none")
    with pytest.raises(ViewAlreadyExistsError):
        iceberg.create_view("shop.recent", SCHEMA, view_version())
    with pytest.raises(NoSuchIdentifierError):
        iceberg.load_table("shop.`")
    with pytest.raises(BadRequestError):
        iceberg.register_table("shop.other", "file:///nowhere/v1.metadata.json")
    with pytest.raises(ValueError, match="overlap"):
        iceberg.update_namespace_properties("shop", {"a"}, {"a": "1"})


def test_names_of_both_formats_are_listed_and_opened(catalog: Catalog) -> None:
    with catalog.begin() as tx:
        tx.write("shop.delta", numbers(1))
    create(catalog, "shop.ice")
    assert catalog.iceberg().list_tables("shop") == [("shop", "delta"), ("shop", "ice")]
    assert catalog.iceberg().load_table("shop.delta").schema().column_names == ["id"]
    with pytest.raises(BadRequestError, match="Delta table"):
        catalog.iceberg().drop_table("shop.delta")
    with pytest.raises(NotADeltaTableError, match="an Iceberg table"):
        catalog.table("shop.ice")
    with pytest.raises(TableNotFoundError):
        catalog.iceberg("shop.none")


def test_at_an_instant_tables_are_as_they_were_and_read_only(catalog: Catalog) -> None:
    create(catalog, "shop.orders", 1)
    with catalog.begin() as tx:
        tx.iceberg("shop.orders").append(numbers(2))
        tx.write("shop.delta", numbers(2))
    catalog.iceberg("shop.orders").append(numbers(3))
    catalog.rename_table("shop.orders", "shop.new")
    then = catalog.at(tx.txn_id)
    assert then.tables() == ["shop.delta", "shop.orders"]
    assert ids_in(then.iceberg("shop.orders")) == [1, 2]
    assert then.iceberg().list_tables("shop") == [("shop", "delta"), ("shop", "orders")]
    with pytest.raises(TableNotFoundError):
        then.iceberg("shop.new")
    with pytest.raises(NotWritableError, match="read-only"):
        then.iceberg("shop.orders").append(numbers(4))
    with pytest.raises(NotWritableError, match="read-only"):
        then.iceberg().drop_table("shop.orders")
    assert ids_of(catalog, "shop.new") == [1, 2, 3]


def test_storage_options_reach_the_files_of_a_table(target: str, s3: S3) -> None:
    import deltalakedb

    with deltalakedb.connect(target, warehouse=s3.uri("lake")) as catalog:
        catalog.create_namespace("shop")
        iceberg = catalog.iceberg(storage_options=s3.storage_options)
        iceberg.create_table("shop.orders", SCHEMA).append(numbers(1))
        assert ids_in(catalog.iceberg("shop.orders", storage_options=s3.storage_options)) == [1]
        with catalog.begin() as tx:
            tx.iceberg("shop.orders", storage_options=s3.storage_options).append(numbers(2))
        assert ids_in(iceberg.load_table("shop.orders")) == [1, 2]
        tx = catalog.begin()
        tx.iceberg("shop.orders", storage_options=s3.storage_options).append(numbers(3))
        tx.rollback()
    assert sum(key.endswith(".parquet") for key in s3.list_keys()) == 2
