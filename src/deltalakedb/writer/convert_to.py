"""convert_to_deltalake: makes a table of a folder of Parquet files, with the arguments of `deltalake`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import partial
from typing import Any, Literal

from deltalakedb.catalog.addresses import PathAddress, resolve
from deltalakedb.exceptions import TableExistsError
from deltalakedb.log.checks.properties import to_properties
from deltalakedb.log.schema.types import StructType
from deltalakedb.operations.convert import Conversion, convert, find_table
from deltalakedb.operations.creation import NewTable
from deltalakedb.operations.definition import to_schema
from deltalakedb.operations.folder import default_location
from deltalakedb.runtime.arguments import check_flag, commit_arguments, wrong_type
from deltalakedb.schema import Schema
from deltalakedb.tables.creation import is_there, make_table_at
from deltalakedb.transaction import CommitProperties, PostCommitHookProperties


def convert_to_deltalake(
    uri: str | os.PathLike[str],
    mode: Literal["error", "ignore"] = "error",
    partition_by: Any = None,
    partition_strategy: Literal["hive", "directory"] | None = None,
    name: str | None = None,
    description: str | None = None,
    configuration: Mapping[str, str | None] | None = None,
    storage_options: dict[str, str] | None = None,
    *args: Any,
    collect_stats: bool = True,
    commit_properties: CommitProperties | None = None,
    post_commithook_properties: PostCommitHookProperties | None = None,
) -> None:
    """Make a table of the Parquet files below a location; they stay where they are, and their rows are not read.

    For a table of a catalog, the files must be where a new table of that name is stored. `partition_by` is a Schema
    of the columns in folder names: strategy `hive` for `x=1/y=2`, `directory` for `1/2`. Statistics come from the
    Parquet footers, unless `collect_stats` is False.
    """
    commit_properties, post_commithook_properties = commit_arguments(
        "convert_to_deltalake", args, commit_properties, post_commithook_properties
    )
    check_flag(collect_stats)
    uri = (
        uri if isinstance(uri, str | os.PathLike) else str(uri)
    )  # as `deltalake` does; there is no table at such a path
    if partition_by is not None and partition_strategy is None:
        raise ValueError("Partition strategy has to be provided with partition_by.")
    if partition_strategy not in (None, "hive", "directory"):
        raise ValueError("Partition strategy must be `hive` or `directory`.")
    if partition_by is not None and not isinstance(partition_by, Schema):
        raise TypeError(f"{wrong_type(partition_by, 'Schema')}: `Schema.from_arrow` makes one of pyarrow's")
    conversion = Conversion(
        StructType(()) if partition_by is None else to_schema(partition_by), partition_strategy, collect_stats
    )
    new = NewTable(StructType(()), (), to_properties(configuration, table=os.fspath(uri)), name, description)
    address = resolve(uri, storage_options, writes=True)
    try:
        if isinstance(address, PathAddress):
            location = address.location
        else:
            location = address.location or default_location(address.catalog.config.warehouse, address.name)
        if is_there(address, storage_options):
            if mode != "ignore":
                raise TableExistsError(f"The given location is already a delta table location: {location}")
        else:
            discovered = find_table(new, conversion, location=location, options=storage_options)
            verb = partial(convert, new=discovered, conversion=conversion)
            make_table_at(
                address, discovered, mode, storage_options, commit_properties, post_commithook_properties, verb=verb
            )
    finally:
        if not isinstance(address, PathAddress):
            address.catalog.close()
