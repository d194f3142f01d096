"""Every conformance test runs on every engine: `store` is an empty, migrated database of each kind in turn."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from deltalakedb.store import ENGINES, Store, open_store
from tests.conformance.collecting import old_table  # noqa: F401  (a fixture)
from tests.fixtures.catalogs import NewCatalog
from tests.fixtures.partitioned import partition

OpenStore = Callable[..., Store]
PARTITIONED = bool(os.environ.get("DL_TEST_PARTITIONED"))
"""`make test-partitioned`: databases whose large tables are in partitions."""


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def target(engine: str, new_catalog: NewCatalog, request: pytest.FixtureRequest) -> str:
    """Where an empty, migrated database of this engine is."""
    if engine == "postgres" and not PARTITIONED:
        return str(request.getfixturevalue("postgres_catalog"))
    blank = str(request.getfixturevalue("blank"))
    if engine != "postgres":
        new_catalog(engine, Path(blank))
    return blank


@pytest.fixture
def blank(engine: str, tmp_path: Path, request: pytest.FixtureRequest) -> str:
    """Where a database of this engine may be created: a path, or a DSN."""
    if engine == "postgres":
        dsn = str(request.getfixturevalue("postgres_dsn"))
        if PARTITIONED:
            partition(dsn)
        return dsn
    return str(tmp_path / f"catalog.{engine}")


@pytest.fixture
def open_again(engine: str, target: str) -> Iterator[OpenStore]:
    """Opens further stores on the test's database; all are closed at the end."""
    opened: list[Store] = []

    def open_one(**options: Any) -> Store:
        store = open_store(engine, target, **options)
        opened.append(store)
        return store

    yield open_one
    for store in opened:
        store.close()


@pytest.fixture
def store(open_again: OpenStore) -> Store:
    return open_again()
