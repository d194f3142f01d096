"""A capture as people start it: a process of its own, a Spark of its own, and a signal that ends it."""

import os
import signal
import subprocess
import sys

import pytest

from tests.cdc import judging
from tests.cdc.capturing import wait_until
from tests.cdc.conftest import Lake, Source
from tests.cdc.taking import create_shop
from tests.cdc.test_run import rows, settings_of

pytestmark = pytest.mark.spark

SCRIPT = """
import sys
import deltalakedb as dl
from deltalakedb import cdc

catalog, warehouse, source = sys.argv[1:]
with dl.connect(catalog, warehouse=warehouse) as lake:
    print(cdc.run(lake, source, "shop", namespace="lake", batch_window="500ms"))
"""


def test_a_capture_with_a_spark_of_its_own_ends_on_sigterm_with_nothing_half(lake: Lake, source: Source) -> None:
    create_shop(source)
    source.run("insert into orders select i, 'x', 1 from generate_series(1, 100) i")
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, lake.uri, str(lake.warehouse), source.dsn],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={key: value for key, value in os.environ.items() if key != "PYSPARK_SUBMIT_ARGS"},
    )
    try:
        wait_until(lambda: process.poll() is not None or "lake.orders" in lake.catalog.tables())
        source.run("insert into orders values (101, 'later', 1)", "insert into items values (1, 101, 'one')")
        wait_until(lambda: process.poll() is not None or len(rows(lake, "lake.orders")) == 101)
        process.send_signal(signal.SIGTERM)
        said, complained = process.communicate(timeout=120)
    finally:
        process.kill()
    assert process.returncode == 0, complained
    assert said.startswith("dl_shop is at "), said
    assert "2 changes of 2 transactions" in said
    assert not [line for line in complained.splitlines() if "incubator" not in line], complained
    capture = judging.captured(lake.catalog, settings_of(source))
    judging.check_all(lake.catalog, source, capture, None)
