"""Operations on a whole catalog that has Delta tables, Iceberg tables and views: none of them stumbles."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from urllib.parse import urlparse

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import ListType, LongType, NestedField, StringType, StructType

import deltalakedb
from deltalakedb import Catalog
from deltalakedb.exceptions import NotADeltaTableError, TableNotFoundError, VersionNotFoundError
from deltalakedb.mirror.reconciler import Reconciler
from deltalakedb.serve.bridge.log import BridgedLog
from deltalakedb.serve.bridge.names import Names
from tests.conformance.transacting import numbers, open_catalog
from tests.iceberg.lake import SCHEMA, create, files_below, ids_of, names_with_modes, view_version

NAMES = ["shop.delta", "shop.ice", "shop.recent"]


@pytest.fixture
def mixed(catalog: Catalog) -> Catalog:
    """A catalog with one table of each format and a view."""
    with catalog.begin() as tx:
        tx.write("shop.delta", numbers(1))
        table = tx.iceberg().create_table("shop.ice", SCHEMA)
        table.append(numbers(1))
        tx.iceberg().create_view("shop.recent", SCHEMA, view_version())
    return catalog


def test_listings_have_all_of_them(mixed: Catalog) -> None:
    assert mixed.tables() == NAMES
    assert [info.format for info in mixed.table_infos()] == ["delta", "iceberg", "view"]
    assert mixed.at(mixed.history("shop.ice")[0]["txnId"]).tables() == NAMES
    with mixed.begin() as tx:
        assert tx.tables() == NAMES


def test_the_reconciler_follow_gc_and_validate_run(mixed: Catalog) -> None:
    with Reconciler(mixed.store, config=mixed.config, options_of=mixed.storage_options_of) as reconciler:
        assert {result.table.full_name for result in reconciler.once()} <= {"shop.delta"}
    assert mixed.follow() == []
    assert {table.table.full_name for table in mixed.gc().tables} == set(NAMES)
    assert [mixed.validate(name).drift for name in NAMES] == [None, None, None]
    lag = mixed.sql("select name from vw_mirror_lag").to_pylist()
    assert lag == [{"name": "delta"}]


def test_validate_tells_what_is_wrong_with_the_files_of_a_table(mixed: Catalog) -> None:
    table = mixed.iceberg("shop.ice")
    path = Path(urlparse(table.metadata_location).path)
    text = path.read_text()
    path.write_text(json.dumps({**json.loads(text), "properties": {"somebody": "else"}}))
    drift = mixed.validate("shop.ice").drift
    assert drift is not None
    assert "properties" in drift.difference
    path.unlink()
    drift = mixed.validate("shop.ice").drift
    assert drift is not None
    assert "no metadata file" in drift.difference
    path.write_text(text)
    snapshot = table.metadata.current_snapshot()
    assert snapshot is not None
    Path(urlparse(snapshot.manifest_list).path).unlink()
    drift = mixed.validate("shop.ice").drift
    assert drift is not None
    assert "manifest list of main" in drift.difference


def test_garbage_collection_cuts_the_history_of_iceberg_tables(target: str, tmp_path: Path) -> None:
    with open_catalog(target, tmp_path, retention_log_days=0) as catalog:
        catalog.create_namespace("shop")
        create(catalog, "shop.ice", 1)
        first = catalog.history("shop.ice")[0]["timestamp"]
        table = catalog.iceberg("shop.ice")
        for number in range(2, 6):
            table.append(numbers(number))
        table.maintenance.expire_snapshots().by_id(table.metadata.snapshots[0].snapshot_id).commit()
        planned = catalog.gc(dry_run=True).rows_removed
        removed = catalog.gc().rows_removed
        assert planned == removed > 0
        assert [entry["version"] for entry in catalog.history("shop.ice")] == [6, 5]
        assert ids_of(catalog, "shop.ice") == [1, 2, 3, 4, 5]
        with pytest.raises(VersionNotFoundError, match="dl gc"):
            catalog.at(first).iceberg("shop.ice")
        table.append(numbers(6))
        assert len(catalog.iceberg("shop.ice").metadata.snapshots) == 5


def test_garbage_collection_removes_every_row_of_a_dropped_table(target: str, tmp_path: Path) -> None:
    with open_catalog(target, tmp_path, retention_log_days=0) as catalog:
        catalog.create_namespace("shop")
        create(catalog, "shop.ice", 1)
        catalog.iceberg().create_view("shop.recent", SCHEMA, view_version())
        catalog.drop_table("shop.ice")
        catalog.drop_table("shop.recent", purge=True)
        planned = catalog.gc(dry_run=True)
        assert catalog.gc().rows_removed == planned.rows_removed
        for name in ("dl_iceberg_versions", "dl_iceberg_snapshots", "dl_table_versions", "dl_tables", "dl_table_heads"):
            assert catalog.sql(f"select * from {name}").num_rows == 0, name


def test_search_finds_columns_and_comments_of_iceberg_tables(mixed: Catalog) -> None:
    schema = Schema(
        NestedField(1, "customer", LongType(), doc="who ordered"),
        NestedField(2, "lines", ListType(3, StructType(NestedField(4, "article", StringType(), doc="a number")))),
    )
    mixed.iceberg().create_table("shop.orders", schema, properties={"comment": "what was ordered"})
    assert [hit.table for hit in mixed.search("ordered")] == ["shop.orders"]
    (hit,) = mixed.search("ARTICLE number")
    assert (hit.table, [column.column for column in hit.columns]) == ("shop.orders", ["lines.element.article"])
    assert [hit.table for hit in mixed.search("id")] == ["shop.delta", "shop.ice", "shop.recent"]
    assert [hit.table for hit in mixed.search(namespace="shop")] == [*NAMES[:2], "shop.orders", "shop.recent"]
    assert mixed.search(tag="pii") == []


def test_the_spark_bridge_lists_names_and_says_who_serves_them(mixed: Catalog) -> None:
    names = Names(mixed, BridgedLog(mixed))
    assert names.tables("shop") == NAMES
    with pytest.raises(NotADeltaTableError, match="iceberg"):
        names.resolve("shop.ice")


def test_a_path_of_an_iceberg_table_is_no_delta_table(mixed: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DL_CATALOG", str(mixed.uri))
    location = mixed.table_info("shop.ice").location
    with pytest.raises(TableNotFoundError, match="no Delta table"):
        deltalakedb.DeltaTable(location)


def test_statements_of_delta_tables_are_refused_on_the_others(mixed: Catalog) -> None:
    for name in NAMES[1:]:
        for statement in (
            lambda name=name: mixed.set_properties(name, {"a": "1"}),
            lambda name=name: mixed.add_columns(name, "b int"),
            lambda name=name: mixed.set_comment(name, "text"),
            lambda name=name: mixed.promote_table(name),
            lambda name=name: mixed.detach_table(name),
            lambda name=name: mixed.resolve_table(name, "adopt"),
            lambda name=name: mixed.repair(name),
            lambda name=name: mixed.follow(name),
            lambda name=name: mixed.table(name),
        ):
            with pytest.raises(NotADeltaTableError):
                statement()
    with mixed.begin() as tx, pytest.raises(NotADeltaTableError):
        tx.write("shop.ice", numbers(2), mode="append")


def test_a_namespace_is_dropped_with_all_that_is_in_it(mixed: Catalog) -> None:
    mixed.drop_namespace("shop", cascade=True)
    assert mixed.tables() == []


def test_a_catalog_is_rebuilt_from_the_files_of_both_formats(mixed: Catalog, blank_sqlite: str, tmp_path: Path) -> None:
    catalog_of = mixed.sql("select catalog_id from dl_catalog").to_pylist()[0]["catalog_id"]
    mixed.iceberg("shop.ice").append(numbers(2))
    with deltalakedb.connect(blank_sqlite, warehouse=str(tmp_path / "lake")) as rebuilt:
        report = rebuilt.rebuild(tmp_path / "lake")
        assert report.catalog_id == catalog_of
        assert names_with_modes(rebuilt) == {"shop.delta": "managed", "shop.ice": "iceberg", "shop.recent": "view"}
        assert ids_of(rebuilt, "shop.ice") == [1, 2]
        assert rebuilt.table_info("shop.ice").files_owner == "catalog"
        rebuilt.iceberg("shop.ice").append(numbers(3))
        assert ids_of(rebuilt, "shop.ice") == [1, 2, 3]


def test_of_several_metadata_files_the_newest_is_registered(blank_sqlite: str, target: str, tmp_path: Path) -> None:
    with open_catalog(target, tmp_path) as catalog:
        catalog.create_namespace("shop")
        create(catalog, "shop.ice", 1)
    folder = tmp_path / "lake" / "shop" / "ice" / "metadata"
    (newest,) = folder.glob("00001-*.metadata.json")
    metadata = json.loads(newest.read_text())
    metadata["last-updated-ms"] += 5
    metadata["properties"]["newest"] = "yes"
    (folder / "00001-11111111-1111-4111-8111-111111111111.metadata.json").write_text(json.dumps(metadata))
    shutil.copytree(tmp_path / "lake" / "shop" / "ice", tmp_path / "lake" / "broken")
    for file in (tmp_path / "lake" / "broken" / "metadata").glob("*.json"):
        file.write_text("{")
    with deltalakedb.connect(blank_sqlite) as rebuilt:
        report = rebuilt.rebuild(tmp_path / "lake")
        assert [table.table.full_name for table in report.tables] == ["shop.ice"]
        assert [left.location.rpartition("/")[2] for left in report.left_out] == ["broken"]
        assert rebuilt.iceberg("shop.ice").properties["newest"] == "yes"


def test_a_crash_while_rows_are_copied_between_formats_leaves_both_or_none(mixed: Catalog, tmp_path: Path) -> None:
    before = files_below(tmp_path / "lake")
    tx = mixed.begin()
    rows = tx.iceberg("shop.ice").scan().to_arrow()
    tx.write("shop.delta", rows, mode="append")
    tx.iceberg("shop.ice").overwrite(pa.table({"id": pa.array([], pa.int64())}))
    tx.rollback()
    assert files_below(tmp_path / "lake") == before
    assert ids_of(mixed, "shop.ice") == [1]


@pytest.fixture
def blank_sqlite(tmp_path: Path) -> str:
    """Where a second, empty catalog may be created."""
    return str(tmp_path / "second.db")
