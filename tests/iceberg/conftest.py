"""Catalogs with Iceberg tables, on every engine: the fixtures of the conformance tests, and a catalog on them."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from deltalakedb import Catalog
from tests.conformance.conftest import blank, engine, open_again, store, target  # noqa: F401  (fixtures)
from tests.conformance.transacting import open_catalog


@pytest.fixture
def catalog(target: str, tmp_path: Path) -> Iterator[Catalog]:  # noqa: F811
    """A catalog with a warehouse and the namespace `shop`."""
    with open_catalog(target, tmp_path) as catalog:
        catalog.create_namespace("shop")
        yield catalog
