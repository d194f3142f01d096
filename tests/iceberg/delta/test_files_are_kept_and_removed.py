"""Files for Iceberg clients follow the history: lost files, versions taken back, `dl gc`, a purge, other ids."""

import json
import os
from dataclasses import replace

import pytest

from deltalakedb import Catalog
from deltalakedb.catalog.entries import require_table
from deltalakedb.exceptions import MissingFileError, NotSayableInIcebergError
from deltalakedb.iceberg.catalog import IcebergCatalog
from deltalakedb.iceberg.delta.cleaning import clean_up, lost_files
from deltalakedb.iceberg.delta.generated_files import GeneratedFiles
from deltalakedb.store import registry
from deltalakedb.store.delta_manifests import forget_all_lists, kept_files
from deltalakedb.store.gc import Retention, collect_garbage
from deltalakedb.store.iceberg_delta import VectorCopy, write_format, write_vector_copies
from deltalakedb.store.names import parse_table_name
from deltalakedb.store.registry import TableRow
from deltalakedb.store.rewind import rewind
from tests.conformance.transacting import ids_in
from tests.conformance.transacting import numbers as numbers_of
from tests.iceberg.delta.appending import Lake
from tests.iceberg.delta.lake import NAME, add, commit, create, files_in, folder, lists, load, numbers, remove


@pytest.fixture
def table(catalog: Catalog) -> Catalog:
    create(catalog)
    return catalog


def row_of(table: Catalog) -> TableRow:
    with table.store.read() as conn:
        return require_table(conn, parse_table_name("shop.t"))


def clean(table: Catalog, *, grace_ms: int = -1) -> int:
    with table.store.read() as conn:
        now_ms = conn.now_ms()
    return clean_up(table.store, row_of(table), None, now_ms=now_ms, grace_ms=grace_ms - 60_000)


def test_an_older_version_that_lost_files_is_not_shown(table: Catalog) -> None:
    uncounted = replace(add(7), stats=None)  # its rows are counted in its file, which is not there
    commit(table, add(1))
    commit(table, uncounted)
    commit(table, add(2), remove(1))
    with pytest.raises(MissingFileError):
        load(table)
    commit(table, remove(7), add(3))
    paths = lists(load(table))
    assert {version: numbers(path) for version, path in paths.items()} == {0: [], 1: [1], 4: [2, 3]}
    loaded = load(table)
    assert [item.get("parent-snapshot-id") for item in loaded.metadata["snapshots"]] == [
        None,
        *(item["snapshot-id"] for item in loaded.metadata["snapshots"][:-1]),
    ]
    assert set(loaded.metadata["refs"]) == {"main", "v0", "v1", "v4"}
    commit(table, add(5))
    assert numbers(lists(load(table))[5]) == [2, 3, 5]


def test_versions_that_were_taken_back_get_other_lists(table: Catalog) -> None:
    for number in range(4):
        commit(table, add(number))
    before = lists(load(table))
    row = row_of(table)
    with table.store.write() as conn:
        head = registry.lock_head(conn, row.table_id)
        assert head is not None
        rewind(conn, row, head, 2)
    commit(table, add(10), remove(0))
    paths = lists(load(table))
    assert {version: numbers(path) for version, path in paths.items()} == {0: [], 1: [0], 2: [0, 1], 3: [1, 10]}
    assert {version: paths[version] == before[version] for version in paths} == {0: True, 1: True, 2: True, 3: False}


def test_versions_that_replace_others_are_looked_at_again(catalog: Catalog) -> None:
    properties = {"delta.enableDeletionVectors": "true"}
    for number in range(2):
        with catalog.begin() as tx:
            tx.write("shop.t", numbers_of(number, number + 10), mode="append", configuration=properties)
    served = IcebergCatalog(catalog)
    assert served.load_table(NAME).metadata["format-version"] == 2
    row = row_of(catalog)
    with catalog.store.write() as conn:
        head = registry.lock_head(conn, row.table_id)
        assert head is not None
        rewind(conn, row, head, 0)
    catalog.table("shop.t").delete("id = 10")  # by a deletion vector, at the version that the process has seen
    assert served.load_table(NAME).metadata["format-version"] == 3
    assert catalog.iceberg("shop.t").scan().to_arrow()["id"].to_pylist() == [0]


def test_columns_that_get_other_ids_are_refused_because_files_may_have_the_first(table: Catalog) -> None:
    commit(table, add(1))
    load(table)
    metadata = table.table("shop.t")._snapshot.metadata
    schema = json.loads(metadata.schema_string)
    for field, number in zip(schema["fields"], (8, 9), strict=True):
        field["metadata"] = {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": field["name"]}
    configuration = {
        **metadata.configuration,
        "delta.columnMapping.mode": "name",
        "delta.columnMapping.maxColumnId": "9",
    }
    protocol = replace(table.table("shop.t")._snapshot.protocol, min_reader_version=2, min_writer_version=5)
    commit(table, protocol, replace(metadata, schema_string=json.dumps(schema), configuration=configuration))
    with pytest.raises(NotSayableInIcebergError, match="the column p was field 2, and is field 9") as error:
        load(table)
    assert len(error.value.problems) == 2


def test_gc_removes_what_no_kept_version_needs(table: Catalog) -> None:
    for number in range(6):
        commit(table, add(number), *([remove(number - 1)] if number else []))
    load(table)
    place = folder(table)
    (place / "snap-0-crashed.avro").write_bytes(b"rest")
    everything = files_in(place)
    assert clean(table, grace_ms=3_600_000) == 0
    assert files_in(place) == everything
    row = row_of(table)
    with table.store.write() as conn:
        conn.run("mark_vacuumed", table_id=row.table_id, version=5)
    assert clean(table) > 0
    paths = lists(load(table))
    assert {version: numbers(path) for version, path in paths.items()} == {5: [4], 6: [5]}
    left = files_in(place)
    assert {path.rpartition("/")[2] for path in paths.values()} < left
    assert "snap-0-crashed.avro" not in left
    assert len(left) == 2 + 2 + 2
    commit(table, add(10))
    assert numbers(lists(load(table))[7]) == [5, 10]


@pytest.mark.parametrize("what", ["snap-*", "m-*"])
def test_gc_lets_lost_files_be_made_anew(table: Catalog, what: str) -> None:
    for number in range(3):
        commit(table, add(number))
    served = IcebergCatalog(table)
    before = lists(served.load_table(NAME))
    place = folder(table)
    lost = sorted(place.glob(what))
    for path in lost:
        path.unlink()
    assert lost_files(table.store, row_of(table), None) == [path.name for path in lost]
    table.gc()
    commit(table, add(3))
    paths = lists(served.load_table(NAME))
    assert {version: numbers(path) for version, path in paths.items()} == {
        0: [], 1: [0], 2: [0, 1], 3: [0, 1, 2], 4: [0, 1, 2, 3]
    }  # fmt: skip
    assert not set(paths.values()) & set(before.values())
    assert lost_files(table.store, row_of(table), None) == []


def test_lists_are_not_made_from_manifests_that_were_forgotten(table: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process forgets all lists while the next one is written."""
    commit(table, add(1))
    load(table)
    commit(table, add(2))
    table_id, write = row_of(table).table_id, GeneratedFiles.sync

    def forget_and_sync(files: GeneratedFiles) -> None:
        monkeypatch.undo()
        with table.store.write() as conn:
            forget_all_lists(conn, table_id)
        write(files)

    monkeypatch.setattr(GeneratedFiles, "sync", forget_and_sync)
    assert {version: numbers(path) for version, path in lists(load(table)).items()} == {0: [], 1: [1], 2: [1, 2]}


def test_lists_start_anew_where_the_history_was_cut(table: Catalog) -> None:
    for number in range(3):
        commit(table, add(number))
    load(table)
    for number in range(3, 8):
        commit(table, add(number), remove(number - 3))
    ids = {"table_id": row_of(table).table_id, "version": 7}
    with table.store.write() as conn:
        conn.run("advance_base", **ids)
        conn.run("mark_base", **ids)
        conn.run("delete_versions_before", **ids)
        conn.run("delete_dead_files", table_id=ids["table_id"], base=7, max_rows=1_000)
    paths = lists(load(table))
    assert {version: numbers(path) for version, path in paths.items()} == {7: [4, 5, 6], 8: [5, 6, 7]}


def test_a_purge_deletes_them(table: Catalog) -> None:
    commit(table, add(1))
    load(table)
    place = folder(table)
    assert files_in(place)
    table.drop_table("shop.t", purge=True)
    assert not place.exists()


def test_gc_removes_what_clients_wrote_for_their_appends(catalog: Catalog, lake: Lake) -> None:
    with catalog.begin() as tx:
        tx.write("shop.t", numbers_of(1))
    lake.load("t").append(numbers_of(2))
    lake.load("t").append(numbers_of(3))
    place = folder(catalog)
    ours = {path.rpartition("/")[2] for path in kept(catalog)} | {path.name for path in place.glob("*.metadata.json")}
    theirs = files_in(place) - ours
    assert len(theirs) == 4  # of each append a manifest and a list
    catalog.gc()
    assert theirs < files_in(place)
    for path in place.iterdir():
        os.utime(path, (1_700_000_000, 1_700_000_000))
    catalog.gc()
    assert files_in(place) == ours
    assert ids_in(catalog, "shop.t") == sorted(lake.load("t").scan().to_arrow()["id"].to_pylist()) == [1, 2, 3]


def test_gc_forgets_all_of_a_dropped_table(table: Catalog) -> None:
    commit(table, add(1))
    load(table)
    table_id = row_of(table).table_id
    with table.store.write() as conn:
        write_format(conn, table_id)
        write_vector_copies(conn, table_id, [VectorCopy("aa", "file:///x.puffin", 1, 4, 1)])
    assert all(counts(table).values())
    table.drop_table("shop.t", purge=True)
    collect_garbage(table.store, Retention(-3_600_000, 0))
    assert not any(counts(table).values())


def kept(catalog: Catalog) -> list[str]:
    table_id = row_of(catalog).table_id
    with catalog.store.read() as conn:
        return kept_files(conn, table_id)


def counts(catalog: Catalog) -> dict[str, int]:
    """The rows of each kind that Delta tables have for Iceberg clients."""
    names = ("field_ids", "formats", "vectors", "delta_lists", "delta_manifests")
    with catalog.store.read() as conn:
        found = {name: conn.sql(f"select count(*) as number from dl_iceberg_{name}") for name in names}
    return {name: int(rows[0]["number"]) for name, rows in found.items()}
