"""RESTORE: makes the newest version equal to an older one, by adding its files again."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from deltalakedb.exceptions import DeltaError, MissingFileError
from deltalakedb.log.checks.binding import HIGH_WATERMARK
from deltalakedb.log.protocol.actions import Action, AddFile, FileKey, Metadata, Protocol, RemoveFile
from deltalakedb.log.protocol.codec import to_json
from deltalakedb.log.protocol.features import reader_features, writer_features
from deltalakedb.log.protocol.proposal import WHOLE_TABLE, ProposedCommit
from deltalakedb.log.protocol.rows import add_from_row
from deltalakedb.operations.repair import missing_files
from deltalakedb.operations.target import Done, TableSnapshot, Target

_MAX_COLUMN_ID: Final = "delta.columnMapping.maxColumnId"
_PHYSICAL_NAME: Final = "delta.columnMapping.physicalName"
_STEP: Final = "delta.identity.step"


def restore(
    target: Target,
    older: TableSnapshot,
    parameters: Mapping[str, str],
    *,
    ignore_missing_files: bool,
    protocol_downgrade_allowed: bool,
) -> Done:
    """Return the commit that restores an older version. Missing files are an error, or left to `repair`."""
    if older.version >= target.snapshot.version:
        raise DeltaError(
            f"Version to restore {older.version} should be less then last available version {target.snapshot.version}."
            f" Table {target.name} goes back to an older version only"
        )
    older_files, current_files = _files(older), _files(target.snapshot)
    restored = [replace(add, data_change=True) for key, add in older_files.items() if key not in current_files]
    if not ignore_missing_files:
        _check_present(target, older, restored)
    now_ms = time.time_ns() // 1_000_000
    removed = [RemoveFile.of(add, at_ms=now_ms) for key, add in current_files.items() if key not in older_files]
    metrics = {"numRemovedFile": len(removed), "numRestoredFile": len(restored)}
    actions = [*_definition(target, older, protocol_downgrade_allowed), *removed, *restored]
    commit = ProposedCommit(tuple(actions), "RESTORE", dict(parameters), metrics, WHOLE_TABLE, restores=older.version)
    return Done(commit, dict(metrics))


def _files(snapshot: TableSnapshot) -> dict[FileKey, AddFile]:
    return {add.key: add for add in map(add_from_row, snapshot.files_table().to_pylist())}


def _check_present(target: Target, older: TableSnapshot, adds: list[AddFile]) -> None:
    missing = missing_files(target.storage, adds, vectors=True)
    if missing:
        raise MissingFileError(
            f"Find missing file {missing[0].path} when restore: {len(missing)} of the files of version {older.version} "
            f"of {target.name} are gone",
            path=missing[0].path,
            advice="they were deleted or vacuumed. ignore_missing_files=True restores the rest",
        )


def _definition(target: Target, older: TableSnapshot, downgrade: bool) -> list[Action]:
    """Return the older protocol and metadata, even if unchanged, as `deltalake` does; no column id or identity value
    is used twice."""
    protocol = older.protocol if downgrade else _both(target.protocol, older.protocol)
    metadata: Metadata = older.metadata
    highest = target.metadata.configuration.get(_MAX_COLUMN_ID)
    if highest is not None and _MAX_COLUMN_ID in metadata.configuration:
        metadata = replace(metadata, configuration={**metadata.configuration, _MAX_COLUMN_ID: highest})
    metadata = replace(metadata, schema_string=_with_watermarks(metadata.schema_string, target.metadata.schema_string))
    return [protocol, metadata]


def _with_watermarks(then: str, now: str) -> str:
    """Return the older schema with the current high watermarks of identity columns: no value is generated twice.

    Columns are identified by physical name; identity columns are never nested (PROTOCOL.md, "Identity Columns").
    """
    if HIGH_WATERMARK not in now:
        return then
    marks = {name: field_metadata.get(HIGH_WATERMARK) for name, field_metadata in _fields(json.loads(now))}
    schema = json.loads(then)
    moved = False
    for name, field_metadata in _fields(schema):
        older_mark, mark = field_metadata.get(HIGH_WATERMARK), marks.get(name)
        if _STEP not in field_metadata or mark is None:
            continue
        furthest = max if field_metadata[_STEP] > 0 else min
        field_metadata[HIGH_WATERMARK] = mark if older_mark is None else furthest(older_mark, mark)
        moved = moved or field_metadata[HIGH_WATERMARK] != older_mark
    return to_json(schema) if moved else then


def _fields(schema: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the physical name and the metadata of each column that has any."""
    for item in schema["fields"]:
        field_metadata = item.get("metadata")
        if field_metadata:
            yield field_metadata.get(_PHYSICAL_NAME, item["name"]), field_metadata


def _both(now: Protocol, then: Protocol) -> Protocol:
    """Return the current protocol, extended by the older one's features; it nearly always has them all."""
    if (
        reader_features(then) <= reader_features(now)
        and writer_features(then) <= writer_features(now)
        and then.min_reader_version <= now.min_reader_version
        and then.min_writer_version <= now.min_writer_version
    ):
        return now
    from deltalakedb.log.protocol.feature_needs import with_features

    return with_features(now, writer_features(then))
