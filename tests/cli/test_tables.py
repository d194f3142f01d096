"""`dl create`, `dl rename` and `dl drop` on tables that the catalog manages."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import deltalake
import pytest

from tests.cli.conftest import Dl


@pytest.fixture(autouse=True)
def _warehouse(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DL_WAREHOUSE", str(tmp_path / "lake"))


def shown(dl: Dl, name: str) -> dict[str, Any]:
    result = dl("show", name, "--json")
    assert result.exit_code == 0, result.stderr
    value: dict[str, Any] = json.loads(result.stdout)
    return value


def test_a_table_is_created_from_text(dl: Dl, tmp_path: Path) -> None:
    result = dl(
        "create", "sales.orders", "--schema", "id long not null, day date, region string",
        "--partition-by", "day,region",
        "--property", "delta.appendOnly=true", "--description", "what was ordered",
    )  # fmt: skip
    assert result.exit_code == 0, result.stderr
    assert result.stderr == f"created sales.orders at {(tmp_path / 'lake/sales/orders').as_uri()}/\n"
    value = shown(dl, "sales.orders")
    assert (value["mode"], value["version"], value["partition_columns"]) == ("managed", 0, ["day", "region"])
    assert (value["properties"], value["description"]) == ({"delta.appendOnly": "true"}, "what was ordered")
    assert deltalake.DeltaTable(tmp_path / "lake/sales/orders").version() == 0


def test_a_table_is_created_from_a_json_schema(dl: Dl, tmp_path: Path) -> None:
    file = tmp_path / "schema.json"
    file.write_text('{"type":"struct","fields":[{"name":"id","type":"long","nullable":true,"metadata":{}}]}')
    place = tmp_path / "elsewhere"
    assert dl("create", "t", "--schema", str(file), "--location", str(place)).exit_code == 0
    assert [field.name for field in deltalake.DeltaTable(place).schema().fields] == ["id"]


def test_a_dry_run_creates_nothing(dl: Dl, tmp_path: Path) -> None:
    result = dl("create", "t", "--schema", "id long", "--dry-run")
    assert (result.exit_code, result.stderr.startswith("would create default.t at ")) == (0, True)
    assert json.loads(dl("tables", "--json").stdout) == []
    assert not (tmp_path / "lake").exists()


def test_what_exists_is_not_created_again(dl: Dl) -> None:
    assert dl("create", "t", "--schema", "id long").exit_code == 0
    again = dl("create", "t", "--schema", "id long")
    assert (again.exit_code, "exists already" in again.stderr) == (1, True)
    calm = dl("create", "t", "--schema", "id long", "--if-missing")
    assert (calm.exit_code, "nothing was done" in calm.stderr) == (0, True)


@pytest.mark.parametrize(
    "arguments",
    [
        ("--schema", "id lonk"),
        ("--schema", "missing.json"),
        ("--schema", "id long", "--property", "no-value"),
        (),
    ],
)
def test_misuse_is_told_apart_from_failure(dl: Dl, arguments: tuple[str, ...]) -> None:
    result = dl("create", "t", *arguments)
    assert result.exit_code == 2
    assert "Traceback" not in result.output


def test_without_a_warehouse_it_says_what_to_give(dl: Dl, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DL_WAREHOUSE")
    result = dl("create", "t", "--schema", "id long")
    assert (result.exit_code, "DL_WAREHOUSE" in result.stderr) == (2, True)


def test_a_table_of_others_is_not_created_over(dl: Dl, lake: Path) -> None:
    result = dl("create", "t", "--schema", "other string", "--location", str(lake))
    assert (result.exit_code, "its columns are" in result.stderr) == (1, True)
    result = dl("create", "t", "--location", str(lake))
    assert (result.exit_code, result.stderr.startswith("attached default.t")) == (0, True), result.stderr
    assert shown(dl, "t")["mode"] == "follower"


def test_rename_and_drop_of_a_managed_table(dl: Dl, tmp_path: Path) -> None:
    dl("create", "sales.orders", "--schema", "id long")
    assert dl("rename", "sales.orders", "sales.o").exit_code == 0
    assert shown(dl, "sales.o")["version"] == 1
    trial = dl("drop", "sales.o", "--dry-run")
    assert (trial.exit_code, trial.stderr.startswith("would drop sales.o (managed, version 1)")) == (0, True)
    result = dl("drop", "sales.o")
    assert (result.exit_code, "dl undrop sales.o" in result.stderr) == (0, True), result.stderr
    assert json.loads(dl("tables", "--json").stdout) == []
    (dropped,) = json.loads(dl("tables", "--dropped", "--json").stdout)
    assert (dropped["table"], dropped["state"], dropped["version"]) == ("sales.o", "dropped", 2)
    assert dl("undrop", "sales.o", "--as", "sales.back", "--dry-run").exit_code == 0
    assert dl("undrop", "sales.o", "--as", "sales.back").stderr.startswith("brought back sales.back")
    assert shown(dl, "sales.back")["version"] == 3
    assert deltalake.DeltaTable(tmp_path / "lake/sales/orders").version() == 3
    missing = dl("undrop", "sales.o")
    assert (missing.exit_code, "nothing can be undropped" in missing.stderr) == (1, True)
    actions = [entry["action"] for entry in json.loads(dl("audit", "--json").stdout)]
    assert actions == ["undrop", "drop", "rename", "create"]


def test_a_table_whose_location_was_given_is_detached_when_it_is_dropped(dl: Dl, tmp_path: Path) -> None:
    dl("create", "sales.orders", "--schema", "id long", "--location", str(tmp_path / "mine"))
    assert dl("drop", "sales.orders").stderr.endswith("stay\n")
    assert deltalake.DeltaTable(tmp_path / "mine").protocol().writer_features is None
    assert json.loads(dl("tables", "--dropped", "--json").stdout) == []


def test_a_protected_table_is_not_dropped(dl: Dl) -> None:
    dl("create", "sales.orders", "--schema", "id long", "--property", "drop_protection=true")
    for options in ((), ("--purge",), ("--dry-run",)):
        result = dl("drop", "sales.orders", *options)
        assert (result.exit_code, "drop_protection is true" in result.stderr) == (1, True), result.stderr
    assert len(json.loads(dl("tables", "--json").stdout)) == 1


def test_namespaces_are_created_listed_changed_and_dropped(dl: Dl) -> None:
    assert dl("namespace", "create", "eu.sales", "--property", "team=shop").exit_code == 0
    again = dl("namespace", "create", "EU.Sales")
    assert (again.exit_code, "exists already" in again.stderr) == (1, True)
    assert dl("namespace", "create", "EU.Sales", "--if-missing").exit_code == 0
    assert dl("namespace", "set", "eu.sales", "--property", "tier=1", "--remove", "team").exit_code == 0
    found = {one["namespace"]: one["properties"] for one in json.loads(dl("namespace", "list", "--json").stdout)}
    assert found == {"default": {}, "eu.sales": {"tier": "1"}}
    assert [one["namespace"] for one in json.loads(dl("namespace", "list", "eu", "--json").stdout)] == ["eu.sales"]
    dl("create", "eu.sales.orders", "--schema", "id long")
    held = dl("namespace", "drop", "eu.sales")
    assert (held.exit_code, "holds the table orders" in held.stderr) == (1, True)
    dl("drop", "eu.sales.orders")
    assert dl("namespace", "drop", "eu.sales", "--dry-run").exit_code == 0
    assert dl("namespace", "drop", "eu.sales").exit_code == 0
    gone = dl("namespace", "drop", "eu.sales")
    assert (gone.exit_code, "no namespace eu.sales" in gone.stderr) == (1, True)
    assert dl("undrop", "eu.sales.orders").exit_code == 0, "its namespace comes back with it"


def test_a_purge_deletes_the_files_and_its_dry_run_does_not(dl: Dl, tmp_path: Path) -> None:
    dl("create", "sales.orders", "--schema", "id long")
    trial = dl("drop", "sales.orders", "--purge", "--dry-run")
    assert "would be deleted" in trial.stderr
    assert (tmp_path / "lake/sales/orders/_delta_log").exists()
    assert "are deleted" in dl("drop", "sales.orders", "--purge").stderr
    assert not (tmp_path / "lake/sales/orders").exists()


def test_a_purge_of_a_follower_is_refused(dl: Dl, attached: Path) -> None:
    for options in (("--purge",), ("--purge", "--dry-run")):
        result = dl("drop", "sales.orders", *options)
        assert (result.exit_code, "belong to others" in result.stderr) == (1, True)
    assert attached.exists()


def test_names_in_backticks_are_created_shown_renamed_and_dropped(dl: Dl, tmp_path: Path) -> None:
    for name in ("sales.my-table", "sales.`a.b`", "`x/y`.`it's`"):
        assert dl("create", name, "--schema", "id long").exit_code == 0
    listed = json.loads(dl("tables", "--json").stdout)
    assert [(one["namespace"], one["name"]) for one in listed] == [
        ("`x/y`", "it's"),
        ("sales", "a.b"),
        ("sales", "my-table"),
    ]
    assert "sales.`my-table`" in dl("tables").stdout
    assert shown(dl, "sales.`MY-TABLE`") == shown(dl, "sales.my-table")
    assert deltalake.DeltaTable(tmp_path / "lake/x~2Fy/it~27s").version() == 0
    assert dl("rename", "`x/y`.`it's`", "sales.`c/d`").exit_code == 0
    assert dl("history", "sales.`c/d`").exit_code == 0
    assert dl("drop", "sales.`a.b`").exit_code == 0
    refused = dl("show", "sales.c/d")
    assert refused.exit_code == 2
    assert "a slash outside of backticks" in refused.stderr
    assert "not a valid name: a backtick is not closed" in dl("create", "sales.`a", "--schema", "id long").stderr
    assert [one["name"] for one in json.loads(dl("tables", "sales", "--json").stdout)] == ["c/d", "my-table"]


def test_an_empty_listing_says_why_it_is_empty(dl: Dl) -> None:
    assert dl("create", "sales.orders", "--schema", "id long").exit_code == 0
    assert dl("namespace", "create", "eu").exit_code == 0
    wrong = dl("tables", "sale")
    assert (wrong.exit_code, wrong.stderr) == (0, "there is no namespace sale; did you mean sales?\n")
    assert "`dl namespace list` lists those that exist" in dl("tables", "x.y").stderr
    assert dl("tables", "eu").stderr.startswith("the namespace eu has no tables; `dl tables --dropped eu`")
    listed = dl("tables", "sale", "--json")
    assert (listed.exit_code, json.loads(listed.stdout)) == (0, [])
    assert dl("tables", "sales").stderr == ""


def test_a_namespace_is_dropped_with_its_tables(dl: Dl) -> None:
    assert dl("create", "eu.a", "--schema", "id long").exit_code == 0
    assert dl("create", "eu.inner.b", "--schema", "id long").exit_code == 0
    assert dl("namespace", "drop", "eu").exit_code == 1
    would = dl("namespace", "drop", "eu", "--cascade", "--dry-run")
    assert (would.exit_code, would.stderr) == (0, "would drop the namespace eu with 2 tables\n")
    assert len(json.loads(dl("tables", "--json").stdout)) == 2
    assert dl("namespace", "drop", "eu", "--cascade").stderr == "dropped the namespace eu with 2 tables\n"
    assert json.loads(dl("tables", "--json").stdout) == []
