"""The output of the command line: results to stdout, as tables or JSON; messages, progress and errors to stderr."""

from __future__ import annotations

import json
import logging
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from deltalakedb.catalog.instants import to_epoch_ms, to_iso
from deltalakedb.exceptions import DeltaError, escape_controls, redact

if TYPE_CHECKING:
    import pyarrow as pa


_ROWS_AT_ONCE = 10_000


@dataclass
class Settings:
    """How this invocation prints; set by the options that all commands share."""

    json: bool = False
    debug: bool = False


settings = Settings()


class LogLines(logging.Formatter):
    """Formats a record so that nothing in it can look like another record: control characters are escaped, and only
    the first line begins at the margin."""

    def format(self, record: logging.LogRecord) -> str:
        first, *more = escape_controls(super().format(record)).split("\n")
        return "\n".join([first, *(f"    {line}" for line in more)])


def say(text: str) -> None:
    """Print a message to stderr, unless --json is given."""
    if not settings.json:
        print(escape_controls(redact(text)), file=sys.stderr)


def warn(text: str) -> None:
    print(f"warning: {escape_controls(redact(text))}", file=sys.stderr)


def fail(error: BaseException) -> None:
    """Print an error in one line; with --debug the traceback. Secrets are masked in both."""
    if settings.debug:
        print(redact("".join(traceback.format_exception(error))), file=sys.stderr, end="")
        return
    print(f"error: {escape_controls(redact(_one_line(error)))}", file=sys.stderr)


def fail_misused(text: str, command: str) -> None:
    """Print in one line what is wrong with the arguments, and the help command to see."""
    message = " ".join(text.removeprefix("Invalid value: ").split()).removesuffix(".")
    see = f"{' See' if message.endswith('?') else '; see'} `{command} --help`"
    print(f"error: {redact(message[:1].lower() + message[1:])}{see}", file=sys.stderr)


def _one_line(error: BaseException) -> str:
    text = " ".join(str(error).split())
    if isinstance(error, DeltaError | OSError):
        return text or type(error).__name__
    return f"{type(error).__name__}: {text} (this is a bug; run again with --debug and report it)"


def emit(value: Any, render: Callable[[], None]) -> None:
    """Print a result: `value` as JSON with --json, otherwise what `render` prints."""
    if settings.json:
        emit_json(value)
    else:
        render()


def emit_json(value: Any, *, indent: int | None = 2) -> None:
    # Flushed, because a reader of the lines of `dl follow --interval` waits for each of them.
    print(json.dumps(value, indent=indent, ensure_ascii=False, default=_json_value), flush=True)


def _json_value(value: Any) -> Any:
    if isinstance(value, datetime):
        return to_iso(to_epoch_ms(value))
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Iterable):
        return list(value)
    return str(value)


def table(columns: Sequence[str], rows: Iterable[Sequence[Any]], *, right: Sequence[str] = ()) -> None:
    """Print a table; tab-separated text if stdout is not a terminal, so that `cut` and `awk` work."""
    cells = ([_cell(value) for value in row] for row in rows)
    if not sys.stdout.isatty():
        print("\t".join(columns))
        for row in cells:
            print("\t".join(row))
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    grid = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        grid.add_column(column, justify="right" if column in right else "left", overflow="fold")
    for row in cells:
        grid.add_row(*map(Text, row))
    Console().print(grid)


def fields(values: Mapping[str, Any]) -> None:
    """Print labelled values, one per line."""
    width = max(map(len, values), default=0)
    for label, value in values.items():
        print(f"{label:<{width}}  {_cell(value)}")


def arrow(result: pa.Table) -> None:
    """Print an Arrow table, batch by batch: rows as JSON objects with --json."""
    batches = (batch.to_pylist() for batch in result.to_batches(max_chunksize=_ROWS_AT_ONCE))
    records(result.column_names, (row for batch in batches for row in batch))


def records(columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> None:
    """Print rows by column name, as they come if the format allows it."""
    if not settings.json:
        table(columns, (tuple(row.values()) for row in rows))
        return
    before = "["
    for row in rows:
        print(before, json.dumps(row, ensure_ascii=False, default=_json_value), sep="\n  ", end="")
        before = ","
    print("[]" if before == "[" else "\n]")


def _cell(value: Any) -> str:
    """The text of a cell without control characters: strings in a table must not control the terminal."""
    if value is None:
        return ""
    if isinstance(value, datetime):
        return to_iso(to_epoch_ms(value))
    if isinstance(value, dict | list):
        value = json.dumps(value, ensure_ascii=False, default=_json_value)
    text = str(value)
    return text if text.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def iso_ms(epoch_ms: int | None) -> str | None:
    """Epoch milliseconds as an ISO 8601 text."""
    return None if epoch_ms is None else to_iso(epoch_ms)


def size(num_bytes: int | None) -> str | None:
    """A byte count with a unit."""
    if num_bytes is None:
        return None
    amount = float(num_bytes)
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if abs(amount) < 1024 or unit == "TiB":
            return f"{num_bytes} B" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    return str(num_bytes)


@contextmanager
def progress(label: str, unit: str) -> Iterator[Callable[[int], None]]:
    """A progress bar on stderr: call the yielded function with how many more are done. Silent without a terminal."""
    if settings.json or not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed:,} " + unit))
    with Progress(*columns, TimeElapsedColumn(), console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(label, total=None)
        yield lambda count: bar.update(task, advance=count)
