"""Generates docs/cli.md, the reference of all commands: `python -m deltalakedb.cli.reference`."""

from __future__ import annotations

from collections.abc import Iterator
from textwrap import fill
from typing import Any

import typer

from deltalakedb.cli.app import app

_HEAD = """\
# Command line reference

Generated from the commands by `python -m deltalakedb.cli.reference > docs/cli.md`; a test fails if
it is stale.

Results go to stdout; messages, progress and errors go to stderr. Exit codes: 0 done, 1 failed, 2
wrong usage. You can also set every option in the environment, under the name in the last column.
`dl --install-completion` sets up completion for your shell.
"""
_COLUMNS = 100


def render_reference() -> str:
    """The whole reference as Markdown."""
    root: Any = typer.main.get_command(app)
    parts = [_HEAD]
    for path, command in _commands(root, ("dl",)):
        parts.append("\n".join(_section(path, command)))
    return "\n".join(parts)


def _commands(group: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command below a group, in the order of the help; groups themselves are not commands."""
    for name, command in group.commands.items():
        if getattr(command, "commands", None):
            yield from _commands(command, (*path, name))
        else:
            yield (*path, name), command


def _section(path: tuple[str, ...], command: Any) -> Iterator[str]:
    arguments = [parameter for parameter in command.params if parameter.param_type_name == "argument"]
    options = [parameter for parameter in command.params if parameter.param_type_name == "option"]
    usage = " ".join(
        [
            *path,
            *map(_usage, arguments),
            *(_usage(parameter) for parameter in options if parameter.required),
            "[OPTIONS]",
        ]
    )
    yield f"## {' '.join(path)}\n"
    yield f"{_wrap(command.help)}\n"
    yield f"```\n{usage}\n```\n"
    yield "| argument or option | meaning | environment |\n|---|---|---|"
    for parameter in arguments:
        yield f"| `{_metavar(parameter)}` | {_cell(parameter.help)} | |"
    for parameter in options:
        names = ", ".join(f"`{name}`" for name in parameter.opts)
        value = "" if parameter.is_flag else f" `{_metavar(parameter)}`"
        yield f"| {names}{value} | {_cell(parameter.help)} | `{_variable(path, parameter)}` |"
    yield ""


def _wrap(text: str) -> str:
    """The paragraphs of a help text, wrapped like the other pages."""
    paragraphs = text.split("\n\n")
    return "\n\n".join(
        fill(paragraph, _COLUMNS, break_long_words=False, break_on_hyphens=False) for paragraph in paragraphs
    )


def _usage(parameter: Any) -> str:
    text = _metavar(parameter) + ("..." if _is_many(parameter) else "")
    if parameter.param_type_name == "option":
        return f"{parameter.opts[0]} {text}"
    return text if parameter.required else f"[{text}]"


def _is_many(parameter: Any) -> bool:
    return bool(parameter.nargs == -1 or getattr(parameter, "multiple", False))


def _metavar(parameter: Any) -> str:
    return str(parameter.metavar or "|".join(_choices(parameter)) or parameter.name.upper())


def _choices(parameter: Any) -> list[str]:
    default = parameter.default
    return [choice.value for choice in type(default)] if hasattr(type(default), "__members__") else []


def _variable(path: tuple[str, ...], option: Any) -> str:
    """The option's own variable, or the one made from the names of the command and the option."""
    named = option.envvar
    if named:
        return named if isinstance(named, str) else str(named[0])
    return "_".join([*path, option.name]).upper().replace("-", "_")


def _cell(text: str | None) -> str:
    return (text or "").replace("|", "\\|")


if __name__ == "__main__":
    print(render_reference(), end="")
