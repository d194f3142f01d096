"""TransactionBlock: the life of a transaction over many tables, from the cut it pins to its commit or rollback."""

from __future__ import annotations

import logging
import threading
import uuid
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from deltalakedb.exceptions import DeltaError, OutcomeUnknownError, StoreError, redact
from deltalakedb.names import TableName, parse_table_name
from deltalakedb.operations.written_files import WrittenFiles
from deltalakedb.registered import require_table
from deltalakedb.transactions.commit import commit_drafts
from deltalakedb.transactions.drafts import Drafts
from deltalakedb.transactions.intent_locks import IntentLocks
from deltalakedb.transactions.life import TransactionLife
from deltalakedb.transactions.places import release_places

if TYPE_CHECKING:
    from deltalakedb.catalog import Catalog

logger = logging.getLogger(__name__)


class TransactionBlock(TransactionLife):
    """What every transaction of Python has: a cut of the catalog, drafts of tables, the files it wrote, locks."""

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
        # Whoever knows the id can ask what became of it, or see to it that nothing does: `transactions/settle.py`.
        self._token = self.txn_id
        self._catalog = catalog
        self._owns_catalog = owns_catalog
        self._busy = threading.Lock()
        self._written = WrittenFiles()
        locked = [parse_table_name(name) for name in lock or ()]
        only = None if tables is None else [*map(parse_table_name, tables), *locked]
        # Before the cut: what is claimed is seen as nobody will change it any more.
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
        """The catalog it was begun in."""
        return self._catalog

    @property
    def is_open(self) -> bool:
        """Whether it takes statements."""
        return self._state == "open"

    @property
    def is_undecided(self) -> bool:
        """Whether a commit was tried whose outcome nobody knows yet; `commit()` again tells."""
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
        """Whether a name is that of the table with this id; from now on the table is meant, whatever it is called."""
        with self._statement():
            draft = self._drafts.find(parse_table_name(table))
            if draft is None or draft.pinned.table_id != table_id:
                return False
            draft.by_id = True
            return True

    def use_options(self, table: str, storage_options: Mapping[str, str] | None) -> None:
        """Storage options for a table's files, for the rest of the transaction."""
        with self._statement():
            self._drafts.get(table).use_options(storage_options)

    # -- the end

    def commit(self) -> dict[str, int]:
        """Make all of it true, in one SQL transaction; the last version of each table.

        After a StoreError the outcome may be unknown: commit() again finds out, it never commits twice.
        """
        self._check_can_end()
        if not self._busy.acquire(blocking=False):
            raise self._two_threads()
        try:
            # Until the database has answered, nobody can say what has become of it.
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
        """Give it up: nothing of it becomes true. Data files it has written are removed, as far as that can be done."""
        self._check_can_end()
        if self._state == "unknown":
            self._written.forget()  # they may be part of a version, and reserved locations of tables that exist
            self._drafts.reserved.clear()
        self._state = "rolled back"
        self._remove_all_files()
        self._release()

    def _remove_all_files(self) -> None:
        if self._written.remove():
            # Files are left in folders of tables that never were: upkeep deletes them when the reservations are over.
            self._drafts.reserved.clear()

    def _remove_files_of_dropped(self) -> None:
        """What was created and dropped again is no part of any version, unless another table of ours names it."""
        gone = {draft.row.table_uuid for draft in self._drafts.used if draft.is_new and draft.dropped}
        if gone:
            live = [draft for draft in self._drafts.used if draft.row.table_uuid not in gone]
            self._written.remove(gone, kept={named for draft in live for named in draft.named_files()})

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
        # A transaction that is forgotten, neither committed nor rolled back, must not keep its claims for ever.
        weakref.finalize(self, locks.release)
        return locks

    def _release(self) -> None:
        if self._locks is not None:
            self._locks.release()
        self._release_places()
        if self._owns_catalog:
            self._catalog.close()

    def _release_places(self) -> None:
        """New tables that did not come to be do not keep their locations. A database that is gone lets them expire."""
        created = (
            {d.row.table_uuid for d in self._drafts.used if not d.dropped} if self._state == "committed" else set()
        )
        unused = [] if self._state == "unknown" else [one for one in self._drafts.reserved if one not in created]
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
