"""The statements that create or replace a table, possibly with existing files."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, cast

from deltalakedb.exceptions import DeltaError
from deltalakedb.log.protocol.actions import AddFile, Metadata, Protocol, RemoveFile
from deltalakedb.log.protocol.codec import to_json
from deltalakedb.log.protocol.commit import render_line
from deltalakedb.log.protocol.feature_needs import with_features, with_listed_features, with_versions
from deltalakedb.log.protocol.features import MAX_WRITER_VERSION, reader_features, writer_features
from deltalakedb.log.protocol.proposal import WHOLE_TABLE, ProposedCommit
from deltalakedb.log.protocol.rows import add_from_row
from deltalakedb.log.schema.types import StructType
from deltalakedb.operations.definition import PropertyValue, new_table
from deltalakedb.operations.rules import refuse_changed_rows
from deltalakedb.operations.target import Done, Target

CreationMode = Literal["error", "append", "overwrite", "ignore"]

_MODES = {"error": "ErrorIfExists", "append": "Append", "ignore": "Ignore", "overwrite": "Overwrite"}
_METADATA: dict[str, Any] = dict.fromkeys(
    ("id", "name", "description", "format", "schemaString", "partitionColumns", "createdTime", "configuration")
)
"""The fields of a metaData in the order of `deltalake`'s commit info, which includes those without a value."""


@dataclass(frozen=True, slots=True)
class NewTable:
    """The definition of a new table, and its first files."""

    schema: StructType
    partition_by: Sequence[str] | str = ()
    properties: Mapping[str, PropertyValue] | None = None
    name: str | None = None
    description: str | None = None
    adds: tuple[AddFile, ...] = ()

    def first(self, table: str, name: str | None) -> tuple[Protocol, Metadata]:
        """Return protocol and metadata of the first version; `table` is for messages, `name` is the default name."""
        return new_table(
            self.schema,
            self.partition_by,
            self.properties or {},
            table=table,
            name=name if self.name is None else self.name,
            description=self.description,
            created_ms=time.time_ns() // 1_000_000,
        )


def check_creation_mode(mode: str) -> CreationMode:
    """Return the mode in lower case; DeltaError for an unknown one."""
    if mode.lower() not in _MODES:
        raise DeltaError(
            f"Invalid save mode provided: {mode}, only these are supported: ['append', 'overwrite', 'error', 'ignore']"
        )
    return cast("CreationMode", mode.lower())


def create(target: Target, new: NewTable, mode: str) -> Done:
    """Return the first commit of a table, without its protocol and metadata."""
    parameters = _parameters(target, (target.protocol, target.metadata), mode)
    operation = "CREATE OR REPLACE TABLE" if mode == "overwrite" else "CREATE TABLE"
    return Done(ProposedCommit(new.adds, operation, parameters, may_be_elsewhere=True))


def replace_table(target: Target, new: NewTable, mode: str = "overwrite") -> Done:
    """Replace a table: its rows are removed; its versions and its id stay."""
    refuse_changed_rows(target.metadata, target.name, "replaced")
    protocol, metadata = new.first(target.name, None)
    metadata = replace(metadata, id=target.metadata.id)
    new_protocol = _raise_protocol(target, protocol)
    now_ms = time.time_ns() // 1_000_000
    kept_paths = {add.path for add in new.adds}
    live = (add_from_row(row) for row in target.snapshot.files_table().to_pylist())
    removes = [RemoveFile.of(add, at_ms=now_ms) for add in live if add.path not in kept_paths]
    commit = ProposedCommit(
        actions=(new_protocol, metadata, *removes, *new.adds),
        operation="CREATE OR REPLACE TABLE",
        operation_parameters=_parameters(target, (new_protocol, metadata), mode),
        read=WHOLE_TABLE,
        may_be_elsewhere=True,
    )
    return Done(commit)


def _raise_protocol(target: Target, wanted: Protocol) -> Protocol:
    """Return the table's protocol, upgraded by the new one's: older versions still need what the table had."""
    if max(target.protocol.min_writer_version, wanted.min_writer_version) < MAX_WRITER_VERSION:
        return with_versions(target.protocol, wanted.min_reader_version, wanted.min_writer_version)
    features = writer_features(wanted) | reader_features(wanted)
    if wanted.min_writer_version == MAX_WRITER_VERSION:
        return with_listed_features(target.protocol, features, target.history)
    return with_features(target.protocol, features, history=target.history)


def _parameters(target: Target, first: tuple[Protocol, Metadata], mode: str) -> dict[str, Any]:
    protocol, metadata = first
    return {
        "mode": _MODES.get(mode, mode),
        "location": f"{target.location.rstrip('/')}/",
        "protocol": to_json(_value(protocol)),
        "metadata": to_json(_METADATA | _value(metadata)),
    }


def _value(action: Protocol | Metadata) -> dict[str, Any]:
    """Return the action as the log's JSON, without its name."""
    (value,) = json.loads(render_line(action)).values()
    return dict(value)
