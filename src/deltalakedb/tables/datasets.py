"""Owns a table's files as a PyArrow dataset: a fragment each, with what the log guarantees of its rows."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
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
from deltalakedb.log.bounds_columns import kind_of, stats_leaves
from deltalakedb.log.partitions import parse_partition_value
from deltalakedb.log.stats import parse_stats, typed_value
from deltalakedb.log.text import from_sql_text
from deltalakedb.log.text_bounds import lower_text_bound, upper_text_bound
from deltalakedb.log.types import Leaf, PrimitiveType, parse_schema, to_arrow_type
from deltalakedb.tables.handlers import ReadOnlyHandler

# Statistics are cut to the millisecond; before 1970 some writers cut upwards.
_CUT: Final = timedelta(milliseconds=1)
_FLOATS: Final = (PrimitiveType("float"), PrimitiveType("double"))


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
        leaves = [
            leaf
            for leaf in stats_leaves(self._schema, self._metadata.partition_columns, self._metadata.configuration)
            if len(leaf.path) == 1 and kind_of(leaf.type) is not None and not leaf.field.has_collation
        ]
        known: dict[str, list[pc.Expression]] = {}
        texts, stats = (self._table.column(name).to_pylist() for name in ("partition_values", "stats"))
        for text, stat in zip(texts, stats, strict=True):
            if text not in known:
                values = json.loads(text or "{}")
                known[text] = [
                    _equals(item.name, values.get(item.physical_name), item.type, schema)
                    for item in partitions
                    if item is not None
                ]
            parts = [*known[text], *_bounds(stat, leaves)]
            yield reduce(lambda left, right: left & right, parts) if parts else None


def _equals(name: str, text: str | None, data_type: Any, schema: pa.Schema) -> pc.Expression:
    value = parse_partition_value(text, data_type)
    place = schema.get_field_index(name)
    arrow = schema.field(place).type if place >= 0 else to_arrow_type(data_type)
    return ds.field(name).is_null() if value is None else ds.field(name) == pa.scalar(value, arrow)


def _bounds(text: str | None, leaves: Sequence[Leaf]) -> Iterator[pc.Expression]:
    stats = None if text is None else parse_stats(from_sql_text(text), exact=True)
    if stats is None:
        return
    low, high, nulls = stats.min_values or {}, stats.max_values or {}, stats.null_count or {}
    for leaf in leaves:
        (key,) = leaf.physical_path
        field, count = ds.field(leaf.name), nulls.get(key)
        if type(count) is int and stats.num_records is not None:
            if count == stats.num_records:
                yield field.is_null()
            elif count == 0:
                yield field.is_valid()
        if leaf.type in _FLOATS:
            continue  # nobody says whether there are NaNs among them, and those are within no bounds
        lower, upper = (typed_value(side.get(key), leaf.type) for side in (low, high))
        yield from _ends(field, _lower(lower), _upper(upper), to_arrow_type(leaf.type))


def _ends(field: pc.Expression, lower: Any, upper: Any, arrow: pa.DataType) -> Iterator[pc.Expression]:
    try:
        if lower is not None:
            yield field >= pa.scalar(lower, arrow)
        if upper is not None:
            yield field <= pa.scalar(upper, arrow)
    except (pa.ArrowInvalid, OverflowError, UnicodeEncodeError):
        return  # statistics are anybody's: a value that does not fit its column guarantees nothing


def _lower(value: Any) -> Any:
    if isinstance(value, str):
        return lower_text_bound(value)
    return value - _CUT if isinstance(value, datetime) else value


def _upper(value: Any) -> Any:
    if isinstance(value, str):
        return upper_text_bound(value)
    return value + _CUT if isinstance(value, datetime) else value
