"""The application: routers behind one token, one access log and one set of worker threads."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from deltalakedb.exceptions import DeltaError, MissingExtraError
from deltalakedb.serve.workers import WAIT_SECONDS, Workers

try:
    from starlette.applications import Starlette
    from starlette.exceptions import HTTPException
    from starlette.middleware import Middleware
    from starlette.requests import ClientDisconnect, Request
    from starlette.responses import Response
    from starlette.routing import BaseRoute, Mount

    from deltalakedb.serve.auth import AccessLog, BearerToken, check_token
    from deltalakedb.serve.bridge.router import BridgeRouter
    from deltalakedb.serve.problems import answer_error, problem
except ModuleNotFoundError as error:
    if (error.name or "").partition(".")[0] != "starlette":
        raise
    raise MissingExtraError("serving", "serve") from None

if TYPE_CHECKING:
    from deltalakedb.catalog.catalog import Catalog


def create_app(catalog: Catalog, *, token: str, bridge: bool = True, wait_seconds: float = WAIT_SECONDS) -> Starlette:
    """Create the application over a catalog; every request must carry the token. `bridge`: serve delta-spark's bridge.

    `wait_seconds`: how long a request waits for a free thread before it is answered 503.
    """
    check_token(token)
    workers = Workers(catalog.config.serve_threads, wait_seconds=wait_seconds)
    routers = [BridgeRouter(catalog, workers)] if bridge else []
    routes: list[BaseRoute] = [Mount(router.prefix, routes=router.routes()) for router in routers]

    @contextlib.asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncIterator[None]:
        for router in routers:
            router.start()
        yield
        # All requests have been answered by now, so blocking the event loop is fine.
        workers.close()
        for router in routers:
            router.close()

    return Starlette(
        routes=routes,
        lifespan=lifespan,
        middleware=[Middleware(AccessLog), Middleware(BearerToken, token=token)],
        exception_handlers={
            DeltaError: answer_error,
            HTTPException: _answer_http,
            ClientDisconnect: _answer_gone,
        },
    )


async def _answer_http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    what = f"{request.method} {request.url.path}"
    if error.status_code == 404:
        return problem(404, "NoSuchRouteError", f"the endpoint does not know {what}")
    return problem(error.status_code, "HTTPError", f"{what}: {error.detail}")


async def _answer_gone(request: Request, _error: Exception) -> Response:
    """For the access log only: the client is gone."""
    return problem(400, "ClientDisconnectError", f"the client of {request.method} {request.url.path} went away")
