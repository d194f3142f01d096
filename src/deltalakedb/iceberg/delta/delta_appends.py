"""DeltaAppends: appends of Iceberg clients to Delta tables, each a version of the table."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from deltalakedb.exceptions import BadIcebergRequestError, NotWritableError
from deltalakedb.iceberg.delta.append_files import AppendedFiles
from deltalakedb.iceberg.delta.append_requests import Append, AppendReader, check_base, read_appends, refuse
from deltalakedb.iceberg.delta.append_rules import refuse_table
from deltalakedb.iceberg.delta.delta_schema import iceberg_spec
from deltalakedb.iceberg.delta.delta_snapshots import CLIENT_ID, id_of_version
from deltalakedb.iceberg.delta.delta_tables import DeltaState, DeltaTables
from deltalakedb.iceberg.delta.table_folder import TableFolder
from deltalakedb.iceberg.locations import client_path
from deltalakedb.iceberg.metadata.requirements import check_requirements
from deltalakedb.iceberg.planning.schema import PartitionSpec, TableShape
from deltalakedb.iceberg.statements import Step, TableChange
from deltalakedb.log.protocol.actions import AddFile
from deltalakedb.log.protocol.codec import from_sql_text, to_json
from deltalakedb.log.protocol.proposal import HISTORY, REMOVALS, ProposedCommit
from deltalakedb.log.statistics.stats import record_count
from deltalakedb.store.iceberg_delta import NEWEST_FORMAT, read_live_paths
from deltalakedb.store.registry import TableRow
from deltalakedb.store.snapshot import SqlSnapshot

if TYPE_CHECKING:
    from deltalakedb.transactions.draft import TableDraft
    from deltalakedb.transactions.drafts import Drafts


def token_of(changes: Sequence[TableChange], rows: Sequence[TableRow | None]) -> str | None:
    """Return the client token of a request that appends to Delta tables; None if it does not.

    The token is that of the request itself: if the same request arrives twice at the same time, with whatever
    idempotency keys, SQL lets one of them happen.
    """
    appends = [
        (row.table_uuid, change.requirements, change.updates)
        for change, row in zip(changes, rows, strict=True)
        if row is not None and row.is_delta and change.updates
    ]
    if not appends:
        return None
    others = [(change.name.key, change.requirements, change.updates) for change in changes]
    digest = hashlib.sha256(json.dumps([appends, others], sort_keys=True).encode()).hexdigest()
    return f"iceberg:append:{digest[:40]}"


class DeltaAppends:
    """Turns the commits of Iceberg clients into commits of Delta tables."""

    def __init__(self, tables: DeltaTables) -> None:
        self._tables = tables

    def append(self, drafts: Drafts, draft: TableDraft, change: TableChange) -> Step:
        """Propose a version for each snapshot that a client adds; snapshots that are in the table are done already."""
        _check_writable(draft)
        draft.use_options(drafts.iceberg_files.options)
        name = draft.row.full_name
        appends = read_appends(name, change.updates)
        state = self._tables.load(draft.pinned)
        if not appends:
            check_requirements(change.requirements, state.metadata)
            draft.note_read(HISTORY)
            return Step(draft, state.metadata)
        if _is_done(name, appends, state):
            checks = [item for item in change.requirements if item.get("type") == "assert-table-uuid"]
            check_requirements(checks, state.metadata)
            return Step(draft, state.metadata)
        parent = check_base(name, change.requirements, appends, state.metadata)
        _Proposal(draft, state, parent).add(appends)
        return Step(draft, state.metadata)


def _check_writable(draft: TableDraft) -> None:
    """Refuse a table whose log is written by others. It is never promoted here: its users have to want that."""
    try:
        draft.check_writable()
    except NotWritableError as error:
        if draft.pinned.mode == "managed" and draft.pinned.state != "detached":
            raise  # which passes
        raise BadIcebergRequestError(str(error)) from error


def _is_done(table: str, appends: Sequence[Append], state: DeltaState) -> bool:
    """Whether a request was committed before: its snapshots are versions of the table."""
    versions = {item["snapshot-id"]: _version(item) for item in state.metadata["snapshots"]}
    done = [append.snapshot_id for append in appends if append.snapshot_id in versions]
    for snapshot_id in done:
        if id_of_version(state.opened.table.table_uuid, versions[snapshot_id]) == snapshot_id:
            refuse(table, f"the snapshot id {snapshot_id}, which the table's version {versions[snapshot_id]} has,")
    if done and len(done) < len(appends):
        refuse(table, f"the snapshot {done[0]}, which is in the table already, with others that are not,")
    return bool(done)


def _version(snapshot: Mapping[str, Any]) -> int:
    return int(snapshot["summary"]["delta.version"])


class _Proposal:
    """The versions of one table that a request proposes, on top of the snapshot that it is based on."""

    def __init__(self, draft: TableDraft, state: DeltaState, parent: Mapping[str, Any]) -> None:
        assert draft.base is not None, "a Delta table that exists has a version"
        self._draft = draft
        self._state = state
        self._num_files = int(parent["summary"]["total-data-files"])
        # The commit then checks all versions since: one that does more than append is a conflict.
        draft.go_on_from(SqlSnapshot(draft.store, draft.pinned, _version(parent), parent["timestamp-ms"]))
        self._base = draft.base
        self._metadata = self._base.metadata
        refuse_table(draft.row.full_name, self._base.protocol, self._metadata)
        self._folder = TableFolder(draft.row.full_name, draft.row.location, draft.options)
        self._live: set[str] | None = None
        self._new: set[str] = set()

    def add(self, appends: Sequence[Append]) -> None:
        reader = AppendReader(self._folder, self._spec())
        files = AppendedFiles(self._folder, self._base.protocol, self._metadata, self._state.ids)
        paths: set[str] = set()
        for append in appends:
            entries = reader.new_files(append, self._num_files, self._live_files)
            adds = files.adds(entries)
            for add in adds:
                if add.path in paths:
                    raise BadIcebergRequestError(f"{self._folder.table}: the file {add.path} is added twice")
                paths.add(add.path)
            self._draft.commits.append(self._commit(append, adds))
            self._num_files += len(adds)
            self._new |= {entry.file_path for entry in entries}
        with self._draft.store.read() as conn:
            has_vectors = self._state.metadata["format-version"] >= NEWEST_FORMAT
            live = read_live_paths(conn, self._draft.pinned.table_id, sorted(paths), has_vectors=has_vectors)
        if live:
            raise BadIcebergRequestError(f"{self._folder.table}: the file {min(live)} is in the table already")

    def _commit(self, append: Append, adds: Sequence[AddFile]) -> ProposedCommit:
        parameters = {"mode": "Append"}
        if self._metadata.partition_columns:
            parameters["partitionBy"] = to_json(list(self._metadata.partition_columns))
        num_rows = sum(record_count(add.stats) or 0 for add in adds)
        return ProposedCommit(
            actions=tuple(adds),
            operation="WRITE",
            operation_parameters=parameters,
            operation_metrics={"num_added_files": len(adds), "num_added_rows": num_rows},
            read=REMOVALS,
            user_info={CLIENT_ID: append.snapshot_id},
        )

    def _spec(self) -> PartitionSpec:
        """The partitioning at the version that the request is based on."""
        spec_id = iceberg_spec(self._metadata, self._state.ids)["spec-id"]
        return TableShape(self._state.metadata).specs[spec_id]

    def _live_files(self) -> set[str]:
        """The paths of the files that the next append is based on, as Iceberg clients read them."""
        if self._live is None:
            rows = self._base.files_table(["path"]).column("path").to_pylist()
            self._live = {client_path(self._draft.row.location, from_sql_text(path)) for path in rows}
        return self._live | self._new
