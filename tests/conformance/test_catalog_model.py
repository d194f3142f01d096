"""The catalog as a whole against a model: transactions beside each other have the outcome of some serial order."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conformance.catalog_runner import run_history
from tests.conformance.catalog_steps import histories
from tests.fixtures.catalogs import NewCatalog
from tests.fixtures.postgres import MigratedDatabase
from tests.fixtures.sizes import sized

NewTarget = Callable[[], tuple[str, Path]]


@pytest.fixture
def new_target(engine: str, new_catalog: NewCatalog, tmp_path: Path, request: pytest.FixtureRequest) -> NewTarget:
    """A new catalog for each history, and an empty folder."""
    numbers = itertools.count()
    database: MigratedDatabase | None = None
    if engine == "postgres":
        database = request.getfixturevalue("_migrated_database")

    def make() -> tuple[str, Path]:
        root = tmp_path / f"history-{next(numbers)}"
        root.mkdir()
        if database is not None:
            database.renew()
            return database.dsn, root
        new_catalog(engine, root / f"catalog.{engine}")
        return str(root / f"catalog.{engine}"), root

    return make


@settings(max_examples=sized(20, 2000))
@given(data=st.data())
def test_every_history_has_the_outcome_of_some_serial_order(new_target: NewTarget, data: st.DataObject) -> None:
    history = data.draw(histories())
    target, root = new_target()
    run_history(history, target, root)
