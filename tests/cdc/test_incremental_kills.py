"""Copies beside the stream, killed again and again under load: each change is captured once, no half copy is seen.

`make soak` kills them 50 times: 17 times with a catalog on SQLite, 17 on Postgres, 16 on DuckDB.
"""

import random
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from deltalakedb.cdc.control import load_capture
from deltalakedb.cdc.copy.resnapshot import request_resnapshot
from tests.cdc import judging
from tests.cdc.capturing import WHAT, capture_once, check_money, is_far_behind, money, settings_of
from tests.cdc.conftest import Lake, Source
from tests.cdc.load import ACCOUNTS, PUBLICATION, TABLES, TOTAL, Load, Loads, create_tables, fill
from tests.cdc.runner_process import RunnerProcess, choose_kills
from tests.cdc.witness import Witness
from tests.fixtures.sizes import FULL

STEPS = (
    "cdc.chunk_committed", "cdc.copy_proposed", "cdc.copy_begun", "cdc.committed", "cdc.copy_committed",
    "commit.written", "cdc.applied",
)  # fmt: skip
KILLS = {"sqlite": choose_kills(2, 17), "postgres": choose_kills(2, 17), "duckdb": choose_kills(2, 16)}
CASES = [(18, "sqlite"), (15, "postgres"), (18, "duckdb")]
BESIDE = {**WHAT, "copy_beside": "0", "copy_chunk": "8KB", "batch_window": "300ms"}
LONGEST_SECONDS = 400


@pytest.mark.slow
@pytest.mark.parametrize(("postgres_version", "catalog_engine"), CASES if FULL else CASES[:1])
def test_copies_beside_the_stream_are_whole_however_often_the_capture_is_killed(
    spark: SparkSession, source: Source, lake: Lake, tmp_path: Path, catalog_engine: str
) -> None:
    choices = random.Random(11)
    create_tables(source)
    fill(source, 3_000 if FULL else 300)
    witness = Witness(source, PUBLICATION)
    clients = [Load(source, seed, truncates=False, pause_seconds=0.1) for seed in (1, 2)]
    with Loads(clients, lambda: is_far_behind(source)) as loads:
        for number in range(KILLS[catalog_engine]):
            step = STEPS[number] if number < len(STEPS) else choices.choice(STEPS)
            times = choices.randrange(1, 5) if "copy_" not in step else 1
            runner = RunnerProcess(lake, source, tmp_path / f"runner{number}", kill_at=f"{step}#{times}", **BESIDE)
            try:
                runner.arm()
                runner.wait_until_started()
                loads.wait_for(10)
                if not runner.wait_until_dead(LONGEST_SECONDS if number < len(STEPS) else 60):
                    runner.kill(with_spark=choices.random() < 0.5)
            finally:
                runner.close()
            _check(lake, source)
            if number == len(STEPS):
                check_money(lake)  # later on a table shows its old rows until its new copy is there
            if number >= len(STEPS):  # all tables are there by now: more copies are needed to be killed
                again = choices.sample([f"public.{name}" for name in TABLES], 2)
                request_resnapshot(lake.catalog, settings_of(source), again)
            for client in clients:
                client.truncates = number > 1
        loads.wait_for(20)
    capture_once(lake, source, spark, **{key: BESIDE[key] for key in ("copy_beside", "copy_chunk")})
    capture = judging.captured(lake.catalog, settings_of(source))
    if KILLS[catalog_engine] > len(STEPS):
        # Changes from before a new copy stay, and some that came during it are in the rows alone.
        judging.check_current(lake.catalog, source, capture)
        judging.check_changes(lake.catalog, capture, witness.happened(), recopied=True)
        judging.check_mirror(lake.catalog, capture)
        return
    check_money(lake)
    judging.check_all(lake.catalog, source, capture, witness.happened())
    for table in capture.tables.values():
        history = lake.catalog.history(table.current)
        copies = [one for one in history if one.get("operationParameters", {}).get("mode") == "Copy"]
        assert len(copies) == 1, f"{table.source} appeared in one commit"


def _check(lake: Lake, source: Source) -> None:
    """What is there is there as a whole: money moves between two tables, and none of it is lost at any commit."""
    capture = load_capture(lake.catalog, settings_of(source))
    if capture is None:
        return
    streaming = {table.source for table in capture.streaming}
    if {f"public.{name}" for name in ACCOUNTS} <= streaming:
        assert money(lake.catalog) == TOTAL
    for table in capture.streaming:
        version = lake.catalog.table(table.current).transaction_version(capture.app_id)
        assert version is not None
        assert version <= capture.lsn
