"""Signals: how what goes on until it is told to stop is told so."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def ended_by_signal() -> Iterator[threading.Event]:
    """An event that SIGINT or SIGTERM sets, so that the work at hand is finished first; a second one ends at once.

    Only the main thread hears of signals: in another one nothing sets it.
    """
    ended = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield ended
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def end(number: int, _frame: object) -> None:
        signal.signal(number, before[signal.Signals(number)])
        ended.set()

    for number in before:
        signal.signal(number, end)
    try:
        yield ended
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
