"""Owns the writing of rows: the one way by which rows become files of a table, with the table's rules kept."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from deltalakedb.log.actions import AddFile, Metadata, Protocol
from deltalakedb.log.features import data_writable
from deltalakedb.log.types import StructType, parse_schema
from deltalakedb.operations.parquet_options import Properties, to_parquet_options
from deltalakedb.operations.rules import Rules
from deltalakedb.operations.target import Target

if TYPE_CHECKING:
    from deltalakedb.data import ParquetOptions


def write_rows(
    target: Target,
    data: Any,
    *,
    schema: StructType | None = None,
    metadata: Metadata | None = None,
    protocol: Protocol | None = None,
    options: ParquetOptions | None = None,
    writer_properties: Properties | None = None,
    target_file_size: int | None = None,
    data_change: bool = True,
    rules: bool = True,
) -> list[AddFile]:
    """Write data into new files of a table, cast to its columns; the files go again when the commit does not happen.

    `writer_properties` are a caller's WriterProperties; `options` are for who knows the files better.
    `metadata` and `protocol` are those the commit leaves, `schema` is short for metadata with another schema. Without
    `rules` the rows are taken to keep them, as rows do that only move from one file to another.
    """
    from deltalakedb.data import prepare_data, write_files

    metadata, protocol = metadata or target.metadata, protocol or target.protocol
    if schema is not None:
        metadata = replace(metadata, schema_string=schema.to_json())
    data_writable(protocol, metadata, target.name, evaluates=True)
    reader = prepare_data(data)
    if rules:
        reader = Rules.of(metadata, protocol, table=target.name).apply(reader)
    schema = parse_schema(metadata.schema_string)
    adds = write_files(
        reader,
        storage=target.storage,
        schema=schema,
        partition_columns=metadata.partition_columns,
        configuration=metadata.configuration,
        target_file_size=target_file_size,
        options=options or to_parquet_options(writer_properties, schema, metadata.partition_columns),
        data_change=data_change,
    )
    target.written.remember(target.storage, adds)
    return adds
