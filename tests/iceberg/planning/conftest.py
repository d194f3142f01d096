"""Catalogs on each engine, and the scan plans of tables in them."""

from collections.abc import Iterator

import pytest

import deltalakedb
from deltalakedb.catalog.catalog import Catalog
from tests.conformance.conftest import blank, engine, open_again, store, target

__all__ = ["blank", "catalog", "engine", "open_again", "store", "target"]


@pytest.fixture
def catalog(target: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Catalog]:
    monkeypatch.setenv("XDG_CONFIG_HOME", "/nonexistent")
    with deltalakedb.connect(target, actor="ann") as opened:
        yield opened
