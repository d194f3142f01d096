"""Owns RESTORE: the newest version becomes what an older one was, by naming its files again."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from deltalakedb.exceptions import DeltaError, MissingFileError
from deltalakedb.log.actions import Action, AddFile, FileKey, Metadata, Protocol, RemoveFile
from deltalakedb.log.binding import HIGH_WATERMARK
from deltalakedb.log.codec import to_json
from deltalakedb.log.features import reader_features, writer_features
from deltalakedb.log.proposal import WHOLE_TABLE, ProposedCommit
from deltalakedb.log.rows import add_from_row
from deltalakedb.operations.presence import missing_files
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
    """The commit that brings an older version back. Files it needs that are gone are an error, or left to `repair`."""
    if older.version >= target.snapshot.version:
        raise DeltaError(
            f"table {target.name} is at version {target.snapshot.version}: only an older version can be restored, not "
            f"{older.version}"
        )
    then, now = _files(older), _files(target.snapshot)
    back = [replace(add, data_change=True) for key, add in then.items() if key not in now]
    if not ignore_missing_files:
        _check_present(target, older, back)
    now_ms = time.time_ns() // 1_000_000
    gone = [RemoveFile.of(add, at_ms=now_ms) for key, add in now.items() if key not in then]
    metrics = {"numRemovedFile": len(gone), "numRestoredFile": len(back)}
    actions = [*_definition(target, older, protocol_downgrade_allowed), *gone, *back]
    commit = ProposedCommit(tuple(actions), "RESTORE", dict(parameters), metrics, WHOLE_TABLE, restores=older.version)
    return Done(commit, dict(metrics))


def _files(snapshot: TableSnapshot) -> dict[FileKey, AddFile]:
    return {add.key: add for add in map(add_from_row, snapshot.files_table().to_pylist())}


def _check_present(target: Target, older: TableSnapshot, adds: list[AddFile]) -> None:
    missing = missing_files(target.storage, adds, vectors=True)
    if missing:
        raise MissingFileError(
            f"table {target.name}: version {older.version} cannot be restored: {len(missing)} of its files are gone, "
            f"the first is {missing[0].path}",
            path=missing[0].path,
            advice="they were deleted or vacuumed. ignore_missing_files=True restores the rest",
        )


def _definition(target: Target, older: TableSnapshot, downgrade: bool) -> list[Action]:
    """The protocol and metadata of then, where they differ; no column id or identity value is ever given out twice."""
    actions: list[Action] = []
    protocol = older.protocol if downgrade else _both(target.protocol, older.protocol)
    if protocol != target.protocol:
        actions.append(protocol)
    metadata: Metadata = older.metadata
    highest = target.metadata.configuration.get(_MAX_COLUMN_ID)
    if highest is not None and _MAX_COLUMN_ID in metadata.configuration:
        metadata = replace(metadata, configuration={**metadata.configuration, _MAX_COLUMN_ID: highest})
    metadata = replace(metadata, schema_string=_with_watermarks(metadata.schema_string, target.metadata.schema_string))
    if metadata != target.metadata:
        actions.append(metadata)
    return actions


def _with_watermarks(then: str, now: str) -> str:
    """The schema of then, with identity columns as far on as they are now: their values are never handed out again.

    Columns are told apart by their physical names; identity columns are never nested (PROTOCOL.md, "Identity Columns").
    """
    if HIGH_WATERMARK not in now:
        return then
    marks = {name: about.get(HIGH_WATERMARK) for name, about in _fields(json.loads(now))}
    schema = json.loads(then)
    moved = False
    for name, about in _fields(schema):
        known, mark = about.get(HIGH_WATERMARK), marks.get(name)
        if _STEP not in about or mark is None:
            continue
        furthest = max if about[_STEP] > 0 else min
        about[HIGH_WATERMARK] = mark if known is None else furthest(known, mark)
        moved = moved or about[HIGH_WATERMARK] != known
    return to_json(schema) if moved else then


def _fields(schema: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The physical name and the metadata of each column that has any."""
    for item in schema["fields"]:
        about = item.get("metadata")
        if about:
            yield about.get(_PHYSICAL_NAME, item["name"]), about


def _both(now: Protocol, then: Protocol) -> Protocol:
    """What is needed now stays needed; nearly always that is all there is."""
    if (
        reader_features(then) <= reader_features(now)
        and writer_features(then) <= writer_features(now)
        and then.min_reader_version <= now.min_reader_version
        and then.min_writer_version <= now.min_writer_version
    ):
        return now
    from deltalakedb.definitions.features import with_features

    return with_features(now, writer_features(then))
