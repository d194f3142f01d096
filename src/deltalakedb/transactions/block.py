"""TransactionBlock: a transaction over many tables, from pinning its cut to its commit or rollback."""

from __future__ import annotations

import logging
import threading
import uuid
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from deltalakedb.catalog.entries import require_table
from deltalakedb.exceptions import DeltaError, OutcomeUnknownError, StoreError, redact
from deltalakedb.operations.written_files import WrittenFiles
from deltalakedb.store.names import TableName, parse_table_name
from deltalakedb.transactions.commit import commit_drafts
from deltalakedb.transactions.drafts import Drafts
from deltalakedb.transactions.intent_locks import IntentLocks
from deltalakedb.transactions.life import TransactionLife
from deltalakedb.transactions.places import release_places

if TYPE_CHECKING:
    from deltalakedb.catalog.catalog import Catalog
    from deltalakedb.store.snapshot import SqlSnapshot

logger = logging.getLogger(__name__)


class TransactionBlock(TransactionLife):
    """What every Python transaction has: a cut of the catalog, drafts of tables, the files it wrote, locks."""

    def __init__(
        self,
        catalog: Catalog,
        *,
        message: str | None = None,
        lock: Sequence[str] | None = None,
        tables: Sequence[str] | None = None,
        owns_catalog: bool = False,
    ) -> None:
        super().__init__(str(uuid.uuid4()), message)
        # With the id, another process can find the outcome or prevent the commit: `transactions/settle.py`.
        self._token = self.txn_id
        self._catalog = catalog
        self._owns_catalog = owns_catalog
        self._busy = threading.Lock()
        self._written = WrittenFiles()
        locked = [parse_table_name(name) for name in lock or ()]
        only = None if tables is None else [*map(parse_table_name, tables), *locked]
        # Lock before pinning the cut, so that the pinned state of locked tables cannot become outdated.
        self._locks = self._take_locks(locked)
        try:
            self._drafts = Drafts(catalog, only)
        except BaseException:
            if self._locks is not None:
                self._locks.release()
            if owns_catalog:
                catalog.close()
            raise

    @property
    def catalog(self) -> Catalog:
        """The catalog of the transaction."""
        return self._catalog

    @property
    def is_open(self) -> bool:
        """Whether the transaction accepts statements."""
        return self._state == "open"

    @property
    def is_undecided(self) -> bool:
        """Whether a commit was tried whose outcome is unknown; call `commit()` again to find out."""
        return self._state == "unknown"

    @contextmanager
    def _statement(self) -> Iterator[None]:
        if not self._busy.acquire(blocking=False):
            raise self._two_threads()
        try:
            self._check_open()
            with self._written.of_statement():
                yield
        finally:
            self._busy.release()

    def is_about(self, table: str, table_id: int) -> bool:
        """Return whether a name belongs to the table with this id; if so, it is from now on identified by its id."""
        with self._statement():
            draft = self._drafts.find(parse_table_name(table))
            if draft is None or draft.pinned.table_id != table_id:
                return False
            draft.by_id = True
            return True

    def use_options(self, table: str, storage_options: Mapping[str, str] | None) -> None:
        """Set storage options for a table's files, for the rest of the transaction."""
        with self._statement():
            self._drafts.get(table).use_options(storage_options)

    def go_on_from(self, table: str, snapshot: SqlSnapshot) -> None:
        """Base the changes of a table on an older version; commits since then count as concurrent, and may conflict.

        Ignored for a table that is not managed yet: its first write promotes it, which needs its newest version.
        """
        with self._statement():
            draft = self._drafts.get(table)
            is_older = draft.base is not None and snapshot.version < draft.base.version
            if is_older and draft.pinned.mode == "managed":
                draft.base = snapshot

    # -- commit and rollback

    def commit(self) -> dict[str, int]:
        """Commit everything in one SQL transaction; return the last version of each table.

        After a StoreError the outcome may be unknown: call commit() again to find out. It never commits twice.
        """
        self._check_can_end()
        if not self._busy.acquire(blocking=False):
            raise self._two_threads()
        try:
            # The outcome is unknown until the database has answered.
            self._state = "unknown"
            outcome = commit_drafts(
                self._catalog,
                self._drafts.used,
                txn_id=self.txn_id,
                token=self._token,
                message=self.message,
                absent=self._drafts.absent,
                listed=self._drafts.listed,
            )
            self.result = {} if outcome is None else outcome.versions
            self._state = "committed"
            self._remove_files_of_dropped()
            self._written.forget()
        except (StoreError, OutcomeUnknownError):
            raise
        except DeltaError:
            self._state = "failed"
            self._remove_all_files()
            raise
        finally:
            self._busy.release()
            if self._state != "unknown":
                self._release()
        return self.result

    def rollback(self) -> None:
        """Give up all changes. Data files that the transaction wrote are deleted as far as possible."""
        self._check_can_end()
        if self._state == "unknown":
            self._written.forget()  # the files may belong to a version, and the reserved locations to tables
            self._drafts.reserved.clear()
        self._state = "rolled back"
        self._remove_all_files()
        self._release()

    def _remove_all_files(self) -> None:
        if self._written.remove():
            # Some files of new tables are left. Upkeep deletes them when the reservations expire: do not release these.
            self._drafts.reserved.clear()

    def _remove_files_of_dropped(self) -> None:
        """Delete the files of tables that were created and dropped again, unless another of our tables uses them."""
        dropped_uuids = {draft.row.table_uuid for draft in self._drafts.used if draft.is_new and draft.dropped}
        if dropped_uuids:
            live = [draft for draft in self._drafts.used if draft.row.table_uuid not in dropped_uuids]
            self._written.remove(dropped_uuids, kept={file for draft in live for file in draft.named_files()})

    def _give_up(self, error: BaseException) -> None:
        del error
        self.rollback()

    def _take_locks(self, names: Sequence[TableName]) -> IntentLocks | None:
        if not names:
            return None
        with self._catalog.store.read() as conn:
            rows = [require_table(conn, name) for name in names]
        locks = IntentLocks(self._catalog.store, list({row.table_id: row for row in rows}.values()), self.txn_id)
        locks.take(self._catalog.config.concurrency_lock_timeout)
        # A transaction that is neither committed nor rolled back must not hold its locks until the process ends.
        weakref.finalize(self, locks.release)
        return locks

    def _release(self) -> None:
        if self._locks is not None:
            self._locks.release()
        self._release_places()
        if self._owns_catalog:
            self._catalog.close()

    def _release_places(self) -> None:
        """Release the locations of new tables that were not created. If the database is unreachable, they expire."""
        created = (
            {d.row.table_uuid for d in self._drafts.used if not d.dropped} if self._state == "committed" else set()
        )
        unused = (
            []
            if self._state == "unknown"
            else [table_uuid for table_uuid in self._drafts.reserved if table_uuid not in created]
        )
        try:
            release_places(self._catalog, unused)
        except DeltaError as error:
            logger.warning(
                "reserved locations of transaction %s are left to expire: %s", self.txn_id, redact(str(error))
            )

    def _two_threads(self) -> DeltaError:
        return DeltaError(
            f"transaction {self.txn_id} is used by two threads at once; give each thread a transaction of its own"
        )
