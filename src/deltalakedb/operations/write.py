"""Owns the writing of rows: the one way by which rows become files of a table, and the statement that writes data."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from deltalakedb.exceptions import ConfigError
from deltalakedb.log.actions import Action, AddCDCFile, AddFile, Metadata, Protocol, RemoveFile
from deltalakedb.log.codec import to_json
from deltalakedb.log.features import data_writable
from deltalakedb.log.proposal import NOTHING_READ, WHOLE_TABLE, ProposedCommit, ReadSet
from deltalakedb.log.rows import add_from_row, adds_to_batch
from deltalakedb.log.stats import parse_stats
from deltalakedb.log.types import StructType, parse_schema
from deltalakedb.operations.evolution import Definition, SchemaMode, check_schema_mode, evolve
from deltalakedb.operations.parquet_options import Properties, to_parquet_options
from deltalakedb.operations.rules import Check, Rules, refuse_changed_rows
from deltalakedb.operations.target import Done, Target

if TYPE_CHECKING:
    import pyarrow as pa

    from deltalakedb.data import ParquetOptions

WriteMode: TypeAlias = Literal["error", "append", "overwrite", "ignore"]
WRITE_MODES = ("error", "append", "overwrite", "ignore")


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
) -> list[AddFile]:
    """Write data into new files of a table, cast to its columns; the files go again when the commit does not happen.

    `metadata` and `protocol` are those the commit leaves, `schema` is short for metadata with another schema.
    `writer_properties` are a caller's WriterProperties; `options` are for who knows the files better. Without `rules`
    the rows are taken to keep them, as rows do that only move from one file to another; `checks` are this write's own.
    """
    from deltalakedb.data import prepare_data, write_files

    metadata, protocol = metadata or target.metadata, protocol or target.protocol
    if schema is not None:
        metadata = replace(metadata, schema_string=schema.to_json())
    data_writable(protocol, metadata, target.name, evaluates=True)
    demanded = Rules.of(metadata, protocol, table=target.name)
    demanded = replace(demanded, checks=(*demanded.checks, *checks))
    if rules and not demanded.is_empty:
        data = demanded.apply(prepare_data(data))
    schema = parse_schema(metadata.schema_string)
    adds = write_files(
        data,
        storage=target.storage,
        schema=schema,
        partition_columns=metadata.partition_columns,
        configuration=metadata.configuration,
        target_file_size=target_file_size,
        options=options or to_parquet_options(writer_properties, schema, metadata.partition_columns),
        data_change=data_change,
    )
    target.written.remember(target.storage, adds)
    return adds


def to_rows(data: Any) -> pa.Table | pa.RecordBatchReader:
    """Data as what has a schema and can be written: a table that is in memory stays one, the rest is a stream."""
    import pyarrow as pa

    from deltalakedb.data import prepare_data

    return data if isinstance(data, pa.Table) else prepare_data(data)


@dataclass(frozen=True, slots=True)
class WriteRequest:
    """What is asked of a write, in the words of `write_deltalake`."""

    mode: WriteMode = "append"
    partition_by: Sequence[str] | None = None
    schema_mode: SchemaMode = None
    predicate: str | None = None
    """With mode `overwrite`, the rows that are replaced; the data must match it, whatever the mode."""
    target_file_size: int | None = None
    writer_properties: Properties | None = None

    def check(self) -> None:
        """Refuse what no table can be asked for."""
        check_mode(self.mode)
        check_schema_mode(self.schema_mode, self.mode)
        if self.target_file_size is not None and self.target_file_size <= 0:
            raise ValueError("target_file_size is a number of bytes above 0")


def write(target: Target, data: Any, request: WriteRequest) -> Done:
    """Write data into a table as one commit: beside its rows, or in place of all or some of them.

    A table that is only about to be has no version yet; then the commit lacks what begins it.
    """
    started = time.monotonic_ns()
    data_writable(target.protocol, target.metadata, target.name, evaluates=True)
    rows = to_rows(data)
    is_new = target.snapshot.version < 0
    if is_new:
        definition = Definition.of(target)
    else:
        definition = evolve(target, rows.schema, request.schema_mode, request.partition_by)
    overwrites = request.mode == "overwrite" and not is_new
    if overwrites:
        refuse_changed_rows(target.metadata, target.name)
    adds = write_rows(
        target,
        rows,
        metadata=definition.metadata,
        protocol=definition.protocol,
        writer_properties=request.writer_properties,
        target_file_size=request.target_file_size,
        checks=_predicate_check(request.predicate),
    )
    replaced = _Replaced()
    if overwrites:
        if request.predicate is None:
            replaced = _replace_all(target)
        else:
            replaced = _replace_where(target, request, definition, adds)
    commit = ProposedCommit(
        actions=(*definition.actions, *replaced.actions, *adds),
        operation="WRITE",
        operation_parameters=_parameters(request, definition.metadata),
        operation_metrics=_metrics(adds, replaced.actions, started),
        read=replaced.read,
    )
    return Done(commit)


@dataclass(frozen=True, slots=True)
class _Replaced:
    """What goes, and what had to be read to know it."""

    actions: tuple[Action, ...] = ()
    read: ReadSet = NOTHING_READ


def _replace_all(target: Target) -> _Replaced:
    """Everything that is live goes, under the very keys it is live under."""
    now_ms = time.time_ns() // 1_000_000
    rows = target.snapshot.files_table().to_pylist()
    return _Replaced(tuple(RemoveFile.of(add_from_row(row), at_ms=now_ms) for row in rows), WHOLE_TABLE)


def _replace_where(target: Target, request: WriteRequest, definition: Definition, adds: Sequence[AddFile]) -> _Replaced:
    """The rows that match go, as a delete would have it; files without such a row stay as they are.

    Where the change data feed tells which rows went, it tells the new ones too: all changes of a commit are there, or
    none. A file of it has the columns of one schema.
    """
    from deltalakedb.operations.delete import delete

    if definition.metadata.partition_columns != target.metadata.partition_columns:
        raise ConfigError(f"table {target.name}: a write with a predicate keeps files, and so the partition columns")
    same = definition.schema == target.schema
    done = delete(
        target,
        request.predicate,
        writer_properties=request.writer_properties,
        inserted=_new_rows(target, definition, adds) if same else (),
    )
    if done.commit is not None:
        actions = done.commit.actions
        if not same and any(isinstance(action, AddCDCFile) for action in actions):
            actions = (*actions, *_inserted(target, definition, adds))
        return _Replaced(actions, done.commit.read)
    return _Replaced((), _read_of(target, str(request.predicate)))


def _read_of(target: Target, predicate: str) -> ReadSet:
    from deltalakedb.log.predicate import parse_predicate

    return ReadSet(predicates=(parse_predicate(predicate, target.schema, target.metadata.partition_columns),))


def _inserted(target: Target, definition: Definition, adds: Sequence[AddFile]) -> list[AddCDCFile]:
    """The new rows as change data of their own."""
    from deltalakedb.operations.change_data import ChangeWriter

    with ChangeWriter(target, definition.schema) as changes:
        for batch in _new_rows(target, definition, adds):
            changes.write(batch, "insert")
        return changes.finish()


def _new_rows(target: Target, definition: Definition, adds: Sequence[AddFile]) -> Iterator[pa.RecordBatch]:
    from deltalakedb.data import read_files

    yield from read_files(
        adds_to_batch(adds),
        storage=target.storage,
        schema=definition.schema,
        partition_columns=definition.metadata.partition_columns,
        configuration=definition.metadata.configuration,
    )


def _predicate_check(predicate: str | None) -> list[Check]:
    return [] if predicate is None else [Check("the predicate of the write", predicate)]


def _parameters(request: WriteRequest, metadata: Metadata) -> dict[str, str]:
    mode = {"error": "ErrorIfExists", "ignore": "Ignore"}.get(request.mode, request.mode.capitalize())
    parameters = {"mode": mode}
    if metadata.partition_columns:
        parameters["partitionBy"] = to_json(list(metadata.partition_columns))
    if request.predicate is not None:
        parameters["predicate"] = request.predicate
    return parameters


def _metrics(adds: Sequence[AddFile], replaced: Sequence[Action], started_ns: int) -> dict[str, int]:
    """What a write did, in the words of `deltalake`."""
    rewritten = sum(isinstance(action, AddFile) for action in replaced)
    return {
        "num_added_files": len(adds) + rewritten,
        "num_removed_files": sum(isinstance(action, RemoveFile) for action in replaced),
        "num_partitions": 0,
        "num_added_rows": _rows_of(adds),
        "execution_time_ms": (time.monotonic_ns() - started_ns) // 1_000_000,
        "num_retries": 0,
    }


def _rows_of(adds: Sequence[AddFile]) -> int:
    found = (parse_stats(add.stats) for add in adds)
    return sum(stats.num_records or 0 for stats in found if stats is not None)


def metrics_in_sparks_words(adds: Sequence[AddFile], removes: Sequence[RemoveFile]) -> dict[str, int]:
    """What a write of Spark's did, as Spark tells it."""
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
        raise ConfigError(f"the mode of a write is one of {', '.join(WRITE_MODES)}, not {mode!r}")
