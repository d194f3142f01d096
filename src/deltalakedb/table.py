"""DeltaTable: the metadata side of `deltalake`'s class of the same name, answered from SQL."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from . import telemetry
from .addresses import locate
from .answers import ColumnStats, Metadata, Plan, ProtocolVersions, distinct_partitions, history_entry, readable
from .catalog import Catalog
from .exceptions import DeltaError, TableNotFoundError
from .instants import Instant, to_epoch_ms
from .log import paths
from .log.types import StructType, parse_schema
from .names import TableName, parse_table_name
from .reading import FilterDnf, PredicateLike, RowFilter, is_expression, one_predicate, read_rows
from .registered import no_such_table, require_table
from .store import Connection, cuts, registry
from .store.reader import Difference, LineageEntry, SqlTxnLogReader
from .store.snapshot import FileTotals, SqlSnapshot

if TYPE_CHECKING:
    import pyarrow as pa

    from .log.atoms import Predicate
    from .store.aggregates import PartitionCounts
    from .store.overlay import OverlaySnapshot
    from .store.planning import PlannedFiles

Schema = StructType


class DeltaTable:
    """A table at one version; `update_incremental` moves it to the newest, `load_as_version` to any other."""

    _snapshot: SqlSnapshot | OverlaySnapshot

    def __init__(
        self,
        table_uri: str | os.PathLike[str],
        version: int | None = None,
        storage_options: Mapping[str, str] | None = None,
        without_files: bool = False,
        log_buffer_size: int | None = None,
        skip_stats: bool = False,
    ) -> None:
        """Open `deltasql://...?table=ns.name`, or with DL_CATALOG set a table by its name or its location.

        `without_files`, `log_buffer_size` and `skip_stats` are accepted as in `deltalake`, and have no effect.
        """
        ignored = {"without_files": without_files, "log_buffer_size": log_buffer_size, "skip_stats": skip_stats}
        for option, given in ignored.items():
            if given:
                warnings.warn(f"'{option}' is deprecated and ignored", DeprecationWarning, stacklevel=2)
        catalog, name = locate(os.fspath(table_uri))
        try:
            self._bind(catalog, name, storage_options)
            if version is not None:
                self.load_as_version(version)
        except BaseException:
            catalog.close()
            raise

    @classmethod
    def from_catalog(
        cls,
        catalog: Catalog,
        name: str,
        *,
        version: int | None = None,
        storage_options: Mapping[str, str] | None = None,
    ) -> DeltaTable:
        """Open a table of a catalog that is open already."""
        table = cls.__new__(cls)
        table._bind(catalog, parse_table_name(name), storage_options)
        if version is not None:
            table.load_as_version(version)
        return table

    @classmethod
    def from_view(cls, catalog: Catalog, name: str, at_ms: int) -> DeltaTable:
        """Open the table that had this name at an instant, at the version it had then."""
        table = cls.__new__(cls)
        table._catalog, table._storage_options = catalog, None
        with catalog.store.read() as conn:
            table._row = require_table(conn, parse_table_name(name), at_ms=at_ms)
            version = cuts.version_at(conn, table._row.table_id, at_ms)
        table._reader = SqlTxnLogReader(catalog.store, table._row)
        # Nothing that early is kept, or a gap lies there: the reader says what there is.
        own = version is None or table._row.mode == "follower"
        table._snapshot = table._reader.snapshot(table._reader.version_at(at_ms) if own else version)
        return table

    def _bind(self, catalog: Catalog, name: TableName, storage_options: Mapping[str, str] | None) -> None:
        self._catalog = catalog
        self._storage_options = dict(storage_options) if storage_options else None
        self._open(name)

    def _open(self, name: TableName) -> None:
        watch = telemetry.Stopwatch()
        with self._catalog.store.read(single=True) as conn:
            opened = registry.open_table(conn, name.namespace, name.name)
        telemetry.observe_open(watch.milliseconds)
        if opened is None:
            with self._catalog.store.read() as conn:
                raise no_such_table(conn, name)
        self._row = opened.table
        self._reader = SqlTxnLogReader(self._catalog.store, opened.table)
        self._snapshot = SqlSnapshot.of_open_table(self._catalog.store, opened)

    def __repr__(self) -> str:
        return f"DeltaTable({self._row.full_name!r}, version={self._snapshot.version})"

    def close(self) -> None:
        """Close the catalog this table was opened from."""
        self._catalog.close()

    # -- what the table is: no file row is read

    @property
    def table_uri(self) -> str:
        return self._row.location.rstrip("/") + "/"

    @property
    def name(self) -> str:
        """The table's full name in the catalog."""
        return self._row.full_name

    @property
    def mode(self) -> str:
        """`follower`: its files decide; `managed`: SQL does; `detached`: its files do again."""
        return self._row.mode

    def version(self) -> int:
        return self._snapshot.version

    def committed_at_ms(self) -> int:
        """When this version was committed, in epoch milliseconds."""
        return self._snapshot.timestamp_ms

    def schema(self) -> StructType:
        return parse_schema(self._snapshot.metadata.schema_string)

    def metadata(self) -> Metadata:
        return Metadata.of(self._snapshot.metadata)

    def protocol(self) -> ProtocolVersions:
        protocol = self._snapshot.protocol
        return ProtocolVersions(
            protocol.min_reader_version,
            protocol.min_writer_version,
            None if protocol.writer_features is None else list(protocol.writer_features),
            None if protocol.reader_features is None else list(protocol.reader_features),
        )

    def domain_metadata(self) -> dict[str, str]:
        """The configuration of every metadata domain that is set."""
        return {domain: action.configuration for domain, action in self._snapshot.domain_metadata().items()}

    def transaction_version(self, app_id: str) -> int | None:
        """The newest version an application recorded by a `txn` action."""
        self._note_application(app_id)
        action = self._snapshot.app_transaction(app_id)
        return None if action is None else action.version

    # -- versions

    def load_as_version(self, version: int | str | datetime) -> None:
        """Move to a version, or to the newest one committed at or before a time (ISO 8601; UTC without a zone)."""
        if isinstance(version, bool) or not isinstance(version, int | str | datetime):
            raise TypeError("Invalid datatype provided for version, only int, str or datetime are accepted.")
        number = version if isinstance(version, int) else self._reader.version_at(to_epoch_ms(version))
        snapshot = self._reader.snapshot(number)
        snapshot.metadata, snapshot.protocol  # noqa: B018  read now, so that a later clean-up cannot take them away
        self._snapshot = snapshot

    def update_incremental(self) -> None:
        """Move to the newest version in the catalog, whatever the table is called by now."""
        with self._catalog.store.read(single=True) as conn:
            row = registry.table_by_id(conn, self._row.table_id)
        if row is None:
            raise TableNotFoundError(f"{self.name} was dropped from the catalog {self._catalog.uri}")
        self._open(TableName(row.namespace, row.name))

    def history(
        self, limit: int | None = None, *, since: Instant | None = None, until: Instant | None = None
    ) -> list[dict[str, Any]]:
        """Commits up to this version, newest first: the fields of each commitInfo, and its version."""
        if limit is not None and limit < 0:
            raise ValueError("limit must not be negative")
        latest_ms = self._snapshot.timestamp_ms
        until_ms = latest_ms if until is None else min(latest_ms, to_epoch_ms(until))
        since_ms = None if since is None else to_epoch_ms(since)
        entries = self._reader.history(limit, since_ms=since_ms, until_ms=until_ms)
        return [history_entry(entry) for entry in entries]

    def diff(self, from_version: int, to_version: int) -> Difference:
        """The files, and whether metadata or protocol, that differ between two versions."""
        found = self._reader.diff(from_version, to_version)
        return replace(found, added=readable(found.added), removed=readable(found.removed))

    def lineage(self) -> list[LineageEntry]:
        """Which commits this version's files, metadata and protocol come from."""
        return self._reader.lineage(self._snapshot.version)

    # -- files

    def files(self, columns: Sequence[str] | None = None) -> pa.Table:
        """The active files as Arrow: path, size, partition values, statistics and every other field of their adds."""
        self._note_read(None)
        return readable(self._snapshot.files_table(columns))

    def file_uris(
        self,
        partition_filters: FilterDnf | None = None,
        *,
        file_pruning_predicate: PredicateLike | None = None,
    ) -> list[str]:
        """Where the active files are, or those that may hold a matching row; local ones as plain paths."""
        predicate = one_predicate(partition_filters, file_pruning_predicate)
        found = self._files_matching(predicate, ["path"]).column("path").to_pylist()
        location = self._row.location
        uris = (paths.resolve(location, path) for path in found)
        return [paths.local_path(uri) or uri for uri in uris]

    def partitions(
        self,
        partition_filters: FilterDnf | None = None,
        *,
        file_pruning_predicate: PredicateLike | None = None,
    ) -> list[dict[str, str | None]]:
        """The distinct partition values of the active files, as the log spells them."""
        predicate = one_predicate(partition_filters, file_pruning_predicate)
        if not self._snapshot.metadata.partition_columns:
            return []
        texts = self._files_matching(predicate, ["partition_values"]).column("partition_values").unique().to_pylist()
        fields = [self.schema().field(name) for name in self._snapshot.metadata.partition_columns]
        return distinct_partitions(texts, [item for item in fields if item is not None])

    def get_add_actions(self, flatten: bool = False) -> pa.Table:
        """The active files with their statistics and partition values as typed columns."""
        from .add_actions import FILE_COLUMNS, add_actions_table

        self._note_read(None)
        files = self._snapshot.files_table(FILE_COLUMNS)
        return add_actions_table(files, self._snapshot.metadata, flatten=flatten)

    def count(self, predicate: PredicateLike | None = None) -> int:
        """How many rows the table has, or match a predicate, if metadata knows it exactly; else a DeltaError."""
        if predicate is not None:
            return self._count_matching(predicate)
        totals = self.totals()
        if totals.files_without_records:
            raise DeltaError(
                f"{self.name} version {self.version()}: {totals.files_without_records} of {totals.num_files} files do "
                "not say how many rows they hold, so the count is not known without reading them"
            )
        return totals.num_records

    def totals(self) -> FileTotals:
        """The number of files, their bytes, and the rows of those that say how many they hold."""
        self._note_read(None)
        return self._snapshot.totals()

    def plan(self, predicate: PredicateLike, *, columns: Sequence[str] | None = None, explain: bool = False) -> Plan:
        """The files that may hold a row for which the predicate is true, found inside the database.

        `columns` chooses what is fetched of each file; `explain` also counts what each condition keeps by itself.
        """
        parsed = self._parsed(predicate)
        self._note_read(parsed)
        planned = self._planned(parsed, columns, explain)
        return Plan(self.name, self._snapshot.version, replace(planned, files=readable(planned.files)))

    def stats_of(self, column: str) -> ColumnStats:
        """A column's smallest and largest value, as far as metadata proves them; only at the newest version."""
        from .store.aggregates import maximum, minimum

        self._note_read(None)
        with self._catalog.store.read() as conn:
            opened = self._as_head(conn)
            low, high = (None, None) if opened is None else (f(conn, opened, column) for f in (minimum, maximum))
        return ColumnStats(low.value if low else None, high.value if high else None, low is not None, high is not None)

    def partition_counts(self) -> list[PartitionCounts]:
        """Files, rows and bytes of every partition, at the newest version."""
        from .store.aggregates import count_partitions

        self._note_read(None)
        with self._catalog.store.read() as conn:
            opened = self._as_head(conn)
            found = [] if opened is None else count_partitions(conn, opened)
        if opened is None:
            raise self._only_at_the_head("partitions are counted")
        names = {f.physical_name: f.name for f in self.schema().fields}
        return [replace(one, values={names.get(key, key): text for key, text in one.values.items()}) for one in found]

    # -- rows

    def to_pyarrow_table(
        self,
        partitions: FilterDnf | None = None,
        columns: list[str] | None = None,
        filesystem: Any = None,
        filters: RowFilter | None = None,
    ) -> pa.Table:
        """The rows, or those for which `filters` (filter lists, SQL, or an expression of pyarrow) is true.

        `partitions` only chooses files, and is deprecated as in `deltalake`. A file system cannot be given: files are
        opened with the storage options of the table.
        """
        if filesystem is not None:
            raise ValueError("`filesystem` is not supported: give storage_options when the table is opened")
        if partitions is not None:
            warnings.warn("`partitions` is deprecated; use `filters` instead", DeprecationWarning, stacklevel=2)
        return self._read(partitions, columns, filters).read_all()

    def to_pandas(
        self,
        partitions: FilterDnf | None = None,
        columns: list[str] | None = None,
        filesystem: Any = None,
        filters: RowFilter | None = None,
        types_mapper: Any = None,
    ) -> Any:
        """The rows as a pandas DataFrame; the arguments are those of `to_pyarrow_table`."""
        table = self.to_pyarrow_table(partitions, columns, filesystem, filters)
        return table.to_pandas(types_mapper=types_mapper)

    def _read(
        self, partitions: FilterDnf | None, columns: list[str] | None, filters: RowFilter | None
    ) -> pa.RecordBatchReader:
        chosen = filters if partitions is None else partitions
        predicate = None if chosen is None or is_expression(chosen) else self._parsed(chosen)
        self._note_read(predicate)
        files = self._snapshot.files_table() if predicate is None else self._planned(predicate, None, False).files
        options = {**(self._catalog.storage_options_of(self._row) or {}), **(self._storage_options or {})}
        return read_rows(files, self._snapshot.metadata, self._row.location, options, columns=columns, filters=filters)

    # -- what a transaction wants to know

    def _note_read(self, predicate: Predicate | None) -> None:
        """Rows that match a predicate, or all of them, are about to be read. Only a transaction cares."""

    def _note_application(self, app_id: str) -> None:
        """How far an application has come is about to be read."""

    # -- how it is answered

    def _planned(self, predicate: Predicate, columns: Sequence[str] | None, explain: bool) -> PlannedFiles:
        from .store.overlay import OverlaySnapshot, plan_pinned

        snapshot = self._snapshot
        if isinstance(snapshot, OverlaySnapshot):
            return snapshot.plan(predicate, columns=columns, explain=explain)
        return plan_pinned(self._catalog.store, self._row, snapshot, predicate, columns=columns, explain=explain)

    def _count_matching(self, predicate: PredicateLike) -> int:
        from .store.aggregates import count_planned

        parsed = self._parsed(predicate)
        self._note_read(parsed)
        planned = self._planned(parsed, ["partition_values", "num_records"], False)
        found = count_planned(planned.files, self._snapshot.metadata, parsed)
        if found is None:
            raise DeltaError(
                f"{self.name} version {self.version()}: metadata does not tell how many rows match {predicate}"
            )
        return found

    def _parsed(self, predicate: PredicateLike) -> Predicate:
        from .log.predicate import parse_predicate

        return parse_predicate(predicate, self.schema(), self._snapshot.metadata.partition_columns)

    def _as_head(self, conn: Connection) -> registry.OpenTable | None:
        """This version as the head of this very read; None if it is not the newest any more."""
        head = registry.read_head(conn, self._row.table_id)
        if head is None or head.current_version != self._snapshot.version:
            return None
        return registry.OpenTable(self._row, head, self._snapshot.protocol, self._snapshot.metadata, fenced=False)

    def _only_at_the_head(self, what: str) -> DeltaError:
        return DeltaError(
            f"{self.name}: {what} at the newest version only, and version {self.version()} is not; "
            "`update_incremental` moves there"
        )

    def _files_matching(self, predicate: PredicateLike | None, columns: list[str]) -> pa.Table:
        if predicate is None:
            self._note_read(None)
            return readable(self._snapshot.files_table(columns))
        return self.plan(predicate, columns=columns).files
