"""The functions that need no jar work over Spark Connect, with a server that has nothing of ours."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fixtures.spark import submit_arguments

pytestmark = pytest.mark.spark

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_tables_are_written_and_read_over_spark_connect(tmp_path: Path) -> None:
    environment = {**os.environ, **submit_arguments(tmp_path, **{"spark.driver.memory": "1g"})}
    # One SparkContext lives in a process, and the tests have theirs.
    done = subprocess.run(
        [sys.executable, "-m", "tests.spark.over_connect", str(tmp_path)],
        cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.stdout.splitlines()[-1:] == ["all of it worked"], done.stdout + done.stderr[-4000:]
    assert done.returncode == 0
