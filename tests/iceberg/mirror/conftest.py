"""A catalog on SQLite: what is mirrored is decided in files, and does not depend on the engine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import deltalakedb
from deltalakedb import Catalog
from tests.fixtures.catalogs import NewCatalog


@pytest.fixture
def catalog(tmp_path: Path, new_catalog: NewCatalog) -> Iterator[Catalog]:
    """A catalog with a warehouse and the namespace `shop`."""
    path = tmp_path / "catalog.db"
    new_catalog("sqlite", path)
    with deltalakedb.connect(f"deltasql://sqlite/{path}?warehouse={tmp_path}/lake") as opened:
        opened.create_namespace("shop")
        yield opened
