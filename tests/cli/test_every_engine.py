"""The whole round of commands on each engine, the catalog named by `--catalog`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import deltalake
import pytest

from tests.cli.conftest import Dl, rows


@pytest.fixture(params=["sqlite", "duckdb", "postgres"])
def uri(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "postgres":
        return str(request.getfixturevalue("postgres_dsn"))
    return f"deltasql://{request.param}/{tmp_path}/a catalog.{request.param}"


def test_the_whole_round_of_commands(dl: Dl, uri: str, lake: Path) -> None:
    def run(*arguments: str) -> Any:
        result = dl(*arguments, "--catalog", uri, "--json")
        assert result.exit_code == 0, (arguments, result.stderr)
        return json.loads(result.stdout)

    assert run("init")["schema_version"] == run("init")["schema_version"]
    assert run("attach", str(lake), "--as", "sales.orders")[0]["version"] == 2
    assert run("tables")[0]["num_files"] == 9
    assert run("show", "sales.orders")["num_records"] == 90
    assert [entry["version"] for entry in run("history", "sales.orders")] == [2, 1, 0]
    assert len(run("diff", "sales.orders", "0", "2")["added"]) == 6
    assert len(run("files", "sales.orders", "--where", "id = 75 and day = '2026-01-01'")) == 1
    assert run("plan", "sales.orders", "--where", "id > 60")["num_pruned"] == 6
    assert run("sql", "select count(*) as n from dl_add_files") == [{"n": 9}]
    deltalake.write_deltalake(str(lake), rows(91, 93), mode="append")
    assert run("follow")[0]["to_version"] == 3
    assert run("validate", "--all")[0]["drift"] is None
    assert dl("rename", "sales.orders", "o", "--catalog", uri).exit_code == 0
    assert dl("drop", "default.o", "--catalog", uri).exit_code == 0
    assert [entry["action"] for entry in run("audit")] == ["drop", "rename", "attach"]
    assert run("tables") == []
    assert run("migrate", "down", "--to", "0")["to"] == 0
    refused = dl("sql", "delete from dl_tables", "--catalog", uri)
    assert refused.exit_code == 1


def test_a_query_cannot_reach_beyond_the_catalog(dl: Dl, uri: str, tmp_path: Path) -> None:
    dl("init", "--catalog", uri)
    outside = tmp_path / "outside.csv"
    outside.write_text("a\n1\n")
    for query in (
        f"select * from read_csv('{outside}')",
        f"select * from '{outside}'",
        f"copy (select 1) to '{tmp_path}/out.csv'",
        f"attach '{tmp_path}/other.db' as other",
        "pragma journal_mode = delete",
        "set enable_external_access = true",
        "with gone as (delete from dl_tables returning 1) select * from gone",
    ):
        result = dl("sql", query, "--catalog", uri)
        assert result.exit_code == 1, (query, result.stdout)
        assert result.stderr.count("\n") == 1
    assert not (tmp_path / "out.csv").exists()
    assert not (tmp_path / "other.db").exists()
