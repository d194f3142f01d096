"""TableReader: the reading half of DeltaTable: definition, versions, files and rows of a table at one version."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, NoReturn, Self

from deltalakedb.catalog.instants import Instant, to_epoch_ms, travel_time_ms
from deltalakedb.exceptions import DeltaError, NegativeVersionError
from deltalakedb.log.protocol.proposal import DEFINITION, HISTORY, WHOLE_TABLE, ReadSet
from deltalakedb.log.schema.types import StructType, parse_schema
from deltalakedb.runtime.arguments import check_flag, check_number, check_text
from deltalakedb.schema import Schema, to_public
from deltalakedb.tables import change_feed, files, rows
from deltalakedb.tables.answers import (
    ColumnStats,
    DeltaTableConfig,
    Metadata,
    Plan,
    ProtocolVersions,
    history_entry,
    readable,
)
from deltalakedb.tables.backing import Backing, TableSnapshot
from deltalakedb.tables.filters import FilterDnf, PredicateLike, RowFilter, one_predicate
from deltalakedb.tables.raw import RawDeltaTable, class_for_others, is_asked_by_polars, without_doubtful_bounds
from deltalakedb.tables.sql_backing import SqlBacking

if TYPE_CHECKING:
    import arro3.core
    import pyarrow as pa
    import pyarrow.dataset as ds

    from deltalakedb.log.predicates.atoms import Predicate
    from deltalakedb.storage.interface import Storage
    from deltalakedb.store.aggregates import PartitionCounts
    from deltalakedb.store.reader import Difference, LineageEntry
    from deltalakedb.store.snapshot import FileTotals

_LOG_BUFFER_SIZE = 8
"""The value that `deltalake` reports; it has no effect."""


class TableReader:
    """A table at one version."""

    _backing: Backing
    _snapshot: TableSnapshot

    @property  # type: ignore[misc]  # other libraries ask for it by `isinstance`
    def __class__(self) -> type:
        return class_for_others(type(self))

    def __copy__(self) -> Self:
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__)
        return other

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"cannot pickle table {self._backing.name}: pass its address, and open it there")

    def __repr__(self) -> str:
        return "DeltaTable()"  # as `deltalake` has it; `table_uri` and `version` tell which table it is

    def __eq__(self, other: object) -> bool:
        """Return whether both are the same table, at any version. A table is mutable, so it has no hash."""
        return isinstance(other, TableReader) and self.table_uri == other.table_uri

    __hash__ = None  # type: ignore[assignment]

    def close(self) -> None:
        """Close the catalog that this table was opened from."""
        self._backing.close()

    # -- the definition: reads no file rows

    @property
    def table_uri(self) -> str:
        return self._backing.location.rstrip("/") + "/"

    @property
    def table_config(self) -> DeltaTableConfig:
        """Deprecated, as in `deltalake`: loading options have no effect."""
        warnings.warn(
            "The 'table_config' property is deprecated and will be removed in a future release. It reports effective "
            "defaults; deprecated constructor options are ignored.",
            DeprecationWarning,
            stacklevel=2,
        )
        return DeltaTableConfig(without_files=False, log_buffer_size=_LOG_BUFFER_SIZE)

    @property
    def name(self) -> str:
        """The table's full name in the catalog; its location if it is in none."""
        return self._backing.name

    @property
    def mode(self) -> str:
        """Who decides about commits: `managed`: SQL; `follower`, `detached`: the files; `files`: not in a catalog."""
        return self._backing.mode

    def version(self) -> int:
        return self._snapshot.version

    def committed_at_ms(self) -> int:
        """Return when this version was committed, in epoch milliseconds."""
        return self._snapshot.timestamp_ms

    def schema(self) -> Schema:
        self._note(DEFINITION)
        return to_public(self._struct)

    def metadata(self) -> Metadata:
        self._note(DEFINITION)
        return Metadata.of(self._snapshot.metadata)

    def protocol(self) -> ProtocolVersions:
        self._note(DEFINITION)
        return ProtocolVersions.of(self._snapshot.protocol)

    def domain_metadata(self) -> dict[str, str]:
        """Return the configuration of every metadata domain that is set."""
        self._note(DEFINITION)
        return {domain: action.configuration for domain, action in self._snapshot.domain_metadata().items()}

    def transaction_version(self, app_id: str) -> int | None:
        """Return the last version that an application recorded by a `txn` action."""
        check_text(app_id, required=True)
        self._note(ReadSet(app_ids=frozenset({app_id})))
        action = self._snapshot.app_transaction(app_id)
        return None if action is None else action.version

    # -- versions

    def load_as_version(self, version: int | str | datetime) -> None:
        """Move to a version, or to the newest one committed at or before a time (ISO 8601; UTC if it has no zone)."""
        if not isinstance(version, int | str | datetime):
            raise TypeError("Invalid datatype provided for version, only int, str or datetime are accepted.")
        if isinstance(version, int) and version < 0:
            raise NegativeVersionError(
                f"can't convert negative int to unsigned: {version} is no version of {self.name}"
            )
        if isinstance(version, int):
            check_number(version)
        snapshot = self._snapshot_at(version)
        snapshot.metadata, snapshot.protocol  # noqa: B018  read now: a later clean-up may delete them
        self._snapshot = snapshot

    def update_incremental(self) -> None:
        """Move to the newest version, even if the table was renamed."""
        self._snapshot = self._backing.newest()

    def history(
        self, limit: int | None = None, *, since: Instant | None = None, until: Instant | None = None
    ) -> list[dict[str, Any]]:
        """Return the commits up to this version, newest first: the fields of each commitInfo, and the version."""
        check_number(limit)
        until_ms = None if until is None else to_epoch_ms(until)
        if until_ms is None or until_ms > self._snapshot.timestamp_ms:  # a later commit would change the answer
            self._note(HISTORY)
        since_ms = None if since is None else to_epoch_ms(since)
        entries = self._backing.history(limit, snapshot=self._snapshot, since_ms=since_ms, until_ms=until_ms)
        return [history_entry(entry) for entry in entries]

    def diff(self, from_version: int, to_version: int) -> Difference:
        """Return the files that differ between two versions, and whether metadata and protocol differ."""
        self._note(WHOLE_TABLE | DEFINITION, version=max(from_version, to_version))
        difference = self._sql().reader.diff(from_version, to_version)
        return replace(difference, added=readable(difference.added), removed=readable(difference.removed))

    def lineage(self) -> list[LineageEntry]:
        """Return the commits that this version's files, metadata and protocol come from."""
        self._note(WHOLE_TABLE | DEFINITION, version=self._snapshot.version)
        return self._sql().reader.lineage(self._snapshot.version)

    # -- files, answered from the log

    def files(self, columns: Sequence[str] | None = None) -> pa.Table:
        """Return the active files as Arrow: path, size, partition values, statistics and the other fields of adds."""
        self._note_read(None)
        return readable(self._snapshot.files_table(columns))

    def file_uris(
        self,
        partition_filters: FilterDnf | None = None,
        *,
        file_pruning_predicate: PredicateLike | None = None,
    ) -> list[str]:
        """Return the URIs of the active files, or of those that may hold a matching row; local ones as plain paths."""
        return files.file_uris(self, one_predicate(partition_filters, file_pruning_predicate))

    def partitions(
        self,
        partition_filters: FilterDnf | None = None,
        *,
        file_pruning_predicate: PredicateLike | None = None,
    ) -> list[dict[str, str | None]]:
        """Return the distinct partition values of the active files, as the log spells them."""
        return files.partitions(self, one_predicate(partition_filters, file_pruning_predicate))

    def get_add_actions(self, flatten: bool = False) -> arro3.core.Table:
        """Return the active files with their statistics and partition values as typed columns."""
        import arro3.core

        check_flag(flatten)
        actions = files.add_actions(self, flatten)
        return arro3.core.Table.from_arrow(without_doubtful_bounds(actions) if is_asked_by_polars() else actions)

    def count(self, predicate: PredicateLike | None = None) -> int:
        """Return the number of rows, or of rows that match a predicate; DeltaError if metadata cannot tell exactly."""
        return files.count(self) if predicate is None else files.count_matching(self, predicate)

    def totals(self) -> FileTotals:
        """Return the number of files, their bytes, and the number of rows in files that record it."""
        self._note_read(None)
        return self._snapshot.totals()

    def plan(self, predicate: PredicateLike, *, columns: Sequence[str] | None = None, explain: bool = False) -> Plan:
        """Return the files that may hold a row for which the predicate is true; the database selects them.

        `columns` selects the fields to fetch of each file; `explain` also counts the files that each condition keeps.
        """
        parsed = self._parse(predicate)
        self._note_read(parsed)
        planned = self._snapshot.plan(parsed, columns, explain=explain)
        return Plan(self._backing.name, self._snapshot.version, planned.num_files, planned.num_pruned, planned)

    def stats_of(self, column: str) -> ColumnStats:
        """Return a column's minimum and maximum, None if metadata does not prove it. Only at the newest version."""
        return files.stats_of(self, column)

    def partition_counts(self) -> list[PartitionCounts]:
        """Return the files, rows and bytes of every partition, at the newest version."""
        return files.partition_counts(self)

    # -- rows

    def to_pyarrow_table(
        self,
        partitions: FilterDnf | None = None,
        columns: list[str] | None = None,
        filesystem: Any = None,
        filters: RowFilter | None = None,
    ) -> pa.Table:
        """Return the rows as a PyArrow table, or those for which `filters` is true: lists, SQL, a pyarrow expression.

        `partitions` only selects files, and is deprecated as in `deltalake`. `columns` may also be anything that
        pyarrow's datasets accept: expressions by name, or the path of a nested field.
        """
        if partitions is not None:
            warnings.warn("`partitions` is deprecated; use `filters` instead", DeprecationWarning, stacklevel=2)
        return rows.to_pyarrow_table(self, partitions, columns, filesystem, filters)

    def to_pandas(
        self,
        partitions: FilterDnf | None = None,
        columns: list[str] | None = None,
        filesystem: Any = None,
        filters: RowFilter | None = None,
        types_mapper: Any = None,
    ) -> Any:
        """Return the rows as a pandas DataFrame; the arguments are those of `to_pyarrow_table`."""
        table = self.to_pyarrow_table(partitions, columns, filesystem, filters)
        return table.to_pandas(types_mapper=types_mapper)

    def to_pyarrow_dataset(
        self,
        partitions: FilterDnf | None = None,
        filesystem: Any = None,
        parquet_read_options: ds.ParquetReadOptions | None = None,
        schema: pa.Schema | None = None,
        as_large_types: bool = False,
        file_pruning_predicate: PredicateLike | None = None,
    ) -> ds.FileSystemDataset:
        """Return the table as a PyArrow dataset, with one fragment per file that has its partition values and bounds.

        `file_pruning_predicate` selects files in the log, before their fragments are made; it does not filter rows.
        `lazy_dataset` needs no predicate in advance.
        """
        if schema is not None and not hasattr(schema, "__arrow_c_schema__"):
            raise ValueError("Expected an object with dunder __arrow_c_schema__")
        predicate = one_predicate(partitions, file_pruning_predicate, name="partitions")
        chosen = files.choose_files(self, predicate, None)
        schema = self.schema().to_arrow(as_large_types) if schema is None else schema
        return rows.to_dataset(self, chosen, schema, filesystem, parquet_read_options)

    def lazy_dataset(self) -> ds.Dataset:
        """Return the table as a PyArrow dataset that is planned by each scan.

        DuckDB and Polars pass it their columns and filters, and only files that may hold matching rows are opened.
        """
        return rows.lazy_dataset(self)

    def to_pyarrow_reader(
        self, columns: list[str] | None = None, filters: RowFilter | None = None
    ) -> pa.RecordBatchReader:
        """Return the rows of `to_pyarrow_table` as a stream; files are opened as it is read."""
        return rows.to_pyarrow_reader(self, None, columns, filters)

    def scan(self, columns: list[str] | None = None, predicate: str | None = None) -> arro3.core.RecordBatchReader:
        """Return the rows for which a SQL predicate is true as a stream; files are opened as it is read."""
        return rows.scan(self, columns, predicate)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Export all rows as an Arrow stream: `pa.table(t)`, `polars.DataFrame(t)`, DuckDB's `from t`."""
        return self.to_pyarrow_reader().__arrow_c_stream__(requested_schema)

    def __datafusion_table_provider__(self, session: object = None) -> object:
        """Raise RuntimeError: pass the rows to DataFusion as Arrow."""
        raise RuntimeError(
            "DataFusion Python integration needs a TableProvider of Rust, which the package datafusion takes and this "
            "one does not have. Hand the rows over as Arrow, `ctx.from_arrow(table.scan())`, or use "
            "deltalakedb.QueryBuilder: QueryBuilder().register('tbl', table).execute('SELECT * FROM tbl')"
        )

    def load_cdf(
        self,
        starting_version: int | None = 0,
        ending_version: int | None = None,
        starting_timestamp: str | None = None,
        ending_timestamp: str | None = None,
        columns: list[str] | None = None,
        predicate: str | None = None,
        allow_out_of_range: bool = False,
    ) -> arro3.core.RecordBatchReader:
        """Return the rows that changed between two versions (both included) or two times, as a stream.

        They have the columns `_change_type`, `_commit_version` and `_commit_timestamp`. The default end is the newest
        version. A time is used only if no version is given. A start after the newest version is an error, or with
        `allow_out_of_range` an empty result.
        """
        limits = change_feed.Limits(starting_version, ending_version, starting_timestamp, ending_timestamp)
        return change_feed.load_cdf(self, limits, columns, predicate, allow_out_of_range)

    def deletion_vectors(self) -> arro3.core.RecordBatchReader:
        """Return the files that have a deletion vector: their location, and for each row whether it still exists."""
        return rows.deletion_vectors(self)

    # -- helpers for the functions in tables/

    @property
    def _table(self) -> RawDeltaTable:
        """The internals that Polars and other libraries use."""
        return RawDeltaTable(self)

    @property
    def _storage_options(self) -> dict[str, str] | None:
        """The storage options in force for the table's files; Polars uses this name."""
        return self._backing.storage_options() or None

    @property
    def _struct(self) -> StructType:
        """The columns, as the log's types."""
        return parse_schema(self._snapshot.metadata.schema_string)

    def _parse(self, predicate: PredicateLike, *, exact: bool = False) -> Predicate:
        from deltalakedb.log.predicates.predicate import parse_predicate

        return parse_predicate(predicate, self._struct, self._snapshot.metadata.partition_columns, exact=exact)

    def _sql(self) -> SqlBacking:
        """Return the backing in a catalog; raise if the table is not in one."""
        if not isinstance(self._backing, SqlBacking):
            raise DeltaError(
                f"{self.name} is no table of a catalog, and only a catalog knows this; `dl attach` or `dl import` "
                "brings it into one"
            )
        return self._backing

    def _storage(self) -> Storage:
        from deltalakedb.storage.location import open_storage

        return open_storage(self._backing.location, self._backing.storage_options())

    # -- what is different in a transaction

    def _snapshot_at(self, version: int | str | datetime) -> TableSnapshot:
        """Return the table at a version, or at the newest one committed at or before a time."""
        if isinstance(version, int):
            return self._backing.snapshot(int(version))
        return self._backing.snapshot(self._backing.version_at(travel_time_ms(version)))

    def _newest(self) -> TableSnapshot:
        """Return the newest version, whatever version this object is at."""
        return self._backing.newest()

    def _newest_alike(self) -> TableSnapshot:
        """Return the newest version if it has the definition of this object's version, else the latter."""
        newest, mine = self._backing.newest(), self._snapshot
        is_alike = newest.metadata == mine.metadata and newest.protocol == mine.protocol
        return newest if is_alike else mine

    def _note(self, read: ReadSet, *, version: int | None = None) -> None:
        """Record a read of this version, or of a committed `version`. Ignored outside a transaction."""

    def _note_read(self, predicate: Predicate | None) -> None:
        """Record a read of the rows that match a predicate, or of all rows."""
        self._note(WHOLE_TABLE if predicate is None else ReadSet(predicates=(predicate,)))
