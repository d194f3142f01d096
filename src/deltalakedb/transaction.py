"""What a caller may say about a commit, and bring to it, under the names that `deltalake` gives it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from .arguments import check_flag, check_text
from .log.actions import AddFile, AppTransaction, RemoveFile
from .log.paths import encode_path

Transaction = AppTransaction
"""How far an application has come: the `txn` action."""

_OURS: Final = ("timestamp", "operation", "engineInfo")
_TEXTS: Final = ("userId", "userName", "userMetadata")
_LEVELS: Final = ("Serializable", "WriteSerializable", "SnapshotIsolation")


@dataclass
class CommitProperties:
    """What is recorded with a commit, and how often it is tried."""

    custom_metadata: Mapping[str, Any] | None = None
    max_commit_retries: int | None = None
    app_transactions: list[Transaction] | None = None

    def checked_metadata(self) -> Mapping[str, Any]:
        """The fields to record; ValueError for what a commit cannot hold. Called before a statement does anything."""
        if self.custom_metadata is None:
            return {}
        if not isinstance(self.custom_metadata, Mapping):
            raise ValueError(f"custom_metadata is a mapping of names to values, not {self.custom_metadata!r}")
        for key, value in self.custom_metadata.items():
            _check_field(key, value)
        return self.custom_metadata

    def joined(
        self, app_transactions: Sequence[Transaction] = (), custom_metadata: Mapping[str, Any] | None = None
    ) -> CommitProperties:
        """The same with more of both."""
        noted = {**self.checked_metadata(), **(custom_metadata or {})}
        return replace(
            self, custom_metadata=noted, app_transactions=[*(self.app_transactions or ()), *app_transactions]
        )


def _check_field(key: Any, value: Any) -> None:
    """A field of commitInfo that a caller sets: JSON, and of the type that the field has for everybody."""
    if not isinstance(key, str):
        raise ValueError(f"custom_metadata: the names of fields are texts, not {key!r}")
    if key in _OURS:
        raise ValueError(f"custom_metadata: {key} is written by the commit itself; choose another name")
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ValueError(f"custom_metadata: the value of {key} cannot be written as JSON: {error}") from error
    fits = {
        "readVersion": isinstance(value, int) and not isinstance(value, bool) and value >= 0,
        "isBlindAppend": isinstance(value, bool),
        "isolationLevel": value in _LEVELS if isinstance(value, str) else False,
        "operationParameters": isinstance(value, dict),
        **{name: isinstance(value, str) for name in _TEXTS},
    }
    if not fits.get(key, True):
        raise ValueError(f"custom_metadata: {value!r} is no value for {key}")


@dataclass
class PostCommitHookProperties:
    """What happens to the log after a commit. A catalog's tables leave both to the mirror, by its own settings."""

    create_checkpoint: bool = True
    cleanup_expired_logs: bool | None = None


@dataclass
class AddAction:
    """A file that is there already, to become part of a table; `stats` is the JSON text of its statistics."""

    path: str
    size: int
    partition_values: Mapping[str, str | None]
    modification_time: int
    data_change: bool
    stats: str


@dataclass
class RemoveAction:
    """A file that is no longer part of a table."""

    path: str
    data_change: bool
    deletion_timestamp: int
    size: int | None = None
    partition_values: Mapping[str, str | None] | None = None

    def __post_init__(self) -> None:
        check_text(self.path, required=True)
        check_flag(self.data_change)
        if not isinstance(self.deletion_timestamp, int):
            raise TypeError("a deletion timestamp is a whole number of milliseconds")


def to_add(action: Any) -> AddFile | None:
    """The action of the log for an AddAction, ours or `deltalake`'s; None for a RemoveAction."""
    if type(action).__name__ == "RemoveAction":
        return None
    try:
        return AddFile(
            path=encode_path(action.path),
            partition_values=dict(action.partition_values),
            size=action.size,
            modification_time=action.modification_time,
            data_change=action.data_change,
            stats=action.stats or None,
        )
    except AttributeError:
        raise TypeError(f"an action is an AddAction or a RemoveAction, not {type(action).__name__}") from None


def to_remove(action: Any) -> RemoveFile | None:
    """The action of the log for a RemoveAction; None for an AddAction."""
    if type(action).__name__ != "RemoveAction":
        return None
    return RemoveFile(
        path=encode_path(action.path),
        data_change=action.data_change,
        deletion_timestamp=action.deletion_timestamp,
        size=action.size,
        partition_values=action.partition_values,
    )


def create_table_with_add_actions(
    table_uri: str,
    schema: Any,
    add_actions: list[AddAction],
    mode: Literal["error", "append", "overwrite", "ignore"] = "error",
    partition_by: list[str] | str | None = None,
    name: str | None = None,
    description: str | None = None,
    configuration: Mapping[str, str | None] | None = None,
    storage_options: dict[str, str] | None = None,
    *args: Any,
    commit_properties: CommitProperties | None = None,
    post_commithook_properties: PostCommitHookProperties | None = None,
) -> None:
    """Begin a table with files that are there already; `overwrite` puts it in the place of one that is there."""
    from ._positional import commit_arguments
    from .definitions.properties import to_properties
    from .definitions.table import to_schema
    from .operations.creation import NewTable
    from .tables.creation import make_table

    commit_properties, post_commithook_properties = commit_arguments(
        "create_table_with_add_actions", args, commit_properties, post_commithook_properties
    )
    new = NewTable(
        to_schema(schema),
        [partition_by] if isinstance(partition_by, str) else partition_by or (),
        to_properties(configuration, table=table_uri),
        name,
        description,
        tuple(found for one in add_actions if (found := to_add(one)) is not None),
    )
    make_table(table_uri, new, mode, storage_options, commit_properties, post_commithook_properties)
