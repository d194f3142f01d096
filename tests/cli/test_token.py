"""`dl token`: tokens are created, listed and revoked, and their secrets are shown once."""

from __future__ import annotations

import json
import re

import pytest

import deltalakedb
from tests.cli.conftest import Dl


@pytest.fixture(autouse=True)
def _catalog_is_there(dl: Dl) -> None:
    assert dl("init").exit_code == 0


def test_a_token_is_created_listed_and_revoked(dl: Dl, catalog: str) -> None:
    created = dl("token", "create", "nightly", "--actor", "ada", "--group", "b", "--group", "a", "--expires", "90d")
    assert created.exit_code == 0
    assert re.fullmatch(r"dlt_[0-9a-f]{16}_[\w-]{43}\n", created.stdout)
    assert "cannot be shown again" in created.stderr
    (listed,) = json.loads(dl("token", "list", "--json").stdout)
    assert (listed["name"], listed["actor"], listed["groups"]) == ("nightly", "ada", ["a", "b"])
    assert listed["expires_ms"] - listed["created_at_ms"] == 90 * 86_400_000
    assert listed["revoked_at_ms"] is None
    assert created.stdout.strip() not in dl("token", "list").stdout
    assert dl("token", "revoke", "nightly").exit_code == 0
    assert json.loads(dl("token", "list", "--json").stdout)[0]["revoked_at_ms"] is not None
    with deltalakedb.connect(catalog) as cat:
        assert [row["action"] for row in cat.audit()][:2] == ["revoke token", "create token"]


def test_without_options_a_token_is_its_own_actor_and_lasts(dl: Dl) -> None:
    dl("token", "create", "loader")
    (listed,) = json.loads(dl("token", "list", "--json").stdout)
    assert (listed["actor"], listed["groups"], listed["expires_ms"]) == ("loader", [], None)


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["create", "twice"], 1, "there is a token 'twice' already"),
        (["create", "a\nb"], 2, "printable"),
        (["create", " a"], 2, "no space at its ends"),
        (["create", "x", "--actor", ""], 2, "1 to 255"),
        (["create", "x", "--group", "a\tb"], 2, "a group"),
        (["create", "x", "--expires", "0d"], 2, "such as 90d"),
        (["create", "x", "--expires", "-1d"], 2, "such as 90d"),
        (["create", "x", "--expires", "soon"], 2, "such as 90d"),
        (["revoke", "nobody"], 1, "there is no token 'nobody'"),
    ],
)
def test_misuse_is_said_in_one_line(dl: Dl, arguments: list[str], code: int, message: str) -> None:
    dl("token", "create", "twice")
    result = dl("token", *arguments)
    assert (result.exit_code, result.stdout) == (code, "")
    assert message in result.stderr
    assert len(result.stderr.splitlines()) == 1
