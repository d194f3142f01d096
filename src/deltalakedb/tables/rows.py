"""RowsOfTable: reads the rows of a DeltaTable."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from deltalakedb.catalog.instants import parse_rfc3339, to_epoch_ms
from deltalakedb.exceptions import DeltaError, MissingFileError, NegativeVersionError
from deltalakedb.log.predicates.predicate import no_such_column
from deltalakedb.log.protocol.proposal import DEFINITION, WHOLE_TABLE
from deltalakedb.runtime.arguments import check_flag, check_number, check_text, check_texts
from deltalakedb.tables.files import FilesOfTable
from deltalakedb.tables.filters import FilterDnf, PredicateLike, RowFilter, is_expression, one_predicate, read_rows

_ZONED = re.compile(r"\d{2}:\d{2}:\d{2}\S* *([zZ]|UTC|[+-]\d{2}:?\d{2})\s*$")

if TYPE_CHECKING:
    import arro3.core
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.dataset as ds

    from deltalakedb.log.predicates.atoms import Predicate
    from deltalakedb.storage.interface import Storage


def _is_filter(item: Any) -> bool:
    """Return whether it is one filter, which pyarrow also accepts as a list, and not a group of filters."""
    return isinstance(item, list | tuple) and len(item) == 3 and isinstance(item[0], str)


def _feed_time_ms(text: str) -> int:
    """Return the epoch milliseconds of a time that limits the feed; it must have a zone, as in `deltalake`."""
    try:
        return to_epoch_ms(parse_rfc3339(text))
    except ValueError:
        if not _ZONED.search(text):
            raise
        return to_epoch_ms(text)


_NOT_COPIED = (b"delta.columnMapping.", b"delta.identity.")


class RowsOfTable(FilesOfTable):
    """Methods that read rows."""

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
        if isinstance(filters, list) and all(_is_filter(item) for item in filters):
            filters = [tuple(item) for item in filters]
        self._check_filters(filters)
        if columns is not None and not isinstance(columns, list | Mapping):
            raise ValueError(f"Expected a list or a dict for 'columns', got {type(columns)} instead.")
        if filesystem is None and (columns is None or self._are_plain(columns)):
            return self._with_notes(self._read(partitions, columns, filters)).read_all()
        return self._dataset_table(partitions, columns, filesystem, filters)

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
        import pyarrow as pa

        from deltalakedb.tables.datasets import files_dataset

        if schema is not None and not hasattr(schema, "__arrow_c_schema__"):
            raise ValueError("Expected an object with dunder __arrow_c_schema__")
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
        """Return the table as a PyArrow dataset that is planned by each scan.

        DuckDB and Polars pass it their columns and filters, and only files that may hold matching rows are opened.
        """
        from deltalakedb.tables.lazy_dataset import LazyDataset

        self._note(DEFINITION)  # each scan records the rows it reads
        from deltalakedb.tables.streams import note_columns

        return LazyDataset(
            note_columns(self._struct.to_arrow(), self._notes()),
            lambda columns, expression: self._read(None, columns, expression),
            self.to_pyarrow_dataset,
        )

    def to_pyarrow_reader(
        self, columns: list[str] | None = None, filters: RowFilter | None = None
    ) -> pa.RecordBatchReader:
        """Return the rows of `to_pyarrow_table` as a stream; files are opened as it is read."""
        return self._with_notes(self._read(None, columns, filters))

    def scan(self, columns: list[str] | None = None, predicate: str | None = None) -> arro3.core.RecordBatchReader:
        """Return the rows for which a SQL predicate is true as a stream; files are opened as it is read."""
        check_texts(columns)
        check_text(predicate)
        self._check_asked_once(columns)
        for name in columns or ():
            if name not in self._struct.names:
                raise no_such_column(name, self._struct.names)
        if predicate is not None:
            self._check_condition(predicate)
        from deltalakedb.tables.streams import with_views

        rows = with_views(self.to_pyarrow_reader(columns, predicate))
        return self._streamed(rows.schema, rows, self._snapshot.version)

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
        from deltalakedb.operations.cdf import read_changes
        from deltalakedb.tables.streams import with_views

        check_texts(columns)
        for text in (predicate, starting_timestamp, ending_timestamp):
            check_text(text)
        check_flag(allow_out_of_range)
        self._check_asked_once(columns)
        if starting_version is None and starting_timestamp is None:
            raise DeltaError(f"No starting version or timestamp provided for CDC of table {self.name}")
        for version in (starting_version, ending_version):
            if isinstance(version, int) and version < 0:
                raise NegativeVersionError(
                    f"can't convert negative int to unsigned: {version} is no version of {self.name}"
                )
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
        changes = with_views(self._with_notes(changes), nested=False)
        return self._streamed(changes.schema, self._explained(changes, start), start)

    def deletion_vectors(self) -> arro3.core.RecordBatchReader:
        """Return the files that have a deletion vector: their location, and for each row whether it still exists."""
        from deltalakedb.tables.vectors import VECTORS_SCHEMA, selection_vectors

        self._note_read(None)
        version = self._snapshot.version
        batches = selection_vectors(self._snapshot.files_table(), self._storage())
        return self._streamed(VECTORS_SCHEMA, self._explained(batches, version), version)

    # -- reading rows

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

    def _with_notes(self, rows: pa.RecordBatchReader) -> pa.RecordBatchReader:
        from deltalakedb.tables.streams import with_notes

        return with_notes(rows, self._notes())

    def _notes(self) -> dict[str, Mapping[bytes, bytes]]:
        """Return the metadata of the table's columns: comments, generation expressions.

        Column mapping and identity settings are left out, because they do not apply to a copy of the rows.
        """
        if not any(field.metadata for field in self._struct.fields):
            return {}
        import pyarrow as pa

        metadata = {field.name: field.metadata or {} for field in pa.schema(self.schema().to_arrow())}
        copied = {
            name: {key: value for key, value in notes.items() if not key.startswith(_NOT_COPIED)}
            for name, notes in metadata.items()
        }
        return {name: notes for name, notes in copied.items() if notes}

    def _explained(self, batches: Iterable[pa.RecordBatch], version: int) -> Iterator[pa.RecordBatch]:
        """Yield these batches; a missing file is reported as vacuumed if a vacuum deleted it."""
        try:
            yield from batches
        except MissingFileError as error:
            raise self._explain_missing(error, version) from error

    def _streamed(
        self, schema: pa.Schema, batches: Iterator[pa.RecordBatch], version: int
    ) -> arro3.core.RecordBatchReader:
        """Return an arro3 reader, begun at once if a vacuum may have deleted files: then the error keeps its class."""
        from deltalakedb.tables.streams import stream

        return stream(schema, batches, begun=version < self._backing.vacuumed_version())

    def _check_there(self, files: pa.Table) -> None:
        """Raise if files of a version below the vacuum watermark are missing: pyarrow's error would not explain it."""
        if self._snapshot.version >= self._backing.vacuumed_version():
            return
        from deltalakedb.log.protocol.rows import add_from_row
        from deltalakedb.operations.presence import missing_files

        missing = missing_files(self._storage(), [add_from_row(row) for row in files.to_pylist()], vectors=True)
        if missing:
            what = f"table {self.name}: {len(missing)} of the files to read are gone, the first is {missing[0].path}"
            error = MissingFileError(what, path=missing[0].path, advice="they were deleted or vacuumed")
            raise self._explain_missing(error, self._snapshot.version)

    def _predicate_of(self, chosen: RowFilter | None) -> Predicate | None:
        """Return the predicate that selects files; of pyarrow's expressions, the part that can be translated."""
        if chosen is None:
            return None
        if not is_expression(chosen):
            return self._parsed(chosen, exact=True)
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
        """Read through a dataset, which supports column expressions and other file systems."""
        import pyarrow as pa

        from deltalakedb.tables.datasets import files_dataset
        from deltalakedb.tables.filters import to_row_predicate

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
        """Raise pyarrow's errors about the form, columns and types of filter lists, as `deltalake` does."""
        if not isinstance(filters, list | tuple) and not is_expression(filters):
            return
        from pyarrow.parquet import filters_to_expression

        expression = filters if is_expression(filters) else filters_to_expression(filters)
        self._struct.to_arrow().empty_table().filter(expression)

    def _check_asked_once(self, columns: Sequence[str] | None) -> None:
        if columns is not None and len(set(columns)) < len(columns):
            raise DeltaError(
                f"Projections require unique expression names: a column of {self.name} is asked for twice: "
                f"{', '.join(columns)}"
            )

    def _check_condition(self, predicate: str) -> None:
        """Raise DeltaError for a predicate that is not a condition."""
        from deltalakedb.data.filtering import check_condition

        self._parsed(predicate, exact=True)
        check_condition(predicate, self._struct)

    def _storage(self) -> Storage:
        from deltalakedb.storage.opening import open_storage

        return open_storage(self._backing.location, self._backing.storage_options())

    # -- the change data feed

    def _feed_range(
        self, first: int | None, last: int | None, since: str | None, until: str | None, allow_out_of_range: bool
    ) -> tuple[int, int]:
        """Return the first and the last version to read; if the last is below the first, there is nothing to read."""
        from deltalakedb.operations.cdf import check_feed

        newest = self._newest()
        start = first if since is None or first else self._first_since(since)
        end = newest.version if last is None and until is None else self._last_until(last, until, newest.version)
        if end >= newest.version or start is None or start > newest.version:  # later commits would change the answer
            self._note(WHOLE_TABLE | DEFINITION, version=newest.version)
        if start is None or start > newest.version:
            if allow_out_of_range:
                return 0, -1
            if start is not None:
                raise DeltaError(
                    f"Invalid table version: {first}: the newest version of {self.name} is {newest.version}"
                )
            raise DeltaError(
                f"Timestamp {since} is greater than latest commit timestamp: the newest version of {self.name}, "
                f"{newest.version}, is older"
            )
        if start > end:
            if last is None or allow_out_of_range:
                return 0, -1
            raise DeltaError(f"Invalid version. Start version {start} is greater than end version {end} of {self.name}")
        check_feed(self.name, start, self._backing.snapshot(start).metadata)
        return start, end

    def _first_since(self, since: str) -> int | None:
        entries = self._backing.history(None, snapshot=self._newest(), since_ms=_feed_time_ms(since), until_ms=None)
        return min((entry.version for entry in entries), default=None)

    def _last_until(self, last: int | None, until: str | None, newest: int) -> int:
        if last is not None or until is None:
            return newest if last is None else min(last, newest)
        entries = self._backing.history(1, snapshot=self._newest(), since_ms=None, until_ms=_feed_time_ms(until))
        return next((entry.version for entry in entries), -1)

    def _partition_values_before(self, version: int) -> dict[str, dict[str, str | None]]:
        import json

        from deltalakedb.log.protocol.text import from_sql_text

        files = self._backing.snapshot(version - 1).files_table(["path", "partition_values"])
        pairs: Iterator[Sequence[str]] = zip(*(column.to_pylist() for column in files.columns), strict=True)
        return {from_sql_text(path): json.loads(values or "{}") for path, values in pairs}
