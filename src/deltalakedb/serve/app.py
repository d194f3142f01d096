"""The application: routers behind one check of the caller, one access log and one set of worker threads."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Protocol

from deltalakedb.exceptions import DeltaError, MissingExtraError
from deltalakedb.serve.workers import WAIT_SECONDS, Workers

try:
    from starlette.applications import Starlette
    from starlette.exceptions import HTTPException
    from starlette.middleware import Middleware
    from starlette.requests import ClientDisconnect, Request
    from starlette.responses import Response
    from starlette.routing import BaseRoute, Mount

    from deltalakedb.serve.auth import Authenticate, NoBrowsers, OwnToken, Prove, check_token
    from deltalakedb.serve.bridge.router import BridgeRouter
    from deltalakedb.serve.health import LIVE_PATH, READY_PATH, Health
    from deltalakedb.serve.identity.named_tokens import NamedTokens
    from deltalakedb.serve.limits import RateLimit
    from deltalakedb.serve.problems import answer_error, forbidden, problem, refusal
    from deltalakedb.serve.requests import AccessLog
    from deltalakedb.serve.rights import require_proven_callers
except ModuleNotFoundError as error:
    if (error.name or "").partition(".")[0] != "starlette":
        raise
    raise MissingExtraError("serving", "serve") from None

if TYPE_CHECKING:
    from deltalakedb.catalog.catalog import Catalog
    from deltalakedb.runtime.config import Config


class Router(Protocol):
    """The routes of one kind of client."""

    prefix: str

    def routes(self) -> Sequence[BaseRoute]: ...

    def start(self) -> None: ...

    def close(self) -> None: ...


def create_app(
    catalog: Catalog,
    *,
    token: str | None,
    bridge: bool = True,
    iceberg: bool = False,
    wait_seconds: float = WAIT_SECONDS,
    ends_transactions: bool = False,
) -> Starlette:
    """Create the application over a catalog; every request must carry this token or a named one, unless it is None.

    `bridge`: serve delta-spark's bridge; `iceberg`: serve the Iceberg REST catalog. `wait_seconds`: how long a request
    waits for a free thread before it is answered 503. `ends_transactions`: abort the bridge's open transactions at the
    end; otherwise the next endpoint goes on with them.
    """
    require_proven_callers(catalog.config, token)
    workers = Workers(catalog.config.serve_threads, wait_seconds=wait_seconds)
    named = NamedTokens(catalog.store, workers)
    own = None if token is None else OwnToken(check_token(token), _actor_of(catalog))
    provers = [] if own is None else [own.prove, named.prove, *_provers_of_issuer(catalog.config, workers)]
    routers: list[Router] = []
    if bridge:
        routers.append(BridgeRouter(catalog, workers, ends_transactions=ends_transactions))
    if iceberg:
        from deltalakedb.serve.iceberg.router import IcebergRouter
        from deltalakedb.serve.iceberg.tokens import TokenEndpoint

        tokens = TokenEndpoint(own, named, catalog.config.serve_oidc_issuer)
        routers.append(IcebergRouter(catalog, workers, tokens))
    health = Health(catalog.store)
    routes: list[BaseRoute] = [Mount(router.prefix, routes=router.routes()) for router in routers]
    routes += health.routes()

    @contextlib.asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncIterator[None]:
        for router in routers:
            router.start()
        yield
        # All requests have been answered by now, so blocking the event loop is fine.
        workers.close()
        health.close()
        for router in routers:
            router.close()

    return Starlette(
        routes=routes,
        lifespan=lifespan,
        middleware=[Middleware(AccessLog), _guard(catalog, provers, iceberg=iceberg)],
        exception_handlers={
            DeltaError: answer_error,
            HTTPException: _answer_http,
            ClientDisconnect: _answer_gone,
        },
    )


def _actor_of(catalog: Catalog) -> str:
    """The name of the owner of the endpoint's own token, and of everybody if no token is needed."""
    return catalog.config.serve_actor or catalog.actor


def _provers_of_issuer(config: Config, workers: Workers) -> list[Prove]:
    """The check of the tokens of an OpenID Connect issuer, if one is configured."""
    if config.serve_oidc_issuer is None:
        return []
    from deltalakedb.serve.identity.oidc import OidcTokens

    return [OidcTokens(config, workers).prove]


def _guard(catalog: Catalog, provers: Sequence[Prove], *, iceberg: bool) -> Middleware:
    """The check of the caller, or of what stands in for it."""
    if iceberg:
        from deltalakedb.serve.iceberg.router import PREFIX, TOKENS_PATH, refuse_forbidden, refuse_unproven
    if not provers:
        return Middleware(NoBrowsers, actor=_actor_of(catalog), refuse=refuse_forbidden if iceberg else forbidden)
    per_second = catalog.config.serve_rate_limit
    limit = RateLimit(per_second) if per_second else None
    open_paths, refusals = [LIVE_PATH, READY_PATH], {}
    if iceberg:
        open_paths.append(TOKENS_PATH)
        refusals[f"{PREFIX}/"] = refuse_unproven
    return Middleware(
        Authenticate, provers=provers, refuse=refusal, open_paths=open_paths, refusals=refusals, limit=limit
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
