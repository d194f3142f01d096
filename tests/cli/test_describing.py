"""`dl comment`, `dl tag`, `dl search`, and what `dl show` shows of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Dl


@pytest.fixture(autouse=True)
def orders(dl: Dl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DL_WAREHOUSE", str(tmp_path / "lake"))
    schema = "id long, customer struct<email: string, city: string>"
    assert dl("create", "sales.orders", "--schema", schema).exit_code == 0
    assert dl("create", "sales.lines", "--schema", "id long").exit_code == 0


def read(dl: Dl, *arguments: str) -> Any:
    result = dl(*arguments, "--json")
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


def test_a_comment_is_set_shown_and_removed(dl: Dl) -> None:
    result = dl("comment", "sales.orders", "what was ordered")
    assert (result.exit_code, result.stderr) == (0, "set the comment on sales.orders\n")
    assert read(dl, "comment", "sales.orders", "never empty", "--column", "customer.email") == {
        "table": "sales.orders",
        "column": "customer.email",
        "comment": "never empty",
    }
    shown = dl("show", "sales.orders").stdout
    assert "what was ordered" in shown
    assert ["customer.email", "string", "never", "empty"] in [line.split() for line in shown.splitlines()]
    assert dl("comment", "sales.orders", "--column", "customer.email", "--remove").exit_code == 0
    assert "never empty" not in dl("show", "sales.orders").stdout


def test_tags_are_set_shown_removed_and_found(dl: Dl) -> None:
    assert dl("tag", "sales.orders", "pii=yes", "owner=ann=bob").exit_code == 0
    assert dl("tag", "sales.orders", "kind=address", "--column", "customer.email").exit_code == 0
    shown = read(dl, "show", "sales.orders")
    assert shown["tags"] == {"pii": "yes", "owner": "ann=bob"}
    text = dl("show", "sales.orders").stdout
    assert "tag pii" in text
    assert "property tag.pii" not in text
    assert "kind=address" in text
    assert [hit["table"] for hit in read(dl, "search", "--tag", "pii=yes")] == ["sales.orders"]
    result = dl("tag", "sales.orders", "owner=eve", "--remove", "pii")
    assert (result.exit_code, result.stderr) == (0, "changed owner, pii on sales.orders\n")
    assert read(dl, "search", "--tag", "pii") == []


def test_a_search_prints_a_table_or_json(dl: Dl) -> None:
    assert dl("comment", "sales.orders", "Invoices and receipts").exit_code == 0
    (hit,) = read(dl, "search", "RECEIPTS", "orders")
    assert (hit["table"], hit["comment"], hit["found_in"]) == (
        "sales.orders",
        "Invoices and receipts",
        ["name", "comment"],
    )
    result = dl("search", "city")
    assert result.exit_code == 0
    assert "column customer.city" in result.stdout
    assert [hit["table"] for hit in read(dl, "search", "--namespace", "sales")] == ["sales.lines", "sales.orders"]
    assert read(dl, "search", "nothing") == []


@pytest.mark.parametrize(
    "arguments",
    [
        ("comment", "sales.orders"),
        ("comment", "sales.orders", "text", "--remove"),
        ("tag", "sales.orders"),
        ("tag", "sales.orders", "pii"),
        ("tag", "sales.orders", "password=hunter2-hunter2"),
    ],
)
def test_misuse_is_one_line_and_exit_code_2(dl: Dl, arguments: tuple[str, ...]) -> None:
    result = dl(*arguments)
    assert result.exit_code == 2
    assert result.stderr.count("\n") == 1
    assert "hunter2" not in result.stderr
