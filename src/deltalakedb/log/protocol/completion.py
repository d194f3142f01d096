"""Completes a commit when its version and time are decided, in SQL and in files alike: row ids, in-commit times, and
commitInfo with the mark of its catalog."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from deltalakedb.exceptions import ConcurrentTransactionError, InvalidCommitError, redact
from deltalakedb.log.protocol.actions import (
    Action,
    AddFile,
    AppTransaction,
    CommitInfo,
    DomainMetadata,
    Metadata,
    Protocol,
)
from deltalakedb.log.protocol.codec import to_json
from deltalakedb.log.protocol.features import is_enabled, writer_features
from deltalakedb.log.statistics.stats import record_count

ROW_TRACKING: Final = "delta.rowTracking"
"""The domain of the high watermark, which is assigned under the lock: two commits that carry it do not conflict."""
_MARK: Final = "rowIdHighWaterMark"
IN_COMMIT_TIMESTAMPS: Final = "delta.enableInCommitTimestamps"
ENABLEMENT_VERSION: Final = "delta.inCommitTimestampEnablementVersion"
ENABLEMENT_TIMESTAMP: Final = "delta.inCommitTimestampEnablementTimestamp"


def has_in_commit_timestamps(metadata: Metadata | None) -> bool:
    """Whether a commit with this metadata in force must contain its time."""
    return metadata is not None and is_enabled(metadata.configuration, IN_COMMIT_TIMESTAMPS)


def with_enablement(metadata: Metadata, before: Metadata | None, version: int, at_ms: int) -> Metadata:
    """Adds the enablement version and timestamp, required if in-commit timestamps are turned on after version 0."""
    if version == 0 or not has_in_commit_timestamps(metadata) or has_in_commit_timestamps(before):
        return metadata
    enablement = {ENABLEMENT_VERSION: str(version), ENABLEMENT_TIMESTAMP: str(at_ms)}
    return replace(metadata, configuration={**metadata.configuration, **enablement})


def keeps_in_commit_timestamps(configuration: Mapping[str, str | None], version: int) -> bool:
    """Whether the commit of `version` contains its time (PROTOCOL.md, "In-Commit Timestamps")."""
    if not is_enabled(configuration, IN_COMMIT_TIMESTAMPS):
        return False
    since = configuration.get(ENABLEMENT_VERSION) or "0"
    return not since.isdecimal() or version >= int(since)


def in_commit_timestamp(first: Action | None) -> int | None:
    """The in-commit timestamp in a commit's first action; it counts only there."""
    if isinstance(first, CommitInfo) and "inCommitTimestamp" in first.text:
        return first.in_commit_timestamp
    return None


class InCommitTimestamps:
    """The times of commits that are read in order. The configuration before the first one is read only if needed."""

    def __init__(self, configuration_before: Callable[[], Mapping[str, str | None] | None]) -> None:
        self._configuration_before = configuration_before
        self._known = False
        self._configuration: Mapping[str, str | None] | None = None

    def of(self, version: int, actions: Sequence[Action], modified_ms: int) -> int:
        """The time of the commit with these actions, whose file was last modified at `modified_ms`."""
        for action in actions:
            if isinstance(action, Metadata):
                self._known, self._configuration = True, action.configuration
        stamp = in_commit_timestamp(actions[0]) if actions else None
        return modified_ms if stamp is None or not self._enabled(version) else stamp

    def _enabled(self, version: int) -> bool:
        if not self._known:
            self._known, self._configuration = True, self._configuration_before()
        # If the log no longer has the configuration, trust a timestamp in the commit.
        return self._configuration is None or keeps_in_commit_timestamps(self._configuration, version)


def high_water_mark(domain: DomainMetadata | None) -> int:
    """The largest row id assigned so far; -1 before the first."""
    if domain is None or domain.removed:
        return -1
    value = json.loads(domain.configuration).get(_MARK)
    return value if isinstance(value, int) else -1


def mark_domain(mark: int) -> DomainMetadata:
    """The action that records the largest row id assigned so far."""
    return DomainMetadata(ROW_TRACKING, to_json({_MARK: mark}), removed=False)


def assign_row_ids(
    actions: Sequence[Action], *, version: int, mark: int, table: str, first_new: int
) -> tuple[list[Action], int]:
    """Assigns ids to adds that have none, or one that the proposer guessed (from `first_new` on); returns the new
    mark."""
    assigned: list[Action] = []
    new_mark = mark
    for action in actions:
        if isinstance(action, DomainMetadata) and action.domain == ROW_TRACKING:
            continue  # replaced below: the proposer's mark is older than the lock
        if isinstance(action, AddFile) and (action.base_row_id is None or action.base_row_id >= first_new):
            records = record_count(action.stats)
            if records is None:
                raise InvalidCommitError(
                    f"table {table}: {action.path} has no numRecords in its statistics; row tracking needs it"
                )
            assigned.append(replace(action, base_row_id=new_mark + 1, default_row_commit_version=version))
            new_mark += records
        else:
            assigned.append(action)
    if new_mark != mark:
        assigned.append(mark_domain(new_mark))
    return assigned, new_mark


@dataclass(slots=True)
class InForce:
    """A table's protocol, metadata and row id mark, before and after each commit that is finished on top of them."""

    protocol: Protocol | None = None
    metadata: Metadata | None = None
    row_id_mark: int = -1

    def finish(self, proposed: Iterable[Action], *, version: int, at_ms: int, table: str) -> list[Action]:
        """The actions as committed, without commitInfo: enablement of in-commit timestamps and row ids filled in."""
        actions = list(proposed)
        for position, action in enumerate(actions):
            if isinstance(action, Protocol):
                self.protocol = action
            elif isinstance(action, Metadata):
                self.metadata = actions[position] = with_enablement(action, self.metadata, version, at_ms)
        if self.protocol is not None and "rowTracking" in writer_features(self.protocol):
            actions, self.row_id_mark = assign_row_ids(
                actions, version=version, mark=self.row_id_mark, table=table, first_new=self.row_id_mark + 1
            )
        return actions


def check_applications(actions: Iterable[Action], committed: Mapping[str, int], *, table: str, version: int) -> None:
    """Raises unless each application's version grows: a repeated version means that the work is already committed.

    `committed` has the applications' versions at `version` of the table.
    """
    for action in actions:
        if not isinstance(action, AppTransaction):
            continue
        current = committed.get(action.app_id)
        if current is not None and current >= action.version:
            raise ConcurrentTransactionError(
                f"table {redact(table)}: application {action.app_id} is at version {current} already, and this "
                f"transaction would record {action.version}: the work was committed before, or by another process; "
                "nothing was committed",
                table=table,
                version=version,
            )


MARK: Final = "deltalakedb"
"""The field of commitInfo that holds our mark."""

ISOLATION_LEVEL: Final = "Serializable"
_FOR_USERS: Final = frozenset({"clientVersion", "isolationLevel"})
"""Fields in which a user's value replaces ours."""


@dataclass(frozen=True, slots=True)
class Participant:
    """A version of a table committed by the same transaction. Only a hint: the transaction id is authoritative."""

    table_id: int
    table_uuid: str
    version: int


@dataclass(frozen=True, slots=True)
class Mark:
    """The catalog, table and transaction of a commit."""

    catalog_id: str
    table_id: int
    table_uuid: str
    table: str
    txn_id: str
    committed_at_ms: int
    participants: tuple[Participant, ...] = ()
    actor: str | None = None
    message: str | None = None
    request: Mapping[str, str] | None = None
    """The request to `dl serve` that made the commit: its id, its proof, address and user agent."""
    files_owner: str = "user"
    """Who chose the table's folder: `catalog` or `user`."""
    dropped: bool = False
    """Whether this commit drops the table, which then only waits to be undropped or purged."""


def render_commit_info(
    mark: Mark,
    *,
    timestamp_ms: int,
    operation: str,
    operation_parameters: Mapping[str, Any],
    operation_metrics: Mapping[str, Any],
    read_version: int | None,
    is_blind_append: bool,
    engine_info: str,
    in_commit_timestamps: bool = False,
    user_info: Mapping[str, Any] | None = None,
) -> CommitInfo:
    """Renders commitInfo; the in-commit timestamp is first, if the table has them. Parameters are text, as Spark
    expects; metrics are numbers, as `deltalake` writes them and Spark reads them too."""
    info: dict[str, Any] = {"inCommitTimestamp": timestamp_ms} if in_commit_timestamps else {}
    info |= {
        "timestamp": timestamp_ms,
        "operation": operation,
        "operationParameters": {
            key: value if isinstance(value, str) else to_json(value) for key, value in operation_parameters.items()
        },
    }
    if read_version is not None:
        info["readVersion"] = read_version
    info |= {
        "isolationLevel": ISOLATION_LEVEL,
        "isBlindAppend": is_blind_append,
        **render_metrics(operation_metrics),
        "engineInfo": engine_info,
        "clientVersion": engine_info,
        "txnId": mark.txn_id,
        MARK: _mark_to_json(mark),
    }
    if user_info:
        info = with_user_fields(info, user_info, is_blind_append=is_blind_append)
    return CommitInfo(to_json(info))


def render_metrics(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """The field `operationMetrics`, absent if a commit has no metrics.

    Readers accept a text or a number as a metric: a nested value is written as JSON text.
    """
    values = {
        key: value if isinstance(value, str | int | float) else to_json(value)
        for key, value in metrics.items()
        if value is not None
    }
    return {"operationMetrics": values} if values else {}


def with_user_fields(info: Mapping[str, Any], user: Mapping[str, Any], *, is_blind_append: bool) -> dict[str, Any]:
    """Adds a user's fields to a commitInfo; the ones that replace ours are those of `deltalake`.

    For a blind append a user may state the version read, or that it was not blind. A commit that has read rows is never
    marked as blind, because conflict checks rely on it.
    """
    allowed = _FOR_USERS | {"isBlindAppend", "readVersion"} if is_blind_append else _FOR_USERS
    return {**info, **{key: value for key, value in user.items() if key not in info or key in allowed}}


def mark_commit_info(info: CommitInfo, mark: Mark, *, timestamp_ms: int) -> CommitInfo:
    """Adds our mark, the time and the transaction id to the commitInfo of another engine."""
    value = info.value
    if "inCommitTimestamp" in value:
        value["inCommitTimestamp"] = timestamp_ms
    value["timestamp"] = timestamp_ms
    value["txnId"] = mark.txn_id
    value[MARK] = _mark_to_json(mark)
    return CommitInfo(to_json(value))


def parse_mark(info: CommitInfo | None) -> Mark | None:
    """Our mark, if the commit has one that can be read."""
    value = info.value if info is not None else {}
    mark, txn_id = value.get(MARK), value.get("txnId")
    if not isinstance(mark, Mapping) or not isinstance(txn_id, str):
        return None
    try:
        return Mark(
            catalog_id=str(mark["catalogId"]),
            table_id=int(mark["tableId"]),
            table_uuid=str(mark["tableUuid"]),
            table=str(mark["table"]),
            txn_id=txn_id,
            committed_at_ms=int(mark["committedAt"]),
            participants=_participants(mark.get("participants") or ()),
            actor=mark.get("actor"),
            message=mark.get("message"),
            request=mark.get("request"),
            files_owner=str(mark.get("filesOwner") or "user"),
            dropped=bool(mark.get("dropped")),
        )
    except (KeyError, TypeError, ValueError):
        return None


def _mark_to_json(mark: Mark) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "catalogId": mark.catalog_id,
        "tableId": mark.table_id,
        "tableUuid": mark.table_uuid,
        "table": mark.table,
        "committedAt": mark.committed_at_ms,
        "filesOwner": mark.files_owner,
    }
    if mark.dropped:
        fields["dropped"] = True
    optional = (("actor", mark.actor), ("message", mark.message), ("request", mark.request))
    fields |= {key: value for key, value in optional if value is not None}
    fields["participants"] = [
        {"tableId": participant.table_id, "tableUuid": participant.table_uuid, "version": participant.version}
        for participant in mark.participants
    ]
    return fields


def _participants(values: Sequence[Mapping[str, Any]]) -> tuple[Participant, ...]:
    return tuple(Participant(int(v["tableId"]), str(v["tableUuid"]), int(v["version"])) for v in values)
