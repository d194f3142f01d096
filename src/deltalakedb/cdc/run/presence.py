"""The presence of a runner: a lock that one process holds and others can see, and the request to stop it."""

from __future__ import annotations

import hashlib
import json
import os
import re
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from deltalakedb.catalog.instants import to_epoch_ms, to_iso
from deltalakedb.cdc.lsn import parse_lsn
from deltalakedb.cdc.source.postgres import Connection, connect, read_sql, translate_errors
from deltalakedb.exceptions import CaptureError, CaptureRunningError

_LONGEST_NAME: Final = 63
_TAKE_SECONDS: Final = 2.0
"""How long to wait for the lock: a killed runner's lock is released when the server sees its connection end."""
_POLL_SECONDS: Final = 0.1
_SELECT_RUNNER: Final = read_sql("select_runner")
_WHO = re.compile(r"/\* runner (\{.*\}) \*/")


@dataclass(frozen=True, slots=True)
class RunningCapture:
    """The process that runs a capture, as the source's server sees it."""

    backend_pid: int
    """The server process of its connection."""
    since: datetime
    pid: int | None
    """Its own process id; None if the role may not see it."""
    host: str | None

    def __str__(self) -> str:
        who = f"process {self.pid}" if self.pid else f"connection {self.backend_pid}"
        return f"{who} on {self.host or 'the same machine'}, since {to_iso(to_epoch_ms(self.since))}"


class RunnerPresence:
    """A runner's lock, held for the duration of the block; it also receives `dl cdc stop`.

    The lock belongs to a connection of its own: when the process dies, the server releases it. The connection must
    reach the server itself, not a pool that shares sessions.
    """

    def __init__(self, dsn: str, slot: str) -> None:
        self._dsn, self._slot = dsn, slot
        self._conn: Connection | None = None
        self._stop = False
        self._turn = threading.Lock()

    def __enter__(self) -> RunnerPresence:
        self._conn = connect(self._dsn)
        try:
            with translate_errors():
                self._take(self._conn)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_trouble: object) -> None:
        with self._turn:
            conn, self._conn = self._conn, None
        if conn is not None:
            # The server would release it by itself, a moment later.
            with suppress(CaptureError), translate_errors():
                conn.execute("select pg_advisory_unlock_all()")
            conn.close()

    def should_stop(self) -> bool:
        """Whether the runner was asked to stop; SourceUnavailableError if the connection, and so the lock, is lost.

        Costs no round trip, and may be called from any thread.
        """
        with self._turn, translate_errors():
            if self._conn is not None and not self._stop:
                own_pid = str(self._conn.info.backend_pid)
                self._stop = any(notification.payload == own_pid for notification in self._conn.notifies(timeout=0))
        return self._stop

    def flushed_lsn(self) -> int | None:
        """How far the source's log is flushed to disk; None outside of the block. May be called from any thread."""
        with self._turn, translate_errors():
            return None if self._conn is None else self._ask(self._conn)

    def _ask(self, conn: Connection) -> int:
        row = conn.execute(f"select {_who()} pg_current_wal_flush_lsn()::text".encode()).fetchone()
        return parse_lsn(row[0]) if row is not None else 0

    def _take(self, conn: Connection) -> None:
        conn.execute("select set_config('application_name', %s, false)", [application_name_of(self._slot)])
        # The connection is idle for hours. The setting exists from Postgres 14 on.
        conn.execute("select set_config(name, '0', false) from pg_settings where name = 'idle_session_timeout'")
        # Before the lock: as soon as it is held, somebody may ask its holder to stop.
        conn.execute(f'listen "{channel_of(self._slot)}"'.encode())
        if not _wait(lambda: _try_lock(conn, self._slot), _TAKE_SECONDS):
            runner = find_runner(conn, self._slot)
            raise running_error(self._slot, runner)


def find_runner(conn: Connection, slot: str) -> RunningCapture | None:
    """The process that runs a capture now, or None."""
    row = conn.execute(_SELECT_RUNNER, {"key": _lock_key(slot)}).fetchone()
    if row is None:
        return None
    backend_pid, address, since, query = row
    comment = _WHO.search(query or "")
    identity = json.loads(comment[1]) if comment else {}
    return RunningCapture(backend_pid, since, identity.get("pid"), identity.get("host") or address)


def check_free(conn: Connection, slot: str) -> None:
    """CaptureRunningError if a process runs the capture."""
    if not _wait(lambda: find_runner(conn, slot) is None, _TAKE_SECONDS):
        raise running_error(slot, find_runner(conn, slot))


def running_error(slot: str, runner: RunningCapture | None) -> CaptureRunningError:
    """The error for a second runner."""
    return CaptureRunningError(
        f"the capture {slot} is running already ({runner or 'it has just ended'}): see dl cdc status, or stop it with "
        f"dl cdc stop --slot {slot}"
    )


def request_stop(conn: Connection, slot: str, timeout_seconds: float) -> RunningCapture | None:
    """Ask the runner to stop and wait until it has stopped; None if none is running."""
    runner = find_runner(conn, slot)
    if runner is None:
        return None
    conn.execute("select pg_notify(%s, %s)", [channel_of(slot), str(runner.backend_pid)])

    def is_gone() -> bool:
        current = find_runner(conn, slot)
        return current is None or current.backend_pid != runner.backend_pid

    if not _wait(is_gone, timeout_seconds):
        raise CaptureError(
            f"the capture {slot} was asked to stop and is still busy with its batch after {timeout_seconds:g} s "
            f"({runner}): wait on with dl cdc stop, or end that process; what it had not committed is captured again"
        )
    return runner


def application_name_of(slot: str) -> str:
    """The name of the runner's connection in pg_stat_activity."""
    return f"deltalakedb cdc {slot}"[:_LONGEST_NAME]


def channel_of(slot: str) -> str:
    """The channel on which a runner is asked to stop."""
    name = f"deltalakedb_cdc_{slot}"
    return name if len(name) <= _LONGEST_NAME else f"deltalakedb_cdc_{_digest(slot).hex()}"


def _who() -> str:
    """A comment with our process and host, put into every statement: others see a connection's last statement."""
    who = json.dumps({"pid": os.getpid(), "host": _escape_host(socket.gethostname())})
    return f"/* runner {who} */"


def _try_lock(conn: Connection, slot: str) -> bool:
    row = conn.execute(f"select {_who()} pg_try_advisory_lock({_lock_key(slot)})".encode()).fetchone()
    return row is not None and bool(row[0])


def _wait(is_true: Callable[[], bool], seconds: float) -> bool:
    until = time.monotonic() + seconds
    while not is_true():
        if time.monotonic() >= until:
            return False
        time.sleep(_POLL_SECONDS)
    return True


def _lock_key(slot: str) -> int:
    return int.from_bytes(_digest(slot), "big", signed=True)


def _digest(slot: str) -> bytes:
    return hashlib.sha256(f"deltalakedb cdc {slot}".encode()).digest()[:8]


def _escape_host(name: str) -> str:
    """A host name that is safe in a comment of SQL."""
    return re.sub(r"[^\w.-]", "_", name)
