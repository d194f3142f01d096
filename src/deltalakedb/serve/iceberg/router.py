"""The requests of Iceberg clients: finds the endpoint, reads the body, answers on a worker thread, in JSON."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from typing import TypeVar

import orjson
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Mount
from starlette.types import Receive, Scope, Send

from deltalakedb import telemetry
from deltalakedb.catalog.catalog import Catalog
from deltalakedb.exceptions import DeltaError, redact
from deltalakedb.iceberg.catalog import IcebergCatalog
from deltalakedb.iceberg.delta.delta_plan import DeltaPlans
from deltalakedb.iceberg.planning.service import PlanService
from deltalakedb.serve.bodies import read_body
from deltalakedb.serve.iceberg.call import Call, Reply, parse_body
from deltalakedb.serve.iceberg.configuration import Configuration
from deltalakedb.serve.iceberg.endpoints import Endpoint, Match, Routes
from deltalakedb.serve.iceberg.errors import ErrorAnswer, Kind, Refusal, answer_of
from deltalakedb.serve.iceberg.idempotency import KeyedCall, Replays
from deltalakedb.serve.iceberg.loading import TableReplies, view_reply
from deltalakedb.serve.iceberg.namespaces import NamespaceEndpoints
from deltalakedb.serve.iceberg.plans import PlanEndpoints
from deltalakedb.serve.iceberg.storage_settings import StorageSettings
from deltalakedb.serve.iceberg.tables import TableEndpoints
from deltalakedb.serve.iceberg.tokens import TokenEndpoint
from deltalakedb.serve.iceberg.views import ViewEndpoints
from deltalakedb.serve.rights import Door
from deltalakedb.serve.workers import Workers
from deltalakedb.store.names import TableName

logger = logging.getLogger(__name__)
T = TypeVar("T")

PREFIX = "/iceberg"
TOKENS_PATH = f"{PREFIX}/v1/oauth/tokens"
MAX_BODY_BYTES = 32 * 1024 * 1024
MAX_FORM_BYTES = 64 * 1024
SWEEP_SECONDS = 60.0
"""How often expired idempotency keys are deleted."""
WAIT_SECONDS = 15.0
"""How long a repeat waits for the first try of its request, before it is told to come again."""


class IcebergRouter:
    """The Iceberg REST catalog; one per application. `tokens` are what clients get at the token endpoint."""

    prefix = PREFIX

    def __init__(self, catalog: Catalog, workers: Workers, tokens: TokenEndpoint) -> None:
        self._workers = workers
        self._door = Door(catalog.rights)
        self._tokens = tokens
        self._service = IcebergCatalog(catalog)
        self._tables = TableReplies(StorageSettings())
        self._replays = Replays(catalog.store, self._load)
        endpoints = [
            *NamespaceEndpoints(catalog).endpoints(),
            *TableEndpoints(catalog, self._service, self._tables).endpoints(),
            *PlanEndpoints(self._service, PlanService(catalog), DeltaPlans(catalog)).endpoints(),
            *ViewEndpoints(catalog, self._service).endpoints(),
        ]
        self._configuration = Configuration(catalog, [str(endpoint) for endpoint in endpoints])
        self._routes = Routes([Endpoint("GET", "/v1/config", self._configuration.read, right=None), *endpoints])
        self._stopped = threading.Event()
        self._sweeper = threading.Thread(target=self._sweep, name="deltalakedb-iceberg-sweep", daemon=True)

    def routes(self) -> list[BaseRoute]:
        return [Mount("/", app=self._serve)]

    def start(self) -> None:
        self._sweeper.start()

    def close(self) -> None:
        self._stopped.set()
        self._sweeper.join(SWEEP_SECONDS)

    def _sweep(self) -> None:
        while not self._stopped.wait(SWEEP_SECONDS):
            try:
                self._replays.sweep()
            except Exception as error:  # the next try may succeed: a database may be away for a while
                logger.warning("cannot delete expired idempotency keys: %s", redact(str(error)))

    # -- one request

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        raw_path = scope.get("raw_path", scope["path"].encode()).partition(b"?")[0]
        if scope["path"] == TOKENS_PATH and request.method == "POST":
            answer = await self._grant_token(request)
        else:
            answer = await self._answer(request, raw_path.removeprefix(PREFIX.encode()))
        await answer(scope, receive, send)

    async def _grant_token(self, request: Request) -> Response:
        body = await read_body(request, MAX_FORM_BYTES)
        try:
            return await self._tokens.grant(request.headers, body or b"")
        except DeltaError as error:
            return _to_response(_refused(answer_of(error, "other")))

    async def _answer(self, request: Request, raw_path: bytes) -> Response:
        kind: Kind = "other"
        try:
            match = self._routes.find(request.method, raw_path)
            kind = match.endpoint.kind
            self._configuration.check_warehouse(match.prefix)
            return _to_response(await self._reply(request, match, raw_path))
        except ClientDisconnect:
            raise
        except Exception as error:  # clients parse every answer, so a bug is one in their form, too
            return _to_response(_refused(answer_of(error, kind)))

    async def _reply(self, request: Request, match: Match, raw_path: bytes) -> Reply:
        endpoint = match.endpoint
        data = await read_body(request, MAX_BODY_BYTES) if request.method == "POST" else b""
        if data is None:
            raise Refusal(413, "RequestTooLargeException", f"the body has more than {MAX_BODY_BYTES} bytes")
        call = Call(match.values, dict(request.query_params.items()), dict(request.headers), parse_body(data))
        keyed = KeyedCall.of(call, f"{request.method} {raw_path.decode()}", data) if endpoint.changes else None
        if keyed is None:
            return await self._run(request, match, lambda: self._handle(endpoint, call))
        deadline = asyncio.get_running_loop().time() + WAIT_SECONDS
        pause = 0.02
        while True:
            reply = await self._run(request, match, lambda: self._replay(keyed, call, endpoint))
            if reply is not None:
                return reply
            if asyncio.get_running_loop().time() > deadline:
                raise Refusal(
                    503,
                    "ServiceUnavailableException",
                    "the first try of this request is still running; repeat it later with the same Idempotency-Key",
                )
            await asyncio.sleep(pause)
            pause = min(pause * 2, 1.0)

    def _replay(self, keyed: KeyedCall, call: Call, endpoint: Endpoint) -> Reply | None:
        with self._door.admitted(endpoint.right):  # also for a repeat, which loads the table that was changed
            return self._replays.run(
                keyed, call, lambda it: self._handle(endpoint, it), is_commit=endpoint.is_commit, noun=endpoint.kind
            )

    def _handle(self, endpoint: Endpoint, call: Call) -> Reply:
        """Run an endpoint with the rights of the caller; an error becomes its answer."""
        try:
            with self._door.admitted(endpoint.right):
                return endpoint.answer(call)
        except Exception as error:  # kept for repeats of the request, like any other answer
            return _refused(answer_of(error, endpoint.kind))

    def _load(self, call: Call, name: TableName, noun: str) -> Reply:
        """The present state of a table or view, for the repeat of a request that changed it."""
        if noun == "view":
            return view_reply(self._service.load_view(name))
        return self._tables.loaded(call, self._service.load_table(name))

    async def _run(self, request: Request, match: Match, work: Callable[[], T]) -> T:
        def traced() -> T:
            with telemetry.span("deltalakedb.serve", method=request.method, route=PREFIX + match.endpoint.path):
                return work()

        return await self._workers.run(traced)


def refuse_forbidden(message: str) -> Response:
    """The answer to a web page, if no token is needed."""
    return _to_response(_refused(ErrorAnswer(403, "NotAuthorizedException", message)))


def refuse_unproven(why: BaseException | str) -> Response:
    """The answer to a request whose caller is not proven, or could not be looked up."""
    if isinstance(why, BaseException):
        return _to_response(_refused(answer_of(why, "other")))
    return _to_response(_refused(ErrorAnswer(401, "NotAuthorizedException", why)))


def _refused(answer: ErrorAnswer) -> Reply:
    return Reply(answer.status, answer.body, answer.headers)


def _to_response(reply: Reply) -> Response:
    if reply.body is None:
        return Response(status_code=reply.status, headers=dict(reply.headers))
    # Keys of other types than text cannot come from JSON, and big integers are refused when they come in.
    return Response(orjson.dumps(reply.body), reply.status, dict(reply.headers), "application/json")
