"""The output of `dl cdc`: the status of a capture as a page, and a live line while it runs."""

from __future__ import annotations

import sys
import threading
import time
from collections import deque
from dataclasses import asdict
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from deltalakedb import telemetry
from deltalakedb.catalog.instants import to_epoch_ms, to_iso
from deltalakedb.cli import output

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID
    from rich.status import Status

    from deltalakedb.cdc.run.choice_changes import ChoicePlan
    from deltalakedb.cdc.run.report import BatchDone, CaptureReport
    from deltalakedb.cdc.run.status import CaptureStatus, TableStatus
    from deltalakedb.cdc.source.slots import Slot

_RATE_SECONDS: Final = 10.0

_COLUMNS = ("source", "table", "stage", "copied at", "rows", "changes", "version", "last commit", "rows/s")
_RIGHT = ("rows", "changes", "version", "rows/s")


def show_status(status: CaptureStatus) -> None:
    """Print the whole status as text."""
    output.fields(_headline(status))
    if status.tables:
        print()
        output.table(_COLUMNS, [_row(table, status) for table in status.tables], right=_RIGHT)
    for table in status.tables:
        for note in table.notes:
            output.say(f"note: {table.source}: {note}")
    for source, reason in status.coverage.left_out.items() if status.coverage is not None else ():
        output.say(f"not captured: {source}: {reason}")
    for problem in status.problems:
        output.warn(problem)


_ACTIONS: Final = {
    "capture": "is captured as {tables}",
    "copy": "is copied anew, as {tables}",
    "rename": "is called {tables} from now on",
    "leave": "is left alone from now on",
    "refuse": "cannot be captured",
    "stay": "is stopped, and stays so",
}


def show_plan(plan: ChoicePlan, *, dry_run: bool, is_running: bool) -> None:
    """Print what `dl cdc apply` does, one line per table, and why."""
    for step in plan.steps:
        tables = " and ".join(step.tables)
        why = f": {'; '.join(step.why)}" if step.why else ""
        print(f"{step.source} {_ACTIONS[step.action].format(tables=tables)}{why}")
        for note in step.notes:
            output.say(f"note: {step.source}: {note}")
    for text in plan.unmatched:
        output.warn(text)
    if dry_run:
        for text in (*plan.problems, *(f"stop the capture first: {text}" for text in plan.needs_stop)):
            output.warn(text)
    if plan.is_new:
        output.say("the capture was not started yet: dl cdc start does this")
    elif not plan.steps and not plan.is_changed:
        output.say("nothing changes")
    elif not dry_run:
        next_step = "the capture that runs does the rest" if is_running else "dl cdc start does the rest"
        output.say(f"applied; {next_step}")


def plan_value(plan: ChoicePlan, *, dry_run: bool) -> dict[str, Any]:
    """The plan for JSON."""
    return {
        "slot": plan.slot,
        "dry_run": dry_run,
        "applied": plan.is_changed and not plan.is_new and not dry_run,
        "steps": [step.to_value() for step in plan.steps],
        "unmatched": list(plan.unmatched),
        "problems": list(plan.problems),
        "needs_stop": list(plan.needs_stop),
    }


def _headline(status: CaptureStatus) -> dict[str, Any]:
    lines: dict[str, Any] = {
        "capture": f"{status.slot_name} (publication {status.publication})",
        "state": _state(status),
    }
    if status.capture is None:
        return lines
    from deltalakedb.cdc.lsn import format_lsn

    lines["progress"] = f"{format_lsn(status.capture.lsn)}, noted {_ago(status.progress_at, status.at)}"
    if status.lag_bytes is not None:
        lines["lag"] = f"{output.size(status.lag_bytes)}, {status.lag_seconds or 0:.1f} s"
    if status.slot is not None:
        lines["slot"] = _slot(status)
    lines["rate"] = f"{status.rows_per_second:,.1f} rows/s over the last minute"
    return lines


def _state(status: CaptureStatus) -> str:
    if status.state == "new":
        return "not started yet; dl cdc start begins it"
    if status.state == "unknown":
        return "unknown, the source was not asked or did not answer"
    if status.runner is not None:
        return f"running: {status.runner}"
    if status.is_slot_lost:
        return "stopped; its slot is lost, and dl cdc start refuses until dl cdc resnapshot has begun it anew"
    return "stopped; dl cdc start goes on with it"


def _slot(status: CaptureStatus) -> str:
    assert status.slot is not None
    slot = status.slot
    retained = f"{output.size(status.retained_bytes) or 'no'} log kept for it"
    parts = [slot.wal_status, retained, None if slot.is_lost else _limit(slot), slot.invalidation_reason]
    return ", ".join(filter(None, parts))


def _limit(slot: Slot) -> str:
    if slot.safe_wal_size is not None:
        remaining = f"{output.size(max(0, slot.safe_wal_size))} left before it is lost"
    elif slot.keep_bytes is not None:
        remaining = f"lost when that is more than {output.size(slot.keep_bytes)}"
    else:
        remaining = "no limit but the source's disk"
    return remaining if slot.idle_seconds is None else f"{remaining}, lost after {slot.idle_seconds} s without a reader"


def _row(table: TableStatus, status: CaptureStatus) -> tuple[Any, ...]:
    from deltalakedb.cdc.lsn import format_lsn

    return (
        table.source,
        table.current,
        table.stage,
        None if table.start_lsn is None else format_lsn(table.start_lsn),
        _number(table.rows),
        _number(table.captured),
        table.version,
        _ago(table.last_commit_at, status.at),
        f"{table.rows_per_second:,.1f}",
    )


def _number(value: int | None) -> str | None:
    """A number with separators on a terminal, plain for a program that reads the text."""
    return None if value is None else f"{value:,}" if sys.stdout.isatty() else str(value)


def _ago(at: datetime | None, now: datetime) -> str:
    if at is None:
        return "never"
    seconds = max(0.0, (now - at).total_seconds())
    if seconds < 120:
        return f"{seconds:.1f} s ago"
    return f"{seconds / 60:.0f} min ago" if seconds < 7200 else to_iso(to_epoch_ms(at))


def clear_screen() -> None:
    """Clear the terminal before a page is shown again; a pipe gets one page after the other."""
    if sys.stdout.isatty():
        print("\x1b[2J\x1b[H", end="")


class RunView:
    """The output of `dl cdc start` on stderr: bars while tables are copied, then a live line.

    Without a terminal: a line for each table, and one every few seconds while there are batches. It is the `progress`
    and the `on_batch` of a run.
    """

    def __init__(self, slot: str) -> None:
        self._slot = slot
        self.phase = "starting Spark"
        """What it does before the first batch."""
        self._is_live = sys.stderr.isatty() and not output.settings.json
        self._bars: Progress | None = None
        self._tasks: dict[str, TaskID] = {}
        self._line: Status | None = None
        self._rows = self._batches = 0
        self._rates: deque[tuple[float, int]] = deque([(time.monotonic(), 0)])
        self._shown_batches = 0
        self._ended = threading.Event()
        self._turn = threading.RLock()
        self._ticker = threading.Thread(target=self._tick, daemon=True)

    def __enter__(self) -> RunView:
        self._ticker.start()
        return self

    def __exit__(self, *_trouble: object) -> None:
        self._ended.set()
        self._ticker.join()
        self._show_nothing()

    def spark_started(self) -> None:
        self.phase = "looking at the source"

    # -- the first copy

    def table_begins(self, source: str, rows: int, tasks: int) -> None:
        if not self._is_live:
            output.say(f"{source}: copying about {rows} rows, by {tasks} tasks")
            return
        with self._turn:
            if self._bars is None:
                self._show_nothing()
                self._bars = _bars()
                self._bars.start()
            self._tasks[source] = self._bars.add_task(source, total=max(rows, 1))

    def task_ended(self, source: str, rows: int) -> None:
        with self._turn:
            if self._bars is not None:
                self._bars.update(self._tasks[source], advance=rows)

    def table_ended(self, source: str, rows: int) -> None:
        self.phase = "starting the stream"
        with self._turn:
            if self._bars is not None:
                self._bars.update(self._tasks.pop(source), total=rows, completed=rows)
                if not self._tasks:
                    self._show_nothing()
        if output.settings.json:
            output.emit_json({"event": "copied", "table": source, "rows": rows}, indent=None)
        output.say(f"{source}: copied, {rows:,} rows")

    # -- the stream

    def batch_done(self, batch: BatchDone) -> None:
        with self._turn:
            self._batches += 1
            self._rows += batch.rows
            if self._bars is not None:  # bars of a table that stopped in the middle of its copy
                self._tasks.clear()
                self._show_nothing()
        if output.settings.json:
            output.emit_json(_batch_value(batch), indent=None)

    def _tick(self) -> None:
        while not self._ended.wait(0.5 if self._is_live else 5.0):
            with self._turn:
                text = self._text()
                if not self._is_live:
                    if self._batches > self._shown_batches:
                        self._shown_batches = self._batches
                        output.say(text)
                elif self._bars is None:
                    self._show(text)

    def _text(self) -> str:
        if not self._batches and telemetry.value_of(telemetry.CDC_LAG_BYTES, self._slot) is None:
            return f"{self._slot}: {self.phase}"
        now = time.monotonic()
        self._rates.append((now, self._rows))
        while len(self._rates) > 2 and now - self._rates[0][0] > _RATE_SECONDS:
            self._rates.popleft()
        then, before = self._rates[0]
        rate = (self._rows - before) / (now - then) if now > then else 0.0
        lag = telemetry.value_of(telemetry.CDC_LAG_BYTES, self._slot)
        late = telemetry.value_of(telemetry.CDC_LAG_SECONDS, self._slot)
        lag_text = "" if lag is None else f", lag {output.size(int(lag))}, {late or 0:.1f} s"
        return (
            f"{self._slot}: {self._rows:,} changes in {self._batches:,} batches, {rate:,.0f} rows/s{lag_text}, "
            f"{telemetry.total_of(telemetry.VERSIONS):,.0f} versions"
        )

    def _show(self, text: str) -> None:
        from rich.console import Console
        from rich.status import Status
        from rich.text import Text

        if self._line is None:
            self._line = Status(Text(text), console=Console(stderr=True))
            self._line.start()
        self._line.update(Text(text))

    def _show_nothing(self) -> None:
        with self._turn:
            for shown in (self._line, self._bars):
                if shown is not None:
                    shown.stop()
            self._line = self._bars = None


def _bars() -> Progress:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed:,} rows"))
    return Progress(*columns, TimeElapsedColumn(), console=Console(stderr=True), transient=True)


def _batch_value(batch: BatchDone) -> dict[str, Any]:
    from deltalakedb.cdc.lsn import format_lsn

    return {
        "event": "batch",
        "lsn": format_lsn(batch.lsn),
        "transactions": batch.transactions,
        "changes": batch.changes,
        "seconds": round(batch.seconds, 3),
        "last_committed_at": batch.last_committed_at,
    }


def report_value(report: CaptureReport) -> dict[str, Any]:
    """The report at the end of a run, for JSON."""
    from deltalakedb.cdc.lsn import format_lsn

    return {"event": "ended", **asdict(report), "rows": report.rows, "lsn": format_lsn(report.lsn)}
