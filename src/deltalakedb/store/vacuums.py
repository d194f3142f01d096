"""Vacuums as recorded in a table's head: versions that may have lost files, and whether files are being deleted now.

A vacuum raises `vacuumed_version` and makes `vacuum_count` odd before it deletes anything; the count becomes even when
the table's last vacuum has ended. Each vacuum has a lease, which distinguishes running vacuums from those whose process
died. If a process died, the count stays odd until the next vacuum ends.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache

from deltalakedb.exceptions import FilesVacuumedError, TableNotFoundError, redact
from deltalakedb.log.protocol.actions import AddFile
from deltalakedb.log.protocol.codec import key_hash
from deltalakedb.store.connection import LIVE, Connection, Store
from deltalakedb.store.proposals import TableProposal
from deltalakedb.store.queries import named_queries
from deltalakedb.store.registry import Head, TableRow, lock_head

PURGED = LIVE
"""`vacuumed_version` of a table whose files were all deleted."""

_KEYS_AT_ONCE = 500


def begin_vacuum(store: Store, table_id: int, vacuum_id: str, *, oldest_kept: int, lease_ms: int) -> None:
    """Records that files of versions below `oldest_kept` are about to be deleted. Must come before any deletion."""
    with store.write() as conn:
        head = lock_head(conn, table_id)
        if head is None:
            raise TableNotFoundError(f"the table {table_id} is not in the database any more; nothing was deleted")
        count = head.vacuum_count + (2 if head.vacuum_count % 2 else 1)
        _set_marks(conn, replace(head, vacuumed_version=max(head.vacuumed_version, oldest_kept), vacuum_count=count))
        now_ms = conn.now_ms()
        lease = {"lease": f"{_prefix(table_id)}{vacuum_id}", "holder": vacuum_id, "until_ms": now_ms + lease_ms}
        conn.run("take_lease", **lease, now_ms=now_ms)


def renew_vacuum(store: Store, table_id: int, vacuum_id: str, *, lease_ms: int) -> bool:
    """Extends a vacuum's lease; returns False if it has expired, and others may assume that the vacuum is over."""
    lease = f"{_prefix(table_id)}{vacuum_id}"
    with store.write() as conn:
        lock_head(conn, table_id)
        now_ms = conn.now_ms()
        row = conn.one("select_lease", lease=lease)
        if row is None or row["until_ms"] <= now_ms:
            return False
        conn.run("renew_lease", lease=lease, holder=vacuum_id, until_ms=now_ms + lease_ms)
    return True


def end_vacuum(store: Store, table_id: int, vacuum_id: str | None) -> None:
    """Records that a vacuum has deleted its last file; None ends no vacuum, but clears the mark if all others expired.

    `vacuum_id` may be a prefix: then the newest match ends, because an older one may have died long ago.
    """
    with store.write() as conn:
        head = lock_head(conn, table_id)
        first_lease, after_lease = _prefix(table_id), _after(table_id)
        running = conn.all("select_vacuums", first_lease=first_lease, after_lease=after_lease)
        ended = next((row for row in reversed(running) if vacuum_id and row["holder"].startswith(vacuum_id)), None)
        if ended is not None:
            conn.run("release_lease", lease=ended["lease"], holder=ended["holder"])
        now_ms = conn.now_ms()
        others = [row for row in running if row is not ended and row["until_ms"] > now_ms]
        if head is not None and head.vacuum_count % 2 and not others:
            _set_marks(conn, replace(head, vacuum_count=head.vacuum_count + 1))


def newest_removal_before(store: Store, table_id: int, before_ms: int) -> int:
    """The newest version that removed a file before an instant; 0 if there is none."""
    with store.read(single=True) as conn:
        row = conn.one("select_newest_removal_before", table_id=table_id, before_ms=before_ms)
    return int(row["version"]) if row else 0


def is_quiet(head: Head, proposal: TableProposal) -> bool:
    """Whether no vacuum has begun or ended since the proposal was pinned, and none is deleting now."""
    if head.vacuumed_version == 0:
        return True
    return head.vacuum_count == proposal.vacuum_count and head.vacuum_count % 2 == 0


def check_vacuumed(conn: Connection, head: Head, proposal: TableProposal) -> None:
    """Raises if the commit adds a file that a vacuum has deleted since the commit was prepared, or is deleting now.

    A commit's files are looked up after the head was pinned, so if no vacuum has begun or ended since then, nothing
    needs to be checked.
    """
    if is_quiet(head, proposal):
        return
    for commit in proposal.commits:
        if commit.restores is not None and commit.restores < head.base_version:
            raise _forgotten(proposal.table, head, commit.restores)
    adds = {
        key_hash(action.path, action.dv_id): action.path
        for commit in proposal.commits
        for action in commit.actions
        if isinstance(action, AddFile)
    }
    for keys in _chunks(list(adds)):
        key_parameters = {f"key_{number}": key for number, key in enumerate(keys)}
        ids = {"table_id": head.table_id, "vacuumed_version": head.vacuumed_version}
        for row in conn.sql(_keys_query(len(keys)), **ids, **key_parameters):
            raise _vacuumed(proposal.table, head, adds[bytes(row["key_hash"])], row["removed_version"])


def check_not_purged(table: TableRow, head: Head) -> None:
    """Raises FilesVacuumedError for a table whose files were purged."""
    if head.vacuumed_version == PURGED:
        raise purged(table.full_name, head.current_version)


def purged(table: str, version: int) -> FilesVacuumedError:
    """The error for reading a version of a table whose files were purged."""
    return FilesVacuumedError(
        f"table {table}: version {version} cannot be read: the table was dropped and its files were purged",
        table=table,
        version=version,
    )


def _set_marks(conn: Connection, head: Head) -> None:
    marks = {"vacuumed_version": head.vacuumed_version, "vacuum_count": head.vacuum_count}
    conn.run("set_vacuum_marks", table_id=head.table_id, **marks)


def _prefix(table_id: int) -> str:
    return f"vacuum:{table_id}:"


def _after(table_id: int) -> str:
    """A text that sorts after every text with the prefix: `;` follows `:`."""
    return f"vacuum:{table_id};"


def _chunks(keys: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
    for start in range(0, len(keys), _KEYS_AT_ONCE):
        yield keys[start : start + _KEYS_AT_ONCE]


@lru_cache(maxsize=32)
def _keys_query(count: int) -> str:
    keys = ", ".join(f":key_{number}" for number in range(count))
    return named_queries()["select_vacuumed_keys"].replace(":key_hash", keys)


def _forgotten(table: TableRow, head: Head, version: int) -> FilesVacuumedError:
    return FilesVacuumedError(
        f"table {table.full_name}: this transaction restores version {version}. Meanwhile `dl gc` has removed it and a "
        "vacuum ran, so it cannot be checked any more whether its files are there. Nothing was committed. Versions "
        f"from {head.base_version} on can be restored.",
        table=table.full_name,
        version=version,
    )


def _vacuumed(table: TableRow, head: Head, path: str, removed_version: int) -> FilesVacuumedError:
    advice = (
        "Wait until the vacuum has ended (if its process died, run another one a minute later), then repeat"
        if head.vacuum_count % 2
        else "Repeat"
    )
    return FilesVacuumedError(
        f"table {table.full_name}: version {removed_version} removed {redact(path)}, which this transaction adds "
        f"again. Since it began, a vacuum deletes files of versions below {head.vacuumed_version}. Nothing was "
        f"committed. {advice} the statement: it then finds the files that are left. Versions from "
        f"{head.vacuumed_version} on have all of theirs.",
        table=table.full_name,
        version=removed_version,
        path=path,
    )
