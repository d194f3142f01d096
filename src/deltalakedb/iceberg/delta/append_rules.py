"""The rules of a Delta table for rows that Iceberg clients wrote: which tables take none, and how files are checked."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pyarrow.types as pt

from deltalakedb.data.arrow_types import file_type
from deltalakedb.data.conform import Conformer
from deltalakedb.exceptions import BadIcebergRequestError, DeltaError, StorageError, UnsupportedFeatureError
from deltalakedb.iceberg.delta.append_footers import Footer
from deltalakedb.log.protocol.actions import Metadata, Protocol
from deltalakedb.log.protocol.features import data_writable, every_field
from deltalakedb.log.schema.partitions import parse_partition_value
from deltalakedb.log.schema.types import DataType, StructField, StructType, parse_schema
from deltalakedb.operations.rules import Rules

_IDENTITY: Final = ("delta.identity.start", "delta.identity.step")
_CHAR: Final = "__CHAR_VARCHAR_TYPE_STRING"
_LENGTH: Final = re.compile(r"(?:char|varchar)\((\d+)\)", re.IGNORECASE)
_BATCH_ROWS: Final = 64 * 1024


def refuse_table(table: str, protocol: Protocol, metadata: Metadata) -> None:
    """Raise for a table whose rules Iceberg clients cannot keep, and no check of their files can."""
    for path, field in every_field(parse_schema(metadata.schema_string)):
        if field.physical_name != field.name:
            raise _not_for_clients(
                table, f"its column {path} has another name in its files (column mapping), which they do not write"
            )
        if any(key in field.metadata for key in _IDENTITY):
            raise _not_for_clients(table, f"its identity column {path} gets its values from Delta's writers")
        text = field.metadata.get(_CHAR)
        if text is not None and not (_LENGTH.fullmatch(str(text)) and "." not in path):
            raise _not_for_clients(table, f"the lengths of texts in its column {path}, {text}, cannot be checked")
    try:
        data_writable(protocol, metadata, table, evaluates=True)
    except UnsupportedFeatureError as error:
        raise _not_for_clients(table, f"it uses {', '.join(error.features)}, which they do not keep") from error


def _not_for_clients(table: str, why: str) -> BadIcebergRequestError:
    return BadIcebergRequestError(f"{table} is a Delta table that Iceberg clients cannot append to: {why}")


class RowRules:
    """Checks the rows of new files; a file is only read as far as its footer does not show that it is right."""

    def __init__(self, table: str, protocol: Protocol, metadata: Metadata) -> None:
        self._table = table
        self._schema = parse_schema(metadata.schema_string)
        self._partitions = frozenset(metadata.partition_columns)
        # A missing column is null: the client knew it, and gave no value.
        self._rules = replace(Rules.of(metadata, protocol, table=table), defaults=())
        self._lengths = dict(_lengths(self._schema))

    def check(self, file: pq.ParquetFile, path: str, values: Mapping[str, str | None]) -> None:
        """Raise BadIcebergRequestError if a row breaks a rule. `values` are the partition values of the file."""
        self._check_partition(file, path, values)
        footer = Footer(file.metadata, file.schema_arrow)
        if self._rules.is_empty and not self._lengths and all(map(footer.shows_valid, self._data_fields())):
            return
        try:
            for batch in self._rules.apply(self._rows(file, values)):
                self._check_lengths(batch, path)
        except (BadIcebergRequestError, StorageError):
            raise
        except DeltaError as error:
            detail = str(error).splitlines()[-1]
            detail = detail.removeprefix(f"table {self._table}: ").removesuffix("; nothing was written")
            raise BadIcebergRequestError(
                f"{self._table}: the file {path} breaks a rule of the table: {detail}"
            ) from error

    def _data_fields(self) -> Iterator[StructField]:
        return (item for item in self._schema.fields if item.name not in self._partitions)

    def _rows(self, file: pq.ParquetFile, values: Mapping[str, str | None]) -> pa.RecordBatchReader:
        """The rows as the table has them: with the types of its columns, and partition values from the log."""
        constants = {
            item.name: pa.scalar(parse_partition_value(values[item.name], item.type), file_type(item.type))
            for item in self._schema.fields
            if item.name in self._partitions
        }
        stored = [item for item in file.schema_arrow if item.name not in constants]
        arrow = pa.schema([*stored, *(pa.field(name, value.type) for name, value in constants.items())])
        conform = Conformer(arrow, self._schema)
        result = pa.schema([pa.field(item.name, file_type(item.type)) for item in conform.fields])

        def read() -> Iterator[pa.RecordBatch]:
            for batch in file.iter_batches(_BATCH_ROWS):
                arrays = [batch.column(item.name) for item in stored]
                arrays += [pa.repeat(value, batch.num_rows) for value in constants.values()]
                rows = pa.RecordBatch.from_arrays(arrays, schema=arrow)
                yield pa.RecordBatch.from_arrays(conform(rows), schema=result)

        return pa.RecordBatchReader.from_batches(result, read())

    def _check_lengths(self, batch: pa.RecordBatch, path: str) -> None:
        for name, (length, kind) in self._lengths.items():
            longest = pc.max(pc.utf8_length(batch.column(name))).as_py()
            if longest is not None and longest > length:
                raise BadIcebergRequestError(
                    f"{self._table}: the file {path} breaks a rule of the table: a text in the column {name}, which is "
                    f"a {kind}, has {longest} characters"
                )

    def _check_partition(self, file: pq.ParquetFile, path: str, values: Mapping[str, str | None]) -> None:
        """Check that a partition column in the file, which Delta's readers ignore, has the manifest's value."""
        for item in self._schema.fields:
            if item.name not in self._partitions or item.name not in file.schema_arrow.names:
                continue
            expected = parse_partition_value(values[item.name], item.type)
            columns = None if "." in item.name else [item.name]  # a name with a dot is read as a path
            for batch in file.iter_batches(_BATCH_ROWS, columns=columns):
                if not _is_all(batch.column(item.name), expected, item.type):
                    raise BadIcebergRequestError(
                        f"{self._table}: the file {path} has rows outside of its partition, "
                        f"{item.name}={values[item.name]}"
                    )


def _lengths(schema: StructType) -> Iterator[tuple[str, tuple[int, str]]]:
    for item in schema.fields:
        text = item.metadata.get(_CHAR)
        if text is not None and (match := _LENGTH.fullmatch(str(text))):
            yield item.name, (int(match[1]), str(text))


def _is_all(column: pa.Array, expected: Any, kind: DataType) -> bool:
    if expected is None or column.null_count:
        return bool(expected is None and column.null_count == len(column))
    value = pa.scalar(expected, file_type(kind))
    if pt.is_dictionary(column.type):
        column = column.dictionary_decode()
    if isinstance(expected, float) and math.isnan(expected):
        return pc.all(pc.is_nan(column)).as_py() is not False
    return pc.all(pc.equal(column.cast(value.type), value)).as_py() is not False
