"""A real endpoint over a real catalog, on SQLite and on Postgres, and a client of it."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from deltalakedb.serve import LocalEndpoint
from deltalakedb.spark.endpoint import EndpointClient
from tests.fixtures.catalogs import NewCatalog

StartEndpoint = Callable[..., LocalEndpoint]
START_SECONDS = 60.0


@pytest.fixture(params=["sqlite", "postgres"])
def catalog_uri(request: pytest.FixtureRequest, tmp_path: Path, new_catalog: NewCatalog) -> str:
    if request.param == "postgres":
        return str(request.getfixturevalue("postgres_catalog"))
    new_catalog("sqlite", tmp_path / "catalog.db")
    return str(tmp_path / "catalog.db")


@pytest.fixture
def warehouse(tmp_path: Path) -> Path:
    return tmp_path / "lake"


@pytest.fixture
def start(catalog_uri: str, warehouse: Path) -> Iterator[StartEndpoint]:
    """Starts endpoints of the test's catalog; all are closed at the end."""
    started: list[LocalEndpoint] = []

    def start_one(**config: Any) -> LocalEndpoint:
        started.append(LocalEndpoint(catalog_uri, warehouse=str(warehouse), **config))
        return started[-1]

    yield start_one
    for endpoint in started:
        endpoint.close()


@pytest.fixture
def endpoint(start: StartEndpoint) -> LocalEndpoint:
    return start()


@pytest.fixture
def client(endpoint: LocalEndpoint) -> Iterator[EndpointClient]:
    with EndpointClient(endpoint.url, endpoint.token, retry_seconds=2) as made:
        yield made


@dataclass(frozen=True, slots=True)
class Served:
    """`dl serve` in a process of its own."""

    process: subprocess.Popen[str]
    url: str
    token: str

    def end(self, seconds: float = 60) -> tuple[int, str]:
        """What it exits with, and what it said on stderr."""
        _, errors = self.process.communicate(timeout=seconds)
        return self.process.returncode, errors


@pytest.fixture
def serve_process(tmp_path: Path, warehouse: Path) -> Iterator[Callable[..., Served]]:
    """Starts `dl serve --bridge`; whatever still runs at the end is killed."""
    started: list[subprocess.Popen[str]] = []

    def run(catalog_uri: str, *arguments: str) -> Served:
        token = tmp_path / "token"
        token.write_text("a-token-of-the-tests\n")
        token.chmod(0o600)
        command = [sys.executable, "-c", "from deltalakedb.cli import main; main()", "serve", "--bridge", "--port", "0"]
        command += ["--catalog", catalog_uri, "--warehouse", str(warehouse), "--token-file", str(token), *arguments]
        environ = {key: value for key, value in os.environ.items() if not key.startswith("DL_")}
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environ, cwd=tmp_path
        )
        started.append(process)
        return Served(process, _first_line(process), "a-token-of-the-tests")

    yield run
    for process in started:
        if process.poll() is None:
            process.kill()
            process.communicate()


def _first_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    deadline = time.monotonic() + START_SECONDS
    while not select.select([process.stdout], [], [], 0.1)[0]:
        assert time.monotonic() < deadline, "dl serve did not start"
        assert process.poll() is None, process.communicate()[1]
    line = process.stdout.readline().strip()
    assert line, process.communicate()[1]
    return line
