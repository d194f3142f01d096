"""Writes rows: `write_rows` writes every new data file of a table, `write` is the statement that writes data."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from deltalakedb.exceptions import ConfigError, DeltaError
from deltalakedb.log.protocol.actions import Action, AddCDCFile, AddFile, Metadata, Protocol, RemoveFile
from deltalakedb.log.protocol.codec import to_json
from deltalakedb.log.protocol.features import data_writable
from deltalakedb.log.protocol.proposal import NOTHING_READ, WHOLE_TABLE, ProposedCommit, ReadSet
from deltalakedb.log.protocol.rows import add_from_row
from deltalakedb.log.schema.types import StructType, parse_schema
from deltalakedb.log.statistics.stats import record_count
from deltalakedb.operations.evolution import Definition, SchemaMode, evolve, other_partitioning
from deltalakedb.operations.parquet_options import Properties, to_parquet_options
from deltalakedb.operations.rules import Check, Rules, refuse_changed_rows
from deltalakedb.operations.target import Done, Target

if TYPE_CHECKING:
    import pyarrow as pa

    from deltalakedb.data import ParquetOptions
    from deltalakedb.operations.change_data import ChangeWriter

WriteMode: TypeAlias = Literal["error", "append", "overwrite", "ignore"]
WRITE_MODES = ("append", "overwrite", "error", "ignore")


def write_rows(
    target: Target,
    data: Any,
    *,
    schema: StructType | None = None,
    metadata: Metadata | None = None,
    protocol: Protocol | None = None,
    options: ParquetOptions | None = None,
    writer_properties: Properties | None = None,
    target_file_size: int | None = None,
    data_change: bool = True,
    rules: bool = True,
    checks: Sequence[Check] = (),
    changes: ChangeWriter | None = None,
    beside: Iterable[pa.RecordBatch] = (),
) -> list[AddFile]:
    """Write data into new files of a table, cast to its columns; they are deleted if the commit does not happen.

    `metadata` and `protocol` are those after the commit; `schema` is short for metadata with another schema.
    `writer_properties` are the caller's WriterProperties; `options` override them, for callers that know the files
    better. Pass `rules=False` for rows that already satisfy the table's rules, such as rows moved from another file;
    `checks` are additional checks of this write. `changes` writes the inserts to the change data feed. `beside` are
    rows that are only moved, into the same files.
    """
    from deltalakedb.data import ParquetOptions, prepare_data, write_files

    metadata, protocol = metadata or target.metadata, protocol or target.protocol
    if schema is not None:
        metadata = replace(metadata, schema_string=schema.to_json())
    data_writable(protocol, metadata, target.name, evaluates=True)
    table_rules = Rules.of(metadata, protocol, table=target.name)
    table_rules = replace(table_rules, checks=(*table_rules.checks, *checks))
    if rules and not table_rules.is_empty:
        data = table_rules.apply(prepare_data(data))
    if changes is not None:
        data = _record_inserts(prepare_data(data), changes)
    schema = parse_schema(metadata.schema_string)
    if options is None and writer_properties is not None:
        options = to_parquet_options(writer_properties, schema, metadata.partition_columns)
    adds = write_files(
        data,
        storage=target.storage,
        schema=schema,
        partition_columns=metadata.partition_columns,
        configuration=metadata.configuration,
        target_file_size=target_file_size,
        options=options or ParquetOptions(),
        data_change=data_change,
        beside=beside,
    )
    target.written.remember(target.storage, adds)
    return adds


def _record_inserts(rows: pa.RecordBatchReader, changes: ChangeWriter) -> pa.RecordBatchReader:
    """Return the same rows, and write each to the change data feed as an insert."""
    import pyarrow as pa

    def write_and_yield() -> Iterator[pa.RecordBatch]:
        for batch in rows:
            changes.write(batch, "insert")
            yield batch

    return pa.RecordBatchReader.from_batches(rows.schema, write_and_yield())


def to_rows(data: Any) -> pa.Table | pa.RecordBatchReader:
    """Return data with a schema: a pyarrow Table as it is, anything else as a stream."""
    import pyarrow as pa

    from deltalakedb.data import prepare_data

    return data if isinstance(data, pa.Table) else prepare_data(data)


@dataclass(frozen=True, slots=True)
class WriteRequest:
    """The arguments of a write, with the names of `write_deltalake`."""

    mode: WriteMode = "append"
    partition_by: Sequence[str] | None = None
    schema_mode: SchemaMode = None
    predicate: str | None = None
    """With mode `overwrite`, the rows to replace. In every mode all of the data must match it."""
    target_file_size: int | None = None
    writer_properties: Properties | None = None

    def check(self) -> None:
        """Raise for arguments that are invalid for every table."""
        check_mode(self.mode)
        if self.schema_mode not in (None, "merge", "overwrite"):
            raise DeltaError(
                f"Invalid schema write mode provided: {self.schema_mode}, only these are supported: "
                "['overwrite', 'merge']"
            )
        if self.schema_mode == "overwrite" and self.mode != "overwrite":
            raise DeltaError(
                "Schema overwrite not supported for Append: schema_mode='overwrite' goes with mode='overwrite'; "
                f"mode={self.mode!r} keeps the rows: use 'merge'"
            )
        if self.target_file_size is not None and self.target_file_size <= 0:
            raise ValueError("target_file_size must be greater than 0")


def write(target: Target, data: Any, request: WriteRequest) -> Done:
    """Write data into a table as one commit: append it, or replace all or some rows.

    A table that is being created has no version yet; its protocol and metadata are added to the commit by the caller.
    """
    from deltalakedb.data.sources import with_delta_errors

    started = time.monotonic_ns()
    data_writable(target.protocol, target.metadata, target.name, evaluates=True)
    rows = with_delta_errors(to_rows(data))
    is_new = target.snapshot.version < 0
    if is_new:
        definition = Definition.of(target)
    else:
        definition = evolve(target, rows.schema, request.schema_mode, request.partition_by)
    overwrites = request.mode == "overwrite" and not is_new
    if overwrites:
        refuse_changed_rows(target.metadata, target.name)
    if overwrites and request.predicate is not None:
        written = _replace_where(target, rows, request, definition)
    else:
        written = _Written(_write_new(target, rows, request, definition))
        if overwrites:
            written = replace(written, replaced=_removals(target), read=WHOLE_TABLE)
    commit = ProposedCommit(
        actions=(*definition.actions, *written.replaced, *written.adds),
        operation="WRITE",
        operation_parameters=_parameters(target, request, definition.metadata),
        operation_metrics=_metrics(written, started),
        read=written.read,
    )
    return Done(commit)


@dataclass(frozen=True, slots=True)
class _Written:
    """The new files, the actions that replace old ones, and what was read to decide that."""

    adds: Sequence[AddFile]
    replaced: tuple[Action, ...] = ()
    read: ReadSet = NOTHING_READ
    moved_rows: int = 0
    """How many rows of the new files were moved from old files."""


def _write_new(target: Target, rows: Any, request: WriteRequest, definition: Definition, **more: Any) -> list[AddFile]:
    return write_rows(
        target,
        rows,
        metadata=definition.metadata,
        protocol=definition.protocol,
        writer_properties=request.writer_properties,
        target_file_size=request.target_file_size,
        checks=() if request.predicate is None else [Check("the predicate of the write", request.predicate)],
        **more,
    )


def _removals(target: Target) -> tuple[Action, ...]:
    """Return a remove of every live file, with its exact file key."""
    now_ms = time.time_ns() // 1_000_000
    rows = target.snapshot.files_table().to_pylist()
    return tuple(RemoveFile.of(add_from_row(row), at_ms=now_ms) for row in rows)


def _replace_where(target: Target, rows: Any, request: WriteRequest, definition: Definition) -> _Written:
    """Replace the rows that match the predicate, deleting them as DELETE does; files without such rows stay.

    The other rows of a file that is removed move into the files of the new rows.
    """
    from deltalakedb.operations.delete import change_feed
    from deltalakedb.operations.expressions import Expression
    from deltalakedb.operations.find import find_rows
    from deltalakedb.operations.rewriting import CutFiles

    if definition.metadata.partition_columns != target.metadata.partition_columns:
        # A write with a predicate keeps some files, so it cannot change the partition columns.
        raise other_partitioning(target.metadata, definition.metadata.partition_columns, target.name)
    condition = Expression.parse(str(request.predicate), target.schema)
    matches = find_rows(target, condition)
    with change_feed(target, condition, definition.schema) if matches.files else nullcontext() as changes:
        cut = CutFiles(target, matches.files, changes)
        adds = _write_new(
            target,
            rows,
            request,
            definition,
            schema=cut.schema(definition.schema),
            changes=changes,
            beside=cut.staying(),
        )
        replaced = cut.finish()
        if changes is not None:
            replaced = (*replaced, *changes.finish())
    return _Written(adds, replaced, matches.read, cut.moved_rows)


def _parameters(target: Target, request: WriteRequest, metadata: Metadata) -> dict[str, str]:
    mode = {"error": "ErrorIfExists", "ignore": "Ignore"}.get(request.mode, request.mode.capitalize())
    parameters = {"mode": mode}
    if metadata.partition_columns:
        parameters["partitionBy"] = to_json(list(metadata.partition_columns))
    if request.predicate is not None:
        parameters["predicate"] = _spell_predicate(target, request.predicate)
    return parameters


def _spell_predicate(target: Target, predicate: str) -> str:
    from deltalakedb.operations.expressions import Expression

    return Expression.parse(predicate, target.schema).text


def _metrics(written: _Written, started_ns: int) -> dict[str, int]:
    """Return the metrics with the names of `deltalake`: files of the change data feed count as added."""
    return {
        "num_added_files": len(written.adds)
        + sum(isinstance(action, AddFile | AddCDCFile) for action in written.replaced),
        "num_removed_files": sum(isinstance(action, RemoveFile) for action in written.replaced),
        "num_partitions": 0,
        "num_added_rows": _rows_of(written.adds) - written.moved_rows,
        "execution_time_ms": (time.monotonic_ns() - started_ns) // 1_000_000,
        "num_retries": 0,
    }


def _rows_of(adds: Sequence[AddFile]) -> int:
    return sum(record_count(add.stats) or 0 for add in adds)


def metrics_in_sparks_words(adds: Sequence[AddFile], removes: Sequence[RemoveFile]) -> dict[str, int]:
    """Return the metrics of a write by Spark, with Spark's names."""
    metrics = {
        "numFiles": len(adds),
        "numOutputRows": _rows_of(adds),
        "numOutputBytes": sum(add.size for add in adds),
    }
    if removes:
        metrics["numRemovedFiles"] = len(removes)
        metrics["numRemovedBytes"] = sum(remove.size or 0 for remove in removes)
    return metrics


def check_mode(mode: str) -> None:
    if mode not in WRITE_MODES:
        raise ConfigError(f"Invalid save mode provided: {mode}, only these are supported: {list(WRITE_MODES)}")
