"""Owns the interface of a transaction log reader, for files and SQL alike, and the Arrow schemas of its files.

String columns are encoded with `text.to_sql_text`: like SQL, Arrow cannot hold lone surrogates.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Protocol as Interface
from typing import runtime_checkable

import pyarrow as pa
import pyarrow.compute as pc

from deltalakedb.log.protocol.actions import AppTransaction, DomainMetadata, Metadata, Protocol
from deltalakedb.log.protocol.commit import Commit
from deltalakedb.log.protocol.fields import ADD, REMOVE, Kind, Spec

_ARROW_TYPES = {Kind.LONG: pa.int64(), Kind.INT: pa.int32(), Kind.FLAG: pa.bool_()}


def _schema_of(spec: Spec) -> pa.Schema:
    columns = [pa.field(field.column, _ARROW_TYPES.get(field.kind, pa.string())) for field in spec.fields]
    return pa.schema([*columns, pa.field("extra", pa.string())])


FILES_SCHEMA = _schema_of(ADD)
TOMBSTONES_SCHEMA = _schema_of(REMOVE)

NEWEST_FIRST = {"version": "descending", "ordinal": "ascending"}
"""The columns and directions that sort files into the order of backward replay, in which `deltalake` reads and lists
them: the newest version first, within a version the order of its commit."""
"""Columns that order files: the version that added each, and the position of its action in the commit."""


def deleted_after(tombstones: pa.RecordBatch, instant_ms: int) -> pa.RecordBatch:
    """Returns the tombstones newer than an instant; one without a timestamp counts as the oldest possible."""
    times = tombstones.column("deletion_timestamp").fill_null(0)
    return tombstones.filter(pc.greater(times, instant_ms))


@runtime_checkable
class LogSnapshot(Interface):
    """A table's state at one version."""

    @property
    def version(self) -> int: ...

    @property
    def timestamp_ms(self) -> int: ...

    @property
    def protocol(self) -> Protocol: ...

    @property
    def metadata(self) -> Metadata: ...

    def app_transactions(self) -> Mapping[str, AppTransaction]: ...

    def domain_metadata(self) -> Mapping[str, DomainMetadata]: ...

    def files(self) -> pa.RecordBatchReader:
        """The live files, in batches of FILES_SCHEMA."""
        ...

    def tombstones(self, deleted_after_ms: int | None = None) -> pa.RecordBatchReader:
        """The tombstones, or those newer than an instant, in batches of TOMBSTONES_SCHEMA."""
        ...


@runtime_checkable
class TxnLogReader(Interface):
    """Reads a log from files or from SQL."""

    def latest_version(self) -> int: ...

    def earliest_version(self) -> int:
        """The oldest version that has a snapshot."""
        ...

    def has_commit(self, version: int) -> bool:
        """Whether the version's own actions exist; a version taken from a checkpoint may have only its state."""
        ...

    def commits(self, start: int, end: int | None = None) -> Iterator[Commit]:
        """Yields the commits from `start` through `end` (None: the latest), in order."""
        ...

    def snapshot(self, version: int | None = None) -> LogSnapshot: ...
