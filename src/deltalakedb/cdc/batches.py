"""The commit of a batch: both layers of all tables and the progress in one transaction, made once and once only."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from deltalakedb.cdc.apply import Applied, apply_to_tables
from deltalakedb.cdc.control import Capture, begin_batch, load_capture, note_progress, progress_of, save_tables
from deltalakedb.cdc.lsn import format_lsn
from deltalakedb.cdc.reading import FileWritten
from deltalakedb.exceptions import (
    CaptureError,
    ConcurrentAppendError,
    ConcurrentDeleteDeleteError,
    ConcurrentDeleteReadError,
    DeltaError,
    MetadataChangedError,
    OutcomeUnknownError,
    ProtocolChangedError,
    StoreBusyError,
    StoreError,
    TableLockedError,
    TableNotFoundError,
)
from deltalakedb.log.paths import decode_path
from deltalakedb.operations.write import metrics_in_sparks_words
from deltalakedb.steps import reached
from deltalakedb.storage import open_data_storage

if TYPE_CHECKING:
    from deltalakedb.catalog import Catalog
    from deltalakedb.cdc.settings import CaptureSettings
    from deltalakedb.cdc.tables import CapturedTable
    from deltalakedb.log.actions import AddFile
    from deltalakedb.transactions.transaction import CatalogTransaction

_log = logging.getLogger(__name__)

T = TypeVar("T")
_ATTEMPTS: Final = 10
_OUTCOME_SECONDS: Final = 60.0
# Somebody else changed a table of ours meanwhile, such as by an OPTIMIZE: the same batch on top of that may succeed.
WORTH_ANOTHER_RUN: Final = (
    ConcurrentAppendError,
    ConcurrentDeleteReadError,
    ConcurrentDeleteDeleteError,
    MetadataChangedError,
    ProtocolChangedError,
    StoreBusyError,
    TableLockedError,
)


@dataclass(frozen=True, slots=True)
class Committed:
    """A batch that is in the lake."""

    capture: Capture
    applied: Mapping[str, Applied] = field(default_factory=dict)
    """What happened to the tables of current rows, by source table."""


def commit_batch(
    catalog: Catalog, capture: Capture, settings: CaptureSettings, read: Sequence[FileWritten], end: int
) -> Committed:
    """Commit the changes before `end`: the files of the tables of changes, what they do to the current rows, progress.

    Of a batch that does not commit the files are removed; where nobody can tell whether it did, they stay.
    """
    files: dict[str, list[AddFile]] = {}
    for one in read:
        files.setdefault(one.source, []).append(one.add)
    try:
        commit = partial(_commit, catalog, capture, settings, files, end)
        return commit_until_won(commit, f"the batch of {capture.slot} up to {format_lsn(end)}")
    except OutcomeUnknownError:
        raise
    except TableNotFoundError as error:
        remove_files(catalog, capture, read)
        raise CaptureError(
            f"a table of the capture {capture.slot} is gone from the lake: {error}. To have it again, copy its source "
            "table anew: dl cdc resnapshot <schema.table>"
        ) from error
    except Exception:  # an interrupt may come in the middle of a commit: then they stay, too
        remove_files(catalog, capture, read)
        raise


def commit_until_won(commit: Callable[[], T], what: str, worth: tuple[type[DeltaError], ...] = WORTH_ANOTHER_RUN) -> T:
    """Make a commit, and again when somebody else was first; what it is based on must be read within the call."""
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            return commit()
        except worth as error:
            if attempt == _ATTEMPTS:
                raise
            _log.info("%s is committed again: %s", what, error)
            time.sleep(random.uniform(0, 0.05 * 2**attempt))
    raise AssertionError("the last attempt returns or raises")


def _commit(
    catalog: Catalog, capture: Capture, settings: CaptureSettings, files: Mapping[str, list[AddFile]], end: int
) -> Committed:
    span = f"{format_lsn(capture.lsn)} to {format_lsn(end)}"
    with decided_batch(catalog, capture, span, end) as tx:
        for source, adds in files.items():
            table = capture.tables[source]
            # The changes first: whoever follows both tables never sees a row without the change that made it.
            tx.commit_actions(
                table.changes,
                [progress_of(capture, end), *adds],
                operation="CAPTURE",
                operation_parameters={"lsn": format_lsn(end)},
                operation_metrics=metrics_in_sparks_words(adds, ()),
            )
        changed = [(capture.tables[source], adds) for source, adds in files.items()]
        applied = apply_to_tables(tx, capture, changed, end, settings)
        ahead = note_progress(tx, capture, end)
        reached("cdc.applied")
    reached("cdc.committed")
    return Committed(ahead, applied)


@contextmanager
def decided_batch(catalog: Catalog, capture: Capture, what: str, end: int) -> Iterator[CatalogTransaction]:
    """A transaction that brings the capture to `end`, and whose files may be removed when it fails: it is known then
    that it did, but for OutcomeUnknownError."""
    tx = begin_batch(catalog, capture, f"capture {capture.slot}: {what}")
    try:
        yield tx
    except BaseException:
        if tx.is_open:
            tx.rollback()
        raise
    _end(tx, capture, end)


def _end(tx: CatalogTransaction, capture: Capture, end: int) -> None:
    """Commit, and where the database went away meanwhile ask again until it has said what became of it."""
    until = time.monotonic() + _OUTCOME_SECONDS
    delay = 0.1
    while True:
        try:
            tx.commit()
            return
        except Exception as error:  # not its kind but the transaction says whether the outcome is known
            if not tx.is_undecided:
                raise
            may_tell = isinstance(error, (StoreError, OutcomeUnknownError))
            if not may_tell or time.monotonic() >= until:
                raise OutcomeUnknownError(
                    f"nobody knows whether the batch of {capture.slot} up to {format_lsn(end)} was committed: "
                    f"{error}; start the capture again, it finds out"
                ) from error
            _log.warning("the catalog does not answer, asking again: %s", error)
            time.sleep(delay)
            delay = min(delay * 2, 5.0)


def commit_progress(catalog: Catalog, capture: Capture, end: int) -> Capture:
    """Note that nothing was to capture before `end`."""

    def commit() -> Capture:
        with begin_batch(catalog, capture, f"capture {capture.slot}: nothing up to {format_lsn(end)}") as tx:
            return note_progress(tx, capture, end)

    return commit_until_won(commit, f"the progress of {capture.slot}")


def commit_tables(catalog: Catalog, capture: Capture, tables: Sequence[CapturedTable], what: str) -> Capture:
    """Keep what has become of some tables, in a transaction of its own."""

    def commit() -> Capture:
        with begin_batch(catalog, capture, f"capture {capture.slot}: {what}") as tx:
            return note_progress(tx, save_tables(tx, capture, tables), capture.lsn)

    return commit_until_won(commit, f"{capture.slot}: {what}")


def reload_capture(catalog: Catalog, settings: CaptureSettings) -> Capture:
    """The capture as the lake has it now."""
    capture = load_capture(catalog, settings)
    if capture is None:
        raise CaptureError(f"the control table {settings.control_table} is gone: start the capture again")
    return capture


def remove_files(catalog: Catalog, capture: Capture, read: Iterable[FileWritten]) -> None:
    """Remove files that did not become part of a version, as far as that can be done."""
    by_source: dict[str, list[FileWritten]] = {}
    for one in read:
        by_source.setdefault(one.source, []).append(one)
    for source, files in by_source.items():
        with suppress(DeltaError, OSError):
            backing = catalog.table(capture.tables[source].changes)._backing
            storage = open_data_storage(backing.location, backing.storage_options())
            for one in files:
                storage.delete(decode_path(one.add.path))
