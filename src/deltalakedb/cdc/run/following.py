"""Follows the log of one capture: ranges are read by Spark and committed, then the slot is advanced."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

from deltalakedb.cdc.apply.batches import commit_batch, commit_progress, reload_capture, remove_files
from deltalakedb.cdc.apply.landing import drop_landing
from deltalakedb.cdc.apply.upkeep import compact_if_due
from deltalakedb.cdc.captured_table import CapturedTable, TableTroubleError
from deltalakedb.cdc.control import CaptureChangedError
from deltalakedb.cdc.copy.copies import TableCopy, abandon_copy, split_changes
from deltalakedb.cdc.decode.reading import (
    ChangesPlace,
    Description,
    FileWritten,
    PartRead,
    TaskFailed,
    from_row,
    read_part,
)
from deltalakedb.cdc.evolve.evolution import follow, stop_table
from deltalakedb.cdc.lsn import format_lsn
from deltalakedb.cdc.run.report import BatchDone, record_batch
from deltalakedb.cdc.run.sessions import spark_errors
from deltalakedb.cdc.settings import MASK_OPTION
from deltalakedb.cdc.source.offsets import split_range, stretch_after
from deltalakedb.cdc.source.peek import RelationChanged, Stopped
from deltalakedb.cdc.source.postgres import flush_lsn
from deltalakedb.cdc.source.slots import advance_slot, keep_restart_near
from deltalakedb.exceptions import CaptureError, OutcomeUnknownError, SlotLostError, SourceUnavailableError
from deltalakedb.log.protocol.codec import to_json

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from deltalakedb.catalog.catalog import Catalog
    from deltalakedb.cdc.control import Capture
    from deltalakedb.cdc.settings import CaptureSettings
    from deltalakedb.cdc.source.postgres import Connection

_log = logging.getLogger(__name__)

_MOST_FORMS: Final = 16
"""A table whose columns change this often within one transaction is stopped."""
_UNNOTED_BATCHES: Final = 4
"""After this many batches of log without changes progress is recorded, because the log is decoded again each time."""
_SLOT_SECONDS: Final = 10.0
"""The slot is advanced at most this often while a backlog is drained, because the server reads the log for that."""
_COMPACT_EVERY: Final = 8
"""Batches between two checks for small files."""


class StopRequested(Exception):  # noqa: N818  no error
    """The capture was asked to stop; nothing is in flight."""


@dataclass(slots=True)
class Tally:
    """Totals since the start."""

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
    """A range that is read while the one before it is committed."""

    start: int
    end: int
    began: float
    tables: Mapping[str, CapturedTable]
    """The tables it was planned with."""
    reading: Future[list[Description]]

    def result(self) -> list[Description]:
        return self.reading.result()


class ChangeFollower:
    """Follows one capture over one connection. A second thread must hold `lock` to use it."""

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
        """The position read so far; between the capture's own LSN and this there is nothing to capture."""
        self.tables_changed = False
        """Whether readers that were started before have outdated tables."""
        self.stretch = 0
        """How often the size of a batch is doubled for the next range."""
        self.lock = threading.RLock()
        self._tally, self._should_stop, self._on_batch = tally, should_stop, on_batch
        self._noted_at = time.monotonic()
        self._is_draining = False
        self._slot_lsn = 0
        self._slot_at = 0.0
        self._forms: dict[tuple[str, int], int] = {}
        self._options: tuple[Mapping[str, CapturedTable] | None, dict[str, str]] = (None, {})
        self.copies: dict[str, TableCopy] = {}
        """The copies under way, by source table: changes are stored for them."""

    # -- following

    def use(self, capture: Capture) -> None:
        """Continue with a capture that another part has changed."""
        if _live(capture) != _live(self.capture):
            self.tables_changed = True
        self.capture = capture
        self.at = max(self.at, capture.lsn)
        for source, copy in list(self.copies.items()):
            if capture.tables[source].copy_id != copy.id:  # another copy was requested, or the table has gone
                del self.copies[source]
                if capture.tables[source].stage in ("pending", "stopped"):
                    drop_landing(self.catalog, copy.landing)

    def use_copies(self, capture: Capture, copies: Mapping[str, TableCopy]) -> None:
        """Continue with these copies, which the capture has recorded."""
        self.copies = dict(copies)
        self.use(capture)

    def check_requests(self) -> None:
        """Load the tables from the lake: a new copy may have been requested."""
        loaded = reload_capture(self.catalog, self.settings)
        if loaded.choice != self.capture.choice:
            raise CaptureChangedError(f"what {loaded.slot} captures was changed by dl cdc apply")
        if loaded.lsn == self.capture.lsn and loaded.tables != self.capture.tables:
            self.use(loaded)

    def drain(self, end: int) -> Capture:
        """Capture everything before `end` and nothing after it; the capture's LSN is then exactly `end`."""
        if self.at < end and flush_lsn(self.conn) < end:  # log that is not flushed yet would be read as empty
            raise CaptureError(f"the source's log is not at {format_lsn(end)} yet: another try may succeed")
        with ThreadPoolExecutor(1, thread_name_prefix="deltalakedb-read") as reader:
            ahead: _ReadAhead | None = None
            self._is_draining = True
            try:
                while self.at < end:
                    if self._should_stop():
                        raise StopRequested
                    current = ahead or self._begin_read(reader, self.at, end, self.stretch)
                    ahead = None
                    read = current.result()
                    # While this range is committed, Spark and the source can read the next one.
                    if current.end < end and _is_plain(read):
                        ahead = self._begin_read(
                            reader, current.end, end, self._stretch_after(read, current.start, current.end)
                        )
                    self.take(read, current.start, current.end, current.began)
                    ahead = self._use_or_discard(ahead)
            finally:
                self._is_draining = False
                self._use_or_discard(ahead, discard=True)
        self.note()
        if self._slot_lsn < self.capture.lsn:
            self._follow_slot()
        return self.capture

    def _begin_read(self, reader: ThreadPoolExecutor, start: int, end: int, stretch: int) -> _ReadAhead:
        upto = min(end, start + (self.settings.batch_bytes << stretch))
        # The tables may change meanwhile: the options and the tables recorded here must be of the same moment.
        reading = reader.submit(self._read, self.options(), start, upto)
        return _ReadAhead(start, upto, time.monotonic(), self.capture.tables, reading)

    def _use_or_discard(self, ahead: _ReadAhead | None, *, discard: bool = False) -> _ReadAhead | None:
        """The range that was read ahead, if it comes next; otherwise its files are removed."""
        if ahead is None:
            return None
        if not discard and ahead.start == self.at and ahead.tables is self.capture.tables:
            return ahead
        with suppress(CaptureError):
            files = [item for item in ahead.result() if isinstance(item, FileWritten)]
            self.discard(files)
        return None

    def discard(self, files: Iterable[FileWritten]) -> None:
        """Remove files that are not needed."""
        remove_files(self.catalog, self.capture, files, {source: copy.landing for source, copy in self.copies.items()})

    def read(self, start: int, end: int) -> list[Description]:
        """Read a range with Spark's tasks; returns their descriptions."""
        return self._read(self.options(), start, end)

    def _read(self, options: Mapping[str, str], start: int, end: int) -> list[Description]:
        if options["places"] == "[]":
            return [PartRead(start, end)]
        # Not through the data source, which starts Python processes for each range to plan a query: loading them costs
        # more than reading a small range. The workers of a plain job stay.
        parts = split_range(start, end, int(options["tasks"]), self.settings.batch_bytes)
        source, slot, publication, places = (options[name] for name in ("source", "slot", "publication", "places"))
        task = partial(read_part, source, slot, publication, places, options.get(MASK_OPTION))
        with spark_errors():
            rows = self.spark.sparkContext.parallelize(parts, len(parts)).flatMap(task).collect()
        return [from_row(*row) for row in rows]

    def options(self) -> dict[str, str]:
        """The options for a reader that writes files."""
        tables, options = self._options
        if tables is self.capture.tables:
            return options
        settings = self.settings
        try:
            places = [ChangesPlace.of(self.catalog, table).to_value() for table in self.capture.streaming]
        except TableTroubleError as error:
            self._stop_table(error)
            return self.options()
        places += [self.copies[table.source].place().to_value() for table in self.capture.copying]
        options = {
            "source": settings.source,
            "publication": settings.publication,
            "slot": settings.slot,
            "output": "files",
            "places": to_json(places),
            "tasks": str(settings.parallelism or self.spark.sparkContext.defaultParallelism),
        }
        if settings.mask_key is not None:
            options[MASK_OPTION] = settings.mask_key
        self._options = (self.capture.tables, options)
        return options

    def take(self, read: Sequence[Description], start: int, end: int, began: float) -> None:
        """Commit what was read of [start, end), or only the part before a change of a table."""
        files = [one for one in read if isinstance(one, FileWritten)]
        failed = next((one for one in read if isinstance(one, TaskFailed)), None)
        changed = [one for one in read if isinstance(one, RelationChanged | Stopped)]
        if failed is not None or changed:
            self.discard(files)
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
        has_files = any(isinstance(item, FileWritten) for item in read)
        size = sum(item.bytes for item in read if isinstance(item, PartRead)) if has_files else 0
        return stretch_after(self.stretch, end - start, size, self.settings.batch_bytes)

    def _take_change(self, change: RelationChanged | Stopped, start: int) -> None:
        """Commit what comes before, then change the table; the caller reads what comes after again."""
        if change.lsn > start:
            began = time.monotonic()
            self.take(self.read(start, change.lsn), start, change.lsn, began)
            if self.at < change.lsn:  # another table changed before
                return
        self.note()
        self.tables_changed = True
        if change.source in self.copies and isinstance(change, RelationChanged):
            self.capture = abandon_copy(
                self.catalog, self.capture, self.copies.pop(change.source), "its columns have changed"
            )
            return
        count = self._forms[change.source, change.lsn] = self._forms.get((change.source, change.lsn), 0) + 1
        if isinstance(change, Stopped) or count > _MOST_FORMS:
            reason = change.reason if isinstance(change, Stopped) else "its columns change too often in one transaction"
            _log.warning("%s stops: %s", change.source, reason)
            self.use(stop_table(self.catalog, self.capture, change.source, reason, change.lsn))
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
        files, copy_changes = split_changes(self.copies, files, end)
        actions = [changes.action for changes in copy_changes]
        try:
            if files:
                capture = commit_batch(self.catalog, self.capture, files, end, actions).capture
            else:  # only tables that are being copied have changes
                capture = commit_progress(self.catalog, self.capture, end, actions)
        except OutcomeUnknownError:
            raise
        except Exception as error:  # nothing was committed, so no commit names these files
            self.discard(file for changes in copy_changes for file in changes.files)
            if not isinstance(error, TableTroubleError):
                raise
            self._stop_table(error)  # the range is read again, without this table
            return
        for changes in copy_changes:
            changes.copy.changes += [file.add for file in changes.files]
        self.capture, self.at = capture, end
        if not files:
            self._follow_slot()
            return
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

    def _stop_table(self, trouble: TableTroubleError) -> None:
        """Stop a table whose tables in the lake cannot be written, from the position read so far."""
        self.note()
        self.tables_changed = True
        _log.warning("%s", trouble)
        self.capture = stop_table(self.catalog, self.capture, trouble.source, trouble.reason, self.at)

    # -- progress without changes

    def note(self) -> None:
        """Record in the lake how far the log was read."""
        if self.at > self.capture.lsn:
            self.capture = commit_progress(self.catalog, self.capture, self.at)
            self._follow_slot()

    def note_if_due(self) -> None:
        """The heartbeat: record progress now and then while nothing is captured, so that the source can delete log."""
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
        except CaptureError as error:  # somebody reads the slot: nothing is lost, and the next batch tries again
            _log.warning("%s", error)


def _live(capture: Capture) -> dict[str, CapturedTable]:
    """The tables that are not stopped."""
    return {source: table for source, table in capture.tables.items() if table.stage != "stopped"}


def _is_plain(read: Sequence[Description]) -> bool:
    """Whether the range was read to its end, without a change of a table or a failure."""
    return all(isinstance(item, FileWritten | PartRead) for item in read)


def _sums(files: Sequence[FileWritten]) -> Mapping[str, Mapping[str, int]]:
    sums: dict[str, dict[str, int]] = {}
    for file in files:
        counts = sums.setdefault(file.source, {})
        for op, count in file.counts.items():
            counts[op] = counts.get(op, 0) + count
    return sums
