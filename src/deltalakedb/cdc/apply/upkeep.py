"""Upkeep between batches: compacts small files of both layers; it never fails the stream."""

from __future__ import annotations

import ctypes
import json
import logging
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from deltalakedb.cdc.run.report import record_failure
from deltalakedb.log.protocol.actions import AddFile
from deltalakedb.log.protocol.codec import to_json
from deltalakedb.log.protocol.rows import add_from_row
from deltalakedb.log.statistics.stats import deleted_part
from deltalakedb.operations.optimize import DEFAULT_TARGET_SIZE, Request

if TYPE_CHECKING:
    from deltalakedb.catalog.catalog import Catalog
    from deltalakedb.cdc.control import Capture
    from deltalakedb.cdc.settings import CaptureSettings

logger = logging.getLogger(__name__)

_TIERS: Final = (2 << 20, 16 << 20, DEFAULT_TARGET_SIZE)
"""Files grow from one size to the next, so that a row is rewritten about once per size and not with every batch."""
_MAX_DELETED: Final = 0.25
"""A large file is rewritten when deletion vectors remove more than this part of it."""
_MAX_BYTES: Final = 256 << 20
"""How much one run on a table rewrites at most, because the stream waits."""


CLUSTER_PROPERTY: Final = "deltalakedb.cdc.clusterBy"
"""The columns by which compaction sorts a table of current rows, as a JSON list."""


@dataclass(frozen=True, slots=True)
class _Work:
    """Files to rewrite, and the size of the new ones."""

    files: Sequence[AddFile]
    target_size: int


def compact_if_due(catalog: Catalog, capture: Capture, settings: CaptureSettings) -> list[str]:
    """Compact the tables that have enough small files; returns a line per table, also for failures.

    If another writer changes a table at the same moment, the compaction is dropped, and tried after a later batch.
    """
    lines: list[str] = []
    if settings.optimize_files <= 0:
        return lines
    try:
        many = {info.full_name.lower() for info in catalog.table_infos() if (info.num_files or 0) > 1}
    except Exception as error:  # as below: the stream continues whatever happens
        return [_report_failure(capture, "the catalog's tables", error)]
    for table in capture.streaming:
        for name in (table.current, table.changes):
            if name.lower() not in many:
                continue
            try:
                lines += _compact(catalog, name, settings.optimize_files)
            except Exception as error:  # a conflict, a full disk, a store that does not answer: the stream continues
                lines.append(_report_failure(capture, name, error))
    if lines:
        _release_memory()
    return lines


def _compact(catalog: Catalog, name: str, enough: int) -> Iterator[str]:
    table = catalog.table(name)
    sorted_by = json.loads(table.metadata().configuration.get(CLUSTER_PROPERTY) or "[]")
    live = [add_from_row(row) for row in table._snapshot.files_table().to_pylist()]
    for work in (*find_small(live, enough), *find_worn(live)):
        request = Request(
            columns=tuple(sorted_by) or None,
            files=frozenset(add.key for add in work.files),
            target_size=work.target_size,
        )
        metrics = table.optimize.run(request)
        if metrics["numFilesRemoved"]:
            yield f"{name}: {metrics['numFilesRemoved']} files became {metrics['numFilesAdded']}"


def _release_memory() -> None:
    """Return free memory to the system, which takes about a millisecond.

    A compaction is what needs most memory in the driver, in threads that end with it. Arrow's allocator and the C
    library would keep several times that amount.
    """
    pa.default_memory_pool().release_unused()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
    if trim is not None:  # glibc's
        trim(0)


def find_small(files: Iterable[AddFile], enough: int) -> Iterator[_Work]:
    """The small files of each partition that has enough of them, smallest tier first."""
    by_partition: dict[str, list[AddFile]] = {}
    for add in sorted(files, key=lambda one: (one.modification_time, one.path)):
        by_partition.setdefault(to_json(dict(sorted(add.partition_values.items()))), []).append(add)
    for adds in by_partition.values():
        for tier in _TIERS:
            # Two files below half the size always fit together, so there is progress, and an end.
            if sum(add.size * 2 < tier for add in adds) >= max(enough, 2):
                yield _Work(list(_within([add for add in adds if add.size < tier])), tier)
                break


def find_worn(files: Iterable[AddFile]) -> Iterator[_Work]:
    """Large files with many deleted rows, those with the most first."""
    worn = [(part, add) for add in files if (part := deleted_part(add)) > _MAX_DELETED and add.size >= _TIERS[0]]
    if worn:
        worn.sort(key=lambda one: -one[0])
        yield _Work(list(_within([add for _, add in worn])), DEFAULT_TARGET_SIZE)


def _within(files: Sequence[AddFile]) -> Iterator[AddFile]:
    """As many files as one run may rewrite, but at least two."""
    total = 0
    for number, add in enumerate(files):
        total += add.size
        if number >= 2 and total > _MAX_BYTES:
            return
        yield add


def _report_failure(capture: Capture, what: str, error: Exception) -> str:
    record_failure(capture.slot, error)
    logger.info("compaction of %s was dropped", what, exc_info=True)
    return f"{what}: not compacted now ({type(error).__name__})"
