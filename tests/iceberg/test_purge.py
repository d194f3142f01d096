"""Dropping an Iceberg table with its files: those that its metadata reaches, and no others."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from pyiceberg.table import Table

import deltalakedb
from deltalakedb import Catalog
from deltalakedb.mirror.reconciler import Reconciler
from tests.conformance.lives import kill_at
from tests.conformance.transacting import numbers
from tests.iceberg.lake import SCHEMA, create, files_below, ids_of, view_version

STEPS = ("drop.committed", "purge.begun", "drop.data_deleted", "purge.manifests_deleted", "drop.purged")


def create_at(catalog: Catalog, folder: Path, name: str = "shop.given", **properties: str) -> Table:
    """A table at a location that its user gives, with rows that were partly deleted again."""
    table = catalog.iceberg().create_table(name, SCHEMA, location=f"file://{folder}", properties=properties)
    table.append(numbers(1, 2, 3))
    table.append(numbers(4))
    table.delete("id = 2")
    return table


def reconcile(catalog: Catalog) -> None:
    with catalog.store.write() as conn:  # a killed process keeps others away for a few seconds
        conn.sql("update dl_leases set until_ms = 0 returning lease")
    with Reconciler(catalog.store, config=catalog.config, options_of=catalog.storage_options_of) as reconciler:
        reconciler.once()


def places_to_clear(catalog: Catalog) -> int:
    return int(catalog.sql("select * from dl_locations where location_state = 'purging'").num_rows)


def test_a_drop_keeps_the_files_and_frees_name_and_place(catalog: Catalog, tmp_path: Path) -> None:
    table = create(catalog, "shop.ice", 1)
    catalog.drop_table("shop.ice")
    assert (catalog.tables(), len(files_below(tmp_path / "lake"))) == ([], 5)
    catalog.iceberg().register_table("shop.ice", table.metadata_location)
    assert ids_of(catalog, "shop.ice") == [1]


def test_a_purge_deletes_the_folder_that_the_catalog_chose(catalog: Catalog, tmp_path: Path) -> None:
    create(catalog, "shop.ice", 1)
    (tmp_path / "lake" / "shop" / "ice" / "data" / "left-behind.parquet").touch()
    catalog.drop_table("shop.ice", purge=True)
    assert not (tmp_path / "lake" / "shop" / "ice").exists()
    assert places_to_clear(catalog) == 0
    create(catalog, "shop.ice", 2)
    assert ids_of(catalog, "shop.ice") == [2]


def test_a_purge_of_a_given_folder_deletes_only_what_the_metadata_reaches(catalog: Catalog, tmp_path: Path) -> None:
    folder = tmp_path / "given"
    create_at(catalog, folder)
    (folder / "data" / "theirs.parquet").touch()
    (folder / "notes.txt").touch()
    catalog.iceberg().purge_table("shop.given")
    assert files_below(folder) == {"data/theirs.parquet", "notes.txt"}
    assert [entry["action"] for entry in catalog.audit(limit=2)] == ["purge", "drop"]


def test_nothing_is_left_of_a_given_folder_without_other_files(catalog: Catalog, tmp_path: Path) -> None:
    create_at(catalog, tmp_path / "given")
    catalog.drop_table("shop.given", purge=True)
    assert not (tmp_path / "given").exists()


def test_a_table_that_protects_its_files_keeps_them(catalog: Catalog, tmp_path: Path) -> None:
    create_at(catalog, tmp_path / "given", **{"gc.enabled": "false"})
    before = files_below(tmp_path / "given")
    catalog.drop_table("shop.given", purge=True)
    assert files_below(tmp_path / "given") == before
    assert "gc.enabled" in str(catalog.audit()[0]["details"])
    assert places_to_clear(catalog) == 0


def test_files_of_another_table_are_left_alone(catalog: Catalog, tmp_path: Path) -> None:
    create(catalog, "shop.other", 7)
    theirs = {file for file in files_below(tmp_path / "lake") if file.endswith(".parquet")}
    table = create_at(catalog, tmp_path / "given")
    table.add_files([f"file://{tmp_path}/lake/{file}" for file in theirs])
    catalog.drop_table("shop.given", purge=True)
    assert ids_of(catalog, "shop.other") == [7]
    assert not (tmp_path / "given").exists()


def test_files_outside_of_the_allowed_places_are_left_alone(catalog: Catalog, tmp_path: Path) -> None:
    table = create_at(catalog, tmp_path / "given")
    own = next((tmp_path / "given" / "data").glob("*.parquet"))
    (tmp_path / "private").mkdir()
    private = Path(shutil.copy(own, tmp_path / "private" / "rows.parquet"))
    table.add_files([f"file://{private}"])
    catalog.drop_table("shop.given", purge=True)
    assert private.exists()


def test_data_that_the_properties_put_into_the_warehouse_is_deleted_too(catalog: Catalog, tmp_path: Path) -> None:
    elsewhere = tmp_path / "lake" / "elsewhere"
    create(catalog, "shop.ice", 1, **{"write.data.path": f"file://{elsewhere}"})
    assert files_below(elsewhere)
    catalog.drop_table("shop.ice", purge=True)
    assert not files_below(tmp_path / "lake")


def test_a_purge_with_missing_files_deletes_the_others(catalog: Catalog, tmp_path: Path) -> None:
    folder = tmp_path / "given"
    create_at(catalog, folder)
    next(folder.glob("data/*.parquet")).unlink()
    next(folder.glob("metadata/*-m0.avro")).unlink()
    next(folder.glob("metadata/snap-*.avro")).unlink()
    catalog.drop_table("shop.given", purge=True)
    assert places_to_clear(catalog) == 0
    assert not [file for file in files_below(folder) if file.endswith(".json")]


def test_a_view_is_purged(catalog: Catalog, tmp_path: Path) -> None:
    catalog.iceberg().create_view("shop.recent", SCHEMA, view_version())
    catalog.drop_table("shop.recent", purge=True)
    assert not files_below(tmp_path / "lake")


@pytest.mark.in_turn
@pytest.mark.parametrize("step", STEPS)
def test_a_purge_killed_at_any_step_is_finished_by_the_reconciler(target: str, tmp_path: Path, step: str) -> None:
    warehouse = str(tmp_path / "lake")
    with deltalakedb.connect(target, warehouse=warehouse) as catalog:
        catalog.create_namespace("shop")
        create_at(catalog, tmp_path / "given")
    kill_at(step, target, "cat.drop_table('shop.given', purge=True)")
    with deltalakedb.connect(target, warehouse=warehouse) as catalog:
        assert (catalog.tables(), places_to_clear(catalog)) == ([], 1)
        reconcile(catalog)
        assert places_to_clear(catalog) == 0
    assert not (tmp_path / "given").exists()
