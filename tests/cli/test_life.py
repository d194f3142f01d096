"""`dl import`, `dl promote`, `dl detach`, `dl mirror resolve`, `dl import --rebuild`: a table's life by commands."""

from __future__ import annotations

import json
from pathlib import Path

import deltalake
import pytest

from deltalakedb.log.protocol.fence import FEATURE
from tests.cli.conftest import Dl, rows


def modes(dl: Dl) -> dict[str, str]:
    return {row["table"]: row["mode"] for row in json.loads(dl("tables", "--json").stdout)}


def append_like_others(lake: Path) -> None:
    deltalake.write_deltalake(str(lake), rows(100, 101), mode="append")


def test_import_makes_a_managed_table(dl: Dl, lake: Path) -> None:
    said = dl("import", str(lake), "--as", "sales.orders")
    assert said.exit_code == 0, said.stderr
    assert "sales.orders is imported at version 3: 9 files" in said.stderr
    assert modes(dl) == {"sales.orders": "managed"}
    with pytest.raises(deltalake.exceptions.DeltaError, match=FEATURE):
        append_like_others(lake)
    again = dl("import", str(lake), "--as", "sales.orders", "--json")
    assert json.loads(again.stdout)[0]["version"] == 3, "a second import changes nothing"


def test_promote_and_detach_go_there_and_back(dl: Dl, attached: Path) -> None:
    would = dl("promote", "sales.orders", "--dry-run")
    assert (would.exit_code, "would become managed" in would.stderr) == (0, True)
    assert modes(dl) == {"sales.orders": "follower"}
    promoted = json.loads(dl("promote", "sales.orders", "--json").stdout)
    assert promoted == [
        {
            "table": "sales.orders",
            "from": "follower",
            "to": "managed",
            "version": 3,
            "location": f"{attached.as_uri()}/",
        }
    ]
    assert "is managed already" in dl("promote", "sales.orders").stderr
    would = dl("detach", "sales.orders", "--dry-run")
    assert (would.exit_code, "would become detached" in would.stderr) == (0, True)
    detached = dl("detach", "sales.orders")
    assert (detached.exit_code, "sales.orders is detached now, at version 4" in detached.stderr) == (0, True)
    append_like_others(attached)
    assert dl("promote", "sales.orders").exit_code == 0
    assert json.loads(dl("show", "sales.orders", "--json").stdout)["version"] == 6


def test_one_failure_does_not_keep_the_others_waiting(dl: Dl, attached: Path) -> None:
    result = dl("promote", "sales.nowhere", "sales.orders", "--json")
    assert result.exit_code == 1
    assert "there is no table sales.nowhere" in result.stderr
    assert modes(dl) == {"sales.orders": "managed"}
    refused = dl("detach", "sales.nowhere")
    assert (refused.exit_code, attached.exists()) == (1, True)


def test_a_follower_cannot_be_detached_and_a_managed_table_not_followed(dl: Dl, attached: Path) -> None:
    refused = dl("detach", "sales.orders")
    assert (refused.exit_code, "nothing to detach" in refused.stderr) == (1, True)
    dl("promote", "sales.orders")
    refused = dl("follow", "sales.orders")
    assert (refused.exit_code, "only a follower" in refused.stderr) == (1, True)
    assert attached.exists()


def put_foreign_commit(lake: Path, version: int) -> None:
    info = json.dumps({"commitInfo": {"operation": "WRITE", "engineInfo": "somebody else", "isBlindAppend": True}})
    (lake / "_delta_log" / f"{version:020d}.json").write_text(info + "\n")


def test_resolve_says_what_it_did_or_would_do(dl: Dl, lake: Path) -> None:
    dl("import", str(lake), "--as", "sales.orders")
    nothing = dl("mirror", "resolve", "sales.orders", "--adopt")
    assert "agree up to version 3, there is nothing to resolve" in nothing.stdout
    put_foreign_commit(lake, 4)
    would = dl("mirror", "resolve", "sales.orders", "--adopt", "--dry-run")
    assert "versions 4 to 4 of the files would be taken in" in would.stdout
    done = json.loads(dl("mirror", "resolve", "sales.orders", "--adopt", "--json").stdout)
    assert (done["first_version"], done["last_version"], done["version"], done["state"]) == (4, 4, 4, "live")
    put_foreign_commit(lake, 5)
    overruled = dl("mirror", "resolve", "sales.orders", "--overrule")
    assert overruled.exit_code == 0, overruled.stderr
    assert json.loads(dl("validate", "sales.orders", "--json").stdout)[0]["drift"] is None
    assert [entry["action"] for entry in json.loads(dl("audit", "--json").stdout)][:2] == ["resolve", "freeze"]


@pytest.mark.parametrize("choice", [(), ("--adopt", "--overrule")])
def test_resolve_wants_one_decision(dl: Dl, lake: Path, choice: tuple[str, ...]) -> None:
    dl("import", str(lake), "--as", "sales.orders")
    misused = dl("mirror", "resolve", "sales.orders", *choice)
    assert (misused.exit_code, "give --adopt or --overrule" in misused.stderr) == (2, True)


def test_an_empty_catalog_is_rebuilt_from_its_mirrors(dl: Dl, lake: Path, tmp_path: Path) -> None:
    dl("import", str(lake), "--as", "sales.orders")
    other = ("--catalog", str(tmp_path / "new.db"))
    rebuilt = dl("import", "--rebuild", str(lake.parent), *other)
    assert rebuilt.exit_code == 0, rebuilt.stderr
    assert "sales.orders is back at version 3" in rebuilt.stderr
    assert "1 transactions" in rebuilt.stderr
    assert json.loads(dl("tables", "--json", *other).stdout)[0]["mode"] == "managed"
    refused = dl("import", "--rebuild", str(lake.parent), *other)
    assert (refused.exit_code, "not empty" in refused.stderr) == (1, True)
    third = ("--catalog", str(tmp_path / "third.db"))
    refused = dl("import", "--rebuild", str(lake.parent), "--take-over", "nobody", *third)
    assert (refused.exit_code, "catalog nobody" in refused.stderr) == (1, True)
    said = json.loads(dl("import", "--rebuild", str(lake.parent), "--json", *third).stdout)
    assert [row["table"] for row in said["tables"]] == ["sales.orders"]


@pytest.mark.parametrize(
    "arguments",
    [
        ("--rebuild", "PREFIX", "--as", "a.b"),
        ("--rebuild", "PREFIX", "--recursive", "PREFIX"),
        ("PATH", "--as", "a.b", "--take-over", "x"),
    ],
)
def test_options_of_import_that_do_not_go_together(dl: Dl, arguments: tuple[str, ...]) -> None:
    misused = dl("import", *arguments)
    assert (misused.exit_code, misused.stdout) == (2, "")
    assert "--rebuild" in misused.stderr


def test_a_managed_table_is_dropped_and_its_files_are_free_again(dl: Dl, lake: Path) -> None:
    dl("import", str(lake), "--as", "sales.orders")
    dropped = dl("drop", "sales.orders")
    assert dropped.exit_code == 0, dropped.stderr
    append_like_others(lake)
    assert deltalake.DeltaTable(str(lake)).version() == 5
