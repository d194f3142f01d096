"""Commits of Iceberg clients that a Delta table refuses: 400 with one sentence that says why, and nothing is stored."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import deltalake
import pyarrow.parquet as pq
import pytest
from pyiceberg.exceptions import BadRequestError
from pyiceberg.manifest import DataFile, FileFormat, ManifestContent
from pyiceberg.table import Table
from pyiceberg.types import StringType

import deltalakedb as dl
from deltalakedb import Catalog
from deltalakedb.iceberg.statements import TableChange
from deltalakedb.iceberg.transaction_tables import TransactionTables
from deltalakedb.store.names import TableName
from tests.conformance.transacting import days, ids_in, numbers
from tests.fixtures.readers import Deltalake, DuckDB
from tests.iceberg.delta.appending import DELETED, EXISTING, Append, Lake, ManifestToWrite, data_files
from tests.iceberg.delta.judges import folder_of

START = "shop.t is a Delta table: Iceberg clients append rows to it, and Delta clients or `dl` change it otherwise; "


@pytest.fixture
def table(catalog: Catalog, lake: Lake) -> Table:
    """A table with the rows 1 and 2."""
    with catalog.begin() as tx:
        tx.write("shop.t", numbers(1, 2))
    return lake.load()


def refused(catalog: Catalog, lake: Lake, body: Mapping[str, Any]) -> str:
    """The sentence with which a commit is refused; the table must not change."""
    before = catalog.table("shop.t").version(), ids_in(catalog, "shop.t")
    answer = lake.post(body)
    assert answer.error == (400, "BadRequestException"), answer.body
    assert (catalog.table("shop.t").version(), ids_in(catalog, "shop.t")) == before
    return answer.message


# ---- updates


def with_update(**update: Any) -> dict[str, Any]:
    return {"requirements": [], "updates": [update]}


SNAPSHOT_1: dict[str, Any] = {"ref-name": "main", "type": "branch", "snapshot-id": 1}
FIELDS: dict[str, dict[str, Any]] = {
    "set-properties": {"updates": {"a": "b"}},
    "remove-properties": {"removals": ["a"]},
    "set-location": {"location": "file:///tmp/other"},
    "assign-uuid": {"uuid": "00000000-0000-4000-8000-000000000000"},
    "upgrade-format-version": {"format-version": 3},
    "add-schema": {"schema": {"type": "struct", "fields": []}},
    "set-current-schema": {"schema-id": -1},
    "add-spec": {"spec": {"fields": []}},
    "set-default-spec": {"spec-id": -1},
    "add-sort-order": {"sort-order": {"order-id": 1, "fields": []}},
    "set-default-sort-order": {"sort-order-id": -1},
    "remove-snapshots": {"snapshot-ids": [1]},
    "remove-snapshot-ref": {"ref-name": "main"},
    "set-statistics": {"statistics": {}},
    "remove-statistics": {"snapshot-id": 1},
    "remove-schemas": {"schema-ids": [1]},
    "remove-partition-specs": {"spec-ids": [1]},
}
UPDATES: dict[str, tuple[dict[str, Any], str]] = {
    name: ({"action": name} | fields, f"the update {name} is refused")
    for name, fields in FIELDS.items()
} | {
    "branch": ({"action": "set-snapshot-ref", **SNAPSHOT_1, "ref-name": "audit"}, "the branch audit is refused"),
    "tag": (
        {"action": "set-snapshot-ref", **SNAPSHOT_1, "ref-name": "v1", "type": "tag"},
        "the tag v1 is refused",
    ),
    "main as a tag": (
        {"action": "set-snapshot-ref", **SNAPSHOT_1, "type": "tag"},
        "a tag with the name main is refused",
    ),
    "retention": (
        {"action": "set-snapshot-ref", **SNAPSHOT_1, "max-ref-age-ms": 5},
        "the retention of snapshots of the branch main is refused",
    ),
    "rollback": (
        {"action": "set-snapshot-ref", **SNAPSHOT_1},
        "the branch main at the snapshot 1 is refused",
    ),
}  # fmt: skip


@pytest.mark.usefixtures("table")
@pytest.mark.parametrize("name", UPDATES)
def test_other_updates_are_refused(catalog: Catalog, lake: Lake, name: str) -> None:
    update, message = UPDATES[name]
    assert refused(catalog, lake, with_update(**update)) == START + message


def test_an_append_with_another_update_is_refused(catalog: Catalog, lake: Lake, table: Table) -> None:
    body = Append(table, data_files(table, numbers(3))).body({"action": "set-properties", "updates": {"a": "b"}})
    assert refused(catalog, lake, body) == START + "the update set-properties is refused"


@pytest.mark.parametrize("operation", ["overwrite", "delete", "replace", "OVERWRITE"])
def test_other_operations_are_refused(catalog: Catalog, lake: Lake, table: Table, operation: str) -> None:
    body = Append(table, data_files(table, numbers(3)), operation=operation).body()
    message = f"a snapshot with the operation {operation.lower()} is refused"
    assert refused(catalog, lake, body) == START + message


@pytest.mark.parametrize("number", [0, 1])
def test_every_snapshot_of_a_request_is_looked_at(catalog: Catalog, lake: Lake, table: Table, number: int) -> None:
    """An overwrite of PyIceberg is two snapshots: one that deletes, and one that appends."""
    first = Append(table, data_files(table, numbers(3)), operation="delete" if number == 0 else "append")
    second = Append(
        table,
        data_files(table, numbers(4)),
        parent_id=first.snapshot_id,
        operation="append" if number == 0 else "overwrite",
    )
    bodies = [first.body(), second.body()]
    body = {"requirements": bodies[0]["requirements"], "updates": bodies[0]["updates"] + bodies[1]["updates"]}
    assert refused(catalog, lake, body).startswith(START + "a snapshot with the operation ")


def test_snapshots_that_are_no_chain_are_refused(catalog: Catalog, lake: Lake, table: Table) -> None:
    first, second = (Append(table, data_files(table, numbers(number))) for number in (3, 4))
    bodies = [first.body(), second.body()]
    body = {"requirements": bodies[0]["requirements"], "updates": bodies[0]["updates"] + bodies[1]["updates"]}
    message = f"the snapshot {second.snapshot_id}, which is not based on {first.snapshot_id} before it, is refused"
    assert refused(catalog, lake, body) == START + message


def test_a_snapshot_that_main_does_not_get_is_refused(catalog: Catalog, lake: Lake, table: Table) -> None:
    body = Append(table, data_files(table, numbers(3))).body()
    del body["updates"][1]
    assert refused(catalog, lake, body) == START + "a snapshot outside of main is refused"


def test_a_snapshot_without_a_parent_is_refused(catalog: Catalog, lake: Lake, table: Table) -> None:
    append = Append(table, data_files(table, numbers(3)), parent_id=None)
    body = append.body() | {"requirements": []}
    assert refused(catalog, lake, body) == START + "a snapshot without a parent, which would drop all rows, is refused"


def test_a_base_other_than_the_required_one_is_refused(catalog: Catalog, lake: Lake, table: Table) -> None:
    old = table.metadata.current_snapshot_id
    with catalog.begin() as tx:
        tx.write("shop.t", numbers(3), mode="append")
    newer = lake.load()
    body = Append(newer, data_files(newer, numbers(4))).body()
    body["requirements"][0]["snapshot-id"] = old
    new = newer.metadata.current_snapshot_id
    message = f"a snapshot based on {new}, where the request requires {old} of main, is refused"
    assert refused(catalog, lake, body) == START + message


def test_a_snapshot_id_that_a_version_has_is_refused(catalog: Catalog, lake: Lake, table: Table) -> None:
    taken = table.metadata.current_snapshot_id
    assert taken is not None
    body = Append(table, data_files(table, numbers(3)), snapshot_id=taken).body()
    message = f"the snapshot id {taken}, which the table's version 0 has, is refused"
    assert refused(catalog, lake, body) == START + message


# ---- manifests


def test_a_snapshot_that_drops_files_is_refused(catalog: Catalog, lake: Lake, table: Table) -> None:
    body = Append(table, data_files(table, numbers(3)), kept=0).body()
    message = "a snapshot that keeps 0 files, where the one that it is based on has 1, is refused"
    assert refused(catalog, lake, body) == START + message


def test_deleted_entries_are_refused(catalog: Catalog, lake: Lake, table: Table) -> None:
    live = [task.file for task in table.scan().plan_files()]
    manifests = [ManifestToWrite(live, DELETED), ManifestToWrite(data_files(table, numbers(3)))]
    body = Append(table, manifests=manifests).body()
    assert refused(catalog, lake, body) == START + "a snapshot that removes files is refused"


def test_delete_files_are_refused(catalog: Catalog, lake: Lake, table: Table) -> None:
    manifests = [ManifestToWrite(data_files(table, numbers(3)), content=ManifestContent.DELETES)]
    body = Append(table, manifests=manifests).body()
    assert refused(catalog, lake, body) == START + "a snapshot with delete files is refused"


def test_merged_manifests_with_other_files_are_refused(catalog: Catalog, lake: Lake, table: Table) -> None:
    (other,) = data_files(table, numbers(9))
    manifests = [ManifestToWrite([other], EXISTING), ManifestToWrite(data_files(table, numbers(3)))]
    body = Append(table, manifests=manifests, kept=0).body()
    message = f"a snapshot that keeps {other.file_path}, which is not in the table, is refused"
    assert refused(catalog, lake, body) == START + message


def test_a_file_that_is_in_the_table_is_refused(catalog: Catalog, lake: Lake, table: Table) -> None:
    files = data_files(table, numbers(3))
    assert lake.post(Append(table, files).body()).status == 200
    name = files[0].file_path.rpartition("/")[2]
    assert (
        refused(catalog, lake, Append(lake.load(), files).body()) == f"shop.t: the file {name} is in the table already"
    )


def test_a_file_twice_is_refused(catalog: Catalog, lake: Lake, table: Table) -> None:
    (file,) = data_files(table, numbers(3))
    body = Append(table, [file, file]).body()
    assert refused(catalog, lake, body) == f"shop.t: the file {file.file_path} is in the snapshot twice"


def changed(file: DataFile, place: int, value: Any) -> DataFile:
    """A data file with another value in one of its fields."""
    file._data[place] = value
    return file


def test_files_that_are_not_parquet_are_refused(catalog: Catalog, lake: Lake, table: Table) -> None:
    file = changed(data_files(table, numbers(3))[0], 2, FileFormat.ORC)
    message = f"shop.t: the file {file.file_path} is of the format orc, and Delta tables have Parquet files"
    assert refused(catalog, lake, Append(table, [file]).body()) == message


def test_a_file_that_is_missing_or_broken_is_refused(catalog: Catalog, lake: Lake, table: Table) -> None:
    (file,) = data_files(table, numbers(3))
    path = Path(file.file_path.removeprefix("file://"))
    path.write_bytes(b"PAR1 no footer")
    message = refused(catalog, lake, Append(table, [file]).body())
    assert message.startswith(f"shop.t: the file {path.name} cannot be read as Parquet: ")
    path.unlink()
    assert refused(catalog, lake, Append(table, [file]).body()) == f"shop.t: the file {path.name} does not exist"


@pytest.mark.parametrize("what", ["list", "manifest"])
def test_manifests_that_cannot_be_read_are_refused(catalog: Catalog, lake: Lake, table: Table, what: str) -> None:
    append = Append(table, data_files(table, numbers(3)))
    body = append.body()
    folder = folder_of(catalog, "shop.t") / "_iceberg"
    name = f"snap-{append.snapshot_id}-0.avro" if what == "list" else f"{append.snapshot_id}-m0.avro"
    (folder / name).write_bytes(b"nothing")
    assert refused(catalog, lake, body).startswith(f"shop.t: cannot read the Avro file file://{folder}/{name}: ")
    (folder / name).unlink()
    noun = "the manifest list" if what == "list" else "the manifest"
    assert refused(catalog, lake, body) == f"shop.t: {noun} file://{folder}/{name} does not exist"


# ---- places


def moved(table: Table, path: str) -> DataFile:
    """A file of the table under another path, where it is put."""
    (file,) = data_files(table, numbers(3))
    target = Path(path.removeprefix("file://"))
    target.parent.mkdir(parents=True, exist_ok=True)
    os.replace(file.file_path.removeprefix("file://"), target)
    return changed(file, 1, path)


def test_files_elsewhere_are_refused(catalog: Catalog, lake: Lake, table: Table, tmp_path: Path) -> None:
    root = table.location()
    outside = f"file://{tmp_path}/other/f.parquet"
    link = folder_of(catalog, "shop.t") / "link"
    (tmp_path / "other").mkdir()
    link.symlink_to(tmp_path / "other")
    cases = {
        outside: f"the file {outside} is outside of the table's folder",
        f"{root}-2/f.parquet": f"the file {root}-2/f.parquet is outside of the table's folder",
        f"{root}/../f.parquet": f"the path of the file {root}/../f.parquet has the parts . or .. or an empty one",
        f"{root}/./f.parquet": f"the path of the file {root}/./f.parquet has the parts . or .. or an empty one",
        f"{root}//f.parquet": f"the path of the file {root}//f.parquet has the parts . or .. or an empty one",
        f"{root}/link/f.parquet": f"the file {root}/link/f.parquet is outside of the table's folder",
        f"{root}/_delta_log/f.parquet": f"the file {root}/_delta_log/f.parquet is in a folder that has no data files",
        f"{root}/_iceberg/f.parquet": f"the file {root}/_iceberg/f.parquet is in a folder that has no data files",
    }
    for path, message in cases.items():
        file = moved(table, path)
        assert refused(catalog, lake, Append(table, [file]).body()) == f"shop.t: {message}"
    for path in ("f.parquet", "~/f.parquet"):
        file = changed(data_files(table, numbers(3))[0], 1, path)
        message = f"shop.t: the path of the file '{path}' is relative or too long"
        assert refused(catalog, lake, Append(table, [file]).body()) == message
    file = changed(data_files(table, numbers(3))[0], 1, "s3://bucket/f.parquet")
    message = "shop.t: the file s3://bucket/f.parquet is outside of the table's folder"
    assert refused(catalog, lake, Append(table, [file]).body()) == message


def test_manifest_lists_elsewhere_are_refused(catalog: Catalog, lake: Lake, table: Table, tmp_path: Path) -> None:
    path = f"file://{tmp_path}/elsewhere.avro"
    body = Append(table, data_files(table, numbers(3)), list_path=path).body()
    assert refused(catalog, lake, body) == f"shop.t: the manifest list {path} is outside of the table's folder"


def test_files_anywhere_in_the_folder_and_in_any_spelling_are_taken(catalog: Catalog, lake: Lake, table: Table) -> None:
    root = table.location()
    paths = [f"{root}/data/a%20b c+d/é=1/f.parquet", f"{root}/a:/f.parquet", f"{root}/#?&%2F.parquet"]
    for path in paths:
        file = moved(lake.load(), path)
        file = changed(file, 1, path.replace("file:///", "file:/"))
        assert lake.post(Append(lake.load(), [file]).body()).status == 200, path
    assert ids_in(catalog, "shop.t") == [1, 2, 3, 3, 3]
    catalog.mirror.flush()
    for reader in (Deltalake(), DuckDB()):
        assert sorted(reader.latest(folder_of(catalog, "shop.t")).rows["id"].to_pylist()) == [1, 2, 3, 3, 3]


# ---- partitions


def test_an_empty_text_as_a_partition_value_is_refused(catalog: Catalog, lake: Lake) -> None:
    with catalog.begin() as tx:
        tx.write("shop.t", days((1, "a")), partition_by=["day"])
    table = lake.load()
    (file,) = data_files(table, days((2, "")))
    name = file.file_path.removeprefix(f"{table.location()}/")
    message = (
        f"shop.t: the file {name} has the partition value '' of the column day: an empty text cannot be a partition "
        "value of a Delta table"
    )
    assert refused(catalog, lake, Append(table, [file]).body()) == message


def test_rows_of_another_partition_are_refused(catalog: Catalog, lake: Lake) -> None:
    with catalog.begin() as tx:
        tx.write("shop.t", days((1, "a")), partition_by=["day"])
    table = lake.load()
    (file,) = data_files(table, days((2, "b")))
    pq.write_table(days((2, "c")), file.file_path.removeprefix("file://"))
    name = file.file_path.removeprefix(f"{table.location()}/")
    message = f"shop.t: the file {name} has rows outside of its partition, day=b"
    assert refused(catalog, lake, Append(table, [file]).body()) == message


def test_manifests_of_another_partitioning_are_refused(catalog: Catalog, lake: Lake) -> None:
    with catalog.begin() as tx:
        tx.write("shop.t", days((1, "a")), partition_by=["day"])
    old = lake.load()
    with catalog.begin() as tx:
        tx.write("shop.t", days((1, "a")), mode="overwrite", partition_by=["id"], schema_mode="overwrite")
    table = lake.load()
    manifests = [ManifestToWrite(data_files(old, days((2, "b"))), spec_id=old.spec().spec_id)]
    body = Append(table, manifests=manifests).body()
    message = f"a manifest of the partition spec {old.spec().spec_id}, which is not the table's, is refused"
    assert refused(catalog, lake, body) == START + message


# ---- statements of real clients


def upsert(table: Table) -> None:
    table.upsert(days((1, "b"), (3, "c")), join_cols=["id"])


STATEMENTS: dict[str, Callable[[Table], object]] = {
    "overwrite": lambda table: table.overwrite(days((3, "a"))),
    "overwrite of some rows": lambda table: table.overwrite(days((3, "a")), "id = 1"),
    "delete": lambda table: table.delete("id = 1"),
    "upsert": upsert,
    "schema": lambda table: table.update_schema().add_column("more", StringType()).commit(),
    "properties": lambda table: table.transaction().set_properties(a="b").commit_transaction(),
    "branch": lambda table: (
        table.manage_snapshots().create_branch(table.metadata.current_snapshot_id or 0, "b").commit()
    ),
    "tag": lambda table: table.manage_snapshots().create_tag(table.metadata.current_snapshot_id or 0, "g").commit(),
    "append to a branch": lambda table: table.append(days((3, "a")), branch="audit"),
}


@pytest.mark.parametrize("name", STATEMENTS)
def test_other_statements_of_pyiceberg_change_nothing(catalog: Catalog, lake: Lake, name: str) -> None:
    with catalog.begin() as tx:
        tx.write("shop.t", days((1, "a"), (2, "b")))
    table = lake.load()
    with pytest.raises(BadRequestError, match=r"shop\.t is a Delta table: Iceberg clients append rows to it"):
        STATEMENTS[name](table)
    assert (catalog.table("shop.t").version(), ids_in(catalog, "shop.t")) == (0, [1, 2])
    assert lake.load().metadata == table.metadata


# ---- tables


def test_a_table_whose_files_have_other_names_is_refused(catalog: Catalog, lake: Lake) -> None:
    with catalog.begin() as tx:
        tx.create_table("shop.t", "id long", properties={"delta.columnMapping.mode": "name"})
        tx.write("shop.t", numbers(1), mode="append")
    append = Append(lake.load())
    message = (
        "shop.t is a Delta table that Iceberg clients cannot append to: its column id has another name in its files "
        "(column mapping), which they do not write"
    )
    assert refused(catalog, lake, append.body()) == message


def test_followers_and_detached_tables_are_refused(catalog: Catalog, lake: Lake, tmp_path: Path) -> None:
    deltalake.write_deltalake(tmp_path / "theirs", numbers(1))
    catalog.attach_table(str(tmp_path / "theirs"), "shop.t")
    table = lake.load()
    body = Append(table, data_files(table, numbers(2))).body()
    message = (
        "table shop.t is a follower: its `_delta_log` is written by others, and read here; `dl promote shop.t` makes "
        "this catalog its writer"
    )
    assert refused(catalog, lake, body) == message
    catalog.promote_table("shop.t")
    catalog.detach_table("shop.t")
    message = (
        "table shop.t is detached: its `_delta_log` decides again; write to it with any Delta writer, or `dl promote "
        "shop.t` to bring it back"
    )
    assert refused(catalog, lake, body) == message


def test_an_iceberg_commit_to_a_delta_table_inside_a_transaction_is_refused(catalog: Catalog, table: Table) -> None:
    """In the same process, too: a CatalogTransaction writes Delta tables by its own methods."""
    body = Append(table, data_files(table, numbers(3))).body()
    with catalog.begin() as tx:
        change = TableChange(TableName("shop", "t"), body["requirements"], body["updates"])
        with pytest.raises(dl.exceptions.TableNotFoundError, match="is a Delta table"):
            TransactionTables(tx).commit([change])
    assert ids_in(catalog, "shop.t") == [1, 2]
