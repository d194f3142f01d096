"""Many tables, killed during their copies and after them: each change comes once, the sums hold at every commit."""

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from deltalakedb.catalog.view import CatalogView
from deltalakedb.cdc.control import load_capture
from tests.cdc import judging
from tests.cdc.capturing import NAMESPACE, SLOT, settings_of
from tests.cdc.conftest import Lake, Source
from tests.cdc.load import PUBLICATION
from tests.cdc.runner_process import LocalRunnerProcess
from tests.cdc.witness import Witness
from tests.fixtures.sizes import FULL, sized

TABLES = [f"t{number}" for number in range(sized(40, 300))]
ROWS, BALANCE = 5, 100
TOTAL = len(TABLES) * ROWS * BALANCE
COPY_STEPS = ("cdc.copy_begun", "cdc.chunk_committed", "cdc.copy_proposed", "cdc.copy_committed")
STREAM_STEPS = ("cdc.applied", "commit.written", "cdc.committed")
SETTINGS: dict[str, Any] = {"publication": PUBLICATION, "namespace": NAMESPACE, "slot": SLOT, "once": True}
SECONDS = 300
CASES = [(18, "sqlite"), (15, "postgres"), (18, "duckdb")]


@pytest.mark.slow
@pytest.mark.parametrize(("postgres_version", "catalog_engine"), CASES if FULL else CASES[:1])
def test_many_tables_are_captured_whole_however_often_the_capture_is_killed(
    lake: Lake, source: Source, tmp_path: Path
) -> None:
    source.run(
        *(f"create table {name} (id int primary key, balance int)" for name in TABLES),
        *(f"insert into {name} select n, {BALANCE} from generate_series(1, {ROWS}) n" for name in TABLES),
        f"create publication {PUBLICATION} for all tables",
    )
    witness = Witness(source, PUBLICATION)
    with moving_money(source):
        for step in COPY_STEPS:
            kill_at(lake, source, tmp_path / step, step)
            capture = load_capture(lake.catalog, settings_of(source))
            assert capture is not None
            if step != "cdc.copy_committed":  # tables that are ready together appear together
                assert len(capture.streaming) < len(TABLES), f"{step} came when all tables were copied"
        run(lake, source, tmp_path / "copied")
        for step in STREAM_STEPS:
            kill_at(lake, source, tmp_path / step, step)
            assert money(lake.catalog.at(_last_commit(lake))) == TOTAL
    run(lake, source, tmp_path / "last")
    capture = judging.captured(lake.catalog, settings_of(source))
    assert len(capture.tables) == len(TABLES)
    judging.check_all(lake.catalog, source, capture, witness.happened())
    check_every_commit(lake)


@contextmanager
def moving_money(source: Source) -> Iterator[None]:
    """Moves money between random tables, a few in each transaction, until the block ends."""
    choices, stop = random.Random(3), threading.Event()
    errors: list[BaseException] = []

    def move() -> None:
        try:
            with source.connect(autocommit=False) as connection:
                while not stop.wait(0.02):
                    with connection.transaction():
                        for name, amount in zip(choices.sample(TABLES, 4), (5, -3, 2, -4), strict=True):
                            row = choices.randrange(1, ROWS + 1)
                            statement = f"update {name} set balance = balance + {amount} where id = {row}"
                            connection.execute(statement.encode())
        except BaseException as error:  # raised below
            errors.append(error)

    thread = threading.Thread(target=move, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(30)
    assert not errors, errors


def kill_at(lake: Lake, source: Source, scratch: Path, step: str) -> None:
    runner = LocalRunnerProcess(lake, source, scratch, kill_at=step, **SETTINGS)
    try:
        runner.arm()
        assert runner.wait_until_dead(SECONDS), f"it never came to {step}: {runner.said()[-4000:]}"
    finally:
        runner.close()


def run(lake: Lake, source: Source, scratch: Path) -> None:
    runner = LocalRunnerProcess(lake, source, scratch, **SETTINGS)
    try:
        runner.wait_until_ended(SECONDS)
    finally:
        runner.close()


def money(view: CatalogView) -> int:
    return sum(sum(view.table(f"{NAMESPACE}.{name}").to_pyarrow_table()["balance"].to_pylist()) for name in TABLES)


def _commits(lake: Lake) -> list[int]:
    names = [f"{NAMESPACE}.{name}" for name in TABLES]
    return sorted({entry["timestamp"] for name in names for entry in lake.catalog.history(name)})


def _last_commit(lake: Lake) -> int:
    return _commits(lake)[-1]


def check_every_commit(lake: Lake) -> None:
    """Every commit that shows all tables shows all of the money."""
    names = {f"{NAMESPACE}.{name}" for name in TABLES}
    views = [view for commit in _commits(lake) if set((view := lake.catalog.at(commit)).tables(NAMESPACE)) >= names]
    assert [money(view) for view in views] == [TOTAL] * len(views)
    assert len(views) > len(STREAM_STEPS)
