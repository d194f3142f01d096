"""`dl read`: rows for people, as JSON and as CSV."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Dl


@pytest.fixture(autouse=True)
def _attached(dl: Dl, lake: Path) -> None:
    assert dl("attach", str(lake), "--as", "sales.orders").exit_code == 0


def test_rows_are_chosen_by_predicate_columns_and_limit(dl: Dl) -> None:
    result = dl("read", "sales.orders", "--where", "id > 88", "--columns", "id,amount")
    assert result.exit_code == 0, result.stderr
    assert sorted(result.stdout.splitlines()) == ["89\t133.5", "90\t135.0", "id\tamount"]
    limited = dl("read", "sales.orders", "--limit", "5")
    assert len(limited.stdout.splitlines()) == 6
    assert dl("read", "sales.orders", "--limit", "0").stdout == "id\tday\tamount\n"


def test_rows_are_json_or_csv(dl: Dl) -> None:
    found = json.loads(dl("read", "sales.orders", "--where", "id = 3", "--json").stdout)
    assert found == [{"id": 3, "day": "2026-01-01", "amount": 4.5}]
    result = dl("read", "sales.orders", "--where", "id = 3", "--csv")
    assert result.stdout == "id,day,amount\n3,2026-01-01,4.5\n"


def test_an_older_version_is_read(dl: Dl) -> None:
    assert len(dl("read", "sales.orders", "--version", "0").stdout.splitlines()) == 31
    assert len(dl("read", "sales.orders", "--timestamp", "2099-01-01T00:00:00Z").stdout.splitlines()) == 91


@pytest.mark.parametrize(
    "arguments",
    [["--where", "nosuch = 1"], ["--columns", "nosuch"], ["--version", "1", "--timestamp", "2026-01-01"],
     ["--csv", "--json"]],
    ids=str,
)  # fmt: skip
def test_what_cannot_be_read_is_misuse(dl: Dl, arguments: list[str]) -> None:
    result = dl("read", "sales.orders", *arguments)
    assert result.exit_code == 2
    assert result.stdout == ""
