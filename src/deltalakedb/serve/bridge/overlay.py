"""The overlay: `_dldb` has Spark's own checkpoints and checksums, ours for Spark, and folders of its transactions."""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterable

from deltalakedb.catalog.catalog import Catalog
from deltalakedb.exceptions import DeltaError, StoreError, redact
from deltalakedb.files.cleanup import DAY_MS, retention_ms
from deltalakedb.files.optional_files import Checksum
from deltalakedb.files.writer import FileTxnLogWriter
from deltalakedb.log.checks.properties import deleted_file_retention_ms
from deltalakedb.log.protocol.actions import CommitInfo
from deltalakedb.log.protocol.completion import has_in_commit_timestamps
from deltalakedb.log.protocol.rows import metadata_from_row, protocol_from_row
from deltalakedb.mirror.checkpoints import totals_at
from deltalakedb.storage.location import open_storage
from deltalakedb.store import registry
from deltalakedb.store.reader import SqlTxnLogReader
from deltalakedb.store.registry import Head, TableRow

OVERLAY = "_dldb"
LOG = f"{OVERLAY}/log"
MANY_COMMITS = 100
"""From this many commits without a checkpoint on, one is written for Spark, which reads it faster."""


class Overlay:
    """Provides checkpoints where Spark needs them, without our fence in them."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._locks: defaultdict[int, threading.Lock] = defaultdict(threading.Lock)

    def ensure_checkpoint(self, table: TableRow, head: Head, start: int, last: int, *, misses_base: bool) -> None:
        """Write missing checkpoints for a reader that begins at `start` and sees versions up to `last`.

        `misses_base`: not all commits from `start` on are kept, only the state they led to.
        """
        if not misses_base and last - start < MANY_COMMITS:
            return
        with self._locks[table.table_id]:  # a second reader waits, and finds it done
            writer = FileTxnLogWriter(
                table.location, self._catalog.storage_options_of(table), table=table.full_name, folder=LOG
            )
            usable = [version for version in writer.checkpoints() if head.base_version <= version <= last]
            if misses_base and not usable:
                self._write(writer, table, head.base_version)
                usable = [head.base_version]
            newest = usable[0] if usable else -1
            if last - max(newest, start) >= MANY_COMMITS:
                self._write(writer, table, last)

    def _write(self, writer: FileTxnLogWriter, table: TableRow, version: int) -> None:
        snapshot = SqlTxnLogReader(self._catalog.store, table).snapshot(version)
        default_ms = self._catalog.config.retention_deleted_file_days * DAY_MS
        keep_ms = retention_ms(deleted_file_retention_ms, snapshot.metadata, default_ms)
        cutoff_ms = snapshot.timestamp_ms - keep_ms
        written = writer.write_checkpoint(snapshot, protocol=snapshot.protocol, tombstone_cutoff_ms=cutoff_ms)
        writer.write_last_checkpoint(written)

    def checksum(self, table: TableRow, head: Head, version: int) -> bytes | None:
        """The checksum of a version, as Spark would write it; without it Spark reads the whole state."""
        with self._catalog.store.read() as conn:
            row = conn.one("select_version", table_id=table.table_id, version=version)
            if row is None:
                return None
            ids = {"table_id": table.table_id, "version": version}
            metadata_row, protocol_row = conn.one("select_metadata", **ids), conn.one("select_protocol", **ids)
            if metadata_row is None or protocol_row is None:
                raise StoreError(f"table {table.full_name} has no metadata or no protocol at version {version}")
            totals = totals_at(conn, head, [version])[version]
        metadata = metadata_from_row(metadata_row)
        stamp = None
        if has_in_commit_timestamps(metadata):
            stamp = CommitInfo(row["commit_info"]).in_commit_timestamp if row["commit_info"] else None
            if stamp is None:
                return None  # such a checksum must carry it
        return Checksum(totals.size_bytes, totals.num_files, metadata, protocol_from_row(protocol_row), stamp).render()


logger = logging.getLogger(__name__)

PREFIX = "txn-"
DEAD_SECONDS = 86_400.0
SWEEP_SECONDS = 6 * 3_600.0
TABLES_AT_ONCE = 20
LEASE = "bridge:leftovers"


class Leftovers:
    """Removes what transactions leave beside their tables; what cannot be removed now is found later."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._holder = uuid.uuid4().hex
        self._next_look = 0.0
        self._to_look_at: list[TableRow] = []

    def remove(self, txn: str, locations: Iterable[str]) -> None:
        """Remove the folders of one transaction."""
        for location in locations:
            self._remove(location, f"{OVERLAY}/{PREFIX}{txn}", self._options(location))

    def sweep(self, is_open: Callable[[str], bool]) -> list[str]:
        """Check tables for folders of dead endpoints, every few hours and some tables at each call.

        One endpoint does it for the whole catalog, because it costs a request per table on object stores.
        """
        if not self._to_look_at and time.monotonic() >= self._next_look:
            self._next_look = time.monotonic() + SWEEP_SECONDS
            self._to_look_at = self._tables() if self._is_ours_to_do() else []
        some, self._to_look_at = self._to_look_at[:TABLES_AT_ONCE], self._to_look_at[TABLES_AT_ONCE:]
        return self._collect_all(some, is_open, DEAD_SECONDS)

    def _is_ours_to_do(self) -> bool:
        with self._catalog.store.write() as conn:
            now_ms = conn.now_ms()
            until_ms = now_ms + int(SWEEP_SECONDS * 1000)
            rows = conn.run("take_lease", lease=LEASE, holder=self._holder, until_ms=until_ms, now_ms=now_ms)
        return rows > 0

    def _tables(self) -> list[TableRow]:
        with self._catalog.store.read(single=True) as conn:
            return [row for row in registry.list_tables(conn) if row.mode == "managed"]

    def collect(self, is_open: Callable[[str], bool], dead_seconds: float = DEAD_SECONDS) -> list[str]:
        """Remove every folder of a transaction that is not open here and was not written to for `dead_seconds`."""
        return self._collect_all(self._tables(), is_open, dead_seconds)

    def _collect_all(
        self, tables: Iterable[TableRow], is_open: Callable[[str], bool], dead_seconds: float
    ) -> list[str]:
        removed = []
        for table in tables:
            try:
                removed += self._collect(table, is_open, dead_seconds)
            except (DeltaError, OSError) as error:
                logger.warning("cannot look for leftovers of %s: %s", table.full_name, redact(str(error)))
        return removed

    def _collect(self, table: TableRow, is_open: Callable[[str], bool], dead_seconds: float) -> list[str]:
        options = self._catalog.storage_options_of(table)
        storage = open_storage(table.location, options)
        removed = []
        for name in storage.folders(OVERLAY):
            folder, txn = f"{OVERLAY}/{name}", name.removeprefix(PREFIX)
            if not name.startswith(PREFIX) or is_open(txn):
                continue
            last_ms = storage.newest_ms(folder)
            if time.time() * 1000 - last_ms > dead_seconds * 1000 and self._remove(table.location, folder, options):
                removed.append(f"{table.location}/{folder}")
        return removed

    def _remove(self, location: str, folder: str, options: dict[str, str] | None) -> bool:
        try:
            open_storage(location, options).delete_folder(folder)
        except (DeltaError, OSError) as error:
            logger.warning("%s/%s is left behind: %s", redact(location), folder, redact(str(error)))
            return False
        return True

    def _options(self, location: str) -> dict[str, str] | None:
        with self._catalog.store.read(single=True) as conn:
            row = registry.table_by_location(conn, location)
        return None if row is None else self._catalog.storage_options_of(row)
