"""The overlay: `_dldb/log`, apart from the mirror, has Spark's own checkpoints and checksums, and ours for Spark."""

from __future__ import annotations

import threading
from collections import defaultdict

from deltalakedb.catalog.catalog import Catalog
from deltalakedb.exceptions import StoreError
from deltalakedb.files.checksum import Checksum
from deltalakedb.files.writer import FileTxnLogWriter
from deltalakedb.log.checks.properties import deleted_file_retention_ms
from deltalakedb.log.protocol.actions import CommitInfo
from deltalakedb.log.protocol.completion import has_in_commit_timestamps
from deltalakedb.log.protocol.rows import metadata_from_row, protocol_from_row
from deltalakedb.mirror.checkpoints import retention_ms
from deltalakedb.mirror.checksums import totals_at
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
        default_days = self._catalog.config.retention_deleted_file_days
        keep_ms = retention_ms(deleted_file_retention_ms, snapshot.metadata, default_days)
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
