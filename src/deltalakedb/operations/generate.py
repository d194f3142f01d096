"""Writes the symlink manifest: lists of data files for engines that do not read Delta logs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from deltalakedb.exceptions import DeltaError
from deltalakedb.log.protocol import paths
from deltalakedb.log.protocol.rows import add_from_row
from deltalakedb.operations.target import Target

FOLDER: Final = "_symlink_format_manifest"


def generate(target: Target) -> None:
    """Write a list of full paths for each partition, or for the whole table, of the target's version."""
    from deltalakedb.data.partitioning import folder_of

    adds = [add_from_row(row) for row in target.snapshot.files_table().to_pylist()]
    with_vectors = next((add for add in adds if add.deletion_vector is not None), None)
    if with_vectors is not None:
        raise DeltaError(
            f"table {target.name}: {with_vectors.path} has deleted rows that a manifest cannot show; "
            "optimize.compact() writes such files again"
        )
    columns = [item.physical_name for item in map(target.schema.field, target.metadata.partition_columns) if item]
    lists: dict[str, list[str]] = {} if columns else {"": []}
    for add in adds:
        values: Mapping[str, str | None] = add.partition_values
        folder = folder_of(columns, tuple(values.get(name) for name in columns)) if columns else ""
        uri = paths.resolve(target.location, add.path)
        lists.setdefault(folder, []).append(paths.local_path(uri) or uri)
    manifest_paths = []
    for folder, files in lists.items():
        path = f"{FOLDER}/{folder}/manifest" if folder else f"{FOLDER}/manifest"
        new = target.storage.create(path)
        new.sink.write("".join(f"{file}\n" for file in files).encode())
        new.finish()
        manifest_paths.append(path)
    target.storage.sync(manifest_paths)
