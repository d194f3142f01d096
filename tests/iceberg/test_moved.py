"""Tables whose files are elsewhere than before: ids of snapshots come again, with other manifests."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from urllib.parse import unquote, urlparse

import pytest
from pyiceberg.exceptions import BadRequestError
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.manifest import ManifestEntry, ManifestEntryStatus, write_manifest, write_manifest_list
from pyiceberg.table import Table

from deltalakedb import Catalog
from deltalakedb.iceberg.catalog import IcebergCatalog
from deltalakedb.iceberg.planning.service import PlanService
from deltalakedb.iceberg.registering import register
from deltalakedb.iceberg.statements import TableChange
from deltalakedb.store.names import TableName
from tests.conformance.transacting import numbers, open_catalog
from tests.iceberg.lake import SCHEMA, create, ids_of

NAME = TableName("shop", "t")
MAIN = {"action": "set-snapshot-ref", "ref-name": "main", "type": "branch"}


def planned(catalog: Catalog) -> list[str]:
    """The data files that a plan of the server names."""
    loaded = IcebergCatalog(catalog).load_table(NAME)
    answer = PlanService(catalog).plan(NAME, loaded.table_id, loaded.metadata, {})
    return sorted(task["data-file"]["file-path"] for task in answer["file-scan-tasks"])


def moved(table: Table, folder: Path) -> str:
    """Copies the files of a table whose last snapshot has one manifest, with the new paths in all of them."""
    old = Path(unquote(urlparse(table.location()).path))
    shutil.copytree(old, folder)
    io, snapshot = PyArrowFileIO(), table.current_snapshot()
    assert snapshot is not None

    def place(path: str) -> str:
        return path.replace(old.as_uri(), folder.as_uri())

    [manifest] = snapshot.manifests(io)
    output = io.new_output(place(manifest.manifest_path).replace(".avro", "-moved.avro"))
    with write_manifest(2, table.spec(), table.schema(), output, snapshot.snapshot_id, "deflate") as writer:
        for entry in manifest.fetch_manifest_entry(io):
            file = entry.data_file
            file[1] = place(file.file_path)
            status = ManifestEntryStatus.ADDED
            writer.add(ManifestEntry.from_args(status=status, snapshot_id=snapshot.snapshot_id, data_file=file))
    output = io.new_output(place(snapshot.manifest_list).replace(".avro", "-moved.avro"))
    with write_manifest_list(2, output, snapshot.snapshot_id, None, 1, "deflate") as lists:
        lists.add_manifests([writer.to_manifest_file()])
    metadata = json.loads(Path(unquote(urlparse(table.metadata_location).path)).read_text())
    metadata["location"] = folder.as_uri()
    metadata["snapshots"][0]["manifest-list"] = output.location
    path = folder / "metadata" / "00009-moved.metadata.json"
    path.write_text(json.dumps(metadata))
    return path.as_uri()


def test_a_moved_table_is_registered_again_and_read_where_it_is(catalog: Catalog, tmp_path: Path) -> None:
    table = create(catalog, "shop.t", 1, 2)
    assert len(planned(catalog)) == 1
    metadata = moved(table, tmp_path / "lake" / "elsewhere")
    register(catalog, metadata, "shop.t", overwrite=True)
    shutil.rmtree(unquote(urlparse(table.location()).path))
    assert ids_of(catalog, "shop.t") == [1, 2]
    assert all("elsewhere" in path for path in planned(catalog))
    catalog.iceberg("shop.t").append(numbers(3))
    assert ids_of(catalog, "shop.t") == [1, 2, 3]
    assert len(planned(catalog)) == 2


def test_a_snapshot_that_is_replaced_by_another_of_its_id_is_planned_anew(catalog: Catalog) -> None:
    table = create(catalog, "shop.t", 1)
    first = table.current_snapshot()
    table.append(numbers(2))
    second = table.current_snapshot()
    assert first is not None
    assert second is not None
    assert len(planned(catalog)) == 2
    again = json.loads(second.model_dump_json(by_alias=True, exclude_none=True))
    again |= {"sequence-number": 3, "manifest-list": first.manifest_list}
    again.pop("parent-snapshot-id")
    updates = [
        {"action": "remove-snapshots", "snapshot-ids": [second.snapshot_id]},
        {"action": "add-snapshot", "snapshot": again},
        {**MAIN, "snapshot-id": second.snapshot_id},
    ]
    IcebergCatalog(catalog).commit([TableChange(NAME, [], updates)])
    assert ids_of(catalog, "shop.t") == [1]
    assert len(planned(catalog)) == 1


def test_the_index_of_expired_snapshots_is_collected(target: str, tmp_path: Path) -> None:
    with open_catalog(target, tmp_path, retention_log_days=0) as catalog:
        catalog.create_namespace("shop")
        table = create(catalog, "shop.t", 1)
        gone = planned(catalog)
        table.overwrite(numbers(5))
        kept = planned(catalog)
        for snapshot in table.metadata.snapshots[:-1]:
            table.maintenance.expire_snapshots().by_id(snapshot.snapshot_id).commit()
        table.append(numbers(6))
        catalog.gc()
        indexed = catalog.sql("select file_path from dl_iceberg_files")["file_path"].to_pylist()
        assert set(kept) <= set(indexed)
        assert not set(gone) & set(indexed)
        assert ids_of(catalog, "shop.t") == [5, 6]
        assert len(planned(catalog)) == 2


@pytest.mark.parametrize("key", ["write.metadata.path", "write.data.path"])
def test_files_are_not_put_into_the_folder_of_a_delta_table(catalog: Catalog, key: str) -> None:
    """A vacuum of that table would delete them."""
    with catalog.begin() as tx:
        tx.write("shop.delta", numbers(1))
    place = f"{catalog.table('shop.delta').table_uri.rstrip('/')}/x"
    with pytest.raises(BadRequestError, match="is in the folder of shop.delta"):
        catalog.iceberg().create_table("shop.ice", SCHEMA, properties={key: place})
    table = create(catalog, "shop.ice", 1)
    with pytest.raises(BadRequestError, match="is in the folder of shop.delta"), table.transaction() as change:
        change.set_properties({key: place})
