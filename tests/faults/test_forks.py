"""Forks: what a parent has opened is neither used nor closed nor destroyed in a child, however deep they nest."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.faults.conftest import Place
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
