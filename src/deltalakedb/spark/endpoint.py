"""EndpointClient: the Python side of a bridged session calls its endpoint over HTTP, with the standard library."""

from __future__ import annotations

import http.client
import itertools
import json
import os
import ssl
import threading
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode, urlsplit

from deltalakedb import exceptions
from deltalakedb.exceptions import ConfigError, DeltaError, EndpointBusyError, EndpointError, redact
from deltalakedb.runtime import forks
from deltalakedb.runtime.backoff import Backoff

PREFIX = "/bridge/v1"
CONNECT_SECONDS = 5.0
ANSWER_SECONDS = 600.0
"""A commit may wait for locks, and writes all its tables, so it may take minutes."""
RETRY_SECONDS = 20.0
_RETRIES = Backoff(0.05, 1.0)


@dataclass(frozen=True, slots=True)
class Begun:
    """A transaction that was begun: `txn` is its id in paths, `txn_id` in the catalog."""

    txn: str
    txn_id: str
    timeout_seconds: float = 300.0
    """The transaction is aborted after this time without a sign of life."""


@dataclass(frozen=True, slots=True)
class Committed:
    """A transaction that was committed: the last version of each table, by name."""

    txn_id: str
    versions: dict[str, int]


@dataclass(frozen=True, slots=True)
class Named:
    """The path of a table for Spark. `managed`: through the bridge; otherwise Spark reads its own files."""

    name: str
    path: str
    managed: bool = True
    external: bool = False
    """A user owns its files: dropping it leaves them."""
    attached: bool = False
    """A Delta table existed at the location, and now has the name."""
    location: str = ""
    """Its location in the usual spelling; empty for a table that is not created yet."""


@dataclass(frozen=True, slots=True)
class NamespaceInfo:
    """A namespace with its properties, and when it was created and last changed."""

    namespace: str
    properties: dict[str, str]
    created_at_ms: int
    updated_at_ms: int


@dataclass(frozen=True, slots=True)
class LogFile:
    """A commit file of a table's log."""

    name: str
    size: int
    modified_ms: int

    @property
    def version(self) -> int:
        return int(self.name.partition(".")[0])


class EndpointClient:
    """Calls one endpoint. Threads may share it; each has a connection that is kept alive."""

    def __init__(
        self, url: str, token: str, ca: str | os.PathLike[str] | None = None, *, retry_seconds: float = RETRY_SECONDS
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigError(f"an endpoint is http://host:port or https://host:port, not {redact(url)!r}")
        self.url = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path.rstrip('/')}"
        self._host, self._port, self._base = parts.hostname, parts.port, parts.path.rstrip("/") + PREFIX
        self._tls = _tls(ca) if parts.scheme == "https" else None
        self._headers = {"Authorization": f"Bearer {token}"}
        self._retry_seconds = retry_seconds
        self._local = threading.local()

    def __repr__(self) -> str:
        return f"EndpointClient({self.url!r})"

    def __enter__(self) -> EndpointClient:
        return self

    def __exit__(self, *_trouble: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the calling thread's connection; other threads close theirs when they end."""
        connection: http.client.HTTPConnection | None = getattr(self._local, "connection", None)
        if connection is None:
            return
        self._local.connection = None
        if self._local.generation == forks.generation:
            connection.close()
        else:  # inherited by a fork: the parent still uses it
            forks.leave_to_parent([connection])

    # -- transactions

    def begin(
        self,
        message: str | None = None,
        lock: Sequence[str] | None = None,
        tables: Sequence[str] | None = None,
        token: str | None = None,
    ) -> Begun:
        """Begin a transaction: the heads of all tables are pinned. Without signs of life it is aborted.

        The same `token` again, while the transaction is open, returns it.
        """
        body = {"lock": list(lock or ()), "tables": None if tables is None else list(tables)}
        query = {"id": token or str(uuid.uuid4())} | ({"message": message} if message is not None else {})
        return Begun(**self._json("POST", "/txn", query, json.dumps(body).encode()))

    def commit(self, txn: str, app_versions: Mapping[str, tuple[str, int]] | None = None) -> Committed:
        """Commit. Repeating it is safe, and returns the outcome.

        `app_versions` records in each of these tables an application's id and version.
        """
        body = json.dumps({"app_versions": {name: list(pair) for name, pair in (app_versions or {}).items()}})
        return Committed(**self._json("POST", f"/txn/{txn}/commit", body=body.encode()))

    def abort(self, txn: str) -> bool:
        """Abort a transaction; False if it is committed already."""
        return bool(self._json("POST", f"/txn/{txn}/abort")["aborted"])

    def alive(self, txn: str) -> None:
        """Send a sign of life; GoneError if the transaction is over."""
        self._json("POST", f"/txn/{txn}/alive")

    def app_version(self, name: str, app_id: str, txn: str) -> int | None:
        """The version that an application recorded in a table, as a transaction sees it; None if there is none."""
        version: int | None = self._json("GET", "/app", {"name": name, "app_id": app_id, "txn": txn})["version"]
        return version

    # -- names

    def name(self, name: str, txn: str = "") -> Named:
        """The location of a table; TableNotFoundError if it does not exist."""
        return Named(**self._json("GET", "/name", {"name": name, "txn": txn}))

    def reserve(self, name: str, txn: str = "", location: str | None = None, attach: bool = False) -> Named:
        """Reserve the location of a new table; TableExistsError if the name is taken.

        With `attach` the Delta table at the location gets the name; its first write makes it managed.
        """
        query = {"name": name, "txn": txn} | ({"location": location} if location else {})
        return Named(**self._json("POST", "/name", query | ({"attach": "true"} if attach else {})))

    def drop(self, name: str, purge: bool = False) -> None:
        """Drop a table; UNDROP brings it back, unless the user owns its files or it is purged."""
        self._json("DELETE", "/name", {"name": name, "purge": str(purge).lower()}, is_repeatable=False)

    def undrop(self, name: str, as_: str | None = None) -> None:
        """Bring a dropped table back with its files and history, under its old name or a new one."""
        query = {"name": name} | ({"as": as_} if as_ else {})
        self._json("POST", "/undrop", query, is_repeatable=False)

    def rename(self, name: str, to: str) -> None:
        self._json("POST", "/rename", {"name": name, "to": to}, is_repeatable=False)

    def names(self, namespace: str) -> list[str]:
        """The full names of the tables directly in a namespace."""
        return list(self._json("GET", "/names", {"namespace": namespace}))

    def namespaces(self) -> list[str]:
        return list(self._json("GET", "/namespaces"))

    def namespace(self, namespace: str) -> NamespaceInfo:
        return NamespaceInfo(**self._json("GET", "/namespace", {"namespace": namespace}))

    def create_namespace(self, namespace: str, properties: Mapping[str, str] | None = None) -> None:
        """Create a namespace; an existing one keeps its properties."""
        body = json.dumps({"properties": dict(properties or {})}).encode()
        self._json("POST", "/namespace", {"namespace": namespace}, body)

    def set_namespace_properties(self, namespace: str, properties: Mapping[str, str | None]) -> None:
        """Set properties of a namespace; others stay, and None removes one."""
        body = json.dumps({"properties": dict(properties)}).encode()
        self._json("POST", "/namespace/properties", {"namespace": namespace}, body)

    def drop_namespace(self, namespace: str) -> None:
        self._json("DELETE", "/namespace", {"namespace": namespace}, is_repeatable=False)

    # -- the log, as the bridge's Java side reads it

    def log(self, path: str, txn: str = "", start: int = 0) -> list[LogFile]:
        """The commits of a table from a version on; empty if the table does not exist yet."""
        text = self._ask("GET", "/log", {"path": path, "txn": txn, "from": start}).decode()
        rows = (line.split("\t") for line in text.splitlines())
        return [LogFile(name, int(size), int(modified_ms)) for name, size, modified_ms in rows]

    def read_commit(self, path: str, version: int, txn: str = "") -> bytes:
        """The text of a commit."""
        return self._ask("GET", "/commit", {"path": path, "txn": txn, "version": version})

    def write_commit(
        self, path: str, version: int, lines: Iterable[str], txn: str = "", token: str | None = None
    ) -> int:
        """Commit lines as exactly this version; VersionTakenError if another writer was first."""
        query = {"path": path, "txn": txn, "version": version, "id": token or str(uuid.uuid4())}
        body = "".join(f"{line}\n" for line in lines).encode()
        return int(self._json("POST", "/commit", query, body)["version"])

    def checksum(self, path: str, version: int, txn: str = "") -> bytes:
        return self._ask("GET", "/crc", {"path": path, "txn": txn, "version": version})

    def touch(self, path: str, txn: str) -> str:
        """Record that a data file was opened under a transaction; returns the path of its table."""
        return self._ask("POST", "/read", {"path": path, "txn": txn}).decode()

    def catalog_id(self) -> str:
        """The id of the served catalog."""
        return str(self._json("GET", "/catalog")["id"])

    def health(self) -> dict[str, str]:
        return dict(self._json("GET", "/health"))

    # -- HTTP

    def _json(
        self,
        method: str,
        route: str,
        query: Mapping[str, Any] | None = None,
        body: bytes = b"",
        *,
        is_repeatable: bool = True,
    ) -> Any:
        data = self._ask(method, route, query or {}, body, is_repeatable=is_repeatable)
        try:
            return json.loads(data)
        except ValueError:
            raise EndpointError(f"what answers at {self.url} is no endpoint of deltalakedb; check the URL") from None

    def _ask(
        self, method: str, route: str, query: Mapping[str, Any], body: bytes = b"", *, is_repeatable: bool = True
    ) -> bytes:
        """Send a request, repeated while that is safe and time is left; raises every error answer."""
        target = self._base + route + (f"?{urlencode(query)}" if query else "")
        deadline = time.monotonic() + self._retry_seconds
        for attempt in itertools.count():
            try:
                status, data = self._send(method, target, body, is_repeatable)
                if status < 400:
                    return data
                problem = _problem(status, data, self.url)
                # A busy endpoint has not begun the request, so sending it again is always safe.
                if status != 503 or not (is_repeatable or isinstance(problem, EndpointBusyError)):
                    raise problem
                failure: DeltaError = problem
            except _NotSentError as error:
                failure = self._unreachable(error.reason)
            except (OSError, http.client.HTTPException) as error:
                failure = self._unreachable(error)
                if not is_repeatable:
                    raise EndpointError(f"{failure}; whether {method} {route} was done is not known") from error
            left_seconds = deadline - time.monotonic()
            if left_seconds <= 0:
                raise failure
            time.sleep(min(_RETRIES.seconds(attempt), left_seconds))
        raise AssertionError("the loop ends by an answer or an error")

    def _send(self, method: str, target: str, body: bytes, is_repeatable: bool) -> tuple[int, bytes]:
        """Send once. An idle connection may have been closed: a request that cannot be repeated gets a new one."""
        if not is_repeatable:
            self.close()
        connection = self._connection()
        try:
            connection.request(method, target, body, self._headers)
            answer = connection.getresponse()
            return answer.status, answer.read()
        except BaseException:
            self.close()
            raise

    def _connection(self) -> http.client.HTTPConnection:
        existing: http.client.HTTPConnection | None = getattr(self._local, "connection", None)
        if existing is not None and existing.sock is not None and self._local.generation == forks.generation:
            return existing
        self.close()
        if self._tls is not None:
            connection: http.client.HTTPConnection = http.client.HTTPSConnection(
                self._host, self._port, timeout=CONNECT_SECONDS, context=self._tls
            )
        else:
            connection = http.client.HTTPConnection(self._host, self._port, timeout=CONNECT_SECONDS)
        try:
            connection.connect()
        except OSError as error:
            if isinstance(error, ssl.SSLCertVerificationError):
                raise EndpointError(
                    f"the certificate of {self.url} is not trusted: {error.verify_message}; name the CA's file"
                ) from error
            raise _NotSentError(error) from error
        connection.sock.settimeout(ANSWER_SECONDS)
        self._local.connection, self._local.generation = connection, forks.generation
        return connection

    def _unreachable(self, reason: BaseException) -> EndpointError:
        return EndpointError(
            f"the endpoint {self.url} cannot be reached ({reason}); start it (`dl serve --bridge`) or check its address"
        )


class _NotSentError(Exception):
    """No connection could be made, so the request was not sent."""

    def __init__(self, reason: OSError) -> None:
        self.reason = reason
        super().__init__(str(reason))


def _tls(ca: str | os.PathLike[str] | None) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=None if ca is None else os.fspath(ca))
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"the CA file {ca} cannot be read: {error}") from error


def _problem(status: int, data: bytes, url: str) -> DeltaError:
    """The exception that an error answer names."""
    try:
        answer = json.loads(data)
        name, message = str(answer["error"]), str(answer["message"])
    except (ValueError, KeyError, TypeError):
        return EndpointError(f"{url} answered {status} and is no endpoint of deltalakedb; check the URL")
    if status == 401:
        return EndpointError(f"{url} does not accept the token: {message}")
    kind = getattr(exceptions, name, None) if name in exceptions.__all__ else None
    if not (isinstance(kind, type) and issubclass(kind, DeltaError)):
        return EndpointError(f"{url} answered {status} {name}: {message}")
    # Constructors differ, and some build the message from parts that we do not have; the message is complete.
    error = kind.__new__(kind)
    Exception.__init__(error, message)
    for field in ("table", "version", "path"):
        if issubclass(kind, exceptions.CommitFailedError):
            setattr(error, field, answer.get(field))
    return error
