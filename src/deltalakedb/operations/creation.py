"""Owns the statements that begin a table, or put another one in its place, with files that may be there already."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from deltalakedb.definitions.features import with_features
from deltalakedb.definitions.table import new_table
from deltalakedb.exceptions import DeltaError
from deltalakedb.log.actions import AddFile, Metadata, Protocol, RemoveFile
from deltalakedb.log.commit import render_line
from deltalakedb.log.features import reader_features, writer_features
from deltalakedb.log.proposal import WHOLE_TABLE, ProposedCommit
from deltalakedb.log.rows import add_from_row
from deltalakedb.log.types import StructType
from deltalakedb.operations.rules import refuse_changed_rows
from deltalakedb.operations.target import Done, Target

_MODES = {"error": "ErrorIfExists", "ignore": "Ignore", "overwrite": "Overwrite"}


@dataclass(frozen=True, slots=True)
class NewTable:
    """What a table is to be, and the files it begins with."""

    schema: StructType
    partition_by: Sequence[str] = ()
    properties: Mapping[str, str] | None = None
    name: str | None = None
    description: str | None = None
    adds: tuple[AddFile, ...] = ()

    def first(self, table: str, name: str | None) -> tuple[Protocol, Metadata]:
        """Protocol and metadata of the first version; `table` is for messages, `name` when none was given."""
        return new_table(
            self.schema,
            self.partition_by,
            self.properties or {},
            table=table,
            name=name if self.name is None else self.name,
            description=self.description,
            created_ms=time.time_ns() // 1_000_000,
        )


def check_creation_mode(mode: str) -> None:
    """A creation adds no rows to a table that is there."""
    if mode == "append":
        raise DeltaError("a table is not created by appending: use mode error, ignore or overwrite")
    if mode not in _MODES:
        raise DeltaError(f"the mode of a creation is error, ignore or overwrite, not {mode!r}")


def create(target: Target, new: NewTable, mode: str) -> Done:
    """The first commit of a table, but for the two actions that begin it."""
    parameters = _parameters(target, (target.protocol, target.metadata), mode)
    operation = "CREATE OR REPLACE TABLE" if mode == "overwrite" else "CREATE TABLE"
    return Done(ProposedCommit(new.adds, operation, parameters, may_be_elsewhere=True))


def replace_table(target: Target, new: NewTable, mode: str = "overwrite") -> Done:
    """Another table in the place of this one: its rows go, its versions stay, and so does its id."""
    refuse_changed_rows(target.metadata, target.name, "replaced")
    protocol, metadata = new.first(target.name, target.metadata.name)
    metadata = replace(metadata, id=target.metadata.id)
    # What readers of older versions were told of stays true of them.
    raised = with_features(
        target.protocol, writer_features(protocol) | reader_features(protocol), history=target.history
    )
    now_ms = time.time_ns() // 1_000_000
    kept = {add.path for add in new.adds}
    live = (add_from_row(row) for row in target.snapshot.files_table().to_pylist())
    removes = [RemoveFile.of(add, at_ms=now_ms) for add in live if add.path not in kept]
    changed = () if raised == target.protocol else (raised,)
    commit = ProposedCommit(
        actions=(*changed, metadata, *removes, *new.adds),
        operation="CREATE OR REPLACE TABLE",
        operation_parameters=_parameters(target, (raised, metadata), mode),
        read=WHOLE_TABLE,
        may_be_elsewhere=True,
    )
    return Done(commit)


def _parameters(target: Target, first: tuple[Protocol, Metadata], mode: str) -> dict[str, Any]:
    protocol, metadata = first
    return {
        "mode": _MODES.get(mode, mode),
        "location": target.location,
        "protocol": _text(protocol),
        "metadata": _text(metadata),
    }


def _text(action: Protocol | Metadata) -> str:
    """The action as the log has it, without its name."""
    line = render_line(action).decode()
    return line[line.index(":") + 1 : -1]
