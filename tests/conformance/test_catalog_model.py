"""The catalog as a whole against a model: transactions beside each other have the outcome of some serial order."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tests.conformance.catalog_drawing import draw_history
from tests.conformance.catalog_runner import run_history
from tests.conformance.catalog_steps import History
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


# A number is not made smaller, but its history shorter: that is what one reads.
@settings(max_examples=sized(20, 2000), phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(seed=st.integers(0, 2**48))
def test_every_history_has_the_outcome_of_some_serial_order(new_target: NewTarget, seed: int) -> None:
    history = draw_history(seed)
    error = _error_of(history, new_target)
    if error is None:
        return
    for _ in range(len(history.steps)):
        shorter = next((one for one in _shorter(history) if type(_error_of(one, new_target)) is type(error)), None)
        if shorter is None:
            break
        history = shorter
    run_history(history, *new_target())
    raise error


def _error_of(history: History, new_target: NewTarget) -> Exception | None:
    try:
        run_history(history, *new_target())
    except Exception as error:
        return error
    return None


def _shorter(history: History) -> list[History]:
    """The history with one step less, each in turn."""
    steps = history.steps
    return [replace(history, steps=steps[:number] + steps[number + 1 :]) for number in reversed(range(len(steps)))]
