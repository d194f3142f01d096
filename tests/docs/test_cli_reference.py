"""docs/cli.md is made from the commands; a command or an option that changed without it fails here."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import typer

from deltalakedb.cli import app
from deltalakedb.cli.reference import render_reference

REFERENCE = Path(__file__).parents[2] / "docs" / "cli.md"


def test_the_reference_says_what_the_commands_say() -> None:
    made = render_reference()
    assert REFERENCE.read_text(encoding="utf-8") == made, (
        "docs/cli.md is stale; make it anew: python -m deltalakedb.cli.reference > docs/cli.md"
    )


def _commands(group: Any) -> list[Any]:
    found: list[Any] = []
    for command in group.commands.values():
        found += _commands(command) if getattr(command, "commands", None) else [command]
    return found


@pytest.mark.parametrize("command", _commands(typer.main.get_command(app)), ids=lambda command: command.name)
def test_every_command_and_every_option_is_explained(command: Any) -> None:
    assert command.help
    unexplained = [parameter.name for parameter in command.params if not parameter.help]
    assert not unexplained, f"no help for {unexplained}"


def test_every_reading_command_takes_json() -> None:
    without = [c.name for c in _commands(typer.main.get_command(app)) if "as_json" not in {p.name for p in c.params}]
    # The last ones are those of `dl namespace`, `dl iceberg` and `dl token`.
    changing = ["create", "rename", "drop", "undrop", "grant", "revoke", "create", "drop", "set", "register"]
    changing += ["create", "revoke"]
    assert without == changing, "only commands that change something have no --json"


def test_every_command_takes_a_catalog() -> None:
    assert all("catalog" in {p.name for p in c.params} for c in _commands(typer.main.get_command(app)))


PAGES = sorted([*REFERENCE.parents[1].glob("*.md"), *REFERENCE.parent.glob("*.md")])
WRITTEN = sorted(
    {
        (page.name, command)
        for page in PAGES
        if page != REFERENCE
        for command in re.findall(r"(?:`|^)(dl [a-z][^`#\n]*)", page.read_text(encoding="utf-8"), re.MULTILINE)
        if "..." not in command
    }
)


@pytest.mark.parametrize(("page", "written"), WRITTEN)
def test_a_command_that_a_page_names_exists_with_its_options(page: str, written: str) -> None:
    command: Any = typer.main.get_command(app)
    words = re.sub(r"'[^']*'|\"[^\"]*\"", "", written).split()[1:]
    while words and getattr(command, "commands", None):  # a page may speak of a group as a whole
        assert words[0] in command.commands, f"{page}: {written}"
        command = command.commands[words.pop(0)]
    known = {option for parameter in command.params for option in [*parameter.opts, *parameter.secondary_opts]}
    named = {word.partition("=")[0] for word in words if re.match(r"--?[a-z]", word)}
    assert named <= known, f"{page}: {written}"
