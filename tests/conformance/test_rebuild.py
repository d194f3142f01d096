"""An empty database takes over from its own mirrors: names, ids, versions, transactions, as far as the files tell."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest

import deltalakedb as dl
from deltalakedb.catalog.catalog import Catalog
from deltalakedb.exceptions import DeltaError, TableExistsError
from deltalakedb.log.protocol.fence import FEATURE
from tests.conformance.lives import kill_at, log_bytes, read_ids, write_rows
from tests.fixtures.s3 import S3


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    return tmp_path / "lake"


@pytest.fixture
def lost(tmp_path: Path, lake: Path) -> Iterator[Catalog]:
    """The catalog whose database will be lost."""
    with dl.connect(tmp_path / "lost.db", warehouse=str(lake), actor="ann") as cat:
        yield cat


@pytest.fixture
def cat(target: str, lake: Path) -> Iterator[Catalog]:
    """A new, empty database."""
    with dl.connect(target, warehouse=str(lake)) as cat:
        yield cat


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64())})


def told(cat: Catalog) -> dict[str, Any]:
    """All that a rebuilt catalog must tell as the lost one did."""
    told: dict[str, Any] = {"transactions": cat.sql(TRANSACTIONS).to_pylist(), "tables": cat.sql(TABLES).to_pylist()}
    for name in cat.tables():
        history = cat.history(name)
        told[name] = [(one["version"], one.get("txnId"), one["timestamp"], one["operation"]) for one in history]
    return told


TRANSACTIONS = "select txn_id, committed_at_ms, actor, message from dl_transactions order by committed_at_ms, txn_id"
TABLES = (
    "select table_id, table_uuid, namespace, name, location, mode, state from dl_tables "
    "where until_ms = 9223372036854775807 order by table_id"
)


def test_a_catalog_is_rebuilt_with_names_ids_versions_and_transactions(lost: Catalog, cat: Catalog, lake: Path) -> None:
    lost.create_table("sales.orders", "id long")
    lost.create_table("sales.items", "id long")
    with lost.begin(message="both") as tx:
        tx.write("sales.orders", rows(1, 2), mode="append")
        tx.write("sales.items", rows(3), mode="append")
    both = tx.txn_id
    write_rows(lake / "promoted", 7)
    lost.import_table(lake / "promoted", "other.imported")
    with lost.begin() as tx:
        tx.write("other.imported", rows(8), mode="append")
    before = told(lost)
    files = {path: path.read_bytes() for path in lake.rglob("*.json")}
    rebuilt = cat.rebuild(lake)
    assert sorted(one.table.full_name for one in rebuilt.tables) == ["other.imported", "sales.items", "sales.orders"]
    assert told(cat) == before
    assert {path: path.read_bytes() for path in lake.rglob("*.json")} == files, "nothing was written"
    assert len(cat.sql(f"select * from dl_table_versions where txn_id = '{both}'")) == 2
    assert [report.drift for report in (cat.validate(name) for name in cat.tables())] == [None, None, None]


def test_a_rebuilt_catalog_goes_on_where_the_lost_one_stopped(lost: Catalog, cat: Catalog, lake: Path) -> None:
    lost.create_table("a", "id long")
    with lost.begin() as tx:
        tx.write("a", rows(1), mode="append")
    lost.close()
    rebuilt = cat.rebuild(lake)
    with cat.begin() as tx:
        tx.write("a", rows(2), mode="append")
        tx.create_table("b", "id long")
    assert read_ids(cat.table("a").table_uri) == [1, 2]
    assert cat.table("b").version() == 0
    ids = cat.sql(
        "select table_id, catalog_id from dl_tables, dl_catalog where until_ms = 9223372036854775807"
    ).to_pylist()
    assert sorted(row["table_id"] for row in ids) == [1, 2], "ids are handed out from where the lost catalog was"
    assert {row["catalog_id"] for row in ids} == {rebuilt.catalog_id}
    with pytest.raises(deltalake.exceptions.DeltaError, match=FEATURE):
        write_rows(cat.table("b").table_uri, 9)


def test_the_past_of_names_and_versions_is_rebuilt(lost: Catalog, cat: Catalog, lake: Path) -> None:
    lost.create_table("first", "id long")
    with lost.begin() as tx:
        tx.write("first", rows(1), mode="append")
    then = tx.txn_id
    lost.rename_table("first", "second")
    with lost.begin() as tx:
        tx.write("second", rows(2), mode="append")
    expected = [
        (lost.at(one).tables(), lost.at(one).table(lost.at(one).tables()[0]).version()) for one in (then, tx.txn_id)
    ]
    cat.rebuild(lake)
    for instant, (names, version) in zip((then, tx.txn_id), expected, strict=True):
        view = cat.at(instant)
        assert (view.tables(), view.table(names[0]).version()) == (names, version)
    assert cat.tables() == ["default.second"]


def test_a_database_that_is_not_empty_is_refused(lost: Catalog, cat: Catalog, lake: Path) -> None:
    lost.create_table("a", "id long")
    cat.create_table("mine", "id long", location=lake.parent / "elsewhere")
    with pytest.raises(TableExistsError, match="not empty: it knows 1 tables.*Rebuild into a new database"):
        cat.rebuild(lake)
    assert cat.tables() == ["default.mine"]


def test_several_catalogs_are_told_apart_by_take_over(lost: Catalog, cat: Catalog, lake: Path, tmp_path: Path) -> None:
    lost.create_table("a", "id long")
    with dl.connect(tmp_path / "second.db", warehouse=str(lake / "two")) as second:
        second.create_table("b", "id long")
        wanted = second.sql("select catalog_id from dl_catalog").to_pylist()[0]["catalog_id"]
    with pytest.raises(DeltaError, match="several catalogs.*--take-over"):
        cat.rebuild(lake)
    with pytest.raises(DeltaError, match="catalog nobody"):
        cat.rebuild(lake, take_over="nobody")
    assert cat.tables() == []
    rebuilt = cat.rebuild(lake, take_over=wanted)
    assert (cat.tables(), rebuilt.catalog_id) == (["default.b"], wanted)
    assert [one.reason for one in rebuilt.left_out if "another catalog" in one.reason] != []


def test_tables_of_others_are_left_out_and_said(lost: Catalog, cat: Catalog, lake: Path) -> None:
    lost.create_table("a", "id long")
    write_rows(lake / "foreign", 1)
    lost.create_table("gone", "id long")
    lost.detach_table("gone")
    rebuilt = cat.rebuild(lake)
    assert cat.tables() == ["default.a"]
    assert len(rebuilt.left_out) == 2
    assert {one.reason for one in rebuilt.left_out} == {"not managed by a catalog"}


def test_nothing_of_ours_is_said_so(cat: Catalog, lake: Path) -> None:
    write_rows(lake / "foreign", 1)
    with pytest.raises(DeltaError, match="no table below .* is managed.*--recursive"):
        cat.rebuild(lake)


def test_a_copy_of_a_table_is_refused(lost: Catalog, cat: Catalog, lake: Path) -> None:
    lost.create_table("a", "id long")
    location = Path(lost.table("a").table_uri.removeprefix("file://"))
    shutil.copytree(location, lake / "copy")
    with pytest.raises(DeltaError, match="are the same table .*one is a copy"):
        cat.rebuild(lake)
    assert cat.tables() == []


def test_a_log_that_was_cleaned_up_is_rebuilt_from_its_checkpoint(lost: Catalog, cat: Catalog, lake: Path) -> None:
    lost.create_table("a", "id long")
    for number in range(11):
        with lost.begin() as tx:
            tx.write("a", rows(number), mode="append")
    lost.mirror.flush(30)
    location = Path(lost.table("a").table_uri.removeprefix("file://"))
    assert (location / "_delta_log" / f"{10:020d}.checkpoint.parquet").exists()
    expected = lost.at(tx.txn_id).table("a").version()
    for version in range(10):
        (location / "_delta_log" / f"{version:020d}.json").unlink()
    cat.rebuild(lake)
    assert (cat.table("a").version(), cat.at(tx.txn_id).table("a").version()) == (11, expected)
    assert cat.table("a").protocol().writer_features != ["deltalakedb"]
    with cat.begin() as tx:
        tx.write("a", rows(100), mode="append")
    assert read_ids(location) == [*range(11), 100]
    assert cat.validate("a").drift is None


def test_a_table_that_cannot_be_read_is_left_out_and_said(lost: Catalog, cat: Catalog, lake: Path) -> None:
    lost.create_table("a", "id long")
    lost.create_table("b", "id long")
    with lost.begin() as tx:
        tx.write("b", rows(1), mode="append")
    location = Path(lost.table("b").table_uri.removeprefix("file://"))
    tip = location / "_delta_log" / f"{1:020d}.json"
    tip.write_text(tip.read_text() + '{"add":{"path":1}}\n')
    rebuilt = cat.rebuild(lake)
    assert [one.location for one in rebuilt.left_out] == [lost.table("b").table_uri.rstrip("/")]
    assert "version 1" in rebuilt.left_out[0].reason
    assert cat.tables() == ["default.a"]
    assert len(log_bytes(location)) == 2


def test_a_rebuild_killed_in_the_middle_leaves_the_database_empty(lost: Catalog, target: str, lake: Path) -> None:
    lost.create_table("a", "id long")
    lost.create_table("b", "id long")
    before = told(lost)
    kill_at("rebuild.written", target, "cat.rebuild(sys.argv[3])", str(lake))
    with dl.connect(target) as cat:
        assert (cat.tables(), len(cat.sql("select * from dl_table_versions"))) == ([], 0)
        cat.rebuild(lake)
        assert told(cat) == before


def test_mirrors_on_s3_are_rebuilt(tmp_path: Path, cat: Catalog, s3: S3) -> None:
    with dl.connect(tmp_path / "on-s3.db") as lost:
        for name in ("a", "b"):
            lost.create_table(name, "id long", location=s3.uri(f"lake/{name}"), storage_options=s3.storage_options)
        before = told(lost)
    cat.rebuild(s3.uri("lake"), storage_options=s3.storage_options)
    assert told(cat) == before
