"""Several server processes at one address: started together, watched, and stopped together."""

from __future__ import annotations

import logging
import signal
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Sequence
from threading import Event, Thread

from deltalakedb.exceptions import ConfigError, EndpointError
from deltalakedb.serve.server import STOP_SECONDS, bind

logger = logging.getLogger(__name__)

READY = "ready"
"""What a process prints once it answers."""
MANY_DEATHS, MANY_SECONDS = 5, 60.0
"""A process that dies is started again, unless so many died in so short a time: then something is wrong with all."""
TICK_SECONDS = 0.2


class Processes:
    """Server processes that share a port: the kernel gives each new connection to one of them.

    `command` starts one of them when `--port N` is added; it prints READY once it answers.
    """

    def __init__(self, command: Sequence[str], number: int, *, host: str, port: int) -> None:
        if not hasattr(socket, "SO_REUSEPORT"):
            raise ConfigError(
                "this system lacks SO_REUSEPORT, without which one process serves a port: use --workers 1"
            )
        bind(host, port).close()  # other commands of this user could share the port, and serve other catalogs there
        # Holds the port while processes come and go; it never listens, so no connection comes here.
        self._place = bind(host, port, shared=True)
        self.port = self._place.getsockname()[1]
        self._command = [*command, "--port", str(self.port)]
        self._deaths: deque[float] = deque(maxlen=MANY_DEATHS)
        self._running: list[subprocess.Popen[str]] = []
        try:
            for _ in range(number):
                self._running.append(self._start())
            for process in self._running:
                _wait_until_ready(process)
        except BaseException:
            self.stop()
            raise

    @property
    def pids(self) -> list[int]:
        return [process.pid for process in self._running]

    def watch(self, ended: Event) -> None:
        """Start dead processes again until `ended` is set; EndpointError if they do not stay alive."""
        while not ended.wait(TICK_SECONDS):
            for number, process in enumerate(self._running):
                code = process.poll()
                if code is None:
                    continue
                logger.warning("server process %d ended (%s); another one is started", process.pid, _shown(code))
                self._deaths.append(time.monotonic())
                if len(self._deaths) == MANY_DEATHS and time.monotonic() - self._deaths[0] < MANY_SECONDS:
                    raise EndpointError(
                        f"{MANY_DEATHS} server processes ended within {MANY_SECONDS:.0f} seconds, the last one "
                        f"{_shown(code)}; see its messages above"
                    )
                self._running[number] = self._start()

    def stop(self) -> None:
        """Let all processes finish what they are doing, and end."""
        for process in self._running:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + STOP_SECONDS + 5
        for process in self._running:
            try:
                process.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                logger.warning("server process %d does not end, and is killed", process.pid)
                process.kill()
                process.wait()
        self._place.close()

    def _start(self) -> subprocess.Popen[str]:
        # Its own group: Ctrl-C in a terminal goes to this process alone, which then stops the others. The pipe to it
        # is closed when this process dies, however it does: then it ends, too.
        return subprocess.Popen(
            self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
        )


def end_with_parent(ended: Event) -> None:
    """In a server process: print READY, and set `ended` when the process that started this one is gone."""
    print(READY, flush=True)

    def wait() -> None:
        sys.stdin.read()
        ended.set()

    Thread(target=wait, name="deltalakedb-parent", daemon=True).start()


def _wait_until_ready(process: subprocess.Popen[str]) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        if line.strip() == READY:
            return
    raise EndpointError(f"a server process did not start ({_shown(process.wait())}); see its messages above")


def _shown(code: int) -> str:
    return f"killed by signal {-code}" if code < 0 else f"exit code {code}"
