"""The audit trail: who did what to which table, written in the transaction that does it."""

import json
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from deltalakedb.exceptions import redact
from deltalakedb.runtime.caller import current_caller
from deltalakedb.store.connection import Connection
from deltalakedb.store.registry import TableRow, to_json_text

MAX_AUDIT_ROWS = 1_000_000


@dataclass(frozen=True, slots=True)
class AuditRow:
    """One entry of the audit trail: who did what, when, from where."""

    audit_id: str
    at_ms: int
    actor: str | None
    origin: str | None
    action: str
    table_id: int | None
    table_name: str | None
    details: Mapping[str, Any] | None


def write_audit(
    conn: Connection,
    *,
    action: str,
    at_ms: int,
    actor: str | None = None,
    origin: str | None = None,
    table: TableRow | None = None,
    details: Mapping[str, Any] | None = None,
) -> None:
    """Records an operation in the transaction that does it, with the request; secrets in the details are masked."""
    caller = current_caller()
    if caller is not None:
        details = {**(details or {}), "request": caller.request_fields()}
    conn.run(
        "insert_audit",
        # Two operations may have the same millisecond; their ids then keep their order.
        audit_id=f"{time.time_ns():016x}-{uuid.uuid4().hex}",
        at_ms=at_ms,
        actor=actor,
        origin=origin,
        action=action,
        table_id=table.table_id if table else None,
        table_name=table.full_name if table else None,
        details=None if details is None else to_json_text(_masked(details)),
    )


def read_audit(
    conn: Connection,
    *,
    since_ms: int | None = None,
    until_ms: int | None = None,
    actor: str | None = None,
    table_id: int | None = None,
    limit: int | None = None,
) -> list[AuditRow]:
    """The audit trail, newest first."""
    rows = conn.all(
        "select_audit",
        since_ms=since_ms,
        until_ms=until_ms,
        actor=actor,
        table_id=table_id,
        max_rows=MAX_AUDIT_ROWS if limit is None else limit,
    )
    return [AuditRow(**{**row, "details": json.loads(row["details"]) if row["details"] else None}) for row in rows]


def _masked(value: Any) -> Any:
    """Masks every text with `redact`, together with its key: `{"password": "x"}` is a secret because of its key."""
    if not isinstance(value, Mapping):
        return redact(value) if isinstance(value, str) else value
    masked = {}
    for key, item in value.items():
        is_secret = isinstance(item, str) and redact(f"{key}={item}") != f"{key}={redact(item)}"
        masked[key] = "***" if is_secret else _masked(item)
    return masked
