"""Passwords and keys never reach a line of output, a log record, a representation or the database."""

from __future__ import annotations

import logging
import pickle
from pathlib import Path

import pytest

import deltalakedb
from deltalakedb.exceptions import DeltaError
from tests.cli.conftest import Dl

PASSWORD = "hunter2-Pa55word"
ACCESS_KEY = "AKIAABCDEFGHIJKLMNOP"
SECRET_KEY = "wJalrXUtnFEMIK7MDENGbPxRfiCYEXAMPLEKEY"
TOKEN = "FwoGZXIvYXdzEJr-session-token"
SECRETS = (PASSWORD, ACCESS_KEY, SECRET_KEY, TOKEN)

NOBODY_THERE = f"postgresql://ann:{PASSWORD}@127.0.0.1:9/lake?connect_timeout=2"
KEYS = [
    f"AWS_ACCESS_KEY_ID={ACCESS_KEY}",
    f"aws_secret_access_key={SECRET_KEY}",
    f"AWS_SESSION_TOKEN={TOKEN}",
    "AWS_REGION=eu-central-1",
    "AWS_ENDPOINT_URL=http://127.0.0.1:9",
    "AWS_ALLOW_HTTP=true",
]
WITH_KEYS = [part for pair in KEYS for part in ("--storage-option", pair)]


def assert_no_secret(*texts: object) -> None:
    for text in texts:
        for secret in SECRETS:
            assert secret not in str(text)


@pytest.mark.parametrize("debug", [(), ("--debug",)], ids=["plain", "debug"])
@pytest.mark.parametrize(
    "uri",
    [
        NOBODY_THERE,
        f"deltasql://postgres/lake?host=127.0.0.1&port=9&user=ann&password={PASSWORD}&connect_timeout=2",
        f"host=127.0.0.1 port=9 user=ann password={PASSWORD} dbname=lake connect_timeout=2",
        f"postgresql://ann:{PASSWORD}@[bad/lake",
        f"deltasql://ann:{PASSWORD}@postgres/lake",
        f"mysql://ann:{PASSWORD}@h/db",
    ],
)
def test_a_password_in_the_catalog_uri_is_never_printed(
    dl: Dl, uri: str, debug: tuple[str, ...], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    result = dl("tables", "--catalog", uri, *debug)
    assert result.exit_code in (1, 2)
    assert result.stderr
    assert_no_secret(result.stdout, result.stderr, caplog.text)


def test_a_password_from_libpqs_environment_is_never_printed(dl: Dl, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    result = dl("tables", "--catalog", "deltasql://postgres/lake?host=127.0.0.1&port=9&connect_timeout=2", "--debug")
    assert result.exit_code == 1
    assert_no_secret(result.stderr)


@pytest.mark.parametrize("debug", [pytest.param((), marks=pytest.mark.slow), ("--debug",)], ids=["plain", "debug"])
def test_keys_in_storage_options_are_never_printed(
    dl: Dl, debug: tuple[str, ...], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    options = [*WITH_KEYS, "--storage-option", "max_retries=0", "--storage-option", "timeout=1s"]
    result = dl("attach", "s3://bucket/table", "--as", "a.b", *options, *debug)
    assert result.exit_code == 1
    assert_no_secret(result.stdout, result.stderr, caplog.text)
    nonsense = dl("attach", "s3://bucket/table", "--as", "a.b", "--storage-option", f"{SECRET_KEY}")
    assert nonsense.exit_code == 2
    assert_no_secret(nonsense.stderr)


def test_keys_are_not_stored_but_region_and_endpoint_are(dl: Dl, lake: Path, catalog: str) -> None:
    userinfo = f"--storage-option=endpoint=http://ann:{PASSWORD}@127.0.0.1:9"
    result = dl("attach", str(lake), "--as", "a.b", *WITH_KEYS, userinfo)
    assert result.exit_code == 0, result.stderr
    stored = dl("sql", "select properties from dl_tables", "--json").stdout
    for kept in ("AWS_REGION", "eu-central-1", "AWS_ENDPOINT_URL", "AWS_ALLOW_HTTP"):
        assert kept in stored
    for name in ("ACCESS_KEY", "secret", "TOKEN", "ann:"):
        assert name not in stored
    for file in Path(catalog).parent.glob("catalog.db*"):
        for secret in SECRETS:
            assert secret.encode() not in file.read_bytes()


def test_audit_rows_hold_no_secret(dl: Dl, lake: Path) -> None:
    dl("attach", str(lake), "--as", "a.b", *WITH_KEYS)
    assert_no_secret(dl("audit", "--json").stdout)


def test_no_representation_shows_a_secret(tmp_path: Path, lake: Path) -> None:
    options = dict(pair.split("=", 1) for pair in KEYS)
    with deltalakedb.connect(str(tmp_path / "c.db")) as catalog:
        table = catalog.attach_table(str(lake), "a.b", storage_options=options)
        assert_no_secret(
            repr(catalog), repr(table), repr(catalog.config), vars(catalog).get("uri"), repr(catalog.store)
        )
        assert_no_secret(
            catalog.follow("a.b", storage_options=options), catalog.validate("a.b", storage_options=options)
        )


def test_an_error_of_the_library_holds_no_secret_even_in_its_cause() -> None:
    with pytest.raises(DeltaError) as caught:
        deltalakedb.connect(NOBODY_THERE)
    error: BaseException | None = caught.value
    while error is not None:
        assert_no_secret(error, error.args)
        error = error.__cause__
    assert_no_secret(pickle.dumps(str(caught.value)))
