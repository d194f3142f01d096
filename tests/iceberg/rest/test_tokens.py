"""Who is let in: clients with the token, and those that get it from the token endpoint."""

from __future__ import annotations

import base64
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pyarrow as pa
import pytest
from pyiceberg.catalog.rest import RestCatalog

from deltalakedb import connect
from deltalakedb.serve.identity.named_tokens import REVOKED_WITHIN_SECONDS
from deltalakedb.serve.server import Endpoint
from tests.fixtures.catalogs import NewCatalog
from tests.iceberg.rest.wire import Answer, Client

TOKEN = "a-token-of-the-tests"
ISSUER = "https://issuer.example"
TOKENS = "/v1/oauth/tokens"
FORM = {"Content-Type": "application/x-www-form-urlencoded"}
EXCHANGE = "urn:ietf:params:oauth:grant-type:token-exchange"


@pytest.fixture
def locked(tmp_path: Path, warehouse: Path, new_catalog: NewCatalog) -> Iterator[Client]:
    """A client without a token, of an endpoint that wants one."""
    new_catalog("sqlite", tmp_path / "catalog.db")
    with Endpoint(tmp_path / "catalog.db", token=TOKEN, iceberg=True, warehouse=str(warehouse)) as endpoint:
        yield Client(endpoint.url)


def ask(client: Client, headers: dict[str, str] | None = None, **form: str) -> Answer:
    return client.post(TOKENS, urlencode(form).encode(), headers={**FORM, **(headers or {})})


@pytest.mark.parametrize("authorization", [None, "Bearer None", "Bearer another-token", "Basic abc", TOKEN])
def test_without_the_token_nothing_is_answered(locked: Client, authorization: str | None) -> None:
    headers = {"Authorization": authorization} if authorization else {}
    for method, path in [("GET", "/v1/config"), ("GET", "/v1/namespaces"), ("POST", "/v1/namespaces"), ("GET", "/x")]:
        refused = locked.ask(method, path, {"namespace": ["a"]} if method == "POST" else None, headers=headers)
        assert refused.error == (401, "NotAuthorizedException")
        assert refused.headers["www-authenticate"] == "Bearer"
        assert TOKEN not in refused.message


def test_with_the_token_requests_are_answered(locked: Client) -> None:
    assert locked.get("/v1/config", headers={"Authorization": f"Bearer {TOKEN}"}).status == 200


def test_a_client_whose_secret_is_the_token_gets_it(locked: Client) -> None:
    basic = base64.b64encode(f"me:{TOKEN}".encode()).decode()
    for answer in (
        ask(locked, grant_type="client_credentials", client_id="me", client_secret=TOKEN, scope="catalog"),
        ask(locked, {"Authorization": f"Basic {basic}"}, grant_type="client_credentials"),
        ask(locked, grant_type=EXCHANGE, subject_token=TOKEN),
    ):
        assert answer.status == 200, answer.body
        assert answer.json["access_token"] == TOKEN
        assert answer.json["token_type"] == "bearer"
        assert answer.headers["cache-control"] == "no-store"


def test_another_secret_is_refused_in_the_form_of_oauth(locked: Client) -> None:
    for answer in (
        ask(locked, grant_type="client_credentials", client_id="me", client_secret="guessed"),
        ask(locked, grant_type="client_credentials"),
        ask(locked, {"Authorization": "Basic !"}, grant_type="client_credentials"),
        ask(locked, grant_type=EXCHANGE, subject_token="guessed"),
        ask(locked, grant_type="client_credentials", client_secret="ÿ"),
    ):
        assert (answer.status, answer.json["error"]) == (401, "invalid_client")
        assert TOKEN not in answer.body.decode()
    for answer in (ask(locked, grant_type="password"), ask(locked)):
        assert (answer.status, answer.json["error"]) == (400, "unsupported_grant_type")
    for body in (b"\xff", b"&" * 1000, b"x" * 100_000, b""):
        assert locked.post(TOKENS, body, headers=FORM).json["error"] == "unsupported_grant_type"


def test_where_no_token_is_needed_any_is_fine(client: Client) -> None:
    for authorization in ("Bearer None", "Bearer x", "Basic abc"):
        assert client.get("/v1/config", headers={"Authorization": authorization}).status == 200
    assert ask(client, grant_type="client_credentials", client_secret="x").json["access_token"] == "none"


def test_where_no_token_is_needed_web_pages_are_refused(client: Client) -> None:
    refused = client.post("/v1/namespaces", {"namespace": ["a"]}, headers={"Origin": "https://example.com"})
    assert refused.status == 403
    assert refused.error == (403, "NotAuthorizedException")
    assert client.head("/v1/namespaces/a").status == 404


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "192.168.1.5:80", "[fe80::1]", ""])
def test_where_no_token_is_needed_names_of_other_machines_are_refused(client: Client, host: str) -> None:
    """A page that was loaded under a name which now means this machine sends no origin, but that name."""
    assert client.get("/v1/config", headers={"Host": host}).status == 403


@pytest.mark.parametrize("host", ["127.0.0.1:9", "localhost", "LOCALHOST:1", "[::1]:80", "127.1.2.3"])
def test_where_no_token_is_needed_this_machine_has_several_names(client: Client, host: str) -> None:
    assert client.get("/v1/config", headers={"Host": host}).status == 200


@pytest.mark.parametrize("settings", [{"token": TOKEN}, {"credential": f"me:{TOKEN}"}])
def test_pyiceberg_signs_in(tmp_path: Path, warehouse: Path, settings: dict[str, str]) -> None:
    with Endpoint(tmp_path / "c.db", token=TOKEN, bridge=False, iceberg=True, warehouse=str(warehouse)) as endpoint:
        catalog = RestCatalog("lake", uri=f"{endpoint.url}/iceberg", warehouse="c", **settings)
        catalog.create_namespace("shop")
        catalog.create_table("shop.orders", pa.schema([("id", pa.int64())]))
        assert catalog.list_tables("shop") == [("shop", "orders")]


def test_for_a_named_token_a_client_gets_a_short_lived_one_that_ends_with_it(
    tmp_path: Path, warehouse: Path, new_catalog: NewCatalog
) -> None:
    new_catalog("sqlite", tmp_path / "catalog.db")
    settings: dict[str, Any] = {"serve_oidc_issuer": ISSUER, "serve_oidc_audience": "lake"}
    with Endpoint(tmp_path / "catalog.db", token=TOKEN, iceberg=True, warehouse=str(warehouse), **settings) as endpoint:
        client = Client(endpoint.url)
        named = endpoint.catalog.create_token("nightly", "ada", expires=timedelta(minutes=10)).secret
        granted = ask(client, grant_type="client_credentials", client_id="nightly", client_secret=named)
        short = granted.json["access_token"]
        assert 590 <= granted.json["expires_in"] <= 600  # as long as the named token
        renewed = ask(client, grant_type=EXCHANGE, subject_token=short).json["access_token"]
        assert len({named, short, renewed}) == 3
        for token in (short, renewed):
            body = {"namespace": [f"of_{token[4:8]}"]}
            headers = {"Authorization": f"Bearer {token}"}
            assert client.post("/v1/namespaces", body, headers=headers).status == 200
        assert [row["actor"] for row in endpoint.catalog.audit(limit=2)] == ["ada", "ada"]
        refused = ask(client, grant_type="client_credentials", client_secret=short)
        assert (refused.status, refused.json["error"]) == (401, "invalid_client")
        assert ISSUER in refused.json["error_description"]
        assert [token.name for token in endpoint.catalog.tokens()] == ["nightly"]
        endpoint.catalog.revoke_token("nightly")
        time.sleep(REVOKED_WITHIN_SECONDS)
        for token in (named, short, renewed):
            assert client.get("/v1/config", headers={"Authorization": f"Bearer {token}"}).status == 401
            assert ask(client, grant_type=EXCHANGE, subject_token=token).status == 401


def test_an_idempotency_key_is_of_the_user_who_sent_it_first(locked: Client, tmp_path: Path) -> None:
    with connect(tmp_path / "catalog.db") as catalog:
        secrets = [TOKEN, TOKEN, catalog.create_token("other", "eve").secret]
    headers = [
        {"Authorization": f"Bearer {secret}", "Idempotency-Key": "01890a5d-ac96-774b-bcce-b302099a8057"}
        for secret in secrets
    ]
    answers = [locked.post("/v1/namespaces", {"namespace": ["a"]}, headers=sent) for sent in headers]
    assert [answer.status for answer in answers] == [200, 200, 422]
