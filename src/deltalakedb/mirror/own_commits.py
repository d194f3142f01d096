"""Commits that no user proposed (the fence, the compensating commit), and ours that are moved to other versions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from deltalakedb.exceptions import ExternalWriterError
from deltalakedb.log.protocol.actions import (
    Action,
    AddFile,
    AppTransaction,
    CommitInfo,
    DomainMetadata,
    Metadata,
    Protocol,
    RemoveFile,
)
from deltalakedb.log.protocol.codec import to_json
from deltalakedb.log.protocol.commit import Commit, render_commit
from deltalakedb.log.protocol.completion import (
    ENABLEMENT_TIMESTAMP,
    ENABLEMENT_VERSION,
    MARK,
    ROW_TRACKING,
    Mark,
    Participant,
    has_in_commit_timestamps,
    mark_domain,
    render_commit_info,
)
from deltalakedb.log.protocol.features import is_enabled
from deltalakedb.log.protocol.proposal import NOTHING_READ, WHOLE_TABLE, ProposedCommit
from deltalakedb.log.protocol.rows import (
    add_from_row,
    app_transaction_from_row,
    domain_metadata_from_row,
    metadata_from_row,
    protocol_from_row,
)
from deltalakedb.log.statistics.stats import count_or_none, load_stats
from deltalakedb.store.connection import LIVE, Connection, Store
from deltalakedb.store.ratify import ENGINE_INFO
from deltalakedb.store.reader import SqlTxnLogReader
from deltalakedb.store.registry import TableRow


def own_commit_info(
    table: TableRow,
    *,
    catalog_id: str,
    txn_id: str,
    committed_at_ms: int,
    timestamp_ms: int,
    version: int,
    operation: str,
    parameters: Mapping[str, Any],
    metadata: Metadata,
    actor: str | None,
    message: str | None = None,
) -> CommitInfo:
    """The commitInfo of a commit to this table alone, with our mark; `metadata` is the table's before the commit."""
    mark = Mark(
        catalog_id=catalog_id,
        table_id=table.table_id,
        table_uuid=table.table_uuid,
        table=table.full_name,
        txn_id=txn_id,
        committed_at_ms=committed_at_ms,
        participants=(Participant(table.table_id, table.table_uuid, version),),
        actor=actor,
        message=message,
        files_owner=table.files_owner,
    )
    return render_commit_info(
        mark,
        timestamp_ms=timestamp_ms,
        operation=operation,
        operation_parameters=parameters,
        operation_metrics={},
        read_version=version - 1,
        is_blind_append=False,
        engine_info=ENGINE_INFO,
        in_commit_timestamps=has_in_commit_timestamps(metadata),
    )


@dataclass(frozen=True, slots=True)
class StateBesideFiles:
    """The state of a table at a version, without its files."""

    protocol: Protocol
    fenced: bool
    metadata: Metadata
    app_transactions: dict[str, AppTransaction]
    domains: dict[str, DomainMetadata]

    @classmethod
    def read(cls, conn: Connection, table: TableRow, version: int) -> StateBesideFiles:
        at_version = {"table_id": table.table_id, "version": version}
        protocol, metadata = conn.one("select_protocol", **at_version), conn.one("select_metadata", **at_version)
        assert protocol is not None, "every version has a protocol"
        assert metadata is not None, "and metadata"
        return cls(
            protocol_from_row(protocol),
            bool(protocol["fenced"]),
            metadata_from_row(metadata),
            {
                action.app_id: action
                for action in map(app_transaction_from_row, conn.all("select_app_transactions", **at_version))
            },
            {
                action.domain: action
                for action in map(domain_metadata_from_row, conn.all("select_domain_metadata", **at_version))
            },
        )


def compensating_actions(
    conn: Connection, table: TableRow, wanted: StateBesideFiles, version: int, *, deleted_ms: int
) -> tuple[Action, ...]:
    """The actions that return the head to the state at `version`; empty if they are the same."""
    head_state = StateBesideFiles.read(conn, table, LIVE)
    actions: list[Action] = []
    if head_state.protocol != wanted.protocol or head_state.fenced != wanted.fenced:
        actions.append(wanted.protocol)
    if head_state.metadata != wanted.metadata:
        actions.append(wanted.metadata)
    actions += _files(conn, table, version, deleted_ms, is_enabled(wanted.metadata.configuration, "delta.appendOnly"))
    actions += [
        action
        for app_id, action in wanted.app_transactions.items()
        if head_state.app_transactions.get(app_id) != action
    ]
    actions += _domains(head_state, wanted)
    return tuple(actions)


def _files(conn: Connection, table: TableRow, version: int, deleted_ms: int, append_only: bool) -> list[Action]:
    since_version = {"table_id": table.table_id, "version": version}
    restored = [add_from_row(row) for row in conn.all("select_adds_closed_since", **since_version)]
    # A file that was added again with other statistics is live; adding it once more restores its own.
    restored_keys = {add.key for add in restored}
    added = [
        add
        for add in map(add_from_row, conn.all("select_live_adds_since", **since_version))
        if add.key not in restored_keys
    ]
    if append_only and added:
        raise ExternalWriterError(
            f"table {table.full_name} is append-only (delta.appendOnly), so what the other writer appended cannot be "
            f"taken out; nothing was changed. `dl mirror resolve {table.full_name} --adopt` keeps both"
        )
    return [*(RemoveFile.of(add, at_ms=deleted_ms) for add in added), *(_restore(add) for add in restored)]


def _restore(add: AddFile) -> AddFile:
    # The rows return, so this changes data, whether or not the original commit did.
    return replace(add, data_change=True, extra="")


def _domains(now: StateBesideFiles, wanted: StateBesideFiles) -> list[Action]:
    """Restore the domains, except the row id high-water mark: assigned row ids stay assigned."""
    changed_domains: list[Action] = [
        domain for name, domain in wanted.domains.items() if name != ROW_TRACKING and now.domains.get(name) != domain
    ]
    removed_names = [name for name in now.domains if name != ROW_TRACKING and name not in wanted.domains]
    return [*changed_domains, *(DomainMetadata(name, "", removed=True) for name in removed_names)]


@dataclass(frozen=True, slots=True)
class OwnCommit:
    """A commit of ours as it was in SQL; `fenced` is that of its protocol action, if it has one."""

    commit: Commit
    fenced: bool

    @property
    def txn_id(self) -> str | None:
        info = self.commit.commit_info
        return None if info is None else info.txn_id


@dataclass(frozen=True, slots=True)
class Recommitted:
    """A commit that kept its transaction and got a new version."""

    old_version: int
    new_version: int
    txn_id: str | None

    def to_value(self) -> dict[str, Any]:
        return {"from": self.old_version, "to": self.new_version, "txn_id": self.txn_id}


def read_own(store: Store, table: TableRow, first: int) -> tuple[OwnCommit, ...]:
    """All commits that SQL has from a version on."""
    reader = SqlTxnLogReader(store, table)
    latest = reader.latest_version()
    if latest < first:
        return ()
    with store.read(single=True) as conn:
        rows = conn.all("select_protocol_actions", table_id=table.table_id, first_version=first, last_version=latest)
    fenced = {row["version"]: bool(row["fenced"]) for row in rows}
    return tuple(OwnCommit(commit, fenced.get(commit.version, True)) for commit in reader.commits(first, latest))


def as_proposed(own: OwnCommit) -> ProposedCommit:
    """The commit as the conflict check needs it.

    A commit does not say what it read: only a blind append certainly read nothing, and a commit that changes no rows
    read none that matter.
    """
    actions = tuple(
        action
        for action in own.commit.actions
        if not isinstance(action, CommitInfo)
        and not (isinstance(action, DomainMetadata) and action.domain == ROW_TRACKING)
    )
    info = own.commit.commit_info
    value = info.value if info is not None else {}
    changes_rows = any(isinstance(action, AddFile | RemoveFile) and action.data_change for action in actions)
    read = NOTHING_READ if value.get("isBlindAppend") is True or not changes_rows else WHOLE_TABLE
    return ProposedCommit(actions, operation=str(value.get("operation") or "WRITE"), read=read)


@dataclass(slots=True)
class Rebaser:
    """Gives a table's commits their new versions, one after the other.

    `row_id_mark` is the row id high-water mark where they were made, `mark_now` that of the new place. Row ids above
    the first may belong to other rows now, so files get new ones; a file that occurs again keeps the id that it got
    here.
    """

    table_id: int
    versions: Mapping[int, int]
    row_id_mark: int
    mark_now: int
    last_ms: int
    _times: dict[int, int] = field(default_factory=dict)
    _row_ids: dict[int, int] = field(default_factory=dict)

    @classmethod
    def of(
        cls, table_id: int, commits: Sequence[OwnCommit], first_version: int, *, marks: tuple[int, int], last_ms: int
    ) -> Rebaser:
        versions = {own.commit.version: first_version + offset for offset, own in enumerate(commits)}
        return cls(table_id, versions, *marks, last_ms)

    def rebase(self, own: OwnCommit) -> Commit:
        old = own.commit
        version, self.last_ms = self.versions[old.version], max(old.timestamp_ms, self.last_ms + 1)
        self._times[old.version] = self.last_ms
        mark = self.mark_now
        actions = tuple(self._placed(action, version) for action in old.actions)
        if self.mark_now != mark and not any(_is_row_id_mark(action) for action in actions):
            actions = (*actions, mark_domain(self.mark_now))
        shows_fence = own.fenced and any(isinstance(action, Protocol) for action in actions)
        size = None if shows_fence or old.size_bytes is None else len(render_commit(actions, fenced=own.fenced))
        return Commit(version, self.last_ms, actions, size)

    def _placed(self, action: Action, version: int) -> Action:
        match action:
            case CommitInfo():
                return CommitInfo(to_json(self._info(action.value, version)))
            case AddFile() if action.base_row_id is not None:
                return self._with_row_ids(action)
            case RemoveFile() if action.base_row_id is not None:
                row_id = self._row_ids.get(action.base_row_id, action.base_row_id)
                return replace(action, base_row_id=row_id, default_row_commit_version=self._version_of(action))
            case Metadata():
                return self._with_enablement(action)
            case DomainMetadata() if action.domain == ROW_TRACKING:
                return mark_domain(self.mark_now)
        return action

    def _info(self, value: dict[str, Any], version: int) -> dict[str, Any]:
        changed = {**value, "timestamp": self.last_ms}
        if "inCommitTimestamp" in value:
            changed["inCommitTimestamp"] = self.last_ms
        if "readVersion" in value:
            changed["readVersion"] = version - 1
        mark = value.get(MARK)
        if isinstance(mark, dict) and isinstance(mark.get("participants"), list):
            participants = [self._participant(participant) for participant in mark["participants"]]
            changed[MARK] = {**mark, "participants": participants}
        return changed

    def _participant(self, one: Any) -> Any:
        if isinstance(one, dict) and one.get("tableId") == self.table_id and one.get("version") in self.versions:
            return {**one, "version": self.versions[one["version"]]}
        return one

    def _with_row_ids(self, add: AddFile) -> AddFile:
        row_id = add.base_row_id
        assert row_id is not None, "asked for before"
        if row_id > self.row_id_mark and row_id not in self._row_ids:
            self._row_ids[row_id] = self.mark_now + 1
            stats = load_stats(add.stats) if add.stats else None
            self.mark_now += count_or_none((stats or {}).get("numRecords")) or 0
        new_row_id = self._row_ids.get(row_id, row_id)
        return replace(add, base_row_id=new_row_id, default_row_commit_version=self._version_of(add))

    def _version_of(self, file: AddFile | RemoveFile) -> int | None:
        version = file.default_row_commit_version
        return version if version is None else self.versions.get(version, version)

    def _with_enablement(self, metadata: Metadata) -> Metadata:
        """Move the enablement version of in-commit timestamps, if one of these commits turned them on."""
        enabled_at = metadata.configuration.get(ENABLEMENT_VERSION)
        if enabled_at is None or not enabled_at.isdecimal() or int(enabled_at) not in self._times:
            return metadata
        old_version = int(enabled_at)
        enablement = {
            ENABLEMENT_VERSION: str(self.versions[old_version]),
            ENABLEMENT_TIMESTAMP: str(self._times[old_version]),
        }
        return replace(metadata, configuration={**metadata.configuration, **enablement})


def _is_row_id_mark(action: Action) -> bool:
    return isinstance(action, DomainMetadata) and action.domain == ROW_TRACKING
