"""Places that users have named: handed over whole when a table is dropped, and not inside of another table."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import deltalake
import pytest

from deltalakedb import Catalog
from deltalakedb.exceptions import FilesPurgedError, LocationOwnedError
from deltalakedb.mirror.reconciler import Reconciler
from tests.conformance.transacting import data_files, ids_in, numbers, open_catalog


@pytest.fixture
def catalog(target: str, tmp_path: Path) -> Iterator[Catalog]:
    with open_catalog(target, tmp_path) as opened:
        yield opened


def write(catalog: Catalog, name: str, number: int, location: Path | None = None) -> Path:
    with catalog.begin() as tx:
        tx.write(name, numbers(number), mode="append", location=location)
    assert catalog.mirror.flush(30)
    return Path(catalog.table(name).table_uri.removeprefix("file://"))


def notice(folder: Path) -> Path:
    return folder / "_dldb" / "README.txt"


def test_a_dropped_namespace_hands_its_places_over_at_once(catalog: Catalog, tmp_path: Path) -> None:
    places = [write(catalog, f"eu.{name}", 1, tmp_path / name) for name in ("a", "b")]
    assert all(notice(place).exists() for place in places)
    catalog.drop_namespace("eu", cascade=True)
    assert not any(notice(place).exists() for place in places)
    catalog.create_table("us.a", location=places[0])  # the table that is there gets the name
    assert ids_in(catalog, "us.a") == [1]
    deltalake.write_deltalake(places[1], numbers(2), mode="append")
    assert not notice(places[1]).exists()


def test_what_the_reconciler_hands_over_has_no_notice_either(target: str, tmp_path: Path) -> None:
    with open_catalog(target, tmp_path) as catalog:
        place = write(catalog, "t", 1, tmp_path / "mine")
    assert notice(place).exists()
    with open_catalog(target, tmp_path, mirror_mode="off") as catalog:
        with catalog.begin() as tx:
            tx.drop_table("t")
        assert notice(place).exists()
        with Reconciler(catalog.store, config=catalog.config, options_of=catalog.storage_options_of) as reconciler:
            reconciler.once()
    assert not notice(place).exists()
    deltalake.write_deltalake(place, numbers(2), mode="append")


def test_a_table_is_not_undropped_without_its_files(catalog: Catalog, tmp_path: Path) -> None:
    place = write(catalog, "s.t", 1)
    catalog.drop_table("s.t")
    assert catalog.mirror.flush(30)
    shutil.copytree(place, tmp_path / "backup")
    (file,) = data_files(place)
    for gone in (place, place / "_delta_log", place / file):
        shutil.rmtree(gone) if gone.is_dir() else gone.unlink()
        with pytest.raises(FilesPurgedError, match=r"s\.t cannot be undropped: its files are gone.*from a backup"):
            catalog.undrop_table("s.t")
        assert (catalog.tables(), catalog.tables(dropped=True)) == ([], ["s.t"])
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(tmp_path / "backup", place)
    catalog.undrop_table("s.t")
    assert ids_in(catalog, "s.t") == [1]


def test_a_log_that_went_right_after_the_drop_is_missed_too(catalog: Catalog) -> None:
    with catalog.begin() as tx:
        tx.write("s.t", numbers(1))
    catalog.drop_table("s.t")
    (dropped,) = catalog.dropped_tables()
    shutil.rmtree(Path(dropped.location.removeprefix("file://")) / "_delta_log")
    with pytest.raises(FilesPurgedError, match=r"has no _delta_log any more"):
        catalog.undrop_table("s.t")


def test_a_table_in_the_way_of_a_namespace_keeps_no_table_of_it_from_being_made(
    catalog: Catalog, tmp_path: Path
) -> None:
    outer = write(catalog, "other.t", 1, tmp_path / "lake" / "eu")
    for number, name in enumerate(("eu.a", "eu.b", "eu.a.deep")):
        place = write(catalog, name, number)
        assert outer not in place.parents
        assert ids_in(catalog, name) == [number]
        assert deltalake.DeltaTable(place).to_pyarrow_table()["id"].to_pylist() == [number]
    catalog.create_namespace("all", {"location": str(tmp_path / "lake")})
    write(catalog, "all.us", 1)
    write(catalog, "us.t", 2)
    assert ids_in(catalog, "us.t") == [2]


def test_a_namespace_has_no_location_in_the_folder_of_a_table(catalog: Catalog, tmp_path: Path) -> None:
    ours = write(catalog, "s.t", 1)
    dropped = write(catalog, "s.dropped", 1)
    catalog.drop_table("s.dropped")
    theirs = tmp_path / "theirs"
    deltalake.write_deltalake(theirs, numbers(1))
    catalog.create_namespace("eu", {"location": str(tmp_path / "fine")})
    for folder, owner in ((ours, r"the table s\.t"), (dropped, r"the table s\.dropped"), (theirs, "a Delta table")):
        for inside in (folder, folder / "in" / "side"):
            with pytest.raises(LocationOwnedError, match=rf"cannot go to .*folder of {owner}.*choose a folder outside"):
                catalog.create_namespace("us", {"location": str(inside)})
            with pytest.raises(LocationOwnedError, match="cannot go to"):
                catalog.set_namespace_properties("eu", {"location": str(inside)})
    assert (catalog.namespaces("us"), "us" in catalog.namespaces()) == ([], False)
    catalog.set_namespace_properties("eu", {"location": str(tmp_path)})  # around tables it may be
    assert write(catalog, "eu.t", 1) == tmp_path / "t"


def test_a_purge_takes_the_checksums_that_hadoop_keeps_beside_files(catalog: Catalog, tmp_path: Path) -> None:
    place = write(catalog, "t", 1, tmp_path / "mine")
    (file,) = data_files(place)
    for name in (file, "other.parquet"):
        (place / f".{name}.crc").write_bytes(b"crc")
    catalog.drop_table("t", purge=True)
    assert [one.name for one in place.iterdir()] == [".other.parquet.crc"]
