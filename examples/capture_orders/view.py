"""What is seen while it runs: the source's rows, the lake's, and how far apart they are."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.table import Table

from deltalakedb.cdc.run.status import CaptureStatus
from examples.capture_orders.capture import Capturing
from examples.capture_orders.shop import TABLES, Shop, count_rows

console = Console()


@dataclass(slots=True)
class Picture:
    """Both sides at one moment, and what is going on."""

    dsn: str
    capturing: Capturing
    shop: Shop | None = None
    what: str = "first copy"
    began: float = field(default_factory=time.monotonic)

    def look(self) -> tuple[CaptureStatus, dict[str, int]]:
        return self.capturing.status(), count_rows(self.dsn)

    def table(self, status: CaptureStatus, counts: dict[str, int]) -> Table:
        seconds = time.monotonic() - self.began
        shown = Table(
            title=f"{seconds:4.0f} s  {self.what}", title_justify="left", title_style="bold", caption_justify="left"
        )
        for column in ("table", "rows in Postgres", "rows in the lake", "changes captured", "version"):
            shown.add_column(column, justify="left" if column == "table" else "right")
        lake = {table.source.partition(".")[2]: table for table in status.tables}
        for name in TABLES:
            found = lake.get(name)
            cells = ("", "", "") if found is None else (found.rows, found.captured, found.version)
            shown.add_row(name, f"{counts[name]:,}", *(f"{cell:,}" if isinstance(cell, int) else "" for cell in cells))
        shown.caption = self.line(status)
        return shown

    def line(self, status: CaptureStatus) -> str:
        lag = "nothing captured yet" if status.lag_bytes is None else f"lag {status.lag_bytes / 1024:,.0f} KiB"
        done = 0 if self.shop is None else self.shop.transactions
        return f"{done:,} transactions in Postgres, {lag}, {status.rows_per_second:,.0f} rows/s over the last minute"


@contextmanager
def watched(picture: Picture) -> Iterator[None]:
    """A table that is drawn again twice a second; without a terminal a line every few seconds."""
    ended = threading.Event()
    live = Live(console=console, auto_refresh=False) if console.is_terminal else None

    def draw() -> None:
        while not ended.wait(0.5 if live is not None else 3.0):
            status, counts = picture.look()
            if live is not None:
                live.update(picture.table(status, counts), refresh=True)
            else:
                console.print(f"{time.monotonic() - picture.began:4.0f} s  {picture.what}: {picture.line(status)}")

    thread = threading.Thread(target=draw, daemon=True)
    if live is not None:
        live.start()
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        if live is not None:
            live.stop()


def show(title: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """A table of results."""
    table = Table(*columns, title=title, title_justify="left", title_style="bold")
    for row in rows:
        table.add_row(*(str(value) for value in row))
    console.print(table)
