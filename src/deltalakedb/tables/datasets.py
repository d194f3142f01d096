"""Owns a table's files as a PyArrow dataset: a fragment each, with what the log guarantees of its rows."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal, InvalidOperation
from functools import reduce
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.fs as pa_fs
import pyarrow.parquet as pq

from deltalakedb.data import DataStorage, read_files
from deltalakedb.log import paths
from deltalakedb.log.actions import Metadata
from deltalakedb.log.batch_bounds import compute_bounds_of_batch
from deltalakedb.log.bounds import EMPTY, Bound
from deltalakedb.log.bounds_columns import BoundsColumn, bounds_columns
from deltalakedb.log.partitions import parse_partition_value
from deltalakedb.log.text import from_sql_text
from deltalakedb.log.types import DecimalType, PrimitiveType, parse_schema, to_arrow_type
from deltalakedb.tables.handlers import ReadOnlyHandler

_FILES_AT_ONCE: Final = 2048


def files_dataset(
    files: pa.Table,
    metadata: Metadata,
    storage: DataStorage,
    schema: pa.Schema,
    *,
    filesystem: pa_fs.FileSystem | None,
    read_options: ds.ParquetReadOptions | None,
) -> ds.FileSystemDataset:
    """The files (of FILES_SCHEMA) as a dataset of this schema.

    A file whose rows are not the table's as they stand (some deleted by a vector, columns under other names) is made
    into one that has them when it is opened: nothing is read before that.
    """
    parquet = ds.ParquetFileFormat(
        read_options=read_options, default_fragment_scan_options=ds.ParquetFragmentScanOptions(pre_buffer=True)
    )
    known = _Files(files, metadata, storage)
    opened_by = filesystem or known.filesystem()
    fragments = [
        parquet.make_fragment(path, filesystem=opened_by, partition_expression=expression)
        for path, expression in zip(known.paths, known.guarantees(schema), strict=True)
    ]
    return ds.FileSystemDataset(fragments, _with_dictionaries(schema, parquet), parquet, opened_by)


def _with_dictionaries(schema: pa.Schema, parquet: ds.ParquetFileFormat) -> pa.Schema:
    for name in parquet.read_options.dictionary_columns or ():
        place = schema.get_field_index(name)
        if place >= 0:
            field = schema.field(place)
            schema = schema.set(place, field.with_type(pa.dictionary(pa.int32(), field.type)))
    return schema


class _Files:
    """Some files of a table, and how each is opened."""

    def __init__(self, files: pa.Table, metadata: Metadata, storage: DataStorage) -> None:
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
        places = {path: place for place, path in enumerate(self.paths)}
        sizes = self._table.column("size").to_pylist()
        return pa_fs.PyFileSystem(
            ReadOnlyHandler(
                self._storage.location,
                lambda path: self._open(places[path]),
                {path: sizes[place] for path, place in places.items()},
            )
        )

    def _needs_rendering(self) -> bool:
        mapped = any(item.physical_name != item.name for item in self._schema.fields)
        return mapped or self._table.column("deletion_vector").null_count < self._table.num_rows

    def _open(self, place: int) -> pa.NativeFile:
        if not self._needs_rendering():
            from deltalakedb.data.storage import open_logged

            return open_logged(self._storage, self._logged[place], self._table.column("size")[place].as_py())
        stored = [name for name in self._schema.names if name not in self._metadata.partition_columns]
        rows = read_files(
            self._table.slice(place, 1),
            storage=self._storage,
            schema=self._schema,
            partition_columns=self._metadata.partition_columns,
            configuration=self._metadata.configuration,
            columns=stored,
        )
        sink = pa.BufferOutputStream()
        with pq.ParquetWriter(sink, rows.schema, compression="none") as writer:
            for batch in rows:
                writer.write_batch(batch)
        return pa.BufferReader(sink.getvalue())

    # -- what the log guarantees

    def guarantees(self, schema: pa.Schema) -> Iterator[pc.Expression | None]:
        """For each file what is true of all its rows: partition values, bounds, no nulls or nothing else."""
        partitions = [self._schema.field(name) for name in self._metadata.partition_columns]
        columns = self._bounded_columns()
        known: dict[str, list[pc.Expression]] = {}
        texts = iter(self._table.column("partition_values").to_pylist())
        for batch in self._table.select(["partition_values", "stats"]).to_batches(_FILES_AT_ONCE):
            bounds = compute_bounds_of_batch([column for _, column in columns], batch)
            ends = [zip(*(part.to_pylist() for part in found.columns), strict=True) for found in bounds.columns]
            for text, *row in zip((next(texts) for _ in range(batch.num_rows)), *ends, strict=True):
                if text not in known:
                    values = json.loads(text or "{}")
                    known[text] = [
                        _equals(item.name, values.get(item.physical_name), item.type, schema)
                        for item in partitions
                        if item is not None
                    ]
                parts = [*known[text]]
                for (name, column), bound in zip(columns, row, strict=True):
                    parts += _within(ds.field(name), Bound(*bound), column)
                yield reduce(lambda left, right: left & right, parts) if parts else None

    def _bounded_columns(self) -> list[tuple[str, BoundsColumn]]:
        """The columns of which statistics tell something, by their names; parts of structs have no guarantee."""
        names = {(item.physical_name,): item.name for item in self._schema.fields}
        found = bounds_columns(self._schema, self._metadata.partition_columns, self._metadata.configuration)
        return [
            (names[column.physical_path], column)
            for column in found
            if not column.is_partition and column.physical_path in names
        ]


def _equals(name: str, text: str | None, data_type: Any, schema: pa.Schema) -> pc.Expression:
    value = parse_partition_value(text, data_type)
    place = schema.get_field_index(name)
    arrow = schema.field(place).type if place >= 0 else to_arrow_type(data_type)
    return ds.field(name).is_null() if value is None else ds.field(name) == pa.scalar(value, arrow)


def _within(field: pc.Expression, bound: Bound, column: BoundsColumn) -> Iterator[pc.Expression]:
    """What a file's bounds guarantee of a column; null is within no bounds, so who may be null is named beside them."""
    if bound.width_class == EMPTY:
        yield field.is_null()
        return
    if bound.null_count == 0:
        yield field.is_valid()
    # Nobody says whether there are NaNs among floats, and those are within no bounds; booleans are often wrong.
    if column.is_float or column.type == PrimitiveType("boolean"):
        return
    arrow = to_arrow_type(column.type)
    ends = [(field >= end) for end in _scalar(_lowest(bound, column), arrow)]
    ends += [(field <= end) for end in _scalar(_highest(bound, column), arrow)]
    yield from ends if bound.null_count == 0 else [end | field.is_null() for end in ends]


def _scalar(value: Any, arrow: pa.DataType) -> Iterator[pa.Scalar]:
    """The value as one of the column; nothing where there is none, or where it is beyond the type."""
    try:
        if value is not None:
            yield pa.scalar(value, arrow)
    except (pa.ArrowInvalid, OverflowError, ValueError):
        return


def _lowest(bound: Bound, column: BoundsColumn) -> Any:
    """The least value of the column's type that is not below the bound, which is rounded outwards."""
    if column.kind == "text":
        return bound.lower_text or None
    if bound.lower is None or math.isinf(bound.lower):
        return None
    if isinstance(column.type, DecimalType):
        return _decimal(bound.lower, column.type, ROUND_CEILING)
    return math.ceil(bound.lower)


def _highest(bound: Bound, column: BoundsColumn) -> Any:
    """The greatest value of the column's type that is not above the bound."""
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
