"""FileSnapshot: a table's state at one version, merged from a checkpoint's stream and the JSON files after it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import pyarrow as pa

from deltalakedb.exceptions import MalformedLogError
from deltalakedb.files.checkpoint_reader import CheckpointContent, split_lines
from deltalakedb.files.columns import KeyFilter, batches_of_adds, batches_of_removes
from deltalakedb.files.log_folder import LOG_FOLDER, JsonEntry, Segment, commit_name
from deltalakedb.log.protocol.actions import AppTransaction, DomainMetadata, Metadata, Protocol
from deltalakedb.log.protocol.commit import iter_actions
from deltalakedb.log.protocol.completion import in_commit_timestamp, keeps_in_commit_timestamps
from deltalakedb.log.protocol.snapshot import SnapshotState
from deltalakedb.log.protocol.txnlog import FILES_SCHEMA, TOMBSTONES_SCHEMA, deleted_after
from deltalakedb.runtime.lazy import cached_property
from deltalakedb.storage.interface import Storage


@dataclass(frozen=True)
class FileSnapshot:
    """All but the files is in memory; files and tombstones are streamed on each call."""

    version: int
    protocol: Protocol
    metadata: Metadata
    _storage: Storage = field(repr=False)
    _table: str = field(repr=False)
    _segment: Segment = field(repr=False)
    _checkpoint: CheckpointContent | None = field(repr=False)
    _tail: SnapshotState = field(repr=False)
    _unusable: set[str] = field(repr=False)  # shared with the reader, which then avoids these files

    @classmethod
    def of(
        cls,
        storage: Storage,
        table: str,
        segment: Segment,
        checkpoint: CheckpointContent | None,
        tail: SnapshotState,
        unusable: set[str],
    ) -> FileSnapshot:
        protocol = tail.protocol or (checkpoint.protocol if checkpoint else None)
        metadata = tail.metadata or (checkpoint.metadata if checkpoint else None)
        if protocol is None or metadata is None:
            missing = "protocol" if protocol is None else "metaData"
            raise MalformedLogError(f"table {table}: no {missing} action up to version {segment.version}")
        return cls(segment.version, protocol, metadata, storage, table, segment, checkpoint, tail, unusable)

    @property
    def checkpoint_version(self) -> int | None:
        """The version of the checkpoint that this was read from; None if only commits were read."""
        return self._segment.checkpoint.version if self._segment.checkpoint else None

    @cached_property
    def timestamp_ms(self) -> int:
        """The in-commit timestamp if the table has them, else the modification time of the commit's file."""
        path = f"{LOG_FOLDER}/{commit_name(self.version)}"
        try:
            if keeps_in_commit_timestamps(self.metadata.configuration, self.version):
                lines = split_lines(self._storage.stream(path).chunks)
                first = next(iter_actions(lines, table=self._table, version=self.version), None)
                stamp = in_commit_timestamp(first)
                if stamp is not None:
                    return stamp
            return self._storage.stat(path).modified_ms
        except FileNotFoundError:
            return self._checkpoint_ms()

    def _checkpoint_ms(self) -> int:
        # The commit was cleaned up or compacted; the file that replaces it has the closest time.
        if self._segment.json:
            return self._storage.stat(f"{LOG_FOLDER}/{self._segment.json[-1].name}").modified_ms
        assert self._segment.checkpoint is not None
        return self._storage.stat(f"{LOG_FOLDER}/{self._segment.checkpoint.names[0]}").modified_ms

    def tail_copy(self) -> SnapshotState:
        """A copy of the replayed commits after the checkpoint, to replay further ones on."""
        return self._tail.copy()

    def followed_by(self, entries: Sequence[JsonEntry], tail: SnapshotState) -> FileSnapshot:
        """The snapshot after some more commits, which `tail` has replayed."""
        segment = Segment(entries[-1].end, self._segment.checkpoint, (*self._segment.json, *entries))
        return FileSnapshot.of(self._storage, self._table, segment, self._checkpoint, tail, self._unusable)

    def app_transactions(self) -> Mapping[str, AppTransaction]:
        older = self._checkpoint.app_transactions if self._checkpoint else {}
        return {**older, **self._tail.app_transactions}

    def domain_metadata(self) -> Mapping[str, DomainMetadata]:
        older = self._checkpoint.domain_metadata if self._checkpoint else {}
        return self._tail.domains_over(older)

    def files(self) -> pa.RecordBatchReader:
        """The live files in batches of FILES_SCHEMA: those of the newest commit first, those of a checkpoint last."""
        return pa.RecordBatchReader.from_batches(FILES_SCHEMA, self._file_batches())

    def tombstones(self, deleted_after_ms: int | None = None) -> pa.RecordBatchReader:
        """The tombstones in batches of TOMBSTONES_SCHEMA."""
        batches = self._tombstone_batches()
        if deleted_after_ms is not None:
            batches = (deleted_after(batch, deleted_after_ms) for batch in batches)
        return pa.RecordBatchReader.from_batches(TOMBSTONES_SCHEMA, batches)

    def _file_batches(self) -> Iterator[pa.RecordBatch]:
        yield from batches_of_adds(self._tail.newest_files())
        if self._checkpoint is not None:
            with self._remember_unusable(self._checkpoint):
                yield from self._checkpoint.file_batches(self._later)

    def _tombstone_batches(self) -> Iterator[pa.RecordBatch]:
        if self._checkpoint is not None:
            with self._remember_unusable(self._checkpoint):
                yield from self._checkpoint.tombstone_batches(self._later)
        yield from batches_of_removes(self._tail.tombstones.values())

    @contextmanager
    def _remember_unusable(self, checkpoint: CheckpointContent) -> Iterator[None]:
        """Record damage that is found while streaming, so that the reader's next snapshot avoids the file."""
        try:
            yield
        except MalformedLogError:
            self._unusable.update(checkpoint.entry.names)
            raise

    @cached_property
    def _later(self) -> KeyFilter | None:
        keys = self._tail.file_keys()
        return KeyFilter(keys) if keys else None
