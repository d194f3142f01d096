"""The server itself: who may ask, TLS, large bodies, many clients, too many clients, forks, and bugs."""

from __future__ import annotations

import ctypes
import http.client
import json
import logging
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlencode, urlsplit

import pytest

from deltalakedb import connect
from deltalakedb.exceptions import ConfigError, EndpointError
from deltalakedb.serve import Endpoint, LocalEndpoint
from deltalakedb.serve.tls import Tls
from deltalakedb.spark.endpoint import EndpointClient
from tests.serve.wire import add, append, ask, info, make_table, paths_in, versions

NUM_ADDS = 100_000


@pytest.fixture
def catalog_uri(tmp_path: Path) -> str:
    """What is tested here does not depend on the engine."""
    return str(tmp_path / "catalog.db")


# -- who may ask


def test_without_the_right_token_nothing_is_answered(endpoint: LocalEndpoint) -> None:
    url, token = endpoint.url, endpoint.token
    for wrong in (None, "", "wrong", token[:-1], token + "x", token.swapcase(), f" {token} x", "\xe4" * 20):
        for route in ("/health", "/names", "/nothing", "/txn"):
            answer = ask(url, wrong, "GET", route)
            assert (answer.status, answer.json["error"]) == (401, "UnauthorizedError")
            assert answer.headers["www-authenticate"] == "Bearer"
    assert ask(url, token, "GET", "/health").status == 200
    assert ask(url, None, "GET", "/", prefix="").status == 401


def test_another_scheme_or_two_headers_are_no_token(endpoint: LocalEndpoint) -> None:
    parts = urlsplit(endpoint.url)
    for headers in (
        [("Authorization", f"Basic {endpoint.token}")],
        [("Authorization", endpoint.token)],
        [("Authorization", f"Bearer {endpoint.token}"), ("Authorization", "Bearer other")],
    ):
        connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=30)
        connection.putrequest("GET", "/bridge/v1/health")
        for key, value in headers:
            connection.putheader(key, value)
        connection.endheaders()
        assert connection.getresponse().status == 401
        connection.close()


def test_a_token_that_could_be_guessed_is_refused(catalog_uri: str) -> None:
    for token in ("", "short", "with a space in it", "späße-und-so"):
        with pytest.raises(ConfigError, match="a token has at least 8"):
            Endpoint(catalog_uri, token=token)


def test_the_token_is_in_no_log_repr_or_error(
    endpoint: LocalEndpoint, client: EndpointClient, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    make_table(client)
    with pytest.raises(EndpointError) as refused:
        EndpointClient(endpoint.url, "another-token-1234").health()
    logged = [record.getMessage() for record in caplog.records if record.name == "deltalakedb.access"]
    assert any(line.startswith("127.0.0.1 POST /bridge/v1/commit 200 ") for line in logged)
    for text in (caplog.text, repr(endpoint), repr(client), str(refused.value), repr(endpoint.catalog.config)):
        assert endpoint.token not in text
        assert "another-token-1234" not in text
    assert "path=" not in caplog.text


def test_health_tells_which_catalog_is_served(client: EndpointClient, endpoint: LocalEndpoint) -> None:
    from deltalakedb import __version__

    warehouse = f"dldb:///file{endpoint.catalog.config.warehouse}"
    assert client.health() == {"catalog": str(endpoint.catalog.uri), "version": __version__, "warehouse": warehouse}


# -- TLS


def test_clients_speak_tls_and_trust_only_the_ca_they_are_told(catalog_uri: str, tmp_path: Path) -> None:
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    options = "-x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -addext subjectAltName=IP:127.0.0.1"
    command = ["openssl", "req", *options.split(), "-keyout", str(key), "-out", str(cert)]
    subprocess.run(command, check=True, capture_output=True)
    with Endpoint(catalog_uri, token="a-token-of-the-tests", tls=Tls(str(cert), str(key))) as endpoint:
        assert endpoint.url.startswith("https://127.0.0.1:")
        assert "catalog" in EndpointClient(endpoint.url, endpoint.token, ca=cert).health()
        with pytest.raises(EndpointError, match="is not trusted"):
            EndpointClient(endpoint.url, endpoint.token, retry_seconds=1).health()
        with pytest.raises(EndpointError, match="cannot be reached"):
            EndpointClient(endpoint.url.replace("https", "http"), endpoint.token, retry_seconds=0.5).health()


def test_a_certificate_that_cannot_be_used_is_named(catalog_uri: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"missing\.pem"):
        Endpoint(catalog_uri, token="a-token-of-the-tests", tls=Tls(str(tmp_path / "missing.pem")))
    (tmp_path / "bad.pem").write_text("nothing")
    with pytest.raises(ConfigError, match=r"bad\.pem"):
        Endpoint(catalog_uri, token="a-token-of-the-tests", tls=Tls(str(tmp_path / "bad.pem")))


def test_a_port_that_is_taken_is_named(catalog_uri: str, endpoint: LocalEndpoint) -> None:
    with pytest.raises(EndpointError, match=f"cannot listen at 127.0.0.1:{endpoint.port}"):
        Endpoint(catalog_uri, token="a-token-of-the-tests", port=endpoint.port)


# -- large bodies


@pytest.mark.slow
def test_a_commit_of_100_000_files_is_streamed_in_and_out(client: EndpointClient, endpoint: LocalEndpoint) -> None:
    path = make_table(client)
    names = [f"part-{number:06}-{'x' * 100}.parquet" for number in range(NUM_ADDS)]

    def lines() -> Iterator[bytes]:  # one piece after the other, as the bridge's Java side sends it
        for start in range(0, NUM_ADDS, 1000):
            yield "".join(f"{add(name)}\n" for name in names[start : start + 1000]).encode()

    parts = urlsplit(endpoint.url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=120)
    query = urlencode({"path": path, "version": 1, "id": str(uuid.uuid4())})
    headers = {"Authorization": f"Bearer {endpoint.token}"}
    connection.request("POST", f"/bridge/v1/commit?{query}", lines(), headers, encode_chunked=True)
    answer = connection.getresponse()
    assert (answer.status, json.loads(answer.read())) == (200, {"version": 1})
    connection.close()
    text = client.read_commit(path, 1)
    assert len(text) == client.log(path)[1].size
    assert paths_in(text) == names
    assert b'"numFiles":100000' in client.checksum(path, 1)


def test_a_large_body_is_parsed_while_it_arrives(client: EndpointClient, endpoint: LocalEndpoint) -> None:
    """What is wrong with its first line is answered before the last one was sent."""
    path = make_table(client)
    parts = urlsplit(endpoint.url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=30)
    query = urlencode({"path": path, "version": 1, "id": str(uuid.uuid4())})
    connection.putrequest("POST", f"/bridge/v1/commit?{query}")
    connection.putheader("Authorization", f"Bearer {endpoint.token}")
    connection.putheader("Content-Length", str(100 * 1024 * 1024))
    connection.endheaders()
    connection.send(b"this is no JSON\n" + b"{}\n" * 700_000)
    answer = connection.getresponse()
    assert (answer.status, json.loads(answer.read())["error"]) == (422, "MalformedLogError")
    connection.close()
    assert versions(client, path) == [0]


def test_a_client_that_goes_away_in_the_middle_of_a_commit_commits_nothing(
    client: EndpointClient, endpoint: LocalEndpoint
) -> None:
    path = make_table(client)
    parts = urlsplit(endpoint.url)
    for size in (1_000, 3_000_000):
        body = "".join(f"{add(f'{number}.parquet')}\n" for number in range(size // 100)).encode()
        query = urlencode({"path": path, "version": 1, "id": str(uuid.uuid4())})
        connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=30)
        connection.putrequest("POST", f"/bridge/v1/commit?{query}")
        connection.putheader("Authorization", f"Bearer {endpoint.token}")
        connection.putheader("Content-Length", str(len(body) + 1000))
        connection.endheaders()
        connection.send(body)
        connection.close()
    time.sleep(0.5)
    assert versions(client, path) == [0]
    assert client.write_commit(path, 1, append("a.parquet")) == 1


# -- many clients


def test_64_clients_at_once_lose_no_commit_and_see_no_error(client: EndpointClient, endpoint: LocalEndpoint) -> None:
    paths = [make_table(client, f"sales.t{number}") for number in range(8)]
    commits_each = 3

    def work(number: int) -> int:
        path, done = paths[number % 8], 0
        with EndpointClient(endpoint.url, endpoint.token, retry_seconds=60) as mine:
            while done < commits_each:
                head = mine.log(path)[-1].version
                query = {"path": path, "version": head + 1, "id": str(uuid.uuid4())}
                body = "\n".join(append(f"{number}-{done}.parquet")).encode()
                answer = ask(endpoint.url, endpoint.token, "POST", "/commit", query, body)
                assert answer.status in (200, 409), answer.body
                done += answer.status == 200
        return done

    with ThreadPoolExecutor(64) as pool:
        assert sum(pool.map(work, range(64))) == 64 * commits_each
    for number, path in enumerate(paths):
        assert versions(client, path) == list(range(8 * commits_each + 1))
        added = [name for version in range(1, 25) for name in paths_in(client.read_commit(path, version))]
        assert sorted(added) == sorted(
            f"{one}-{k}.parquet" for one in range(number, 64, 8) for k in range(commits_each)
        )


def test_when_all_threads_are_busy_a_request_waits_and_is_then_sent_away(catalog_uri: str, warehouse: Path) -> None:
    with LocalEndpoint(catalog_uri, warehouse=str(warehouse), serve_threads=1, wait_seconds=0.3) as endpoint:
        client = EndpointClient(endpoint.url, endpoint.token, retry_seconds=0)
        path = make_table(client)
        parts = urlsplit(endpoint.url)
        hog = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=30)
        query = urlencode({"path": path, "version": 1, "id": str(uuid.uuid4())})
        hog.putrequest("POST", f"/bridge/v1/commit?{query}")
        hog.putheader("Authorization", f"Bearer {endpoint.token}")
        hog.putheader("Transfer-Encoding", "chunked")
        hog.endheaders()
        piece = "".join(f"{add(f'{number}.parquet')}\n" for number in range(20_000)).encode()
        hog.send(b"%x\r\n%s\r\n" % (len(piece), piece))
        deadline = time.monotonic() + 20
        while (answer := ask(endpoint.url, endpoint.token, "GET", "/namespaces")).status == 200:
            assert time.monotonic() < deadline
        assert (answer.status, answer.json["error"]) == (503, "EndpointBusyError")
        assert answer.headers["retry-after"] == "1"
        assert "raise serve.threads" in answer.json["message"]
        assert ask(endpoint.url, endpoint.token, "GET", "/health").status == 200, "needs no thread"
        hog.send(b"0\r\n\r\n")
        assert hog.getresponse().status == 200
        patient = EndpointClient(endpoint.url, endpoint.token, retry_seconds=20)
        assert patient.namespaces() == ["default", "sales"]


# -- bugs


def test_an_unexpected_error_is_a_500_with_an_id_that_finds_the_traceback(
    endpoint: LocalEndpoint, client: EndpointClient, caplog: pytest.LogCaptureFixture
) -> None:
    endpoint.catalog.close()
    answer = ask(endpoint.url, endpoint.token, "GET", "/namespaces")
    assert (answer.status, answer.json["error"]) == (503, "StoreClosedError")
    del endpoint.catalog.store
    answer = ask(endpoint.url, endpoint.token, "GET", "/namespaces")
    assert (answer.status, answer.json["error"]) == (500, "InternalError")
    number = answer.json["message"].split()[2]
    (record,) = [record for record in caplog.records if number in record.getMessage()]
    assert record.exc_info is not None
    with pytest.raises(EndpointError, match="InternalError"):
        client.namespaces()
    endpoint.catalog.store = connect(str(endpoint.catalog.uri)).store


# -- processes


def test_the_endpoint_of_a_catalog_is_one_in_a_process(catalog_uri: str, warehouse: Path, tmp_path: Path) -> None:
    first = LocalEndpoint.of(catalog_uri, warehouse=str(warehouse))
    try:
        assert LocalEndpoint.of(catalog_uri, warehouse=str(warehouse)) is first
        other = LocalEndpoint.of(str(tmp_path / "other.db"), warehouse=str(warehouse))
        assert other is not first
        other.close()
        assert not other.is_open
        assert LocalEndpoint.of(str(tmp_path / "other.db"), warehouse=str(warehouse)) is not other
    finally:
        LocalEndpoint.of(str(tmp_path / "other.db"), warehouse=str(warehouse)).close()
        first.close()


def test_a_forked_child_has_an_endpoint_of_its_own_and_leaves_the_parents_alone(
    catalog_uri: str, warehouse: Path
) -> None:
    parent = LocalEndpoint.of(catalog_uri, warehouse=str(warehouse))
    path = make_table(EndpointClient(parent.url, parent.token))
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            told: dict[str, object] = {"parent_is_open": parent.is_open}
            parent.close()
            mine = LocalEndpoint.of(catalog_uri, warehouse=str(warehouse))
            told["url"] = mine.url
            told["versions"] = versions(EndpointClient(mine.url, mine.token), path)
            os.write(writer, json.dumps(told).encode())
        finally:
            os._exit(0)
    os.close(writer)
    answered = bool(select.select([reader], [], [], 60)[0])
    told = json.loads(os.read(reader, 10_000) or b"{}") if answered else {}
    os.close(reader)
    os.kill(child, signal.SIGKILL)  # it has said all it had to say, or hangs
    os.waitpid(child, 0)
    assert told == {"parent_is_open": False, "url": told.get("url"), "versions": [0]}
    assert told["url"] != parent.url
    assert versions(EndpointClient(parent.url, parent.token), path) == [0]
    parent.close()


# The fork of the C library runs no handlers of Python: such a child still has its parent's sockets.
@pytest.mark.parametrize("fork", [os.fork, ctypes.PyDLL(None).fork], ids=["forked", "forked-a-moment-ago"])
def test_after_close_nobody_listens_even_if_a_child_lives_on(endpoint: LocalEndpoint, fork: Callable[[], int]) -> None:
    child = fork()
    if child == 0:
        time.sleep(30)
        os._exit(0)
    try:
        endpoint.close()
        with socket.socket() as one, pytest.raises(ConnectionRefusedError):
            one.connect((endpoint.host, endpoint.port))
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    endpoint.close()


def test_close_finishes_what_is_under_way_and_aborts_what_is_open(
    client: EndpointClient, endpoint: LocalEndpoint, catalog_uri: str, warehouse: Path
) -> None:
    path = make_table(client)
    tx = client.begin().txn
    client.write_commit(path, 1, append("staged.parquet"), txn=tx)
    client.log(path, txn=tx)
    overlay = warehouse / f"sales/orders/_dldb/txn-{tx}"
    overlay.mkdir(parents=True)
    parts = urlsplit(endpoint.url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=60)
    query = urlencode({"path": path, "version": 1, "id": str(uuid.uuid4())})
    connection.putrequest("POST", f"/bridge/v1/commit?{query}")
    connection.putheader("Authorization", f"Bearer {endpoint.token}")
    connection.putheader("Transfer-Encoding", "chunked")
    connection.endheaders()
    first = f"{info()}\n{add('a.parquet')}\n".encode()
    connection.send(b"%x\r\n%s\r\n" % (len(first), first))
    time.sleep(1.0)  # it has come in before the end does, also on a busy machine
    closing = threading.Thread(target=endpoint.close)
    closing.start()
    time.sleep(0.3)
    connection.send(b"0\r\n\r\n")
    answer = connection.getresponse()
    assert (answer.status, json.loads(answer.read())) == (200, {"version": 1})
    closing.join(30)
    assert not endpoint.is_open
    assert not overlay.exists()
    with connect(catalog_uri) as catalog:
        assert catalog.table("sales.orders").version() == 1
        assert catalog.table("sales.orders").file_uris() == [f"{warehouse}/sales/orders/a.parquet"]


def test_a_process_that_ends_aborts_the_transactions_of_its_own_endpoint(catalog_uri: str, warehouse: Path) -> None:
    script = (
        "import sys; from deltalakedb.serve import LocalEndpoint; from tests.serve.wire import *\n"
        "endpoint = LocalEndpoint.of(sys.argv[1], warehouse=sys.argv[2], serve_txn_timeout=3600)\n"
        "client = EndpointClient(endpoint.url, endpoint.token); path = make_table(client)\n"
        "tx = client.begin(lock=['sales.orders']).txn; client.write_commit(path, 1, append('a.parquet'), txn=tx)\n"
        "client.close(); print(tx)"
    )
    command = [sys.executable, "-X", "dev", "-c", script, catalog_uri, str(warehouse)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert done.stderr == ""
    with LocalEndpoint(catalog_uri, warehouse=str(warehouse)) as endpoint:
        client = EndpointClient(endpoint.url, endpoint.token)
        assert client.abort(done.stdout.strip())
        path = client.name("sales.orders").path.removeprefix("dldb://")
        assert client.write_commit(path, 1, [info("DELETE", blind=False)]) == 1, "the claim on the table is gone"


@pytest.mark.parametrize("missing", ["starlette", "uvicorn"])
def test_without_the_extra_it_says_what_to_install(missing: str) -> None:
    script = f"import sys; sys.modules[{missing!r}] = None; from deltalakedb.serve import LocalEndpoint"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert "MissingExtraError: serving needs an optional dependency: pip install 'deltalakedb[serve]'" in done.stderr
