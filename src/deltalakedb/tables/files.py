"""FilesOfTable: the active files of a DeltaTable, planned, counted and listed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from deltalakedb.answers import ColumnStats, Plan, distinct_partitions, readable
from deltalakedb.arguments import check_flag
from deltalakedb.exceptions import DeltaError
from deltalakedb.log import paths
from deltalakedb.log.file_filters import encode_filters, read_file_filters
from deltalakedb.reading import FilterDnf, PredicateLike, one_predicate
from deltalakedb.store import Connection, registry
from deltalakedb.store.snapshot import FileTotals, SqlSnapshot
from deltalakedb.tables.state import TableState

if TYPE_CHECKING:
    import arro3.core
    import pyarrow as pa

    from deltalakedb.store.aggregates import PartitionCounts


class FilesOfTable(TableState):
    """What the log says of the table's files."""

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
        location = self._backing.location
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
        self._check_filtered(predicate)
        if not self._snapshot.metadata.partition_columns:
            return []
        texts = self._files_matching(predicate, ["partition_values"]).column("partition_values").unique().to_pylist()
        fields = [self._struct.field(name) for name in self._snapshot.metadata.partition_columns]
        return distinct_partitions(texts, [item for item in fields if item is not None])

    def get_add_actions(self, flatten: bool = False) -> arro3.core.Table:
        """The active files with their statistics and partition values as typed columns."""
        import arro3.core

        return arro3.core.Table.from_arrow(self._add_actions(flatten))

    def _add_actions(self, flatten: bool) -> pa.Table:
        from deltalakedb.add_actions import FILE_COLUMNS, add_actions_table

        check_flag(flatten)
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
        from deltalakedb.store.aggregates import maximum, minimum

        self._note_read(None)
        with self._sql().catalog.store.read() as conn:
            opened = self._as_head(conn)
            low, high = (None, None) if opened is None else (f(conn, opened, column) for f in (minimum, maximum))
        return ColumnStats(low.value if low else None, high.value if high else None, low is not None, high is not None)

    def partition_counts(self) -> list[PartitionCounts]:
        """Files, rows and bytes of every partition, at the newest version."""
        from deltalakedb.store.aggregates import count_partitions

        self._note_read(None)
        with self._sql().catalog.store.read() as conn:
            opened = self._as_head(conn)
            found = [] if opened is None else count_partitions(conn, opened)
        if opened is None:
            raise self._only_at_the_head("partitions are counted")
        names = {f.physical_name: f.name for f in self._struct.fields}
        return [replace(one, values={names.get(key, key): text for key, text in one.values.items()}) for one in found]

    def _count_matching(self, predicate: PredicateLike) -> int:
        from deltalakedb.store.aggregates import count_planned

        parsed = self._parsed(predicate)
        self._note_read(parsed)
        planned = self._planned(parsed, ["partition_values", "num_records"], False)
        found = count_planned(planned.files, self._snapshot.metadata, parsed)
        if found is None:
            raise DeltaError(
                f"{self.name} version {self.version()}: metadata does not tell how many rows match {predicate}"
            )
        return found

    def _as_head(self, conn: Connection) -> registry.OpenTable | None:
        """This version as the head of this very read; None if it is not the newest any more."""
        row = self._sql().row
        if not isinstance(self._snapshot, SqlSnapshot):
            return None  # with a transaction's own changes it is no version of the database
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
        """ValueError for filters on columns that are not there, as `deltalake` has it where it lists partitions."""
        groups = [] if not predicate or isinstance(predicate, str) else encode_filters(predicate)
        unknown = sorted({name for group in groups for name, *_ in group} - set(self._struct.names))
        if unknown:
            raise ValueError(f"filters on columns that {self.name} does not have: {', '.join(unknown)}")

    def _files_matching(self, predicate: PredicateLike | None, columns: list[str] | None) -> pa.Table:
        """The files that a predicate, or filters on files, choose."""
        return readable(self._chosen_files(predicate, columns))

    def _chosen_files(self, predicate: PredicateLike | None, columns: list[str] | None) -> pa.Table:
        if predicate is None or (not predicate and not isinstance(predicate, str)):
            self._note_read(None)
            return self._snapshot.files_table(columns)
        if isinstance(predicate, str):
            parsed = self._parsed(predicate)
            self._note_read(parsed)
            return self._planned(parsed, columns, False).files
        filters = read_file_filters(encode_filters(predicate), self._struct, self._snapshot.metadata.partition_columns)
        self._note_read(filters.predicate)
        wanted = None if columns is None else [*columns, *({"partition_values"} - set(columns))]
        return filters.choose(self._planned(filters.predicate, wanted, False).files)
