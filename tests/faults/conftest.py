"""A catalog of each engine that many processes share, and a lake for its tables."""

from dataclasses import dataclass
from pathlib import Path

import pytest
from psycopg.conninfo import conninfo_to_dict

from deltalakedb.store import ENGINES
from tests.fixtures.catalogs import NewCatalog
from tests.fixtures.sizes import FULL as FULL


@dataclass(frozen=True, slots=True)
class Place:
    """Where a catalog and its tables are."""

    engine: str
    catalog: str
    warehouse: Path


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def place(engine: str, tmp_path: Path, new_catalog: NewCatalog, request: pytest.FixtureRequest) -> Place:
    warehouse = tmp_path / "lake"
    if engine != "postgres":
        new_catalog(engine, tmp_path / f"catalog.{engine}")
        return Place(engine, f"deltasql://{engine}/{tmp_path}/catalog.{engine}", warehouse)
    address = conninfo_to_dict(str(request.getfixturevalue("postgres_catalog")))
    asked = "&".join(f"{key}={address[key]}" for key in ("host", "port", "user"))
    return Place(engine, f"deltasql://postgres/{address['dbname']}?{asked}", warehouse)
