"""The application `dl`: combines the groups of commands, and turns every failure into one line and an exit code."""

from __future__ import annotations

import io
import os
import sys
from typing import Annotated, Any

import typer

from deltalakedb.cli import (
    cdc,
    describing,
    doctor,
    iceberg,
    log,
    maintenance,
    mirror,
    namespaces,
    output,
    read,
    registry,
    rights,
    schema,
    serve,
    sync,
    token,
)
from deltalakedb.cli.options import CommandGroup
from deltalakedb.exceptions import ConfigError, DeltaError, MissingExtraError, PredicateError

DONE, FAILED, MISUSED = 0, 1, 2


class _Commands(CommandGroup):
    """The top group; it handles whatever a command raises."""

    def make_context(self, *args: Any, **options: Any) -> Any:
        try:
            return super().make_context(*args, **options)
        except (
            Exception
        ) as error:  # typer has its own copies of click's errors, so they are recognised by their attributes
            _end_misuse(error)
            raise

    def invoke(self, ctx: Any) -> Any:
        output.settings.json = output.settings.debug = False
        try:
            return super().invoke(ctx)
        except (typer.Exit, typer.Abort):
            raise
        except BrokenPipeError:
            # The reader of our output has closed it (`dl files T | head`); nothing more may be written.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(DONE) from None
        except KeyboardInterrupt:
            print("interrupted; nothing half done is left behind", file=sys.stderr)
            raise typer.Exit(FAILED) from None
        except DeltaError as error:
            output.fail(error)
            raise typer.Exit(exit_code(error)) from None
        except Exception as error:  # the outermost handler: a bug must not print a traceback with secrets in it
            _end_misuse(error)
            output.fail(error)
            raise typer.Exit(FAILED) from None


def _end_misuse(error: Exception) -> None:
    """End with one line if the arguments are wrong; for a group without a command typer shows its help."""
    if not hasattr(error, "exit_code") or not hasattr(error, "format_message"):
        return
    text = error.format_message()
    if "Commands:" in text:
        raise error
    context = getattr(error, "ctx", None)
    output.fail_misused(text, "dl" if context is None else context.command_path)
    raise typer.Exit(MISUSED) from None


def exit_code(error: DeltaError) -> int:
    """2 for wrong usage (a URI, a name, a setting, a predicate), 1 for everything else."""
    if isinstance(error, MissingExtraError):
        return FAILED
    return MISUSED if isinstance(error, ConfigError | PredicateError) else FAILED


app = typer.Typer(
    name="dl",
    cls=_Commands,
    help="Delta Lake tables whose transaction log is kept in SQL.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # plain help and usage errors: a line can be searched for, a box of wrapped lines cannot
    context_settings={"auto_envvar_prefix": "DL", "help_option_names": ["-h", "--help"]},
)


def _show_version(value: bool) -> None:
    if value:
        from deltalakedb import __version__

        print(f"deltalakedb {__version__}")
        raise typer.Exit(DONE)


@app.callback()
def options(
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            callback=_show_version,
            is_eager=True,
            allow_from_autoenv=False,
            help="Print the version and exit.",
        ),
    ] = False,
) -> None:
    """Delta Lake tables whose transaction log is kept in SQL."""


for group in (
    schema,
    registry,
    namespaces,
    rights,
    describing,
    log,
    read,
    sync,
    mirror,
    maintenance,
    iceberg,
    cdc,
    serve,
    token,
    doctor,
):
    group.add_to(app)


def main() -> None:
    """The entry point of the `dl` command."""
    for stream in (sys.stdout, sys.stderr):
        # A path with a lone surrogate must not abort a listing.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    app(prog_name="dl")
