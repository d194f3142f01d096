"""The read tasks: write a range of the source's log into files of the tables of changes, or return it as rows."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from deltalakedb import exceptions
from deltalakedb.cdc.captured_table import CapturedTable, TableTroubleError
from deltalakedb.cdc.decode.messages import Relation
from deltalakedb.cdc.layers import AFTER, BEFORE, COMMITTED_AT, LSN, OP, ORDINAL, UNCHANGED, XID, changes_schema
from deltalakedb.cdc.lsn import format_lsn
from deltalakedb.cdc.source.peek import ChangeRows, RangeRead, RelationChanged, Stopped, read_changes
from deltalakedb.data.writer import FileWriter
from deltalakedb.exceptions import CaptureError, DeltaError, TableNotFoundError, redact
from deltalakedb.log.protocol.actions import AddFile
from deltalakedb.log.protocol.codec import to_json
from deltalakedb.log.protocol.commit import parse_action, render_action
from deltalakedb.log.protocol.paths import decode_path
from deltalakedb.log.schema.types import parse_schema
from deltalakedb.storage.location import open_storage

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from deltalakedb.catalog.catalog import Catalog
    from deltalakedb.cdc.captured_table import CapturedTable

PASSING_FOLDER: Final = "changes"
"""The folder for files of changes that the lake does not keep; `dl vacuum` removes those of a killed process."""


@dataclass(frozen=True, slots=True)
class FileWritten:
    """A file in the folder of a table of changes that is not yet part of a version."""

    source: str
    add: AddFile
    counts: Mapping[str, int] = field(default_factory=dict)
    """Changes by operation, of all files that its task wrote for the table; only in the first of them."""


@dataclass(frozen=True, slots=True)
class TaskFailed:
    """Why a task failed. An exception of the task would reach the driver only as a text of Spark's."""

    error: str
    message: str

    @classmethod
    def of(cls, error: DeltaError) -> TaskFailed:
        return cls(type(error).__name__, redact(str(error)))

    def to_error(self) -> DeltaError:
        kind = getattr(exceptions, self.error, CaptureError)
        is_capture_error = isinstance(kind, type) and issubclass(kind, CaptureError)
        return kind(self.message) if is_capture_error else CaptureError(self.message)


@dataclass(frozen=True, slots=True)
class PartRead:
    """The end of a task: the part of the log that it has read, and what was in it."""

    start: int
    end: int
    transactions: int = 0
    changes: int = 0
    bytes: int = 0
    """Of the decoded messages."""
    last_committed_at: datetime | None = None

    @classmethod
    def of(cls, start: int, end: int, read: RangeRead) -> PartRead:
        return cls(start, end, read.transactions, read.changes, read.bytes, read.last_committed_at)


Description = FileWritten | RelationChanged | Stopped | TaskFailed | PartRead
"""What a task returns to the driver."""


@dataclass(frozen=True, slots=True)
class ChangesPlace:
    """A captured table, and what a task needs to write files of its table of changes."""

    table: CapturedTable
    location: str
    options: Mapping[str, str] | None
    schema: str
    configuration: Mapping[str, str | None]
    folder: str = ""
    """Below the location."""

    @classmethod
    def of(cls, catalog: Catalog, table: CapturedTable) -> ChangesPlace:
        """Changes that the lake does not keep are in the folder of the current rows until they are applied."""
        name = table.changes if table.keeps_changes else table.current
        try:
            lake_table = catalog.table(name)
        except TableNotFoundError as error:
            raise TableTroubleError(table.source, f"its table {name} is gone from the lake: {error}") from error
        location, options = lake_table._backing.location, lake_table._backing.storage_options()
        if not table.keeps_changes:
            return cls(table, location, options, changes_schema(table).to_json(), {}, PASSING_FOLDER)
        metadata = lake_table._backing.newest().metadata
        return cls(table, location, options, metadata.schema_string, dict(metadata.configuration))

    def to_value(self) -> dict[str, Any]:
        return {
            "table": self.table.to_value(),
            "location": self.location,
            "options": self.options,
            "schema": self.schema,
            "configuration": self.configuration,
            "folder": self.folder,
        }

    @classmethod
    def from_value(cls, value: Mapping[str, Any]) -> ChangesPlace:
        return cls(**{**value, "table": CapturedTable.from_value(value["table"])})


def write_range(
    dsn: str,
    slot: str,
    publication: str,
    start: int,
    end: int,
    places: Sequence[ChangesPlace],
    mask_key: str | None = None,
) -> Iterator[Description]:
    """Read a range, write its changes into files, and describe them; if a table has changed, return that and no file.

    Descriptions come after all work is done, so the driver need not track a task that fails in between.
    """
    by_source = {place.table.source: place for place in places}
    try:
        yield from _write_range(dsn, slot, publication, start, end, by_source, mask_key)
    except CaptureError as error:
        yield TaskFailed.of(error)
    except (DeltaError, OSError) as error:
        where = f"the changes from {format_lsn(start)} to {format_lsn(end)} cannot be written"
        yield TaskFailed.of(CaptureError(f"{where}: {error}"))


def read_part(
    dsn: str, slot: str, publication: str, places: str, mask_key: str | None, part: tuple[int, int]
) -> list[tuple[str, str]]:
    """The same as a task of a Spark job: `places` as JSON, the descriptions as rows."""
    return list(map(to_row, write_range(dsn, slot, publication, *part, _parse_places(places), mask_key)))


@lru_cache(maxsize=2)
def _parse_places(places: str) -> tuple[ChangesPlace, ...]:
    """Cached, because a worker reads many ranges of the same tables."""
    return tuple(map(ChangesPlace.from_value, json.loads(places)))


def _write_range(
    dsn: str,
    slot: str,
    publication: str,
    start: int,
    end: int,
    places: Mapping[str, ChangesPlace],
    mask_key: str | None,
) -> list[Description]:
    descriptions: list[Description] = []
    read = PartRead(start, end)
    with ExitStack() as stack:
        writers: dict[str, _ChangesWriter] = {}
        tables = [place.table for place in places.values()]
        for item in read_changes(dsn, slot, publication, start, end, tables, mask_key=mask_key):
            match item:
                case ChangeRows(source, rows):
                    if source not in writers:
                        writers[source] = stack.enter_context(_ChangesWriter(places[source], rows.schema))
                    writers[source].write(rows)
                case RangeRead():
                    read = PartRead.of(start, end, item)
                case _:
                    descriptions.append(item)
        if not descriptions:
            for writer in writers.values():
                descriptions += writer.finish()
            for writer in writers.values():
                writer.keep()
    return [*descriptions, read]


class _ChangesWriter:
    """The files of one table; leaving the block removes them unless `keep` was called."""

    def __init__(self, place: ChangesPlace, arrow: pa.Schema) -> None:
        self._source = place.table.source
        self._storage = open_storage(place.location, place.options)
        self._writer = FileWriter(
            arrow,
            storage=self._storage,
            schema=parse_schema(place.schema),
            configuration=place.configuration,
            folder=place.folder,
        )
        self._counts: dict[str, int] = {}
        self._adds: list[AddFile] = []
        self._keeps_files = False

    def __enter__(self) -> _ChangesWriter:
        self._writer.__enter__()
        return self

    def __exit__(self, *trouble: Any) -> None:
        self._writer.__exit__(*trouble)
        if not self._keeps_files:
            for add in self._adds:
                with suppress(OSError, DeltaError):
                    self._storage.delete(decode_path(add.path))

    def write(self, rows: pa.RecordBatch) -> None:
        for count in pc.value_counts(rows.column(OP)).to_pylist():
            self._counts[count["values"]] = self._counts.get(count["values"], 0) + count["counts"]
        self._writer.write(rows)

    def finish(self) -> list[FileWritten]:
        self._adds = self._writer.finish()
        counts = [self._counts, *({} for _ in self._adds[1:])]
        return [FileWritten(self._source, add, op_counts) for add, op_counts in zip(self._adds, counts, strict=True)]

    def keep(self) -> None:
        self._keeps_files = True


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
            committed_at = item.last_committed_at
            moment = None if committed_at is None else committed_at.isoformat()
            return "read", to_json([item.start, item.end, item.transactions, item.changes, item.bytes, moment])


def from_row(kind: str, text: str) -> Description:
    """Parse a row of Spark into its description."""
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
            start, end, transactions, changes, num_bytes, moment = value
            committed_at = None if moment is None else datetime.fromisoformat(moment)
            return PartRead(start, end, transactions, changes, num_bytes, committed_at)


_SCALARS: Final = (OP, LSN, XID, ORDINAL, COMMITTED_AT, UNCHANGED)


def typed_rows(
    dsn: str, slot: str, publication: str, start: int, end: int, table: CapturedTable, schema: StructType
) -> Iterator[pa.RecordBatch]:
    """The changes of one table, in the Arrow types of Spark's schema."""
    from pyspark.sql.pandas.types import to_arrow_schema

    arrow_schema = to_arrow_schema(schema)
    for changes in _changes(dsn, slot, publication, start, end, [table]):
        columns = [changes.rows.column(item.name).cast(item.type) for item in arrow_schema]
        yield pa.RecordBatch.from_arrays(columns, schema=arrow_schema)


def json_rows(
    dsn: str, slot: str, publication: str, start: int, end: int, tables: Sequence[CapturedTable]
) -> Iterator[pa.RecordBatch]:
    """The changes of all tables; rows as JSON, with values as DuckDB prints them."""
    import duckdb

    with duckdb.connect() as engine:
        engine.execute("set timezone = 'UTC'")
        for changes in _changes(dsn, slot, publication, start, end, tables):
            rows = changes.rows
            before, after = (
                _first_column(engine.from_arrow(pa.table({"row": rows.column(name)})).project("to_json(row)::varchar"))
                for name in (BEFORE, AFTER)
            )
            columns = [
                pa.array([changes.source] * rows.num_rows, pa.string()),
                *map(rows.column, _SCALARS),
                before,
                after,
            ]
            yield pa.RecordBatch.from_arrays(columns, names=["table", *_SCALARS, BEFORE, AFTER])


def _first_column(rows: object) -> pa.Array:
    column = rows.to_arrow_table().column(0)  # type: ignore[attr-defined]  # a relation of DuckDB
    return column.combine_chunks().cast(pa.string())


def _changes(
    dsn: str, slot: str, publication: str, start: int, end: int, tables: Sequence[CapturedTable]
) -> Iterator[ChangeRows]:
    for item in read_changes(dsn, slot, publication, start, end, tables):
        match item:
            case ChangeRows():
                yield item
            case RelationChanged(source, _, lsn):
                raise CaptureError(
                    f"the columns of {source} are others in the transaction at {format_lsn(lsn)} than now: read up to "
                    'there with .option("endLsn", ...), or begin after it with .option("startLsn", ...)'
                )
            case Stopped(_, reason, _):
                raise CaptureError(reason)
            case RangeRead():
                return
