"""A capture as people start it: a process of its own, a Spark of its own, and a signal that ends it."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from pyspark.sql import SparkSession

from deltalakedb.cdc.run.start import note_death
from deltalakedb.exceptions import SparkDiedError
from tests.cdc import judging
from tests.cdc.capturing import capture_once, wait_until
from tests.cdc.conftest import Lake, Source
from tests.cdc.taking import create_shop
from tests.cdc.test_run import rows, settings_of

pytestmark = pytest.mark.spark

SECONDS = 300
SCRIPT = """
import sys
import deltalakedb as dl
from deltalakedb import cdc

catalog, warehouse, source = sys.argv[1:]
with dl.connect(catalog, warehouse=warehouse) as lake:
    print(cdc.run(lake, source, "shop", namespace="lake", slot="dl_shop", batch_window="500ms"))
"""


@pytest.mark.slow
def test_a_capture_with_a_spark_of_its_own_ends_on_sigterm_with_nothing_half(lake: Lake, source: Source) -> None:
    create_shop(source)
    source.run("insert into orders select i, 'x', 1 from generate_series(1, 100) i")
    with started(lake, source) as process:
        wait_until(lambda: is_alive(process) and are_copied(lake), seconds=SECONDS)
        source.run("insert into orders values (101, 'later', 1)", "insert into items values (1, 101, 'one')")
        wait_until(lambda: is_alive(process) and len(rows(lake, "lake.orders")) == 101, seconds=SECONDS)
        process.send_signal(signal.SIGTERM)
        said, complained = process.communicate(timeout=SECONDS)
    assert process.returncode == 0, complained
    assert said.startswith("dl_shop is at "), said
    assert "2 changes of 2 transactions" in said
    assert not [line for line in complained.splitlines() if "incubator" not in line], complained
    capture = judging.captured(lake.catalog, settings_of(source))
    judging.check_all(lake.catalog, source, capture, None)


@pytest.mark.slow
def test_a_java_that_is_killed_is_named_and_started_again(lake: Lake, source: Source) -> None:
    create_shop(source)
    source.run("insert into orders select i, 'x', 1 from generate_series(1, 100) i")
    with started(lake, source) as process:
        wait_until(lambda: is_alive(process) and are_copied(lake), seconds=SECONDS)
        source.run("insert into orders values (101, 'later', 1)")
        wait_until(lambda: is_alive(process) and len(rows(lake, "lake.orders")) == 101, seconds=SECONDS)
        (java,) = java_of(process.pid)
        os.kill(java, signal.SIGKILL)
        source.run("insert into orders values (102, 'after', 1)")
        wait_until(lambda: is_alive(process) and len(rows(lake, "lake.orders")) == 102, seconds=SECONDS)
        process.send_signal(signal.SIGTERM)
        said, complained = process.communicate(timeout=SECONDS)
    assert process.returncode == 0, complained
    assert f"the Java process of Spark ({java}) was killed by signal 9" in complained
    assert "it is started again" in complained
    assert said.startswith("dl_shop is at "), said
    capture = judging.captured(lake.catalog, settings_of(source))
    judging.check_all(lake.catalog, source, capture, None)


def test_a_java_that_dies_too_often_within_half_an_hour_is_not_started_again() -> None:
    deaths: list[float] = []
    for minute in (0, 10, 20, 31):
        note_death(deaths, SparkDiedError("Java was killed"), minute * 60)
    with pytest.raises(SparkDiedError, match=r"Java was killed\. It has died 4 times within 30 minutes"):
        note_death(deaths, SparkDiedError("Java was killed"), 33 * 60)


@pytest.mark.slow
def test_a_java_that_is_killed_whenever_it_starts_ends_the_capture_and_nothing_is_lost(
    lake: Lake, source: Source, spark: SparkSession
) -> None:
    create_shop(source)
    source.run("insert into orders select i, 'x', 1 from generate_series(1, 100) i")
    with started(lake, source) as process:
        wait_until(lambda: is_alive(process) and are_copied(lake), seconds=SECONDS)
        killed: set[int] = set()
        while len(killed) < 4:  # the first one while it works, the others while they start
            wait_until(lambda: is_alive(process) and bool(set(java_of(process.pid)) - killed), seconds=SECONDS)
            (java,) = set(java_of(process.pid)) - killed
            time.sleep(len(killed))
            os.kill(java, signal.SIGKILL)
            killed.add(java)
        source.run("insert into orders values (102, 'after', 1)")
        _, complained = process.communicate(timeout=SECONDS)
    assert process.returncode == 1, complained
    assert complained.count("it is started again") == 3, complained
    assert "It has died 4 times within 30 minutes, and is not started again" in complained
    capture_once(lake, source, spark, namespace="lake")
    capture = judging.captured(lake.catalog, settings_of(source))
    judging.check_all(lake.catalog, source, capture, None)


def is_alive(process: subprocess.Popen[str]) -> bool:
    """True, unless it has ended: then the test is told why."""
    assert process.poll() is None, process.communicate()[1]
    return True


def are_copied(lake: Lake) -> bool:
    return {"lake.orders", "lake.items"} <= set(lake.catalog.tables())


@contextmanager
def started(lake: Lake, source: Source) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, lake.uri, str(lake.warehouse), source.dsn],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={key: value for key, value in os.environ.items() if key != "PYSPARK_SUBMIT_ARGS"},
    )
    try:
        yield process
    finally:
        process.kill()


def java_of(pid: int) -> list[int]:
    """The Java processes that a process has started."""
    found = subprocess.run(["pgrep", "-P", str(pid), "java"], capture_output=True, text=True, check=False)
    return [int(line) for line in found.stdout.split()]
