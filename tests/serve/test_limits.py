"""What an endpoint bounds, and what load balancers ask it."""

from __future__ import annotations

import json
import socket
from urllib.parse import urlsplit

import pytest

from deltalakedb.exceptions import RateLimitError, StoreError
from deltalakedb.runtime.caller import Caller
from deltalakedb.serve import LocalEndpoint, bodies, health
from deltalakedb.serve.limits import RateLimit
from deltalakedb.serve.server import Endpoint
from deltalakedb.spark.endpoint import EndpointClient
from tests.serve.conftest import StartEndpoint
from tests.serve.test_identity import REQUESTS, get
from tests.serve.wire import append, ask, make_table


def test_a_caller_that_sends_too_much_is_told_when_to_come_again_and_others_are_not(start: StartEndpoint) -> None:
    endpoint = start(serve_rate_limit=0.5)
    own = {"Authorization": f"Bearer {endpoint.token}"}
    refused = next(answer for answer in (get(endpoint, own) for _ in range(50)) if answer.status != 200)
    assert (refused.status, refused.json["error"]) == (503, "RateLimitError")
    assert refused.headers["retry-after"] in ("1", "2")
    other = endpoint.catalog.create_token("other").secret
    assert get(endpoint, {"Authorization": f"Bearer {other}"}).status == 200
    with EndpointClient(endpoint.url, endpoint.token, retry_seconds=30) as patient:
        assert patient.namespaces()  # it comes again by itself


def test_iceberg_clients_are_told_429(catalog_uri: str) -> None:
    with Endpoint(catalog_uri, token="a-token-of-the-tests", iceberg=True, serve_rate_limit=0.1) as endpoint:
        answers = [ask(endpoint.url, endpoint.token, "GET", "/v1/config", prefix="/iceberg") for _ in range(6)]
    assert {answer.status for answer in answers} == {200, 429}
    refused = next(answer for answer in answers if answer.status == 429)
    assert refused.json["error"]["type"] == "TooManyRequestsException"
    assert 1 <= int(refused.headers["retry-after"]) <= 10


def test_requests_are_allowed_again_as_time_goes_by(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr("deltalakedb.serve.limits.time.monotonic", lambda: now)
    limit, ada = RateLimit(0.5), Caller("ada")
    limit.check(ada)
    with pytest.raises(RateLimitError) as refused:
        limit.check(ada)
    assert refused.value.retry_seconds == 2
    limit.check(Caller("ada", proof="oidc"))
    now += 2
    limit.check(ada)
    with pytest.raises(RateLimitError):
        limit.check(ada)


def test_a_commit_that_is_too_long_is_refused_whether_or_not_it_says_so(start: StartEndpoint) -> None:
    endpoint = start(serve_max_commit_bytes=5_000)
    path = make_table(EndpointClient(endpoint.url, endpoint.token))
    query = {"path": path, "version": 1, "id": "0b1c"}
    body = "\n".join(append(*(f"{number}.parquet" for number in range(100)))).encode()
    refused = ask(endpoint.url, endpoint.token, "POST", "/commit", query, body)
    assert (refused.status, refused.json["error"]) == (422, "InvalidCommitError")
    chunked = ask(endpoint.url, endpoint.token, "POST", "/commit", query, iter([body[:4_000], body[4_000:]]))  # type: ignore[arg-type]
    assert (chunked.status, chunked.json["error"]) == (422, "InvalidCommitError")
    assert "serve.max_commit_bytes" in chunked.json["message"]
    short = "\n".join(append("a.parquet")).encode()
    assert ask(endpoint.url, endpoint.token, "POST", "/commit", query, short).status == 200


def test_a_client_that_sends_nothing_more_is_sent_away(
    endpoint: LocalEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bodies, "READ_SECONDS", 0.3)
    parts = urlsplit(endpoint.url)
    with socket.create_connection((parts.hostname or "", parts.port or 0), timeout=60) as connection:
        head = f"POST /bridge/v1/txn HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {endpoint.token}\r\n"
        connection.sendall(f"{head}Content-Length: 100\r\n\r\n{{".encode())
        answer = connection.recv(65536)
    assert b" 422 " in answer.splitlines()[0]


def test_a_client_that_sends_hardly_anything_is_sent_away(
    endpoint: LocalEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bodies, "READ_SECONDS", 1.0)
    parts = urlsplit(endpoint.url)
    with socket.create_connection((parts.hostname or "", parts.port or 0), timeout=0.05) as connection:
        head = f"POST /bridge/v1/txn HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {endpoint.token}\r\n"
        connection.sendall(f"{head}Content-Length: 1000000\r\n\r\n{{".encode())
        answer = b""
        while not answer:
            try:
                answer = connection.recv(65536)
            except TimeoutError:
                connection.sendall(b" ")
    assert b" 422 " in answer.splitlines()[0]


def test_headers_without_end_are_refused(endpoint: LocalEndpoint) -> None:
    parts = urlsplit(endpoint.url)
    with socket.create_connection((parts.hostname or "", parts.port or 0), timeout=60) as connection:
        connection.sendall(b"GET /health/live HTTP/1.1\r\nX: " + b"x" * 200_000)
        assert b" 400 " in connection.recv(65536).splitlines()[0]


def test_health_needs_no_token_and_ready_asks_the_database(
    endpoint: LocalEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "KEPT_SECONDS", 0.0)
    for name in ("live", "ready"):
        answer = ask(endpoint.url, None, "GET", f"/{name}", prefix="/health")
        assert (answer.status, answer.json) == (200, {name: True})
    assert ask(endpoint.url, None, "POST", "/ready", prefix="/health").status == 405
    assert ask(endpoint.url, None, "GET", "/else", prefix="/health").status == 401

    def away(**_: object) -> None:
        raise StoreError("password=hunter2 is wrong")

    monkeypatch.setattr(endpoint.catalog.store, "read", away)
    ready = ask(endpoint.url, None, "GET", "/ready", prefix="/health")
    assert (ready.status, ready.json) == (503, {"ready": False})
    assert ask(endpoint.url, None, "GET", "/live", prefix="/health").status == 200


@pytest.mark.parametrize(("proxies", "address"), [(None, "127.0.0.1"), (["127.0.0.1"], "203.0.113.9")])
def test_only_trusted_proxies_say_where_a_request_comes_from(
    start: StartEndpoint, proxies: list[str] | None, address: str
) -> None:
    endpoint = start(serve_trusted_proxies=proxies)
    path = make_table(EndpointClient(endpoint.url, endpoint.token))
    parts = urlsplit(endpoint.url)
    body = "\n".join(append("a.parquet")).encode()
    head = (
        f"POST /bridge/v1/commit?path={path}&version=1&id=x HTTP/1.1\r\nHost: {parts.netloc}\r\nConnection: close\r\n"
        f"Authorization: Bearer {endpoint.token}\r\nX-Forwarded-For: 203.0.113.9\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    with socket.create_connection((parts.hostname or "", parts.port or 0), timeout=60) as connection:
        connection.sendall(head.encode() + body)
        assert json.loads(connection.makefile("rb").read().partition(b"\r\n\r\n")[2]) == {"version": 1}
    assert endpoint.catalog.sql(REQUESTS).to_pylist()[-1]["address"] == address
