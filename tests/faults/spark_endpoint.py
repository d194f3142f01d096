"""An endpoint as a process of its own, as `dl serve --bridge` is, that may die at a named step."""

import argparse
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

from deltalakedb.exceptions import EndpointError
from deltalakedb.serve.server import Endpoint
from deltalakedb.spark.endpoint import EndpointClient

TOKEN = "the-token-of-the-tests"
READY_SECONDS = 60


class ServedCatalog:
    """A catalog at one address; the process behind it can be replaced."""

    def __init__(self, catalog: str, warehouse: Path, log: Path) -> None:
        self._arguments = [catalog, str(warehouse)]
        self._log = log
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = int(probe.getsockname()[1])
        self.url = f"http://127.0.0.1:{self.port}"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, kill_at: str = "") -> None:
        command = [sys.executable, "-m", "tests.faults.spark_endpoint", *self._arguments, str(self.port), kill_at]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log)
        with EndpointClient(self.url, TOKEN, retry_seconds=READY_SECONDS) as client:
            client.health()

    def start_again_when_dead(self) -> threading.Thread:
        """Whoever looks after it starts it again, without the step at which it dies."""

        def watch() -> None:
            assert self._process is not None
            self._process.wait()
            self.start()

        thread = threading.Thread(target=watch, daemon=True)
        thread.start()
        return thread

    @property
    def code(self) -> int | None:
        assert self._process is not None
        return self._process.poll()

    def stop(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()


def main() -> None:
    from tests.faults.spark_driver import kill_at

    parser = argparse.ArgumentParser()
    for name in ("catalog", "warehouse", "port", "kill_at"):
        parser.add_argument(name)
    arguments = parser.parse_args()
    if arguments.kill_at:
        kill_at(arguments.kill_at)
    deadline = time.monotonic() + READY_SECONDS
    while True:
        try:
            Endpoint(arguments.catalog, token=TOKEN, port=int(arguments.port), warehouse=arguments.warehouse)
            break
        except EndpointError:  # the port of one that was killed is free a moment later
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)
    signal.pause()


if __name__ == "__main__":
    os.environ.pop("DL_CATALOG", None)
    main()
