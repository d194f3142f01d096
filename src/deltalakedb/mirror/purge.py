"""Purge: deletes the files of tables that were dropped with their files, after the drop is committed, crash or not.

The drop leaves a note (a lease that never ends) in its own SQL transaction. Whoever finds one deletes what it names,
once he has made sure that nobody else has put a table there since, and takes the note away.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from deltalakedb.exceptions import DeltaError, DeltaProtocolError, TableNotFoundError, redact
from deltalakedb.files.delete import delete_table
from deltalakedb.files.reader import FileTxnLogReader
from deltalakedb.mirror.bookkeeping import last_table_row
from deltalakedb.steps import reached
from deltalakedb.store import registry
from deltalakedb.store.audit import write_audit
from deltalakedb.store.connection import Connection, Store
from deltalakedb.store.registry import TableRow

logger = logging.getLogger(__name__)

OptionsOf = Callable[[TableRow], Mapping[str, str] | None]


@dataclass(frozen=True, slots=True)
class PurgeNote:
    """What is left to be deleted of a dropped table."""

    table: TableRow
    location: str
    metadata_id: str
    lease: str
    holder: str


def finish_purges(store: Store, options_of: OptionsOf, *, table_id: int | None = None) -> list[str]:
    """Delete what dropped tables left to be deleted, or one of them; the names of those that are done.

    What cannot be deleted now is said, and tried again by the next who calls.
    """
    with store.read() as conn:
        notes = [note for note in _notes(conn) if table_id in (None, note.table.table_id)]
    done = []
    for note in notes:
        try:
            _finish(store, note, options_of(note.table))
        except DeltaError as error:
            name = note.table.full_name
            logger.warning("table %s is dropped, but not all of its files are deleted: %s", name, redact(str(error)))
            continue
        done.append(note.table.full_name)
    return done


def _notes(conn: Connection) -> list[PurgeNote]:
    notes = []
    for row in conn.all("select_purges"):
        told = json.loads(row["holder"])
        found = last_table_row(conn, int(row["lease"].partition(":")[2]))
        if found is not None:
            notes.append(PurgeNote(found[0], told["location"], told["metadata_id"], row["lease"], row["holder"]))
    return notes


def _finish(store: Store, note: PurgeNote, options: Mapping[str, str] | None) -> None:
    reason = _why_not(store, note, options)
    if reason is None:
        with store.write() as conn:
            # Nothing is left to be mirrored: it would come back, file by file, into a folder that is gone.
            head = registry.read_head(conn, note.table.table_id)
            if head is not None:
                conn.run("mark_mirrored", table_id=note.table.table_id, version=head.current_version)
        delete_table(note.location, options)
    else:
        logger.warning("table %s was dropped, and its files are not deleted: %s", note.table.full_name, reason)
    reached("drop.purged")
    with store.write() as conn:
        if not conn.run("release_lease", lease=note.lease, holder=note.holder):
            return  # somebody else was faster
        details = {"location": note.location} | ({"left_alone": reason} if reason else {})
        write_audit(conn, action="purge", at_ms=conn.now_ms(), table=note.table, details=details)


def _why_not(store: Store, note: PurgeNote, options: Mapping[str, str] | None) -> str | None:
    """Why the files are no longer ours to delete; None when they are."""
    with store.read() as conn:
        owners = [
            row.full_name
            for row in registry.list_tables(conn)
            if f"{row.location}/".startswith(f"{note.location.rstrip('/')}/")
        ]
    if owners:
        return f"{', '.join(owners)} lies there now"
    reader = FileTxnLogReader(note.location, options, table=note.table.full_name)
    try:
        found = reader.snapshot().metadata.id
    except TableNotFoundError:
        return None  # the log goes last: at most an empty folder is left
    except DeltaProtocolError:
        return None if _only_log_left(reader) else "its log cannot be read, so whose files they are is not known"
    return None if found == note.metadata_id else f"another table is there now (metaData.id {found})"


def _only_log_left(reader: FileTxnLogReader) -> bool:
    folder = reader.storage.folder("")
    return not folder.files and set(folder.folders) <= {"_delta_log"}
