"""An endpoint for Iceberg clients on a fresh catalog, and clients that are connected to it."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import cast

import duckdb
import pytest
from pyiceberg.catalog.rest import RestCatalog

from deltalakedb.serve.server import Endpoint


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.slow)])
def endpoint(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Endpoint]:
    """A served catalog; it needs no token."""
    on_postgres = request.param == "postgres"
    target = str(request.getfixturevalue("postgres_catalog")) if on_postgres else str(tmp_path / "catalog.db")
    warehouse = str(tmp_path / "lake")
    with Endpoint(target, token=None, bridge=False, iceberg=True, warehouse=warehouse) as endpoint:
        yield endpoint


@pytest.fixture
def uri(endpoint: Endpoint) -> str:
    """The address of the Iceberg REST catalog."""
    return f"{endpoint.url}/iceberg"


@pytest.fixture
def pyiceberg(uri: str) -> RestCatalog:
    return RestCatalog("lake", uri=uri)


@pytest.fixture
def duck(uri: str) -> Iterator[duckdb.DuckDBPyConnection]:
    """DuckDB with the catalog attached as `lake`."""
    connection = duckdb.connect(config={"allow_unsigned_extensions": "true"})
    for name in ("avro", "httpfs", "iceberg"):
        folder = Path(cast(str, import_module(f"duckdb_extension_{name}").__file__)).parent
        connection.execute(f"load '{folder}/extensions/v{duckdb.__version__}/{name}.duckdb_extension'")
    connection.execute(f"attach '' as lake (type iceberg, endpoint '{uri}', authorization_type 'none')")
    yield connection
    connection.close()


def address_of(endpoint: Endpoint, table: str, warehouse: Path) -> str:
    """The address of a table of the served catalog, as `DeltaTable` takes it."""
    uri = str(endpoint.catalog.uri)
    if uri.startswith("host="):
        words = dict(part.split("=", 1) for part in uri.split())
        uri = f"postgresql://{words['user']}@/{words['dbname']}?host={words['host']}&port={words['port']}"
    return f"{uri}{'&' if '?' in uri else '?'}table={table}&warehouse={warehouse}"
