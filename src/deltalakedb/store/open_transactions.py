"""Open transactions in SQL: with what each was begun, and its calls, so that any endpoint can go on with it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from deltalakedb.exceptions import GoneError
from deltalakedb.log.protocol.codec import to_json, to_sql_text
from deltalakedb.store.connection import Connection, Row, Store
from deltalakedb.store.names import full_name
from deltalakedb.store.snapshot import pin_all

Stage = Literal["open", "committing", "failed"]

PINNED = ("namespace", "name", "mode", "state")
"""What of a table's registry row a transaction keeps seeing, whatever others do to the table."""


@dataclass(frozen=True, slots=True)
class Beginning:
    """What a transaction was begun with."""

    message: str | None
    lock: tuple[str, ...]
    tables: tuple[str, ...] | None
    """The only tables that it may use; None: all."""
    pins: Mapping[str, Sequence[Any]]
    """By table id: the version, the count of vacuums, and the `PINNED` columns that the transaction sees."""


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a transaction stands."""

    actor: str
    num_calls: int
    stage: Stage
    failure: str | None
    seen_ms: int


@dataclass(frozen=True, slots=True)
class StagedCall:
    """One call that a transaction depends on: what was read, or a staged commit and its text."""

    kind: str
    arguments: tuple[Any, ...]
    body: str | None = None


def pins_of(rows: Sequence[Row]) -> dict[str, Sequence[Any]]:
    """The pins of a cut, as `insert_beginning` stores them."""
    return {
        str(row["table_id"]): [row["current_version"], row["vacuum_count"], *(row[column] for column in PINNED)]
        for row in rows
    }


def insert_beginning(conn: Connection, txn_id: str, beginning: Beginning, *, actor: str, request: str) -> str:
    """Store a transaction that has begun; return its id, or that of the one that the same request has begun before."""
    inserted = conn.run(
        "insert_open_transaction",
        txn_id=txn_id,
        request_id=request or txn_id,
        actor=actor,
        message=beginning.message,
        lock_names=to_json(list(beginning.lock)),
        table_names=None if beginning.tables is None else to_json(list(beginning.tables)),
        pins=to_json(dict(beginning.pins)),
        seen_ms=conn.now_ms(),
    )
    row = None if inserted else conn.one("select_transaction_of_request", request_id=request)
    return txn_id if row is None else str(row["txn_id"])


def begun_by(conn: Connection, request: str) -> str | None:
    """The transaction that a client's request has begun."""
    row = conn.one("select_transaction_of_request", request_id=request)
    return None if row is None else str(row["txn_id"])


def standing_of(conn: Connection, txn_id: str) -> Standing | None:
    row = conn.one("select_open_transaction", txn_id=txn_id)
    return None if row is None else Standing(**row)


def beginning_of(conn: Connection, txn_id: str) -> Beginning | None:
    row = conn.one("select_beginning", txn_id=txn_id)
    if row is None:
        return None
    tables = None if row["table_names"] is None else tuple(json.loads(row["table_names"]))
    return Beginning(row["message"], tuple(json.loads(row["lock_names"])), tables, json.loads(row["pins"]))


def calls_from(conn: Connection, txn_id: str, number: int) -> list[StagedCall]:
    """The recorded calls from a number on."""
    rows = conn.all("select_staged_calls", txn_id=txn_id, call_number=number)
    return [StagedCall(row["kind"], tuple(json.loads(row["arguments"])), row["body"]) for row in rows]


def record_calls(conn: Connection, txn_id: str, number: int, calls: Sequence[StagedCall]) -> bool:
    """Record calls with numbers from `number` on; False if others have these, or the transaction takes none."""
    if not conn.run("record_calls", txn_id=txn_id, num_calls=number, added=len(calls), seen_ms=conn.now_ms()):
        return False
    for offset, call in enumerate(calls):
        conn.run(
            "insert_staged_call",
            txn_id=txn_id,
            call_number=number + offset,
            kind=call.kind,
            arguments=to_json(list(call.arguments)),
            body=call.body,
        )
    return True


def pinned_rows(store: Store, beginning: Beginning) -> list[Row]:
    """The rows of the transaction's cut, also of tables that were dropped since; GoneError if one was cleaned up."""
    live = {str(row["table_id"]): row for row in pin_all(store)}
    rows = []
    with store.read() as conn:
        for table_id, (version, vacuum_count, *columns) in beginning.pins.items():
            seen = dict(zip(PINNED, columns, strict=False))  # without the last ones if an older release began it
            row = live.get(table_id) or conn.one("select_last_head", table_id=int(table_id))
            if row is None:
                raise GoneError(
                    f"the table {full_name(seen['namespace'], seen['name'])}, which the transaction sees, was dropped "
                    "and cleaned up since; begin another transaction"
                )
            pinned = dict(row) | seen | {"vacuum_count": vacuum_count}
            if row["current_version"] != version:
                version_row = conn.one("select_version", table_id=row["table_id"], version=version)
                pinned.pop("metadata_id", None)  # metadata and protocol are those of a later version
                pinned |= {"current_version": version}
                pinned |= {"last_commit_ms": version_row["committed_at_ms"]} if version_row else {}
            rows.append(pinned)
    return rows


def see(conn: Connection, txn_id: str) -> None:
    """Note a sign of life."""
    conn.run("see_open_transaction", txn_id=txn_id, seen_ms=conn.now_ms())


def begin_to_commit(conn: Connection, txn_id: str, num_calls: int) -> bool:
    """From now on the transaction takes no calls; False if it has others than these."""
    return conn.run("begin_to_commit", txn_id=txn_id, num_calls=num_calls, seen_ms=conn.now_ms()) > 0


def end(conn: Connection, txn_id: str, failure: str | None = None) -> None:
    """Forget a transaction that is over; why it failed is kept for a while."""
    conn.run("delete_staged_calls", txn_id=txn_id)
    if failure is None:
        conn.run("delete_open_transaction", txn_id=txn_id)
    else:
        conn.run("fail_open_transaction", txn_id=txn_id, failure=to_sql_text(failure), seen_ms=conn.now_ms())


def is_any_silent(conn: Connection, silent_seconds: float, remember_seconds: float) -> bool:
    """Whether `claim_silent` has anything to do."""
    return bool(_silent(conn, silent_seconds, remember_seconds))


def _silent(conn: Connection, silent_seconds: float, remember_seconds: float) -> list[Row]:
    now_ms = conn.now_ms()
    silent_ms, forgotten_ms = (now_ms - round(seconds * 1000) for seconds in (silent_seconds, remember_seconds))
    return conn.all("select_silent_transactions", silent_ms=silent_ms, forgotten_ms=forgotten_ms)


def claim_silent(conn: Connection, silent_seconds: float, remember_seconds: float) -> list[tuple[str, str]]:
    """Silent transactions and their users, for this endpoint alone to end; forgets those that failed long ago."""
    now_ms, claimed = conn.now_ms(), []
    for row in _silent(conn, silent_seconds, remember_seconds):
        if row["stage"] == "failed":
            conn.run("delete_open_transaction", txn_id=row["txn_id"])
        elif conn.run("claim_silent_transaction", txn_id=row["txn_id"], last_ms=row["seen_ms"], seen_ms=now_ms):
            claimed.append((str(row["txn_id"]), str(row["actor"])))
    return claimed


def live_ids(conn: Connection) -> frozenset[str]:
    """The transactions that are not over."""
    return frozenset(str(row["txn_id"]) for row in conn.all("select_live_transactions"))
