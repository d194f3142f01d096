"""A Spark that runs jobs and gives up every streaming query, as on a machine too busy to start a Python in time."""

import threading
from typing import Any

from deltalakedb.cdc.run.runner import Runner
from deltalakedb.cdc.settings import CaptureSettings
from tests.cdc import judging
from tests.cdc.capturing import wait_until
from tests.cdc.conftest import Lake, Source
from tests.cdc.local_jobs import LocalJobs
from tests.cdc.taking import create_shop


class _GivenUp:
    """Whatever is asked of a stream, it is a query that has ended."""

    isActive = False  # noqa: N815  Spark's name

    def __init__(self, begun: list[str]) -> None:
        self._begun = begun

    def __getattr__(self, _name: str) -> Any:
        return lambda *_given, **_options: self

    @property
    def writeStream(self) -> "_GivenUp":  # noqa: N802  Spark's name
        return self

    def start(self) -> "_GivenUp":
        self._begun.append("a query")
        return self

    def exception(self) -> str:
        return "Python worker failed to connect back."


class BusyJobs(LocalJobs):
    """Runs jobs, and no query."""

    def __init__(self) -> None:
        super().__init__()
        self.begun: list[str] = []

    @property
    def readStream(self) -> _GivenUp:  # noqa: N802  Spark's name
        return _GivenUp(self.begun)


def test_a_capture_goes_on_by_jobs_when_spark_gives_up_its_queries(lake: Lake, source: Source) -> None:
    create_shop(source)
    source.run("insert into orders values (1, 'one', 1)")
    settings = CaptureSettings(source.dsn, "shop", namespace="lake", batch_seconds=0.1)
    jobs: Any = BusyJobs()
    stop, ended = threading.Event(), list[BaseException | None]()

    def run() -> None:
        try:
            with lake.open() as catalog:
                Runner(catalog, settings, jobs, stop).run()
            ended.append(None)
        except BaseException as error:  # the test is told
            ended.append(error)

    runner = threading.Thread(target=run)
    runner.start()
    try:
        wait_until(lambda: bool(jobs.begun or ended))
        source.run("insert into orders values (2, 'two', 1), (3, 'three', 1)", "delete from orders where id = 1")
        wait_until(lambda: bool(ended) or lake.catalog.table("lake.orders").count() == 2)
        source.run("insert into orders values (4, 'four', 1)")
        wait_until(lambda: bool(ended) or lake.catalog.table("lake.orders").count() == 3)
    finally:
        stop.set()
        runner.join(60)
    assert ended == [None]
    assert jobs.begun == ["a query"], "another one is tried after a while"
    judging.check_current(lake.catalog, source, judging.captured(lake.catalog, settings))
