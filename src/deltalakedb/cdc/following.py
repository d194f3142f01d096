"""A capture on its way through the log: ranges are read by Spark, committed, and the slot follows."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from deltalakedb.cdc.batches import commit_batch, commit_progress, reload_capture, remove_files
from deltalakedb.cdc.evolution import follow, stop_table
from deltalakedb.cdc.lsn import format_lsn
from deltalakedb.cdc.metrics import record_batch
from deltalakedb.cdc.offsets import split_range, stretch_after
from deltalakedb.cdc.peek import RelationChanged, Stopped
from deltalakedb.cdc.reading import ChangesPlace, Description, FileWritten, PartRead, TaskFailed, from_row, read_part
from deltalakedb.cdc.report import BatchDone
from deltalakedb.cdc.server import flush_lsn
from deltalakedb.cdc.slots import advance_slot, keep_restart_near
from deltalakedb.cdc.upkeep import compact_if_due
from deltalakedb.exceptions import CaptureError, SlotLostError, SourceUnavailableError, redact
from deltalakedb.log.codec import to_json

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from deltalakedb.catalog import Catalog
    from deltalakedb.cdc.control import Capture
    from deltalakedb.cdc.server import Connection
    from deltalakedb.cdc.settings import CaptureSettings
    from deltalakedb.cdc.tables import CapturedTable

_log = logging.getLogger(__name__)

_MOST_FORMS: Final = 16
"""A table that takes so many forms within one transaction is not followed any further."""
_UNNOTED_BATCHES: Final = 4
"""Log without anything to capture is let go after so many batches of it, as it is decoded again each time."""
_SLOT_SECONDS: Final = 10.0
"""While a backlog is drained the slot follows no more often: each time the server reads the log once more for that."""
_COMPACT_EVERY: Final = 8
"""Batches between two looks at small files."""


class StopRequested(Exception):  # noqa: N818  no error
    """Somebody wants the capture to end; nothing is under way."""


@dataclass(slots=True)
class Tally:
    """What has been done since the start."""

    batches: int = 0
    transactions: int = 0
    changes: dict[str, dict[str, int]] = field(default_factory=dict)
    copied: list[str] = field(default_factory=list)

    def add(self, done: BatchDone) -> None:
        self.batches += 1
        self.transactions += done.transactions
        for source, ops in done.changes.items():
            sums = self.changes.setdefault(source, {})
            for op, count in ops.items():
                sums[op] = sums.get(op, 0) + count


@dataclass(frozen=True, slots=True)
class _ReadAhead:
    """A range that is being read while the one before it is committed."""

    start: int
    end: int
    began: float
    tables: Mapping[str, CapturedTable]
    """Those it was planned with."""
    reading: Future[list[Description]]

    def result(self) -> list[Description]:
        return self.reading.result()


class ChangeFollower:
    """Follows one capture over one connection. Whoever uses it from a second thread holds `lock`."""

    def __init__(
        self,
        catalog: Catalog,
        settings: CaptureSettings,
        spark: SparkSession,
        conn: Connection,
        capture: Capture,
        tally: Tally,
        *,
        should_stop: Callable[[], bool] = lambda: False,
        on_batch: Callable[[BatchDone], None] | None = None,
    ) -> None:
        self.catalog, self.settings, self.spark, self.conn = catalog, settings, spark, conn
        self.capture = capture
        self.at = capture.lsn
        """Read up to here; between the capture's own LSN and this there is nothing to capture."""
        self.tables_changed = False
        """Whether readers that were told the tables before are out of date."""
        self.stretch = 0
        """How often the size of a batch is doubled for the next range."""
        self.lock = threading.RLock()
        self._tally, self._should_stop, self._on_batch = tally, should_stop, on_batch
        self._noted_at = time.monotonic()
        self._is_draining = False
        self._slot_lsn = 0
        self._slot_at = 0.0
        self._forms: dict[tuple[str, int], int] = {}
        self._asked: tuple[Mapping[str, CapturedTable] | None, dict[str, str]] = (None, {})

    # -- going on

    def use(self, capture: Capture) -> None:
        """Go on with what others have made of the capture."""
        if _live(capture) != _live(self.capture):
            self.tables_changed = True
        self.capture = capture
        self.at = max(self.at, capture.lsn)

    def heed_requests(self) -> None:
        """Go on with the tables as the lake has them: somebody may have asked for a new copy of one."""
        found = reload_capture(self.catalog, self.settings)
        if found.lsn == self.capture.lsn and found.tables != self.capture.tables:
            self.use(found)

    def drain(self, end: int) -> Capture:
        """Capture everything before `end` and nothing after it; the capture's LSN is then `end` exactly."""
        if self.at < end and flush_lsn(self.conn) < end:  # what is not on the server's disk would be read as nothing
            raise CaptureError(f"the source's log is not at {format_lsn(end)} yet: another try may succeed")
        with ThreadPoolExecutor(1, thread_name_prefix="deltalakedb-read") as reader:
            ahead: _ReadAhead | None = None
            self._is_draining = True
            try:
                while self.at < end:
                    if self._should_stop():
                        raise StopRequested
                    now = ahead or self._begin_read(reader, self.at, end, self.stretch)
                    ahead = None
                    read = now.result()
                    # While this range is committed, Spark and the source are free for the next one.
                    if now.end < end and _is_plain(read):
                        ahead = self._begin_read(reader, now.end, end, self._stretch_after(read, now.start, now.end))
                    self.take(read, now.start, now.end, now.began)
                    ahead = self._kept(ahead)
            finally:
                self._is_draining = False
                self._kept(ahead, discard=True)
        self.note()
        if self._slot_lsn < self.capture.lsn:
            self._follow_slot()
        return self.capture

    def _begin_read(self, reader: ThreadPoolExecutor, start: int, end: int, stretch: int) -> _ReadAhead:
        upto = min(end, start + (self.settings.batch_bytes << stretch))
        # Meanwhile the tables may become others: whoever reads must be told the same that is noted here.
        reading = reader.submit(self._read, self.options(), start, upto)
        return _ReadAhead(start, upto, time.monotonic(), self.capture.tables, reading)

    def _kept(self, ahead: _ReadAhead | None, *, discard: bool = False) -> _ReadAhead | None:
        """What was read ahead, if it is what comes next; otherwise nothing is left of it."""
        if ahead is None:
            return None
        if not discard and ahead.start == self.at and ahead.tables is self.capture.tables:
            return ahead
        with suppress(CaptureError):
            files = [one for one in ahead.result() if isinstance(one, FileWritten)]
            remove_files(self.catalog, self.capture, files)
        return None

    def read(self, start: int, end: int) -> list[Description]:
        """What Spark's tasks have to say of a range."""
        return self._read(self.options(), start, end)

    def _read(self, options: Mapping[str, str], start: int, end: int) -> list[Description]:
        if options["places"] == "[]":
            return [PartRead(start, end)]
        # Not through the data source: to plan a query it starts Pythons of its own, for each range anew, and what they
        # load costs more than the reading of a small range. The workers of a plain job stay.
        parts = split_range(start, end, int(options["tasks"]), self.settings.batch_bytes)
        task = partial(read_part, options["source"], options["slot"], options["publication"], options["places"])
        with spark_errors():
            rows = self.spark.sparkContext.parallelize(parts, len(parts)).flatMap(task).collect()
        return [from_row(*row) for row in rows]

    def options(self) -> dict[str, str]:
        """How a reader of the capture is asked for files."""
        known, options = self._asked
        if known is self.capture.tables:
            return options
        settings = self.settings
        places = [ChangesPlace.of(self.catalog, table).to_value() for table in self.capture.streaming]
        options = {
            "source": settings.source,
            "publication": settings.publication,
            "slot": settings.slot,
            "output": "files",
            "places": to_json(places),
            "tasks": str(settings.parallelism or self.spark.sparkContext.defaultParallelism),
        }
        self._asked = (self.capture.tables, options)
        return options

    def take(self, read: Sequence[Description], start: int, end: int, began: float) -> None:
        """Make what was read of [start, end) true, or as much of it as comes before a change of a table."""
        files = [one for one in read if isinstance(one, FileWritten)]
        failed = next((one for one in read if isinstance(one, TaskFailed)), None)
        changed = [one for one in read if isinstance(one, RelationChanged | Stopped)]
        if failed is not None or changed:
            remove_files(self.catalog, self.capture, files)
        if failed is not None:
            raise failed.to_error()
        if changed:
            self._take_change(min(changed, key=lambda one: one.lsn), start)
            return
        if files:
            self._commit(files, [one for one in read if isinstance(one, PartRead)], end, began)
        else:
            self.at = end
            self.note_if_due()
        self.stretch = self._stretch_after(read, start, end)

    def _stretch_after(self, read: Sequence[Description], start: int, end: int) -> int:
        has_files = any(isinstance(one, FileWritten) for one in read)
        held = sum(one.bytes for one in read if isinstance(one, PartRead)) if has_files else 0
        return stretch_after(self.stretch, end - start, held, self.settings.batch_bytes)

    def _take_change(self, change: RelationChanged | Stopped, start: int) -> None:
        """Commit what comes before, then let the table change; what comes after is read again by whoever called."""
        if change.lsn > start:
            began = time.monotonic()
            self.take(self.read(start, change.lsn), start, change.lsn, began)
            if self.at < change.lsn:  # another table changed before
                return
        self.note()
        self.tables_changed = True
        seen = self._forms[change.source, change.lsn] = self._forms.get((change.source, change.lsn), 0) + 1
        if isinstance(change, Stopped) or seen > _MOST_FORMS:
            reason = change.reason if isinstance(change, Stopped) else "its columns change too often in one transaction"
            _log.warning("%s stops: %s", change.source, reason)
            self.capture = stop_table(self.catalog, self.capture, change.source, reason, change.lsn)
            return
        self.capture = follow(
            self.catalog,
            self.capture,
            self.settings,
            change.relation,
            self.conn,
            source=change.source,
            lsn=change.lsn,
        )

    def _commit(self, files: Sequence[FileWritten], parts: Sequence[PartRead], end: int, began: float) -> None:
        done = commit_batch(self.catalog, self.capture, self.settings, files, end)
        self.capture, self.at = done.capture, end
        times = [part.last_committed_at for part in parts if part.last_committed_at is not None]
        batch = BatchDone(
            end,
            sum(part.transactions for part in parts),
            _sums(files),
            time.monotonic() - began,
            max(times, default=None),
        )
        self._tally.add(batch)
        self._follow_slot()
        if self._slot_lsn == end:
            keep_restart_near(self.conn, self.capture.slot, self.settings.batch_bytes)
        record_batch(
            self.capture.slot, seconds=batch.seconds, rows=batch.changes, lsn=end, flushed_lsn=flush_lsn(self.conn)
        )
        if self._on_batch is not None:
            self._on_batch(batch)
        if self._tally.batches % _COMPACT_EVERY == 0:
            for line in compact_if_due(self.catalog, self.capture, self.settings):
                _log.info("%s", line)

    # -- progress without changes

    def note(self) -> None:
        """Note in the lake how far the log was read."""
        if self.at > self.capture.lsn:
            self.capture = commit_progress(self.catalog, self.capture, self.at)
            self._follow_slot()

    def note_if_due(self) -> None:
        """The heartbeat: while nothing is captured the source may still let go of its log now and then."""
        late = time.monotonic() - self._noted_at >= self.settings.heartbeat_seconds
        if late or self.at - self.capture.lsn >= _UNNOTED_BATCHES * self.settings.batch_bytes:
            self.note()

    def _follow_slot(self) -> None:
        self._noted_at = now = time.monotonic()
        if self._is_draining and now - self._slot_at < _SLOT_SECONDS:
            return
        try:
            advance_slot(self.conn, self.capture.slot, self.capture.lsn)
            self._slot_lsn, self._slot_at = self.capture.lsn, now
        except (SlotLostError, SourceUnavailableError):
            raise
        except CaptureError as error:  # somebody reads it: nothing is lost by that, and the next batch tries again
            _log.warning("%s", error)


def _live(capture: Capture) -> dict[str, CapturedTable]:
    """The tables that are read, or will be."""
    return {source: table for source, table in capture.tables.items() if table.stage != "stopped"}


def _is_plain(read: Sequence[Description]) -> bool:
    """Whether the range ends where it should, with the tables as they are known."""
    return all(isinstance(one, FileWritten | PartRead) for one in read)


def _sums(files: Sequence[FileWritten]) -> Mapping[str, Mapping[str, int]]:
    sums: dict[str, dict[str, int]] = {}
    for one in files:
        counts = sums.setdefault(one.source, {})
        for op, count in one.counts.items():
            counts[op] = counts.get(op, 0) + count
    return sums


@contextmanager
def spark_errors() -> Iterator[None]:
    """Errors of Spark in our words: whoever runs a capture should not need to read a stack of Java."""
    try:
        yield
    except (PySparkException, Py4JError) as error:
        raise CaptureError(f"Spark failed: {redact(_last_line(str(error)))}") from error


def _last_line(text: str) -> str:
    """What a Python task said, out of all that Java says around it."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    told = [line for line in lines if not line.startswith(("at ", "Caused by:", "...", "File ", "Traceback"))]
    errors = [line for line in told if "Error: " in line or "Exception: " in line]
    return (errors or told or ["no reason was given"])[-1]
