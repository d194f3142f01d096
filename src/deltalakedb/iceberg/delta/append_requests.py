"""Reads what an Iceberg client wants to change of a Delta table: rows can be appended, nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final, NoReturn

from deltalakedb.exceptions import BadIcebergRequestError
from deltalakedb.iceberg.metadata.requirements import check_requirements, fail
from deltalakedb.iceberg.metadata.shapes import check_json, optional_long, require_list, string_field
from deltalakedb.iceberg.metadata.snapshots import parse_snapshot

JsonObjects = Sequence[Mapping[str, Any]]

MAIN: Final = "main"
_ADD: Final = "add-snapshot"
_SET_REF: Final = "set-snapshot-ref"
_RETENTION: Final = ("min-snapshots-to-keep", "max-snapshot-age-ms", "max-ref-age-ms")


@dataclass(frozen=True, slots=True)
class Append:
    """A snapshot that a client adds, which becomes a version."""

    snapshot_id: int
    parent_id: int | None
    manifest_list: str


def refuse(table: str, what: str) -> NoReturn:
    """Raise the error for a change that only Delta clients can make."""
    raise BadIcebergRequestError(
        f"{table} is a Delta table: Iceberg clients append rows to it, and Delta clients or `dl` change it otherwise; "
        f"{what} is refused"
    )


def read_appends(table: str, updates: JsonObjects) -> list[Append]:
    """Return the appends of a request in their order; any other change is refused."""
    appends: list[Append] = []
    main: int | None = None
    for update in require_list(updates, "updates"):
        check_json(update, "update")
        action = string_field(update, "action", "update").lower()
        if action == _ADD:
            appends.append(_append(table, update))
        elif action == _SET_REF:
            main = _new_main(table, update)
        else:
            refuse(table, f"the update {action}")
    if main != (appends[-1].snapshot_id if appends else None):
        refuse(table, f"the branch main at the snapshot {main}" if main is not None else "a snapshot outside of main")
    for before, after in pairwise(appends):
        if after.parent_id != before.snapshot_id:
            refuse(table, f"the snapshot {after.snapshot_id}, which is not based on {before.snapshot_id} before it,")
    return appends


def _append(table: str, update: Mapping[str, Any]) -> Append:
    snapshot = parse_snapshot(update.get("snapshot"))
    operation = str(snapshot.get("summary", {}).get("operation", "")).lower()
    if operation != "append":
        refuse(table, f"a snapshot with the operation {operation or 'missing'}")
    if "manifest-list" not in snapshot:
        refuse(table, "a snapshot without a manifest list")
    if snapshot["snapshot-id"] < 0:
        refuse(table, f"the snapshot id {snapshot['snapshot-id']}, which is negative,")
    return Append(snapshot["snapshot-id"], snapshot.get("parent-snapshot-id"), snapshot["manifest-list"])


def _new_main(table: str, update: Mapping[str, Any]) -> int | None:
    name, kind = string_field(update, "ref-name", "update"), string_field(update, "type", "update").lower()
    if name != MAIN:
        refuse(table, f"the {kind} {name}")
    if kind != "branch":
        refuse(table, f"a {kind} with the name {MAIN}")
    if any(update.get(key) is not None for key in _RETENTION):
        refuse(table, f"the retention of snapshots of the branch {MAIN}")
    return optional_long(update, "snapshot-id", "update")


def check_base(
    table: str, requirements: JsonObjects, appends: Sequence[Append], metadata: Mapping[str, Any]
) -> Mapping[str, Any]:
    """Check what a request requires, and return the snapshot that its first append is based on.

    That may be older than the branch main, although the request requires it of main: whether only appends came
    between is checked when the versions are committed.
    """
    snapshots = {item["snapshot-id"]: item for item in metadata["snapshots"]}
    parent_id = appends[0].parent_id
    others = []
    for requirement in require_list(requirements, "requirements"):
        expected = _expected_main(requirement)
        if expected is None or expected not in snapshots:
            others.append(requirement)
        elif expected != parent_id:
            refuse(table, f"a snapshot based on {parent_id}, where the request requires {expected} of main,")
    check_requirements(others, metadata)
    if parent_id is None:
        refuse(table, "a snapshot without a parent, which would drop all rows,")
    if parent_id not in snapshots:
        fail(f"branch {MAIN} has changed: expected id {parent_id} != {metadata['current-snapshot-id']}")
    parent: Mapping[str, Any] = snapshots[parent_id]
    return parent


def _expected_main(requirement: object) -> int | None:
    """The snapshot id that a requirement demands of the branch main; None for any other requirement."""
    if not isinstance(requirement, Mapping):
        return None
    kind, snapshot_id = str(requirement.get("type")).lower(), requirement.get("snapshot-id")
    is_main = kind == "assert-ref-snapshot-id" and requirement.get("ref") == MAIN
    return snapshot_id if is_main and isinstance(snapshot_id, int) else None
