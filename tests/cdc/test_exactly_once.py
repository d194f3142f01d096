"""The capture is killed again and again while the source is written: each change is captured, and none twice.

`make soak` kills it 50 times: 17 times with a catalog on SQLite, 17 on Postgres, 16 on DuckDB.
"""

import random
import time
from collections import Counter
from pathlib import Path
from typing import Final

import pytest
from pyspark.sql import SparkSession

from deltalakedb.cdc.control import load_capture
from tests.cdc import judging
from tests.cdc.alterations import Alterations
from tests.cdc.capturing import WHAT, capture_once, check_money, is_far_behind, money, settings_of
from tests.cdc.conftest import Lake, Source
from tests.cdc.load import PUBLICATION, TOTAL, Load, Loads, create_tables, fill, total
from tests.cdc.runner_process import RunnerProcess, choose_kills
from tests.cdc.witness import Witness
from tests.fixtures.sizes import FULL, sized

COPY_STEPS = ("cdc.copy_committed", "cdc.copy_proposed", "cdc.snapshot")
STEPS = (
    "commit.begun", "commit.locked", "commit.checked", "commit.written", "cdc.applied", "cdc.committed", "mirror.start",
)  # fmt: skip
KILLS = {"sqlite": choose_kills(3, 17), "postgres": choose_kills(3, 17), "duckdb": choose_kills(3, 16)}
COPY_KILLS = sized(1, len(COPY_STEPS))
"""So many of them before every table is copied."""
SEED = 7
HOW: Final = {**WHAT, "batch_window": "300ms", "column_mapping": True}
LONGEST_SECONDS = 400


@pytest.mark.parametrize(
    ("postgres_version", "catalog_engine"),
    [
        (18, "sqlite"),
        pytest.param(15, "postgres", marks=pytest.mark.slow),
        pytest.param(18, "duckdb", marks=pytest.mark.slow),
    ],
)
def test_each_change_is_captured_once_however_often_the_capture_is_killed(
    spark: SparkSession, source: Source, lake: Lake, tmp_path: Path, catalog_engine: str
) -> None:
    choices = random.Random(SEED)
    alterations = Alterations(source)
    create_tables(source)
    fill(source, 3_000 if FULL else 300)
    witness = Witness(source, PUBLICATION)
    clients = [Load(source, seed, truncates=False, pause_seconds=0.04 if FULL else 0.15) for seed in (1, 2)]
    clients.append(Load(source, 3, truncates=False, think_seconds=0.5))
    with Loads(clients, lambda: is_far_behind(source)) as loads:
        for number in range(KILLS[catalog_engine]):
            scratch = tmp_path / f"runner{number}"
            if number < COPY_KILLS:
                # Before the first table is there, between two of them, and with the last one ready.
                _kill_copy(lake, source, scratch, COPY_STEPS[number % len(COPY_STEPS)])
                _check_cut_copy(lake, source)
            else:
                _kill_stream(lake, source, scratch, choices, loads, alterations)
                for client in clients[:2]:
                    client.truncates = True
                assert money(lake.catalog) == TOTAL
            alterations.one(_known_columns(lake, source))  # while nobody captures
        loads.wait_for(30)
    assert total(source) == TOTAL
    capture_once(lake, source, spark, column_mapping=True)
    did = sum((client.did for client in clients), Counter[str]())
    assert did["rolled back"], did
    assert did["back to a savepoint"], did
    assert sum(alterations.did.values()) > KILLS[catalog_engine] // 2, alterations.did
    capture = judging.captured(lake.catalog, settings_of(source))
    altered = {f"public.{name}" for name in Alterations.TABLES}
    judging.check_all(lake.catalog, source, capture, witness.happened(), altered)
    assert check_money(lake) > KILLS[catalog_engine] // 2


def _kill_copy(lake: Lake, source: Source, scratch: Path, step: str) -> None:
    runner = RunnerProcess(lake, source, scratch, kill_at=step, **HOW)
    try:
        runner.arm()
        runner.wait_until_started()
        assert runner.wait_until_dead(LONGEST_SECONDS), f"it never came to {step}: {runner.said()[-4000:]}"
    finally:
        runner.close()


def _kill_stream(
    lake: Lake, source: Source, scratch: Path, choices: random.Random, loads: Loads, alterations: Alterations
) -> None:
    """At a step of a commit, or at any moment; the driver alone, or its JVM with it. A table is altered meanwhile."""
    step = f"{choices.choice(STEPS)}#{choices.randrange(1, 6)}" if choices.random() < 0.6 else None
    size = choices.choice(["512KB", "64MB"])
    runner = RunnerProcess(
        lake, source, scratch, kill_at=step, batch_window="300ms", batch_size=size, column_mapping=True, **WHAT
    )
    try:
        runner.wait_until_started()
        _wait_for_stream(lake, source, runner)
        loads.wait_for(10)
        alterations.one(_known_columns(lake, source))
        runner.arm()
        if step is None:
            time.sleep(choices.uniform(0, 6))
        if step is None or not runner.wait_until_dead(LONGEST_SECONDS):
            runner.kill(with_spark=choices.random() < 0.5)
    finally:
        runner.close()


def _wait_for_stream(lake: Lake, source: Source, runner: RunnerProcess) -> None:
    """Until every table is copied."""
    deadline = time.monotonic() + LONGEST_SECONDS
    while True:
        capture = load_capture(lake.catalog, settings_of(source))
        tables = () if capture is None else tuple(capture.tables.values())
        assert [table.reason for table in tables if table.stage == "stopped"] == []
        if {table.stage for table in tables} == {"streaming"}:
            return
        assert runner.is_running(), runner.said()[-4000:]
        assert time.monotonic() < deadline, "the tables are not copied"
        time.sleep(0.1)


def _known_columns(lake: Lake, source: Source) -> dict[str, list[str]]:
    """The columns of the tables that follow the stream, as the capture knows them."""
    capture = load_capture(lake.catalog, settings_of(source))
    streaming = () if capture is None else capture.streaming
    return {table.source.removeprefix("public."): [column.name for column in table.sent] for table in streaming}


def _check_cut_copy(lake: Lake, source: Source) -> None:
    """Each table is there as a whole or not at all, and those that are there stand at one LSN."""
    capture = load_capture(lake.catalog, settings_of(source))
    assert capture is not None
    stages = {table.source: table.stage for table in capture.tables.values()}
    assert "pending" in stages.values(), f"the kill came after the copy: {stages}"
    for table in capture.streaming:
        version = lake.catalog.table(table.current).transaction_version(capture.app_id)
        assert version is not None
        assert version <= capture.lsn
