"""The capture: what to copy. `dl cdc start`, `dl cdc status` and `dl cdc stop` do the same from a shell."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Final

from pyspark.sql import SparkSession

import deltalakedb as dl
import deltalakedb.cdc as cdc
from deltalakedb.cdc.run.presence import request_stop
from deltalakedb.cdc.run.status import CaptureStatus, capture_status
from deltalakedb.cdc.settings import CaptureSettings
from deltalakedb.cdc.source.postgres import connect
from examples.capture_orders.shop import PUBLICATION, TABLES

NAMESPACE: Final = "shop"


class Capturing:
    """The capture on a thread of its own, as `dl cdc start` would run it in a process of its own."""

    def __init__(self, catalog: dl.Catalog, dsn: str, spark: SparkSession, window: str) -> None:
        self._catalog, self._dsn, self._spark, self._window = catalog, dsn, spark, window
        self.settings = CaptureSettings(dsn, PUBLICATION, namespace=NAMESPACE)
        self._thread = threading.Thread(target=self._work, daemon=True)
        self.failure: BaseException | None = None

    def __enter__(self) -> Capturing:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with connect(self._dsn) as conn:  # what `dl cdc stop` does
            request_stop(conn, self.settings.slot, 60)
        self._thread.join()
        if self.failure is not None and error is None:
            raise self.failure

    def status(self) -> CaptureStatus:
        """What `dl cdc status` shows."""
        if self.failure is not None:
            raise self.failure
        return capture_status(self._catalog, self.settings)

    def _work(self) -> None:
        try:
            cdc.run(
                self._catalog,
                self._dsn,
                PUBLICATION,
                namespace=NAMESPACE,
                spark=self._spark,
                batch_window=self._window,
                heartbeat="1s",  # a minute would do; here one waits for the end
            )
        except BaseException as error:
            self.failure = error


def wait_until(capturing: Capturing, is_so: Callable[[CaptureStatus], bool], timeout: float = 300) -> None:
    """Look five times a second until the status is as wanted."""
    until = time.monotonic() + timeout
    while not is_so(capturing.status()):
        if time.monotonic() > until:
            raise TimeoutError("the capture does not come along")
        time.sleep(0.2)


def is_streaming(status: CaptureStatus) -> bool:
    """Whether every table has been copied."""
    return len(status.tables) == len(TABLES) and all(table.stage == "streaming" for table in status.tables)
