"""Compares what two logs say of one version: the actions of a commit, or the state of the table."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Any, TypeAlias

import pyarrow as pa

from deltalakedb.log.actions import AppTransaction, DomainMetadata, Metadata, Protocol
from deltalakedb.log.commit import Commit, render_action
from deltalakedb.log.moments import parse_timestamp
from deltalakedb.log.stats import load_stats
from deltalakedb.log.text import from_sql_text
from deltalakedb.log.txnlog import LogSnapshot

Kept: TypeAlias = AppTransaction | DomainMetadata | Metadata | Protocol
FileState: TypeAlias = tuple[str, int, str | None, str | None, str]


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing that SQL and the files say differently of a version."""

    place: str
    in_sql: str
    in_files: str

    def __str__(self) -> str:
        return f"{self.place}: SQL has {self.in_sql}, the files have {self.in_files}"


def first_difference(ours: Commit, theirs: Commit) -> str | None:
    """The first action in which two readings of one commit differ, as a sentence; None when they say the same."""
    found = compare_commits(ours, theirs)
    return None if found is None else str(found)


def compare_commits(ours: Commit, theirs: Commit) -> Difference | None:
    """The first action in which two readings of one commit differ; None when they say the same."""
    for number, (left, right) in enumerate(zip_longest(ours.actions, theirs.actions), start=1):
        if left == right:
            continue
        mine, other = (None if action is None else render_action(action) for action in (left, right))
        if mine is None or other is None or json.loads(mine) != json.loads(other):
            return Difference(f"action {number}", _shortened(mine), _shortened(other))
    return None


def compare_states(ours: LogSnapshot, theirs: LogSnapshot, *, protocol: Protocol) -> Difference | None:
    """The first part of two snapshots that differs; `protocol` is the one SQL expects the files to show."""
    parts = {
        "protocol": (_known(protocol), _known(theirs.protocol)),
        "metaData": (_known(ours.metadata), _known(theirs.metadata)),
        "app transactions": (_all_known(ours.app_transactions()), _all_known(theirs.app_transactions())),
        "domain metadata": (_all_known(ours.domain_metadata()), _all_known(theirs.domain_metadata())),
    }
    for name, (left, right) in parts.items():
        if left != right:
            return Difference(name, _shortened(_text(left)), _shortened(_text(right)))
    return _compare_files(ours, theirs)


def compare_action(place: str, ours: Metadata | Protocol, theirs: Metadata | Protocol) -> Difference | None:
    """Two metadata or protocol actions, by what a checkpoint keeps of them."""
    left, right = _known(ours), _known(theirs)
    return None if left == right else Difference(place, _shortened(_text(left)), _shortened(_text(right)))


def _known(action: Kept) -> Any:
    """What a checkpoint keeps of an action: only fields the protocol names, and null is the same as absent."""
    if isinstance(action, Metadata):
        action = replace(action, format=replace(action.format, extra=""))
    value = json.loads(render_action(replace(action, extra="")))
    for features in ("readerFeatures", "writerFeatures"):  # sets, written as lists
        if features in value.get("protocol", {}):
            value["protocol"][features].sort()
    return value


def _all_known(actions: Mapping[str, AppTransaction] | Mapping[str, DomainMetadata]) -> dict[str, Any]:
    return {name: _known(action) for name, action in actions.items()}


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _compare_files(ours: LogSnapshot, theirs: LogSnapshot) -> Difference | None:
    mine, other = _file_keys(ours.files()), _file_keys(theirs.files())
    if mine == other:
        return None
    return Difference("active files", _only_here(mine - other), _only_here(other - mine))


def _only_here(keys: set[FileState]) -> str:
    if not keys:
        return "nothing that the other lacks"
    path, size, *_ = min(keys)
    return f"{len(keys)} that the other lacks or has otherwise, the first {_shortened(path)} (size {size})"


def _file_keys(files: pa.RecordBatchReader) -> set[FileState]:
    """What must agree of each live file. Columns a checkpoint may leave out do not count."""
    keys: set[FileState] = set()
    for batch in files:
        columns = (
            batch.column(n).to_pylist() for n in ("path", "size", "stats", "deletion_vector", "partition_values")
        )
        for path, size, stats, vector, values in zip(*columns, strict=True):
            keys.add((path, size, _stats_values(stats), _canonical(vector), _canonical(values) or "{}"))
    return keys


def _stats_values(text: str | None) -> str | None:
    """What statistics say, not how: a checkpoint may keep them as a struct, whose text is made anew."""
    value = None if text is None else load_stats(from_sql_text(text))
    return text if value is None else json.dumps(_plain(value), sort_keys=True)


def _plain(value: Any) -> Any:
    """Statistics without nulls and empty structs, times and whole numbers in one spelling."""
    if isinstance(value, dict):
        members = {name: _plain(member) for name, member in value.items()}
        return {name: member for name, member in members.items() if member is not None and member != {}}
    if isinstance(value, str) and (moment := parse_timestamp(value)) is not None:
        return moment.micros
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _canonical(text: str | None) -> str | None:
    """JSON text without regard to spacing and order."""
    return None if text is None else json.dumps(json.loads(text), sort_keys=True)


def _shortened(text: str | None, limit: int = 200) -> str:
    if text is None:
        return "nothing"
    return text if len(text) <= limit else f"{text[:limit]}... ({len(text)} characters)"
