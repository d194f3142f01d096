"""A capture in a process of its own, with a Spark of its own or none, to be killed at a moment or at a named step."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any, ClassVar

from pyspark.sql import SparkSession

import deltalakedb as dl
from deltalakedb import cdc
from deltalakedb.cdc.run.configured import load_settings
from deltalakedb.cdc.run.report import CaptureReport
from deltalakedb.cdc.run.runner import Runner
from deltalakedb.runtime import steps
from tests.cdc.conftest import Lake, Source
from tests.cdc.local_jobs import LocalJobs
from tests.fixtures.sizes import sized
from tests.fixtures.spark import local_conf

READY_SECONDS = sized(180, 900)
"""Spark took more than three minutes to start on a machine at a load of 20."""
_STARTED = "runner: started"
_ENDED = "runner: ended "


def choose_kills(few: int, whole: int) -> int:
    """How often a test kills the capture: `DL_TEST_KILLS` times if that is set, else as `make test` or `make soak`."""
    return int(os.environ.get("DL_TEST_KILLS", "0")) or sized(few, whole)


class RunnerProcess:
    """The process as whoever kills it sees it."""

    with_spark: ClassVar[bool] = True

    def __init__(self, lake: Lake, source: Source, scratch: Path, kill_at: str | None = None, **settings: Any) -> None:
        scratch.mkdir(parents=True, exist_ok=True)
        self._log, self._armed = scratch / "runner.log", scratch / "armed"
        told = {
            "catalog": lake.uri,
            "warehouse": str(lake.warehouse),
            "scratch": str(scratch),
            "kill_at": kill_at,
            "with_spark": self.with_spark,
            "settings": {"source": source.dsn, **settings},
        }
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.cdc.runner_process", json.dumps(told)],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
                env={**os.environ, "PYSPARK_PYTHON": sys.executable},
            )  # fmt: skip

    def wait_until_started(self) -> None:
        """Until its Spark runs and the capture begins."""
        deadline = time.monotonic() + READY_SECONDS
        while _STARTED not in self.said():
            assert self._process.poll() is None, f"the runner ended: {self.said()[-4000:]}"
            assert time.monotonic() < deadline, f"the runner did not start: {self.said()[-4000:]}"
            time.sleep(0.05)

    def arm(self) -> None:
        """From now on it dies at its step."""
        self._armed.touch()

    def wait_until_dead(self, seconds: float) -> bool:
        """Whether it killed itself in time; it may not end in any other way."""
        try:
            code = self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        assert code == -signal.SIGKILL, f"the runner ended with {code}: {self.said()[-4000:]}"
        return True

    def wait_until_ended(self, seconds: float = READY_SECONDS) -> dict[str, Any]:
        """Its report, when it has ended by itself."""
        code = self._process.wait(seconds)
        assert code == 0, f"the runner ended with {code}: {self.said()[-4000:]}"
        last = next(line for line in reversed(self.said().splitlines()) if line.startswith(_ENDED))
        report: dict[str, Any] = json.loads(last.removeprefix(_ENDED))
        return report

    def is_running(self) -> bool:
        return self._process.poll() is None

    def kill(self, *, with_spark: bool) -> None:
        """Of the driver alone the JVM hears a little later: what its tasks do meanwhile must not count."""
        assert self.is_running(), f"the runner ended by itself: {self.said()[-4000:]}"
        (os.killpg if with_spark else os.kill)(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def close(self) -> None:
        """Nothing of it is left."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def said(self) -> str:
        return self._log.read_text(errors="replace")


class LocalRunnerProcess(RunnerProcess):
    """Without Spark: the process runs all tasks itself, with `once`."""

    with_spark = False


def kill_at(step: str, armed: Path) -> None:
    """Die at a step as a machine does, once `armed` is there. `name#2`: when it is reached for the second time."""
    name, _, times = step.partition("#")
    left = [int(times or 1)]

    def die(reached: str) -> None:
        if reached == name and armed.exists():
            left[0] -= 1
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    steps.observe(die)


def main() -> None:
    told = json.loads(sys.argv[1])
    spark = start_spark(Path(told["scratch"])) if told["with_spark"] else None
    if told["kill_at"]:
        kill_at(told["kill_at"], Path(told["scratch"]) / "armed")
    print(f"\n{_STARTED}", flush=True)
    with dl.connect(told["catalog"], warehouse=told["warehouse"]) as catalog:
        settings = told["settings"]
        report = run_here(catalog, **settings) if spark is None else cdc.run(catalog, spark=spark, **settings)
    print(f"\n{_ENDED}{json.dumps(asdict(report), default=str)}", flush=True)
    if spark is not None:
        spark.stop()


def run_here(catalog: dl.Catalog, once: bool, **settings: Any) -> CaptureReport:
    """The runner without Spark: its jobs run in this process."""
    jobs: Any = LocalJobs()
    return Runner(catalog, load_settings(settings, catalog), jobs, threading.Event()).run(once=once)


def start_spark(scratch: Path) -> SparkSession:
    builder = SparkSession.builder
    for key, value in {**local_conf(scratch), "spark.driver.memory": "1g"}.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


if __name__ == "__main__":
    main()
