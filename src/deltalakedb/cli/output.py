"""What the command line prints: results to stdout, as tables or JSON; talk, progress and errors to stderr."""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from deltalakedb.exceptions import DeltaError, redact
from deltalakedb.instants import to_epoch_ms, to_iso

if TYPE_CHECKING:
    import pyarrow as pa


_ROWS_AT_ONCE = 10_000


@dataclass
class Settings:
    """How this invocation prints; set by the options every command shares."""

    json: bool = False
    debug: bool = False


settings = Settings()


def say(text: str) -> None:
    """Talk about what is going on: to stderr, and not with --json."""
    if not settings.json:
        print(redact(text), file=sys.stderr)


def warn(text: str) -> None:
    print(f"warning: {redact(text)}", file=sys.stderr)


def fail(error: BaseException) -> None:
    """One line that says what went wrong; the traceback only with --debug. Secrets are masked in both."""
    if settings.debug:
        print(redact("".join(traceback.format_exception(error))), file=sys.stderr, end="")
        return
    print(f"error: {redact(_one_line(error))}", file=sys.stderr)


def fail_misused(text: str, command: str) -> None:
    """One line that says what is wrong with the arguments, and where to read how they are given."""
    said = " ".join(text.removeprefix("Invalid value: ").split()).removesuffix(".")
    see = f"{' See' if said.endswith('?') else '; see'} `{command} --help`"
    print(f"error: {redact(said[:1].lower() + said[1:])}{see}", file=sys.stderr)


def _one_line(error: BaseException) -> str:
    text = " ".join(str(error).split())
    if isinstance(error, DeltaError | OSError):
        return text or type(error).__name__
    return f"{type(error).__name__}: {text} (this is a bug; run again with --debug and report it)"


def emit(value: Any, render: Callable[[], None]) -> None:
    """Print a result: `value` as JSON with --json, otherwise whatever `render` prints for people."""
    if settings.json:
        emit_json(value)
    else:
        render()


def emit_json(value: Any, *, indent: int | None = 2) -> None:
    # Flushed, because whoever reads the lines of `dl follow --interval` waits for each of them.
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
    """A table for people; plain tab-separated text when stdout is not a terminal, so that `cut` and `awk` work."""
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
    """Labelled values, one a line."""
    width = max(map(len, values), default=0)
    for label, value in values.items():
        print(f"{label:<{width}}  {_cell(value)}")


def arrow(result: pa.Table) -> None:
    """An Arrow table, printed batch by batch: rows as JSON objects with --json."""
    batches = (batch.to_pylist() for batch in result.to_batches(max_chunksize=_ROWS_AT_ONCE))
    records(result.column_names, (row for batch in batches for row in batch))


def records(columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> None:
    """Rows by column name, printed as they come where the form allows it."""
    if not settings.json:
        table(columns, (tuple(row.values()) for row in rows))
        return
    before = "["
    for row in rows:
        print(before, json.dumps(row, ensure_ascii=False, default=_json_value), sep="\n  ", end="")
        before = ","
    print("[]" if before == "[" else "\n]")


def _cell(value: Any) -> str:
    """One cell of text without control characters: a table's own strings must not steer the terminal."""
    if value is None:
        return ""
    if isinstance(value, datetime):
        return to_iso(to_epoch_ms(value))
    if isinstance(value, dict | list):
        value = json.dumps(value, ensure_ascii=False, default=_json_value)
    text = str(value)
    return text if text.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def iso_ms(epoch_ms: int | None) -> str | None:
    """Epoch milliseconds as people read them."""
    return None if epoch_ms is None else to_iso(epoch_ms)


def size(num_bytes: int | None) -> str | None:
    """A byte count as people read it."""
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
    """A progress bar on stderr: call what is yielded with how many more are done. Silent when nobody watches."""
    if settings.json or not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed:,} " + unit))
    with Progress(*columns, TimeElapsedColumn(), console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(label, total=None)
        yield lambda count: bar.update(task, advance=count)
