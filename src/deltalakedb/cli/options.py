"""Options that many commands share, their parsing, and the groups of commands."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from datetime import UTC, datetime
from functools import wraps
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from deltalakedb.cli import output
from deltalakedb.exceptions import StoreError

if TYPE_CHECKING:
    from deltalakedb.catalog.catalog import Catalog

CatalogOption = Annotated[
    str | None,
    typer.Option(
        "--catalog",
        "-c",
        envvar="DL_CATALOG",
        metavar="URI",
        help="The catalog: a path (SQLite), deltasql://ENGINE/... or postgresql://...",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", envvar="DL_JSON", help="Print the result as JSON.")]
DebugOption = Annotated[bool, typer.Option("--debug", envvar="DL_DEBUG", help="Show a traceback if the command fails.")]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Print what would happen, and change nothing.")]
WarehouseOption = Annotated[
    str | None,
    typer.Option(
        "--warehouse", envvar="DL_WAREHOUSE", metavar="PLACE", help="The folder for tables that are created by name."
    ),
]
TableArgument = Annotated[str, typer.Argument(metavar="TABLE", help="The table, as namespace.name.")]
SinceOption = Annotated[
    str | None,
    typer.Option("--since", metavar="TIME", help="Not before this time (ISO 8601; UTC by default)."),
]
UntilOption = Annotated[
    str | None,
    typer.Option("--until", metavar="TIME", help="Not after this time (ISO 8601; UTC by default)."),
]
StorageOption = Annotated[
    list[str] | None,
    typer.Option(
        "--storage-option",
        metavar="KEY=VALUE",
        help="An object store option; repeatable. Put keys into the environment: other users can see arguments.",
    ),
]


def command(app: typer.Typer, name: str, function: Callable[..., None], *, reads: bool = True) -> None:
    """Register a command with the options that all share: --debug, and --json if it reads."""
    shared = {"debug": DebugOption, **({"as_json": JsonOption} if reads else {})}

    @wraps(function)
    def run(debug: bool = False, as_json: bool = False, **arguments: Any) -> None:
        output.settings.debug, output.settings.json = debug, as_json
        function(**arguments)

    signature = inspect.signature(function, eval_str=True)
    extra = [
        inspect.Parameter(option, inspect.Parameter.KEYWORD_ONLY, default=False, annotation=annotation)
        for option, annotation in shared.items()
    ]
    # A function may carry a signature of its own (PEP 362), which its type does not declare.
    run.__signature__ = signature.replace(parameters=[*signature.parameters.values(), *extra])  # type: ignore[attr-defined]
    app.command(name)(run)


def open_catalog(catalog: str | None, *, creates: bool = False, **config: Any) -> Catalog:
    """Connect to the catalog of `--catalog`, `DL_CATALOG` or the configuration file.

    Without `creates` a missing catalog file is an error: read-only commands never create a catalog.
    """
    from deltalakedb.catalog.catalog import connect, locate_catalog

    address, _ = locate_catalog(catalog, **config)
    if not creates and address.engine != "postgres" and not os.path.exists(str(address.target)):
        raise StoreError(f"there is no catalog at {address.target}: check the name, or make one there with `dl init`")
    return connect(catalog, origin="dl", **config)


def travel_time(text: str | None, option: str = "--timestamp") -> datetime | None:
    """The time in an option: a date, or a time with or without a zone."""
    milliseconds = instant(text, option)
    return None if milliseconds is None else datetime.fromtimestamp(milliseconds / 1000, UTC)


def instant(text: str | None, option: str) -> int | None:
    """Epoch milliseconds of a time in an option."""
    from deltalakedb.catalog.instants import to_epoch_ms

    if text is None:
        return None
    try:
        return to_epoch_ms(text)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=option) from None


def storage_options(pairs: list[str] | None) -> dict[str, str] | None:
    """`KEY=VALUE` texts as a mapping; None if there are none."""
    return key_values(pairs, "--storage-option") or None


def key_values(pairs: list[str] | None, option: str) -> dict[str, str]:
    """Parse the `KEY=VALUE` texts of a repeatable option. Errors never show a value, which may be a secret."""
    values: dict[str, str] = {}
    for number, pair in enumerate(pairs or (), start=1):
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise typer.BadParameter(f"number {number} is not of the form KEY=VALUE", param_hint=option)
        values[key] = value
    return values


class CommandGroup(TyperGroup):
    """Wraps the first sentences of commands; typer would cut them at the end of the line."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        del ctx
        rows = [(name, command.get_short_help_str(formatter.width * 4)) for name, command in self.commands.items()]
        with formatter.section("Commands"):
            formatter.write_dl(rows)
