"""`format("pgcdc")`: the changes of a Postgres publication as a data source of Spark, for a range and as a stream."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from deltalakedb.exceptions import (
    CaptureError,
    CaptureSetupError,
    ConfigError,
    MissingExtraError,
    SourceUnavailableError,
)

try:
    from pyspark.sql import types as T  # noqa: N812  the usual name
    from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
except ModuleNotFoundError:
    raise MissingExtraError("deltalakedb.cdc", "cdc") from None

from deltalakedb.cdc.layers import AFTER, BEFORE, COMMITTED_AT, LSN, OP, ORDINAL, UNCHANGED, XID, changes_schema
from deltalakedb.cdc.lsn import parse_lsn
from deltalakedb.cdc.run.presence import find_runner
from deltalakedb.cdc.settings import MASK_OPTION, CaptureSettings, parse_duration, parse_size
from deltalakedb.cdc.source.offsets import Offset, Pace, split_range
from deltalakedb.cdc.source.postgres import Connection, connect, flush_lsn, identify
from deltalakedb.cdc.source.publication import published_tables
from deltalakedb.cdc.source.slots import advance_slot, check_slot, find_slot

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

    from deltalakedb.cdc.captured_table import CapturedTable
    from deltalakedb.cdc.control import Server

NAME: Final = "pgcdc"
_ALL_TABLES_SCHEMA: Final = (
    f"table string, {OP} string, {LSN} bigint, {XID} bigint, {ORDINAL} bigint, {COMMITTED_AT} timestamp, "
    f"{UNCHANGED} array<string>, {BEFORE} string, {AFTER} string"
)
_DESCRIPTION_SCHEMA: Final = "kind string, value string"
_OPTIONS: Final = (
    "source", "publication", "slot", "table", "startLsn", "endLsn", "batchSize", "batchWindow", "tasks", "output",
    "places", "hints", MASK_OPTION,
)  # fmt: skip


def register(spark: SparkSession) -> None:
    """Register `format("pgcdc")` in a session."""
    spark.dataSource.register(PostgresChanges)


@dataclass(frozen=True, slots=True)
class _Options:
    """The parsed options of a reader."""

    settings: CaptureSettings
    table: str | None
    start: int | None
    end: int | None
    tasks: int
    places: str | None
    """Only for the capture itself: the tables of changes to write, as JSON. None: the reader returns rows."""
    hints: Path | None
    """The file in which the capture says how large the next range may be."""
    mask_key: str | None
    """Only for the capture itself: the key of its masks."""

    @classmethod
    def of(cls, options: Mapping[str, str]) -> _Options:
        names = {name.lower() for name in _OPTIONS}
        unknown = sorted(name for name in options if name.lower() not in names)
        if unknown:
            raise ConfigError(f"{NAME} has no option {unknown[0]}; it has {', '.join(_OPTIONS[:9])}")
        for name in ("source", "publication", "slot"):
            if not options.get(name):
                raise ConfigError(f'{NAME} needs .option("{name}", ...)')
        if options.get("output", "rows") not in ("rows", "files"):
            raise ConfigError(f"the output of {NAME} is rows or files, not {options['output']!r}")
        table, start, end, hints = (options.get(name) for name in ("table", "startLsn", "endLsn", "hints"))
        settings = CaptureSettings(
            source=options["source"],
            publication=options["publication"],
            slot=options["slot"],
            tables=(table,) if table else (),
            batch_bytes=parse_size(options.get("batchSize", "64MB")),
            batch_seconds=parse_duration(options.get("batchWindow", "0s")),
        )
        places = options.get("places", "[]") if options.get("output") == "files" else None
        return cls(
            settings,
            table,
            parse_lsn(start) if start else None,
            parse_lsn(end) if end else None,
            int(options.get("tasks", "1")),
            places,
            Path(hints) if hints else None,
            options.get(MASK_OPTION),
        )


class PostgresChanges(DataSource):
    """The changes of a publication, in the order of their commits within each partition.

    Options: `source` (DSN), `publication`, `slot` (it must exist, and is read through temporary copies), `table` (typed
    rows of one table; without it all tables, with rows as JSON), `startLsn` and `endLsn` (of a range; by default
    everything in the slot), `tasks`; for streams `batchSize` and `batchWindow`. A stream advances the slot when its
    batches are done.
    """

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> T.StructType | str:
        options = _Options.of(self.options)
        if options.places is not None:
            return _DESCRIPTION_SCHEMA
        if options.table is None:
            return _ALL_TABLES_SCHEMA
        from deltalakedb.spark.schemas import to_spark

        with connect(options.settings.source) as conn:
            (table,) = published_tables(conn, options.settings)
        return to_spark(changes_schema(table))

    def reader(self, schema: T.StructType) -> DataSourceReader:
        return _RangeReader(_Options.of(self.options), schema)

    def streamReader(self, schema: T.StructType) -> DataSourceStreamReader:  # noqa: N802  Spark's name
        return _StreamReader(_Options.of(self.options), schema)


class _Part(InputPartition):
    """A range of the log, read by one task, with the tables as they were when it was planned."""

    def __init__(self, start: int, end: int, tables: Sequence[CapturedTable]) -> None:
        super().__init__((start, end))
        self.start, self.end, self.tables = start, end, tuple(tables)


def _parts(options: _Options, conn: Connection | None, start: int, end: int) -> list[InputPartition]:
    tables: Sequence[CapturedTable] = ()
    if options.places is None and conn is not None:
        tables = published_tables(conn, options.settings)
    batch_bytes = None if options.places is None else options.settings.batch_bytes
    return [_Part(first, last, tables) for first, last in split_range(start, end, options.tasks, batch_bytes)]


def _read(options: _Options, schema: T.StructType, part: InputPartition | None) -> Iterator[Any]:
    """Read rows, or descriptions of files."""
    if not isinstance(part, _Part):  # Spark gives an empty range one partition
        return iter(())
    # Imported here: decoding and writing take a second to load, and Spark plans in separate processes.
    from deltalakedb.cdc.decode.reading import json_rows, read_part, typed_rows

    settings = options.settings
    slot = (settings.source, settings.slot, settings.publication)
    if options.places is not None:
        return iter(read_part(*slot, options.places, options.mask_key, (part.start, part.end)))
    where = (*slot, part.start, part.end)
    rows: Iterator[pa.RecordBatch] = (
        json_rows(*where, part.tables) if options.table is None else typed_rows(*where, part.tables[0], schema)
    )
    return rows


class _RangeReader(DataSourceReader):
    """Reads all changes of a range."""

    def __init__(self, options: _Options, schema: T.StructType) -> None:
        self._options, self._schema = options, schema

    def partitions(self) -> Sequence[InputPartition]:
        options = self._options
        with connect(options.settings.source) as conn:
            start = _first(conn, options)
            # Log that is not yet flushed to the server's disk cannot be read.
            flushed = flush_lsn(conn)
            end = flushed if options.end is None else min(flushed, options.end)
            return _parts(options, conn, start, end)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return _read(self._options, self._schema, partition)


def _first(conn: Connection, options: _Options) -> int:
    """The first LSN to read; SlotLostError if the slot no longer has it."""
    slot = options.settings.slot
    current = find_slot(conn, slot)
    if current is None:
        raise CaptureSetupError(
            f"the source has no slot {slot}: select pg_create_logical_replication_slot('{slot}', 'pgoutput'); changes "
            "from then on can be read"
        )
    start = current.confirmed_lsn if options.start is None else options.start
    check_slot(conn, slot, start)
    return start


class _StreamReader(DataSourceStreamReader):
    """Reads changes as they come. It lives as long as its query, in a process of its own; executors call `read`."""

    def __init__(self, options: _Options, schema: T.StructType) -> None:
        self._options, self._schema = options, schema
        self._pace = Pace(options.settings.batch_bytes, options.settings.batch_seconds)
        self._conn: Connection | None = None
        self._server: Server | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802  Spark's names
        conn = self._connected()
        capturing = self._options.places is not None and self._options.start is not None
        if not capturing:
            self._check_free(conn)
        lsn = self._options.start if capturing else _first(conn, self._options)
        assert lsn is not None
        self._pace.begin(lsn)
        return self._offset(lsn)

    def latestOffset(self) -> dict[str, Any]:  # noqa: N802
        try:
            flushed = flush_lsn(self._connected())
        except SourceUnavailableError:
            self.stop()
            # The capture's own runner waits for the source to come back; a user's query fails, as it should.
            if self._options.places is None or self._pace.last is None or self._server is None:
                raise
            return self._offset(self._pace.last)
        return self._offset(self._pace.next_end(flushed, self._stretch()))

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        first, last = Offset.from_value(start), Offset.from_value(end)
        self._pace.begin(last.lsn)
        if last.lsn <= first.lsn:
            return []
        if self._options.places is not None:
            return _parts(self._options, None, first.lsn, last.lsn)
        conn = self._connected()
        first.check(identify(conn))
        check_slot(conn, self._options.settings.slot, first.lsn)
        return _parts(self._options, conn, first.lsn, last.lsn)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return _read(self._options, self._schema, partition)

    def commit(self, end: dict[str, Any]) -> None:
        # The capture advances its slot itself, once its batch is in the lake.
        if self._options.places is None:
            advance_slot(self._connected(), self._options.settings.slot, Offset.from_value(end).lsn)

    def stop(self) -> None:
        if self._conn is not None:
            with suppress(Exception):  # it may be broken already
                self._conn.close()
            self._conn = None

    def _connected(self) -> Connection:
        if self._conn is None or self._conn.closed:
            self._conn = connect(self._options.settings.source)
        if self._server is None:
            self._server = identify(self._conn)
        return self._conn

    def _check_free(self, conn: Connection) -> None:
        """CaptureError if the slot is a capture's: a stream advances its slot, and the capture would lose changes."""
        slot = self._options.settings.slot
        runner = find_runner(conn, slot)
        if runner is not None and self._options.places is None:
            raise CaptureError(
                f"the slot {slot} is that of a capture ({runner}): give the stream a slot of its own: "
                "select pg_create_logical_replication_slot('...', 'pgoutput')"
            )

    def _offset(self, lsn: int) -> dict[str, Any]:
        assert self._server is not None
        return Offset.of(lsn, self._server).to_value()

    def _stretch(self) -> int:
        if self._options.hints is None:
            return 0
        try:
            return int(self._options.hints.read_text() or "0")
        except (OSError, ValueError):
            return 0
