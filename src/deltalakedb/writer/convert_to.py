"""convert_to_deltalake: a folder of Parquet files becomes a table, with the arguments of `deltalake`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import partial
from typing import Any, Literal

from deltalakedb._positional import commit_arguments
from deltalakedb.addresses import PathAddress, resolve
from deltalakedb.definitions.folder import default_location
from deltalakedb.definitions.properties import to_properties
from deltalakedb.definitions.table import to_schema
from deltalakedb.log.types import StructType
from deltalakedb.operations.convert import Conversion, convert, find_table
from deltalakedb.operations.creation import NewTable
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
    """Make a table of the Parquet files below a place; they stay where they are, and their rows are not read.

    For a table of a catalog, its files are expected where a new table of that name goes. `partition_by` is a Schema of
    the columns that folders stand for: `hive` for `x=1/y=2`, `directory` for `1/2`. Statistics come from the footers,
    unless `collect_stats` is False.
    """
    commit_properties, post_commithook_properties = commit_arguments(
        "convert_to_deltalake", args, commit_properties, post_commithook_properties
    )
    if partition_by is not None and partition_strategy is None:
        raise ValueError("partition_by needs a partition_strategy: hive or directory")
    if partition_strategy not in (None, "hive", "directory"):
        raise ValueError(f"partition_strategy is hive or directory, not {partition_strategy!r}")
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
        if not is_there(address, storage_options, refuses=mode != "ignore"):
            found = find_table(new, conversion, location=location, options=storage_options)
            verb = partial(convert, new=found, conversion=conversion)
            make_table_at(
                address, found, mode, storage_options, commit_properties, post_commithook_properties, verb=verb
            )
    finally:
        if not isinstance(address, PathAddress):
            address.catalog.close()
