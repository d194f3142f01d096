"""TableState: the definition of a DeltaTable at its version, and moving to other versions; reads no file rows."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from deltalakedb.catalog.instants import Instant, to_epoch_ms, travel_time_ms
from deltalakedb.exceptions import (
    DeltaError,
    FilesVacuumedError,
    MissingFileError,
    NegativeVersionError,
)
from deltalakedb.log.protocol.proposal import DEFINITION, HISTORY, WHOLE_TABLE, ReadSet
from deltalakedb.log.schema.types import StructType, parse_schema
from deltalakedb.operations.target import Done, Target, Verb
from deltalakedb.runtime.arguments import check_commit_arguments, check_number, check_text
from deltalakedb.schema import Schema, to_public
from deltalakedb.store.vacuums import PURGED, purged
from deltalakedb.tables.answers import DeltaTableConfig, Metadata, ProtocolVersions, history_entry, readable
from deltalakedb.tables.backing import Backing, TableSnapshot
from deltalakedb.tables.filters import PredicateLike
from deltalakedb.tables.kinship import restore, shown_class
from deltalakedb.tables.raw import RawTable
from deltalakedb.tables.sql_backing import SqlBacking
from deltalakedb.transaction import CommitProperties, PostCommitHookProperties

if TYPE_CHECKING:
    from deltalakedb.log.predicates.atoms import Predicate
    from deltalakedb.store.planning import PlannedFiles
    from deltalakedb.store.reader import Difference, LineageEntry


_LOG_BUFFER_SIZE = 8
"""The value that `deltalake` reports; it has no effect."""


class TableState:
    """A table at one version."""

    _backing: Backing
    _snapshot: TableSnapshot

    def __repr__(self) -> str:
        return "DeltaTable()"  # as `deltalake` has it; `table_uri` and `version` tell which table it is

    def __eq__(self, other: object) -> bool:
        """Return whether both are the same table, at any version. A table is mutable, so it has no hash."""
        return isinstance(other, TableState) and self.table_uri == other.table_uri

    __hash__ = None  # type: ignore[assignment]

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        """A class of `deltalake` too, once that package is loaded: `polars.scan_delta` takes no other tables."""
        return shown_class(self)

    def __reduce__(self) -> Any:
        return restore, (type(self), self.__dict__)

    def close(self) -> None:
        """Close the catalog that this table was opened from."""
        self._backing.close()

    # -- the definition: reads no file rows

    @property
    def table_uri(self) -> str:
        return self._backing.location.rstrip("/") + "/"

    @property
    def _table(self) -> RawTable:
        """The internals that Polars and other libraries use."""
        return RawTable(self)

    @property
    def _storage_options(self) -> dict[str, str] | None:
        """The storage options in force for the table's files; Polars uses this name."""
        return self._backing.storage_options() or None

    @property
    def table_config(self) -> DeltaTableConfig:
        """Deprecated, as in `deltalake`: loading options have no effect."""
        warnings.warn(
            "The 'table_config' property is deprecated and will be removed in a future release. It reports effective "
            "defaults; deprecated constructor options are ignored.",
            DeprecationWarning,
            stacklevel=2,
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            return DeltaTableConfig(without_files=False, log_buffer_size=_LOG_BUFFER_SIZE)

    @property
    def name(self) -> str:
        """The table's full name in the catalog; its location if it is in none."""
        return self._backing.name

    @property
    def mode(self) -> str:
        """Who decides about commits: `managed`: SQL; `follower`, `detached`: the files; `files`: not in a catalog."""
        return self._backing.mode

    def version(self) -> int:
        return self._snapshot.version

    def committed_at_ms(self) -> int:
        """Return when this version was committed, in epoch milliseconds."""
        return self._snapshot.timestamp_ms

    def schema(self) -> Schema:
        self._note(DEFINITION)
        return to_public(self._struct)

    def metadata(self) -> Metadata:
        self._note(DEFINITION)
        return Metadata.of(self._snapshot.metadata)

    def protocol(self) -> ProtocolVersions:
        self._note(DEFINITION)
        protocol = self._snapshot.protocol
        return ProtocolVersions(
            protocol.min_reader_version,
            protocol.min_writer_version,
            None if protocol.writer_features is None else list(protocol.writer_features),
            None if protocol.reader_features is None else list(protocol.reader_features),
        )

    def domain_metadata(self) -> dict[str, str]:
        """Return the configuration of every metadata domain that is set."""
        self._note(DEFINITION)
        return {domain: action.configuration for domain, action in self._snapshot.domain_metadata().items()}

    def transaction_version(self, app_id: str) -> int | None:
        """Return the last version that an application recorded by a `txn` action."""
        check_text(app_id, required=True)
        self._note(ReadSet(app_ids=frozenset({app_id})))
        action = self._snapshot.app_transaction(app_id)
        return None if action is None else action.version

    # -- versions

    def load_as_version(self, version: int | str | datetime) -> None:
        """Move to a version, or to the newest one committed at or before a time (ISO 8601; UTC if it has no zone)."""
        if not isinstance(version, int | str | datetime):
            raise TypeError("Invalid datatype provided for version, only int, str or datetime are accepted.")
        if isinstance(version, int) and version < 0:
            raise NegativeVersionError(
                f"can't convert negative int to unsigned: {version} is no version of {self.name}"
            )
        if isinstance(version, int):
            check_number(version)
        snapshot = self._snapshot_at(version)
        snapshot.metadata, snapshot.protocol  # noqa: B018  read now: a later clean-up may delete them
        self._snapshot = snapshot

    def _snapshot_at(self, version: int | str | datetime) -> TableSnapshot:
        """Return the table at a version, or at the newest one committed at or before a time."""
        if isinstance(version, int):
            return self._backing.snapshot(int(version))
        return self._backing.snapshot(self._backing.version_at(travel_time_ms(version)))

    def update_incremental(self) -> None:
        """Move to the newest version, even if the table was renamed."""
        self._snapshot = self._backing.newest()

    def history(
        self, limit: int | None = None, *, since: Instant | None = None, until: Instant | None = None
    ) -> list[dict[str, Any]]:
        """Return the commits up to this version, newest first: the fields of each commitInfo, and the version."""
        check_number(limit)
        until_ms = None if until is None else to_epoch_ms(until)
        if until_ms is None or until_ms > self._snapshot.timestamp_ms:  # a later commit would change the answer
            self._note(HISTORY)
        since_ms = None if since is None else to_epoch_ms(since)
        entries = self._backing.history(limit, snapshot=self._snapshot, since_ms=since_ms, until_ms=until_ms)
        return [history_entry(entry) for entry in entries]

    def diff(self, from_version: int, to_version: int) -> Difference:
        """Return the files that differ between two versions, and whether metadata and protocol differ."""
        self._note(WHOLE_TABLE | DEFINITION, version=max(from_version, to_version))
        difference = self._sql().reader.diff(from_version, to_version)
        return replace(difference, added=readable(difference.added), removed=readable(difference.removed))

    def lineage(self) -> list[LineageEntry]:
        """Return the commits that this version's files, metadata and protocol come from."""
        self._note(WHOLE_TABLE | DEFINITION, version=self._snapshot.version)
        return self._sql().reader.lineage(self._snapshot.version)

    def _newest(self) -> TableSnapshot:
        """Return the newest version, whatever version this object is at."""
        return self._backing.newest()

    # -- reads that a transaction records

    def _note(self, read: ReadSet, *, version: int | None = None) -> None:
        """Record a read of this version, or of a committed `version`. Ignored outside a transaction."""

    def _note_read(self, predicate: Predicate | None) -> None:
        """Record a read of the rows that match a predicate, or of all rows."""
        self._note(WHOLE_TABLE if predicate is None else ReadSet(predicates=(predicate,)))

    # -- changes

    def _run(
        self,
        verb: Verb,
        commit_properties: CommitProperties | None = None,
        post_commithook_properties: PostCommitHookProperties | None = None,
        *,
        moves: bool = True,
    ) -> dict[str, Any]:
        """Run a verb as one commit based on this object's version; if it `moves`, go to the new version afterwards.

        If nothing is committed, the version stays.
        """
        check_commit_arguments(commit_properties, post_commithook_properties)
        properties, hooks = commit_properties or CommitProperties(), post_commithook_properties
        has_commit = False

        def watched(target: Target) -> Done:
            nonlocal has_commit
            result = verb(target)
            has_commit = has_commit or result.commit is not None
            return result

        metrics = self._backing.run(watched, properties, hooks or PostCommitHookProperties(), at=self._snapshot)
        if moves and has_commit:
            self.update_incremental()
        return metrics

    def _explain_missing(self, error: MissingFileError, version: int) -> DeltaError:
        """Return the error for a missing file of a version: FilesVacuumedError if a vacuum deleted it, else `error`."""
        watermark = self._backing.vacuumed_version()
        if version >= watermark:
            return error
        if watermark == PURGED:
            return purged(self.name, version)
        return FilesVacuumedError(
            f"{error.what}. Version {version} lies below the vacuum watermark of {self.name}: a vacuum has deleted "
            f"files that only versions below {watermark} have. Versions from {watermark} on have all of theirs; "
            "`keep_versions` of vacuum keeps the files of older ones.",
            table=self.name,
            version=version,
            path=error.path,
        )

    # -- helpers

    @property
    def _struct(self) -> StructType:
        """The columns, as the log's types."""
        return parse_schema(self._snapshot.metadata.schema_string)

    def _sql(self) -> SqlBacking:
        """Return the backing in a catalog; raise if the table is not in one."""
        if not isinstance(self._backing, SqlBacking):
            raise DeltaError(
                f"{self.name} is no table of a catalog, and only a catalog knows this; `dl attach` or `dl import` "
                "brings it into one"
            )
        return self._backing

    def _planned(self, predicate: Predicate, columns: Sequence[str] | None, explain: bool) -> PlannedFiles:
        return self._backing.plan(self._snapshot, predicate, columns, explain=explain)

    def _parsed(self, predicate: PredicateLike, *, exact: bool = False) -> Predicate:
        from deltalakedb.log.predicates.predicate import parse_predicate

        return parse_predicate(predicate, self._struct, self._snapshot.metadata.partition_columns, exact=exact)
