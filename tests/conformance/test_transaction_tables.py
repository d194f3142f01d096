"""Tables made, renamed, changed and dropped by transactions, and by the catalog; on every engine."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import deltalake
import pyarrow as pa
import pytest

from deltalakedb import Catalog, CatalogTransaction
from deltalakedb.exceptions import (
    ConfigError,
    DeltaError,
    InvalidCommitError,
    LocationOwnedError,
    NameChangedError,
    NotWritableError,
    SchemaMismatchError,
    TableExistsError,
    TableNotFoundError,
)
from deltalakedb.schema import PrimitiveType
from tests.conformance.transacting import days, ids_in, log_files, numbers, open_catalog, operations, row_counts


@pytest.fixture
def catalog(target: str, tmp_path: Path) -> Iterator[Catalog]:
    with open_catalog(target, tmp_path) as opened:
        yield opened


def mirrored(catalog: Catalog, name: str) -> deltalake.DeltaTable:
    """The table as an unmodified reader finds it in its files."""
    return deltalake.DeltaTable(catalog.table(name).table_uri)


# -- create


def test_a_new_table_is_the_plainest_that_its_columns_allow(catalog: Catalog, tmp_path: Path) -> None:
    table = catalog.create_table("sales.orders", "id long not null, day date", partition_by="day", description="what")
    assert (table.version(), table.mode, table.count()) == (0, "managed", 0)
    assert (table.protocol().min_reader_version, table.protocol().min_writer_version) == (1, 2)
    assert table.metadata().partition_columns == ["day"]
    assert table.table_uri == (tmp_path / "lake/sales/orders").as_uri() + "/"
    seen = mirrored(catalog, "sales.orders")
    assert (seen.version(), seen.metadata().description, seen.metadata().partition_columns) == (0, "what", ["day"])
    assert seen.protocol().min_reader_version == 1
    assert "deltalakedb" in (seen.protocol().writer_features or []), "the mirror is fenced"
    assert [field.nullable for field in catalog.table("sales.orders").schema().fields] == [False, True]


@pytest.mark.parametrize(
    "schema",
    [
        "id long, at timestamp",
        pa.schema([("id", pa.int64()), ("at", pa.timestamp("us", "UTC"))]),
        '{"type":"struct","fields":[{"name":"id","type":"long","nullable":true,"metadata":{}},'
        '{"name":"at","type":"timestamp","nullable":true,"metadata":{}}]}',
        deltalake.Schema.from_json(
            '{"type":"struct","fields":[{"name":"id","type":"long","nullable":true,"metadata":{}},'
            '{"name":"at","type":"timestamp","nullable":true,"metadata":{}}]}'
        ),
    ],
    ids=["text", "arrow", "json", "deltalake"],
)
def test_columns_may_be_given_in_any_form(catalog: Catalog, schema: object) -> None:
    made = catalog.create_table("t", schema)
    assert [(field.name, field.type) for field in made.schema().fields] == [
        ("id", PrimitiveType("long")),
        ("at", PrimitiveType("timestamp")),
    ]


def test_features_come_only_with_what_needs_them(catalog: Catalog) -> None:
    ntz = catalog.create_table("ntz", "at timestamp_ntz").protocol()
    assert (ntz.min_reader_version, ntz.min_writer_version) == (3, 7)
    assert (ntz.reader_features, ntz.writer_features) == (["timestampNtz"], ["timestampNtz"])
    mapped = catalog.create_table(
        "mapped", "id long, s struct<a: long>", properties={"delta.columnMapping.mode": "name"}
    )
    assert (mapped.protocol().min_reader_version, mapped.protocol().min_writer_version) == (2, 5)
    assert mapped.metadata().configuration["delta.columnMapping.maxColumnId"] == "3"
    names = [field.metadata["delta.columnMapping.physicalName"] for field in mapped.schema().fields]
    assert all(name.startswith("col-") for name in names)
    feed = catalog.create_table("feed", "id long", properties={"delta.enableChangeDataFeed": True})
    assert (feed.protocol().min_reader_version, feed.protocol().min_writer_version) == (1, 4)
    asked = catalog.create_table("asked", "id long", properties={"delta.feature.deletionVectors": "supported"})
    assert asked.protocol().reader_features == ["deletionVectors"]
    assert asked.metadata().configuration == {}
    with pytest.raises(ConfigError, match="set both"):
        catalog.create_table("x", "id long", properties={"delta.minReaderVersion": "3"})


def test_column_mapping_holds_for_what_is_written_and_added_later(catalog: Catalog) -> None:
    catalog.create_table("t", "id long", properties={"delta.columnMapping.mode": "name"})
    with catalog.begin() as tx:
        tx.write("t", numbers(1), mode="append")
        tx.add_columns("t", "note string")
        tx.write("t", pa.table({"id": [2], "note": ["hi"]}), mode="append")
        assert tx.table("t").to_pyarrow_table(filters="note = 'hi'").to_pylist() == [{"id": 2, "note": "hi"}]
    table = catalog.table("t")
    assert table.metadata().configuration["delta.columnMapping.maxColumnId"] == "2"
    assert sorted(table.to_pyarrow_table().to_pylist(), key=str) == [{"id": 1, "note": None}, {"id": 2, "note": "hi"}]


def test_two_who_create_the_same_table_find_one_winner(target: str, tmp_path: Path, catalog: Catalog) -> None:
    catalog.tables()

    def create(number: int) -> str:
        with open_catalog(target, tmp_path, mirror_mode="off") as mine:
            try:
                mine.create_table("sales.orders", f"id long, c{number} string")
                return "made"
            except TableExistsError as error:
                return str(error)

    with ThreadPoolExecutor(4) as pool:
        outcomes = list(pool.map(create, range(4)))
    assert outcomes.count("made") == 1
    assert all("sales.orders" in text or "lake/sales/orders" in text for text in outcomes if text != "made")
    assert catalog.table("sales.orders").version() == 0
    assert len([row for row in catalog.audit() if row["action"] == "create"]) == 1


def test_a_creation_that_lost_takes_nothing_of_its_transaction_with_it(catalog: Catalog) -> None:
    tx = catalog.begin()
    tx.create_table("a", "id long")
    tx.create_table("b", "id long")
    catalog.create_table("b", "other string")
    before = row_counts(catalog)
    with pytest.raises(TableExistsError, match=r"default\.b|lake/default/b"):
        tx.commit()
    assert row_counts(catalog) == before
    assert catalog.tables() == ["default.b"]


def test_an_existing_table_is_not_created_again(catalog: Catalog) -> None:
    catalog.create_table("sales.orders", "id long")
    with pytest.raises(TableExistsError, match="exists already"):
        catalog.create_table("SALES.Orders", "id long")
    assert catalog.create_table("sales.orders", "other string", mode="ignore").schema().names == ("id",)
    assert catalog.create_table("sales.orders", "no such type", mode="ignore").schema().names == ("id",)
    with pytest.raises(ConfigError, match="error or ignore"):
        catalog.create_table("sales.orders", "id long", mode="overwrite")  # type: ignore[arg-type]


def test_a_table_of_others_is_not_created_over(catalog: Catalog, tmp_path: Path) -> None:
    place = tmp_path / "elsewhere"
    deltalake.write_deltalake(place, numbers(1))
    before = row_counts(catalog)
    for _ in range(2):
        with (
            pytest.raises(TableExistsError, match=r"a Delta table is there already.*dl import"),
            catalog.begin() as tx,
        ):
            tx.write("t", numbers(2), mode="append", location=place)
    with pytest.raises(SchemaMismatchError, match="its columns are id long"):
        catalog.create_table("t", "id string", location=place)
    assert row_counts(catalog) == before
    assert deltalake.DeltaTable(place).version() == 0


def test_a_table_created_where_one_is_already_is_attached_and_its_first_write_promotes_it(
    catalog: Catalog, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    place = tmp_path / "elsewhere"
    deltalake.write_deltalake(place, numbers(1))
    assert catalog.create_table("t", "id long", location=place).mode == "follower"
    deltalake.write_deltalake(place, numbers(2), mode="append")
    with catalog.begin() as tx:
        tx.write("t", numbers(3), mode="append")
        assert sorted(tx.table("t").to_pyarrow_table().column("id").to_pylist()) == [1, 2, 3]
        tx.write("t", numbers(4), mode="append")
    assert [record.message for record in caplog.records if "from now on" in record.message] != []
    assert sorted(catalog.table("t").to_pyarrow_table().column("id").to_pylist()) == [1, 2, 3, 4]
    assert deltalake.DeltaTable(place).version() == catalog.table("t").version() == 4
    assert [entry["action"] for entry in catalog.audit(table="t")] == ["promote", "attach"]
    with pytest.raises(deltalake.exceptions.DeltaError):
        deltalake.write_deltalake(place, numbers(5), mode="append")


def test_a_promotion_by_a_write_stays_when_the_transaction_does_not_commit(catalog: Catalog, tmp_path: Path) -> None:
    place = tmp_path / "elsewhere"
    deltalake.write_deltalake(place, numbers(1))
    catalog.create_table("t", location=place)
    tx = catalog.begin()
    tx.write("t", numbers(2), mode="append")
    tx.rollback()
    assert catalog.table("t").mode == "managed"
    assert catalog.table("t").to_pyarrow_table().column("id").to_pylist() == [1]


def test_a_location_has_one_owner(catalog: Catalog, tmp_path: Path) -> None:
    catalog.create_table("a", "id long", location=tmp_path / "here")
    (tmp_path / "link").symlink_to(tmp_path / "here")
    for spelled in (tmp_path / "here", tmp_path / "link", (tmp_path / "here").as_uri()):
        with pytest.raises(TableExistsError, match=r"default\.a"):
            catalog.create_table("b", "id long", location=spelled)


def test_the_folder_of_a_renamed_table_is_not_taken_by_the_next_of_its_name(catalog: Catalog, tmp_path: Path) -> None:
    catalog.create_table("s.t", "id long")
    catalog.rename_table("s.t", "s.old")
    second = catalog.create_table("s.t", "id long")
    assert second.table_uri != catalog.table("s.old").table_uri
    assert Path(second.table_uri.removeprefix("file://")).parent == tmp_path / "lake/s"


def test_namespaces_are_one_folder_each_so_that_no_table_lies_in_another(catalog: Catalog) -> None:
    outer, inner = catalog.create_table("eu.sales", "id long"), catalog.create_table("eu.sales.orders", "id long")
    assert not inner.table_uri.startswith(outer.table_uri)


def test_without_a_warehouse_a_location_must_be_given(target: str, catalog: Catalog, tmp_path: Path) -> None:
    import deltalakedb

    catalog.tables()
    with deltalakedb.connect(target) as bare:
        with pytest.raises(ConfigError, match="warehouse"):
            bare.create_table("t", "id long")
        assert bare.create_table("t", "id long", location=tmp_path / "t").version() == 0


# -- rename, properties, columns


def test_statements_find_a_renamed_table_under_its_new_name(catalog: Catalog) -> None:
    with catalog.begin() as tx:
        tx.write("s.a", pa.table({"id": [1, 2, 3]}))
    with catalog.begin() as tx:
        tx.rename_table("s.a", "s.b")
        table = tx.table("s.b")
        assert table.name == "s.b"
        table.delete("id = 1")
        tx.write("s.b", pa.table({"id": [9]}), mode="append")
    assert sorted(catalog.table("s.b").to_pyarrow_table()["id"].to_pylist()) == [2, 3, 9]


def test_a_rename_is_a_version_so_that_the_files_know_the_name(catalog: Catalog) -> None:
    catalog.create_table("sales.orders", "id long")
    catalog.rename_table("sales.orders", "archive.orders")
    assert catalog.tables() == ["archive.orders"]
    table = catalog.table("archive.orders")
    assert (table.version(), operations(catalog, "archive.orders")) == (1, ["CREATE TABLE", "RENAME TABLE"])
    info = mirrored(catalog, "archive.orders").history()[0]
    mark = info["deltalakedb"] if isinstance(info["deltalakedb"], dict) else json.loads(info["deltalakedb"])
    assert mark["table"] == "archive.orders"
    with catalog.begin() as tx:
        tx.rename_table("archive.orders", "a.b")
        tx.write("a.b", numbers(1), mode="append")
        tx.create_table("archive.orders", "id long, note string")
    assert tx.result == {"a.b": 3, "archive.orders": 0}
    assert ids_in(catalog, "a.b") == [1]


def test_a_name_that_is_taken_cannot_be_given(catalog: Catalog) -> None:
    catalog.create_table("a", "id long")
    catalog.create_table("b", "id long")
    with pytest.raises(TableExistsError, match=r"default\.b"):
        catalog.rename_table("a", "B")
    with catalog.begin() as tx:
        tx.rename_table("a", "A")
    assert catalog.tables() == ["default.A", "default.b"]


def test_properties_are_set_and_raise_the_protocol_where_they_must(catalog: Catalog) -> None:
    catalog.create_table("t", "id long", properties={"a": "1"})
    catalog.set_properties("t", {"b": 2, "delta.enableDeletionVectors": True})
    table = catalog.table("t")
    assert table.metadata().configuration == {"a": "1", "b": "2", "delta.enableDeletionVectors": "true"}
    assert table.protocol().reader_features == ["deletionVectors"]
    assert operations(catalog, "t")[-1] == "SET TBLPROPERTIES"
    catalog.set_properties("t", {"a": "1"})
    assert catalog.table("t").version() == 1, "what changes nothing is no version"
    with pytest.raises(ConfigError, match="no property"):
        catalog.set_properties("t", {})
    with pytest.raises(InvalidCommitError, match="only from none to name"):
        catalog.set_properties("t", {"delta.columnMapping.mode": "id"})


def test_row_tracking_can_be_turned_on_only_while_a_table_is_empty(catalog: Catalog) -> None:
    catalog.create_table("t", "id long")
    with catalog.begin() as tx:
        tx.write("t", numbers(1), mode="append")
        with pytest.raises(InvalidCommitError, match="only while the table is empty"):
            tx.set_properties("t", {"delta.enableRowTracking": True})
    catalog.create_table("empty", "id long")
    catalog.set_properties("empty", {"delta.enableRowTracking": True})
    with catalog.begin() as tx:
        tx.write("empty", numbers(1, 2), mode="append")
        tx.write("empty", numbers(3), mode="append")
    assert sorted(catalog.table("empty").files(["base_row_id"]).column("base_row_id").to_pylist()) == [0, 2]


def test_columns_are_added_at_the_end_and_must_be_nullable(catalog: Catalog) -> None:
    catalog.create_table("t", "id long")
    with catalog.begin() as tx:
        tx.add_columns("t", "note string")
        tx.add_columns("t", [pa.field("at", pa.date32())])
        tx.add_columns("t", pa.schema([("x", pa.float64())]))
        with pytest.raises(SchemaMismatchError, match="must be nullable"):
            tx.add_columns("t", "must long not null")
        with pytest.raises(SchemaMismatchError, match="Duplicate field name"):
            tx.add_columns("t", "NOTE long")
    catalog.add_columns("t", "y long")
    assert catalog.table("t").schema().names == ("id", "note", "at", "x", "y")
    assert [column.name for column in mirrored(catalog, "t").schema().fields] == ["id", "note", "at", "x", "y"]


# -- drop


def test_a_dropped_table_whose_location_was_given_leaves_its_files_to_any_writer(
    catalog: Catalog, tmp_path: Path
) -> None:
    with catalog.begin() as tx:
        tx.write("t", numbers(1), mode="append", location=tmp_path / "mine")
    place = catalog.table("t").table_uri
    catalog.drop_table("t")
    assert catalog.tables() == []
    deltalake.write_deltalake(place, numbers(2), mode="append")
    assert sorted(deltalake.DeltaTable(place).to_pyarrow_table().column("id").to_pylist()) == [1, 2]
    with pytest.raises(TableExistsError, match="dl import"), catalog.begin() as tx:
        tx.create_table("t", "id long", location=place)
    assert catalog.import_table(place, "t").version() == 3


def test_a_drop_in_a_transaction_takes_the_fence_off_too(catalog: Catalog, tmp_path: Path) -> None:
    with catalog.begin() as tx:
        tx.write("t", numbers(1), mode="append", location=tmp_path / "mine")
        tx.create_table("kept", "id long")
    place = catalog.table("t").table_uri
    with catalog.begin() as tx:
        tx.drop_table("t")
        with pytest.raises(TableNotFoundError):
            tx.table("t")
        tx.write("kept", numbers(5), mode="append")
    assert catalog.tables() == ["default.kept"]
    assert deltalake.DeltaTable(place).protocol().writer_features is None
    assert deltalake.DeltaTable(place).history()[0]["operation"] == "DROP TABLE"


def test_a_purge_deletes_the_files_after_the_commit(catalog: Catalog, tmp_path: Path) -> None:
    with catalog.begin() as tx:
        tx.write("s.t", days((1, "mon")), mode="append", partition_by="day")
    with catalog.begin() as tx:
        tx.drop_table("s.t", purge=True)
        assert log_files(tmp_path / "lake/s/t"), "nothing is deleted before the commit"
        tx.rollback()
    assert ids_in(catalog, "s.t") == [1]
    catalog.drop_table("s.t", purge=True)
    assert not (tmp_path / "lake/s/t").exists()
    assert catalog.create_table("s.t", "id long").version() == 0


def test_the_owner_of_a_location_is_named_as_it_is_called_now(catalog: Catalog, tmp_path: Path) -> None:
    catalog.create_table("a", "id long", location=tmp_path / "here")
    catalog.rename_table("a", "s.b")
    with pytest.raises(LocationOwnedError, match=r"belongs to the table s\.b;"):
        catalog.create_table("c", "id long", location=tmp_path / "here")


def test_locations_do_not_contain_each_other(catalog: Catalog, tmp_path: Path) -> None:
    catalog.create_table("middle", "id long", location=tmp_path / "o/m")
    for inside_or_around in ("o", "o/m/i"):
        with pytest.raises(LocationOwnedError, match=r"default\.middle.*must not contain each other"):
            catalog.create_table("other", "id long", location=tmp_path / inside_or_around)
    catalog.create_table("beside", "id long", location=tmp_path / "o/m2")
    assert catalog.tables() == ["default.beside", "default.middle"]


def test_what_is_created_and_dropped_in_one_transaction_was_never_there(catalog: Catalog, tmp_path: Path) -> None:
    before = row_counts(catalog)
    with catalog.begin() as tx:
        tx.write("t", numbers(1), mode="append")
        tx.drop_table("t")
    assert row_counts(catalog) == before
    assert list(tmp_path.rglob("*.parquet")) == []


# -- what is not ours to write


def test_followers_are_read_and_not_written(catalog: Catalog, tmp_path: Path) -> None:
    deltalake.write_deltalake(tmp_path / "f", numbers(1))
    catalog.attach_table(tmp_path / "f", "f")
    before = row_counts(catalog)
    statements: tuple[Callable[[CatalogTransaction], None], ...] = (
        lambda tx: tx.write("f", numbers(2), mode="append"),
        lambda tx: tx.set_properties("f", {"a": "b"}),
        lambda tx: tx.add_columns("f", "note string"),
        lambda tx: tx.commit_actions("f", []),
    )
    for statement in statements:
        with pytest.raises(NotWritableError, match=r"default\.f is a follower.*dl promote"), catalog.begin() as tx:
            statement(tx)
    with pytest.raises(DeltaError, match="belong to others"):
        catalog.drop_table("f", purge=True)
    assert row_counts(catalog) == before
    with catalog.begin() as tx:
        assert tx.table("f").count() == 1
        tx.rename_table("f", "g")
        tx.write("mine", numbers(1), mode="append")
    assert catalog.tables() == ["default.g", "default.mine"]


@pytest.mark.parametrize("state", ["frozen", "detaching"])
def test_a_table_that_takes_no_commits_says_what_ends_that(catalog: Catalog, state: str) -> None:

    from deltalakedb.store import registry

    catalog.create_table("t", "id long")
    late = catalog.begin()
    late.write("t", numbers(1), mode="append")
    with catalog.store.write() as conn:
        row = registry.resolve_table(conn, "default", "t")
        assert row is not None
        registry.change_table(conn, row.table_id, at_ms=conn.now_ms(), state=state)
    with pytest.raises(NotWritableError, match=rf"default\.t is {state}.*dl mirror"), catalog.begin() as tx:
        tx.write("t", numbers(1), mode="append")
    with pytest.raises(NotWritableError, match=rf"default\.t is {state}"):
        late.commit()
    assert catalog.table("t").version() == 0


def test_a_table_dropped_meanwhile_is_not_written(catalog: Catalog) -> None:
    catalog.create_table("t", "id long")
    tx = catalog.begin()
    tx.write("t", numbers(1), mode="append")
    catalog.drop_table("t")
    with pytest.raises(NameChangedError, match=r"default\.t was dropped"):
        tx.commit()


def test_a_detached_table_is_not_written(catalog: Catalog) -> None:
    from deltalakedb.catalog.entries import require_table
    from deltalakedb.mirror.detach import detach
    from deltalakedb.store.names import parse_table_name

    catalog.create_table("t", "id long")
    tx = catalog.begin()
    tx.write("t", numbers(1), mode="append")
    with catalog.store.read() as conn:
        row = require_table(conn, parse_table_name("t"))
    detach(catalog.store, row, catalog.mirror)
    with pytest.raises(NotWritableError, match=r"default\.t"):
        tx.commit()
    with pytest.raises(NotWritableError, match="is detached.*dl promote"), catalog.begin() as again:
        again.write("t", numbers(1), mode="append")
    catalog.drop_table("t")
    assert catalog.tables() == []
