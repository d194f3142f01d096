"""Branches and tags: parsing, their updates, and the log of the main branch's snapshots."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from deltalakedb.iceberg.metadata.shapes import (
    brief,
    check,
    long_field,
    optional_int,
    optional_long,
    refuse,
    require_object,
    string_field,
)
from deltalakedb.iceberg.metadata.table_draft import MAIN, NO_SNAPSHOT, TableDraft, Update

_RETENTION = ("min-snapshots-to-keep", "max-snapshot-age-ms", "max-ref-age-ms")
_OF_BRANCHES = _RETENTION[:2]
_KNOWN = ("snapshot-id", "type", *_RETENTION)


def parse_ref(item: object, what: str) -> dict[str, Any]:
    """A branch or tag whose fields have been checked; retention that is null is left out."""
    source = require_object(item, what)
    long_field(source, "snapshot-id", what)
    kind = string_field(source, "type", what).lower()
    check(kind in ("branch", "tag"), f"Invalid snapshot ref type: {brief(source['type'])}")
    keep = optional_int(source, "min-snapshots-to-keep", what)
    ages = [optional_long(source, name, what) for name in _RETENTION[1:]]
    for name, value in zip(_RETENTION, (keep, *ages), strict=True):
        check(value is None or value > 0, f"Invalid {what}: '{name}' must be greater than 0")
        check(value is None or kind == "branch" or name not in _OF_BRANCHES, f"Tags do not support setting {name}")
    ref = {key: value for key, value in source.items() if value is not None or key not in _RETENTION}
    return {**ref, "type": kind}


def set_snapshot_ref(draft: TableDraft, update: Mapping[str, Any]) -> None:
    """Create or move a branch or tag; moving the main branch changes the current snapshot."""
    name = string_field(update, "ref-name", "set-snapshot-ref")
    ref = _own_fields(parse_ref(update, f"ref {brief(name)}"))
    if name in draft.refs and _own_fields(parse_ref(draft.refs[name], f"ref {brief(name)}")) == ref:
        return
    snapshot_id = ref["snapshot-id"]
    snapshot = draft.snapshots.get(snapshot_id)
    if snapshot is None:
        refuse(f"Cannot set {name} to unknown snapshot: {snapshot_id}")
    if name == MAIN:
        check(ref["type"] == "branch", f"Cannot set {MAIN} to a tag, it must be a branch")
        added = snapshot_id in draft.added_snapshots
        draft.fields["current-snapshot-id"] = snapshot_id
        # Going back to a snapshot that was there before happens now.
        timestamp = snapshot["timestamp-ms"] if added else draft.now_ms
        draft.snapshot_log.append({"timestamp-ms": timestamp, "snapshot-id": snapshot_id})
        if added:
            draft.replaced_on_main.add(snapshot_id)
    draft.refs[name] = {**{key: value for key, value in draft.refs.get(name, {}).items() if key not in _KNOWN}, **ref}
    draft.changed = True


def _own_fields(ref: Mapping[str, Any]) -> dict[str, Any]:
    return {key: ref[key] for key in _KNOWN if key in ref}


def remove_snapshot_ref(draft: TableDraft, update: Mapping[str, Any]) -> None:
    """Remove a branch or tag; an unknown name is ignored. Without main there is no current snapshot."""
    _remove(draft, string_field(update, "ref-name", "remove-snapshot-ref"))


def _remove(draft: TableDraft, name: str) -> None:
    if name == MAIN:
        draft.fields["current-snapshot-id"] = NO_SNAPSHOT
    if draft.refs.pop(name, None) is not None:
        draft.changed = True


def remove_dangling_refs(draft: TableDraft) -> None:
    """Remove the refs to snapshots that are gone."""
    for name in [name for name, ref in draft.refs.items() if ref["snapshot-id"] not in draft.snapshots]:
        _remove(draft, name)


def finish_snapshot_log(draft: TableDraft) -> list[Mapping[str, Any]]:
    """The snapshot log without snapshots that were current only within this request, and without gaps.

    Snapshots before a removed one are left out: with a gap, its predecessor would seem to have been current until its
    successor was.
    """
    current = draft.current_snapshot_id
    intermediate = draft.replaced_on_main - {current}
    if not intermediate and not draft.removed_snapshots:
        return draft.snapshot_log
    log: list[Mapping[str, Any]] = []
    for entry in draft.snapshot_log:
        if entry["snapshot-id"] not in draft.snapshots:
            log = [] if draft.removed_snapshots else log
        elif entry["snapshot-id"] not in intermediate:
            log.append(entry)
    check(
        current not in draft.snapshots or not draft.snapshot_log or (bool(log) and log[-1]["snapshot-id"] == current),
        "Cannot set invalid snapshot log: latest entry is not the current snapshot",
    )
    return log


UPDATES: Mapping[str, Update] = {"remove-snapshot-ref": remove_snapshot_ref, "set-snapshot-ref": set_snapshot_ref}
