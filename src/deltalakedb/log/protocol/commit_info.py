"""Owns commitInfo: the fields that Delta's tools expect, and our mark, from which a catalog can be rebuilt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from deltalakedb.log.protocol.actions import CommitInfo
from deltalakedb.log.protocol.codec import to_json

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
    fields |= {key: value for key, value in (("actor", mark.actor), ("message", mark.message)) if value is not None}
    fields["participants"] = [
        {"tableId": participant.table_id, "tableUuid": participant.table_uuid, "version": participant.version}
        for participant in mark.participants
    ]
    return fields


def _participants(values: Sequence[Mapping[str, Any]]) -> tuple[Participant, ...]:
    return tuple(Participant(int(v["tableId"]), str(v["tableUuid"]), int(v["version"])) for v in values)
