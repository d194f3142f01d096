"""Appends: commits in one database call that only add files to one table, which no other process wrote meanwhile.

This path decides nothing. Its rows are those that the ordinary path would write on top of this process's last commit.
The engine writes them if that state still holds; otherwise the commit takes the ordinary path.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, NoReturn, Protocol, cast, runtime_checkable

import orjson

from deltalakedb.log.protocol.actions import AddFile
from deltalakedb.log.protocol.features import writer_features
from deltalakedb.runtime.steps import reached
from deltalakedb.store.commit_locks import LockedTable, Locks
from deltalakedb.store.commit_sizes import APPEND_FILES
from deltalakedb.store.connection import Connection, Row
from deltalakedb.store.proposals import Outcome, Proposal
from deltalakedb.store.ratify import Ratifier
from deltalakedb.store.registry import head_values, row_values
from deltalakedb.store.tokens import request_row
from deltalakedb.store.vacuums import is_quiet

MAX_TABLES = 256
"""For how many tables this process remembers the state that its last commit left."""

AT_MS = 8_641_739_205_568_230_917
"""Placeholder for the transaction's time, which only the database knows."""

_PLACEHOLDER = str(AT_MS)


class Append(NamedTuple):
    """The rows that the database is asked to write, as JSON by column name."""

    held: bytes
    """The expected head."""
    registered: bytes
    """The expected registry row of the table."""
    intent: bytes | None
    """The intent lock that must not exist."""
    txn: bytes
    placeholder: bytes
    """Replaced by the transaction's time in the commit's commitInfo."""
    version: bytes
    adds: bytes
    bounds: bytes
    head: bytes
    """The new head."""


@runtime_checkable
class AppendsAtOnce(Protocol):
    """A store that can run a whole append in one round trip."""

    def append(self, append: Append) -> int | None:
        """Returns the transaction's time; None if nothing was written, because the state is not the expected one."""
        ...


class _UncommonError(Exception):
    """The commit does more than add a few rows."""


class _Recorder:
    """Stands in for a connection: records the rows of an append, and raises on any other use."""

    def __init__(self) -> None:
        self.rows: dict[str, list[Row]] = {}
        self.head: Row = {}

    def insert_few(self, table: str, columns: Mapping[str, Sequence[Any]]) -> None:
        names = tuple(columns)
        self.rows[table] = [dict(zip(names, row, strict=True)) for row in zip(*columns.values(), strict=True)]

    def run(self, query: str, **parameters: Any) -> int:
        if query != "advance_head":
            raise _UncommonError
        self.head = parameters
        return 1

    def __getattr__(self, name: str) -> NoReturn:
        raise _UncommonError


class Appends:
    """The fast path of one writer, and the table states it needs."""

    def __init__(self, store: AppendsAtOnce) -> None:
        self._store = store
        self._left: dict[int, LockedTable] = {}

    def learn(self, left: Mapping[int, LockedTable]) -> None:
        """Remembers the table states that a completed commit left."""
        if len(self._left) + len(left) > MAX_TABLES:
            self._left.clear()
        self._left.update(left)

    def commit(self, proposal: Proposal, catalog_id: str) -> Outcome | None:
        """Commits the proposal; returns None, with nothing done, if it must take the ordinary path."""
        if not proposal.tables:
            return None
        table = proposal.tables[0]
        last_state = self._left.get(table.table.table_id)
        if last_state is None or not _is_append(proposal, last_state):
            return None
        recorder = _Recorder()
        # A file that is already in the table is detected by its key when the row is written.
        state = replace(last_state, known=replace(last_state.known, live_keys=frozenset()))
        locks = Locks(catalog_id, AT_MS, {table.table.table_id: state})
        ratifier = Ratifier(cast(Connection, recorder), proposal, (last_state.row,), locks)
        try:
            assert table.protocol is not None
            assert table.metadata is not None
            (commit,) = ratifier.ratify(0, (table.protocol, table.metadata))
            append = _append(proposal, last_state, recorder)
        except _UncommonError:
            return None
        reached("commit.begun")
        at_ms = self._store.append(append)
        if at_ms is None:
            self._left.pop(table.table.table_id, None)
            return None
        new_state = ratifier.left[table.table.table_id]
        self._left[table.table.table_id] = replace(new_state, head=replace(new_state.head, last_commit_ms=at_ms))
        assert commit.data is not None
        info, line_break, rest = commit.data.partition(b"\n")
        data = info.replace(_PLACEHOLDER.encode(), str(at_ms).encode()) + line_break + rest
        ratified = replace(commit, timestamp_ms=at_ms, data=data)
        return Outcome(proposal.txn_id, at_ms, (ratified,), {table.table.full_name: last_state.row})


def _is_append(proposal: Proposal, left: LockedTable) -> bool:
    """Whether the proposal only adds a few files to one table that is as this process left it."""
    (table, *others) = proposal.tables
    if others or len(table.commits) != 1 or table.changes_registry or proposal.absent or proposal.listed is not None:
        return False
    if table.exactly or table.commits[0].commit_info is not None:
        return False
    if table.read_version != left.head.current_version or table.table != left.row:
        return False
    if not is_quiet(left.head, table):
        return False
    if left.row.mode != "managed" or left.row.state not in table.allowed_states:
        return False
    if table.protocol is None or table.metadata is None or "rowTracking" in writer_features(table.protocol):
        return False
    actions = table.commits[0].actions
    return 0 < len(actions) <= APPEND_FILES and all(type(action) is AddFile for action in actions)


def _append(proposal: Proposal, left: LockedTable, recorder: _Recorder) -> Append:
    rows, table = recorder.rows, proposal.tables[0]
    if rows.keys() - {"dl_table_versions", "dl_add_files", "dl_file_bounds"}:
        raise _UncommonError
    (version,) = rows["dl_table_versions"]
    expected_count = 3 if version["commit_info"].startswith('{"inCommitTimestamp"') else 2
    if version["commit_info"].count(_PLACEHOLDER) != expected_count:
        raise _UncommonError  # a text of the user contains the placeholder
    bounds = rows.get("dl_file_bounds", [])
    for row in bounds:
        row["lower"], row["upper"] = _finite(row["lower"]), _finite(row["upper"])
    expected_head = head_values(left.head)
    del expected_head["mirrored_version"]  # the mirror moves it independently
    txn: dict[str, str | None] = {"txn_id": proposal.txn_id, "client_token": proposal.client_token}
    if proposal.caller is not None:
        txn |= request_row(proposal.txn_id, proposal.caller)
    return Append(
        held=_to_json(expected_head),
        registered=_to_json(row_values(left.row)),
        intent=None if table.is_append_only else f"intent:{left.row.table_id}".encode(),
        txn=_to_json(txn | {"actor": proposal.actor, "message": proposal.message}),
        placeholder=_PLACEHOLDER.encode(),
        version=_to_json(version),
        adds=_to_json(rows["dl_add_files"]),
        bounds=_to_json(bounds),
        head=_to_json(recorder.head),
    )


def _to_json(value: Any) -> bytes:
    return orjson.dumps(value, default=_bytes_to_text)


def _bytes_to_text(value: Any) -> str:
    if not isinstance(value, bytes):
        raise TypeError(f"a row holds no {type(value).__name__}")
    return f"\\x{value.hex()}"


def _finite(value: Any) -> Any:
    """JSON has no infinite numbers; the database reads them from text."""
    return str(value) if value in (math.inf, -math.inf) else value
