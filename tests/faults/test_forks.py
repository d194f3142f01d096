"""Forks: what a parent has opened is neither used nor closed nor destroyed in a child, however deep they nest."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from tests.faults.conftest import Place
from tests.fixtures.s3 import S3
from tests.fixtures.sizes import sized

ROUNDS = sized(1, 20)


def test_forked_children_and_theirs_read_write_and_commit_beside_busy_threads(place: Place) -> None:
    _run(place, "fork")


@pytest.mark.in_turn
@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_children_that_are_started_anew_do_so_too(place: Place, method: str) -> None:
    _run(place, method)


def _run(place: Place, method: str) -> None:
    command = [sys.executable, "-m", "tests.faults.forking", place.catalog, method, str(ROUNDS)]
    # DuckDB lets in one process at a time, and here five come again and again.
    environment = {**os.environ, "DL_WAREHOUSE": str(place.warehouse), "DL_SQL_BUSY_TIMEOUT": "90"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240 * ROUNDS, check=False)
    assert done.returncode == 0, done.stderr[-6000:]
    assert f"{6 * ROUNDS} children" in done.stdout


_ON_S3 = """
import json, multiprocessing, os, signal, sys, threading
import pyarrow as pa
import deltalakedb as dl

place, options = sys.argv[1], json.loads(sys.argv[2])
dl.write_deltalake(place, pa.table({"id": [1]}), storage_options=options)
table = dl.DeltaTable(place, storage_options=options)
stop = threading.Event()
def look():
    while not stop.is_set():
        dl.DeltaTable(place, storage_options=options).to_pyarrow_table()
looking = threading.Thread(target=look)
looking.start()
child = os.fork()
if child == 0:
    signal.alarm(60)
    refused = 0
    for step in (
        lambda: table.to_pyarrow_table(),
        lambda: table.update_incremental(),
        lambda: dl.DeltaTable(place, storage_options=options),
        lambda: dl.write_deltalake(place, pa.table({"id": [2]}), mode="append", storage_options=options),
    ):
        try:
            step()
        except dl.exceptions.DeltaError as error:
            refused += "spawn or forkserver" in str(error)
    os._exit(refused)
_, code = os.waitpid(child, 0)
started = multiprocessing.get_context("spawn").Process(
    target=dl.write_deltalake,
    args=(place, pa.table({"id": [2]})),
    kwargs={"mode": "append", "storage_options": options},
)
started.start()
started.join()
stop.set()
looking.join()
assert os.waitstatus_to_exitcode(code) == 4, code
assert started.exitcode == 0, started.exitcode
assert sorted(dl.DeltaTable(place, storage_options=options).to_pyarrow_table()["id"].to_pylist()) == [1, 2]
"""


def test_a_forked_child_is_told_that_an_object_store_needs_another_start(s3: S3) -> None:
    """The threads of obstore, which make all requests, stay in the parent."""
    command = [sys.executable, "-c", _ON_S3, s3.uri("t"), json.dumps(s3.storage_options)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
