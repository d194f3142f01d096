"""Compares what two logs say of one version: the actions of a commit, or the state of the table."""

import json
from itertools import zip_longest

import pyarrow as pa

from deltalakedb.log.commit import Commit, render_action
from deltalakedb.log.txnlog import LogSnapshot


def first_difference(ours: Commit, theirs: Commit) -> str | None:
    """The first action in which two readings of one commit differ, as a sentence; None when they say the same."""
    for number, (left, right) in enumerate(zip_longest(ours.actions, theirs.actions), start=1):
        if left == right:
            continue
        mine, other = (None if action is None else render_action(action) for action in (left, right))
        if mine is None or other is None or json.loads(mine) != json.loads(other):
            return f"action {number}: SQL has {_shortened(mine)}, the files have {_shortened(other)}"
    return None


def first_state_difference(ours: LogSnapshot, theirs: LogSnapshot) -> str | None:
    """The first part of two snapshots that differs."""
    parts = {
        "protocol": (ours.protocol, theirs.protocol),
        "metaData": (ours.metadata, theirs.metadata),
        "app transactions": (dict(ours.app_transactions()), dict(theirs.app_transactions())),
        "domain metadata": (dict(ours.domain_metadata()), dict(theirs.domain_metadata())),
    }
    for name, (left, right) in parts.items():
        if left != right:
            return f"{name}: SQL has {_shortened(repr(left))}, the files have {_shortened(repr(right))}"
    return _file_difference(ours, theirs)


def _file_difference(ours: LogSnapshot, theirs: LogSnapshot) -> str | None:
    mine, other = _file_keys(ours.files()), _file_keys(theirs.files())
    if mine == other:
        return None
    only_mine, only_other = sorted(mine - other), sorted(other - mine)
    key, where, lacking = (only_mine[0], "SQL", "the files") if only_mine else (only_other[0], "the files", "SQL")
    return (
        f"active files: {len(only_mine)} only in SQL, {len(only_other)} only in the files; "
        f"the first is {_shortened(key[0])} (size {key[1]}), live in {where} and not, or otherwise, in {lacking}"
    )


def _file_keys(files: pa.RecordBatchReader) -> set[tuple[str, int, str | None, str | None, str]]:
    """What must agree of each live file. Columns a checkpoint may leave out do not count."""
    keys: set[tuple[str, int, str | None, str | None, str]] = set()
    for batch in files:
        columns = (
            batch.column(n).to_pylist() for n in ("path", "size", "stats", "deletion_vector", "partition_values")
        )
        for path, size, stats, vector, values in zip(*columns, strict=True):
            keys.add((path, size, _canonical(stats), _canonical(vector), _canonical(values) or "{}"))
    return keys


def _canonical(text: str | None) -> str | None:
    """JSON text without regard to spacing and order; text that is not JSON as it is."""
    if text is None:
        return None
    try:
        return json.dumps(json.loads(text), sort_keys=True)
    except ValueError:
        return text


def _shortened(text: str | None, limit: int = 200) -> str:
    if text is None:
        return "nothing"
    return text if len(text) <= limit else f"{text[:limit]}... ({len(text)} characters)"
