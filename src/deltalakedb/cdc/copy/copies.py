"""Copies beside the stream, as recorded in the control table: the parts that were read, and the changes since.

An interrupted copy continues from here. It reads pages of the source's table at different moments, so its files alone
are not the table at any moment: they are in no version until they are combined with the changes since the copy began
(`publishing.py`).
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from deltalakedb.cdc.apply.batches import commit_tables
from deltalakedb.cdc.apply.landing import Landing, LandingChanged, drop_landing, reopen_landing
from deltalakedb.cdc.captured_table import CapturedTable
from deltalakedb.cdc.control import Capture
from deltalakedb.cdc.decode.reading import ChangesPlace, FileWritten
from deltalakedb.cdc.layers import changes_schema
from deltalakedb.cdc.source.copy_plan import PageRange
from deltalakedb.exceptions import TableNotFoundError
from deltalakedb.log.protocol.actions import AddFile, DomainMetadata, Metadata
from deltalakedb.log.protocol.codec import to_json
from deltalakedb.log.protocol.commit import parse_action, render_action
from deltalakedb.log.schema.types import type_to_value

if TYPE_CHECKING:
    from deltalakedb.catalog.catalog import Catalog

_log = logging.getLogger(__name__)

FEATURE: Final = {"delta.feature.domainMetadata": "supported"}
"""The feature that the control table needs to record copies."""
_DOMAIN: Final = "deltalakedb.cdc.copy."


@dataclass(frozen=True, slots=True)
class Chunk:
    """A part of the copy that was read."""

    adds: tuple[AddFile, ...]
    rows: int
    watermark: int
    """The source's log position after the read: every change that the rows show is before it."""
    since: int = 0
    """The rows show every change before this LSN."""


@dataclass(slots=True)
class TableCopy:
    """A copy of one table beside the stream."""

    landing: Landing
    floor: int
    """Transactions from before the copy have smaller ids: a reader must see all of them ended."""
    tasks: tuple[tuple[PageRange, ...], ...]
    rows: int
    """The estimate of the source's planner."""
    snapshot_lsn: int | None = None
    """For a table without a key, which is read at one snapshot: only changes from this LSN on count."""
    chunks: dict[int, Chunk] = field(default_factory=dict)
    """By task number; patches have higher numbers."""
    changes: list[AddFile] = field(default_factory=list)

    @property
    def id(self) -> str:
        assert self.landing.job is not None, "only tables of current rows are copied"
        return self.landing.job.folder

    @property
    def table(self) -> CapturedTable:
        return self.landing.table

    @property
    def source(self) -> str:
        return self.landing.table.source

    @property
    def missing(self) -> list[int]:
        """The numbers of the unfinished tasks."""
        return [number for number in range(len(self.tasks)) if number not in self.chunks]

    @property
    def watermark(self) -> int:
        """The LSN that the stream must reach before the copy can be published."""
        return max((chunk.watermark for chunk in self.chunks.values()), default=0)

    def begin_action(self) -> DomainMetadata:
        landing = self.landing
        value = {
            "table": landing.table.to_value(),
            "location": landing.location,
            "actions": [render_action(action) for action in landing.actions],
            "metadata": render_action(landing.metadata),
            "before": None if landing.before is None else render_action(landing.before),
            "reservedFor": landing.reserved_for,
            "floor": self.floor,
            "rows": self.rows,
            "tasks": [[page_range.to_value() for page_range in ranges] for ranges in self.tasks],
        }
        return DomainMetadata(f"{_DOMAIN}{self.id}", to_json(value), removed=False)

    def chunk_action(self, number: int) -> DomainMetadata:
        chunk = self.chunks[number]
        value = {"adds": _lines(chunk.adds), "rows": chunk.rows, "watermark": chunk.watermark, "since": chunk.since}
        return DomainMetadata(f"{_DOMAIN}{self.id}.chunk.{number}", to_json(value), removed=False)

    def changes_action(self, adds: Iterable[AddFile], lsn: int) -> DomainMetadata:
        """The files of a batch that ends at `lsn`."""
        return DomainMetadata(f"{_DOMAIN}{self.id}.changes.{lsn:016x}", to_json(_lines(adds)), removed=False)

    def place(self) -> ChangesPlace:
        """Where tasks that read the log write the table's changes."""
        schema = to_json(type_to_value(changes_schema(self.table)))
        landing = self.landing
        return ChangesPlace(self.table, landing.location, landing.options, schema, {}, f"{self.id}/changes")


def load_copies(catalog: Catalog, capture: Capture) -> tuple[dict[str, TableCopy], list[str]]:
    """The copies under way, by source table, and the domains of those that are no longer needed."""
    try:
        domains = catalog.table(capture.control)._backing.newest().domain_metadata()
    except TableNotFoundError:
        return {}, []
    values = {name: domain.configuration for name, domain in sorted(domains.items()) if name.startswith(_DOMAIN)}
    tables = {table.copy_id: table for table in capture.copying if table.copy_id is not None}
    copies: dict[str, TableCopy] = {}
    for copy_id, table in tables.items():
        if (text := values.get(_DOMAIN + copy_id)) is not None:
            with suppress(LandingChanged):  # its table is gone; another copy is made
                copies[table.source] = _parse(catalog, table, copy_id, json.loads(text))
    stale = []
    for name, text in values.items():
        copy_id, _, rest = name.removeprefix(_DOMAIN).partition(".")
        copy = copies.get(tables[copy_id].source) if copy_id in tables else None
        kind, _, number = rest.partition(".")
        if copy is None:
            stale.append(name)
        elif kind == "chunk" and copy.table.is_keyed:  # a table without a key is read at one snapshot, or again
            value = json.loads(text)
            since = value.get("since", 0)  # earlier versions did not record it
            copy.chunks[int(number)] = Chunk(_adds(value["adds"]), value["rows"], value["watermark"], since)
        elif kind == "changes":
            copy.changes += _adds(json.loads(text))
    return copies, stale


def parts_read(catalog: Catalog, capture: Capture) -> dict[str, tuple[int, int]]:
    """The number of parts read and the number of parts, for each copy under way, by source table."""
    if not capture.copying:
        return {}
    domains = catalog.table(capture.control)._backing.newest().domain_metadata()
    parts = {}
    for table in capture.copying:
        name = f"{_DOMAIN}{table.copy_id}"
        if name in domains:
            done = sum(domain.startswith(f"{name}.chunk.") for domain in domains)
            parts[table.source] = (done, len(json.loads(domains[name].configuration)["tasks"]))
    return parts


def removed(domains: Iterable[str]) -> list[DomainMetadata]:
    """The actions that remove domains."""
    return [DomainMetadata(name, "", removed=True) for name in domains]


def domains_of(catalog: Catalog, capture: Capture, copy_ids: Iterable[str]) -> list[str]:
    """The domains of these copies in the control table."""
    domains = catalog.table(capture.control)._backing.newest().domain_metadata()
    prefixes = tuple(_DOMAIN + copy_id for copy_id in copy_ids)
    return [name for name in domains if name.startswith(_DOMAIN) and _is_of(name, prefixes)]


def _is_of(name: str, prefixes: tuple[str, ...]) -> bool:
    return any(name == prefix or name.startswith(f"{prefix}.") for prefix in prefixes)


@dataclass(frozen=True, slots=True)
class CopyChanges:
    """Changes of a table that is being copied, and the action that records them for its copy."""

    copy: TableCopy
    files: list[FileWritten]
    action: DomainMetadata


def split_changes(
    copies: Mapping[str, TableCopy], read: Iterable[FileWritten], lsn: int
) -> tuple[list[FileWritten], list[CopyChanges]]:
    """Split the files of a batch up to `lsn` into those for tables of the lake and those for copies."""
    others, by_source = [], dict[str, list[FileWritten]]()
    for file in read:
        if file.source in copies:
            by_source.setdefault(file.source, []).append(file)
        else:
            others.append(file)
    copy_changes = []
    for source, files in by_source.items():
        copy = copies[source]
        copy_changes.append(CopyChanges(copy, files, copy.changes_action((file.add for file in files), lsn)))
    return others, copy_changes


def abandon_copy(catalog: Catalog, capture: Capture, copy: TableCopy, reason: str) -> Capture:
    """Give up a copy: its table waits for another one."""
    _log.info("%s: the copy of %s begins anew: %s", capture.slot, copy.source, reason)
    waiting = replace(capture.tables[copy.source], stage="pending", copy_id=None)
    forgotten = removed(domains_of(catalog, capture, [copy.id]))
    capture = commit_tables(catalog, capture, [waiting], f"the copy of {copy.source} begins anew", forgotten)
    drop_landing(catalog, copy.landing)
    return capture


def _parse(catalog: Catalog, table: CapturedTable, copy_id: str, value: Mapping[str, Any]) -> TableCopy:
    where = f"the copy of {table.source}"
    metadata = parse_action(value["metadata"], where=where)
    before = None if value["before"] is None else parse_action(value["before"], where=where)
    assert isinstance(metadata, Metadata)
    assert before is None or isinstance(before, Metadata)
    landing = reopen_landing(
        catalog,
        replace(CapturedTable.from_value(value["table"]), stage="copying", copy_id=copy_id, start_lsn=table.start_lsn),
        location=value["location"],
        metadata=metadata,
        actions=tuple(parse_action(line, where=where) for line in value["actions"]),
        before=before,
        reserved_for=value["reservedFor"],
        folder=copy_id,
    )
    tasks = tuple(tuple(map(PageRange.from_value, ranges)) for ranges in value["tasks"])
    return TableCopy(landing, value["floor"], tasks, value["rows"])


def _lines(adds: Iterable[AddFile]) -> list[str]:
    return [render_action(add) for add in adds]


def _adds(lines: Iterable[str]) -> tuple[AddFile, ...]:
    adds = [parse_action(line, where="a copy") for line in lines]
    return tuple(add for add in adds if isinstance(add, AddFile))
