"""Reads the rows of a DeltaTable: as tables, datasets and streams of Arrow."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from deltalakedb.exceptions import DeltaError, FilesVacuumedError, MissingFileError
from deltalakedb.log.predicates.predicate import no_such_column
from deltalakedb.log.protocol.proposal import DEFINITION
from deltalakedb.runtime.arguments import check_text, check_texts
from deltalakedb.store.vacuums import PURGED, purged
from deltalakedb.tables.files import choose_files
from deltalakedb.tables.filters import FilterDnf, RowFilter, is_expression, read_rows, to_row_predicate

if TYPE_CHECKING:
    import arro3.core
    import pyarrow as pa
    import pyarrow.dataset as ds

    from deltalakedb.log.predicates.atoms import Predicate
    from deltalakedb.storage.interface import Storage
    from deltalakedb.tables.reader import TableReader

_NOT_COPIED = (b"delta.columnMapping.", b"delta.identity.")


def to_pyarrow_table(
    table: TableReader,
    partitions: FilterDnf | None,
    columns: list[str] | None,
    filesystem: Any,
    filters: RowFilter | None,
) -> pa.Table:
    """Return the rows for which `filters` is true, of the files that `partitions` select."""
    if isinstance(filters, list) and all(_is_filter(item) for item in filters):
        filters = [tuple(item) for item in filters]
    _check_filters(table, filters)
    if columns is not None and not isinstance(columns, list | Mapping):
        raise ValueError(f"Expected a list or a dict for 'columns', got {type(columns)} instead.")
    are_plain = columns is None or (columns and isinstance(columns, list) and set(columns) <= set(table._struct.names))
    if filesystem is None and are_plain:
        return to_pyarrow_reader(table, partitions, columns, filters).read_all()
    # Through a dataset, which supports column expressions and other file systems.
    if isinstance(filters, str):
        raise ValueError("a filter in SQL goes with plain column names and the table's own file system only")
    files = _files_to_read(table, partitions, filters)
    dataset = to_dataset(table, files, table.schema().to_arrow(), filesystem, None)
    condition = None if filters is None else to_row_predicate(filters, table._struct)
    return dataset.to_table(columns=columns, filter=condition)


def to_dataset(
    table: TableReader,
    files: pa.Table,
    schema: Any,
    filesystem: Any,
    read_options: ds.ParquetReadOptions | None,
) -> ds.FileSystemDataset:
    """Return these files of the table as a PyArrow dataset."""
    import pyarrow as pa

    from deltalakedb.tables.datasets import files_dataset

    _check_there(table, files)
    return files_dataset(
        files,
        table._snapshot.metadata,
        table._storage(),
        pa.schema(schema),
        filesystem=filesystem,
        read_options=read_options,
    )


def lazy_dataset(table: TableReader) -> ds.Dataset:
    """Return the table as a PyArrow dataset that is planned by each scan, which records the rows it reads."""
    from deltalakedb.tables.datasets import LazyDataset
    from deltalakedb.tables.streams import note_columns

    table._note(DEFINITION)
    return LazyDataset(
        note_columns(table._struct.to_arrow(), _notes(table)),
        lambda columns, expression: _read(table, None, columns, expression),
        table.to_pyarrow_dataset,
    )


def to_pyarrow_reader(
    table: TableReader, partitions: FilterDnf | None, columns: list[str] | None, filters: RowFilter | None
) -> pa.RecordBatchReader:
    """Return rows as a stream, with the metadata of the table's columns; files are opened as it is read."""
    return with_notes(table, _read(table, partitions, columns, filters))


def scan(table: TableReader, columns: list[str] | None, predicate: str | None) -> arro3.core.RecordBatchReader:
    """Return the rows for which a SQL predicate is true as a stream of arro3."""
    from deltalakedb.tables.streams import with_views

    check_texts(columns)
    check_text(predicate)
    check_asked_once(table, columns)
    for name in columns or ():
        if name not in table._struct.names:
            raise no_such_column(name, table._struct.names)
    if predicate is not None:
        from deltalakedb.data.filtering import check_condition

        table._parse(predicate, exact=True)
        check_condition(predicate, table._struct)
    rows = with_views(table.to_pyarrow_reader(columns, predicate))
    return to_stream(table, rows.schema, rows, table._snapshot.version)


def check_asked_once(table: TableReader, columns: Sequence[str] | None) -> None:
    """Raise DeltaError if a column is asked for twice."""
    if columns is not None and len(set(columns)) < len(columns):
        raise DeltaError(
            f"Projections require unique expression names: a column of {table.name} is asked for twice: "
            f"{', '.join(columns)}"
        )


# -- deletion vectors


def deletion_vectors(table: TableReader) -> arro3.core.RecordBatchReader:
    """Return a stream of the files that have a deletion vector, and for each of their rows whether it still exists."""
    import pyarrow as pa

    schema = pa.schema(
        [
            pa.field("filepath", pa.large_string(), nullable=False),
            pa.field("selection_vector", pa.list_(pa.field("item", pa.bool_(), nullable=False)), nullable=False),
        ]
    )
    table._note_read(None)
    version = table._snapshot.version
    batches = _selection_vectors(table._snapshot.files_table(), table._storage(), schema)
    return to_stream(table, schema, explain_missing_in(table, batches, version), version)


def _selection_vectors(files: pa.Table, storage: Storage, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield one batch for each file (of FILES_SCHEMA) that has a deletion vector; true means that the row exists."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    from deltalakedb.data.deletion_vectors import DeletionVectors
    from deltalakedb.log.protocol import paths
    from deltalakedb.log.protocol.codec import deletion_vector_from_json, from_sql_text

    vectors = DeletionVectors(storage)
    with_vectors = files.filter(pc.is_valid(files.column("deletion_vector")))
    for row in with_vectors.select(["path", "size", "stats", "deletion_vector"]).to_pylist():
        path = from_sql_text(row["path"])
        exists = np.ones(_num_rows(storage, path, row["size"], row["stats"]), np.bool_)
        exists[vectors.rows(deletion_vector_from_json(row["deletion_vector"])).astype(np.int64)] = False
        uri = paths.resolve(storage.location, path)
        arrays = [pa.array([uri], pa.large_string()), pa.array([exists.tolist()], schema.field(1).type)]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def _num_rows(storage: Storage, path: str, size: int | None, stats: str | None) -> int:
    import pyarrow.parquet as pq

    from deltalakedb.log.protocol.codec import from_sql_text
    from deltalakedb.log.statistics.stats import parse_stats
    from deltalakedb.storage.location import open_logged

    parsed = None if stats is None else parse_stats(from_sql_text(stats))
    if parsed is not None and parsed.num_records is not None:
        return parsed.num_records
    with open_logged(storage, path, size) as file:
        num_rows: int = pq.ParquetFile(file).metadata.num_rows
    return num_rows


# -- the rows of some files


def _read(
    table: TableReader, partitions: FilterDnf | None, columns: list[str] | None, filters: RowFilter | None
) -> pa.RecordBatchReader:
    import pyarrow as pa

    rows = read_rows(
        _files_to_read(table, partitions, filters),
        table._snapshot.metadata,
        table._backing.location,
        table._backing.storage_options(),
        columns=columns,
        filters=filters,
    )
    return pa.RecordBatchReader.from_batches(rows.schema, explain_missing_in(table, rows, table._snapshot.version))


def _files_to_read(table: TableReader, partitions: FilterDnf | None, filters: RowFilter | None) -> pa.Table:
    if partitions is not None:
        return choose_files(table, partitions, None)
    predicate = _predicate_of(table, filters)
    table._note_read(predicate)
    if predicate is None:
        return table._snapshot.files_table()
    return table._snapshot.plan(predicate).files


def _predicate_of(table: TableReader, filters: RowFilter | None) -> Predicate | None:
    """Return the predicate that selects files; of pyarrow's expressions, the part that can be translated."""
    if filters is None:
        return None
    if not is_expression(filters):
        return table._parse(filters, exact=True)
    from deltalakedb.data.arrow_expressions import expression_to_sql

    text = expression_to_sql(filters, table._struct)
    return None if text is None else table._parse(text)


def _is_filter(item: Any) -> bool:
    """Return whether it is one filter, which pyarrow also accepts as a list, and not a group of filters."""
    return isinstance(item, list | tuple) and len(item) == 3 and isinstance(item[0], str)


def _check_filters(table: TableReader, filters: RowFilter | None) -> None:
    """Raise pyarrow's errors about the form, columns and types of filter lists, as `deltalake` does."""
    if not isinstance(filters, list | tuple) and not is_expression(filters):
        return
    from pyarrow.parquet import filters_to_expression

    expression = filters if is_expression(filters) else filters_to_expression(filters)
    table._struct.to_arrow().empty_table().filter(expression)


# -- what streams of rows carry


def with_notes(table: TableReader, rows: pa.RecordBatchReader) -> pa.RecordBatchReader:
    """Return the same rows, with the metadata of the table's columns."""
    from deltalakedb.tables import streams

    return streams.with_notes(rows, _notes(table))


def _notes(table: TableReader) -> dict[str, Mapping[bytes, bytes]]:
    """Return the metadata of the table's columns: comments, generation expressions.

    Column mapping and identity settings are left out, because they do not apply to a copy of the rows.
    """
    if not any(field.metadata for field in table._struct.fields):
        return {}
    import pyarrow as pa

    metadata = {field.name: field.metadata or {} for field in pa.schema(table.schema().to_arrow())}
    copied = {
        name: {key: value for key, value in notes.items() if not key.startswith(_NOT_COPIED)}
        for name, notes in metadata.items()
    }
    return {name: notes for name, notes in copied.items() if notes}


def to_stream(
    table: TableReader, schema: pa.Schema, batches: Iterator[pa.RecordBatch], version: int
) -> arro3.core.RecordBatchReader:
    """Return an arro3 reader, begun at once if a vacuum may have deleted files: then the error keeps its class."""
    from deltalakedb.tables.streams import stream

    return stream(schema, batches, begun=version < table._backing.vacuumed_version())


# -- files that are gone


def explain_missing_in(table: TableReader, batches: Iterable[pa.RecordBatch], version: int) -> Iterator[pa.RecordBatch]:
    """Yield these batches; a missing file is reported as vacuumed if a vacuum deleted it."""
    try:
        yield from batches
    except MissingFileError as error:
        raise explain_missing(table, error, version) from error


def explain_missing(table: TableReader, error: MissingFileError, version: int) -> DeltaError:
    """Return the error for a missing file of a version: FilesVacuumedError if a vacuum deleted it, else `error`."""
    watermark = table._backing.vacuumed_version()
    if version >= watermark:
        return error
    if watermark == PURGED:
        return purged(table.name, version)
    return FilesVacuumedError(
        f"{error.what}. Version {version} lies below the vacuum watermark of {table.name}: a vacuum has deleted "
        f"files that only versions below {watermark} have. Versions from {watermark} on have all of theirs; "
        "`keep_versions` of vacuum keeps the files of older ones.",
        table=table.name,
        version=version,
        path=error.path,
    )


def _check_there(table: TableReader, files: pa.Table) -> None:
    """Raise if files of a version below the vacuum watermark are missing: pyarrow's error would not explain it."""
    version = table._snapshot.version
    if version >= table._backing.vacuumed_version():
        return
    from deltalakedb.log.protocol.rows import add_from_row
    from deltalakedb.operations.repair import missing_files

    missing = missing_files(table._storage(), [add_from_row(row) for row in files.to_pylist()], vectors=True)
    if missing:
        what = f"table {table.name}: {len(missing)} of the files to read are gone, the first is {missing[0].path}"
        error = MissingFileError(what, path=missing[0].path, advice="they were deleted or vacuumed")
        raise explain_missing(table, error, version)
