"""write_table: executors write Parquet, footers give the statistics, and one commit in SQL makes them a version."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from deltalakedb.exceptions import (
    ConcurrentTransactionError,
    ConfigError,
    InvalidCommitError,
    MissingExtraError,
    SchemaMismatchError,
    TableExistsError,
)

try:
    from pyspark.sql import functions as F  # noqa: N812  the usual name
except ModuleNotFoundError:
    raise MissingExtraError("deltalakedb.spark", "spark") from None

from deltalakedb.data.footers import FooterStats
from deltalakedb.log.protocol.actions import Action, AddFile, AppTransaction, Metadata, Protocol
from deltalakedb.log.protocol.codec import to_json
from deltalakedb.log.protocol.features import data_writable, is_enabled
from deltalakedb.log.protocol.proposal import ProposedCommit, ReadSet
from deltalakedb.log.schema.types import StructType, parse_schema
from deltalakedb.operations.creation import NewTable
from deltalakedb.operations.definition import PropertyValue, with_schema
from deltalakedb.operations.evolution import check_partitioning
from deltalakedb.operations.write import WriteMode, check_mode, metrics_in_sparks_words
from deltalakedb.spark.fit import columns_of, merged_schema, new_schema, schema_of, stored_columns
from deltalakedb.spark.jobs import WriteJob, partition_text
from deltalakedb.spark.opening import CatalogLike, opened_catalog
from deltalakedb.spark.predicates import Where, read_where
from deltalakedb.spark.replacing import NOTHING, Replaced, check_rows, everything, matching, partitions_of
from deltalakedb.spark.scans import FILE_COLUMNS, Scan, scan_files
from deltalakedb.spark.schemas import quoted, without_void
from deltalakedb.storage.location import open_storage
from deltalakedb.store.names import parse_table_name
from deltalakedb.transactions.draft import TableDraft
from deltalakedb.transactions.transaction import CatalogTransaction

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from deltalakedb.catalog.catalog import Catalog
    from deltalakedb.tables.filters import PredicateLike

PartitionOverwriteMode = Literal["static", "dynamic"]


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """The options of a write; the names are those of `write_table`."""

    mode: WriteMode = "append"
    partition_by: Sequence[str] | str | None = None
    replace_where: PredicateLike | None = None
    partition_overwrite_mode: PartitionOverwriteMode = "static"
    merge_schema: bool = False
    overwrite_schema: bool = False
    app_transactions: Sequence[AppTransaction] = ()
    properties: Mapping[str, PropertyValue] = field(default_factory=dict)
    description: str | None = None
    location: str | os.PathLike[str] | None = None
    storage_options: Mapping[str, str] | None = None
    user_info: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_mode(self.mode)
        if self.partition_overwrite_mode not in ("static", "dynamic"):
            raise ConfigError(f"partition_overwrite_mode is static or dynamic, not {self.partition_overwrite_mode!r}")
        dynamic = self.partition_overwrite_mode == "dynamic"
        for name, is_given in (
            ("replace_where", self.replace_where is not None),
            ("overwrite_schema", self.overwrite_schema),
        ):
            if is_given and self.mode != "overwrite":
                raise ConfigError(f"{name} needs the mode overwrite, not {self.mode}")
            if is_given and dynamic:
                raise ConfigError(f"{name} and the partition overwrite mode dynamic exclude each other")


def write_table(
    df: DataFrame,
    name: str,
    mode: WriteMode = "append",
    partition_by: Sequence[str] | str | None = None,
    *,
    replace_where: PredicateLike | None = None,
    partition_overwrite_mode: PartitionOverwriteMode = "static",
    merge_schema: bool = False,
    overwrite_schema: bool = False,
    app_id: str | None = None,
    app_version: int | None = None,
    properties: Mapping[str, PropertyValue] | None = None,
    description: str | None = None,
    location: str | os.PathLike[str] | None = None,
    storage_options: Mapping[str, str] | None = None,
    user_info: Mapping[str, Any] | None = None,
    catalog: CatalogLike = None,
    transaction: CatalogTransaction | None = None,
) -> int | None:
    """Write a DataFrame into a table, which is created if it does not exist; returns the new version.

    Modes are those of Spark: `append`, `overwrite` (all, the rows of `replace_where`, or with `dynamic` the partitions
    in the data), `error` and `ignore`. A write of `app_id` whose `app_version` was recorded before does nothing. Within
    a `transaction` there is no version yet, and None is returned. It needs no jar and works in any Spark session.
    """
    if (app_id is None) != (app_version is None):
        raise ConfigError("app_id and app_version say together which write this is: give both, or none")
    applied = [] if app_id is None or app_version is None else [AppTransaction(app_id, app_version)]
    options = WriteOptions(
        mode=mode,
        partition_by=partition_by,
        replace_where=replace_where,
        partition_overwrite_mode=partition_overwrite_mode,
        merge_schema=merge_schema,
        overwrite_schema=overwrite_schema,
        app_transactions=applied,
        properties=properties or {},
        description=description,
        location=location,
        storage_options=storage_options,
        user_info=user_info or {},
    )
    if transaction is not None:
        if catalog is not None:
            raise ConfigError("a transaction knows its catalog: leave catalog= out")
        propose_frame(transaction, name, df, options)
        return None
    with opened_catalog(catalog) as where:
        return _commit_frame(where, name, df, options)


def _commit_frame(catalog: Catalog, name: str, df: DataFrame, options: WriteOptions) -> int | None:
    """Write a DataFrame in a transaction of its own; returns the table's new version."""
    try:
        with catalog.begin(tables=[name]) as tx:
            propose_frame(tx, name, df, options)
    except ConcurrentTransactionError:
        current = catalog.table(name)
        if any((current.transaction_version(item.app_id) or -1) < item.version for item in options.app_transactions):
            raise
        return current.version()  # the same write by another process was faster
    by_name = {parse_table_name(item).key: version for item, version in tx.result.items()}
    version = by_name.get(parse_table_name(name).key)
    return catalog.table(name).version() if version is None else version


def propose_frame(tx: CatalogTransaction, name: str, df: DataFrame, options: WriteOptions) -> bool:
    """Write a DataFrame's files and propose them as one version of a transaction; False if there was nothing to do."""
    with tx._statement():
        target = parse_table_name(name)
        draft, first = tx._drafts.find(target), None
        if draft is not None:
            if options.mode == "ignore":
                return False
            if options.mode == "error":
                raise TableExistsError(
                    f"the table {draft.row.full_name} exists already; mode append or overwrite writes to it"
                )
            tx._drafts.make_writable(draft)
            draft.use_options(options.storage_options)
            if _is_applied(tx, name, options.app_transactions):
                return False
        with _add_table_name(str(target)):
            data = schema_of(df)
            schema = new_schema(data) if draft is None else data
        if draft is None:
            definition = NewTable(
                schema, options.partition_by or (), options.properties, description=options.description
            )
            draft, first = tx._drafts.new(target, definition, options.location, options.storage_options)
        commit = _Write(tx, draft, first, df, data, options).commit()
        if first is not None:
            tx._drafts.add(draft)
        draft.commits.append(commit)
        return True


@contextmanager
def _add_table_name(table: str) -> Iterator[None]:
    """Add the table's name to a SchemaMismatchError."""
    try:
        yield
    except SchemaMismatchError as error:
        raise SchemaMismatchError(f"table {table}: {error}") from None


def _is_applied(tx: CatalogTransaction, name: str, applied: Sequence[AppTransaction]) -> bool:
    """Whether the write of an application was made before, in this transaction or by another one."""
    draft = tx._drafts.find(parse_table_name(name)) if applied else None
    if draft is None:
        return False
    draft.note_read(ReadSet(app_ids=frozenset(applied_txn.app_id for applied_txn in applied)))
    recorded = [(draft.snapshot().app_transaction(applied_txn.app_id), applied_txn) for applied_txn in applied]
    return all(
        recorded_txn is not None and recorded_txn.version >= applied_txn.version
        for recorded_txn, applied_txn in recorded
    )


@dataclass(frozen=True, slots=True)
class _Write:
    """One write: the resulting schema, the job, the replaced files, and the commit."""

    tx: CatalogTransaction
    draft: TableDraft
    first: tuple[Protocol, Metadata] | None
    """Protocol and metadata of a new table's first version."""
    df: DataFrame
    data: StructType
    options: WriteOptions

    @property
    def name(self) -> str:
        return self.draft.row.full_name

    def commit(self) -> ProposedCommit:
        options, changes, metadata = self.options, *self._definition()
        overwrites = options.mode == "overwrite" and self.first is None
        if overwrites and is_enabled(metadata.configuration, "delta.appendOnly"):
            raise InvalidCommitError(
                f"table {self.name} is append-only (delta.appendOnly): its rows cannot be overwritten; append, or set "
                "that property to false first"
            )
        schema = parse_schema(metadata.schema_string)
        where = None if options.replace_where is None else read_where(options.replace_where, schema)
        dynamic = options.partition_overwrite_mode == "dynamic" and bool(metadata.partition_columns)
        replaced = NOTHING
        if overwrites and where is not None:
            replaced = matching(self.draft, where, self.df.sparkSession)
        elif overwrites and not dynamic:
            replaced = everything(self.draft.snapshot())
        adds = self._write(schema, metadata, where, replaced)
        if overwrites and dynamic:
            replaced = partitions_of(self.draft, adds)
        return self._proposed(changes, metadata, adds, replaced)

    def _definition(self) -> tuple[list[Action], Metadata]:
        """The actions that change protocol or metadata, and the resulting metadata; refuses before any job runs."""
        options = self.options
        if self.first is not None:
            protocol, metadata = self.first
            data_writable(protocol, metadata, self.name)
            return list(self.first), metadata
        snapshot = self.draft.snapshot()
        protocol, metadata = snapshot.protocol, snapshot.metadata
        data_writable(protocol, metadata, self.name)
        if options.overwrite_schema:
            with _add_table_name(self.name):
                schema = new_schema(self.data)
            columns = options.partition_by or ()
            actions = with_schema(protocol, metadata, schema, table=self.name, partition_by=columns)
        else:
            check_partitioning(metadata, options.partition_by, self.name)
            schema = parse_schema(metadata.schema_string)
            with _add_table_name(self.name):
                merged = merged_schema(schema, self.data, adds=options.merge_schema)
            actions = [] if merged is schema else with_schema(protocol, metadata, merged, table=self.name)
        for action in actions:
            protocol = action if isinstance(action, Protocol) else protocol
            metadata = action if isinstance(action, Metadata) else metadata
        data_writable(protocol, metadata, self.name)
        return actions, metadata

    def _write(self, schema: StructType, metadata: Metadata, where: Where | None, replaced: Replaced) -> list[AddFile]:
        location, partitions = self.draft.row.location, metadata.partition_columns
        rows = self.df.select(*(c.alias(name) for name, c in columns_of(self.data, schema).items()))
        if where is not None:
            rows = rows.where(check_rows(where, str(self.options.replace_where), self.name))
            if replaced.rewrites and replaced.files is not None and replaced.files.num_rows:
                rows = rows.unionAll(self._rows_that_stay(schema, metadata, where, replaced))
        columns = {name: F.col(quoted(name)) for name in rows.columns}
        for name in partitions:
            item = schema.field(name)
            assert item is not None, "a partition column is a column"
            columns[item.name] = partition_text(columns[item.name], item)
        storage = open_storage(location, self.draft.options)
        physical = [item.physical_name for name in partitions if (item := schema.field(name)) is not None]
        job = WriteJob(location, self.draft.options, storage)
        stats = FooterStats(schema, partitions, metadata.configuration)
        adds = job.run(rows.select(*stored_columns(columns, schema)), physical, stats)
        self.tx._written.for_table(self.draft.row.table_uuid).remember_folder(job.clean)
        return adds

    def _rows_that_stay(self, schema: StructType, metadata: Metadata, where: Where, replaced: Replaced) -> DataFrame:
        """The rows of replaced files that do not match the condition: they are written again."""
        assert replaced.files is not None
        scan = Scan.of(
            self.df.sparkSession,
            without_void(schema),
            table=self.name,
            location=self.draft.row.location,
            options=self.draft.options,
            partition_columns=metadata.partition_columns,
            configuration=metadata.configuration,
        )
        rows = scan_files(scan, replaced.files.select(FILE_COLUMNS))
        return rows.where(~F.coalesce(where.rows, F.lit(False)))

    def _proposed(
        self, changes: Sequence[Action], metadata: Metadata, adds: list[AddFile], replaced: Replaced
    ) -> ProposedCommit:
        options, removes = self.options, replaced.removes()
        parameters = {
            "mode": {"error": "ErrorIfExists", "ignore": "Ignore"}.get(options.mode, options.mode.capitalize()),
            "partitionBy": to_json(list(metadata.partition_columns)),
        }
        if options.replace_where is not None:
            parameters["predicate"] = str(options.replace_where)
        return ProposedCommit(
            actions=(*changes, *options.app_transactions, *removes, *adds),
            operation="WRITE",
            operation_parameters=parameters,
            operation_metrics=metrics_in_sparks_words(adds, removes),
            read=replaced.read,
            user_info=options.user_info,
            fenced=True if self.first is not None else None,
        )
