"""Purge: deletes the files of dropped tables, at once or when they can no longer be undropped.

A drop records the location's state (`store/locations.py`) in its own SQL transaction. A purge marks the location, so
that the table can no longer be undropped, deletes the files and frees the location; after a crash the next purge
continues. A lease keeps two purges from deleting at once.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from deltalakedb.data.deletion_vectors import vector_file
from deltalakedb.exceptions import DeltaError, DeltaProtocolError, StorageError, TableNotFoundError, redact
from deltalakedb.files.log_folder import LOG_FOLDER
from deltalakedb.files.reader import FileTxnLogReader
from deltalakedb.log.protocol.codec import deletion_vector_from_json, from_sql_text
from deltalakedb.log.protocol.paths import decode_path, is_absolute
from deltalakedb.log.protocol.rows import metadata_from_row
from deltalakedb.mirror.bookkeeping import (
    PURGE_DELAY_SECONDS,
    last_table_row,
    new_holder,
    release_lease,
    renewed,
    take_lease,
)
from deltalakedb.mirror.notice import remove_notice
from deltalakedb.runtime.config import Config
from deltalakedb.runtime.steps import reached
from deltalakedb.storage.location import open_storage, parse_location
from deltalakedb.store import locations, registry
from deltalakedb.store.audit import write_audit
from deltalakedb.store.connection import LIVE, Connection, Store
from deltalakedb.store.iceberg import read_iceberg_version
from deltalakedb.store.locations import LocationRow
from deltalakedb.store.registry import TableRow

logger = logging.getLogger(__name__)

OWN_FOLDERS = ("_dldb", LOG_FOLDER)
"""The folders that we keep beside a table's data; the log is deleted last, so that it identifies what remains after a
crash."""

OptionsOf = Callable[[TableRow], Mapping[str, str] | None]


@dataclass(frozen=True, slots=True)
class _Cleared:
    """A location whose files are to be deleted, and its table; None if the table was never created."""

    place: LocationRow
    table: TableRow | None
    metadata_id: str | None
    delay_seconds: float = 0.0
    """How long a recent commit may still take to arrive in the files."""

    @property
    def lease(self) -> str:
        return f"purge:{self.place.table_uuid}"


def finish_purges(
    store: Store, options_of: OptionsOf, *, table_id: int | None = None, config: Config | None = None
) -> list[str]:
    """Delete the files that dropped tables left, of all tables or of one; return the names of the purged tables.

    Also frees the locations of tables that were given back to their users and are complete, or were never created.
    What cannot be deleted now is logged and retried by the next call. `config` says where Iceberg tables may have files
    outside of their locations.
    """
    with store.read() as conn:
        now_ms = conn.now_ms()
        rows = conn.all("select_locations_to_clear", now_ms=now_ms)
        released = [locations.to_location(row) for row in conn.all("select_left_locations", now_ms=now_ms)]
        dropped = [last_table_row(conn, place.table_id) for place in released if place.table_id is not None]
    if released and table_id is None:
        for last_row in dropped:
            if last_row is not None:
                remove_notice(last_row[0], options_of(last_row[0]))
        with store.write() as conn:
            for place in released:
                locations.release(conn, place.table_uuid)
    purged = []
    for place in map(locations.to_location, rows):
        if table_id not in (None, place.table_id):
            continue
        try:
            if _clear(store, place, options_of, config):
                purged.append(place.table_name)
        except DeltaError as error:
            name = place.table_name
            logger.warning("table %s is dropped, but not all of its files are deleted: %s", name, redact(str(error)))
    return purged


def _clear(store: Store, place: LocationRow, options_of: OptionsOf, config: Config | None) -> bool:
    """Delete the files of one location and free it; False if another process does, or the table was undropped."""
    holder = new_holder()
    with store.write() as conn:
        cleared = _begin(conn, place)
        if cleared is None or not take_lease(conn, cleared.lease, holder):
            return False
    reached("purge.begun")
    time.sleep(cleared.delay_seconds)
    try:
        with renewed(store, cleared.lease, holder):
            options = None if cleared.table is None else options_of(cleared.table)
            reason = _find_obstacle(store, cleared, options)
            if reason is None and cleared.table is not None and not cleared.table.is_delta:
                reason = _delete_iceberg(store, cleared.table, options, config)
            elif reason is None:
                _delete_files(store, cleared, options)
            if reason is not None:
                logger.warning("table %s was dropped, and its files are not deleted: %s", place.table_name, reason)
        reached("drop.purged")
        with store.write() as conn:
            locations.release(conn, place.table_uuid)
            details = {"location": place.location} | ({"left_alone": reason} if reason else {})
            write_audit(conn, action="purge", at_ms=conn.now_ms(), table=cleared.table, details=details)
    finally:
        with store.write() as conn:
            release_lease(conn, cleared.lease, holder)
    return True


def _delete_files(store: Store, cleared: _Cleared, options: Mapping[str, str] | None) -> None:
    """Delete the whole folder if the catalog owns it; else only the log and the files that it names."""
    place = cleared.place
    # A folder that the catalog chose belongs to the user once the table was detached.
    owner = place.files_owner if cleared.table is None else cleared.table.files_owner
    if owner == "catalog":
        _delete_table(place.location, options)
        return
    with store.read() as conn:
        rows = conn.all("select_named_files", table_id=place.table_id)
    paths = {from_sql_text(row["path"]) for row in rows}
    vectors = {row["deletion_vector"] for row in rows if row["deletion_vector"] is not None}
    paths |= {path for text in vectors if (path := vector_file(deletion_vector_from_json(text))) is not None}
    relative_paths = [decode_path(path) for path in paths if not is_absolute(path)]
    _delete_named_files(place.location, relative_paths, options)


def _delete_iceberg(
    store: Store, table: TableRow, options: Mapping[str, str] | None, config: Config | None
) -> str | None:
    """Delete the files of an Iceberg table or view; return why they are left alone, if they are."""
    from deltalakedb.iceberg.purge import IcebergPurge

    purge = IcebergPurge(store, table, options, config)
    if purge.is_protected:
        return "its property gc.enabled is false"
    is_ours = table.files_owner == "catalog"
    if purge.has_other_places or not is_ours:
        with _deleting():
            purge.delete_reachable()
    if is_ours:
        _delete_table(table.location, options)
    return None


def _delete_table(location: str, options: Mapping[str, str] | None) -> None:
    """Delete a table's folder with all its content; missing files are no error."""
    if not parse_location(location, options).path.strip("/"):
        raise DeltaError(f"{redact(location)} is a whole disk or bucket: it is not purged; delete the files yourself")
    storage = open_storage(location, options)
    with _deleting():
        storage.delete_folder("", keep=LOG_FOLDER)
        reached("drop.data_deleted")
        storage.delete_folder(LOG_FOLDER)
        storage.delete_empty_folders()
        # Object stores may list markers of folders that cannot be deleted by their names.
        if not storage.is_remote and next(storage.walk(), None) is not None:
            raise StorageError(f"cannot delete {storage.location}: other files were written there meanwhile")


def _delete_named_files(location: str, paths: Iterable[str], options: Mapping[str, str] | None) -> None:
    """Delete some files below a table's location, then its log; everything else in the folder stays."""
    storage = open_storage(location, options)
    with _deleting():
        storage.delete(*paths)
        reached("drop.data_deleted")
        for folder in OWN_FOLDERS:
            storage.delete_folder(folder)
        storage.delete_empty_folders()


@contextmanager
def _deleting() -> Iterator[None]:
    try:
        yield
    except StorageError as error:
        raise DeltaError(
            f"{error.what}; `dl mirror once` tries again, or delete by hand what is left"
        ) from error.__cause__


def _begin(conn: Connection, place: LocationRow) -> _Cleared | None:
    """Mark the table, so that it can no longer be undropped, mirrored or opened; None if it was undropped."""
    head = None if place.table_id is None else registry.lock_head(conn, place.table_id)
    if not conn.run("clear_location", table_uuid=place.table_uuid, now_ms=conn.now_ms()):
        return None
    if place.table_id is None:
        return _Cleared(place, None, None)
    last_row = last_table_row(conn, place.table_id)
    delay_seconds = 0.0
    if head is not None:
        if head.mirrored_version < head.current_version:
            age_seconds = (conn.now_ms() - head.last_commit_ms) / 1000
            delay_seconds = min(max(0.0, PURGE_DELAY_SECONDS - age_seconds), PURGE_DELAY_SECONDS)
        # Mark all as mirrored: otherwise the mirror would write the commits into a folder that is deleted.
        conn.run("mark_mirrored", table_id=place.table_id, version=head.current_version)
        conn.run("mark_vacuumed", table_id=place.table_id, version=LIVE)
    row = conn.one("select_metadata", table_id=place.table_id, version=LIVE)
    metadata_id = metadata_from_row(row).id if row else None
    if head is not None and last_row is not None and last_row[0].mode == registry.ICEBERG:
        # The id of its mirror, if it has one.
        version = read_iceberg_version(conn, place.table_id, head.current_version, snapshots=())
        metadata_id = version.metadata["table-uuid"]
    return _Cleared(place, last_row[0] if last_row else None, metadata_id, delay_seconds)


def _find_obstacle(store: Store, cleared: _Cleared, options: Mapping[str, str] | None) -> str | None:
    """Why the files must not be deleted; None if they may be."""
    place = cleared.place
    with store.read() as conn:
        owners = [
            row.full_name
            for row in registry.list_tables(conn)
            if f"{row.location}/".startswith(f"{place.location.rstrip('/')}/")
        ]
    if owners:
        return f"{', '.join(owners)} lies there now"
    reader = FileTxnLogReader(place.location, options, table=place.table_name)
    try:
        metadata_id = reader.snapshot().metadata.id
    except TableNotFoundError:
        return None  # the log is deleted last: at most an empty folder is left
    except DeltaProtocolError:
        if cleared.table is None or _only_log_left(reader):
            return None
        return "its log cannot be read, so whose files they are is not known"
    return None if metadata_id == cleared.metadata_id else f"another table is there now (metaData.id {metadata_id})"


def _only_log_left(reader: FileTxnLogReader) -> bool:
    folder = reader.storage.list("")
    return not folder.files and set(folder.folders) <= {"_delta_log"}
