"""The mirror of an Iceberg table is no table of its own: nothing else writes it, and it goes with its table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import deltalake
import pytest

import deltalakedb
from deltalakedb import Catalog
from deltalakedb.exceptions import DeltaError, LocationOwnedError, NotWritableError
from tests.conformance.transacting import numbers
from tests.fixtures.catalogs import NewCatalog
from tests.iceberg.lake import create, files_below, ids_of
from tests.iceberg.mirror.deleting import data_files, delete_positions
from tests.iceberg.mirror.judging import check, commits, folder_of, mirror


@pytest.fixture
def other(tmp_path: Path, new_catalog: NewCatalog) -> Any:
    """A catalog that does not know the table."""
    path = tmp_path / "other.db"
    new_catalog("sqlite", path)
    with deltalakedb.connect(f"deltasql://sqlite/{path}?warehouse={tmp_path}/other") as opened:
        yield opened


def test_foreign_writers_are_refused(catalog: Catalog) -> None:
    create(catalog, "shop.t", 1, 2)
    path, _ = mirror(catalog)
    before = commits(path)
    table = deltalake.DeltaTable(path)
    with pytest.raises(Exception, match="deltalakedb"):
        deltalake.write_deltalake(table, numbers(3), mode="append")
    with pytest.raises(Exception, match="deltalakedb"):
        table.delete("id = 1")
    with pytest.raises(Exception, match="deltalakedb"):
        table.vacuum(0, dry_run=False, enforce_retention_duration=False, full=True)
    assert commits(path) == before
    check(catalog)


def test_this_package_does_not_write_it_by_its_path(catalog: Catalog) -> None:
    create(catalog, "shop.t", 1)
    path, _ = mirror(catalog)
    before = commits(path)
    with pytest.raises(NotWritableError, match="belongs to an Iceberg table"):
        deltalakedb.write_deltalake(str(path), numbers(3), mode="append")
    with pytest.raises(NotWritableError, match="belongs to an Iceberg table"):
        deltalakedb.DeltaTable(str(path)).delete()
    assert commits(path) == before


def test_its_own_catalog_reads_it_by_its_path_and_does_not_register_it(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(catalog, "shop.t", 1)
    path, _ = mirror(catalog)
    monkeypatch.setenv("DL_CATALOG", str(catalog.uri))
    for registers in ("false", "true"):
        monkeypatch.setenv("DL_REGISTER_PATHS", registers)
        assert deltalakedb.DeltaTable(str(path)).to_pyarrow_table()["id"].to_pylist() == [1]
        with pytest.raises(DeltaError, match="belongs to"):
            deltalakedb.write_deltalake(str(path), numbers(3), mode="append")
    assert [info.full_name for info in catalog.table_infos()] == ["shop.t"]


@pytest.mark.parametrize("door", ["attach_table", "import_table"])
def test_no_catalog_takes_it_for_a_delta_table(catalog: Catalog, other: Catalog, door: str) -> None:
    create(catalog, "shop.t", 1)
    path, _ = mirror(catalog)
    before = commits(path)
    for taker, name in ((catalog, "default.taken"), (catalog, "shop.t"), (other, "default.taken")):
        with pytest.raises(LocationOwnedError, match="belongs to"):
            getattr(taker, door)(path, name)
    assert (commits(path), other.table_infos()) == (before, [])


def test_a_delta_table_is_not_created_over_a_mirror_that_was_left(catalog: Catalog) -> None:
    create(catalog, "shop.t", 1)
    path, _ = mirror(catalog)
    catalog.drop_table("shop.t")
    with pytest.raises(DeltaError, match="a Delta table is there already"), catalog.begin() as tx:
        tx.create_table("shop.d", "id long", location=str(path))
    create(catalog, "shop.t", 5)
    assert folder_of(catalog) != path
    assert ids_of(catalog, "shop.t") == [5]
    check(catalog)


def test_a_purge_deletes_the_mirror_with_the_folder(catalog: Catalog) -> None:
    create(catalog, "shop.t", 1, 2)
    delete_positions(catalog, {data_files(catalog)[0]: [0]})
    path, _ = mirror(catalog)
    catalog.drop_table("shop.t", purge=True)
    assert not path.exists()


def test_a_purge_of_a_given_folder_deletes_the_mirror_and_keeps_other_files(catalog: Catalog, tmp_path: Path) -> None:
    folder = tmp_path / "given"
    table = catalog.iceberg().create_table("shop.t", numbers().schema, location=f"file://{folder}")
    table.append(numbers(1, 2))
    delete_positions(catalog, {data_files(catalog)[0]: [0]})
    mirror(catalog)
    (folder / "notes.txt").touch()
    catalog.drop_table("shop.t", purge=True)
    assert files_below(folder) == {"notes.txt"}


def test_a_catalog_is_rebuilt_from_mirrored_tables(catalog: Catalog, other: Catalog, tmp_path: Path) -> None:
    create(catalog, "shop.t", 1, 2)
    mirror(catalog)
    rebuilt = other.rebuild(tmp_path / "lake")
    assert ([entry.table.full_name for entry in rebuilt.tables], rebuilt.left_out) == (["shop.t"], ())
    assert ids_of(other, "shop.t") == [1, 2]
    assert other.mirror_iceberg("shop.t").commits == ()


def test_gc_keeps_the_mirror(catalog: Catalog) -> None:
    table = create(catalog, "shop.t", 1, 2)
    mirror(catalog)
    table.append(numbers(3))
    catalog.gc()
    check(catalog)
