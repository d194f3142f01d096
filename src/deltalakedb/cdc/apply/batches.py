"""The commit of a batch: both layers of all tables and the progress in one transaction, exactly once."""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, TypeVar

from deltalakedb.cdc.apply.current_rows import Applied, apply_to_tables
from deltalakedb.cdc.captured_table import tables_own_trouble
from deltalakedb.cdc.control import Capture, begin_batch, load_capture, note_progress, progress_of, save_tables
from deltalakedb.cdc.decode.reading import FileWritten
from deltalakedb.cdc.lsn import format_lsn
from deltalakedb.exceptions import (
    CaptureError,
    ConcurrentAppendError,
    ConcurrentDeleteDeleteError,
    ConcurrentDeleteReadError,
    DeltaError,
    GoneError,
    MetadataChangedError,
    NameChangedError,
    OutcomeUnknownError,
    ProtocolChangedError,
    StoreBusyError,
    StoreError,
    TableLockedError,
)
from deltalakedb.log.protocol.paths import decode_path
from deltalakedb.operations.write import metrics_in_sparks_words
from deltalakedb.runtime.backoff import Backoff
from deltalakedb.runtime.steps import reached
from deltalakedb.storage.location import open_storage

if TYPE_CHECKING:
    from deltalakedb.catalog.catalog import Catalog
    from deltalakedb.cdc.apply.landing import Landing
    from deltalakedb.cdc.captured_table import CapturedTable
    from deltalakedb.cdc.settings import CaptureSettings
    from deltalakedb.log.protocol.actions import Action, AddFile
    from deltalakedb.transactions.transaction import CatalogTransaction

_log = logging.getLogger(__name__)

T = TypeVar("T")
_ATTEMPTS: Final = 10
_LOST_RACES: Final = Backoff(0.1, 60.0, 0.0)
_OUTCOME_SECONDS: Final = 60.0
_OUTAGES: Final = Backoff(0.1, 5.0)
_NO_COPIES: Final[Mapping[str, Landing]] = MappingProxyType({})
# Another writer changed one of our tables meanwhile, for example by an OPTIMIZE: committing again may succeed.
WORTH_ANOTHER_RUN: Final = (
    ConcurrentAppendError,
    ConcurrentDeleteReadError,
    ConcurrentDeleteDeleteError,
    GoneError,
    MetadataChangedError,
    NameChangedError,
    ProtocolChangedError,
    StoreBusyError,
    TableLockedError,
)


@dataclass(frozen=True, slots=True)
class Committed:
    """A committed batch."""

    capture: Capture
    applied: Mapping[str, Applied] = field(default_factory=dict)
    """The row counts of the tables of current rows, by source table."""


def commit_batch(
    catalog: Catalog,
    capture: Capture,
    read: Sequence[FileWritten],
    end: int,
    beside: Sequence[Action] = (),
) -> Committed:
    """Commit the changes before `end`: the files of the tables of changes, the current rows, and the progress.

    `beside` are actions for the control table, in the same version as the progress. If the batch does not commit, its
    files are removed; if the outcome is unknown, they stay. TableTroubleError if one of the tables cannot take its
    changes: without it the batch may succeed.
    """
    files: dict[str, list[AddFile]] = {}
    for file in read:
        files.setdefault(file.source, []).append(file.add)
    try:
        commit = partial(_commit, catalog, capture, files, end, beside)
        done = commit_until_won(commit, f"the batch of {capture.slot} up to {format_lsn(end)}")
        remove_files(catalog, capture, [file for file in read if not capture.tables[file.source].keeps_changes])
        return done
    except OutcomeUnknownError:
        raise
    except Exception:  # an interrupt may come in the middle of a commit: then they stay too
        remove_files(catalog, capture, read)
        raise


def commit_until_won(commit: Callable[[], T], what: str, worth: tuple[type[DeltaError], ...] = WORTH_ANOTHER_RUN) -> T:
    """Call `commit`, and repeat it if another writer was first; it must read what it is based on itself."""
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            return commit()
        except worth as error:
            if attempt == _ATTEMPTS:
                raise
            _log.info("%s is committed again: %s", what, error)
            _LOST_RACES.sleep(attempt - 1)
    raise AssertionError("the last attempt returns or raises")


def _commit(
    catalog: Catalog,
    capture: Capture,
    files: Mapping[str, list[AddFile]],
    end: int,
    beside: Sequence[Action],
) -> Committed:
    span = f"{format_lsn(capture.lsn)} to {format_lsn(end)}"
    with decided_batch(catalog, capture, span, end) as tx:
        for source, adds in files.items():
            table = capture.tables[source]
            if not table.keeps_changes:
                continue
            # The changes first: a reader of both tables never sees a row without the change that made it.
            with tables_own_trouble(source):
                tx.commit_actions(
                    table.changes,
                    [progress_of(capture, end), *adds],
                    operation="CAPTURE",
                    operation_parameters={"lsn": format_lsn(end)},
                    operation_metrics=metrics_in_sparks_words(adds, ()),
                )
        changed = [(capture.tables[source], adds) for source, adds in files.items()]
        applied = apply_to_tables(tx, capture, changed, end)
        ahead = note_progress(tx, capture, end, beside)
        reached("cdc.applied")
    reached("cdc.committed")
    return Committed(ahead, applied)


@contextmanager
def decided_batch(catalog: Catalog, capture: Capture, what: str, end: int) -> Iterator[CatalogTransaction]:
    """A transaction that brings the capture to `end`. If it fails, its outcome is known and its files may be removed,
    except after OutcomeUnknownError."""
    tx = begin_batch(catalog, capture, f"capture {capture.slot}: {what}")
    try:
        yield tx
    except BaseException:
        if tx.is_open:
            tx.rollback()
        raise
    _end(tx, capture, end)


def _end(tx: CatalogTransaction, capture: Capture, end: int) -> None:
    """Commit; if the database goes away meanwhile, ask again until the outcome is known."""
    until = time.monotonic() + _OUTCOME_SECONDS
    for attempt in itertools.count():
        try:
            tx.commit()
            return
        except Exception as error:  # the transaction, not the class of the error, says whether the outcome is known
            if not tx.is_undecided:
                raise
            is_retried = isinstance(error, (StoreError, OutcomeUnknownError))
            if not is_retried or time.monotonic() >= until:
                raise OutcomeUnknownError(
                    f"nobody knows whether the batch of {capture.slot} up to {format_lsn(end)} was committed: "
                    f"{error}; start the capture again, it finds out"
                ) from error
            _log.warning("the catalog does not answer, asking again: %s", error)
            _OUTAGES.sleep(attempt)


def commit_progress(catalog: Catalog, capture: Capture, end: int, beside: Sequence[Action] = ()) -> Capture:
    """Record that there is nothing more to capture before `end`; `beside` are further actions of the control table."""

    def commit() -> Capture:
        with begin_batch(catalog, capture, f"capture {capture.slot}: nothing up to {format_lsn(end)}") as tx:
            return note_progress(tx, capture, end, beside)

    return commit_until_won(commit, f"the progress of {capture.slot}")


def commit_tables(
    catalog: Catalog, capture: Capture, tables: Sequence[CapturedTable], what: str, beside: Sequence[Action] = ()
) -> Capture:
    """Record the new state of some tables, and further actions of the control table, in a transaction of its own."""

    def commit() -> Capture:
        with begin_batch(catalog, capture, f"capture {capture.slot}: {what}") as tx:
            saved = save_tables(tx, capture, tables) if tables else capture
            return note_progress(tx, saved, capture.lsn, beside)

    return commit_until_won(commit, f"{capture.slot}: {what}")


def reload_capture(catalog: Catalog, settings: CaptureSettings) -> Capture:
    """Load the capture from the lake; CaptureError if its control table is gone."""
    capture = load_capture(catalog, settings)
    if capture is None:
        raise CaptureError(f"the control table {settings.control_table} is gone: start the capture again")
    return capture


def remove_files(
    catalog: Catalog, capture: Capture, read: Iterable[FileWritten], copies: Mapping[str, Landing] = _NO_COPIES
) -> None:
    """Remove files that did not become part of a version; failures are ignored.

    Changes of tables that are being copied are at the locations of `copies`.
    """
    by_source: dict[str, list[FileWritten]] = {}
    for file in read:
        by_source.setdefault(file.source, []).append(file)
    for source, files in by_source.items():
        with suppress(DeltaError, OSError):
            place = copies.get(source)
            if place is not None:
                storage = open_storage(place.location, place.options)
            else:
                table = capture.tables[source]
                backing = catalog.table(table.changes if table.keeps_changes else table.current)._backing
                storage = open_storage(backing.location, backing.storage_options())
            for file in files:
                storage.delete(decode_path(file.add.path))
