"""What each command prints, as text and as JSON, and where."""

from __future__ import annotations

import json
from pathlib import Path

import deltalake
import pytest

from tests.cli.conftest import MIGRATIONS, Dl, rows


def test_init_creates_a_catalog_and_is_harmless_when_run_again(dl: Dl, catalog: str) -> None:
    assert not Path(catalog).exists()
    first = dl("init")
    assert first.exit_code == 0
    assert first.stdout == f"deltasql://sqlite/{catalog} is at schema version {len(MIGRATIONS)}\n"
    assert json.loads(dl("init", "--json").stdout)["schema_version"] == len(MIGRATIONS)


def test_migrations_go_down_and_up_again(dl: Dl) -> None:
    dl("init")
    assert "0001\tinitial\t2" in dl("migrate", "status").stdout
    planned = dl("migrate", "down", "--to", "0", "--dry-run")
    newest_first = list(reversed(MIGRATIONS))
    numbers = ", ".join(f"{number:04}" for number in newest_first)
    assert f"would run {numbers}; schema version {len(MIGRATIONS)} -> 0" in planned.stdout
    assert json.loads(dl("migrate", "down", "--to", "0", "--json").stdout)["migrations"] == newest_first
    assert "not applied" in dl("migrate", "status").stdout
    assert json.loads(dl("migrate", "status", "--json").stdout) == [
        {"number": number, "name": name, "applied_at_ms": None} for number, name in MIGRATIONS.items()
    ]
    assert dl("migrate", "up").exit_code == 0
    assert "ran nothing" in dl("migrate", "up").stdout


def test_migrating_down_must_say_how_far(dl: Dl) -> None:
    dl("init")
    missing = dl("migrate", "down")
    assert missing.exit_code == 2
    assert "--to" in missing.stderr
    wrong = dl("migrate", "up", "--to", "99")
    assert wrong.exit_code == 2
    assert f"schema versions 0 to {len(MIGRATIONS)}" in wrong.stderr
    upwards = dl("migrate", "down", "--to", "98")
    assert upwards.exit_code == 2
    assert "dl migrate up --to 98" in upwards.stderr


def test_attach_talks_to_stderr_and_prints_json_to_stdout(dl: Dl, lake: Path) -> None:
    said = dl("attach", str(lake), "--as", "sales.orders")
    assert said.exit_code == 0
    assert said.stdout == ""
    assert "sales.orders is attached at version 2: 9 files" in said.stderr
    again = dl("attach", str(lake), "--as", "sales.orders", "--json")
    assert again.stderr == ""
    assert json.loads(again.stdout)[0] | {"size_bytes": 0} == {
        "table": "sales.orders",
        "mode": "follower",
        "location": f"{lake.as_uri()}/",
        "version": 2,
        "num_files": 9,
        "size_bytes": 0,
    }


@pytest.mark.usefixtures("attached")
def test_tables_lists_what_is_there(dl: Dl) -> None:
    shown = dl("tables").stdout.splitlines()
    assert shown[0].split("\t")[:5] == ["table", "format", "mode", "state", "version"]
    assert shown[1].split("\t")[:5] == ["sales.orders", "delta", "follower", "live", "2"]
    listed = json.loads(dl("tables", "--json").stdout)
    assert [(t["table"], t["version"], t["num_files"], t["num_records"]) for t in listed] == [
        ("sales.orders", 2, 9, 90)
    ]
    assert json.loads(dl("tables", "sales", "--json").stdout) == listed
    assert json.loads(dl("tables", "other", "--json").stdout) == []


@pytest.mark.usefixtures("attached")
def test_show_describes_a_table_at_any_version(dl: Dl) -> None:
    shown = json.loads(dl("show", "sales.orders", "--json").stdout)
    assert shown["description"] == "what was ordered"
    assert shown["partition_columns"] == ["day"]
    assert [field["name"] for field in shown["schema"]["fields"]] == ["id", "day", "amount"]
    assert (shown["version"], shown["num_files"], shown["num_records"]) == (2, 9, 90)
    older = json.loads(dl("show", "SALES.Orders", "--version", "0", "--json").stdout)
    assert (older["version"], older["num_files"], older["num_records"]) == (0, 3, 30)
    text = dl("show", "sales.orders").stdout
    assert "partitioned by  day" in text
    assert "amount\tdouble" in text


def test_history_is_the_same_as_deltalakes(dl: Dl, attached: Path) -> None:
    theirs = deltalake.DeltaTable(str(attached)).history()
    assert json.loads(dl("history", "sales.orders", "--json").stdout) == theirs
    assert [entry["version"] for entry in json.loads(dl("history", "sales.orders", "-n", "2", "--json").stdout)] == [
        2,
        1,
    ]
    assert dl("history", "sales.orders", "--since", "2999-01-01").stdout.splitlines()[1:] == []
    assert dl("history", "sales.orders", "--until", "1999-01-01").stdout.splitlines()[1:] == []
    assert dl("history", "sales.orders").stdout.splitlines()[1].split("\t")[2] == "WRITE"


def test_diff_shows_files_and_settings_that_changed(dl: Dl, attached: Path) -> None:
    table = deltalake.DeltaTable(str(attached))
    table.alter.set_table_properties({"delta.appendOnly": "true"})
    assert dl("follow").exit_code == 0
    found = json.loads(dl("diff", "sales.orders", "1", "3", "--json").stdout)
    assert (len(found["added"]), len(found["removed"])) == (3, 0)
    assert found["metadata_changed"] is True
    assert {"what": "property delta.appendOnly", "from": None, "to": "true"} in found["changes"]
    backwards = json.loads(dl("diff", "sales.orders", "3", "1", "--json").stdout)
    assert (len(backwards["added"]), len(backwards["removed"])) == (0, 3)
    text = dl("diff", "sales.orders", "1", "3").stdout
    assert "~ property delta.appendOnly: None -> true" in text
    assert text.count("\n+\t") == 3
    assert "no difference" in dl("diff", "sales.orders", "1", "1").stderr


@pytest.mark.usefixtures("attached")
def test_audit_tells_who_attached_what(dl: Dl, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DL_ACTOR", "ann")
    assert dl("rename", "sales.orders", "sales.bestellungen").exit_code == 0
    found = json.loads(dl("audit", "--json").stdout)
    assert [(entry["action"], entry["origin"]) for entry in found] == [("rename", "dl"), ("attach", "dl")]
    assert [entry["actor"] for entry in json.loads(dl("audit", "--actor", "ann", "--json").stdout)] == ["ann"]
    assert json.loads(dl("audit", "--until", "1999-01-01", "--json").stdout) == []
    assert len(json.loads(dl("audit", "--table", "sales.bestellungen", "--json").stdout)) == 2


@pytest.mark.usefixtures("attached")
def test_sql_reads_and_only_reads(dl: Dl) -> None:
    assert dl("sql", "select count(*) as n from dl_add_files").stdout == "n\n9\n"
    piped = dl("sql", "-", "--json", stdin="select version from dl_table_versions order by version")
    assert json.loads(piped.stdout) == [{"version": 0}, {"version": 1}, {"version": 2}]
    assert json.loads(dl("sql", "select 1 as x where 1 = 0", "--json").stdout) == []
    refused = dl("sql", "delete from dl_tables")
    assert refused.exit_code == 1
    assert refused.stdout == ""
    assert json.loads(dl("tables", "--json").stdout)


def test_files_lists_the_active_files_at_a_version_or_a_time(dl: Dl, attached: Path) -> None:
    listed = json.loads(dl("files", "sales.orders", "--json").stdout)
    here = sorted(str(attached / row["path"]) for row in listed)
    assert here == sorted(deltalake.DeltaTable(str(attached)).file_uris())
    assert listed[0]["stats"]["numRecords"] == 10
    assert set(listed[0]["partition_values"]) == {"day"}
    assert len(json.loads(dl("files", "sales.orders", "--version", "0", "--json").stdout)) == 3
    assert len(dl("files", "sales.orders", "--timestamp", "2999-01-01").stdout.splitlines()) == 10
    both = dl("files", "sales.orders", "--version", "0", "--timestamp", "2999-01-01")
    assert both.exit_code == 2
    assert "not both" in both.stderr


@pytest.mark.usefixtures("attached")
def test_plan_says_what_is_kept_and_pruned(dl: Dl) -> None:
    found = json.loads(dl("plan", "sales.orders", "--where", "day = '2026-01-02' and id > 60", "--json").stdout)
    assert (found["num_files"], found["num_pruned"]) == (1, 8)
    text = dl("plan", "sales.orders", "--where", "day = '2026-01-02'").stdout
    assert "kept 3 of 9 files, pruned 6" in text
    assert len(json.loads(dl("files", "sales.orders", "--where", "id = 75", "--json").stdout)) == 3


def test_follow_takes_in_new_commits(dl: Dl, attached: Path) -> None:
    deltalake.write_deltalake(str(attached), rows(91, 93), mode="append")
    lagging = json.loads(dl("validate", "sales.orders", "--json").stdout)
    assert (lagging[0]["lag"], lagging[0]["drift"]) == (1, None)
    found = json.loads(dl("follow", "sales.orders", "--json").stdout)
    assert found == [{"table": "sales.orders", "from_version": 2, "to_version": 3, "commits": 1, "gap": None}]
    assert dl("follow").stdout.splitlines()[1] == "sales.orders\t3\t3\t0\t"


def test_validate_exits_1_and_prints_the_first_difference(dl: Dl, attached: Path) -> None:
    good = dl("validate", "--all")
    assert good.exit_code == 0
    assert "agree up to version 2" in good.stdout
    commit = attached / "_delta_log" / f"{1:020}.json"
    commit.write_text(commit.read_text().replace('"mode":"Append"', '"mode":"Overwrite"'))
    bad = dl("validate", "sales.orders")
    assert bad.exit_code == 1
    assert "DRIFT at version 1" in bad.stdout
    assert "Overwrite" in bad.stdout
    assert json.loads(dl("validate", "--all", "--json").stdout)[0]["drift"]["version"] == 1
    neither = dl("validate")
    assert neither.exit_code == 2
    assert "--all" in neither.stderr


def test_import_finds_tables_below_a_prefix_and_names_them_after_their_folders(dl: Dl, lake: Path) -> None:
    for folder in ("eu/customers", "eu/north.sea/ships"):
        deltalake.write_deltalake(str(lake.parent / folder), rows(1, 3))
    found = dl("import", "--recursive", str(lake.parent), "--json")
    assert found.exit_code == 0, found.stderr
    names = sorted(entry["table"] for entry in json.loads(found.stdout))
    assert names == ["default.orders", "eu.customers", "eu.north_sea.ships"]
    assert json.loads(dl("import", "--recursive", str(lake.parent / "eu"), "--json").stdout) == []
    empty = lake.parent.parent / "empty"
    empty.mkdir()
    assert "no Delta table was found" in dl("attach", "--recursive", str(empty)).stderr


def test_tables_found_below_a_prefix_can_be_put_into_a_namespace(dl: Dl, lake: Path) -> None:
    found = json.loads(dl("attach", "--recursive", str(lake), "--into", "raw", "--json").stdout)
    assert [entry["table"] for entry in found] == ["raw.orders"]


def test_history_latest_starts_at_the_newest_checkpoint(dl: Dl, lake: Path) -> None:
    deltalake.DeltaTable(str(lake)).create_checkpoint()
    assert dl("attach", str(lake), "--as", "a.b", "--history", "latest").exit_code == 0
    assert len(json.loads(dl("history", "a.b", "--json").stdout)) == 1
    before = dl("show", "a.b", "--version", "0")
    assert before.exit_code == 1
    assert "which starts at 2" in before.stderr


def test_rename_and_drop_leave_the_files_alone(dl: Dl, attached: Path) -> None:
    files = sorted(attached.rglob("*"))
    assert dl("rename", "sales.orders", "sales.o").exit_code == 0
    dry = dl("drop", "sales.o", "--dry-run")
    assert dry.exit_code == 0
    assert "would unregister sales.o" in dry.stderr
    assert len(json.loads(dl("tables", "--json").stdout)) == 1
    assert "unregistered sales.o" in dl("drop", "sales.o").stderr
    assert json.loads(dl("tables", "--json").stdout) == []
    assert sorted(attached.rglob("*")) == files


def test_doctor_looks_at_everything_and_creates_nothing(dl: Dl, catalog: str, lake: Path) -> None:
    found = {check["name"]: check for check in json.loads(dl("doctor", "--location", str(lake), "--json").stdout)}
    assert {"python", "pyarrow", "duckdb", "sqlite", "psycopg", "java", "pyspark", "catalog"} <= found.keys()
    assert found["location"]["found"] == "a Delta table at version 2"
    assert found["catalog"]["status"] != "ok"
    assert not Path(catalog).exists()
    dl("init")
    assert "catalog\tok" in dl("doctor").stdout
    missing = dl("doctor", "--location", str(lake.parent))
    assert missing.exit_code == 1
    assert "location\tfailed" in missing.stdout


def test_doctor_says_why_no_spark_session_can_be_started(dl: Dl, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DL_TOKEN", "a-token-of-the-tests")
    told = dl("doctor", "--spark", "--endpoint", "http://127.0.0.1:9", "--json")
    assert told.exit_code == 1
    (session,) = [check for check in json.loads(told.stdout) if check["name"] == "session"]
    assert session["status"] == "failed"
    assert "http://127.0.0.1:9 cannot be reached" in session["found"]
    misused = dl("doctor", "--spark", "--conf", "driver.memory=1g")
    assert misused.exit_code == 2
    assert "spark.KEY=VALUE" in misused.stderr
