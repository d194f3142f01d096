"""Named tokens, and whose work commits, the audit and the logs say it is."""

from __future__ import annotations

import http.client
import json
import logging
import sys
import time
from collections.abc import Mapping
from datetime import timedelta
from typing import Any
from urllib.parse import urlencode, urlsplit

import pytest

from deltalakedb.cli.serve import OneLineFormatter
from deltalakedb.runtime.caller import current_caller
from deltalakedb.serve import Endpoint, LocalEndpoint
from deltalakedb.serve.identity.named_tokens import REVOKED_WITHIN_SECONDS
from deltalakedb.spark.endpoint import EndpointClient
from tests.serve.conftest import StartEndpoint
from tests.serve.wire import Answer, append, ask, make_table

REQUESTS = """
select x.actor, r.request_id, r.proof, r.address, r.user_agent
from dl_requests r join dl_transactions x on x.txn_id = r.txn_id order by x.committed_at_ms
"""


def get(endpoint: Endpoint, headers: Mapping[str, str], route: str = "/namespaces") -> Answer:
    """A request with these headers, and no token of its own."""
    parts = urlsplit(endpoint.url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=60)
    try:
        connection.request("GET", f"/bridge/v1{route}", headers=dict(headers))
        answer = connection.getresponse()
        return Answer(answer.status, {key.lower(): value for key, value in answer.getheaders()}, answer.read())
    finally:
        connection.close()


def status(endpoint: Endpoint, token: str) -> int:
    return get(endpoint, {"Authorization": f"Bearer {token}"}).status


def test_a_named_token_is_let_in_and_its_actor_is_in_commit_transaction_and_audit(endpoint: LocalEndpoint) -> None:
    secret = endpoint.catalog.create_token("nightly", "ada", ["loaders", "analysts"]).secret
    path = make_table(EndpointClient(endpoint.url, secret), "sales.orders", "a.parquet")
    make_table(EndpointClient(endpoint.url, endpoint.token), "sales.other")
    query = {"path": path, "version": 2, "id": "0b1c"}
    parts = urlsplit(endpoint.url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=60)
    headers = {"Authorization": f"Bearer {secret}", "User-Agent": "loader/1.0", "X-Request-ID": "load-7"}
    body = "\n".join(append("b.parquet")).encode()
    connection.request("POST", f"/bridge/v1/commit?{urlencode(query)}", body, headers)
    answer = connection.getresponse()
    assert (answer.status, answer.headers["X-Request-ID"]) == (200, "load-7")
    connection.close()
    newest = endpoint.catalog.history("sales.orders")[0]["deltalakedb"]
    assert newest["actor"] == "ada"
    assert newest["request"] == {
        "id": "load-7",
        "proof": "token",
        "address": "127.0.0.1",
        "userAgent": "loader/1.0",
    }
    rows = endpoint.catalog.sql(REQUESTS).to_pylist()
    assert [row["actor"] for row in rows] == ["ada", "ada", endpoint.catalog.actor, "ada"]
    assert [row["proof"] for row in rows] == ["token", "token", "endpoint", "token"]
    assert (rows[-1]["request_id"], rows[-1]["user_agent"]) == ("load-7", "loader/1.0")
    created = [row for row in endpoint.catalog.audit() if row["table"] == "sales.orders"][-1]
    assert created["actor"] == "ada"
    assert created["details"]["request"]["proof"] == "token"


def test_a_revoked_token_is_refused_within_the_documented_time_and_its_name_is_free(endpoint: LocalEndpoint) -> None:
    catalog = endpoint.catalog
    secret = catalog.create_token("nightly").secret
    assert status(endpoint, secret) == 200
    catalog.revoke_token("nightly")
    time.sleep(REVOKED_WITHIN_SECONDS)
    assert status(endpoint, secret) == 401
    assert status(endpoint, catalog.create_token("nightly").secret) == 200
    assert status(endpoint, secret) == 401


def test_an_expired_token_is_refused_also_while_it_is_remembered(endpoint: LocalEndpoint) -> None:
    secret = endpoint.catalog.create_token("short", expires=timedelta(seconds=1)).secret
    assert status(endpoint, secret) == 200
    time.sleep(1.01)
    assert status(endpoint, secret) == 401


def test_texts_that_are_almost_a_token_are_refused(endpoint: LocalEndpoint) -> None:
    secret = endpoint.catalog.create_token("nightly").secret
    other = endpoint.catalog.create_token("other").secret
    head, _, tail = secret.rpartition("_") if secret.count("_") == 2 else secret.partition("_")
    id_part = secret[: len("dlt_") + 16]
    stored = endpoint.catalog.sql("select secret_hash from dl_tokens").to_pylist()
    almost = [
        secret[:-1],
        f"{secret}A",
        secret.upper(),
        id_part,
        f"{id_part}_",
        id_part + other[len(id_part) :],  # the secret of another token
        f"dlt_{'0' * 16}{secret[len(id_part) :]}",
        *[f"{id_part}_{row['secret_hash']}" for row in stored],
        *[row["secret_hash"] for row in stored],
        f"{head}'--{tail}",
        "dlt_%00",
        f"{secret} {other}",
        "x" * 100_000,
    ]
    assert [status(endpoint, text) for text in almost[:-1]] == [401] * (len(almost) - 1)
    assert get(endpoint, {"Authorization": f"Bearer {almost[-1]}"}).status in (400, 401, 431)
    assert status(endpoint, secret) == status(endpoint, other) == 200


def test_a_token_in_the_query_or_in_two_headers_proves_nothing(endpoint: LocalEndpoint) -> None:
    secret = endpoint.catalog.create_token("nightly").secret
    for key in ("token", "access_token", "authorization"):
        assert ask(endpoint.url, None, "GET", "/namespaces", {key: secret}).status == 401
    assert get(endpoint, {"Cookie": f"token={secret}"}).status == 401
    assert get(endpoint, {"X-Forwarded-User": "ada", "Authorization": "Basic YTpi"}).status == 401


def test_no_secret_is_in_the_database_in_a_repr_a_log_or_an_error(
    endpoint: LocalEndpoint, caplog: pytest.LogCaptureFixture
) -> None:
    catalog = endpoint.catalog
    with caplog.at_level(logging.DEBUG):
        created = catalog.create_token("nightly", groups=["loaders"])
        status(endpoint, created.secret)
        status(endpoint, created.secret[:-1])
        refused = get(endpoint, {"Authorization": f"Bearer {created.secret}x", "User-Agent": created.secret})
        catalog.revoke_token("nightly")
    secret = created.secret[len("dlt_") + 17 :]
    rows = [catalog.sql(f"select * from {name}").to_pylist() for name in ("dl_tokens", "dl_audit", "dl_requests")]
    shown = [caplog.text, repr(created), str(rows), str(catalog.audit()), str(catalog.tokens()), refused.body.decode()]
    assert [text for text in shown if secret in text] == []


def test_a_request_keeps_its_id_if_it_is_plain_and_gets_one_otherwise(endpoint: LocalEndpoint) -> None:
    own = {"Authorization": f"Bearer {endpoint.token}"}
    assert get(endpoint, own | {"X-Request-ID": "a-1.b:2"}).headers["x-request-id"] == "a-1.b:2"
    made = {get(endpoint, own).headers["x-request-id"] for _ in range(3)}
    for sent in ("", "x" * 129, "a b", "a\tb", "ä", "<script>", "${jndi:ldap://x}", "%0a"):
        answer = get(endpoint, own | {"X-Request-ID": sent.encode("latin-1").decode("latin-1")})
        assert answer.headers["x-request-id"] != sent
        made.add(answer.headers["x-request-id"])
    assert len(made) == 11
    assert all(len(number) == 32 and number.isalnum() for number in made)
    assert get(endpoint, {"X-Request-ID": "refused-1"}).headers["x-request-id"] == "refused-1"


def test_nobody_writes_lines_of_his_own_into_the_access_log(
    endpoint: LocalEndpoint, caplog: pytest.LogCaptureFixture
) -> None:
    own = {"Authorization": f"Bearer {endpoint.token}"}
    with caplog.at_level(logging.INFO, "deltalakedb.access"):
        get(endpoint, own, "/x%0a127.0.0.1%20GET%20/forged%20200%1b[2J%e2%80%a8")
        deadline = time.monotonic() + 30
        while not caplog.records and time.monotonic() < deadline:
            time.sleep(0.01)  # the line is written after the answer
    (line,) = [record.getMessage() for record in caplog.records if record.name == "deltalakedb.access"]
    assert line.isprintable()
    assert "\\n127.0.0.1 GET /forged" in line
    assert line.split()[-2] == endpoint.catalog.actor


def test_the_user_agent_of_a_commit_is_printable_and_short(endpoint: LocalEndpoint) -> None:
    seen: list[Any] = []
    names = endpoint.catalog.namespaces

    def spy(parent: str | None = None) -> list[str]:
        seen.append(current_caller())
        return names(parent)

    endpoint.catalog.namespaces = spy  # type: ignore[method-assign]  # looks at the caller; answers as before
    get(endpoint, {"Authorization": f"Bearer {endpoint.token}", "User-Agent": "a\x85b\xa0" + "c" * 1000})
    (caller,) = seen
    assert caller.user_agent.startswith("a\\x85b\\xa0ccc")
    assert len(caller.user_agent) < 300
    assert caller.user_agent.isprintable()
    assert current_caller() is None


def test_the_owner_of_the_endpoints_token_has_the_name_of_the_setting(start: StartEndpoint) -> None:
    endpoint = start(serve_actor="the lake's endpoint", actor="somebody")
    make_table(EndpointClient(endpoint.url, endpoint.token))
    assert {row["actor"] for row in endpoint.catalog.sql(REQUESTS).to_pylist()} == {"the lake's endpoint"}
    assert endpoint.catalog.actor == "somebody"


def test_requests_of_transactions_that_are_gone_are_collected(endpoint: LocalEndpoint) -> None:
    make_table(EndpointClient(endpoint.url, endpoint.token))
    count = "select count(*) as n from dl_requests"
    with endpoint.catalog.store.write() as conn:
        conn.run("insert_request", txn_id="gone", request_id="r", proof="token", address=None, user_agent=None)
    assert endpoint.catalog.sql(count).to_pylist() == [{"n": 1}]  # there is no such transaction
    endpoint.catalog.gc()
    assert endpoint.catalog.sql(count).to_pylist() == [{"n": 1}]


def test_commits_name_the_request_as_json_that_every_reader_takes(endpoint: LocalEndpoint) -> None:
    make_table(EndpointClient(endpoint.url, endpoint.token), "s.t", "a.parquet")
    text = endpoint.catalog.sql("select commit_info from dl_table_versions where version = 1").to_pylist()
    info = json.loads(text[0]["commit_info"])
    assert info["deltalakedb"]["request"]["proof"] == "endpoint"


def test_nobody_writes_lines_of_his_own_into_the_log_of_dl_serve() -> None:
    message = "table \x1b[2J\n2026-01-01 00:00:00 WARNING forged \u2028 \r is away"
    try:
        raise ValueError("the reason")
    except ValueError:
        record = logging.LogRecord("deltalakedb", logging.WARNING, "x", 1, "%s", (message,), sys.exc_info())
    line, *trace = OneLineFormatter("%(levelname)s %(message)s").format(record).split("\n")
    assert line.isprintable()
    assert line.startswith("WARNING table \\x1b[2J\\n2026")
    assert (trace[0].strip(), trace[-1].strip()) == ("Traceback (most recent call last):", "ValueError: the reason")
