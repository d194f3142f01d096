"""Paths with a catalog: DL_CATALOG finds the table at a location, DL_REGISTER_PATHS brings new ones in."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import deltalake
import pytest

import deltalakedb as dl
from deltalakedb.catalog.addresses import PathAddress, SqlAddress, resolve
from deltalakedb.catalog.registration import name_of_path
from deltalakedb.exceptions import LocationOwnedError, NotWritableError, TableNotFoundError
from deltalakedb.storage.location import canonical_location
from tests.api.plain import append, our_ids, rows, run


@pytest.fixture
def place(tmp_path: Path) -> Path:
    at = tmp_path / "sales" / "orders"
    deltalake.write_deltalake(at, rows(1))
    return at


@pytest.fixture
def catalog_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    at = str(tmp_path / "catalog.db")
    dl.connect(at).close()
    monkeypatch.setenv("DL_CATALOG", at)
    return at


@pytest.fixture
def registers(catalog_at: str, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("DL_REGISTER_PATHS", "1")
    return catalog_at


def modes(catalog_at: str) -> dict[str, str]:
    with dl.connect(catalog_at) as catalog:
        return {info.full_name: info.mode for info in catalog.table_infos()}


def test_a_path_that_is_not_registered_is_read_and_written_by_its_files(place: Path, catalog_at: str) -> None:
    table = dl.DeltaTable(place)
    assert (table.mode, table.version()) == ("files", 0)
    run(place, append(rows(2)))
    assert (our_ids(place), modes(catalog_at)) == ([1, 2], {})


def test_a_path_of_a_registered_table_opens_the_table_of_the_catalog(place: Path, catalog_at: str) -> None:
    with dl.connect(catalog_at) as catalog:
        catalog.import_table(place, "shop.sold")
    for address in (place, str(place), place.as_uri(), f"{place}/"):
        table = dl.DeltaTable(address)
        assert (table.name, table.mode) == ("shop.sold", "managed")
        table.close()
    assert dl.DeltaTable.is_deltatable(str(place))
    assert dl.DeltaTable.is_deltatable("shop.sold")
    assert not dl.DeltaTable.is_deltatable("shop.nothing")


def test_a_follower_opened_by_its_path_is_at_its_newest_version(place: Path, catalog_at: str) -> None:
    with dl.connect(catalog_at) as catalog:
        catalog.attach_table(place, "shop.sold")
    deltalake.write_deltalake(place, rows(2), mode="append")
    table = dl.DeltaTable(place)
    assert (table.name, table.mode, table.version()) == ("shop.sold", "follower", 1)
    table.close()


def test_a_detached_table_is_one_of_files_again(place: Path, catalog_at: str) -> None:
    with dl.connect(catalog_at) as catalog:
        catalog.import_table(place, "shop.sold")
        catalog.detach_table("shop.sold")
    run(place, append(rows(2)))
    table = dl.DeltaTable(place)
    assert (table.mode, table.count()) == ("files", 2)


def test_the_first_read_attaches_a_path_under_the_name_of_its_folders(place: Path, registers: str) -> None:
    table = dl.DeltaTable(place)
    assert (table.name, table.mode, table.version()) == ("sales.orders", "follower", 0)
    table.close()
    assert modes(registers) == {"sales.orders": "follower"}
    assert our_ids(place) == [1]
    assert modes(registers) == {"sales.orders": "follower"}


def test_asking_whether_there_is_a_table_registers_nothing(place: Path, registers: str) -> None:
    assert dl.DeltaTable.is_deltatable(str(place))
    assert not dl.DeltaTable.is_deltatable(str(place.parent / "nothing"))
    assert modes(registers) == {}


def test_a_path_without_a_table_registers_nothing(tmp_path: Path, registers: str) -> None:
    with pytest.raises(TableNotFoundError):
        dl.DeltaTable(tmp_path / "nothing")
    assert modes(registers) == {}


def test_the_first_write_imports_a_path(place: Path, registers: str) -> None:
    dl.write_deltalake(place, rows(2), mode="append")
    assert modes(registers) == {"sales.orders": "managed"}
    assert our_ids(place) == [1, 2]


def test_a_path_that_a_read_attached_is_made_managed_by_its_first_write(place: Path, registers: str) -> None:
    dl.DeltaTable(place).close()
    address = resolve(place, writes=True)
    assert isinstance(address, SqlAddress)
    address.catalog.close()
    assert modes(registers) == {"sales.orders": "follower"}, "to be about to write is not to write"
    dl.write_deltalake(place, rows(2), mode="append")
    assert modes(registers) == {"sales.orders": "managed"}


@pytest.mark.parametrize("verb", ["delete", "update", "merge"])
def test_a_table_that_was_opened_to_be_read_is_made_managed_by_the_first_change(
    place: Path, registers: str, verb: str
) -> None:
    with closing(dl.DeltaTable(place)) as table:
        assert (table.mode, our_ids(place)) == ("follower", [1])
        if verb == "delete":
            table.delete("id = 1")
        elif verb == "update":
            table.update(updates={"id": "id + 1"})
        else:
            merger = table.merge(rows(1), "s.id = t.id", source_alias="s", target_alias="t")
            merger.when_matched_delete().execute()
    assert modes(registers) == {"sales.orders": "managed"}
    assert our_ids(place) == ([2] if verb == "update" else [])
    assert deltalake.DeltaTable(place).to_pyarrow_table().num_rows == (1 if verb == "update" else 0)


def test_the_path_of_a_dropped_table_is_read_as_it_lies(tmp_path: Path, registers: str) -> None:
    with dl.connect(registers, warehouse=str(tmp_path / "lake")) as catalog:
        with catalog.begin() as tx:
            tx.write("s.t", rows(1))
        place = Path(catalog.table("s.t").table_uri.removeprefix("file://"))
        catalog.drop_table("s.t")
    assert our_ids(place) == [1]
    with pytest.raises(LocationOwnedError, match="can still be undropped"):
        dl.write_deltalake(place, rows(2), mode="append")


def test_without_leave_a_path_that_was_read_stays_a_follower(
    place: Path, registers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DL_CATALOG_PROMOTE_ON_WRITE", "0")
    with pytest.raises(NotWritableError, match=r"dl promote sales\.orders"):
        dl.write_deltalake(place, rows(2), mode="append")
    assert modes(registers) == {"sales.orders": "follower"}


def test_a_follower_that_somebody_attached_on_purpose_stays_one(place: Path, registers: str) -> None:
    with dl.connect(registers) as catalog:
        catalog.attach_table(place, "shop.sold")
    address = resolve(place, writes=True)
    assert isinstance(address, SqlAddress)
    address.catalog.close()
    with pytest.raises(NotWritableError, match=r"dl promote shop\.sold"):
        dl.write_deltalake(place, rows(2), mode="append")
    assert modes(registers) == {"shop.sold": "follower"}


def test_a_new_path_has_a_name_and_a_place_before_its_first_write(tmp_path: Path, registers: str) -> None:
    address = resolve(tmp_path / "eu.sales" / "new.orders", writes=True)
    assert isinstance(address, SqlAddress)
    address.catalog.close()
    assert str(address.name) == "eu.sales.new_orders"
    assert address.location == canonical_location(tmp_path / "eu.sales" / "new.orders")
    assert modes(registers) == {}


def test_the_first_write_to_a_new_path_makes_a_managed_table_there(tmp_path: Path, registers: str) -> None:
    place = tmp_path / "sales" / "new"
    dl.write_deltalake(place, rows(1))
    dl.write_deltalake(place, rows(2), mode="append")
    assert modes(registers) == {"sales.new": "managed"}
    table = dl.DeltaTable(place)
    assert (table.name, table.version(), table.count()) == ("sales.new", 1, 2)
    table.close()
    assert sorted(deltalake.DeltaTable(place).to_pyarrow_table().column("id").to_pylist()) == [1, 2]


def test_paths_that_would_have_one_name_get_numbers(tmp_path: Path, registers: str) -> None:
    for folder in ("a", "b", "c"):
        deltalake.write_deltalake(tmp_path / folder / "sales" / "orders", rows(1))
        dl.DeltaTable(tmp_path / folder / "sales" / "orders").close()
    assert sorted(modes(registers)) == ["sales.orders", "sales.orders_2", "sales.orders_3"]


@pytest.mark.parametrize(
    ("location", "name"),
    [
        ("file:///data/lake/sales/orders", "sales.orders"),
        ("file:///orders", "default.orders"),
        ("file:///data/eu.sales/orders", "eu.sales.orders"),
        ("s3://bucket/orders", "default.orders"),
        ("s3://bucket/lake/sales/or%27ders.v2", "sales.or_ders_v2"),
        ("abfss://box@account.dfs.core.windows.net/sales/orders", "sales.orders"),
    ],
)
def test_a_paths_last_two_folders_are_its_name(location: str, name: str) -> None:
    assert str(name_of_path(location)) == name


def test_who_writes_only_new_tables_registers_none_that_is_there(place: Path, registers: str, tmp_path: Path) -> None:
    with pytest.raises(dl.exceptions.TableExistsError, match="A table already exists"):
        dl.write_deltalake(place, rows(2))
    dl.write_deltalake(place, rows(2), mode="ignore")
    assert (modes(registers), our_files(place)) == ({}, 1)
    dl.write_deltalake(tmp_path / "sales" / "new", rows(3))
    assert modes(registers) == {"sales.new": "managed"}


def our_files(place: Path) -> int:
    return len(deltalake.DeltaTable(place).file_uris())


def test_without_a_catalog_nothing_is_registered(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DL_REGISTER_PATHS", "1")
    assert isinstance(resolve(place, writes=True), PathAddress)
    assert our_ids(place) == [1]
