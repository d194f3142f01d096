"""A real endpoint over a real catalog, on SQLite and on Postgres, and a client of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from deltalakedb.serve import LocalEndpoint
from deltalakedb.spark.endpoint import EndpointClient
from tests.fixtures.catalogs import NewCatalog
from tests.fixtures.served import Served, kill, start_serving

StartEndpoint = Callable[..., LocalEndpoint]


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


@pytest.fixture
def serve_process(tmp_path: Path, warehouse: Path) -> Iterator[Callable[..., Served]]:
    """Starts `dl serve --bridge`; whatever still runs at the end is killed."""
    started: list[Served] = []

    def run(catalog_uri: str, *arguments: str) -> Served:
        started.append(start_serving(tmp_path, catalog_uri, warehouse, "--bridge", *arguments))
        return started[-1]

    yield run
    for served in started:
        kill(served.process)
