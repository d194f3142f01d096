"""`dl cdc apply` as somebody types it, and a start whose file was edited and not applied."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from deltalakedb.cli import app
from tests.cdc.choosing import KEY, choosing, settings_from
from tests.cdc.conftest import Lake, Source

Dl = Callable[..., Result]
SHOP = (
    "create table users (id int primary key, email text)",
    "create table orders (id int primary key, note text)",
    "insert into users values (1, 'mail-1')",
    "create publication shop for all tables",
)
BASE = 'namespace = "lake"\n'
MASKED = BASE + 'exclude = ["orders"]\n[[cdc.rules]]\nmask = { email = "hash" }\n'


@pytest.fixture
def dl(lake: Lake, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Dl:
    """Runs `dl` on the lake with the file that was written last."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "no-config"))
    monkeypatch.setenv("DL_CATALOG", lake.uri)
    monkeypatch.setenv("DL_WAREHOUSE", str(lake.warehouse))

    def run(*arguments: str) -> Result:
        return CliRunner().invoke(app, [*arguments, "--config", str(tmp_path / "capture.toml")], prog_name="dl")

    return run


def test_apply_says_what_it_would_do_and_does_it(dl: Dl, lake: Lake, source: Source, tmp_path: Path) -> None:
    source.run(*SHOP)
    settings = settings_from(BASE, source, tmp_path)
    new = dl("cdc", "apply", "--dry-run")
    assert new.exit_code == 0, new.output
    assert "public.users is captured as lake.users and lake.users_changes\n" in new.stdout
    settings_from(BASE + '[[cdc.rules]]\ntables = "orders"\nlayers = "changes"\n', source, tmp_path)
    assert "public.orders is captured as lake.orders_changes\n" in dl("cdc", "apply", "--dry-run").stdout
    settings_from(BASE, source, tmp_path)
    assert "the capture was not started yet: dl cdc start does this" in new.stderr
    with choosing(lake, source, settings):
        assert "nothing changes" in dl("cdc", "apply").stderr
        settings_from(MASKED, source, tmp_path)
        refused = dl("cdc", "start", "--once")
        assert refused.exit_code == 2, refused.output
        assert "dl cdc apply shows what that means and does it" in refused.stderr
        would = dl("cdc", "apply", "--dry-run")
        assert would.exit_code == 0, would.output
        assert would.stdout.splitlines() == [
            "public.orders is left alone from now on: it is not among the tables that the settings ask for",
            "public.users is copied anew, as lake.users and lake.users_changes: "
            "the column email: its mask was none and is hash",
        ]
        assert "dl vacuum" in would.stderr
        assert dl("cdc", "apply", "--dry-run").stdout == would.stdout, "nothing was done"
        done = dl("cdc", "apply", "--json")
        assert done.exit_code == 0, done.output
        value = json.loads(done.stdout)
        assert value["applied"]
        assert [(step["source"], step["action"]) for step in value["steps"]] == [
            ("public.orders", "leave"),
            ("public.users", "copy"),
        ]
        status = json.loads(dl("cdc", "status", "--json").stdout)
        assert {table["source"]: table["stage"] for table in status["tables"]} == {
            "public.orders": "stopped",
            "public.users": "pending",
        }
        assert KEY not in done.output + would.output + refused.output


def test_what_cannot_be_applied_is_said_and_nothing_is_done(dl: Dl, lake: Lake, source: Source, tmp_path: Path) -> None:
    source.run(*SHOP)
    with choosing(lake, source, settings_from(BASE, source, tmp_path)):
        settings_from(BASE + '[[cdc.rules]]\nmask = { emial = "hash", id = "null" }\n', source, tmp_path)
        would = dl("cdc", "apply", "--dry-run")
        assert would.exit_code == 1
        assert "rule 1: no column matches emial of mask" in would.stderr
        assert "only mask" in would.stderr
        refused = dl("cdc", "apply")
        assert refused.exit_code == 1
        assert "the settings cannot be applied" in refused.stderr
        settings_from(BASE, source, tmp_path)
        assert "nothing changes" in dl("cdc", "apply").stderr


def test_a_slip_in_the_file_is_said_before_anything_starts(dl: Dl, source: Source, tmp_path: Path) -> None:
    source.run(*SHOP)
    settings_from(BASE, source, tmp_path)
    file = tmp_path / "capture.toml"
    base = file.read_text()
    for rule, code, said in (
        ('mask = { email = "hsh" }', 2, "setting cdc.rules: rule 1: mask: email is masked by"),
        ('masks = { email = "hash" }', 2, "there is no 'masks'; did you mean mask?"),
        ('mask = { emial = "hash" }', 1, "no column matches emial of mask"),
        ('exclude_columns = "id"', 1, "id is part of its key, and the settings leave it out"),
    ):
        file.write_text(f"{base}[[cdc.rules]]\n{rule}\n")
        result = dl("cdc", "start", "--once")
        assert result.exit_code == code, result.output
        assert said in result.stderr
    assert source.run("select count(*) from pg_replication_slots where slot_name = 'dl_shop'") == [(0,)]
