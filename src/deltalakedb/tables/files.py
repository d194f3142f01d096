"""FilesOfTable: plans, counts and lists the active files of a DeltaTable."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from deltalakedb.exceptions import DeltaError
from deltalakedb.log.predicates.file_filters import encode_filters, read_file_filters
from deltalakedb.log.protocol import paths
from deltalakedb.runtime.arguments import check_flag
from deltalakedb.store import Connection, registry
from deltalakedb.store.snapshot import FileTotals, SqlSnapshot
from deltalakedb.tables.answers import ColumnStats, Plan, distinct_partitions, readable
from deltalakedb.tables.filters import FilterDnf, PredicateLike, one_predicate
from deltalakedb.tables.state import TableState

if TYPE_CHECKING:
    import arro3.core
    import pyarrow as pa

    from deltalakedb.store.aggregates import PartitionCounts


class FilesOfTable(TableState):
    """Methods that answer from the log's file entries."""

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
        predicate = one_predicate(partition_filters, file_pruning_predicate)
        file_paths = self._files_matching(predicate, ["path"]).column("path").to_pylist()
        location = self._backing.location
        uris = (paths.resolve(location, path) for path in file_paths)
        return [paths.local_path(uri) or uri for uri in uris]

    def partitions(
        self,
        partition_filters: FilterDnf | None = None,
        *,
        file_pruning_predicate: PredicateLike | None = None,
    ) -> list[dict[str, str | None]]:
        """Return the distinct partition values of the active files, as the log spells them."""
        predicate = one_predicate(partition_filters, file_pruning_predicate)
        self._check_filtered(predicate)
        if not self._snapshot.metadata.partition_columns:
            return []
        texts = self._files_matching(predicate, ["partition_values"]).column("partition_values").unique().to_pylist()
        fields = [self._struct.field(name) for name in self._snapshot.metadata.partition_columns]
        return distinct_partitions(texts, [item for item in fields if item is not None])

    def get_add_actions(self, flatten: bool = False) -> arro3.core.Table:
        """Return the active files with their statistics and partition values as typed columns."""
        import arro3.core

        return arro3.core.Table.from_arrow(self._add_actions(flatten))

    def _add_actions(self, flatten: bool) -> pa.Table:
        from deltalakedb.tables.add_actions import FILE_COLUMNS, add_actions_table

        check_flag(flatten)
        self._note_read(None)
        files = self._snapshot.files_table(FILE_COLUMNS)
        return add_actions_table(files, self._snapshot.metadata, flatten=flatten)

    def count(self, predicate: PredicateLike | None = None) -> int:
        """Return the number of rows, or of rows that match a predicate; DeltaError if metadata cannot tell exactly."""
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
        """Return the number of files, their bytes, and the number of rows in files that record it."""
        self._note_read(None)
        return self._snapshot.totals()

    def plan(self, predicate: PredicateLike, *, columns: Sequence[str] | None = None, explain: bool = False) -> Plan:
        """Return the files that may hold a row for which the predicate is true; the database selects them.

        `columns` selects the fields to fetch of each file; `explain` also counts the files that each condition keeps.
        """
        parsed = self._parsed(predicate)
        self._note_read(parsed)
        planned = self._planned(parsed, columns, explain)
        return Plan(self.name, self._snapshot.version, replace(planned, files=readable(planned.files)))

    def stats_of(self, column: str) -> ColumnStats:
        """Return a column's minimum and maximum, None if metadata does not prove it. Only at the newest version."""
        from deltalakedb.store.aggregates import maximum, minimum

        self._note_read(None)
        with self._sql().catalog.store.read() as conn:
            opened = self._as_head(conn)
            low, high = (None, None) if opened is None else (f(conn, opened, column) for f in (minimum, maximum))
        return ColumnStats(low.value if low else None, high.value if high else None, low is not None, high is not None)

    def partition_counts(self) -> list[PartitionCounts]:
        """Return the files, rows and bytes of every partition, at the newest version."""
        from deltalakedb.store.aggregates import count_partitions

        self._note_read(None)
        with self._sql().catalog.store.read() as conn:
            opened = self._as_head(conn)
            counts = [] if opened is None else count_partitions(conn, opened)
        if opened is None:
            raise self._only_at_the_head("partitions are counted")
        names = {f.physical_name: f.name for f in self._struct.fields}
        return [
            replace(count, values={names.get(key, key): text for key, text in count.values.items()}) for count in counts
        ]

    def _count_matching(self, predicate: PredicateLike) -> int:
        from deltalakedb.store.aggregates import count_planned

        parsed = self._parsed(predicate)
        self._note_read(parsed)
        planned = self._planned(parsed, ["partition_values", "num_records"], False)
        num_rows = count_planned(planned.files, self._snapshot.metadata, parsed)
        if num_rows is None:
            raise DeltaError(
                f"{self.name} version {self.version()}: metadata does not tell how many rows match {predicate}"
            )
        return num_rows

    def _as_head(self, conn: Connection) -> registry.OpenTable | None:
        """Return this version as the head, read on `conn`; None if it is not the newest any more."""
        row = self._sql().row
        if not isinstance(self._snapshot, SqlSnapshot):
            return None  # with a transaction's own changes it is not a version in the database
        head = registry.read_head(conn, row.table_id)
        if head is None or head.current_version != self._snapshot.version:
            return None
        return registry.OpenTable(row, head, self._snapshot.protocol, self._snapshot.metadata, fenced=False)

    def _only_at_the_head(self, what: str) -> DeltaError:
        return DeltaError(
            f"{self.name}: {what} at the newest version only, and version {self.version()} is not; "
            "`update_incremental` moves there"
        )

    def _check_filtered(self, predicate: PredicateLike | None) -> None:
        """Raise ValueError for filters on unknown columns, as `deltalake` does when it lists partitions."""
        groups = [] if not predicate or isinstance(predicate, str) else encode_filters(predicate)
        unknown = sorted({name for group in groups for name, *_ in group} - set(self._struct.names))
        if unknown:
            raise ValueError(
                f"Filters include columns that are not in table schema: [{', '.join(map(json.dumps, unknown))}]; "
                f"{self.name} has {', '.join(self._struct.names)}"
            )

    def _files_matching(self, predicate: PredicateLike | None, columns: list[str] | None) -> pa.Table:
        """Return the files that a predicate, or filters on files, select."""
        return readable(self._chosen_files(predicate, columns))

    def _chosen_files(self, predicate: PredicateLike | None, columns: list[str] | None) -> pa.Table:
        if predicate is None or (not predicate and not isinstance(predicate, str)):
            self._note_read(None)
            return self._snapshot.files_table(columns)
        if isinstance(predicate, str):
            parsed = self._parsed(predicate, exact=True)
            self._note_read(parsed)
            return self._planned(parsed, columns, False).files
        filters = read_file_filters(encode_filters(predicate), self._struct, self._snapshot.metadata.partition_columns)
        self._note_read(filters.predicate)
        fetched = None if columns is None else [*columns, *({"partition_values"} - set(columns))]
        return filters.choose(self._planned(filters.predicate, fetched, False).files)
