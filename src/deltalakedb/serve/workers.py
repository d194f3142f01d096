"""The worker threads of requests: a bounded number, and a bounded wait for one of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import TypeVar

from deltalakedb.exceptions import EndpointBusyError

T = TypeVar("T")

WAIT_SECONDS = 10.0
"""How long a request waits for a thread before it is answered 503."""


class Workers:
    """Runs blocking functions (SQL, object stores) beside the event loop."""

    def __init__(self, threads: int, *, wait_seconds: float) -> None:
        self._threads = threads
        self._wait_seconds = wait_seconds
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="deltalakedb-serve")
        # Not the pool's own queue: a request that waits there cannot be rejected.
        self._free = asyncio.Semaphore(threads)

    async def run(self, work: Callable[[], T]) -> T:
        """The result of `work`, run by one of the threads; EndpointBusyError if none becomes free in time."""
        try:
            async with asyncio.timeout(self._wait_seconds):
                await self._free.acquire()
        except TimeoutError:
            raise EndpointBusyError(
                f"all {self._threads} threads of the endpoint were busy for {self._wait_seconds:g} seconds; "
                "try again, or raise serve.threads"
            ) from None
        try:
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self._pool, copy_context().run, work)
        except RuntimeError as error:
            if "shutdown" not in str(error):
                raise
            raise EndpointBusyError("the endpoint is being stopped; try again once it is up") from None
        finally:
            self._free.release()

    def close(self) -> None:
        """Wait for running work, and accept no more."""
        self._pool.shutdown(wait=True)
