"""EndpointClient: what it does when the endpoint is away, busy, somebody else, or not what it seems."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import deltalakedb
from deltalakedb import exceptions
from deltalakedb.exceptions import (
    AppendOnlyError,
    CommitFailedError,
    ConfigError,
    DeltaError,
    EndpointBusyError,
    EndpointError,
    LogGapError,
    MissingExtraError,
    MissingFileError,
    StoreError,
    TableExistsError,
    UnsupportedFeatureError,
    UnsupportedWriteError,
)
from deltalakedb.serve import Endpoint, LocalEndpoint
from deltalakedb.serve.problems import problem, status_of
from deltalakedb.spark.endpoint import EndpointClient, _problem

TOKEN = "a-token-of-the-tests"


@pytest.fixture
def catalog_uri(tmp_path: Path) -> str:
    """What is tested here does not depend on the engine."""
    return str(tmp_path / "catalog.db")


@contextmanager
def answering(*answers: bytes) -> Iterator[tuple[str, list[bytes]]]:
    """A server that answers each connection with the next of these bytes and closes it; and what it was sent."""
    asked: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            for answer in answers:
                connection, _ = listener.accept()
                with connection:
                    asked.append(connection.recv(65536))
                    connection.sendall(answer)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}", asked
    thread.join(5)


def _answer(status: str, body: bytes) -> bytes:
    return b"HTTP/1.1 %s\r\nContent-Length: %d\r\n\r\n%s" % (status.encode(), len(body), body)


BUSY = _answer("503 Busy", b'{"error": "EndpointBusyError", "message": "no thread"}')
AWAY = _answer("503 Away", b'{"error": "StoreError", "message": "the database is away"}')
DONE = _answer("200 OK", b"{}")


def _every_error() -> list[type[DeltaError]]:
    kinds = [getattr(exceptions, name) for name in exceptions.__all__]
    return [kind for kind in kinds if isinstance(kind, type) and issubclass(kind, DeltaError)]


def _made(kind: type[DeltaError]) -> DeltaError:
    if issubclass(kind, UnsupportedFeatureError):
        return kind("sales.orders", ["x"])
    if kind is LogGapError:
        return LogGapError("sales.orders", 7)
    if kind is MissingFileError:
        return MissingFileError("what happened", path="a.parquet", advice="")
    if kind is MissingExtraError:
        return MissingExtraError("serving", "serve")
    return kind("what happened")


@pytest.mark.parametrize("kind", _every_error(), ids=lambda kind: kind.__name__)
def test_every_error_has_one_status_and_arrives_as_itself(kind: type[DeltaError]) -> None:
    error = _made(kind)
    status = status_of(error)
    assert status in (403, 404, 409, 410, 422, 500, 502, 503)
    arrived = _problem(status, bytes(problem(status, kind.__name__, str(error)).body), "http://x")
    assert type(arrived) is kind
    assert str(arrived) == str(error)
    if isinstance(arrived, CommitFailedError):
        assert (arrived.table, arrived.version) == (None, None)


def test_what_a_table_refuses_for_good_is_no_lost_race() -> None:
    for error in (UnsupportedWriteError("sales.orders", ["x"]), AppendOnlyError("what happened")):
        assert status_of(error) == 422


def test_an_endpoint_that_is_down_is_a_clear_error_within_the_time_given() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    began = time.monotonic()
    with pytest.raises(EndpointError, match=rf"http://127\.0\.0\.1:{port} cannot be reached.*dl serve --bridge"):
        EndpointClient(f"http://127.0.0.1:{port}", TOKEN, retry_seconds=1).health()
    assert 0.5 < time.monotonic() - began < 5


def test_an_endpoint_that_comes_back_in_time_is_not_noticed(catalog_uri: str) -> None:
    with Endpoint(catalog_uri, token=TOKEN) as before:
        client = EndpointClient(before.url, TOKEN)
        client.health()
        port = before.port
    started: list[Endpoint] = []
    late = threading.Timer(0.7, lambda: started.append(Endpoint(catalog_uri, token=TOKEN, port=port)))
    late.start()
    assert "catalog" in client.health()
    with deltalakedb.connect(catalog_uri) as opened:
        (known,) = opened.sql("select catalog_id from dl_catalog").to_pylist()
    assert client.catalog_id() == known["catalog_id"]
    late.join()
    started[0].close()


def test_what_is_busy_is_asked_again_and_what_cannot_be_repeated_only_when_it_has_not_begun() -> None:
    with answering(BUSY, AWAY, DONE) as (url, asked):
        EndpointClient(url, TOKEN).create_namespace("a")
        assert len(asked) == 3
    with answering(BUSY, DONE) as (url, asked):
        EndpointClient(url, TOKEN).rename("a.b", "a.c")
        assert len(asked) == 2
    with answering(AWAY) as (url, _), pytest.raises(StoreError, match="the database is away"):
        EndpointClient(url, TOKEN).rename("a.b", "a.c")
    with answering(BUSY) as (url, _), pytest.raises(EndpointBusyError):
        EndpointClient(url, TOKEN, retry_seconds=0).health()


def test_an_answer_that_is_lost_is_asked_for_again_where_that_is_safe() -> None:
    with answering(b"", b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{", DONE) as (url, asked):
        EndpointClient(url, TOKEN).create_namespace("a")
        assert len(asked) == 3
    with answering(b"") as (url, _), pytest.raises(EndpointError, match="whether POST /rename was done"):
        EndpointClient(url, TOKEN).rename("a.b", "a.c")


@pytest.mark.parametrize(
    "answer",
    [
        _answer("200 OK", b"<html>hello</html>"),
        _answer("404 Not Found", b"<html>nginx</html>"),
        _answer("500 Oops", b'["x"]'),
        _answer("418 Teapot", b'{"error": "TeapotError", "message": "short and stout"}'),
    ],
)
def test_somebody_elses_server_is_no_endpoint(answer: bytes) -> None:
    with answering(answer) as (url, _), pytest.raises(EndpointError, match=r"no endpoint of deltalakedb|TeapotError"):
        EndpointClient(url, TOKEN, retry_seconds=0).namespaces()


def test_an_error_of_the_catalog_is_raised_as_itself(endpoint: LocalEndpoint, client: EndpointClient) -> None:
    endpoint.catalog.create_table("sales.orders", "id long")
    with pytest.raises(TableExistsError, match=r"sales\.orders exists already"):
        client.reserve("sales.orders")


@pytest.mark.parametrize("url", ["ftp://x", "localhost:1234", "http://", "", "/file"])
def test_what_is_no_url_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="an endpoint is http://host:port"):
        EndpointClient(url, TOKEN)


def test_a_ca_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"missing\.pem"):
        EndpointClient("https://127.0.0.1:1", TOKEN, ca=tmp_path / "missing.pem")


def test_threads_share_a_client_and_each_keeps_its_connection(client: EndpointClient) -> None:
    errors: list[BaseException] = []

    def run(work: Callable[[], object]) -> None:
        try:
            for _ in range(20):
                work()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(client.namespaces,)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
