"""`dl gc` and `dl validate`: what they print, as tables and as JSON, and their exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

import deltalakedb
from tests.cli.conftest import Dl


@pytest.fixture
def managed(catalog: str, attached: Path, tmp_path: Path) -> Path:
    """Beside the follower sales.orders: the managed table sales.items at version 3; its log."""
    with deltalakedb.connect(catalog, warehouse=str(tmp_path / "warehouse")) as cat:
        cat.create_table("sales.items", "id long")
        for number in range(3):
            with cat.begin() as tx:
                tx.write("sales.items", pa.table({"id": [number]}), mode="append")
    assert attached.exists()
    return tmp_path / "warehouse" / "sales" / "items" / "_delta_log"


# -- gc


@pytest.mark.usefixtures("managed")
def test_gc_within_the_retention_removes_nothing(dl: Dl) -> None:
    done = dl("gc", "--json")
    assert done.exit_code == 0, done.stderr
    report = json.loads(done.stdout)
    assert (report["dry_run"], report["rows_removed"]) == (False, 0)
    assert [row["table"] for row in report["tables"]] == ["sales.orders", "sales.items"]


@pytest.mark.usefixtures("managed")
def test_gc_shows_first_what_it_would_do(dl: Dl, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DL_RETENTION_LOG_DAYS", "0")
    before = dl("history", "sales.items").stdout
    would = dl("gc", "--dry-run", "--json")
    assert dl("history", "sales.items").stdout == before
    done = dl("gc", "--json")
    assert json.loads(done.stdout) == json.loads(would.stdout) | {"dry_run": False}
    rows = {row["table"]: row for row in json.loads(done.stdout)["tables"]}
    assert (rows["sales.items"]["first_version"], rows["sales.items"]["versions_removed"]) == (2, 2)
    assert (rows["sales.orders"]["first_version"], rows["sales.orders"]["versions_removed"]) == (1, 1)
    gone = dl("show", "sales.items", "--version", "1")
    assert gone.exit_code == 1
    assert "because `dl gc` removed what was older" in gone.stderr
    assert dl("validate", "--all").exit_code == 0


@pytest.mark.usefixtures("managed")
def test_gc_prints_a_table_for_people(dl: Dl, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DL_RETENTION_LOG_DAYS", "0")
    done = dl("gc", "sales.items")
    header, row = done.stdout.splitlines()
    assert header == "table\tstarts at\tversions removed\trows removed\tnote"
    assert row.startswith("sales.items\t2\t2\t")
    assert "rows removed" in done.stderr


@pytest.mark.usefixtures("managed")
def test_gc_keeps_the_audit_trail_unless_asked(dl: Dl) -> None:
    assert json.loads(dl("gc", "--json").stdout)["audit_rows_removed"] == 0
    assert json.loads(dl("gc", "--audit-days", "0", "--json").stdout)["audit_rows_removed"] > 0
    wrong = dl("gc", "sales.items", "--audit-days", "0")
    assert wrong.exit_code == 2
    assert "--audit-days" in wrong.stderr


# -- validate


@pytest.mark.usefixtures("managed")
def test_validate_all_sums_up_every_table(dl: Dl) -> None:
    done = dl("validate", "--all")
    assert done.exit_code == 0, done.stderr
    header, *rows = done.stdout.splitlines()
    assert header == "table\tresult\tsql\tfiles\tlag\tcommits\tstates\tcheckpoints\tchecksums"
    assert rows == [
        "sales.items\tagree up to version 3\t3\t3\t0\t4\t1\t0\t4",
        "sales.orders\tagree up to version 2\t2\t2\t0\t3\t1\t0\t0",
    ]


def test_validate_reports_drift_with_both_sides_and_what_to_do(dl: Dl, managed: Path) -> None:
    (managed / f"{4:020}.json").write_text('{"commitInfo":{"operation":"somebody"}}\n')
    done = dl("validate", "--all")
    assert done.exit_code == 1
    assert "sales.items\tDRIFT at version 4" in done.stdout
    assert "sales.orders\tagree up to version 2" in done.stdout
    assert "  what to do: another writer" in done.stdout
    assert "dl mirror resolve sales.items --adopt" in done.stdout
    (report,) = json.loads(dl("validate", "sales.items", "--json").stdout)
    assert report["drift"] == report["drifts"][0]
    assert (report["drift"]["part"], report["drift"]["version"]) == ("versions", 4)
    assert (report["drift"]["in_sql"], report["drift"]["in_files"]) == ("3 as the newest", "4")


def test_validate_puts_back_what_the_files_have_lost(dl: Dl, managed: Path) -> None:
    (managed / f"{1:020}.json").unlink()
    assert dl("validate", "--all").exit_code == 1
    done = dl("validate", "--all", "--repair")
    assert done.exit_code == 0, done.stderr
    assert "sales.items: 1 commits were put back, the first is version 1" in done.stderr


def test_one_table_that_cannot_be_validated_does_not_hide_the_others(dl: Dl, attached: Path, managed: Path) -> None:
    assert managed.exists()
    for file in (attached / "_delta_log").iterdir():
        file.write_bytes(b"\x00")
    done = dl("validate", "--all", "--json")
    assert done.exit_code == 1
    reports = {report["table"]: report for report in json.loads(done.stdout)}
    assert reports["sales.items"]["drift"] is None
    assert reports["sales.orders"]["drift"]["part"] == "commit"
