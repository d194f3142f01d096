"""The routes of the bridge: parse parameters, call BridgedLog, Names and OpenTransactions, answer text and JSON."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

import deltalakedb
from deltalakedb import telemetry
from deltalakedb.exceptions import (
    ConfigError,
    DeltaError,
    StoreClosedError,
    TableExistsError,
    TableNotFoundError,
    VersionNotFoundError,
    VersionTakenError,
    redact,
)
from deltalakedb.files.log_folder import commit_name
from deltalakedb.log.predicates.atoms import ALWAYS
from deltalakedb.rights import Right
from deltalakedb.serve.bodies import body_chunks, bytes_answer, lines_of, read_body
from deltalakedb.serve.bridge.log import BridgedLog
from deltalakedb.serve.bridge.names import Names
from deltalakedb.serve.bridge.places import Place, bridge_uri
from deltalakedb.serve.bridge.plans import (
    ARROW_STREAM,
    ScanRequest,
    aggregate,
    open_version,
    plan_scan,
    state_of,
    to_arrow_stream,
)
from deltalakedb.serve.bridge.transactions import OpenTransactions
from deltalakedb.serve.problems import problem, status_of
from deltalakedb.serve.rights import Door, right_of, secured_route
from deltalakedb.serve.workers import Workers
from deltalakedb.transactions.transaction import CatalogTransaction

if TYPE_CHECKING:
    from deltalakedb.catalog.catalog import Catalog
    from deltalakedb.transactions.draft import Snapshot

logger = logging.getLogger(__name__)
T = TypeVar("T")

TICK_SECONDS = 5.0
MAX_JSON = 1024 * 1024
MAX_REASON = 100


class BridgeRouter:
    """The requests of delta-spark's Java side and of EndpointClient; one per application."""

    prefix = "/bridge/v1"

    def __init__(self, catalog: Catalog, workers: Workers, *, ends_transactions: bool = False) -> None:
        self._catalog = catalog
        self._workers = workers
        self._log = BridgedLog(catalog)
        self._names = Names(catalog, self._log)
        self._door = Door(catalog.rights)
        self._open = OpenTransactions(catalog, self._log, ends_with_endpoint=ends_transactions)
        self._stopped = threading.Event()
        self._sweeper = threading.Thread(target=self._sweep, name="deltalakedb-sweep", daemon=True)

    def routes(self) -> list[Route]:
        return [
            secured_route("/log", self._list_log, "GET", Right.READ),
            secured_route("/commit", self._read_commit, "GET", Right.READ),
            secured_route("/commit", self._write_commit, "POST", Right.WRITE),
            secured_route("/crc", self._read_checksum, "GET", Right.READ),
            secured_route("/plan", self._plan, "POST", Right.READ),
            secured_route("/aggregates", self._aggregate, "POST", Right.READ),
            secured_route("/fallback", self._fall_back, "POST", None),
            secured_route("/state", self._read_state, "GET", Right.READ),
            secured_route("/read", self._touch, "POST", Right.READ),
            secured_route("/name", self._find_name, "GET", Right.READ),
            secured_route("/name", self._reserve_name, "POST", Right.CREATE),
            secured_route("/name", self._drop_name, "DELETE", Right.MANAGE),
            secured_route("/rename", self._rename, "POST", Right.MANAGE),
            secured_route("/undrop", self._undrop, "POST", Right.MANAGE),
            secured_route("/names", self._list_names, "GET", Right.DISCOVER),
            secured_route("/namespaces", self._list_namespaces, "GET", Right.DISCOVER),
            secured_route("/namespace", self._find_namespace, "GET", Right.READ),
            secured_route("/namespace", self._create_namespace, "POST", Right.CREATE),
            secured_route("/namespace/properties", self._set_namespace_properties, "POST", Right.MANAGE),
            secured_route("/namespace", self._drop_namespace, "DELETE", Right.MANAGE),
            secured_route("/app", self._app_version, "GET", Right.READ),
            secured_route("/txn", self._begin, "POST", Right.WRITE),
            secured_route("/txn/{txn}/commit", self._commit, "POST", None),
            secured_route("/txn/{txn}/abort", self._abort, "POST", None),
            secured_route("/txn/{txn}/alive", self._alive, "POST", None),
            secured_route("/catalog", self._identify, "GET", None),
            secured_route("/health", self._health, "GET", None),
        ]

    def start(self) -> None:
        self._sweeper.start()

    def close(self) -> None:
        """Abort the open transactions, or leave them to others; requests have ended by now."""
        self._stopped.set()
        self._sweeper.join(TICK_SECONDS)
        self._open.close()

    def _sweep(self) -> None:
        # Never longer than the time-out itself, so that a short time-out is kept.
        tick = min(TICK_SECONDS, max(0.05, self._catalog.config.serve_txn_timeout / 4))
        while not self._stopped.wait(tick):
            try:
                self._open.sweep()
            except StoreClosedError:  # by whoever has opened the catalog for the endpoint
                return
            except Exception as error:  # the next try may succeed: a database may be away for a while
                logger.warning("cannot look for silent transactions: %s", redact(str(error)))

    async def _run(self, request: Request, work: Callable[[], T]) -> T:
        """Run `work` on a worker thread."""

        def traced() -> T:
            span = telemetry.span("deltalakedb.serve", method=request.method, route=request.url.path)
            with span, self._door.admitted(right_of(request)):
                return work()

        return await self._workers.run(traced)

    async def _under(self, request: Request, work: Callable[[CatalogTransaction | None], T]) -> T:
        """Run `work` under the transaction that the request names, if any; its calls run one after the other."""
        txn = _optional(request, "txn")
        if not txn:
            return await self._run(request, lambda: work(None))
        async with self._open.turn(txn):
            return await self._run(request, lambda: self._open.call(txn, work))

    def _place(self, path: str, tx: CatalogTransaction | None, txn: str) -> Place:
        place = self._log.resolve(path, tx)
        if place is None:
            raise TableNotFoundError(f"{redact(path)} is not a place of this catalog")
        if txn:
            self._open.get(txn).locations.add(place.location)
        return place

    # -- the log of a table

    async def _list_log(self, request: Request) -> Response:
        path, start, txn = _required(request, "path"), _number(request, "from", 0), _optional(request, "txn")

        listing = await self._under(request, lambda tx: self._log.entries(self._place(path, tx, txn), tx, start))
        text = "".join(
            f"{commit_name(entry.version)}\t{entry.size}\t{entry.modified_ms}\n" for entry in listing.entries
        )
        return PlainTextResponse(text, headers={"X-Head": str(listing.head), "X-Pinned": str(listing.pinned)})

    async def _read_commit(self, request: Request) -> Response:
        path, version, txn = _required(request, "path"), _number(request, "version"), _optional(request, "txn")
        rendered = await self._under(request, lambda tx: self._log.read(self._place(path, tx, txn), tx, version))
        if rendered is None:
            raise VersionNotFoundError(f"{redact(path)} has no commit {version}")
        return bytes_answer(rendered.data, {"X-Modified": str(rendered.modified_ms)}, "application/x-ndjson")

    async def _read_checksum(self, request: Request) -> Response:
        path, version, txn = _required(request, "path"), _number(request, "version"), _optional(request, "txn")
        data = await self._under(request, lambda tx: self._log.checksum(self._place(path, tx, txn), tx, version))
        if data is None:
            raise VersionNotFoundError(f"{redact(path)} has no checksum of version {version}")
        return bytes_answer(data, {}, "application/json")

    async def _plan(self, request: Request) -> Response:
        scan = ScanRequest.of(await _json_body(request))

        def work(tx: CatalogTransaction | None, place: Place, snapshot: Snapshot) -> bytes:
            plan = plan_scan(self._catalog, place, snapshot, scan)
            if tx is not None and scan.is_read:
                self._log.note_plan(tx, place, snapshot.version, scan.filters, plan.predicate, plan.paths())
            telemetry.spark_scan("database")
            return to_arrow_stream(plan.files)

        return bytes_answer(await self._of_version(request, work), {}, ARROW_STREAM)

    async def _fall_back(self, request: Request) -> Response:
        """Delta has planned a scan itself, for a reason that the database does not see."""
        telemetry.spark_scan("delta", _required(request, "reason")[:MAX_REASON])
        return PlainTextResponse("")

    async def _aggregate(self, request: Request) -> Response:
        body = await _json_body(request)

        def work(tx: CatalogTransaction | None, place: Place, snapshot: Snapshot) -> dict[str, Any]:
            if tx is not None:
                self._log.note_plan(tx, place, snapshot.version, (), ALWAYS)
            telemetry.spark_scan("database")
            return aggregate(self._catalog, place, snapshot, body)

        return JSONResponse(await self._of_version(request, work))

    async def _read_state(self, request: Request) -> Response:
        return JSONResponse(await self._of_version(request, lambda _tx, _place, snapshot: state_of(snapshot)))

    async def _of_version(self, request: Request, work: Callable[[CatalogTransaction | None, Place, Snapshot], T]) -> T:
        """Run `work` on the version that the request names."""
        path, version, txn = _required(request, "path"), _number(request, "version"), _optional(request, "txn")
        metadata_id = _optional(request, "metadata_id")

        def opened(tx: CatalogTransaction | None) -> T:
            place = self._place(path, tx, txn)
            own_texts = [text.data for _, text in self._log.staged_at(tx, place.location)]
            return work(tx, place, open_version(self._catalog, place, tx, version, metadata_id, own_texts))

        return await self._under(request, opened)

    async def _write_commit(self, request: Request) -> Response:
        path, version, txn = _required(request, "path"), _number(request, "version"), _optional(request, "txn")
        token = _required(request, "id")
        chunks = await body_chunks(request, self._catalog.config.serve_max_commit_bytes)

        def work(tx: CatalogTransaction | None) -> int:
            place = self._place(path, tx, txn)
            try:
                return self._log.commit(place, tx, version, lines_of(chunks), token)
            except TableExistsError as error:
                now = self._log.resolve(path, tx)
                if version == 0 and now is not None and now.table is not None:
                    raise VersionTakenError(str(error), table=now.table.full_name, version=0) from error
                raise

        try:
            return JSONResponse({"version": await self._under(request, work)})
        except DeltaError as error:
            # Spark takes a 409 for "another writer was first, read on": nothing else may have that status.
            if status_of(error) == 409 and not isinstance(error, VersionTakenError):
                return problem(422, type(error).__name__, str(error))
            raise

    async def _touch(self, request: Request) -> Response:
        path, txn = _required(request, "path"), _required(request, "txn")

        def work(tx: CatalogTransaction | None) -> str | None:
            assert tx is not None
            return self._log.touch(path, tx)

        root = await self._under(request, work)
        if root is None:
            raise TableNotFoundError(f"{redact(path)} is a file of no table of this catalog (transaction {txn})")
        return PlainTextResponse(root)

    # -- names

    async def _find_name(self, request: Request) -> Response:
        name, txn, location = _required(request, "name"), _optional(request, "txn"), _optional(request, "location")
        return JSONResponse(await self._under(request, lambda tx: self._names.resolve(name, tx, txn, location or None)))

    async def _reserve_name(self, request: Request) -> Response:
        name, txn, at_location = _required(request, "name"), _optional(request, "txn"), _optional(request, "location")
        attach = _flag(request, "attach")
        reserve = self._names.reserve
        return JSONResponse(
            await self._under(request, lambda tx: reserve(name, tx, txn, at_location or None, attach=attach))
        )

    async def _drop_name(self, request: Request) -> Response:
        name, purge, attached = _required(request, "name"), _flag(request, "purge"), _flag(request, "attached")
        return JSONResponse(
            await self._run(request, lambda: self._names.drop(name, purge=purge, attached_only=attached))
        )

    async def _undrop(self, request: Request) -> Response:
        name, new_name = _required(request, "name"), _optional(request, "as")
        return JSONResponse(await self._run(request, lambda: self._names.undrop(name, new_name or None)))

    async def _rename(self, request: Request) -> Response:
        name, to = _required(request, "name"), _required(request, "to")
        return JSONResponse(await self._run(request, lambda: self._names.rename(name, to)))

    async def _list_names(self, request: Request) -> Response:
        namespace = _required(request, "namespace")
        return JSONResponse(await self._run(request, lambda: self._names.tables(namespace)))

    async def _list_namespaces(self, request: Request) -> Response:
        return JSONResponse(await self._run(request, self._names.namespaces))

    async def _find_namespace(self, request: Request) -> Response:
        namespace = _required(request, "namespace")
        return JSONResponse(await self._run(request, lambda: self._names.namespace(namespace)))

    async def _create_namespace(self, request: Request) -> Response:
        namespace, key_values = _required(request, "namespace"), _properties(await _json_body(request))
        return JSONResponse(await self._run(request, lambda: self._names.create_namespace(namespace, key_values)))

    async def _set_namespace_properties(self, request: Request) -> Response:
        namespace, key_values = _required(request, "namespace"), _properties(await _json_body(request))
        return JSONResponse(
            await self._run(request, lambda: self._names.set_namespace_properties(namespace, key_values))
        )

    async def _drop_namespace(self, request: Request) -> Response:
        namespace, cascade = _required(request, "namespace"), _flag(request, "cascade")
        drop = self._names.drop_namespace
        return JSONResponse(await self._run(request, lambda: drop(namespace, cascade=cascade)))

    # -- transactions

    async def _begin(self, request: Request) -> Response:
        body = await _json_body(request)
        lock, tables = _texts(body, "lock") or [], _texts(body, "tables")
        message = _optional(request, "message") or None
        sent = _optional(request, "id")
        begun = await self._run(request, lambda: self._open.begin(message, lock, tables, sent))
        silence = self._catalog.config.serve_txn_timeout
        return JSONResponse({"txn": begun.txn, "txn_id": begun.tx.txn_id, "timeout_seconds": silence})

    async def _commit(self, request: Request) -> Response:
        txn, body = str(request.path_params["txn"]), await _json_body(request)
        apps = _app_versions(body)

        def finish(tx: CatalogTransaction) -> None:
            for table, (app_id, version) in apps.items():
                tx.set_app_version(table, app_id, version)

        ended = await self._in_turn(request, txn, lambda: self._open.commit(txn, finish))
        return JSONResponse({"txn_id": ended.txn_id, "versions": ended.versions})

    async def _abort(self, request: Request) -> Response:
        txn = str(request.path_params["txn"])
        return JSONResponse({"aborted": await self._in_turn(request, txn, lambda: self._open.abort(txn))})

    async def _in_turn(self, request: Request, txn: str, work: Callable[[], T]) -> T:
        """Run `work` after the running calls of the transaction."""
        async with self._open.turn(txn):
            return await self._run(request, work)

    async def _alive(self, request: Request) -> Response:
        txn = str(request.path_params["txn"])
        await self._run(request, lambda: self._open.alive(txn))
        return JSONResponse({"alive": True})

    async def _app_version(self, request: Request) -> Response:
        name, app_id = _required(request, "name"), _required(request, "app_id")
        _required(request, "txn")

        def work(tx: CatalogTransaction | None) -> int | None:
            assert tx is not None
            return self._log.app_version(tx, name, app_id)

        return JSONResponse({"version": await self._under(request, work)})

    async def _identify(self, request: Request) -> Response:
        return JSONResponse(await self._run(request, self._names.catalog))

    async def _health(self, _request: Request) -> Response:
        warehouse = self._catalog.config.warehouse
        return JSONResponse(
            {
                "catalog": str(self._catalog.uri),
                "version": deltalakedb.__version__,
                "warehouse": bridge_uri(warehouse) if warehouse else "",
            }
        )


# -- parameters


def _optional(request: Request, key: str) -> str:
    return request.query_params.get(key, "")


def _required(request: Request, key: str) -> str:
    value = request.query_params.get(key, "")
    if not value:
        raise ConfigError(f"{request.method} {request.url.path} needs the parameter {key!r}")
    return value


def _number(request: Request, key: str, default: int | None = None) -> int:
    text = _required(request, key) if default is None else request.query_params.get(key, "") or str(default)
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        raise ConfigError(f"the parameter {key!r} must be a version, not {text[:80]!r}")
    return int(text)


def _flag(request: Request, key: str) -> bool:
    text = request.query_params.get(key, "false").lower()
    if text not in ("true", "false"):
        raise ConfigError(f"the parameter {key!r} must be true or false, not {text[:80]!r}")
    return text == "true"


async def _json_body(request: Request) -> Mapping[str, Any]:
    """The request's JSON object; an empty one without a body."""
    text = await read_body(request, MAX_JSON)
    if text is None:
        raise ConfigError(f"the body of {request.method} {request.url.path} has more than {MAX_JSON} bytes")
    try:
        value = json.loads(text) if text.strip() else {}
        if b"\\u" in text:
            json.dumps(value, ensure_ascii=False).encode()  # half of a surrogate pair is no text
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise ConfigError(f"the body of {request.method} {request.url.path} must be a JSON object")
    return value


def _texts(asked: Mapping[str, Any], key: str) -> list[str] | None:
    value = asked.get(key)
    if value is not None and not (isinstance(value, list) and all(isinstance(item, str) for item in value)):
        raise ConfigError(f"{key!r} must be a list of table names")
    return value


def _properties(asked: Mapping[str, Any]) -> dict[str, str | None]:
    value = asked.get("properties") or {}
    if not (isinstance(value, dict) and all(item is None or isinstance(item, str) for item in value.values())):
        raise ConfigError('"properties" must be {"key": "value", ...}, with null for one that is to go')
    return value


def _app_versions(asked: Mapping[str, Any]) -> dict[str, tuple[str, int]]:
    value = asked.get("app_versions") or {}
    versions: dict[str, tuple[str, int]] = {}
    for table, pair in value.items() if isinstance(value, dict) else [("app_versions", value)]:
        match pair:
            case [str(app_id), int(version)]:
                versions[str(table)] = (app_id, version)
            case _:
                raise ConfigError('"app_versions" must be {"ns.table": ["app txn", version], ...}')
    return versions
