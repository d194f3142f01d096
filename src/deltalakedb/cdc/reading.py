"""The read task: a range of the source's log becomes files of the tables of changes; their descriptions leave it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

import pyarrow.compute as pc

from deltalakedb import exceptions
from deltalakedb.cdc.layers import OP
from deltalakedb.cdc.lsn import format_lsn
from deltalakedb.cdc.messages import Relation
from deltalakedb.cdc.peek import ChangeRows, RangeRead, RelationChanged, Stopped, read_changes
from deltalakedb.cdc.tables import CapturedTable
from deltalakedb.data.writer import FileWriter
from deltalakedb.exceptions import CaptureError, DeltaError, TableNotFoundError, redact
from deltalakedb.log.actions import AddFile
from deltalakedb.log.codec import to_json
from deltalakedb.log.commit import parse_action, render_action
from deltalakedb.log.paths import decode_path
from deltalakedb.log.types import parse_schema
from deltalakedb.storage import open_data_storage

if TYPE_CHECKING:
    import pyarrow as pa

    from deltalakedb.catalog import Catalog


@dataclass(frozen=True, slots=True)
class FileWritten:
    """A file that lies in the folder of a table of changes, and is no part of any version yet."""

    source: str
    add: AddFile
    counts: Mapping[str, int] = field(default_factory=dict)
    """Changes by operation, of all files that its task wrote for the table; given with the first of them."""


@dataclass(frozen=True, slots=True)
class TaskFailed:
    """Why a task came to nothing. An exception of the task would reach the driver as a text of Spark's alone."""

    error: str
    message: str

    @classmethod
    def of(cls, error: DeltaError) -> TaskFailed:
        return cls(type(error).__name__, redact(str(error)))

    def to_error(self) -> DeltaError:
        kind = getattr(exceptions, self.error, CaptureError)
        known = isinstance(kind, type) and issubclass(kind, CaptureError)
        return kind(self.message) if known else CaptureError(self.message)


@dataclass(frozen=True, slots=True)
class PartRead:
    """The end of a task: which part of the log it has read, and what was in it."""

    start: int
    end: int
    transactions: int = 0
    changes: int = 0
    bytes: int = 0
    """Of the messages that it was decoded into."""
    last_committed_at: datetime | None = None

    @classmethod
    def of(cls, start: int, end: int, read: RangeRead) -> PartRead:
        return cls(start, end, read.transactions, read.changes, read.bytes, read.last_committed_at)


Description = FileWritten | RelationChanged | Stopped | TaskFailed | PartRead
"""What a task tells the driver."""


@dataclass(frozen=True, slots=True)
class ChangesPlace:
    """A captured table, and what its task must know to write files of its table of changes."""

    table: CapturedTable
    location: str
    options: Mapping[str, str] | None
    schema: str
    configuration: Mapping[str, str | None]

    @classmethod
    def of(cls, catalog: Catalog, table: CapturedTable) -> ChangesPlace:
        try:
            changes = catalog.table(table.changes)
        except TableNotFoundError as error:
            raise CaptureError(
                f"the table of changes of {table.source} is gone from the lake: {error}. To have it again, copy the "
                f"source table anew: dl cdc resnapshot {table.source}"
            ) from error
        metadata = changes._backing.newest().metadata
        return cls(
            table,
            changes._backing.location,
            changes._backing.storage_options(),
            metadata.schema_string,
            dict(metadata.configuration),
        )

    def to_value(self) -> dict[str, Any]:
        return {
            "table": self.table.to_value(),
            "location": self.location,
            "options": self.options,
            "schema": self.schema,
            "configuration": self.configuration,
        }

    @classmethod
    def from_value(cls, value: Mapping[str, Any]) -> ChangesPlace:
        return cls(**{**value, "table": CapturedTable.from_value(value["table"])})


def write_range(
    dsn: str, slot: str, publication: str, start: int, end: int, places: Sequence[ChangesPlace]
) -> Iterator[Description]:
    """Read a range, write its changes into files, and say which; where a table has changed, say that and leave no file.

    Nothing is said before all is done: a task that fails in between leaves nothing to remember.
    """
    try:
        yield from _write_range(dsn, slot, publication, start, end, {place.table.source: place for place in places})
    except CaptureError as error:
        yield TaskFailed.of(error)
    except (DeltaError, OSError) as error:
        where = f"the changes from {format_lsn(start)} to {format_lsn(end)} cannot be written"
        yield TaskFailed.of(CaptureError(f"{where}: {error}"))


def read_part(dsn: str, slot: str, publication: str, places: str, part: tuple[int, int]) -> list[tuple[str, str]]:
    """The same as a task of a Spark job: `places` as JSON, the descriptions as rows."""
    parsed = tuple(map(ChangesPlace.from_value, json.loads(places)))
    return list(map(to_row, write_range(dsn, slot, publication, *part, parsed)))


def _write_range(
    dsn: str, slot: str, publication: str, start: int, end: int, places: Mapping[str, ChangesPlace]
) -> list[Description]:
    found: list[Description] = []
    read = PartRead(start, end)
    with ExitStack() as stack:
        writers: dict[str, _ChangesWriter] = {}
        tables = [place.table for place in places.values()]
        for item in read_changes(dsn, slot, publication, start, end, tables):
            match item:
                case ChangeRows(source, rows):
                    if source not in writers:
                        writers[source] = stack.enter_context(_ChangesWriter(places[source], rows.schema))
                    writers[source].write(rows)
                case RangeRead():
                    read = PartRead.of(start, end, item)
                case _:
                    found.append(item)
        if not found:
            for writer in writers.values():
                found += writer.finish()
            for writer in writers.values():
                writer.keep()
    return [*found, read]


class _ChangesWriter:
    """The files of one table; leaving its block removes them unless `keep` was said."""

    def __init__(self, place: ChangesPlace, arrow: pa.Schema) -> None:
        self._source = place.table.source
        self._storage = open_data_storage(place.location, place.options)
        self._writer = FileWriter(
            arrow,
            storage=self._storage,
            schema=parse_schema(place.schema),
            configuration=place.configuration,
        )
        self._counts: dict[str, int] = {}
        self._adds: list[AddFile] = []
        self._kept = False

    def __enter__(self) -> _ChangesWriter:
        self._writer.__enter__()
        return self

    def __exit__(self, *trouble: Any) -> None:
        self._writer.__exit__(*trouble)
        if not self._kept:
            for add in self._adds:
                with suppress(OSError, DeltaError):
                    self._storage.delete(decode_path(add.path))

    def write(self, rows: pa.RecordBatch) -> None:
        for one in pc.value_counts(rows.column(OP)).to_pylist():
            self._counts[one["values"]] = self._counts.get(one["values"], 0) + one["counts"]
        self._writer.write(rows)

    def finish(self) -> list[FileWritten]:
        self._adds = self._writer.finish()
        counts = [self._counts, *({} for _ in self._adds[1:])]
        return [FileWritten(self._source, add, said) for add, said in zip(self._adds, counts, strict=True)]

    def keep(self) -> None:
        self._kept = True


def to_row(item: Description) -> tuple[str, str]:
    """A description as a row of Spark."""
    match item:
        case FileWritten():
            value: dict[str, Any] = {"source": item.source, "add": render_action(item.add), "counts": item.counts}
            return "file", to_json(value)
        case RelationChanged():
            return "relation", to_json({"source": item.source, "relation": item.relation.to_value(), "lsn": item.lsn})
        case Stopped():
            return "stopped", to_json({"source": item.source, "reason": item.reason, "lsn": item.lsn})
        case TaskFailed():
            return "failed", to_json({"error": item.error, "message": item.message})
        case PartRead():
            at = item.last_committed_at
            said = None if at is None else at.isoformat()
            return "read", to_json([item.start, item.end, item.transactions, item.changes, item.bytes, said])


def from_row(kind: str, text: str) -> Description:
    """A row of Spark as the description it is."""
    value = json.loads(text)
    match kind:
        case "file":
            add = parse_action(value["add"], where=value["source"])
            assert isinstance(add, AddFile)
            return FileWritten(value["source"], add, value["counts"])
        case "relation":
            return RelationChanged(value["source"], Relation.from_value(value["relation"]), value["lsn"])
        case "stopped":
            return Stopped(value["source"], value["reason"], value["lsn"])
        case "failed":
            return TaskFailed(value["error"], value["message"])
        case _:
            start, end, transactions, changes, num_bytes, said = value
            at = None if said is None else datetime.fromisoformat(said)
            return PartRead(start, end, transactions, changes, num_bytes, at)
