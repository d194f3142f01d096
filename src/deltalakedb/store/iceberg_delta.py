"""What the database knows of Delta tables as Iceberg clients see them: their fields' ids, format version, snapshots."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from deltalakedb.log.protocol.actions import Metadata
from deltalakedb.log.protocol.codec import from_sql_text, key_hash, to_sql_text
from deltalakedb.log.protocol.rows import metadata_from_row
from deltalakedb.store.connection import Connection
from deltalakedb.store.queries import named_queries
from deltalakedb.store.registry import OpenTable

NEWEST_FORMAT = 3
_UNUSUAL_FILES = 1_000
_FILES_LOOKED_INTO = 1_000
_KEYS_PER_QUERY = 500
"""Older builds of SQLite accept 999 parameters."""


@dataclass(frozen=True, slots=True)
class SnapshotRow:
    """A kept version, which Iceberg clients see as a snapshot."""

    version: int
    committed_at_ms: int
    operation: str | None
    num_added: int
    num_removed: int
    total_added: int
    total_closed: int
    commit_info: Mapping[str, object]
    """Empty unless an Iceberg client made the commit."""

    @property
    def num_files(self) -> int:
        return self.total_added - self.total_closed


@dataclass(frozen=True, slots=True)
class TableHistory:
    """All that an Iceberg client is told of a Delta table, but for its files."""

    metadata: Sequence[tuple[int, Metadata]]
    """The metadata of every kept version that set it, with the version, oldest first."""
    snapshots: Sequence[SnapshotRow]
    row_id_marks: Mapping[int, int]
    """The highest row id of each version that assigned some."""


@dataclass(frozen=True, slots=True)
class VectorCopy:
    """Where the deletion vector of a file is in a Puffin file."""

    vector_key: str
    puffin_path: str
    puffin_size: int
    content_offset: int
    content_size: int


@dataclass(frozen=True, slots=True)
class UnusualFiles:
    """What decides how Iceberg clients can read a table."""

    has_vectors: bool
    absolute_paths: Sequence[str]


def read_history(conn: Connection, opened: OpenTable) -> TableHistory:
    """Reads the versions whose files are all there, up to the head."""
    ids = {"table_id": opened.table.table_id}
    last = opened.head.current_version
    versions = conn.all(
        "select_versions_as_snapshots", **ids, first_version=opened.head.vacuumed_version, last_version=last
    )
    metadata = conn.all("select_metadata_history", **ids, version=last)
    marks = conn.all("select_row_id_marks", **ids, version=last)
    return TableHistory(
        [(row["version"], metadata_from_row(row)) for row in metadata],
        [
            SnapshotRow(
                row["version"],
                row["committed_at_ms"],
                row["operation"],
                row["num_added_files"],
                row["num_removed_files"],
                row["total_added"],
                row["total_closed"],
                json.loads(row["commit_info"]) if row["commit_info"] else {},
            )
            for row in versions
        ],
        {row["version"]: int(json.loads(row["configuration"]).get("rowIdHighWaterMark", -1)) for row in marks},
    )


def read_field_ids(conn: Connection, table_id: int) -> dict[str, int]:
    """The stored ids by the paths of the fields."""
    return {row["field_path"]: row["field_id"] for row in conn.all("select_iceberg_field_ids", table_id=table_id)}


def write_field_ids(conn: Connection, table_id: int, ids: Mapping[str, int]) -> None:
    """Stores the ids of all fields instead of those before."""
    conn.run("delete_iceberg_field_ids", table_id=table_id)
    columns: dict[str, list[object]] = {
        "table_id": [table_id] * len(ids),
        "field_path": list(ids),
        "field_id": list(ids.values()),
    }
    conn.insert_few("dl_iceberg_field_ids", columns)


def read_format(conn: Connection, table_id: int) -> int:
    """The format version that a table has for Iceberg clients."""
    row = conn.one("select_iceberg_format", table_id=table_id)
    return 2 if row is None else int(row["format_version"])


def write_format(conn: Connection, table_id: int) -> None:
    """Makes a table one of the newest format version, from which it never goes back."""
    if conn.one("select_iceberg_format", table_id=table_id) is None:
        conn.run("insert_iceberg_format", table_id=table_id, format_version=NEWEST_FORMAT)


def read_unusual_files(conn: Connection, table_id: int, *, after_version: int, first_version: int) -> UnusualFiles:
    """Looks at the files that were added after a version, and are in `first_version` or a later one."""
    rows = conn.all(
        "select_unusual_files",
        table_id=table_id,
        after_version=after_version,
        first_version=first_version,
        max_rows=_UNUSUAL_FILES,
    )
    return UnusualFiles(
        any(row["deletion_vector"] is not None for row in rows),
        [row["path"] for row in rows],
    )


def read_added_files(
    conn: Connection, table_id: int, *, after_version: int, first_version: int, only_given: bool
) -> dict[str, int]:
    """The files that were added after a version, and are in `first_version` or a later one, with their sizes.

    Of many files these are the first and the last ones; with `only_given` none that verbs of this package wrote.
    """
    limits = {
        "after_version": after_version,
        "first_version": first_version,
        "max_rows": _FILES_LOOKED_INTO,
        "only_given": int(only_given),
    }
    queries = ("select_oldest_added_files", "select_newest_added_files")
    rows = [row for query in queries for row in conn.all(query, table_id=table_id, **limits)]
    return {row["path"]: row["size"] for row in rows}


def read_live_paths(conn: Connection, table_id: int, paths: Sequence[str], *, has_vectors: bool) -> set[str]:
    """Which of these paths are files of the table now, also with deletion vectors if the table may have such files."""
    live: set[str] = set()
    for start in range(0, len(paths), _KEYS_PER_QUERY):
        page = paths[start : start + _KEYS_PER_QUERY]
        hashes = {key_hash(path, ""): path for path in page}
        keys = {f"key_{place}": hashed for place, hashed in enumerate(hashes)}
        text = named_queries()["select_live_keys"].replace(":key_hash", ", ".join(f":{name}" for name in keys))
        live |= {hashes[bytes(row["key_hash"])] for row in conn.sql(text, table_id=table_id, **keys)}
        if has_vectors:
            names = {f"path_{place}": to_sql_text(path) for place, path in enumerate(page)}
            text = named_queries()["select_live_paths_with_vectors"]
            text = text.replace(":path", ", ".join(f":{name}" for name in names))
            live |= {from_sql_text(row["path"]) for row in conn.sql(text, table_id=table_id, **names)}
    return live


def read_vector_copies(conn: Connection, table_id: int, keys: Sequence[str]) -> dict[str, VectorCopy]:
    """The copies of vectors by their keys, as far as there are any."""
    copies: dict[str, VectorCopy] = {}
    for start in range(0, len(keys), _KEYS_PER_QUERY):
        page = {f"k{place}": key for place, key in enumerate(keys[start : start + _KEYS_PER_QUERY])}
        text = (
            f"{named_queries()['select_iceberg_vectors']} and vector_key in ({', '.join(f':{name}' for name in page)})"
        )
        for row in conn.sql(text, table_id=table_id, **page):
            copies[row["vector_key"]] = VectorCopy(**row)
    return copies


def write_vector_copies(conn: Connection, table_id: int, copies: Sequence[VectorCopy]) -> set[str]:
    """Stores where vectors were copied to, and returns the keys of those that were copied before.

    Raises DuplicateRowError or LostRaceError, here or at the commit, if another process copies one meanwhile.
    """
    taken = set(read_vector_copies(conn, table_id, [copy.vector_key for copy in copies]))
    new = [copy for copy in copies if copy.vector_key not in taken]
    if new:
        columns = {name: [getattr(copy, name) for copy in new] for name in VectorCopy.__dataclass_fields__}
        conn.insert_few("dl_iceberg_vectors", {"table_id": [table_id] * len(new), **columns})
    return taken


def forget_vectors(conn: Connection, table_id: int, keys: Sequence[str]) -> None:
    """Removes the copies of vectors."""
    conn.run_many("delete_copied_vector", [{"table_id": table_id, "vector_key": key} for key in keys])
