"""Removes the files that were made for Iceberg clients of a Delta table and are needed no more."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from deltalakedb.iceberg.delta.delta_snapshots import FOLDER
from deltalakedb.log.protocol.codec import deletion_vector_from_json, from_sql_text, key_hash
from deltalakedb.storage.location import open_storage
from deltalakedb.store.delta_manifests import forget_all_lists, forget_old_lists, has_lists, kept_files
from deltalakedb.store.iceberg_delta import forget_vectors
from deltalakedb.store.registry import read_head

if TYPE_CHECKING:
    from deltalakedb.storage.interface import ListedFile
    from deltalakedb.store.connection import Connection, Store
    from deltalakedb.store.registry import TableRow

logger = logging.getLogger(__name__)

GRACE_MS: Final = 24 * 3_600_000
"""How long a client may work with what it was told of a table."""

_METADATA: Final = ".metadata.json"


def clean_up(
    store: Store, table: TableRow, options: Mapping[str, str] | None, *, now_ms: int, grace_ms: int = GRACE_MS
) -> int:
    """Delete what no kept version needs, unless a client may have been told of it lately; return how many files.

    If files are missing, all are forgotten, so that they are written anew when a client asks for the table.
    """
    with store.read() as conn:
        head = read_head(conn, table.table_id)
        if head is None or not has_lists(conn, table.table_id):
            return 0
        newest_then = _newest_at(conn, table.table_id, now_ms - grace_ms)
    first_kept = min(max(head.vacuumed_version, head.base_version), newest_then)
    with store.write() as conn:
        forget_old_lists(conn, table.table_id, first_kept)
        forget_vectors(conn, table.table_id, _forgotten_vectors(conn, table.table_id, first_kept))
    kept, files = _kept_and_present(store, table, options)
    if kept - {_name(file.path) for file in files}:
        logger.warning("%s: files for Iceberg clients are lost, and all are made anew", table.full_name)
        with store.write() as conn:
            forget_all_lists(conn, table.table_id)
        return 0
    unneeded = [
        file.path
        for file in files
        if file.modified_ms < now_ms - grace_ms and not _is_kept(_name(file.path), kept, newest_then)
    ]
    open_storage(table.location, options).delete(*unneeded, with_checksums=False)
    return len(unneeded)


def lost_files(store: Store, table: TableRow, options: Mapping[str, str] | None) -> list[str]:
    """The names of files that Iceberg clients are told of and that are not there any more."""
    kept, files = _kept_and_present(store, table, options)
    return sorted(kept - {_name(file.path) for file in files})


def _kept_and_present(
    store: Store, table: TableRow, options: Mapping[str, str] | None
) -> tuple[set[str], Sequence[ListedFile]]:
    """The names of the files that are needed by SQL, and then the files that there are."""
    with store.read() as conn:
        kept = {_name(path) for path in kept_files(conn, table.table_id)}
    return kept, open_storage(table.location, options).list(FOLDER).files


def _name(path: str) -> str:
    return path.rpartition("/")[2]


def _newest_at(conn: Connection, table_id: int, at_ms: int) -> int:
    """The version that was the newest at a time; 0 if the history begins later."""
    row = conn.one("select_version_at", table_id=table_id, at_ms=at_ms)
    return 0 if row is None else int(row["version"])


def _forgotten_vectors(conn: Connection, table_id: int, first_kept: int) -> list[str]:
    """The keys of copied vectors that no kept version has."""
    copied = {row["vector_key"] for row in conn.all("select_iceberg_vectors", table_id=table_id)}
    if copied:
        for row in conn.all("select_files_with_vectors", table_id=table_id, version=first_kept):
            vector = deletion_vector_from_json(from_sql_text(row["deletion_vector"]))
            copied.discard(key_hash(row["path"], vector.unique_id).hex())
    return list(copied)


def _is_kept(name: str, kept: set[str], newest_then: int) -> bool:
    """Whether a file is needed: by SQL, or as the metadata of a version that a client may have been told of."""
    if name.endswith(_METADATA):
        version = name.partition("-")[0]
        return version.isdigit() and int(version) >= newest_then
    return name in kept
