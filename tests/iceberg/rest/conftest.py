"""The Iceberg REST catalog over real HTTP, on a fresh catalog, and a client of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from deltalakedb.serve.server import Endpoint
from tests.fixtures.catalogs import NewCatalog
from tests.iceberg.rest.wire import Client


@pytest.fixture
def warehouse(tmp_path: Path) -> Path:
    return tmp_path / "lake"


@pytest.fixture
def endpoint(tmp_path: Path, warehouse: Path, new_catalog: NewCatalog) -> Iterator[Endpoint]:
    """A served catalog that needs no token."""
    new_catalog("sqlite", tmp_path / "catalog.db")
    with Endpoint(
        tmp_path / "catalog.db", token=None, bridge=False, iceberg=True, warehouse=str(warehouse)
    ) as endpoint:
        yield endpoint


@pytest.fixture
def client(endpoint: Endpoint) -> Client:
    return Client(endpoint.url)


@pytest.fixture
def shop(client: Client) -> Client:
    """A client of a catalog with the namespace `shop`."""
    assert client.post("/v1/namespaces", {"namespace": ["shop"]}).status == 200
    return client
