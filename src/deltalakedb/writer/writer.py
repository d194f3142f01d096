"""write_deltalake: writes data into a table of a catalog or at a path, with the arguments of `deltalake`."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from deltalakedb.catalog.addresses import PathAddress, SqlAddress, resolve
from deltalakedb.exceptions import TableExistsError
from deltalakedb.log.checks.properties import to_properties
from deltalakedb.operations.creation import NewTable
from deltalakedb.operations.write import WriteRequest, to_rows, write
from deltalakedb.runtime.arguments import (
    check_commit_arguments,
    check_number,
    check_settings,
    check_text,
    check_texts,
)
from deltalakedb.table import DeltaTable
from deltalakedb.tables.file_backing import FileBacking
from deltalakedb.transaction import CommitProperties, PostCommitHookProperties
from deltalakedb.transactions.statements import TableOptions, is_spark_frame, write_rows
from deltalakedb.writer.properties import WriterProperties

if TYPE_CHECKING:
    from deltalakedb.catalog.catalog import Catalog


def write_deltalake(
    table_or_uri: str | os.PathLike[str] | DeltaTable,
    data: Any,
    *,
    partition_by: list[str] | str | None = None,
    mode: Literal["error", "append", "overwrite", "ignore"] = "error",
    name: str | None = None,
    description: str | None = None,
    configuration: Mapping[str, str | None] | None = None,
    schema_mode: Literal["merge", "overwrite"] | None = None,
    storage_options: dict[str, str] | None = None,
    predicate: str | None = None,
    target_file_size: int | None = None,
    writer_properties: WriterProperties | None = None,
    commit_properties: CommitProperties | None = None,
    post_commithook_properties: PostCommitHookProperties | None = None,
) -> None:
    """Write data into a table as one version; the table is created if it does not exist.

    Data is anything that exports Arrow, pandas or polars frames, or batches from a list or a generator; a stream is
    never held in memory as a whole. `mode`: `error` and `ignore` write only if there is no table, `append` adds rows,
    `overwrite` replaces all rows, or with `predicate` those for which it is true; all of the data must then match it.
    `schema_mode="merge"` adds the data's new columns and leaves missing ones null; `"overwrite"` replaces the table's
    schema and partitioning by the data's schema and `partition_by`. `name`, `description` and `configuration` apply
    to new tables only.
    """
    check_text(mode, required=True)
    for text in (schema_mode, predicate, name, description):
        check_text(text)
    check_settings(configuration, nullable=True)
    check_settings(storage_options)
    check_number(target_file_size)
    if partition_by is not None and not isinstance(partition_by, str):
        check_texts(partition_by)
    check_commit_arguments(commit_properties, post_commithook_properties)
    columns = [partition_by] if isinstance(partition_by, str) else partition_by
    lower_mode: Any = mode.lower()
    request = WriteRequest(lower_mode, columns, schema_mode, predicate, target_file_size, writer_properties)
    request.check()
    properties, hooks = commit_properties or CommitProperties(), post_commithook_properties
    if isinstance(table_or_uri, DeltaTable):
        if not _leaves_alone(request, table_or_uri.name):
            verb = partial(write, data=_to_stream(data), request=request)
            replaces_all = request.mode == "overwrite" and predicate is None
            table_or_uri._run(verb, properties, hooks, replaces_all=replaces_all)
        return
    if not isinstance(table_or_uri, str | os.PathLike):
        raise ValueError(f"table_or_uri must be a str, Path or DeltaTable, not {type(table_or_uri).__name__}")
    address = resolve(table_or_uri, storage_options, writes=True, only_new=request.mode in ("error", "ignore"))
    options = TableOptions(name, description, {}, address.location, storage_options)
    if isinstance(address, SqlAddress):
        _write_in_catalog(address, data, request, options, configuration, commit_properties)
    else:
        _write_at_path(address, data, request, options, configuration, properties, hooks)


def _to_stream(data: Any) -> Any:
    """Return the data as a stream; data that cannot be streamed raises the error that `deltalake` raises."""
    if is_spark_frame(data):
        return data
    if isinstance(data, Sequence) and not hasattr(data, "__arrow_c_array__"):
        data[0].schema  # noqa: B018  a sequence must hold batches, and must not be empty
        if isinstance(data, list | tuple):
            if not all(hasattr(batch, "__arrow_c_array__") for batch in data):
                raise ValueError("Expected an object with dunder __arrow_c_array__: a list of data is one of batches")
            _refuse_other_schemas(data)  # other sequences may be read only once
    try:
        return to_rows(data)
    except TypeError as error:
        raise ValueError(str(error)) from None


def _refuse_other_schemas(batches: Sequence[Any]) -> None:
    """Raise unless all batches have the same columns, in the same order; metadata may differ."""
    import pyarrow as pa

    first, *others = (pa.schema(batch.schema) for batch in batches)
    for place, schema in enumerate(others, 1):
        if not schema.equals(first):
            raise ValueError(
                f"Schema at index {place} was different:\n{schema}\nvs\n{first}\n"
                "All batches of a list have one schema: combine them, or write them one after another"
            )


def _leaves_alone(request: WriteRequest, table: str) -> bool:
    """Return whether an existing table is left alone (mode `ignore`); raise TableExistsError for mode `error`."""
    if request.mode == "error":
        raise TableExistsError(
            f"A table already exists at: {table}; mode error refuses it, mode append or overwrite writes to it"
        )
    return request.mode == "ignore"


def _write_in_catalog(
    address: SqlAddress,
    data: Any,
    request: WriteRequest,
    options: TableOptions,
    configuration: Mapping[str, str | None] | None,
    properties: CommitProperties | None,
) -> None:
    name = str(address.name)
    with address.catalog as catalog:
        try:
            _write_once(catalog, name, data, request, options, configuration, properties)
        except TableExistsError:
            joins = request.mode == "append" and not isinstance(data, Iterator)
            if not (joins and name in catalog.tables()):
                raise
            # Another writer created the table meanwhile, and data that is no stream can be read again.
            _write_once(catalog, name, data, request, options, configuration, properties)


def _write_once(
    catalog: Catalog,
    name: str,
    data: Any,
    request: WriteRequest,
    options: TableOptions,
    configuration: Mapping[str, str | None] | None,
    properties: CommitProperties | None,
) -> None:
    with catalog.begin(tables=[name]) as tx:
        if request.mode == "ignore" and name in tx.tables():
            return
        rows = _to_stream(data)
        if configuration and name not in catalog.tables():  # of an existing table they stay as they are
            options = replace(options, properties=to_properties(configuration, table=name))
        if properties is not None:
            properties.checked_metadata()  # raises before anything is written
        write_rows(tx, name, rows, request, options, properties)


def _write_at_path(
    address: PathAddress,
    data: Any,
    request: WriteRequest,
    options: TableOptions,
    configuration: Mapping[str, str | None] | None,
    properties: CommitProperties,
    hooks: PostCommitHookProperties | None,
) -> None:
    from deltalakedb.data import arrow_to_schema

    backing = FileBacking(address.location, options.storage_options)
    if backing.exists():
        if not _leaves_alone(request, address.location):
            verb = partial(write, data=_to_stream(data), request=request)
            backing.run(verb, properties, hooks or PostCommitHookProperties())
        return
    reader = _to_stream(data)
    new = NewTable(
        arrow_to_schema(reader.schema),
        request.partition_by or (),
        to_properties(configuration, table=address.location),
        options.name,
        options.description,
    )
    verb = partial(write, data=reader, request=request)
    joins = request.mode == "append"
    backing.create(new.first(address.location, None), verb, properties, hooks, joins=joins)
