"""The server: uvicorn in a thread of its own, for `dl serve` and for a Spark session's own endpoint."""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import secrets
import socket
import ssl
import threading
import time
import weakref
from types import TracebackType
from typing import TYPE_CHECKING, Any

from deltalakedb.catalog.catalog import Catalog, connect, locate_catalog
from deltalakedb.exceptions import ConfigError, EndpointError, MissingExtraError
from deltalakedb.serve.app import create_app
from deltalakedb.serve.workers import WAIT_SECONDS

try:
    import uvicorn

    from deltalakedb.serve.tls import CertifiedProtocol, Renewal, Tls
except ModuleNotFoundError:
    raise MissingExtraError("serving", "serve") from None

if TYPE_CHECKING:
    from starlette.applications import Starlette

    from deltalakedb.runtime.config import Config

logger = logging.getLogger(__name__)

LOOPBACK = "127.0.0.1"
START_SECONDS = 30.0
STOP_SECONDS = 30
"""How long running requests may take when the endpoint is stopped; a commit in SQL is finished even then."""
KEEP_ALIVE_SECONDS = 75
BACKLOG = 2048
MAX_HEADER_BYTES = 64 * 1024
"""How large the first line and the headers of a request may be together."""


class Endpoint:
    """A catalog served over HTTP until it is closed. It is ready when the constructor returns."""

    ends_transactions = False
    """Whether open transactions are aborted when it is closed; otherwise another endpoint may go on with them."""

    def __init__(
        self,
        catalog: str | os.PathLike[str] | Catalog | None,
        *,
        token: str | None,
        host: str = LOOPBACK,
        port: int = 0,
        tls: Tls | None = None,
        bridge: bool = True,
        iceberg: bool = False,
        wait_seconds: float = WAIT_SECONDS,
        shares_port: bool = False,
        **config: Any,
    ) -> None:
        self._owns_catalog = not isinstance(catalog, Catalog)
        self.token = token or ""  # empty: clients need none
        self.catalog = (
            catalog if isinstance(catalog, Catalog) else _open(catalog, config, "bridge" if bridge else "iceberg")
        )
        self._pid = os.getpid()
        self._renewal: Renewal | None = None
        self._sockets: list[socket.socket] = []
        """The listening socket, which uvicorn closes, and a second handle of it."""
        try:
            self._server = _configure(
                create_app(
                    self.catalog,
                    token=token,
                    bridge=bridge,
                    iceberg=iceberg,
                    wait_seconds=wait_seconds,
                    ends_transactions=self.ends_transactions,
                ),
                tls,
                self.catalog.config,
            )
            if tls is not None and self._server.config.ssl is not None:
                self._renewal = Renewal(tls, self._server.config.ssl)
            self._sockets.append(_listen(host, port, shared=shares_port))
            self._sockets.append(self._sockets[0].dup())
            self.host, self.port = self._sockets[0].getsockname()[:2]
            self.url = url_of(host, self.port, is_tls=tls is not None)
            self._thread = threading.Thread(target=self._serve, name="deltalakedb-endpoint", daemon=True)
            self._failure: BaseException | None = None
            self._thread.start()
            self._wait_until_ready()
        except BaseException:
            self._release()
            raise
        _live.add(self)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.url!r})"

    @property
    def is_open(self) -> bool:
        """Whether it answers, in this process."""
        return self._pid == os.getpid() and self._thread.is_alive()

    def check(self) -> None:
        """EndpointError if the server has ended by itself."""
        if not self._thread.is_alive():
            raise EndpointError(f"the endpoint at {self.url} ended: {self._failure or 'see the log'}")

    def close(self) -> None:
        """Accept no more requests, finish running ones, abort open transactions. Does nothing in a forked child."""
        if self._pid != os.getpid():
            return
        self._server.should_exit = True
        self._thread.join(STOP_SECONDS + START_SECONDS)
        self._release()

    def __enter__(self) -> Endpoint:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _serve(self) -> None:
        try:
            self._server.run(sockets=self._sockets[:1])
        except BaseException as error:
            self._failure = error
            logger.exception("the endpoint ended")

    def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + START_SECONDS
        while not self._server.started:
            if not self._thread.is_alive() or time.monotonic() > deadline:
                raise EndpointError(
                    f"the endpoint at {self.url} did not start: {self._failure or 'see the log'}"
                ) from self._failure
            time.sleep(0.002)

    def _release(self) -> None:
        _live.discard(self)
        if self._renewal is not None:
            self._renewal.stop()
        if self._sockets:
            # A child that was forked a moment ago may still have copies of the handles.
            with contextlib.suppress(OSError):
                self._sockets[-1].shutdown(socket.SHUT_RDWR)
        self._close_sockets()
        if self._owns_catalog:
            self.catalog.close()

    def _leave_to_parent(self) -> None:
        """In a forked child: close the socket, because nothing here answers and clients would wait."""
        self._close_sockets()

    def _close_sockets(self) -> None:
        for handle in self._sockets:
            handle.close()


class LocalEndpoint(Endpoint):
    """The endpoint of this process alone: on the loopback interface, at a free port, with a random token."""

    ends_transactions = True

    def __init__(self, catalog: str | os.PathLike[str] | Catalog | None = None, **config: Any) -> None:
        super().__init__(catalog, token=secrets.token_urlsafe(32), **config)

    @classmethod
    def of(cls, catalog: str | os.PathLike[str] | Catalog | None = None, **config: Any) -> LocalEndpoint:
        """The process's one endpoint of a catalog, started if there is none, or none any more (after a fork)."""
        key: object = id(catalog)  # unique while the endpoint holds the catalog
        if not isinstance(catalog, Catalog):
            uri, settings = locate_catalog(catalog, **config)
            key = (str(uri), settings)
        with _lock:
            endpoint = _shared.get(key)
            if endpoint is None or not endpoint.is_open:
                endpoint = _shared[key] = cls(catalog, **config)
            return endpoint


_live: weakref.WeakSet[Endpoint] = weakref.WeakSet()
_shared: dict[object, LocalEndpoint] = {}
_lock = threading.Lock()


def _after_fork() -> None:
    global _lock
    _lock = threading.Lock()
    _shared.clear()
    for endpoint in list(_live):
        endpoint._leave_to_parent()
    _live.clear()


def _at_exit() -> None:
    """Abort transactions of a session that ends at once, not after their time-out."""
    for endpoint in list(_shared.values()):
        endpoint.close()
    _shared.clear()


os.register_at_fork(after_in_child=_after_fork)
atexit.register(_at_exit)


def _open(catalog: str | os.PathLike[str] | None, config: dict[str, Any], origin: str) -> Catalog:
    """Open a catalog with at least one connection per thread."""
    _, settings = locate_catalog(catalog, **config)
    connections = max(settings.sql_max_connections, settings.serve_threads)
    return connect(catalog, **{"origin": origin, **config, "sql_max_connections": connections})


def _configure(app: Starlette, tls: Tls | None, settings: Config) -> uvicorn.Server:
    config = uvicorn.Config(
        app,
        log_config=None,
        log_level="warning",
        access_log=False,  # ours never has the query, let alone the token
        server_header=False,
        lifespan="on",
        backlog=BACKLOG,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=STOP_SECONDS,
        limit_concurrency=settings.serve_max_connections,
        http=CertifiedProtocol,  # of h11, which bounds the headers
        h11_max_incomplete_event_size=MAX_HEADER_BYTES,
        # By default everybody on this machine could claim any address.
        proxy_headers=bool(settings.serve_trusted_proxies),
        forwarded_allow_ips=list(settings.serve_trusted_proxies or ()),
        ssl_certfile=tls.certificate if tls else None,
        ssl_keyfile=tls.key if tls else None,
        ssl_ca_certs=tls.client_ca if tls else None,
        # A client without a certificate may still have a token.
        ssl_cert_reqs=ssl.CERT_OPTIONAL if tls and tls.client_ca else ssl.CERT_NONE,
    )
    try:
        config.load()
    except (OSError, ssl.SSLError) as error:
        assert tls is not None
        authority = f" or the clients' CA {tls.client_ca}" if tls.client_ca else ""
        raise ConfigError(
            f"the certificate {tls.certificate} with the key {tls.key or tls.certificate}{authority} cannot be used: "
            f"{error}"
        ) from error
    return uvicorn.Server(config)


def bind(host: str, port: int, *, shared: bool = False) -> socket.socket:
    """A socket at an address, which does not listen yet; `shared`: with other processes that ask for it, too."""
    bound = None
    try:
        family, kind, number, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        bound = socket.socket(family, kind, number)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shared:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        bound.bind(address)
    except OSError as error:
        if bound is not None:
            bound.close()
        raise EndpointError(
            f"cannot listen at {host}:{port}: {error.strerror or error}; choose another --host or --port"
        ) from error
    return bound


def _listen(host: str, port: int, *, shared: bool) -> socket.socket:
    listener = bind(host, port, shared=shared)
    try:
        listener.listen(BACKLOG)
    except OSError as error:  # a port that is bound by one process may be listened at by another
        listener.close()
        raise EndpointError(f"cannot listen at {host}:{port}: {error.strerror or error}") from error
    return listener


def url_of(host: str, port: int, *, is_tls: bool) -> str:
    """The URL at which clients reach an address."""
    return f"{'https' if is_tls else 'http'}://{_shown_host(host)}:{port}"


def _shown_host(host: str) -> str:
    """The host for the URL; an address for all interfaces is replaced by the host name."""
    if host in ("0.0.0.0", "::", ""):
        return socket.gethostname()
    return f"[{host}]" if ":" in host else host
