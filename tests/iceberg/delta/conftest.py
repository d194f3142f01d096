"""Delta tables behind an endpoint for Iceberg clients, on each kind of database."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from deltalakedb import Catalog
from deltalakedb.serve.server import Endpoint
from deltalakedb.store import ENGINES
from tests.conformance.transacting import open_catalog
from tests.fixtures.catalogs import NewCatalog
from tests.iceberg.delta.appending import Lake
from tests.iceberg.served import duck, pyiceberg, uri  # noqa: F401  (fixtures)
from tests.iceberg.served import endpoint as endpoint


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def target(engine: str, request: pytest.FixtureRequest, tmp_path: Path, new_catalog: NewCatalog) -> str:
    """Where an empty catalog is."""
    if engine == "postgres":
        return str(request.getfixturevalue("postgres_catalog"))
    path = tmp_path / ("catalog.duckdb" if engine == "duckdb" else "catalog.db")
    new_catalog(engine, path)
    return str(path)


@pytest.fixture
def catalog(target: str, tmp_path: Path) -> Iterator[Catalog]:
    """A catalog with the namespace `shop`, as Delta clients see it."""
    with open_catalog(target, tmp_path) as catalog:
        catalog.create_namespace("shop")
        yield catalog


@pytest.fixture
def lake(target: str, catalog: Catalog, tmp_path: Path) -> Iterator[Lake]:  # noqa: ARG001  its namespace
    """The same catalog, as Iceberg clients see it."""
    with Endpoint(target, token=None, bridge=False, iceberg=True, warehouse=str(tmp_path / "lake")) as served:
        yield Lake(served.url)
