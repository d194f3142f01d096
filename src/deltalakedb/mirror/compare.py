"""Compares two logs at one version: the actions of a commit, or the state of the table."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Any, TypeAlias

import pyarrow as pa

from deltalakedb.log.protocol.actions import AppTransaction, DomainMetadata, Metadata, Protocol
from deltalakedb.log.protocol.codec import from_sql_text
from deltalakedb.log.protocol.commit import Commit, iter_actions, render_action
from deltalakedb.log.protocol.txnlog import LogSnapshot
from deltalakedb.log.statistics.moments import parse_timestamp
from deltalakedb.log.statistics.stats import load_stats

TableAction: TypeAlias = AppTransaction | DomainMetadata | Metadata | Protocol
_SHOWN_CHARACTERS = 200
FileState: TypeAlias = tuple[str, int, str | None, str | None, str]


@dataclass(frozen=True, slots=True)
class Difference:
    """One difference between SQL and the files at a version."""

    place: str
    in_sql: str
    in_files: str

    def __str__(self) -> str:
        return f"{self.place}: SQL has {self.in_sql}, the files have {self.in_files}"


def parse_commit(table: str, version: int, data: bytes) -> Commit:
    """A commit from the bytes of its file, without its time."""
    return Commit(version, 0, tuple(iter_actions(data.split(b"\n"), table=table, version=version)))


def first_difference(ours: Commit, theirs: Commit) -> str | None:
    """The first action in which two readings of a commit differ, as a sentence; None if they are the same."""
    result = compare_commits(ours, theirs)
    return None if result is None else str(result)


def compare_commits(ours: Commit, theirs: Commit) -> Difference | None:
    """The first action in which two readings of a commit differ; None if they are the same."""
    for number, (left, right) in enumerate(zip_longest(ours.actions, theirs.actions), start=1):
        if left == right:
            continue
        our_text, their_text = (None if action is None else render_action(action) for action in (left, right))
        if our_text is None or their_text is None or json.loads(our_text) != json.loads(their_text):
            return Difference(f"action {number}", _shorten(our_text), _shorten(their_text))
    return None


def compare_states(ours: LogSnapshot, theirs: LogSnapshot, *, protocol: Protocol) -> Difference | None:
    """The first part in which two snapshots differ; `protocol` is the one that the files must show."""
    parts = {
        "protocol": (_checkpoint_fields(protocol), _checkpoint_fields(theirs.protocol)),
        "metaData": (_checkpoint_fields(ours.metadata), _checkpoint_fields(theirs.metadata)),
        "app transactions": (_fields_by_name(ours.app_transactions()), _fields_by_name(theirs.app_transactions())),
        "domain metadata": (_fields_by_name(ours.domain_metadata()), _fields_by_name(theirs.domain_metadata())),
    }
    for name, (left, right) in parts.items():
        if left != right:
            return Difference(name, _shorten(_text(left)), _shorten(_text(right)))
    return _compare_files(ours, theirs)


def compare_action(place: str, ours: Metadata | Protocol, theirs: Metadata | Protocol) -> Difference | None:
    """Compare two metadata or protocol actions, by the fields that a checkpoint keeps."""
    left, right = _checkpoint_fields(ours), _checkpoint_fields(theirs)
    return None if left == right else Difference(place, _shorten(_text(left)), _shorten(_text(right)))


def _checkpoint_fields(action: TableAction) -> Any:
    """The fields of an action that a checkpoint keeps: those that the protocol names; null is the same as absent."""
    if isinstance(action, Metadata):
        action = replace(action, format=replace(action.format, extra=""))
    value = json.loads(render_action(replace(action, extra="")))
    for features in ("readerFeatures", "writerFeatures"):  # sets, written as lists
        if features in value.get("protocol", {}):
            value["protocol"][features].sort()
    return value


def _fields_by_name(actions: Mapping[str, AppTransaction] | Mapping[str, DomainMetadata]) -> dict[str, Any]:
    return {name: _checkpoint_fields(action) for name, action in actions.items()}


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _compare_files(ours: LogSnapshot, theirs: LogSnapshot) -> Difference | None:
    our_keys, their_keys = _file_keys(ours.files()), _file_keys(theirs.files())
    if our_keys == their_keys:
        return None
    return Difference("active files", _only_here(our_keys - their_keys), _only_here(their_keys - our_keys))


def _only_here(keys: set[FileState]) -> str:
    if not keys:
        return "nothing that the other lacks"
    path, size, *_ = min(keys)
    return f"{len(keys)} that the other lacks or has otherwise, the first {_shorten(path)} (size {size})"


def _file_keys(files: pa.RecordBatchReader) -> set[FileState]:
    """The parts of each live file that must agree; columns that a checkpoint may omit are left out."""
    keys: set[FileState] = set()
    for batch in files:
        columns = (
            batch.column(n).to_pylist() for n in ("path", "size", "stats", "deletion_vector", "partition_values")
        )
        for path, size, stats, vector, values in zip(*columns, strict=True):
            keys.add((path, size, _stats_values(stats), _normalize_json(vector), _normalize_json(values) or "{}"))
    return keys


def _stats_values(text: str | None) -> str | None:
    """The values of statistics, whatever their text: a checkpoint may keep them as a struct, rendered again."""
    value = None if text is None else load_stats(from_sql_text(text))
    return text if value is None else json.dumps(_normalize(value), sort_keys=True)


def _normalize(value: Any) -> Any:
    """Statistics without nulls and empty structs, with times and whole numbers in one notation."""
    if isinstance(value, dict):
        members = {name: _normalize(member) for name, member in value.items()}
        return {name: member for name, member in members.items() if member is not None and member != {}}
    if isinstance(value, str) and (moment := parse_timestamp(value)) is not None:
        return moment.micros
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _normalize_json(text: str | None) -> str | None:
    """JSON text with normalized spacing and order."""
    return None if text is None else json.dumps(json.loads(text), sort_keys=True)


def _shorten(text: str | None) -> str:
    if text is None:
        return "nothing"
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}... ({len(text)} characters)"
