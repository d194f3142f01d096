"""Statements of a transaction that change rows: each runs a verb of `operations/`, and proposes its commit."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from deltalakedb.exceptions import ConfigError, TableExistsError
from deltalakedb.log.protocol.actions import AppTransaction, Metadata, Protocol
from deltalakedb.log.protocol.proposal import ProposedCommit, ReadSet
from deltalakedb.operations.target import Done, Target, Verb, WrittenFiles
from deltalakedb.operations.write import WriteRequest, to_rows, write
from deltalakedb.store.names import TableName, parse_table_name
from deltalakedb.transaction import CommitProperties
from deltalakedb.transactions.draft import TableDraft
from deltalakedb.transactions.drafts import Drafts
from deltalakedb.transactions.read_sets import ReadLike, to_read_set

if TYPE_CHECKING:
    from deltalakedb.operations.creation import NewTable
    from deltalakedb.operations.definition import PropertyValue
    from deltalakedb.transactions.transaction import CatalogTransaction

_SIDE_BY_SIDE: Final = max(2, os.cpu_count() or 1)


# -- verbs on existing tables


def run(
    drafts: Drafts, files: WrittenFiles, verbs: Mapping[str, Verb], properties: CommitProperties | None
) -> dict[str, dict[str, Any]]:
    """Run a verb on each table, in parallel if there are several; return their metrics. If one fails, none counts."""
    if properties is not None:
        properties.checked_metadata()
    used = {table: drafts.get_writable(table) for table in verbs}
    config = drafts.catalog.config
    targets = {table: replace(draft.to_target(files), config=config) for table, draft in used.items()}
    if len(verbs) == 1:
        results = {table: verb(targets[table]) for table, verb in verbs.items()}
    else:
        with ThreadPoolExecutor(_SIDE_BY_SIDE, thread_name_prefix="deltalakedb-statement") as pool:
            futures = {table: pool.submit(verb, targets[table]) for table, verb in verbs.items()}
        results = {table: item.result() for table, item in futures.items()}
    for table, draft in used.items():
        draft.note_read(results[table].read)
        _propose(draft, results[table], properties)
    return {table: item.metrics for table, item in results.items()}


def _propose(draft: TableDraft, done: Done, properties: CommitProperties | None) -> None:
    if properties is not None:
        done = done.noting(properties.actions(), properties.checked_metadata(), only_next=properties.only_next)
    if done.commit is not None:
        draft.commits.append(done.commit)


# -- writes, which may create the table


@dataclass(frozen=True, slots=True)
class TableOptions:
    """What a write says about its table: how a new one is defined, and the storage options of its files."""

    name: str | None = None
    """The name in the metadata, which may differ from the name in the catalog."""
    description: str | None = None
    properties: Mapping[str, PropertyValue] = field(default_factory=dict)
    location: str | os.PathLike[str] | None = None
    storage_options: Mapping[str, str] | None = None


def write_rows(
    tx: CatalogTransaction,
    table: str,
    data: Any,
    request: WriteRequest,
    options: TableOptions,
    properties: CommitProperties | None,
) -> None:
    """Write data into a table as one version; create the table if it does not exist."""
    request.check()
    if is_spark_frame(data):
        _write_spark_frame(tx, table, data, request, options, properties)
        return
    with tx._statement():
        drafts, target = tx._drafts, parse_table_name(table)
        draft = drafts.find(target)
        if draft is None:
            _write_new(drafts, tx._written, target, data, request, options, properties)
        elif request.mode == "error":
            raise TableExistsError(
                f"A table already exists at: {draft.row.full_name}; mode error refuses it, "
                "mode append or overwrite writes to it"
            )
        elif request.mode != "ignore":
            drafts.make_writable(draft)
            draft.use_options(options.storage_options)
            _propose(draft, write(draft.to_target(tx._written), data, request), properties)


def _write_new(
    drafts: Drafts,
    files: WrittenFiles,
    name: TableName,
    data: Any,
    request: WriteRequest,
    options: TableOptions,
    properties: CommitProperties | None,
) -> None:
    from deltalakedb.data import arrow_to_schema
    from deltalakedb.operations.creation import NewTable

    reader = to_rows(data)
    definition = NewTable(
        arrow_to_schema(reader.schema),
        request.partition_by or (),
        options.properties,
        options.name,
        options.description,
    )
    new = drafts.new(name, definition, options.location, options.storage_options)
    _begin(drafts, files, new, partial(write, data=reader, request=request), properties)


def begin_table(
    drafts: Drafts,
    files: WrittenFiles,
    name: str,
    definition: NewTable,
    verb: Verb,
    properties: CommitProperties | None,
    location: str | os.PathLike[str] | None,
    storage_options: Mapping[str, str] | None,
) -> None:
    """Create a table whose first version is made by a verb that runs on the empty table."""
    if properties is not None:
        properties.checked_metadata()
    target = parse_table_name(name)
    if drafts.find(target) is not None:
        raise TableExistsError(f"the table {target} exists already; choose another name")
    _begin(drafts, files, drafts.new(target, definition, location, storage_options), verb, properties)


def _begin(
    drafts: Drafts,
    files: WrittenFiles,
    new: tuple[TableDraft, tuple[Protocol, Metadata]],
    verb: Verb,
    properties: CommitProperties | None,
) -> None:
    """Run a verb on a table that does not exist yet; propose its first commit, including protocol and metadata."""
    from deltalakedb.tables.file_snapshot import NewTableSnapshot

    draft, first = new
    snapshot = NewTableSnapshot(*first)
    target = Target(
        name=draft.row.full_name,
        location=draft.row.location,
        options=draft.options,
        snapshot=snapshot,
        plan=lambda predicate: snapshot.plan(predicate).files,
        written=files.for_table(draft.row.table_uuid),
    )
    done = verb(target)
    assert done.commit is not None, "a table's first statement makes its first version"
    commit = replace(done.commit, actions=(*first, *done.commit.actions), fenced=True)
    drafts.add(draft)
    _propose(draft, replace(done, commit=commit), properties)


# -- data of Spark


def is_spark_frame(data: Any) -> bool:
    """Return whether data is a PySpark DataFrame, classic or Connect, without importing PySpark."""
    module = str(getattr(type(data), "__module__", ""))
    return module.startswith("pyspark.sql.") and type(data).__name__ == "DataFrame"


def _write_spark_frame(
    tx: CatalogTransaction,
    table: str,
    data: Any,
    request: WriteRequest,
    options: TableOptions,
    properties: CommitProperties | None,
) -> None:
    """Let Spark write its DataFrame. The Spark pipeline is in a higher layer, so it is imported by name at run time."""
    if request.target_file_size is not None or request.writer_properties is not None:
        raise ConfigError(
            "target_file_size and writer_properties do not reach Spark's writers: repartition the DataFrame, or set "
            "spark.sql.files.maxRecordsPerFile and spark.sql.parquet.*"
        )
    pipeline = import_module("deltalakedb.spark.write")
    properties = properties or CommitProperties()
    write_options = pipeline.WriteOptions(
        mode=request.mode,
        partition_by=request.partition_by,
        replace_where=request.predicate,
        merge_schema=request.schema_mode == "merge",
        overwrite_schema=request.schema_mode == "overwrite",
        app_transactions=properties.actions(),
        properties=options.properties,
        description=options.description,
        location=options.location,
        storage_options=options.storage_options,
        user_info=properties.custom_metadata or {},
    )
    pipeline.propose_frame(tx, table, data, write_options)


# -- finished actions, and versions of applications


def propose_actions(drafts: Drafts, table: str, commit: ProposedCommit, read: ReadLike) -> None:
    """Propose finished actions as one version of a table; `read` says what was read to make them."""
    draft = drafts.get_writable(table)
    if not commit.actions:
        raise ConfigError(f"table {draft.row.full_name}: a commit needs at least one action")
    draft.commits.append(replace(commit, read=to_read_set(read, draft.snapshot(), table=draft.row.full_name)))


def app_version(drafts: Drafts, table: str, app_id: str) -> int | None:
    """Return an application's version from its last `txn` action in a table; this counts as a read."""
    draft = drafts.find(parse_table_name(table))
    if draft is None:
        return None
    draft.note_read(ReadSet(app_ids=frozenset({app_id})))
    action = draft.app_transactions.get(app_id) or draft.snapshot().app_transaction(app_id)
    return None if action is None else action.version


def set_app_version(drafts: Drafts, table: str, app_id: str, version: int) -> None:
    """Record an application's version in a table, with the transaction's last commit to it."""
    draft = drafts.get_writable(table)
    draft.app_transactions[app_id] = AppTransaction(app_id, version, time.time_ns() // 1_000_000)
