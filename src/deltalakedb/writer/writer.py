"""write_deltalake: writes data into a table of a catalog or at a path, with the arguments of `deltalake`."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
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
from deltalakedb.tables.file_backing import FileBacking
from deltalakedb.tables.state import TableState
from deltalakedb.transaction import CommitProperties, PostCommitHookProperties
from deltalakedb.transactions.writes import is_spark_frame
from deltalakedb.writer.properties import WriterProperties

if TYPE_CHECKING:
    from deltalakedb.table import DeltaTable


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
    check_texts(None if isinstance(partition_by, str) else partition_by)
    check_commit_arguments(commit_properties, post_commithook_properties)
    columns = [partition_by] if isinstance(partition_by, str) else partition_by
    lower_mode: Any = mode.lower()
    request = WriteRequest(lower_mode, columns, schema_mode, predicate, target_file_size, writer_properties)
    request.check()
    properties, hooks = commit_properties or CommitProperties(), post_commithook_properties
    if isinstance(table_or_uri, TableState):
        if not _leaves_alone(request, table_or_uri.name):
            table_or_uri._run(partial(write, data=_taken(data), request=request), properties, hooks)
        return
    if not isinstance(table_or_uri, str | os.PathLike):
        raise ValueError(f"table_or_uri must be a str, Path or DeltaTable, not {type(table_or_uri).__name__}")
    definition = {"name": name, "description": description, "configuration": configuration}
    address = resolve(table_or_uri, storage_options, writes=True, only_new=request.mode in ("error", "ignore"))
    if isinstance(address, SqlAddress):
        _write_in_catalog(address, data, request, properties, storage_options, definition)
    else:
        _write_at_path(address, data, request, properties, hooks, storage_options, definition)


def _taken(data: Any) -> Any:
    """Return the data as a stream; data that cannot be streamed raises the error that `deltalake` raises."""
    if is_spark_frame(data):
        return data
    if isinstance(data, Sequence) and not hasattr(data, "__arrow_c_array__"):
        data[0].schema  # noqa: B018  a sequence must hold batches, and must not be empty
        if isinstance(data, list | tuple) and not all(hasattr(batch, "__arrow_c_array__") for batch in data):
            raise ValueError("Expected an object with dunder __arrow_c_array__: a list of data is one of batches")
    try:
        return to_rows(data)
    except TypeError as error:
        raise ValueError(str(error)) from None


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
    properties: CommitProperties,
    storage_options: Mapping[str, str] | None,
    definition: dict[str, Any],
) -> None:
    name = str(address.name)
    with address.catalog as catalog, catalog.begin(tables=[name]) as tx:
        if request.mode == "ignore" and name in tx.tables():
            return
        tx.write(
            name,
            _taken(data),
            request.mode,
            partition_by=request.partition_by,
            schema_mode=request.schema_mode,
            predicate=request.predicate,
            location=address.location,
            storage_options=storage_options,
            target_file_size=request.target_file_size,
            writer_properties=request.writer_properties,  # type: ignore[arg-type]  # passed through unchanged
            commit_properties=properties,
            **definition,
        )


def _write_at_path(
    address: PathAddress,
    data: Any,
    request: WriteRequest,
    properties: CommitProperties,
    hooks: PostCommitHookProperties | None,
    storage_options: Mapping[str, str] | None,
    definition: dict[str, Any],
) -> None:
    from deltalakedb.data import arrow_to_schema

    backing = FileBacking(address.location, storage_options)
    if backing.exists():
        if not _leaves_alone(request, address.location):
            verb = partial(write, data=_taken(data), request=request)
            backing.run(verb, properties, hooks or PostCommitHookProperties())
        return
    reader = _taken(data)
    new = NewTable(
        arrow_to_schema(reader.schema),
        request.partition_by or (),
        to_properties(definition["configuration"], table=address.location),
        definition["name"],
        definition["description"],
    )
    verb = partial(write, data=reader, request=request)
    joins = request.mode == "append"
    backing.create(new.first(address.location, None), verb, properties, hooks, joins=joins)
