"""A table's files as a PyArrow dataset: one fragment per file, with what the log guarantees about its rows."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal, InvalidOperation
from functools import reduce
from typing import Any, Final, NoReturn, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.fs as pa_fs
import pyarrow.parquet as pq
from pyarrow.fs import FileInfo, FileSelector, FileSystemHandler, FileType

from deltalakedb.data import read_files
from deltalakedb.log.protocol import paths
from deltalakedb.log.protocol.actions import Metadata
from deltalakedb.log.protocol.codec import from_sql_text
from deltalakedb.log.schema.partitions import parse_partition_value
from deltalakedb.log.schema.types import DecimalType, PrimitiveType, parse_schema, to_arrow_type
from deltalakedb.log.statistics.batch_bounds import compute_bounds_of_batch
from deltalakedb.log.statistics.bounds import EMPTY, Bound
from deltalakedb.log.statistics.bounds_columns import BoundsColumn, bounds_columns
from deltalakedb.storage.interface import Storage

_FILES_AT_ONCE: Final = 2048


def files_dataset(
    files: pa.Table,
    metadata: Metadata,
    storage: Storage,
    schema: pa.Schema,
    *,
    filesystem: pa_fs.FileSystem | None,
    read_options: ds.ParquetReadOptions | None,
) -> ds.FileSystemDataset:
    """Return the files (of FILES_SCHEMA) as a dataset with this schema.

    A file with a deletion vector or with mapped column names is converted when it is opened; nothing is read before
    that.
    """
    parquet = ds.ParquetFileFormat(
        read_options=read_options, default_fragment_scan_options=ds.ParquetFragmentScanOptions(pre_buffer=True)
    )
    opener = _Files(files, metadata, storage)
    file_system = filesystem or opener.filesystem()
    fragments = [
        parquet.make_fragment(path, filesystem=file_system, partition_expression=expression)
        for path, expression in zip(opener.paths, opener.guarantees(schema), strict=True)
    ]
    return ds.FileSystemDataset(fragments, _with_dictionaries(schema, parquet), parquet, file_system)


def _with_dictionaries(schema: pa.Schema, parquet: ds.ParquetFileFormat) -> pa.Schema:
    for name in parquet.read_options.dictionary_columns or ():
        index = schema.get_field_index(name)
        if index >= 0:
            field = schema.field(index)
            schema = schema.set(index, field.with_type(pa.dictionary(pa.int32(), field.type)))
    return schema


class _Files:
    """Some files of a table, and how to open them."""

    def __init__(self, files: pa.Table, metadata: Metadata, storage: Storage) -> None:
        self._table = files
        self._metadata = metadata
        self._storage = storage
        self._schema = parse_schema(metadata.schema_string)
        self._logged = [from_sql_text(path) for path in files.column("path").to_pylist()]
        self.paths = [path if paths.is_absolute(path) else paths.decode_path(path) for path in self._logged]

    def filesystem(self) -> pa_fs.FileSystem:
        local = paths.local_path(self._storage.location)
        if not self._needs_rendering() and local is not None and not any(map(paths.is_absolute, self._logged)):
            return pa_fs.SubTreeFileSystem(local, pa_fs.LocalFileSystem())
        indexes = {path: index for index, path in enumerate(self.paths)}
        sizes = self._table.column("size").to_pylist()
        return pa_fs.PyFileSystem(
            _ReadOnlyHandler(
                self._storage.location,
                lambda path: self._open(indexes[path]),
                {path: sizes[index] for path, index in indexes.items()},
            )
        )

    def _needs_rendering(self) -> bool:
        mapped = any(item.physical_name != item.name for item in self._schema.fields)
        return mapped or self._table.column("deletion_vector").null_count < self._table.num_rows

    def _open(self, place: int) -> pa.NativeFile:
        if not self._needs_rendering():
            from deltalakedb.storage.location import open_logged

            return open_logged(self._storage, self._logged[place], self._table.column("size")[place].as_py())
        file_columns = [name for name in self._schema.names if name not in self._metadata.partition_columns]
        rows = read_files(
            self._table.slice(place, 1),
            storage=self._storage,
            schema=self._schema,
            partition_columns=self._metadata.partition_columns,
            configuration=self._metadata.configuration,
            columns=file_columns,
        )
        sink = pa.BufferOutputStream()
        with pq.ParquetWriter(sink, rows.schema, compression="none") as writer:
            for batch in rows:
                writer.write_batch(batch)
        return pa.BufferReader(sink.getvalue())

    # -- guarantees of the log

    def guarantees(self, schema: pa.Schema) -> Iterator[pc.Expression | None]:
        """Yield for each file what is true of all its rows: partition values, bounds, no nulls or only nulls."""
        partitions = [self._schema.field(name) for name in self._metadata.partition_columns]
        columns = self._bounded_columns()
        partition_guarantees: dict[str, list[pc.Expression]] = {}
        texts = iter(self._table.column("partition_values").to_pylist())
        for batch in self._table.select(["partition_values", "stats"]).to_batches(_FILES_AT_ONCE):
            bounds = compute_bounds_of_batch([column for _, column in columns], batch)
            ends = [
                zip(*(part.to_pylist() for part in bound_columns.columns), strict=True)
                for bound_columns in bounds.columns
            ]
            for text, *row in zip((next(texts) for _ in range(batch.num_rows)), *ends, strict=True):
                if text not in partition_guarantees:
                    values = json.loads(text or "{}")
                    partition_guarantees[text] = [
                        _equals(item.name, values.get(item.physical_name), item.type, schema)
                        for item in partitions
                        if item is not None
                    ]
                parts = [*partition_guarantees[text]]
                guarantees = [
                    _within(ds.field(name), Bound(*bound), column)
                    for (name, column), bound in zip(columns, row, strict=True)
                ]
                for kind in range(3):  # the order of `deltalake`: nulls, then least values, then greatest values
                    parts += [guarantee[kind] for guarantee in guarantees if guarantee[kind] is not None]
                yield reduce(lambda left, right: left & right, parts) if parts else None

    def _bounded_columns(self) -> list[tuple[str, BoundsColumn]]:
        """Return the columns with statistics, by name; fields of structs have no guarantee."""
        names = {(item.physical_name,): item.name for item in self._schema.fields}
        columns = bounds_columns(self._schema, self._metadata.partition_columns, self._metadata.configuration)
        return [
            (names[column.physical_path], column)
            for column in columns
            if not column.is_partition and column.physical_path in names
        ]


class _ReadOnlyHandler(FileSystemHandler):  # type: ignore[misc]  # pyarrow has no types
    """A fixed set of files, opened by a function; read-only."""

    def __init__(self, location: str, open_file: Callable[[str], pa.NativeFile], sizes: Mapping[str, int]) -> None:
        self.location = location
        self._open = open_file
        self._sizes = sizes

    def __eq__(self, other: object) -> bool:
        return self is other

    def __ne__(self, other: object) -> bool:
        return self is not other

    __hash__ = object.__hash__

    def get_type_name(self) -> str:
        return "deltalakedb"

    def normalize_path(self, path: str) -> str:
        return path

    def get_file_info(self, paths: list[str]) -> list[FileInfo]:
        return [
            FileInfo(path, FileType.File) if path in self._sizes else FileInfo(path, FileType.NotFound)
            for path in paths
        ]

    def get_file_info_selector(self, selector: FileSelector) -> list[FileInfo]:
        prefix = f"{selector.base_dir.rstrip('/')}/" if selector.base_dir else ""
        return [FileInfo(path, FileType.File) for path in self._sizes if path.startswith(prefix)]

    def open_input_file(self, path: str) -> pa.NativeFile:
        return self._open(path)

    def open_input_stream(self, path: str) -> pa.NativeFile:
        return self._open(path)

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise NotImplementedError(f"the files of {self.location} are only read here; write through the table")

    copy_file = create_dir = delete_dir = delete_dir_contents = delete_file = delete_root_dir_contents = _refuse
    move = open_append_stream = open_output_stream = _refuse


def _equals(name: str, text: str | None, data_type: Any, schema: pa.Schema) -> pc.Expression:
    value = parse_partition_value(text, data_type)
    index = schema.get_field_index(name)
    arrow = schema.field(index).type if index >= 0 else to_arrow_type(data_type)
    return ds.field(name).is_null() if value is None else ds.field(name) == pa.scalar(value, arrow)


def _within(
    field: pc.Expression, bound: Bound, column: BoundsColumn
) -> tuple[pc.Expression | None, pc.Expression | None, pc.Expression | None]:
    """Return what a file guarantees for a column: no or only nulls, the least and the greatest value; None if unknown.

    A null is outside all bounds, so a column that may have nulls is null or within them.
    """
    if bound.width_class == EMPTY:
        return field.is_null(), None, None
    is_valid = field.is_valid() if bound.null_count == 0 else None
    # Statistics do not record NaNs, which are outside all bounds; those of booleans are often wrong.
    if column.is_float or column.type == PrimitiveType("boolean"):
        return is_valid, None, None
    arrow = to_arrow_type(column.type)
    low, high = _scalar(_lowest(bound, column), arrow), _scalar(_highest(bound, column), arrow)
    least = None if low is None else field >= low
    greatest = None if high is None else field <= high
    if is_valid is not None:
        return is_valid, least, greatest
    null = field.is_null()
    return None, None if least is None else least | null, None if greatest is None else greatest | null


def _scalar(value: Any, arrow: pa.DataType) -> pa.Scalar | None:
    """Return the value as a scalar of the column's type; None if there is no value or it is out of the type's range."""
    try:
        return None if value is None else pa.scalar(value, arrow)
    except (pa.ArrowInvalid, OverflowError, ValueError):
        return None


def _lowest(bound: Bound, column: BoundsColumn) -> Any:
    """Return the least value of the column's type that is not below the bound, which was rounded outwards."""
    if column.kind == "text":
        return bound.lower_text or None
    if bound.lower is None or math.isinf(bound.lower):
        return None
    if isinstance(column.type, DecimalType):
        return _decimal(bound.lower, column.type, ROUND_CEILING)
    return math.ceil(bound.lower)


def _highest(bound: Bound, column: BoundsColumn) -> Any:
    """Return the greatest value of the column's type that is not above the bound."""
    if column.kind == "text":
        return bound.upper_text
    if bound.upper is None or math.isinf(bound.upper):
        return None
    if isinstance(column.type, DecimalType):
        return _decimal(bound.upper, column.type, ROUND_FLOOR)
    return math.floor(bound.upper)


def _decimal(end: float, kind: DecimalType, rounding: str) -> Decimal | None:
    exact = Decimal(end)
    try:
        return exact.quantize(Decimal(1).scaleb(-kind.scale), rounding, Context(prec=kind.precision))
    except InvalidOperation:
        return None  # more digits than the type has


ReadRows: TypeAlias = Callable[[list[str] | None, pc.Expression | None], pa.RecordBatchReader]


class LazyDataset(ds.Dataset):  # type: ignore[misc]  # pyarrow has no types
    """A dataset for DuckDB, Polars and others that scan datasets: their columns and filter reach the plan.

    No file is listed before a scan. Methods that work on single files use the dataset of all files.
    """

    def __init__(self, schema: pa.Schema, read: ReadRows, files: Callable[[], ds.FileSystemDataset]) -> None:
        # Dataset's constructor needs a C++ dataset of Arrow; every method that would use it is overridden below.
        self._columns = schema
        self._read = read
        self._files = files

    def __repr__(self) -> str:
        return f"LazyDataset({', '.join(self._columns.names)})"

    def __reduce__(self) -> Any:
        raise TypeError("a lazy dataset is not pickled; use `to_pyarrow_dataset`")

    @property
    def schema(self) -> pa.Schema:
        return self._columns

    @property
    def partition_expression(self) -> pc.Expression:
        return pc.scalar(True)

    def scanner(
        self,
        columns: Sequence[str] | Mapping[str, pc.Expression] | None = None,
        filter: pc.Expression | None = None,  # noqa: A002  callers use this name
        **_: Any,
    ) -> ds.Scanner:
        """Scan the table: the filter selects files in the log and rows in them; only `columns` are read."""
        are_names = (
            columns is not None and not isinstance(columns, Mapping) and set(columns) <= set(self._columns.names)
        )
        if columns is None or are_names:
            return ds.Scanner.from_batches(self._read(None if columns is None else list(columns), filter))
        return ds.Scanner.from_batches(self._read(None, filter), columns=columns)

    def get_fragments(self, filter: pc.Expression | None = None) -> Iterator[ds.Fragment]:  # noqa: A002
        fragments: Iterator[ds.Fragment] = self._files().get_fragments(filter)
        return fragments

    def replace_schema(self, schema: pa.Schema) -> ds.FileSystemDataset:
        return self._files().replace_schema(schema)

    def filter(self, expression: pc.Expression) -> ds.Dataset:
        return self._files().filter(expression)

    def sort_by(self, sorting: Any, **options: Any) -> ds.InMemoryDataset:
        return self._files().sort_by(sorting, **options)

    def join(self, *arguments: Any, **options: Any) -> ds.InMemoryDataset:
        return self._files().join(*arguments, **options)

    def join_asof(self, *arguments: Any, **options: Any) -> ds.InMemoryDataset:
        return self._files().join_asof(*arguments, **options)
