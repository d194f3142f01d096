"""Runs captures of the tests' load inside of the test's process, on the shared Spark."""

import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Final

from pyspark.sql import SparkSession

import deltalakedb as dl
from deltalakedb import cdc
from deltalakedb.catalog.view import CatalogView
from deltalakedb.cdc.run.presence import find_runner, request_stop
from deltalakedb.cdc.run.report import CaptureReport
from deltalakedb.cdc.settings import CaptureSettings
from tests.cdc.conftest import Lake, Source
from tests.cdc.load import ACCOUNTS, PUBLICATION, TOTAL

SLOT: Final = "dl_shop"
NAMESPACE: Final = "shop"
MOST_BEHIND: Final = 8 << 20
WHAT: Final = {"publication": PUBLICATION, "namespace": NAMESPACE, "slot": SLOT}


def settings_of(source: Source) -> CaptureSettings:
    return CaptureSettings(source.dsn, PUBLICATION, slot=SLOT, namespace=NAMESPACE)


def capture_once(lake: Lake, source: Source, spark: SparkSession, **settings: Any) -> CaptureReport:
    """Everything that is committed now."""
    return cdc.run(lake.catalog, source.dsn, spark=spark, once=True, **{**WHAT, **settings})


def is_far_behind(source: Source) -> bool:
    """Whether the source has much log that is not captured."""
    ((behind,),) = source.run(
        "select coalesce(max(pg_current_wal_flush_lsn() - confirmed_flush_lsn), 0) from pg_replication_slots "
        f"where slot_name = '{SLOT}'"  # null while it is being made
    )
    return bool(behind > MOST_BEHIND)


def money(tables: dl.Catalog | CatalogView) -> int:
    """The sum of both tables of accounts: as they are in one transaction, or as they were at one instant."""
    if isinstance(tables, dl.Catalog):
        with tables.begin() as tx:
            found = [tx.table(f"{NAMESPACE}.{name}").to_pyarrow_table() for name in ACCOUNTS]
    else:
        found = [tables.table(f"{NAMESPACE}.{name}").to_pyarrow_table() for name in ACCOUNTS]
    return int(sum(sum(rows["balance"].to_pylist()) for rows in found))


def check_money(lake: Lake) -> int:
    """No commit shows money on the way; how many commits showed both tables of accounts."""
    names = [f"{NAMESPACE}.{name}" for name in ACCOUNTS]
    moments = sorted({entry["timestamp"] for name in names for entry in lake.catalog.history(name)})
    views = [lake.catalog.at(moment) for moment in moments]
    sums = [money(view) for view in views if set(view.tables(NAMESPACE)) >= set(names)]
    assert sums == [TOTAL] * len(sums)
    return len(sums)


def wait_until(is_true: Callable[[], bool], capturing: "Capturing | None" = None, seconds: float = 120) -> None:
    """Until it is so, or `capturing` has ended."""
    deadline = time.monotonic() + seconds
    while not is_true():
        if capturing is not None:
            capturing.check()
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.1)


class Capturing:
    """A capture that goes on in a thread until the block ends."""

    def __init__(self, lake: Lake, source: Source, spark: SparkSession, **settings: Any) -> None:
        self._lake, self._source, self._spark = lake, source, spark
        self._settings = {**WHAT, "batch_window": "500ms", **settings}
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.report: CaptureReport | None = None

    def __enter__(self) -> "Capturing":
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._thread.is_alive():
            with self._source.connect() as connection:
                self._wait_for_runner(connection)
                request_stop(connection, str(self._settings["slot"]), 60)
        self._thread.join(60)
        if kind is None:
            self.check()

    def check(self) -> None:
        """Raises what has ended it."""
        if self._error is not None:
            raise AssertionError(f"the capture ended: {self._error!r}") from self._error

    def wait_for_end(self, seconds: float = 60) -> BaseException | None:
        """What ended it, which is then no trouble any more."""
        self._thread.join(seconds)
        assert not self._thread.is_alive(), "the capture goes on"
        error, self._error = self._error, None
        return error

    def _wait_for_runner(self, connection: Any) -> None:
        deadline = time.monotonic() + 30
        while self._thread.is_alive() and time.monotonic() < deadline:
            if find_runner(connection, str(self._settings["slot"])) is not None:
                return
            time.sleep(0.1)

    def _run(self) -> None:
        try:
            with self._lake.open() as catalog:
                self.report = cdc.run(catalog, self._source.dsn, spark=self._spark, **self._settings)
        except BaseException as error:  # the test is told
            self._error = error
