"""The commitInfo of our commits: what Delta's tools expect, and our mark, from which a catalog can be rebuilt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from deltalakedb.log.actions import CommitInfo
from deltalakedb.log.codec import to_json

MARK: Final = "deltalakedb"
"""The field of commitInfo that holds our mark."""

ISOLATION_LEVEL: Final = "Serializable"
_FOR_USERS: Final = frozenset({"clientVersion", "isolationLevel"})
"""Fields that say what a user says, if he does."""


@dataclass(frozen=True, slots=True)
class Participant:
    """A version of a table that was committed by the same transaction. A hint: the transaction id is what counts."""

    table_id: int
    table_uuid: str
    version: int


@dataclass(frozen=True, slots=True)
class Mark:
    """Which catalog made a commit, of which table, in which transaction."""

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
    """Whether the catalog chose the table's folder, or its user."""
    dropped: bool = False
    """Whether the table is dropped by this commit, and only waits to be undropped or purged."""


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
    """The in-commit timestamp stands first, where a table has them; Spark wants parameters and metrics as text."""
    info: dict[str, Any] = {"inCommitTimestamp": timestamp_ms} if in_commit_timestamps else {}
    info |= {
        "timestamp": timestamp_ms,
        "operation": operation,
        "operationParameters": {key: _text(value) for key, value in operation_parameters.items()},
    }
    if read_version is not None:
        info["readVersion"] = read_version
    info |= {
        "isolationLevel": ISOLATION_LEVEL,
        "isBlindAppend": is_blind_append,
        "operationMetrics": {key: _text(value) for key, value in operation_metrics.items()},
        "engineInfo": engine_info,
        "txnId": mark.txn_id,
        MARK: _mark_to_json(mark),
    }
    return CommitInfo(to_json(with_user_fields(info, user_info or {}, is_blind_append=is_blind_append)))


def with_user_fields(info: Mapping[str, Any], user: Mapping[str, Any], *, is_blind_append: bool) -> dict[str, Any]:
    """A commitInfo with the fields that a user gives; which of them replace ours is as with `deltalake`.

    Of a blind append a user may say which version he has read, or that it was not blind. A commit that has read rows is
    never called blind: conflicts are judged by it.
    """
    given_up = _FOR_USERS | {"isBlindAppend", "readVersion"} if is_blind_append else _FOR_USERS
    return {**info, **{key: value for key, value in user.items() if key not in info or key in given_up}}


def mark_commit_info(info: CommitInfo, mark: Mark, *, timestamp_ms: int) -> CommitInfo:
    """What another engine says of its commit, with the time and the transaction that it has become."""
    value = info.value
    if "inCommitTimestamp" in value:
        value["inCommitTimestamp"] = timestamp_ms
    value["timestamp"] = timestamp_ms
    value["txnId"] = mark.txn_id
    value[MARK] = _mark_to_json(mark)
    return CommitInfo(to_json(value))


def parse_mark(info: CommitInfo | None) -> Mark | None:
    """Our mark, when the commit carries one that can be understood."""
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
    shown: dict[str, Any] = {
        "catalogId": mark.catalog_id,
        "tableId": mark.table_id,
        "tableUuid": mark.table_uuid,
        "table": mark.table,
        "committedAt": mark.committed_at_ms,
        "filesOwner": mark.files_owner,
    }
    if mark.dropped:
        shown["dropped"] = True
    shown |= {key: value for key, value in (("actor", mark.actor), ("message", mark.message)) if value is not None}
    shown["participants"] = [
        {"tableId": one.table_id, "tableUuid": one.table_uuid, "version": one.version} for one in mark.participants
    ]
    return shown


def _participants(values: Sequence[Mapping[str, Any]]) -> tuple[Participant, ...]:
    return tuple(Participant(int(v["tableId"]), str(v["tableUuid"]), int(v["version"])) for v in values)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else to_json(value)
