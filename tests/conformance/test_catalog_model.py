"""The catalog as a whole against a model: transactions beside each other have the outcome of some serial order."""

from __future__ import annotations

import itertools
import shutil
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from deltalakedb.store import Store
from deltalakedb.store.queries import spell
from tests.conformance.catalog_drawing import draw_history
from tests.conformance.catalog_model import OK, Context
from tests.conformance.catalog_runner import Runner, run_history
from tests.conformance.catalog_steps import PRELUDE, Call, Create, Drop, History, Rename, Undrop, Write, answer
from tests.fixtures.catalogs import NewCatalog
from tests.fixtures.forked import run_script
from tests.fixtures.postgres import MigratedDatabase
from tests.fixtures.sizes import sized

NewTarget = Callable[[], tuple[str, Path]]


@pytest.fixture
def new_target(engine: str, new_catalog: NewCatalog, tmp_path: Path, request: pytest.FixtureRequest) -> NewTarget:
    """A new catalog for each history, and an empty folder; the one before is removed."""
    numbers = itertools.count()
    database: MigratedDatabase | None = None
    if engine == "postgres":
        database = request.getfixturevalue("_migrated_database")

    def make() -> tuple[str, Path]:
        number = next(numbers)
        shutil.rmtree(tmp_path / f"history-{number - 1}", ignore_errors=True)
        root = tmp_path / f"history-{number}"
        root.mkdir()
        if database is not None:
            database.renew()
            return database.dsn, root
        new_catalog(engine, root / f"catalog.{engine}")
        return str(root / f"catalog.{engine}"), root

    return make


# A number is not made smaller, but its history shorter: that is what one reads.
@settings(max_examples=sized(6, 2000), phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(seed=st.integers(0, 2**48))
def test_every_history_has_the_outcome_of_some_serial_order(new_target: NewTarget, seed: int) -> None:
    check_history(draw_history(seed), new_target)


@pytest.mark.slow
@settings(max_examples=20, phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(seed=st.integers(0, 2**48))
def test_so_have_more_histories(new_target: NewTarget, seed: int) -> None:
    check_history(draw_history(seed), new_target)


def check_history(history: History, new_target: NewTarget) -> None:
    """Raise what the history raises, or the shortest part of it that raises the same."""
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


# -- killed

STATEMENTS = (
    Drop(0, "s.a", purge=True),
    Rename(0, "s.b", "s.a"),
    Write(0, "s.b"),
    Create(0, "t.b", place="y"),
    Undrop(0, "t.a", "t.a"),
)
BEFORE = ("commit.begun", "commit.locked", "commit.checked", "commit.written")
AFTER = (
    "commit.committed",
    "mirror.start",
    "mirror.json_put",
    "drop.committed",
    "purge.begun",
    "drop.data_deleted",
    "drop.purged",
)
KILLED = """
import os, signal, sys
from pathlib import Path
from deltalakedb.runtime import steps
from tests.conformance.catalog_performing import in_transaction
from tests.conformance.catalog_steps import Call
from tests.conformance.test_catalog_model import STATEMENTS
from tests.conformance.transacting import open_catalog

def kill(step):
    if step == sys.argv[1]:
        os.kill(os.getpid(), signal.SIGKILL)

root = Path(sys.argv[3])
tx = open_catalog(sys.argv[2], root).begin()
for number, statement in enumerate(STATEMENTS):
    in_transaction(tx, Call(statement, 100 + number), lambda place: root / "elsewhere" / place)
steps.observe(kill)
tx.commit()
"""


@pytest.mark.in_turn
@pytest.mark.parametrize("step", [*BEFORE, *AFTER])
def test_a_transaction_killed_at_any_step_has_happened_or_not_and_upkeep_does_the_rest(
    new_target: NewTarget, step: str
) -> None:
    target, root = new_target()
    with Runner(History(()), target, root) as runner:
        for one in PRELUDE:
            runner.take(one)
        state, checks = runner.state, runner.checks
    ended = run_script(KILLED, step, target, str(root))
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    if step in AFTER:
        back = state.dropped[-1].table.key
        for number, statement in enumerate(STATEMENTS):
            call = Call(statement, 100 + number, key=back)
            state, seen = answer(call, state, Context(100, keeps_dropped=True))
            assert seen == OK
    with Runner(History((), mirrors=("off", "off")), target, root) as runner:
        runner.checks.remember(checks)
        runner.state = state
        _let_a_week_pass(runner.catalogs[0].store)
        runner.finish()


def _let_a_week_pass(store: Store) -> None:
    """What a dead process had claimed and reserved is over."""
    expired = (
        "update dl_locations set expires_ms = 0 where location_state = 'reserved'",
        "update dl_leases set until_ms = 0",
    )
    with store.write() as conn:
        conn.script([spell(text, store.dialect).text for text in expired])
