"""Wrong arguments, unknown things and broken databases: one line that says what to do, and the right exit code."""

from __future__ import annotations

from pathlib import Path

import pytest

from deltalakedb.cli.reference import render_reference
from tests.cli.conftest import MIGRATIONS, Dl


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["tables", "--catalog", "mysql://h/db"], "unknown catalog URI scheme mysql://"),
        (["tables", "--catalog", "deltasql://oracle//x"], "these exist: sqlite, duckdb, postgres, pg"),
        (["tables", "--catalog", "deltasql://sqlite"], "names no file"),
        (["show", "sales..orders"], "a part of it is empty"),
        (["show", "x'; drop table dl_tables; --"], "it contains a quote"),
        (["rename", "a.b", "c\x1b[31m"], "control character U+001B"),
        (["attach", "somewhere"], "--as NS.NAME"),
        (["attach", "--as", "a.b"], "give PATH"),
        (["attach", "x", "--recursive", "y"], "leave PATH and --as out"),
        (["attach", "x", "--as", "a.b", "--into", "c"], "--into goes with --recursive"),
        (["attach", "x", "--as", "a.b", "--history", "some"], "full"),
        (["attach", "x", "--as", "a.b", "--storage-option", "novalue"], "KEY=VALUE"),
        (["history", "a.b", "--since", "yesterday"], "ISO 8601"),
        (["history", "a.b", "--limit", "-1"], "--limit"),
        (["diff", "a.b", "1"], "V2"),
        (["diff", "a.b", "one", "two"], "V1"),
        (["follow", "--interval", "0"], "--interval"),
        (["show"], "TABLE"),
        (["show", "a.b", "--verzion", "1"], "--verzion"),
        (["nonsense"], "no such command 'nonsense'; see `dl --help`"),
        (["tabels"], "Did you mean 'tables'? See `dl --help`"),
        (["--nonsense"], "no such option: --nonsense; see `dl --help`"),
        (["mirror", "nonsense"], "see `dl mirror --help`"),
    ],
)
def test_a_misuse_exits_with_2_and_says_what_is_wrong(dl: Dl, arguments: list[str], says: str) -> None:
    dl("init")
    result = dl(*arguments)
    assert result.exit_code == 2, result.stderr
    assert says in result.stderr
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1, "one line"
    assert result.stdout == ""


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["show", "sales.nothing"], "there is no table sales.nothing"),
        (["history", "sales.nothing"], "there is no table"),
        (["drop", "sales.nothing"], "there is no table"),
        (["rename", "sales.nothing", "a.b"], "there is no table"),
        (["follow", "sales.nothing"], "there is no table"),
        (["validate", "sales.nothing"], "there is no table"),
        (["sql", "select * from nowhere"], "nowhere"),
        (["sql", "drop table dl_tables"], "error:"),
        (["sql", "select 1; select 2"], "error:"),
        (["attach", "/no/such/table", "--as", "a.b"], "/no/such/table"),
    ],
)
def test_a_failure_exits_with_1_and_says_which_thing_failed(dl: Dl, arguments: list[str], says: str) -> None:
    dl("init")
    result = dl(*arguments)
    assert result.exit_code == 1, result.stderr
    assert says in result.stderr
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1, "one line"
    assert result.stdout == ""


@pytest.mark.parametrize("name", ["slip.db", "slip.duckdb"])
def test_a_command_that_looks_does_not_make_a_catalog_of_a_slip_of_the_pen(dl: Dl, tmp_path: Path, name: str) -> None:
    result = dl("tables", "--catalog", str(tmp_path / name))
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == (
        f"error: there is no catalog at {tmp_path / name}: check the name, or make one there with `dl init`\n"
    )
    assert not (tmp_path / name).exists()


@pytest.mark.usefixtures("attached")
def test_a_near_miss_is_named(dl: Dl) -> None:
    assert "did you mean sales.orders?" in dl("show", "sales.order").stderr


@pytest.mark.usefixtures("attached")
def test_a_version_that_is_not_there_is_explained(dl: Dl) -> None:
    result = dl("show", "sales.orders", "--version", "99")
    assert result.exit_code == 1
    assert "sales.orders" in result.stderr
    assert "99" in result.stderr


@pytest.mark.usefixtures("attached")
@pytest.mark.parametrize("where", ["no_such_column = 1", "id = = 1", "id >"])
def test_a_bad_predicate_is_a_misuse(dl: Dl, where: str) -> None:
    result = dl("plan", "sales.orders", "--where", where)
    assert result.exit_code == 2
    assert result.stderr.startswith("error: ")


def test_without_a_catalog_it_says_how_to_name_one(dl: Dl, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DL_CATALOG")
    result = dl("tables")
    assert result.exit_code == 2
    assert "DL_CATALOG" in result.stderr


def test_the_catalog_may_come_from_the_configuration_file(
    dl: Dl, catalog: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DL_CATALOG")
    settings = tmp_path / "settings.toml"
    settings.write_text(f'catalog = "{catalog}"')
    monkeypatch.setenv("DL_CONFIG", str(settings))
    assert dl("init").exit_code == 0
    settings.write_text("[mirror]\nmoed = 1")
    assert "did you mean mirror.mode?" in dl("tables").stderr


def test_a_file_that_is_no_database_is_said_to_be_none(dl: Dl, catalog: str) -> None:
    Path(catalog).write_text("This is a letter, not a database. " * 100)
    result = dl("tables")
    assert result.exit_code == 1
    assert catalog in result.stderr
    assert Path(catalog).read_text().startswith("This is a letter")


def test_an_option_may_come_from_the_environment(dl: Dl, attached: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DL_HISTORY_LIMIT", "1")
    assert len(dl("history", "sales.orders").stdout.splitlines()) == 2
    monkeypatch.setenv("DL_JSON", "1")
    assert dl("tables").stdout.startswith("[")
    monkeypatch.setenv("DL_AS", "sales.again")
    assert "sales.orders" in dl("attach", str(attached)).stderr, "the location has an owner already"


@pytest.mark.parametrize(
    ("variable", "value", "arguments", "code", "says"),
    [
        ("DL_MIGRATE_DOWN_TO", "0", ["migrate", "down"], 0, f"schema version {len(MIGRATIONS)} -> 0"),
        ("DL_MIGRATE_DOWN_DRY_RUN", "1", ["migrate", "down", "--to", "0"], 0, "would run"),
        ("DL_SHOW_VERSION", "77", ["show", "sales.orders"], 1, "version 77"),
        ("DL_HISTORY_SINCE", "bogus", ["history", "sales.orders"], 2, "ISO 8601"),
        ("DL_FILES_WHERE", "nonsense = 1", ["files", "sales.orders"], 2, "nonsense"),
        ("DL_VALIDATE_ALL", "true", ["validate"], 0, "agree up to version 2"),
        ("DL_ATTACH_HISTORY", "some", ["attach", "x", "--as", "a.b"], 2, "some"),
        ("DL_DEBUG", "1", ["show", "a.b"], 1, "Traceback"),
    ],
)
@pytest.mark.usefixtures("attached")
def test_every_option_has_the_variable_that_the_reference_names(
    dl: Dl, monkeypatch: pytest.MonkeyPatch, variable: str, value: str, arguments: list[str], code: int, says: str
) -> None:
    assert f"`{variable}`" in render_reference()
    monkeypatch.setenv(variable, value)
    result = dl(*arguments)
    assert result.exit_code == code, result.stderr
    assert says in result.stdout + result.stderr


def test_debug_shows_a_traceback(dl: Dl) -> None:
    dl("init")
    result = dl("show", "a.b", "--debug")
    assert result.exit_code == 1
    assert "Traceback" in result.stderr
    assert "TableNotFoundError" in result.stderr


def test_names_in_a_terminal_cannot_steer_it(dl: Dl) -> None:
    dl("init")
    result = dl("sql", "select 'red\x1b[31m' || char(7) as x")
    assert result.exit_code == 0
    assert "\x1b" not in result.stdout
    assert "\x07" not in result.stdout
