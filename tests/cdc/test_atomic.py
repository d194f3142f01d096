"""Money moves between two tables of the source: no reader of the lake ever sees some of it on the way."""

import os
import random
import time

from pyspark.sql import SparkSession

from tests.cdc import judging
from tests.cdc.capturing import NAMESPACE, Capturing, capture_once, money, settings_of
from tests.cdc.conftest import Lake, Source
from tests.cdc.load import ACCOUNTS, TOTAL, Load, Loads, create_tables, fill, total

FULL = os.environ.get("HYPOTHESIS_PROFILE") == "soak"
BATCHES = 200 if FULL else 4
INSTANTS = 2_000 if FULL else 40
LONGEST_SECONDS = 1_800 if FULL else 400
PAUSE_SECONDS = 0.06 if FULL else 0.25
"""Between two looks at the money; those who move it pause for half as long."""
NAMES = {f"{NAMESPACE}.{name}" for name in ACCOUNTS}


def test_a_reader_never_sees_money_on_the_way(spark: SparkSession, source: Source, lake: Lake) -> None:
    create_tables(source)
    fill(source, 100)
    started_ms = int(time.time() * 1000)
    clients = [Load(source, seed, truncates=False, pause_seconds=PAUSE_SECONDS / 2) for seed in (3, 4)]
    with lake.open() as reading, Loads(clients), Capturing(lake, source, spark) as capturing:
        deadline = time.monotonic() + LONGEST_SECONDS
        versions: set[int] = set()
        while len(versions) <= BATCHES:
            capturing.check()
            assert time.monotonic() < deadline, f"only {len(versions)} batches were seen"
            time.sleep(PAUSE_SECONDS)
            if not set(reading.tables(NAMESPACE)) >= NAMES:
                continue
            assert money(reading) == TOTAL
            versions.add(reading.table(f"{NAMESPACE}.{ACCOUNTS[0]}").version())
            if len(versions) == BATCHES // 2:
                for client in clients:  # the tables are copied: from now on they are emptied now and then
                    client.truncates = True
    assert total(source) == TOTAL
    capture_once(lake, source, spark)
    judging.check_current(lake.catalog, source, judging.captured(lake.catalog, settings_of(source)))
    _check_instants(lake, started_ms)


def _check_instants(lake: Lake, started_ms: int) -> None:
    """At each commit, just before it, and at moments between."""
    choices = random.Random(5)
    commits = [entry["timestamp"] for name in NAMES for entry in lake.catalog.history(name)]
    moments = [commit - before for commit in commits for before in (0, 1)]
    moments += [choices.randint(started_ms, max(commits)) for _ in range(INSTANTS)]
    seen = 0
    for moment in choices.sample(moments, min(INSTANTS, len(moments))):
        view = lake.catalog.at(moment)
        if set(view.tables(NAMESPACE)) >= NAMES:
            assert money(view) == TOTAL, f"at {moment}"
            seen += 1
    assert seen > INSTANTS // 4, "hardly any instant lay within the capture"
