"""Turns what a caller says it read of a table (everything, a predicate, files) into the read set a commit checks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from deltalakedb.exceptions import InvalidCommitError
from deltalakedb.log.predicates.atoms import Predicate
from deltalakedb.log.predicates.predicate import parse_predicate
from deltalakedb.log.protocol.actions import FileKey
from deltalakedb.log.protocol.codec import deletion_vector_from_json, from_sql_text
from deltalakedb.log.protocol.features import reader_features
from deltalakedb.log.protocol.proposal import NOTHING_READ, WHOLE_TABLE, ReadSet
from deltalakedb.log.schema.types import parse_schema
from deltalakedb.transactions.draft import Snapshot

ReadLike = ReadSet | str | Sequence[Any] | None
"""None: nothing; "table": all of it; SQL text or filter lists: the matching rows; a list of paths: these files."""


def to_read_set(read: ReadLike, snapshot: Snapshot, *, table: str) -> ReadSet:
    """Return the read set for `read`, resolved against the table as the transaction sees it."""
    if read is None:
        return NOTHING_READ
    if isinstance(read, ReadSet):
        return read
    if isinstance(read, str):
        return WHOLE_TABLE if read.strip().lower() == "table" else ReadSet(predicates=(parse_read(read, snapshot),))
    items = list(read)
    if not items:
        return NOTHING_READ
    if all(isinstance(item, str) for item in items):
        return ReadSet(files=_keys_of(items, snapshot))
    if all(
        isinstance(item, tuple) and len(item) == 2 and all(isinstance(part, str) for part in item) for item in items
    ):
        return ReadSet(files=frozenset(items))
    if all(isinstance(item, tuple | list) for item in items):
        return ReadSet(predicates=(parse_read(items, snapshot),))
    raise InvalidCommitError(
        f'table {table}: what was read is None, "table", a predicate (SQL or filter lists), a list of paths or a '
        f"ReadSet, not a list of {type(items[0]).__name__}"
    )


def parse_read(predicate: str | Sequence[Any], snapshot: Snapshot) -> Predicate:
    """Parse a predicate against the table's columns."""
    metadata = snapshot.metadata
    return parse_predicate(predicate, parse_schema(metadata.schema_string), metadata.partition_columns)


def _keys_of(paths: list[str], snapshot: Snapshot) -> frozenset[FileKey]:
    """Return the live file keys of these paths; a path with a deletion vector is another key than the path alone."""
    if "deletionVectors" not in reader_features(snapshot.protocol):
        return frozenset((path, "") for path in paths)
    requested = set(paths)
    keys = set()
    for row in snapshot.files_table(["path", "deletion_vector"]).to_pylist():
        path, vector = from_sql_text(row["path"]), row["deletion_vector"]
        if path in requested:
            keys.add((path, "" if vector is None else deletion_vector_from_json(vector).unique_id))
    return frozenset(keys | {(path, "") for path in requested.difference(path for path, _ in keys)})
