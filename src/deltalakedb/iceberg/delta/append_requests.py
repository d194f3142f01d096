"""Reads what an Iceberg client wants to change of a Delta table: rows can be appended, nothing else.

A request names snapshots; which files are new is in their manifests.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final, NoReturn

from deltalakedb.exceptions import BadIcebergRequestError, MalformedLogError
from deltalakedb.iceberg.delta.table_folder import TableFolder
from deltalakedb.iceberg.metadata.requirements import check_requirements, fail
from deltalakedb.iceberg.metadata.shapes import check_json, optional_long, require_list, string_field
from deltalakedb.iceberg.metadata.snapshots import parse_snapshot
from deltalakedb.iceberg.planning.avro import open_avro
from deltalakedb.iceberg.planning.manifests import INHERITED, Entry, ManifestFile, read_manifest, read_manifest_list
from deltalakedb.iceberg.planning.schema import PartitionSpec

JsonObjects = Sequence[Mapping[str, Any]]

MAIN: Final = "main"
_ADD: Final = "add-snapshot"
_SET_REF: Final = "set-snapshot-ref"
_RETENTION: Final = ("min-snapshots-to-keep", "max-snapshot-age-ms", "max-ref-age-ms")
_DELETED: Final = 2

LiveFiles = Callable[[], Set[str]]
"""Returns the paths of the files that an append is based on."""


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


class AppendReader:
    """Reads what a client wrote for its appends. All of it is checked: only new files of data come back."""

    def __init__(self, folder: TableFolder, spec: PartitionSpec) -> None:
        self._folder = folder
        self._table = folder.table
        self._spec = spec

    def new_files(self, append: Append, num_before: int, live_before: LiveFiles) -> list[Entry]:
        """Return the entries of the new files of a snapshot, which must keep the `num_before` files of its parent."""
        try:
            return self._new_files(append, num_before, live_before)
        except MalformedLogError as error:
            raise BadIcebergRequestError(f"{self._table}: {error}") from error

    def _new_files(self, append: Append, num_before: int, live_before: LiveFiles) -> list[Entry]:
        data = self._folder.read(append.manifest_list, "the manifest list")
        others, added, existing = 0, dict[str, Entry](), set[str]()
        for manifest in read_manifest_list(append.manifest_list, data):
            is_own = manifest.added_snapshot_id == append.snapshot_id
            if manifest.content != "data":
                if is_own:
                    refuse(self._table, "a snapshot with delete files")
            elif is_own:
                for entry in self._entries(append, manifest):
                    self._take(entry, added, existing)
            elif manifest.live_files is None:
                raise BadIcebergRequestError(
                    f"{self._table}: a manifest list says for each manifest how many files it has"
                )
            else:
                others += manifest.live_files
        if others + len(existing) != num_before:
            refuse(
                self._table,
                f"a snapshot that keeps {others + len(existing)} files, where the one that it is based on has "
                f"{num_before},",
            )
        if existing and not existing <= live_before():
            refuse(self._table, f"a snapshot that keeps {min(existing - live_before())}, which is not in the table,")
        return list(added.values())

    def _entries(self, append: Append, manifest: ManifestFile) -> list[Entry]:
        if manifest.spec_id != self._spec.spec_id:
            refuse(self._table, f"a manifest of the partition spec {manifest.spec_id}, which is not the table's,")
        data = self._folder.read(manifest.path, "the manifest")
        if any(record.get("f0") == _DELETED for record in open_avro(manifest.path, data).records()):
            refuse(self._table, "a snapshot that removes files")
        entries = list(read_manifest(manifest, data, self._spec))
        for entry in entries:
            if entry.added_by not in (None, INHERITED, append.snapshot_id):
                refuse(self._table, f"the file {entry.file_path} as one of the snapshot {entry.added_by}")
        return entries

    def _take(self, entry: Entry, added: dict[str, Entry], existing: set[str]) -> None:
        """Sort an entry into the new files, or those that the client copied from the table's own manifests."""
        if entry.file_path in added or entry.file_path in existing:
            raise BadIcebergRequestError(f"{self._table}: the file {entry.file_path} is in the snapshot twice")
        if entry.added_by is None:
            existing.add(entry.file_path)
            return
        kind = json.loads(entry.file)["file-format"]
        if kind != "parquet":
            raise BadIcebergRequestError(
                f"{self._table}: the file {entry.file_path} is of the format {kind}, and Delta tables have Parquet "
                "files"
            )
        added[entry.file_path] = entry
