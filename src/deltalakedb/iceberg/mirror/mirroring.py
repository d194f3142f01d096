"""Mirrors a native Iceberg table as `_delta_log` in its location, for Delta readers.

Each version of the table that changed rows or columns becomes one commit, put only if its number is free. What the log
says is compared with what it must say, so a call that is repeated, or that died, adds what is missing and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from deltalakedb.catalog.entries import require_table
from deltalakedb.data.deletion_vectors import Rows, write_vectors
from deltalakedb.exceptions import CannotMirrorError, DeltaError, MirrorError, TableNotFoundError, redact
from deltalakedb.files.log_folder import LOG_FOLDER
from deltalakedb.files.reader import FileTxnLogReader
from deltalakedb.files.upkeep import after_commit
from deltalakedb.iceberg.describing import load_version
from deltalakedb.iceberg.locations import from_iceberg
from deltalakedb.iceberg.mirror.delta_state import (
    LAYOUT_TAG,
    Target,
    adds_of,
    changes,
    metadata_of,
    needs_vector,
    protocol_of,
    to_target,
)
from deltalakedb.iceberg.mirror.layouts import NAME_MAPPING, Layout, parse_layout, parse_name_mapping, read_layouts
from deltalakedb.iceberg.mirror.live_files import SnapshotReader
from deltalakedb.iceberg.mirror.places import to_delta_path
from deltalakedb.iceberg.mirror.vectors import deleted_rows
from deltalakedb.iceberg.planning.reading import StoredFiles
from deltalakedb.iceberg.planning.schema import TableShape
from deltalakedb.log.protocol.actions import Action, AddFile, AppTransaction, CommitInfo, DeletionVector
from deltalakedb.log.protocol.codec import to_json
from deltalakedb.log.protocol.commit import render_commit
from deltalakedb.log.protocol.fence import fence, shows_iceberg
from deltalakedb.log.protocol.rows import add_from_row
from deltalakedb.mirror.table_mirror import open_log_writer
from deltalakedb.runtime.steps import reached
from deltalakedb.runtime.version import __version__
from deltalakedb.store.names import parse_table_name

if TYPE_CHECKING:
    from deltalakedb.catalog.catalog import Catalog
    from deltalakedb.files.snapshot import FileSnapshot
    from deltalakedb.iceberg.catalog import LoadedTable

MAX_VERSIONS: Final = 100
"""How many versions one call makes into commits of their own; of older ones the last becomes a commit."""

ATTEMPTS: Final = 20
"""How often the log is read again because another process put a commit first."""

VECTORS_FOLDER: Final = f"{LOG_FOLDER}/_vectors"
"""Vectors lie in the log's folder, so that what the mirror made is in one place and no clean-up of data takes it."""

_ABSENT_IN_V1: Final = 2
_OPERATION: Final = "MIRROR ICEBERG"


@dataclass(frozen=True, slots=True)
class MirroredTable:
    """What a Delta reader finds now. `commits` are the versions of the log that were added."""

    table: str
    version: int
    location: str
    delta_version: int
    commits: tuple[int, ...]


def mirror_table(catalog: Catalog, name: str, options: Mapping[str, str] | None = None) -> MirroredTable:
    """Bring the `_delta_log` of an Iceberg table up to its newest version; create it if there is none.

    Raises CannotMirrorError, and adds nothing, if Delta readers could not read the newest version.
    """
    loaded = load_version(catalog, name)
    if "view-uuid" in loaded.metadata:
        raise MirrorError(f"{loaded.name} is a view: it has no rows of its own that could be mirrored")
    if int(loaded.metadata["format-version"]) < _ABSENT_IN_V1:
        raise CannotMirrorError(
            f"{loaded.name} cannot be mirrored for Delta readers: it has version 1 of the format; upgrade it to "
            "version 2"
        )
    mirror = _Mirror(catalog, loaded, {**(loaded.options or {}), **(options or {})} or None)
    for _ in range(ATTEMPTS):
        if mirror.bring_up():
            return mirror.result()
    raise MirrorError(f"{loaded.name}: other processes add to its _delta_log all the time; try again")


class _Mirror:
    """One call: the table, its log, and what was read of both."""

    def __init__(self, catalog: Catalog, head: LoadedTable, options: Mapping[str, str] | None) -> None:
        self._catalog, self._head, self._options = catalog, head, options
        self._location = str(head.metadata["location"])
        self._full_name = str(head.name)
        place = from_iceberg(self._location)
        self._reader = FileTxnLogReader(place, options, table=self._full_name)
        with catalog.store.read(single=True) as conn:
            row = require_table(conn, parse_table_name(self._full_name))
        self._writer = open_log_writer(catalog.store, row, options, catalog.config.mirror_conditional_put)
        self._app_id = f"{_OPERATION.lower().replace(' ', '-')}:{head.table_uuid}"
        self._snapshots = SnapshotReader(StoredFiles(options))
        self._layouts: dict[str, Layout] = {}
        self._targets: dict[int, Target] = {}
        self._deleted_rows: dict[tuple[str, str | None], Rows] = {}
        self._commits: list[int] = []
        self._log: FileSnapshot | None = None

    def result(self) -> MirroredTable:
        assert self._log is not None, "the log was brought up"
        return MirroredTable(
            self._full_name, self._head.version, self._reader.location, self._log.version, tuple(self._commits)
        )

    def bring_up(self) -> bool:
        """Add what is missing; False if another process was faster, and the log must be read again."""
        self._log = self._read_log()
        before = self._live_files()
        self._layouts |= {path: parse_layout((add.tags or {})[LAYOUT_TAG] or "") for path, add in before.items()}
        shown = self._shown_version()
        if shown >= self._head.version:
            return True
        try:
            self._read_deleted_rows(self._target(self._head.version), before)
        except CannotMirrorError as error:
            raise CannotMirrorError(f"{self._full_name} cannot be mirrored for Delta readers: {error}") from error
        for version in self._versions(shown + 1):
            before = self._live_files()
            try:
                actions = self._actions(self._target(version), before)
            except DeltaError:
                if version == self._head.version:
                    raise
                continue  # it could not be mirrored, or its files are gone: the next version covers it
            if actions and not self._put(version, actions):
                return False
        return True

    # -- the log

    def _read_log(self) -> FileSnapshot | None:
        try:
            log = self._reader.snapshot()
        except TableNotFoundError:
            return None
        if not shows_iceberg(log.metadata) or log.metadata.id != self._head.metadata["table-uuid"]:
            raise MirrorError(
                f"{self._full_name} cannot be mirrored for Delta readers: {redact(self._reader.location)} has the "
                "_delta_log of another table; move the Iceberg table, or delete that log"
            )
        return log

    def _live_files(self) -> dict[str, AddFile]:
        if self._log is None:
            return {}
        rows = (row for batch in self._log.files() for row in batch.to_pylist())
        return {add.path: add for add in map(add_from_row, rows)}

    def _shown_version(self) -> int:
        """The version of the table that the log has; -1 if none, or if it was registered anew."""
        if self._log is None:
            return -1
        seen = self._log.app_transactions().get(self._app_id)
        return -1 if seen is None else seen.version

    def _put(self, version: int, actions: list[Action]) -> bool:
        number = 0 if self._log is None else self._log.version + 1
        metadata = self._targets[version].metadata
        at_ms = int(metadata["last-updated-ms"])
        if self._log is not None:
            at_ms = max(at_ms, self._log.timestamp_ms + 1)
        snapshot_id = metadata.get("current-snapshot-id")
        info = {
            "timestamp": at_ms,
            "operation": _OPERATION,
            "operationParameters": {"version": str(version), "snapshotId": str(snapshot_id)},
            "engineInfo": f"deltalakedb:py-{__version__}",
        }
        lines = [CommitInfo(to_json(info)), *actions, AppTransaction(self._app_id, version)]
        reached("iceberg_mirror.prepared")
        # A folder that is gone was purged with its table.
        content, is_first = render_commit(lines, fenced=True), number == 0
        if self._writer.put_commit(number, content, modified_ms=at_ms, creates_folder=is_first) == "exists":
            return False
        reached("iceberg_mirror.put")
        self._commits.append(number)
        self._log = self._reader.snapshot() if self._log is None else self._reader.advance(self._log)
        after_commit(self._writer, self._reader.snapshot, checkpoint=True, cleanup=False)
        return self._log.version == number

    # -- the table

    def _versions(self, first: int) -> Iterator[int]:
        """The versions to mirror: those after which rows or columns differ from before, and the newest."""
        last_state: tuple[Any, ...] | None = None
        for version in range(max(first, self._head.version - MAX_VERSIONS + 1), self._head.version):
            try:
                metadata = load_version(self._catalog, self._full_name, version).metadata
            except DeltaError:
                continue  # its rows were collected
            state = (metadata.get("current-snapshot-id"), metadata["current-schema-id"], metadata["default-spec-id"])
            if state != last_state:
                last_state = state
                yield version
        yield self._head.version

    def _target(self, version: int) -> Target:
        if version not in self._targets:
            is_head = version == self._head.version
            loaded = self._head if is_head else load_version(self._catalog, self._full_name, version)
            self._targets = {key: target for key, target in self._targets.items() if key == self._head.version}
            self._targets[version] = self._read_target(loaded.metadata)
        return self._targets[version]

    def _read_target(self, metadata: Mapping[str, Any]) -> Target:
        files = self._snapshots.files(metadata, TableShape(metadata))
        paths = {item.path: to_delta_path(item.path, self._location) for item in files}
        new = [path for path, delta_path in paths.items() if delta_path not in self._layouts]
        mapping = parse_name_mapping(metadata.get("properties", {}).get(NAME_MAPPING))
        for path, layout in read_layouts(new, self._options, mapping).items():
            self._layouts[paths[path]] = layout
        return to_target(
            metadata, self._location, files, {path: self._layouts[delta_path] for path, delta_path in paths.items()}
        )

    def _actions(self, target: Target, before: Mapping[str, AddFile]) -> list[Action]:
        """The actions that lead from the log to a version of the table; none if it says that already."""
        actions: list[Action] = []
        at_ms = int(target.metadata["last-updated-ms"])
        after = list(adds_of(target, before, self._write_vectors(target, before)))
        protocol = protocol_of(target, has_vectors=any(add.deletion_vector for add in after))
        created_ms = None if self._log is None else self._log.metadata.created_time
        metadata = metadata_of(target, created_ms=at_ms if created_ms is None else created_ms)
        if self._log is None or fence(protocol) != self._log.protocol:
            actions.append(protocol)
        if self._log is None or metadata != self._log.metadata:
            actions.append(metadata)
        return actions + changes(before, after, at_ms=at_ms)

    def _write_vectors(self, target: Target, before: Mapping[str, AddFile]) -> dict[str, DeletionVector | None]:
        rows = self._read_deleted_rows(target, before)
        vectors: dict[str, DeletionVector | None] = dict.fromkeys(rows)
        with_rows = {path: numbers for path, numbers in rows.items() if len(numbers)}
        if with_rows:
            written, _ = write_vectors(self._reader.storage, list(with_rows.values()), VECTORS_FOLDER)
            vectors.update(zip(with_rows, written, strict=True))
            reached("iceberg_mirror.vectors_written")
        return vectors

    def _read_deleted_rows(self, target: Target, before: Mapping[str, AddFile]) -> dict[str, Rows]:
        """The deleted rows of the files whose vectors in the log are missing or of other rows, by Iceberg's paths."""
        wanted = {
            item.path: item
            for item in target.files
            if needs_vector(item, before.get(to_delta_path(item.path, self._location)))
        }
        missing = [item for item in wanted.values() if (item.path, item.deletes_key) not in self._deleted_rows]
        for path, rows in deleted_rows(missing, self._options).items():
            self._deleted_rows[path, wanted[path].deletes_key] = rows
        return {path: self._deleted_rows[path, item.deletes_key] for path, item in wanted.items()}
