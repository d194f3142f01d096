"""`dl serve`: started, stopped by signals while commits are under way, killed, and misused."""

from __future__ import annotations

import http.client
import json
import os
import signal
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlencode, urlsplit

import pytest
from typer.testing import CliRunner

from deltalakedb import connect
from deltalakedb.cli import app
from deltalakedb.exceptions import EndpointError
from deltalakedb.spark.endpoint import EndpointClient
from tests.fixtures.served import Served
from tests.serve.wire import add, append, ask, info, make_table, versions

ServeProcess = Callable[..., Served]


def test_sigterm_lets_a_commit_under_way_finish_and_aborts_open_transactions(
    serve_process: ServeProcess, catalog_uri: str
) -> None:
    served = serve_process(catalog_uri)
    client = EndpointClient(served.url, served.token)
    path = make_table(client)
    tx = client.begin().txn
    client.write_commit(path, 1, append("staged.parquet"), txn=tx)
    parts = urlsplit(served.url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=60)
    query = urlencode({"path": path, "version": 1, "id": str(uuid.uuid4())})
    connection.putrequest("POST", f"/bridge/v1/commit?{query}")
    connection.putheader("Authorization", f"Bearer {served.token}")
    connection.putheader("Transfer-Encoding", "chunked")
    connection.endheaders()
    piece = "".join(f"{line}\n" for line in [info(), *(add(f"{number}.parquet") for number in range(10_000))]).encode()
    connection.send(b"%x\r\n%s\r\n" % (len(piece), piece))
    time.sleep(1.0)  # it has come in before the signal does, also on a busy machine
    served.process.send_signal(signal.SIGTERM)
    time.sleep(0.3)
    connection.send(b"0\r\n\r\n")
    answer = connection.getresponse()
    assert (answer.status, json.loads(answer.read())) == (200, {"version": 1})
    code, errors = served.end()
    assert code == 0, errors
    assert "stopped" in errors
    assert served.token not in errors
    with connect(catalog_uri) as catalog:
        assert catalog.table("sales.orders").version() == 1
        assert len(catalog.table("sales.orders").file_uris()) == 10_000


def test_after_kill_9_committed_transactions_are_told_and_open_ones_go_on(
    serve_process: ServeProcess, catalog_uri: str
) -> None:
    served = serve_process(catalog_uri)
    client = EndpointClient(served.url, served.token)
    path = make_table(client)
    committed, left_open = client.begin().txn, client.begin().txn
    for tx in (committed, left_open):
        client.write_commit(path, 1, append(f"{tx}.parquet"), txn=tx)
    told = client.commit(committed)
    os.kill(served.process.pid, signal.SIGKILL)
    served.process.wait(30)
    with pytest.raises(EndpointError, match=r"cannot be reached.*`dl serve --bridge`"):
        EndpointClient(served.url, served.token, retry_seconds=0.5).commit(left_open)
    again = serve_process(catalog_uri)
    client = EndpointClient(again.url, again.token)
    assert client.commit(committed) == told
    client.write_commit(path, 2, append("more.parquet"), txn=left_open)
    assert client.commit(left_open).versions == {"sales.orders": 3}
    assert versions(client, path) == [0, 1, 2, 3]


def test_sigint_ends_it_too_and_the_access_log_goes_to_stderr(
    serve_process: ServeProcess, tmp_path: Path, warehouse: Path
) -> None:
    served = serve_process(str(tmp_path / "c.db"), "--access-log", "--json")
    told = json.loads(served.url)
    assert told == {"url": told["url"], "catalog": f"deltasql://sqlite/{tmp_path}/c.db", "pid": served.process.pid}
    EndpointClient(told["url"], served.token).health()
    served.process.send_signal(signal.SIGINT)
    code, errors = served.end()
    assert code == 0
    assert "GET /bridge/v1/health 200" in errors
    assert not warehouse.exists()


def test_both_kinds_of_clients_are_served_at_once(serve_process: ServeProcess, tmp_path: Path) -> None:
    served = serve_process(str(tmp_path / "c.db"), "--iceberg", "--json")
    told = json.loads(served.url)
    assert told["iceberg"] == f"{told['url']}/iceberg"
    EndpointClient(told["url"], served.token).health()
    config = ask(told["url"], served.token, "GET", "/v1/config", prefix="/iceberg")
    assert "GET /v1/{prefix}/namespaces" in config.json["endpoints"]
    served.process.send_signal(signal.SIGTERM)
    assert served.end()[0] == 0


def test_without_iceberg_its_endpoints_are_not_there(serve_process: ServeProcess, tmp_path: Path) -> None:
    served = serve_process(str(tmp_path / "c.db"))
    assert ask(served.url, served.token, "GET", "/v1/config", prefix="/iceberg").status == 404
    token = ask(served.url, None, "POST", "/v1/oauth/tokens", body=b"x", prefix="/iceberg")
    assert (token.status, token.json["error"]) == (401, "UnauthorizedError")


@pytest.mark.parametrize(
    ("arguments", "code", "what"),
    [
        ([], 2, "--bridge"),
        (["--bridge"], 2, "clients must show a token"),
        (["--bridge", "--token-file", "missing"], 2, "missing cannot be read"),
        (["--bridge", "--token-file", "empty"], 2, "empty is empty"),
        (["--bridge", "--token-file", "short"], 2, "a token has at least 8"),
        (["--bridge", "--tls-key", "x"], 2, "--tls-cert"),
        (["--bridge", "--token-file", "token", "--tls-cert", "missing.pem"], 2, "missing.pem"),
        (["--bridge", "--token-file", "token", "--host", "no.such.host.invalid"], 1, "cannot listen at"),
        (["--bridge", "--port", "70000"], 2, "--port"),
        (["--iceberg"], 2, "clients must show a token"),
        (["--bridge", "--iceberg", "--no-token"], 2, "--no-token"),
        (["--iceberg", "--no-token", "--token-file", "token"], 2, "--no-token"),
        (["--iceberg", "--no-token", "--host", "0.0.0.0"], 2, "--no-token"),
    ],
)
def test_misuse_is_explained(
    arguments: list[str], code: int, what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, text in [("empty", ""), ("short", "abc"), ("token", "a-token-of-the-tests")]:
        Path(name).write_text(text)
        Path(name).chmod(0o600)
    result = CliRunner().invoke(app, ["serve", "--catalog", str(tmp_path / "c.db"), *arguments])
    assert (result.exit_code, what in result.stderr) == (code, True), result.stderr
    assert "Traceback" not in result.stderr


def test_a_token_that_others_can_read_is_a_warning(serve_process: ServeProcess, tmp_path: Path) -> None:
    (tmp_path / "open").write_text("a-token-that-others-see")
    (tmp_path / "open").chmod(0o644)
    served = serve_process(str(tmp_path / "c.db"), "--token-file", str(tmp_path / "open"))
    EndpointClient(served.url, "a-token-that-others-see").health()
    served.process.terminate()
    code, errors = served.end()
    assert (code, "chmod 600" in errors) == (0, True)
    assert "a-token-that-others-see" not in errors
