"""Alerts: report once that a table's files are late or foreign, by a log event, a metric and the user's command."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import threading
import time
from collections.abc import Mapping
from contextlib import suppress

from deltalakedb import telemetry
from deltalakedb.exceptions import redact
from deltalakedb.runtime.config import Config

logger = logging.getLogger(__name__)

COMMAND_SECONDS = 30.0
"""How long an alert command may run before it is killed."""

REPEAT_SECONDS = 3600.0
"""How long after an alert it is repeated for a table that is still late."""


class Alerts:
    """Alerts once for each table, until it recovers. Safe to call from any thread; never blocks, never raises."""

    def __init__(self, config: Config) -> None:
        self._after_seconds = config.mirror_alert_after
        self._command = config.mirror_alert_command
        self._lock = threading.Lock()
        self._alerted_at: dict[str, float] = {}
        self._running: list[threading.Thread] = []

    def lag(self, table: str, seconds: float, *, version: int, error: str | None = None) -> None:
        """Record that a table's files are `seconds` behind; alerts above the threshold, resets the alert at zero."""
        telemetry.mirror_lag(table, seconds)
        if seconds <= 0:
            self.well(table)
        elif seconds >= self._after_seconds:
            self._alert("mirror_lag", table, version, seconds, error)

    def external_writer(self, table: str, version: int, error: str) -> None:
        """Alert that another program wrote into a table's files."""
        with self._lock:
            self._alerted_at.pop(table, None)
        self._alert("external_writer", table, version, 0.0, error)

    def well(self, table: str) -> None:
        """Reset a table's alert: its files have everything."""
        with self._lock:
            self._alerted_at.pop(table, None)

    def _alert(self, kind: str, table: str, version: int, seconds: float, error: str | None) -> None:
        now = time.monotonic()
        with self._lock:
            alerted_at = self._alerted_at.get(table)
            if alerted_at is not None and now - alerted_at < REPEAT_SECONDS:
                return
            self._alerted_at[table] = now
        text = redact(error or "")
        telemetry.log_event(
            "mirror_alert",
            level=logging.ERROR,
            kind=kind,
            table=table,
            version=version,
            lag_seconds=round(seconds, 3),
            error=text or None,
        )
        if self._command is not None:
            variables = {
                "DL_ALERT_KIND": kind,
                "DL_ALERT_TABLE": table,
                "DL_ALERT_VERSION": str(version),
                "DL_ALERT_LAG_SECONDS": f"{seconds:.3f}",
                "DL_ALERT_ERROR": text,
            }
            self._start(self._command, variables)

    def _start(self, command: str, variables: Mapping[str, str]) -> None:
        thread = threading.Thread(target=run_command, args=(command, variables), name="deltalakedb-alert", daemon=True)
        with self._lock:
            self._running = [running for running in self._running if running.is_alive()]
            self._running.append(thread)
        thread.start()

    def close(self, timeout_seconds: float = COMMAND_SECONDS) -> None:
        """Wait for running commands."""
        deadline = time.monotonic() + timeout_seconds
        with self._lock:
            running, self._running = self._running, []
        for thread in running:
            thread.join(max(0.0, deadline - time.monotonic()))


def run_command(command: str, variables: Mapping[str, str], *, timeout_seconds: float = COMMAND_SECONDS) -> None:
    """Run a shell command; after the timeout kill it with everything it started. A failure is logged as a warning."""
    try:
        process = subprocess.Popen(
            command,
            shell=True,  # the user's own command line, which uses the variables above
            env={**os.environ, **variables},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    except OSError as error:
        logger.warning("the alert command cannot be run: %s", redact(str(error)))
        return
    try:
        output, _ = process.communicate(timeout=timeout_seconds)
    except subprocess.TimeoutExpired:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        logger.warning("the alert command was ended after %g seconds", timeout_seconds)
        return
    if process.returncode != 0:
        text = redact(output.decode("utf-8", "replace").strip())[:1_000]
        logger.warning("the alert command failed with exit code %d: %s", process.returncode, text)
