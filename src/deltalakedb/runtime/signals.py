"""Stops long-running commands on SIGINT and SIGTERM."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def ended_by_signal() -> Iterator[threading.Event]:
    """Yield an event that SIGINT or SIGTERM sets, so that current work can finish; a second signal ends the process.

    Only the main thread receives signals: in any other thread the event is never set.
    """
    ended = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield ended
        return
    earlier_handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def end(number: int, _frame: object) -> None:
        signal.signal(number, earlier_handlers[signal.Signals(number)])
        ended.set()

    for number in earlier_handlers:
        signal.signal(number, end)
    try:
        yield ended
    finally:
        for number, handler in earlier_handlers.items():
            signal.signal(number, handler)
