"""Appends: commits that add some files to one table nobody else has written meanwhile, in one call of the database.

Nothing is decided here. The rows are those that the ordinary way would write on top of what this process left behind at
its last commit; the engine writes them if that is still how things are, and else the ordinary way is gone.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, NoReturn, Protocol, cast, runtime_checkable

import orjson

from deltalakedb.log.actions import AddFile
from deltalakedb.log.features import writer_features
from deltalakedb.steps import reached
from deltalakedb.store.commit_locks import LockedTable, Locks
from deltalakedb.store.connection import Connection, Row
from deltalakedb.store.proposals import Outcome, Proposal
from deltalakedb.store.ratify import Ratifier
from deltalakedb.store.registry import head_values, row_values
from deltalakedb.store.vacuums import is_quiet

MAX_FILES = 16
MAX_TABLES = 256
"""Of so many tables this process remembers what it left behind."""

AT_MS = 8_641_739_205_568_230_917
"""Stands for the transaction's time, which only the database can tell."""

_PLACEHOLDER = str(AT_MS)


class Append(NamedTuple):
    """What the database is asked to write, as JSON: rows by the names of their columns."""

    held: bytes
    """The head on which the rows stand."""
    registered: bytes
    """The registry row of the table."""
    intent: bytes | None
    """A claim on the table that must not exist."""
    txn: bytes
    placeholder: bytes
    """Where it stands in the commit's commitInfo, the transaction's time belongs."""
    version: bytes
    adds: bytes
    bounds: bytes
    head: bytes
    """The head from then on."""


@runtime_checkable
class AppendsAtOnce(Protocol):
    """A store that can do a whole append in one round trip."""

    def append(self, append: Append) -> int | None:
        """The transaction's time; None: nothing was written, because something is not as the rows suppose."""
        ...


class _UncommonError(Exception):
    """The commit does more than add a few rows."""


class _Recorder:
    """Takes the place of a connection: what an append writes is remembered, anything else it would do is refused."""

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
    """The short way of one writer, and what it remembers for it."""

    def __init__(self, store: object) -> None:
        self._store = store if isinstance(store, AppendsAtOnce) else None
        self._left: dict[int, LockedTable] = {}

    def learn(self, left: Mapping[int, LockedTable]) -> None:
        """What a commit left behind, now that it is made."""
        if self._store is None:
            return
        if len(self._left) + len(left) > MAX_TABLES:
            self._left.clear()
        self._left.update(left)

    def commit(self, proposal: Proposal, catalog_id: str) -> Outcome | None:
        """The proposal, committed; None, and nothing done, when it takes the ordinary way."""
        if not proposal.tables:
            return None
        table = proposal.tables[0]
        left = self._left.get(table.table.table_id)
        if self._store is None or left is None or not _is_append(proposal, left):
            return None
        recorder = _Recorder()
        # A file that is in the table already is found by its key when the row is written.
        fresh = replace(left, known=replace(left.known, live_keys=frozenset()))
        locks = Locks(catalog_id, AT_MS, {table.table.table_id: fresh})
        ratifier = Ratifier(cast(Connection, recorder), proposal, (left.row,), locks)
        try:
            assert table.protocol is not None
            assert table.metadata is not None
            (commit,) = ratifier.ratify(0, (table.protocol, table.metadata))
            append = _append(proposal, left, recorder)
        except _UncommonError:
            return None
        reached("commit.begun")
        at_ms = self._store.append(append)
        if at_ms is None:
            self._left.pop(table.table.table_id, None)
            return None
        now = ratifier.left[table.table.table_id]
        self._left[table.table.table_id] = replace(now, head=replace(now.head, last_commit_ms=at_ms))
        assert commit.data is not None
        info, line_break, rest = commit.data.partition(b"\n")
        data = info.replace(_PLACEHOLDER.encode(), str(at_ms).encode()) + line_break + rest
        made = replace(commit, timestamp_ms=at_ms, data=data)
        return Outcome(proposal.txn_id, at_ms, (made,), {table.table.full_name: left.row})


def _is_append(proposal: Proposal, left: LockedTable) -> bool:
    """Whether it only adds files, few of them, to one table that is as this process left it."""
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
    return 0 < len(actions) <= MAX_FILES and all(type(action) is AddFile for action in actions)


def _append(proposal: Proposal, left: LockedTable, recorder: _Recorder) -> Append:
    rows, table = recorder.rows, proposal.tables[0]
    if rows.keys() - {"dl_table_versions", "dl_add_files", "dl_file_bounds"}:
        raise _UncommonError
    (version,) = rows["dl_table_versions"]
    times = 3 if version["commit_info"].startswith('{"inCommitTimestamp"') else 2
    if version["commit_info"].count(_PLACEHOLDER) != times:
        raise _UncommonError  # somebody's own text says the same
    bounds = rows.get("dl_file_bounds", [])
    for row in bounds:
        row["lower"], row["upper"] = _finite(row["lower"]), _finite(row["upper"])
    held = head_values(left.head)
    del held["mirrored_version"]  # the mirror goes its own way
    txn = {"txn_id": proposal.txn_id, "client_token": proposal.client_token}
    return Append(
        held=_to_json(held),
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
    """JSON has no infinite numbers; as text the database knows them."""
    return str(value) if value in (math.inf, -math.inf) else value
