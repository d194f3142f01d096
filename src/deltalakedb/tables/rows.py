"""RowsOfTable: the rows of a DeltaTable, read through its plan."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from deltalakedb.arguments import check_number, check_text, check_texts
from deltalakedb.exceptions import DeltaError, MissingFileError, NegativeVersionError
from deltalakedb.instants import to_epoch_ms
from deltalakedb.log.proposal import DEFINITION, WHOLE_TABLE
from deltalakedb.reading import FilterDnf, PredicateLike, RowFilter, is_expression, one_predicate, read_rows
from deltalakedb.tables.files import FilesOfTable

if TYPE_CHECKING:
    import arro3.core
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.dataset as ds

    from deltalakedb.data import DataStorage
    from deltalakedb.log.atoms import Predicate


class RowsOfTable(FilesOfTable):
    """What the table's files hold."""

    def to_pyarrow_table(
        self,
        partitions: FilterDnf | None = None,
        columns: list[str] | None = None,
        filesystem: Any = None,
        filters: RowFilter | None = None,
    ) -> pa.Table:
        """The rows, or those for which `filters` (filter lists, SQL, or an expression of pyarrow) is true.

        `partitions` only chooses files, and is deprecated as in `deltalake`. `columns` may also be what pyarrow's
        datasets take: expressions by name, or the path of a struct's part.
        """
        if partitions is not None:
            warnings.warn("`partitions` is deprecated; use `filters` instead", DeprecationWarning, stacklevel=2)
        self._check_filters(filters)
        if columns is not None and not isinstance(columns, list | Mapping):
            raise ValueError(f"`columns` is a list or a dict, not {type(columns).__name__}")
        if filesystem is None and (columns is None or self._are_plain(columns)):
            return self._read(partitions, columns, filters).read_all()
        return self._dataset_table(partitions, columns, filesystem, filters)

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

    def to_pyarrow_dataset(
        self,
        partitions: FilterDnf | None = None,
        filesystem: Any = None,
        parquet_read_options: ds.ParquetReadOptions | None = None,
        schema: pa.Schema | None = None,
        as_large_types: bool = False,
        file_pruning_predicate: PredicateLike | None = None,
    ) -> ds.FileSystemDataset:
        """The files as a PyArrow dataset: a fragment each, with its partition values and bounds.

        `file_pruning_predicate` chooses the files in the log, before a fragment is made of each; rows are not filtered
        by it. `lazy_dataset` needs no predicate in advance.
        """
        import pyarrow as pa

        from deltalakedb.tables.datasets import files_dataset

        predicate = one_predicate(partitions, file_pruning_predicate, name="partitions")
        files = self._chosen_files(predicate, None)
        self._check_there(files)
        return files_dataset(
            files,
            self._snapshot.metadata,
            self._storage(),
            pa.schema(self.schema().to_arrow(as_large_types) if schema is None else schema),
            filesystem=filesystem,
            read_options=parquet_read_options,
        )

    def lazy_dataset(self) -> ds.Dataset:
        """The table as a PyArrow dataset that is planned by what a scan asks for: DuckDB and Polars hand it their
        columns and filters, and only files that may hold matching rows are opened."""
        from deltalakedb.tables.lazy_dataset import LazyDataset

        self._note(DEFINITION)  # rows are recorded by each scan
        return LazyDataset(
            self._struct.to_arrow(),
            lambda columns, expression: self._read(None, columns, expression),
            self.to_pyarrow_dataset,
        )

    def to_pyarrow_reader(
        self, columns: list[str] | None = None, filters: RowFilter | None = None
    ) -> pa.RecordBatchReader:
        """The rows of `to_pyarrow_table` as a stream; files are opened as it is read."""
        return self._read(None, columns, filters)

    def scan(self, columns: list[str] | None = None, predicate: str | None = None) -> arro3.core.RecordBatchReader:
        """The rows for which a SQL predicate is true, as a stream; files are opened as it is read."""
        check_texts(columns)
        check_text(predicate)
        if columns is not None and len(set(columns)) < len(columns):
            raise DeltaError(f"table {self.name}: a column is asked for twice: {', '.join(columns)}")
        rows = self.to_pyarrow_reader(columns, predicate)
        return self._streamed(rows.schema, rows, self._snapshot.version)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """All rows, to whoever reads Arrow streams: `pa.table(t)`, `polars.DataFrame(t)`, DuckDB's `from t`."""
        return self._read(None, None, None).__arrow_c_stream__(requested_schema)

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
        """The rows that changed between two versions (both included), or two times: with `_change_type`,
        `_commit_version` and `_commit_timestamp`. Without an end, up to the newest version there is.

        A time counts only where no version is given. A start after the newest version is an error, or with
        `allow_out_of_range` an empty answer.
        """
        from deltalakedb.operations.cdf import read_changes

        check_texts(columns)
        for text in (predicate, starting_timestamp, ending_timestamp):
            check_text(text)
        if starting_version is None and starting_timestamp is None:
            raise DeltaError(f"table {self.name}: give a version or a time to start from")
        for version in (starting_version, ending_version):
            if isinstance(version, int) and version < 0:
                raise NegativeVersionError(f"table {self.name}: a version is not negative")
            check_number(version)
        start, end = self._feed_range(
            starting_version, ending_version, starting_timestamp, ending_timestamp, allow_out_of_range
        )
        changes = read_changes(
            self._backing.commits(start, end) if start <= end else (),
            table=self.name,
            metadata=self._snapshot.metadata,
            storage=self._storage(),
            columns=columns,
            predicate=predicate,
            values_before=self._partition_values_before,
        )
        return self._streamed(changes.schema, self._explained(changes, start), start)

    def deletion_vectors(self) -> arro3.core.RecordBatchReader:
        """The files that have a deletion vector: where they are, and of each row whether it is still there."""
        from deltalakedb.tables.vectors import VECTORS_SCHEMA, selection_vectors

        self._note_read(None)
        version = self._snapshot.version
        batches = selection_vectors(self._snapshot.files_table(), self._storage())
        return self._streamed(VECTORS_SCHEMA, self._explained(batches, version), version)

    # -- how rows are found

    def _read(
        self, partitions: FilterDnf | None, columns: list[str] | None, filters: RowFilter | None
    ) -> pa.RecordBatchReader:
        import pyarrow as pa

        rows = read_rows(
            self._files_to_read(partitions, filters),
            self._snapshot.metadata,
            self._backing.location,
            self._backing.storage_options(),
            columns=columns,
            filters=filters,
        )
        return pa.RecordBatchReader.from_batches(rows.schema, self._explained(rows, self._snapshot.version))

    def _explained(self, batches: Iterable[pa.RecordBatch], version: int) -> Iterator[pa.RecordBatch]:
        """These batches; a file of the version that a vacuum deleted is reported as such."""
        try:
            yield from batches
        except MissingFileError as error:
            raise self._explain_missing(error, version) from error

    def _streamed(
        self, schema: pa.Schema, batches: Iterator[pa.RecordBatch], version: int
    ) -> arro3.core.RecordBatchReader:
        """A reader of arro3, begun at once where a vacuum may have deleted files: the error keeps its class."""
        from deltalakedb.tables.streams import stream

        return stream(schema, batches, begun=version < self._backing.vacuumed_version())

    def _check_there(self, files: pa.Table) -> None:
        """Look for the files of a version below the vacuum watermark: pyarrow would only say that one is gone."""
        if self._snapshot.version >= self._backing.vacuumed_version():
            return
        from deltalakedb.log.rows import add_from_row
        from deltalakedb.operations.presence import missing_files

        missing = missing_files(self._storage(), [add_from_row(row) for row in files.to_pylist()], vectors=True)
        if missing:
            what = f"table {self.name}: {len(missing)} of the files to read are gone, the first is {missing[0].path}"
            gone = MissingFileError(what, path=missing[0].path, advice="they were deleted or vacuumed")
            raise self._explain_missing(gone, self._snapshot.version)

    def _predicate_of(self, chosen: RowFilter | None) -> Predicate | None:
        """What chooses files: a predicate as it is, of pyarrow's expressions as much as can be understood."""
        if chosen is None:
            return None
        if not is_expression(chosen):
            return self._parsed(chosen)
        from deltalakedb.data.arrow_expressions import expression_to_sql

        text = expression_to_sql(chosen, self._struct)
        return None if text is None else self._parsed(text)

    def _files_to_read(self, partitions: FilterDnf | None, filters: RowFilter | None) -> pa.Table:
        if partitions is not None:
            return self._chosen_files(partitions, None)
        return self._files_for(self._predicate_of(filters))

    def _files_for(self, predicate: Predicate | None) -> pa.Table:
        self._note_read(predicate)
        return self._snapshot.files_table() if predicate is None else self._planned(predicate, None, False).files

    def _dataset_table(
        self, partitions: FilterDnf | None, columns: Any, filesystem: Any, filters: RowFilter | None
    ) -> pa.Table:
        """By way of a dataset, for what only datasets can do."""
        import pyarrow as pa

        from deltalakedb.reading import to_row_predicate
        from deltalakedb.tables.datasets import files_dataset

        if isinstance(filters, str):
            raise ValueError("a filter in SQL goes with plain column names and the table's own file system only")
        files = self._files_to_read(partitions, filters)
        self._check_there(files)
        dataset = files_dataset(
            files,
            self._snapshot.metadata,
            self._storage(),
            pa.schema(self.schema().to_arrow()),
            filesystem=filesystem,
            read_options=None,
        )
        condition: pc.Expression | None = None if filters is None else to_row_predicate(filters, self._struct)
        return dataset.to_table(columns=columns, filter=condition)

    def _are_plain(self, columns: Any) -> bool:
        return bool(columns) and not isinstance(columns, Mapping) and set(columns) <= set(self._struct.names)

    def _check_filters(self, filters: RowFilter | None) -> None:
        """Filter lists are pyarrow's in `deltalake`, and so are the errors about their form, columns and types."""
        if not isinstance(filters, list | tuple) and not is_expression(filters):
            return
        from pyarrow.parquet import filters_to_expression

        expression = filters if is_expression(filters) else filters_to_expression(filters)
        self._struct.to_arrow().empty_table().filter(expression)

    def _storage(self) -> DataStorage:
        from deltalakedb.storage import open_data_storage

        return open_data_storage(self._backing.location, self._backing.storage_options())

    # -- the change data feed

    def _feed_range(
        self, first: int | None, last: int | None, since: str | None, until: str | None, allow_out_of_range: bool
    ) -> tuple[int, int]:
        """The versions to read, first and last; the last below the first means none."""
        from deltalakedb.operations.cdf import check_feed

        newest = self._newest()
        start = first if since is None or first else self._first_since(since)
        end = newest.version if last is None and until is None else self._last_until(last, until, newest.version)
        if end >= newest.version or start is None or start > newest.version:  # later commits would be part of it
            self._note(WHOLE_TABLE | DEFINITION, version=newest.version)
        if start is None or start > newest.version:
            if allow_out_of_range:
                return 0, -1
            asked = f"version {first}" if start is not None else f"the time {since}"
            raise DeltaError(f"{self.name}: {asked} lies after the newest version, {newest.version}")
        if start > end:
            if last is None or allow_out_of_range:
                return 0, -1
            raise DeltaError(f"{self.name}: the changes asked for start at version {start} and end before, at {end}")
        check_feed(self.name, start, self._backing.snapshot(start).metadata)
        return start, end

    def _first_since(self, since: str) -> int | None:
        entries = self._backing.history(None, snapshot=self._newest(), since_ms=to_epoch_ms(since), until_ms=None)
        return min((entry.version for entry in entries), default=None)

    def _last_until(self, last: int | None, until: str | None, newest: int) -> int:
        if last is not None or until is None:
            return newest if last is None else min(last, newest)
        entries = self._backing.history(1, snapshot=self._newest(), since_ms=None, until_ms=to_epoch_ms(until))
        return next((entry.version for entry in entries), -1)

    def _partition_values_before(self, version: int) -> dict[str, dict[str, str | None]]:
        import json

        from deltalakedb.log.text import from_sql_text

        files = self._backing.snapshot(version - 1).files_table(["path", "partition_values"])
        pairs: Iterator[Sequence[str]] = zip(*(column.to_pylist() for column in files.columns), strict=True)
        return {from_sql_text(path): json.loads(values or "{}") for path, values in pairs}
