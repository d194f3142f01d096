"""Tokens of an identity provider: those of a real issuer, and forged ones, which must fail."""

from __future__ import annotations

import asyncio
import base64
import hmac
import http.server
import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from joserfc import jwt
from joserfc.jwk import ECKey, OctKey, RSAKey

from deltalakedb.exceptions import ConfigError, EndpointBusyError
from deltalakedb.runtime.caller import Caller
from deltalakedb.runtime.config import load_config
from deltalakedb.serve import LocalEndpoint
from deltalakedb.serve.identity import issuer_keys
from deltalakedb.serve.identity.oidc import OidcTokens
from deltalakedb.serve.workers import Workers
from deltalakedb.spark.endpoint import EndpointClient
from tests.fixtures.catalogs import NewCatalog
from tests.fixtures.oidc import Issuer, running_issuer
from tests.serve.test_identity import REQUESTS, status
from tests.serve.wire import make_table

AUDIENCE = "https://lake.example"
ISSUER = "https://issuer.example"


@pytest.fixture(scope="module")
def issuer() -> Iterator[Issuer]:
    with running_issuer() as issuer:
        yield issuer


def test_tokens_of_a_real_issuer_are_accepted_until_it_withdraws_their_key(
    issuer: Issuer, tmp_path: Path, new_catalog: NewCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(issuer_keys, "AGAIN_SECONDS", 0.0)
    new_catalog("sqlite", tmp_path / "c.db")
    settings = {"serve_oidc_issuer": issuer.url, "serve_oidc_audience": [AUDIENCE, "another"]}
    claims = {"serve_oidc_name_claim": "preferred_username"}
    with LocalEndpoint(tmp_path / "c.db", warehouse=str(tmp_path / "lake"), **settings, **claims) as endpoint:
        token = issuer.token(AUDIENCE)
        make_table(EndpointClient(endpoint.url, token))
        (row,) = endpoint.catalog.sql(REQUESTS).to_pylist()
        assert (row["actor"], row["proof"]) == ("ada", "oidc")
        assert status(endpoint, issuer.token("https://other.example")) == 401
        with running_issuer() as foreign:
            assert status(endpoint, foreign.token(AUDIENCE)) == 401
        issuer.replace_keys("second")
        newer = issuer.token(AUDIENCE)
        assert (status(endpoint, newer), status(endpoint, token)) == (200, 401)
        assert status(endpoint, endpoint.token) == 200


class _Keys(http.server.BaseHTTPRequestHandler):
    """Answers with the server's set of keys, and counts how often."""

    def do_GET(self) -> None:
        self.server.asked += 1  # type: ignore[attr-defined]
        data = json.dumps(self.server.answer).encode()  # type: ignore[attr-defined]
        self.send_response(200)
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: Any) -> None:
        pass


class Forge:
    """A set of keys at a URL, and tokens that are signed with any key."""

    def __init__(self) -> None:
        self.rsa = RSAKey.generate_key(2048, {"kid": "a", "use": "sig"})
        self.ec = ECKey.generate_key("P-256", {"kid": "b"})
        self.server = http.server.HTTPServer(("127.0.0.1", 0), _Keys)
        self.server.asked = 0  # type: ignore[attr-defined]
        self.publish(self.rsa.as_dict(private=False), self.ec.as_dict(private=False))
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.workers = Workers(2, wait_seconds=5)

    def publish(self, *keys: Any) -> None:
        self.server.answer = {"keys": list(keys)}  # type: ignore[attr-defined]

    @property
    def asked(self) -> int:
        return int(self.server.asked)  # type: ignore[attr-defined]

    def check(self, **settings: Any) -> OidcTokens:
        jwks = f"http://127.0.0.1:{self.server.server_address[1]}/keys"
        given = {"serve_oidc_issuer": ISSUER, "serve_oidc_audience": AUDIENCE, "serve_oidc_jwks": jwks, **settings}
        return OidcTokens(load_config(given, environ={}), self.workers)

    def prove(self, *tokens: str, **settings: Any) -> list[Caller | None]:
        async def prove_all() -> list[Caller | None]:
            check = self.check(**settings)
            return [await check.prove(token) for token in tokens]

        return asyncio.run(prove_all())

    def sign(self, header: dict[str, Any] | None = None, key: Any = None, **claims: Any) -> str:
        now = int(time.time())
        values = {"iss": ISSUER, "aud": AUDIENCE, "sub": "ada", "exp": now + 60, "iat": now} | claims
        values = {name: value for name, value in values.items() if value is not None}
        return jwt.encode({"alg": "RS256", "kid": "a"} | (header or {}), values, key or self.rsa, ["RS256", "ES256"])


@pytest.fixture(scope="module")
def forge() -> Iterator[Forge]:
    made = Forge()
    yield made
    made.server.shutdown()
    made.server.server_close()
    made.workers.close()


def text_of(part: Any) -> str:
    data = part if isinstance(part, bytes) else json.dumps(part).encode()
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def unsigned(header: Any, token: str, signature: str | None = None) -> str:
    """The claims and the signature of a token, under another header."""
    _, claims, old = token.split(".")
    return f"{text_of(header)}.{claims}.{old if signature is None else signature}"


def with_shared_secret(token: str, secret: bytes) -> str:
    """The claims of a token, signed by HS256 with a text that everybody knows, such as the public key."""
    signed = f"{text_of({'alg': 'HS256', 'kid': 'a'})}.{token.split('.')[1]}"
    return f"{signed}.{text_of(hmac.digest(secret, signed.encode(), 'sha256'))}"


def test_valid_tokens_name_their_user_and_groups(forge: Forge) -> None:
    assert forge.prove(
        forge.sign(groups=["x", "", " y", 7, "z\n"]),
        forge.sign({"alg": "ES256", "kid": "b"}, forge.ec, aud=["other", AUDIENCE], groups="one"),
        forge.sign(iat=int(time.time()) + 20, exp=int(time.time()) - 20),
        forge.sign(exp=time.time() + 5.5, iat=None, nbf=int(time.time())),
    ) == [
        Caller("ada", frozenset({"x"}), "oidc"),
        Caller("ada", frozenset({"one"}), "oidc"),
        Caller("ada", frozenset(), "oidc"),
        Caller("ada", frozenset(), "oidc"),
    ]


def test_claims_that_do_not_fit_are_refused(forge: Forge) -> None:
    now = int(time.time())
    tokens = [
        forge.sign(iss="https://issuer.example/"),
        forge.sign(iss=None),
        forge.sign(iss=[ISSUER]),
        forge.sign(aud="https://lake.example.evil"),
        forge.sign(aud=None),
        forge.sign(aud=[]),
        forge.sign(aud={AUDIENCE: 1}),
        forge.sign(exp=now - 31),
        forge.sign(exp=None),
        forge.sign(exp="tomorrow"),
        forge.sign(exp=True),
        forge.sign(exp=1e300),
        forge.sign(nbf=now + 100),
        forge.sign(iat=now + 100),
        forge.sign(sub=None),
        forge.sign(sub=""),
        forge.sign(sub="a\nb"),
        forge.sign(sub="x" * 256),
        forge.sign(sub=["ada"]),
        forge.sign(groups={"a": 1}),
        forge.sign(groups=["g"] * 1001),
    ]
    assert forge.prove(*tokens) == [None] * len(tokens)


def test_forged_and_downgraded_tokens_are_refused(forge: Forge) -> None:
    good, other = forge.sign(), RSAKey.generate_key(2048, {"kid": "a"})
    public_pem = forge.rsa.as_pem(private=False)
    public_texts = [public_pem, public_pem.strip(), json.dumps(forge.rsa.as_dict(private=False)).encode()]
    confused = [with_shared_secret(good, text) for text in public_texts]
    brought = {"jwk": other.as_dict(private=False), "alg": "RS256"}
    tokens = [
        *confused,
        *[unsigned({"alg": name, "kid": "a"}, good, "") for name in ("none", "None", "NONE", "nOnE", "")],
        *[unsigned({"alg": name, "kid": "a"}, good) for name in ("HS256", "ES256", "PS256", "RS1", None, ["RS256"], 7)],
        unsigned({"kid": "a"}, good),
        forge.sign(key=other),
        forge.sign(brought, other),
        forge.sign({"jku": "http://127.0.0.1:1/keys"}, other),
        forge.sign({"x5u": "http://127.0.0.1:1/keys"}),
        unsigned({"alg": "RS256", "kid": "a", "crit": ["exp"], "exp": 1}, good),
        good[:-2],
        good + "A",
        good.rpartition(".")[0] + ".",
        ".".join([*good.split("."), "x", "y"]),
        "..",
        "a.b.c",
        unsigned(b"[" * 5000, good),
        unsigned(b"\xff\xfe", good),
        f"{text_of({'alg': 'RS256', 'kid': 'a'})}.{text_of(b'{' * 3000)}.{'A' * 342}",
    ]
    assert forge.prove(*tokens) == [None] * len(tokens)
    assert forge.prove(good) == [Caller("ada", frozenset(), "oidc")]


def test_the_kid_of_a_token_only_chooses_among_the_issuers_keys(forge: Forge) -> None:
    before = forge.asked
    kids = ["../../../../dev/null", "/dev/null", "' or '1'='1", "a' --", "http://127.0.0.1:1/", "b", "", "A", "x" * 300]
    tokens = [forge.sign({"kid": kid}) for kid in kids]
    assert forge.prove(*tokens) == [None] * len(tokens)
    assert forge.asked == before + 1, "tokens with unknown keys must not make the endpoint ask the issuer each time"
    good = forge.sign()
    assert forge.prove(*[unsigned({"alg": "RS256", "kid": kid}, good) for kid in (["a"], {"a": 1}, 7)]) == [None] * 3


@pytest.mark.filterwarnings("ignore:Key size")  # the weak key is what the test is about
def test_keys_that_are_no_public_keys_for_signatures_are_not_used(forge: Forge) -> None:
    weak = RSAKey.generate_key(1024, {"kid": "a"}, auto_kid=False)
    shared = OctKey.generate_key(256, {"kid": "a"})
    rsa = forge.rsa.as_dict(private=False)
    try:
        for answer in ([weak.as_dict(private=False)], [shared.as_dict()], [rsa | {"use": "enc"}], [rsa, rsa], [7, {}]):
            forge.publish(*answer)
            assert forge.prove(forge.sign(), forge.sign(key=weak)) == [None, None], answer
        forge.publish(rsa | {"alg": "PS256"})
        assert forge.prove(forge.sign()) == [None]
    finally:
        forge.publish(rsa, forge.ec.as_dict(private=False))


def test_an_issuer_that_does_not_answer_is_not_a_refusal(forge: Forge) -> None:
    for url in ("http://127.0.0.1:1/keys", "http://localhost:1/keys"):
        with pytest.raises(EndpointBusyError, match="identity provider"):
            forge.prove(forge.sign(), serve_oidc_jwks=url)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"serve_oidc_audience": None}, "serve.oidc_audience is not set"),
        ({"serve_oidc_issuer": "http://issuer.example"}, "must be an https URL"),
        ({"serve_oidc_issuer": "file:///etc/passwd"}, "must be an https URL"),
        ({"serve_oidc_jwks": "http://10.0.0.1/keys"}, "must be an https URL"),
        ({"serve_oidc_algorithms": "RS256,HS256"}, "HS256 cannot be accepted"),
        ({"serve_oidc_algorithms": ["none"]}, "none cannot be accepted"),
    ],
)
def test_settings_that_would_let_anybody_in_are_refused(forge: Forge, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        forge.check(**settings)
