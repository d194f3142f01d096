"""The manifests and manifest lists of Delta tables in SQL: what was written for Iceberg clients of each version."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Literal, TypeAlias

from deltalakedb.store.connection import Connection
from deltalakedb.store.registry import lock_head

Content: TypeAlias = Literal["data", "deletes"]


@dataclass(frozen=True, slots=True)
class ManifestRow:
    """A manifest: the files of one content with ids in a range that are live in its version."""

    manifest_id: int
    version: int
    removed_version: int
    manifest_path: str
    manifest_content: Content
    manifest_length: int
    spec_id: int
    snapshot_id: int
    first_file_id: int
    last_file_id: int
    num_added: int
    rows_added: int
    num_existing: int
    rows_existing: int
    min_sequence_number: int
    first_row_id: int | None
    partitions: bytes | None

    @property
    def num_files(self) -> int:
        return self.num_added + self.num_existing


@dataclass(frozen=True, slots=True)
class NewestList:
    """The newest list of a table, from which the next one is made."""

    version: int | None
    manifests: Sequence[ManifestRow]
    last_manifest_id: int


def read_lists(conn: Connection, table_id: int) -> dict[int, str | None]:
    """The paths of the lists by version; None for a version that clients are not told of."""
    return {row["version"]: row["list_path"] for row in conn.all("select_delta_lists", table_id=table_id)}


def read_newest_listed_version(conn: Connection, table_id: int) -> int | None:
    """The newest version that has a list; None if no version has one."""
    row = conn.one("select_newest_delta_list", table_id=table_id)
    assert row is not None, "it has aggregates only"
    version: int | None = row["version"]
    return version


def read_newest_list(conn: Connection, table_id: int) -> NewestList:
    row = conn.one("select_newest_delta_list", table_id=table_id)
    assert row is not None, "it has aggregates only"
    rows = conn.all("select_delta_manifests", table_id=table_id)
    manifests = [ManifestRow(**item) for item in rows]
    return NewestList(row["version"], manifests, row["manifest_id"])


def write_lists(
    conn: Connection,
    table_id: int,
    lists: Mapping[int, str | None],
    manifests: Sequence[ManifestRow],
    closed: Mapping[int, int],
) -> None:
    """Stores lists by version, new manifests, and since which version older ones are gone, by their ids.

    Raises DuplicateRowError or LostRaceError, here or at the commit, if another process has written such lists.
    """
    lists_columns: dict[str, list[object]] = {
        "table_id": [table_id] * len(lists),
        "version": list(lists),
        "list_path": list(lists.values()),
    }
    if manifests:
        columns = {item.name: [getattr(row, item.name) for row in manifests] for item in fields(ManifestRow)}
        conn.insert_few("dl_iceberg_delta_manifests", {"table_id": [table_id] * len(manifests), **columns})
    conn.insert_few("dl_iceberg_delta_lists", lists_columns)
    rows = [{"table_id": table_id, "manifest_id": key, "version": version} for key, version in closed.items()]
    conn.run_many("close_delta_manifest", rows)


def is_history_unchanged(conn: Connection, table_id: int, *, base: int, commit_times: Mapping[int, int]) -> bool:
    """Whether SQL still has these versions, by the times they were committed at, and all rows since `base`.

    The head stays locked: until the transaction ends, no version is taken back.
    """
    head = lock_head(conn, table_id)
    if head is None or head.base_version > base:
        return False
    for version, committed_at_ms in commit_times.items():
        row = conn.one("select_version", table_id=table_id, version=version)
        if row is None or row["committed_at_ms"] != committed_at_ms:
            return False
    return True


def has_lists(conn: Connection, table_id: int) -> bool:
    return conn.one("select_any_delta_list", table_id=table_id) is not None


def forget_old_lists(conn: Connection, table_id: int, first_kept: int) -> None:
    """Removes the lists of versions before the first kept one, but never the newest, and manifests without a list."""
    conn.run("delete_old_delta_lists", table_id=table_id, version=first_kept)
    conn.run("delete_old_delta_manifests", table_id=table_id)


def forget_all_lists(conn: Connection, table_id: int) -> None:
    """Removes all lists, manifests and copies of vectors of a table, which are then made anew."""
    lock_head(conn, table_id)  # a process that goes on from the newest list holds this lock when it stores its own
    for query in ("delete_dropped_delta_lists", "delete_dropped_delta_manifests", "delete_dropped_vectors"):
        conn.run(query, table_id=table_id)


def kept_files(conn: Connection, table_id: int) -> list[str]:
    """The paths of all lists, manifests and copies of vectors."""
    return [row["file_path"] for row in conn.all("select_kept_delta_files", table_id=table_id)]
