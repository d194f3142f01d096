"""Compares an Iceberg table or view in SQL with the files that its newest version names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from deltalakedb.exceptions import BadIcebergRequestError, StorageError
from deltalakedb.iceberg.locations import open_file
from deltalakedb.iceberg.metadata.table_metadata import parse_table_metadata
from deltalakedb.iceberg.metadata.view_metadata import parse_view_metadata
from deltalakedb.iceberg.metadata_files import read_metadata_file
from deltalakedb.mirror.validate import Drift, ValidationReport
from deltalakedb.store import registry
from deltalakedb.store.iceberg import IcebergVersion, read_iceberg_version
from deltalakedb.store.registry import VIEW

if TYPE_CHECKING:
    from deltalakedb.store.connection import Store
    from deltalakedb.store.registry import TableRow

_WRITE_AGAIN = "the next commit writes a new metadata file: set a property of the table, for example"
_RESTORE = "restore the file from a backup, or make a branch of a snapshot whose files are there the current one"


def validate(store: Store, table: TableRow, options: Mapping[str, str] | None) -> ValidationReport:
    """Compare the newest metadata in SQL with its file, and look for the manifest lists of branches and tags."""
    with store.read() as conn:
        head = registry.read_head(conn, table.table_id)
        assert head is not None, "an Iceberg table is registered with its first version"
        version = read_iceberg_version(conn, table.table_id, head.current_version)
    drifts = (*_check_metadata(table, version, options), *_check_manifest_lists(version, options))
    return ValidationReport(
        table=table,
        sql_version=version.version,
        files_version=version.version,
        num_commits_compared=1,
        num_states_compared=0,
        num_checkpoints_compared=0,
        num_checksums_compared=0,
        drifts=drifts,
    )


def _check_metadata(table: TableRow, version: IcebergVersion, options: Mapping[str, str] | None) -> Iterator[Drift]:
    place = version.metadata_location
    try:
        text = read_metadata_file(place, None, options)
        in_file: Any = parse_view_metadata(text) if table.mode == VIEW else parse_table_metadata(text)
    except (BadIcebergRequestError, StorageError) as error:
        yield Drift("metadata", version.version, str(error), place, "", _WRITE_AGAIN)
        return
    keys = in_file.keys() | version.metadata.keys()
    names = sorted(key for key in keys if in_file.get(key) != version.metadata.get(key))
    if names:
        difference = f"the metadata file {place} differs from SQL in {', '.join(names)}"
        values = (str(version.metadata.get(names[0])), str(in_file.get(names[0])))
        yield Drift("metadata", version.version, difference, *values, _WRITE_AGAIN)


def _check_manifest_lists(version: IcebergVersion, options: Mapping[str, str] | None) -> Iterator[Drift]:
    wanted = {ref["snapshot-id"]: name for name, ref in version.metadata.get("refs", {}).items()}
    for snapshot in version.metadata.get("snapshots", ()):
        path, ref = snapshot.get("manifest-list"), wanted.get(snapshot["snapshot-id"])
        if path is None or ref is None:
            continue
        storage, name = open_file(path, options)
        try:
            storage.stat(name)
        except FileNotFoundError:
            difference = f"the manifest list of {ref}, {path}, does not exist"
            yield Drift("metadata", version.version, difference, path, "", _RESTORE)
