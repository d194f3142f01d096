"""The runner of a capture copies beside its stream while the source is written, and is stopped and started again."""

import threading
from typing import Any

from deltalakedb.cdc.run.runner import Runner
from deltalakedb.cdc.settings import CaptureSettings
from tests.cdc import judging
from tests.cdc.conftest import Lake, Source
from tests.cdc.copying import Told
from tests.cdc.load import PUBLICATION, TABLES, Load, Loads, create_tables, fill
from tests.cdc.local_jobs import LocalJobs
from tests.cdc.witness import Witness


class StopAfter(Told):
    """Stops the capture when so many parts are read, or when all tables are there."""

    def __init__(self, stop: threading.Event, parts: int, there: set[str]) -> None:
        super().__init__()
        self._stop, self._parts, self._there = stop, parts, there

    def task_ended(self, source: str, rows: int) -> None:
        super().task_ended(source, rows)
        self._parts -= 1
        if not self._parts:
            self._stop.set()

    def table_ended(self, source: str, rows: int) -> None:
        super().table_ended(source, rows)
        self._there.add(source)
        if len(self._there) == len(TABLES):
            self._stop.set()


def test_a_capture_that_is_stopped_and_started_during_its_copies_has_every_change_once(
    lake: Lake, source: Source
) -> None:
    create_tables(source)
    fill(source, 1500)
    witness = Witness(source, PUBLICATION)
    settings = CaptureSettings(
        source.dsn, PUBLICATION, namespace="lake", copy_beside_bytes=0, chunk_bytes=8192, batch_seconds=0.2
    )
    jobs: Any = LocalJobs()
    copied: list[str] = []
    there: set[str] = set()
    with Loads([Load(source, seed, truncates=seed == 2, pause_seconds=0.05) for seed in (1, 2)]) as loads:
        loads.wait_for(5)
        for parts in (2, 3, 4, 1000):
            stop = threading.Event()
            told = StopAfter(stop, parts, there)
            is_last = parts == 1000 or len(there) == len(TABLES)  # nothing is left to be stopped in
            copied += Runner(lake.catalog, settings, jobs, stop, progress=told).run(once=is_last).copied
        loads.wait_for(10)
    assert sorted(copied) == sorted(f"public.{name}" for name in TABLES)
    Runner(lake.catalog, settings, jobs, threading.Event()).run(once=True)
    capture = judging.captured(lake.catalog, settings)
    judging.check_all(lake.catalog, source, capture, witness.happened())
