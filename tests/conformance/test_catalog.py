"""The catalog: names, attaching, renaming, dropping, audit and SQL, on every engine."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import deltalake
import pyarrow as pa
import pytest

import deltalakedb
from deltalakedb import Catalog
from deltalakedb.exceptions import (
    ConfigError,
    DeltaError,
    SchemaVersionError,
    StoreError,
    TableExistsError,
    TableNameError,
    TableNotFoundError,
)


def write(path: Path, *ids: int) -> Path:
    deltalake.write_deltalake(path, pa.table({"id": pa.array(ids, pa.int64())}), mode="append")
    return path


@pytest.fixture
def catalog(target: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Catalog]:
    monkeypatch.setenv("XDG_CONFIG_HOME", "/nonexistent")
    with deltalakedb.connect(target, actor="ann") as opened:
        yield opened


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("made") / "orders"
    for first in (1, 3, 5):
        write(path, first, first + 1)
    return path


@pytest.fixture
def orders(made: Path, tmp_path: Path) -> Path:
    """A table of three versions."""
    return Path(shutil.copytree(made, tmp_path / "lake" / "orders"))


def test_connect_creates_the_schema_and_opens_what_is_there(blank: str, orders: Path) -> None:
    with deltalakedb.connect(blank) as catalog:
        catalog.attach_table(orders, "sales.orders")
    with deltalakedb.connect(blank, sql_schema="error") as again:
        assert again.tables() == ["sales.orders"]
        assert again.table("sales.orders").version() == 2


def test_a_catalog_that_may_not_create_its_schema_says_what_to_run(blank: str) -> None:
    with pytest.raises((SchemaVersionError, StoreError), match=r"dl migrate up|does not exist|dl init"):
        deltalakedb.connect(blank, sql_schema="error")


def test_without_a_uri_the_catalog_of_the_environment_is_opened(
    target: str, catalog: Catalog, orders: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog.attach_table(orders, "sales.orders")
    monkeypatch.setenv("DL_CATALOG", target)
    with deltalakedb.connect() as again:
        assert again.tables() == ["sales.orders"]
    monkeypatch.delenv("DL_CATALOG")
    with pytest.raises(ConfigError, match="DL_CATALOG"):
        deltalakedb.connect()


def test_names_are_found_whatever_their_case_and_shown_as_typed(catalog: Catalog, orders: Path) -> None:
    catalog.attach_table(orders, "Sales.Bestellungen")
    assert catalog.tables() == ["Sales.Bestellungen"]
    assert catalog.table("sALES.bESTELLUNGEN").name == "Sales.Bestellungen"
    with pytest.raises(TableExistsError):
        catalog.attach_table(write(orders.parent / "other", 1), "SALES.BESTELLUNGEN")


def test_namespaces_nest_and_come_into_being_on_first_use(catalog: Catalog, orders: Path) -> None:
    assert catalog.namespaces() == ["default"]
    catalog.attach_table(orders, "eu.sales.orders")
    catalog.attach_table(write(orders.parent / "b", 1), "eu.b")
    catalog.attach_table(write(orders.parent / "c", 1), "europe")
    assert set(catalog.namespaces()) == {"default", "eu", "eu.sales"}
    assert catalog.tables() == ["default.europe", "eu.b", "eu.sales.orders"]
    assert catalog.tables("EU") == ["eu.b", "eu.sales.orders"]
    assert catalog.tables("eu.sales") == ["eu.sales.orders"]
    assert catalog.table("europe").name == "default.europe"


@pytest.mark.in_turn
@pytest.mark.parametrize(
    "name", ["a'b", 'a"b', "x'; drop table dl_tables; --", "a\0b", "a\nb", "a/b", "", "a..b", "n" * 256]
)
def test_a_name_against_the_rules_is_refused_and_nothing_is_stored(catalog: Catalog, orders: Path, name: str) -> None:
    with pytest.raises(TableNameError):
        catalog.attach_table(orders, name)
    with pytest.raises(TableNameError):
        catalog.table(name)
    assert catalog.tables() == []
    assert catalog.namespaces() == ["default"]
    assert catalog.audit() == []


def test_a_name_full_of_odd_but_legal_characters_works(catalog: Catalog, orders: Path) -> None:
    name = "ns -- ;%s.日本 (x) = $1 :a ?"
    catalog.attach_table(orders, name)
    assert catalog.tables() == ["`ns -- ;%s`.`日本 (x) = $1 :a ?`"]
    assert catalog.table(name).version() == 2
    catalog.drop_table(name)
    assert catalog.tables() == []


def test_an_unknown_table_is_an_error_that_names_the_nearest(catalog: Catalog, orders: Path) -> None:
    with pytest.raises(TableNotFoundError, match="dl tables"):
        catalog.table("sales.orders")
    catalog.attach_table(orders, "sales.orders")
    with pytest.raises(TableNotFoundError, match="did you mean sales.orders"):
        catalog.table("sales.order")


def test_attaching_a_place_without_a_table_stores_nothing(catalog: Catalog, tmp_path: Path) -> None:
    with pytest.raises(DeltaError):
        catalog.attach_table(tmp_path, "sales.orders")
    assert catalog.tables() == []
    with pytest.raises(ConfigError, match="full or latest"):
        catalog.attach_table(tmp_path, "sales.orders", history="none")  # type: ignore[arg-type]


def test_a_location_has_one_spelling_and_one_owner(catalog: Catalog, orders: Path) -> None:
    catalog.attach_table(orders, "sales.orders")
    link = orders.parent / "link"
    link.symlink_to(orders)
    for spelled in (orders.as_uri(), f"{orders}/", f"file:{orders}", str(link)):
        with pytest.raises(TableExistsError, match=r"sales\.orders"):
            catalog.attach_table(spelled, "sales.again")
    assert catalog.attach_table(link, "sales.orders").version() == 2, "the same table again changes nothing"
    assert len(catalog.audit()) == 1


def test_import_attaches_and_promotes(catalog: Catalog, orders: Path) -> None:
    table = catalog.import_table(orders, "sales.orders", history="latest")
    assert (table.mode, table.version()) == ("managed", 3), "the fence is a commit of its own"


def test_follow_takes_in_what_others_committed(catalog: Catalog, orders: Path) -> None:
    table = catalog.attach_table(orders, "sales.orders")
    other = catalog.attach_table(write(orders.parent / "b", 1), "b")
    write(orders, 7)
    assert [(r.table.name, r.from_version, r.to_version) for r in catalog.follow()] == [("b", 0, 0), ("orders", 2, 3)]
    assert table.version() == 2, "an open table stays where it is"
    table.update_incremental()
    assert (table.version(), table.count()) == (3, 7)
    assert other.version() == 0
    write(orders, 8)
    assert catalog.follow("sales.orders")[0].to_version == 4


def test_when_one_follower_fails_the_others_still_get_their_turn(catalog: Catalog, orders: Path) -> None:
    catalog.attach_table(orders, "a.broken")
    catalog.attach_table(write(orders.parent / "b", 1), "b.good")
    (orders / "_delta_log").rename(orders / "gone")
    write(orders.parent / "b", 2)
    with pytest.raises(DeltaError):
        catalog.follow()
    assert catalog.table("b.good").version() == 1


def test_validate_agrees_until_the_files_are_changed(catalog: Catalog, orders: Path) -> None:
    catalog.attach_table(orders, "sales.orders")
    assert catalog.validate("sales.orders").drift is None
    commit = orders / "_delta_log" / f"{1:020}.json"
    commit.write_text(commit.read_text().replace("WRITE", "MERGE"))
    drift = catalog.validate("sales.orders").drift
    assert drift is not None
    assert drift.version == 1


def test_a_renamed_table_keeps_everything_but_its_name(catalog: Catalog, orders: Path) -> None:
    table = catalog.attach_table(orders, "sales.orders")
    catalog.rename_table("SALES.orders", "archive.y2026.orders")
    assert catalog.tables() == ["archive.y2026.orders"]
    renamed = catalog.table("archive.y2026.orders")
    assert (renamed.version(), renamed.table_uri) == (2, table.table_uri)
    with pytest.raises(TableNotFoundError):
        catalog.table("sales.orders")
    write(orders, 9)
    catalog.follow()
    table.update_incremental()
    assert (table.version(), table.name) == (3, "archive.y2026.orders"), "an open table finds itself again"


def test_a_name_can_be_given_another_case(catalog: Catalog, orders: Path) -> None:
    catalog.attach_table(orders, "sales.orders")
    catalog.rename_table("sales.orders", "Sales.Orders")
    assert catalog.tables() == ["Sales.Orders"]


def test_a_name_that_is_taken_cannot_be_given_to_another(catalog: Catalog, orders: Path) -> None:
    catalog.attach_table(orders, "a.one")
    catalog.attach_table(write(orders.parent / "b", 1), "a.two")
    with pytest.raises(TableExistsError):
        catalog.rename_table("a.one", "A.Two")
    assert catalog.tables() == ["a.one", "a.two"]


def test_dropping_a_follower_unregisters_it_and_leaves_its_files(catalog: Catalog, orders: Path) -> None:
    table = catalog.attach_table(orders, "sales.orders")
    before = sorted(orders.rglob("*"))
    with pytest.raises(DeltaError, match="belong to others"):
        catalog.drop_table("sales.orders", purge=True)
    catalog.drop_table("sales.orders")
    assert catalog.tables() == []
    assert sorted(orders.rglob("*")) == before
    with pytest.raises(TableNotFoundError):
        catalog.drop_table("sales.orders")
    with pytest.raises(TableNotFoundError, match="dropped"):
        table.update_incremental()
    assert catalog.attach_table(orders, "sales.orders").version() == 2, "it can come back"


def test_the_audit_trail_says_who_did_what_to_which_table(catalog: Catalog, orders: Path) -> None:
    catalog.attach_table(orders, "sales.orders")
    catalog.rename_table("sales.orders", "sales.o")
    catalog.drop_table("sales.o")
    trail = catalog.audit()
    assert [(row["action"], row["table"]) for row in trail] == [
        ("drop", "sales.o"),
        ("rename", "sales.o"),
        ("attach", "sales.orders"),
    ]
    assert {(row["actor"], row["origin"]) for row in trail} == {("ann", "python")}
    assert trail[1]["details"] | {"txn_id": ""} == {"from": "sales.orders", "to": "sales.o", "txn_id": ""}
    middle = trail[1]["at_ms"]
    assert catalog.audit(since=middle)[-1]["action"] == "rename"
    assert catalog.audit(until=middle)[0]["action"] == "rename"
    assert catalog.audit(actor="bob") == []
    assert catalog.audit(since=datetime(2999, 1, 1, tzinfo=UTC)) == []
    assert len(catalog.audit(limit=2)) == 2


def test_table_infos_carry_the_heads_counters(catalog: Catalog, orders: Path) -> None:
    catalog.attach_table(orders, "sales.orders")
    (info,) = catalog.table_infos()
    assert (info.full_name, info.version, info.num_files, info.num_records) == ("sales.orders", 2, 3, 6)
    assert info.size_bytes == sum(file.stat().st_size for file in orders.glob("*.parquet"))


def test_sql_reads_the_logs_tables_as_arrow_and_changes_nothing(catalog: Catalog, orders: Path) -> None:
    catalog.attach_table(orders, "sales.orders")
    counted = catalog.sql("select version, num_added_files from dl_table_versions order by version")
    assert counted.column("version").to_pylist() == [0, 1, 2]
    for text in ("delete from dl_tables", "select 1; select 2", "drop table dl_tables", "create table x (a int)"):
        with pytest.raises(DeltaError):
            catalog.sql(text)
    assert catalog.tables() == ["sales.orders"]


def test_history_can_be_asked_for_by_name_and_time(catalog: Catalog, orders: Path) -> None:
    catalog.attach_table(orders, "sales.orders")
    assert catalog.history("sales.orders") == deltalake.DeltaTable(orders).history()
    assert [entry["version"] for entry in catalog.history("sales.orders", limit=1)] == [2]
    committed = catalog.table("sales.orders", version=1).committed_at_ms()
    assert [entry["version"] for entry in catalog.history("sales.orders", since=committed)] == [2, 1]
    assert [entry["version"] for entry in catalog.history("sales.orders", until=committed)] == [1, 0]
    assert [e["version"] for e in catalog.history("sales.orders", since=committed, until=committed)] == [1]


def test_the_representation_says_which_catalog_it_is(catalog: Catalog) -> None:
    assert repr(catalog).startswith("Catalog('")
