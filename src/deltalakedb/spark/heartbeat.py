"""Signs of life of an open transaction: a thread sends them, and notices if the endpoint has ended it."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from deltalakedb.exceptions import DeltaError, GoneError

if TYPE_CHECKING:
    from deltalakedb.spark.endpoint import EndpointClient

LONGEST_INTERVAL_SECONDS = 20.0


class Heartbeat:
    """Tells the endpoint every few seconds that a transaction's driver is alive, until `stop()` or the process ends."""

    def __init__(self, endpoint: EndpointClient, txn: str, timeout_seconds: float) -> None:
        self.gone: GoneError | None = None
        """Why the transaction is over, once the endpoint has said so."""
        self._endpoint, self._txn = endpoint, txn
        # Several within the time-out, because one may be lost.
        self._interval_seconds = min(LONGEST_INTERVAL_SECONDS, timeout_seconds / 5)
        self._stopped = threading.Event()
        thread = threading.Thread(target=self._beat, name=f"deltalakedb-alive-{txn[:9]}", daemon=True)
        thread.start()

    def stop(self) -> None:
        self._stopped.set()

    def _beat(self) -> None:
        while not self._stopped.wait(self._interval_seconds):
            try:
                self._endpoint.alive(self._txn)
            except GoneError as gone:
                self.gone = gone
                return
            except DeltaError:
                continue  # the next statement reports a dead endpoint; it may be back by then
