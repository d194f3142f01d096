"""What the Delta log must say for one version of an Iceberg table, and the actions that lead there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from deltalakedb.exceptions import CannotMirrorError
from deltalakedb.iceberg.mirror.columns import DeltaColumns, delta_columns
from deltalakedb.iceberg.mirror.file_stats import stats_json
from deltalakedb.iceberg.mirror.layouts import Layout
from deltalakedb.iceberg.mirror.live_files import LiveFile
from deltalakedb.iceberg.mirror.partitions import Partitioning, check_columns_are_in_files, partitioning
from deltalakedb.iceberg.mirror.places import to_delta_path
from deltalakedb.iceberg.planning.schema import TableShape
from deltalakedb.log.protocol.actions import (
    Action,
    AddFile,
    DeletionVector,
    Format,
    Metadata,
    Protocol,
    RemoveFile,
)
from deltalakedb.log.protocol.fence import ICEBERG_TABLE

LAYOUT_TAG: Final = "deltalakedb.fields"
"""The fields of a data file, so that its footer is read once."""

DELETES_TAG: Final = "deltalakedb.deletes"
"""The delete files that a deletion vector was made of, so that it is made once."""

_NOT_BY_NAME: Final = ("variantType", "variantShredding")
"""Features that no column uses. They keep readers out that find columns by their names, although the mode is `id`:
those would read null, or the values of a dropped column. Readers that have them find columns by their ids."""


@dataclass(frozen=True, slots=True)
class Target:
    """One version of an Iceberg table, read and found to be sayable in Delta."""

    metadata: Mapping[str, Any]
    location: str
    """The folder of the log, which is that of the newest version."""
    files: Sequence[LiveFile]
    layouts: Mapping[str, Layout]
    columns: DeltaColumns
    partitioning: Partitioning


def to_target(
    metadata: Mapping[str, Any], location: str, files: Sequence[LiveFile], layouts: Mapping[str, Layout]
) -> Target:
    """Return a version for Delta; CannotMirrorError if Delta readers would not read its rows."""
    shape = TableShape(metadata)
    schema = shape.schemas[shape.current_schema_id]
    columns = delta_columns(schema, (layouts[item.path] for item in files))
    if not columns.columns:
        raise CannotMirrorError("it has no columns")
    parts = partitioning(shape, int(metadata["default-spec-id"]), columns.columns, files)
    if not parts.columns:
        check_columns_are_in_files(shape, columns.columns, files, layouts)
    return Target(metadata, location, files, layouts, columns, parts)


def protocol_of(target: Target, *, has_vectors: bool) -> Protocol:
    """Return the protocol, without the fence: of the features only those that readers need now."""
    features = []
    if target.columns.mode != "none":
        features.append("columnMapping")
    if has_vectors:
        features.append("deletionVectors")
    if target.columns.has_timestamps_without_zone:
        features.append("timestampNtz")
    if target.columns.has_widened_types:
        features.append("typeWidening")
    if target.columns.mode == "id":
        features += _NOT_BY_NAME
    return Protocol(3 if features else 1, 7, tuple(features) if features else None, tuple(features))


def metadata_of(target: Target, *, created_ms: int) -> Metadata:
    """Return the metaData action."""
    table = target.metadata
    configuration: dict[str, str | None] = {ICEBERG_TABLE: str(table["table-uuid"])}
    if target.columns.mode != "none":
        configuration["delta.columnMapping.mode"] = target.columns.mode
        configuration["delta.columnMapping.maxColumnId"] = str(table["last-column-id"])
    if target.columns.has_widened_types:
        configuration["delta.enableTypeWidening"] = "true"
    return Metadata(
        id=str(table["table-uuid"]),
        format=Format(),
        schema_string=target.columns.schema.to_json(),
        partition_columns=tuple(column.name for column in target.partitioning.columns),
        configuration=configuration,
        created_time=created_ms,
    )


def adds_of(
    target: Target, before: Mapping[str, AddFile], vectors: Mapping[str, DeletionVector | None]
) -> Iterator[AddFile]:
    """Yield the live files. `before` are those of the log by their paths.

    `vectors` are new, by Iceberg's paths: None for a file of which its delete files name no row.
    """
    partition_ids = {column.field_id for column in target.partitioning.columns}
    columns = [column for column in target.columns.columns if column.field_id not in partition_ids]
    for item in target.files:
        path = to_delta_path(item.path, target.location)
        known = before.get(path)
        layout = target.layouts[item.path]
        tags: dict[str, str | None] = {LAYOUT_TAG: layout.to_text()}
        vector = None
        if item.deletes_key is not None:
            tags[DELETES_TAG] = item.deletes_key
            vector = vectors[item.path] if known is None or item.path in vectors else known.deletion_vector
        yield AddFile(
            path=path,
            partition_values=dict(target.partitioning.values.get(item.path, {})),
            size=item.entry.size,
            modification_time=int(target.metadata["last-updated-ms"]) if known is None else known.modification_time,
            data_change=True,
            stats=stats_json(item.entry, columns, layout.ids, has_vector=vector is not None),
            tags=tags,
            deletion_vector=vector,
        )


def changes(before: Mapping[str, AddFile], after: Sequence[AddFile], *, at_ms: int) -> list[Action]:
    """Return the adds and removes between two sets of live files.

    A file that has the same rows, but is described in another way, is added again without a change of data.
    """
    by_path = {add.path: add for add in after}
    if len(by_path) < len(after):
        raise CannotMirrorError("its snapshot has a data file under two spellings of its path")
    actions: list[Action] = [
        RemoveFile.of(add, at_ms=at_ms)
        for path, add in before.items()
        if path not in by_path or by_path[path].key != add.key
    ]
    for add in after:
        known = before.get(add.path)
        is_same = known is not None and known.key == add.key
        added = replace(add, data_change=not is_same)
        if known is None or replace(known, data_change=added.data_change) != added:
            actions.append(added)
    return actions


def needs_vector(item: LiveFile, known: AddFile | None) -> bool:
    """Return whether the delete files of a data file are others than those of its vector in the log."""
    if item.deletes_key is None:
        return False
    return known is None or (known.tags or {}).get(DELETES_TAG) != item.deletes_key
