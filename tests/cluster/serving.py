"""`dl serve --bridge` as a process of its own, at one address; it can be killed and started again."""

import os
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from deltalakedb.spark.endpoint import EndpointClient
from tests.fixtures.cluster import free_port
from tests.fixtures.keeper import Kept

TOKEN = "the-token-of-the-tests"
READY_SECONDS = 60.0


class ServedCatalog:
    """A catalog behind `dl serve`."""

    def __init__(self, uri: str, warehouse: str, scratch: Path, environment: Mapping[str, str]) -> None:
        self.uri, self.warehouse = uri, warehouse
        self._port = free_port()
        self.url = f"http://127.0.0.1:{self._port}"
        self._log = scratch / "serve.log"
        self._environment = {
            **{key: value for key, value in os.environ.items() if not key.startswith("DL_")},
            **environment,
            "DL_SERVE_TOKEN": TOKEN,
        }
        self._process: Kept | None = None
        self.start()

    def start(self) -> None:
        command = [sys.executable, "-c", "from deltalakedb.cli import main; main()", "serve", "--bridge"]
        command += ["--port", str(self._port), "--catalog", self.uri, "--warehouse", self.warehouse]
        self._process = Kept(command, self._log, self._environment)
        with EndpointClient(self.url, TOKEN, retry_seconds=READY_SECONDS) as client:
            client.health()

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()

    def dl(self, *arguments: str) -> tuple[int, str]:
        """`dl` on this catalog: its exit code, and all that it said."""
        with tempfile.TemporaryDirectory() as folder:
            log = Path(folder) / "log"
            command = [sys.executable, "-c", "from deltalakedb.cli import main; main()", *arguments]
            ran = Kept(command, log, {**self._environment, "DL_CATALOG": self.uri})
            return ran.wait(READY_SECONDS), log.read_text()
