"""Whether an endpoint lives, and whether it can work: for load balancers, which need no token."""

from __future__ import annotations

import asyncio
import logging
import time
from concurrent.futures import ThreadPoolExecutor

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from deltalakedb.exceptions import redact
from deltalakedb.store import Store

logger = logging.getLogger(__name__)

LIVE_PATH = "/health/live"
READY_PATH = "/health/ready"
ANSWER_SECONDS = 5.0
"""A database that takes longer for a look at its clock is not ready."""
KEPT_SECONDS = 1.0
"""How long an answer is used again: whoever asks often does not load the database."""


class Health:
    """Answers with as little as possible, because anybody may ask."""

    def __init__(self, store: Store) -> None:
        self._store = store
        # A thread of its own: an endpoint whose threads are all busy is ready.
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="deltalakedb-health")
        self._asking: asyncio.Future[bool] | None = None
        self._answer: tuple[bool, float] = (False, -KEPT_SECONDS)

    def routes(self) -> list[Route]:
        return [Route(LIVE_PATH, self._live, methods=["GET"]), Route(READY_PATH, self._ready, methods=["GET"])]

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

    async def _live(self, _request: Request) -> Response:
        return JSONResponse({"live": True}, headers={"Cache-Control": "no-store"})

    async def _ready(self, _request: Request) -> Response:
        is_ready, at = self._answer
        if time.monotonic() - at >= KEPT_SECONDS:
            is_ready = await self._ask()
        return JSONResponse({"ready": is_ready}, 200 if is_ready else 503, headers={"Cache-Control": "no-store"})

    async def _ask(self) -> bool:
        """Whether the database answers in time; those who ask meanwhile wait for the same answer."""
        if self._asking is None or self._asking.done():
            self._asking = asyncio.get_running_loop().run_in_executor(self._pool, self._look)
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                is_ready = await asyncio.shield(self._asking)
        except TimeoutError:
            return False
        self._answer = (is_ready, time.monotonic())
        return is_ready

    def _look(self) -> bool:
        try:
            with self._store.read(single=True) as conn:
                conn.all("select_catalog")
        except Exception as error:  # whatever it is, requests would fail as well
            logger.warning("not ready: %s", redact(str(error)))
            return False
        return True
