"""TableState: what a DeltaTable is at its version, and how it moves to another; no file row is read."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Self

from deltalakedb.answers import DeltaTableConfig, Metadata, ProtocolVersions, history_entry, readable
from deltalakedb.arguments import check_commit_arguments, check_number, check_text
from deltalakedb.exceptions import (
    ConcurrentTransactionError,
    DeltaError,
    FilesVacuumedError,
    MissingFileError,
    NegativeVersionError,
)
from deltalakedb.instants import Instant, to_epoch_ms
from deltalakedb.log.proposal import DEFINITION, HISTORY, WHOLE_TABLE, ReadSet
from deltalakedb.log.types import StructType, parse_schema
from deltalakedb.operations.target import Done, Target, Verb
from deltalakedb.reading import PredicateLike
from deltalakedb.schema import Schema, to_public
from deltalakedb.store.vacuums import PURGED, purged
from deltalakedb.tables.backing import Backing, TableSnapshot
from deltalakedb.tables.sql_backing import SqlBacking
from deltalakedb.transaction import CommitProperties, PostCommitHookProperties

if TYPE_CHECKING:
    from deltalakedb.log.atoms import Predicate
    from deltalakedb.store.planning import PlannedFiles
    from deltalakedb.store.reader import Difference, LineageEntry


_LOG_BUFFER_SIZE = 8
"""What `deltalake` reports; nothing depends on it."""


class TableState:
    """A table at one version."""

    _backing: Backing
    _snapshot: TableSnapshot

    def __repr__(self) -> str:
        return f"DeltaTable({self._backing.name!r}, version={self._snapshot.version})"

    def close(self) -> None:
        """Close the catalog this table was opened from."""
        self._backing.close()

    # -- what the table is: no file row is read

    @property
    def table_uri(self) -> str:
        return self._backing.location.rstrip("/") + "/"

    @property
    def _table(self) -> Self:
        """What `DeltaStorageHandler.from_table` takes; in `deltalake` the table behind the table."""
        return self

    @property
    def _storage_options(self) -> dict[str, str] | None:
        """The options in force for the table's files; Polars asks by this name."""
        return self._backing.storage_options() or None

    @property
    def table_config(self) -> DeltaTableConfig:
        """Deprecated, as in `deltalake`: how a table is loaded cannot be set."""
        warnings.warn("`table_config` is deprecated: it says nothing of this table", DeprecationWarning, stacklevel=2)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            return DeltaTableConfig(without_files=False, log_buffer_size=_LOG_BUFFER_SIZE)

    @property
    def name(self) -> str:
        """The table's full name in the catalog."""
        return self._backing.name

    @property
    def mode(self) -> str:
        """`follower`: its files decide; `managed`: SQL does; `detached`: its files do again."""
        return self._backing.mode

    def version(self) -> int:
        return self._snapshot.version

    def committed_at_ms(self) -> int:
        """When this version was committed, in epoch milliseconds."""
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
        """The configuration of every metadata domain that is set."""
        self._note(DEFINITION)
        return {domain: action.configuration for domain, action in self._snapshot.domain_metadata().items()}

    def transaction_version(self, app_id: str) -> int | None:
        """The newest version an application recorded by a `txn` action."""
        check_text(app_id)
        self._note(ReadSet(app_ids=frozenset({app_id})))
        action = self._snapshot.app_transaction(app_id)
        return None if action is None else action.version

    # -- versions

    def load_as_version(self, version: int | str | datetime) -> None:
        """Move to a version, or to the newest one committed at or before a time (ISO 8601; UTC without a zone)."""
        if not isinstance(version, int | str | datetime):
            raise TypeError("Invalid datatype provided for version, only int, str or datetime are accepted.")
        if isinstance(version, int) and version < 0:
            raise NegativeVersionError(f"table {self.name}: a version is not negative, and {version} is")
        if isinstance(version, int):
            check_number(version)
        snapshot = self._snapshot_at(version)
        snapshot.metadata, snapshot.protocol  # noqa: B018  read now, so that a later clean-up cannot take them away
        self._snapshot = snapshot

    def _snapshot_at(self, version: int | str | datetime) -> TableSnapshot:
        """The table at a version, or at the newest one committed at or before a time."""
        number = int(version) if isinstance(version, int) else self._backing.version_at(to_epoch_ms(version))
        return self._backing.snapshot(number)

    def update_incremental(self) -> None:
        """Move to the newest version in the catalog, whatever the table is called by now."""
        self._snapshot = self._backing.newest()

    def history(
        self, limit: int | None = None, *, since: Instant | None = None, until: Instant | None = None
    ) -> list[dict[str, Any]]:
        """Commits up to this version, newest first: the fields of each commitInfo, and its version."""
        check_number(limit)
        until_ms = None if until is None else to_epoch_ms(until)
        if until_ms is None or until_ms > self._snapshot.timestamp_ms:  # a later commit would be part of the answer
            self._note(HISTORY)
        since_ms = None if since is None else to_epoch_ms(since)
        entries = self._backing.history(limit, snapshot=self._snapshot, since_ms=since_ms, until_ms=until_ms)
        return [history_entry(entry) for entry in entries]

    def diff(self, from_version: int, to_version: int) -> Difference:
        """The files, and whether metadata or protocol, that differ between two versions."""
        self._note(WHOLE_TABLE | DEFINITION, version=max(from_version, to_version))
        found = self._sql().reader.diff(from_version, to_version)
        return replace(found, added=readable(found.added), removed=readable(found.removed))

    def lineage(self) -> list[LineageEntry]:
        """Which commits this version's files, metadata and protocol come from."""
        self._note(WHOLE_TABLE | DEFINITION, version=self._snapshot.version)
        return self._sql().reader.lineage(self._snapshot.version)

    def _newest(self) -> TableSnapshot:
        """The newest version there is, whatever version this object is at."""
        return self._backing.newest()

    # -- what a transaction records

    def _note(self, read: ReadSet, *, version: int | None = None) -> None:
        """Something of this version is about to be read, or of a committed `version`. Ignored outside a transaction."""

    def _note_read(self, predicate: Predicate | None) -> None:
        """Rows that match a predicate, or all of them, are about to be read."""
        self._note(WHOLE_TABLE if predicate is None else ReadSet(predicates=(predicate,)))

    # -- how it is changed

    def _run(
        self,
        verb: Verb,
        commit_properties: CommitProperties | None = None,
        post_commithook_properties: PostCommitHookProperties | None = None,
    ) -> dict[str, Any]:
        """One statement, one commit on the table's newest version; this object moves to the version it makes."""
        check_commit_arguments(commit_properties, post_commithook_properties)
        properties, hooks = commit_properties or CommitProperties(), post_commithook_properties
        if properties.app_transactions:
            verb = self._going_on_from_here(verb, [one.app_id for one in properties.app_transactions])
        told = self._backing.run(verb, properties, hooks or PostCommitHookProperties())
        self.update_incremental()
        return told

    def _going_on_from_here(self, verb: Verb, app_ids: Sequence[str]) -> Verb:
        """The same verb, refused when applications have come further since the version this object is at: whoever
        records their progress has read it there."""
        seen = {app_id: self._snapshot.app_transaction(app_id) for app_id in app_ids}

        def go_on(target: Target) -> Done:
            done = verb(target)
            for app_id, before in seen.items() if done.commit is not None else ():
                now = target.snapshot.app_transaction(app_id)
                if now is not None and (before is None or now.version != before.version):
                    raise ConcurrentTransactionError(
                        f"table {self.name}: application {app_id} has recorded version {now.version} since version "
                        f"{self._snapshot.version} of the table, which was read. Nothing was committed. "
                        "`update_incremental`, read its version from the table, and go on from there.",
                        table=self.name,
                        version=target.snapshot.version,
                    )
            return done

        return go_on

    def _explain_missing(self, error: MissingFileError, version: int) -> DeltaError:
        """What to say of a file that a version needs and that is gone: a vacuum took it, or nobody knows."""
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

    # -- how it is answered

    @property
    def _struct(self) -> StructType:
        """The columns as the log knows them."""
        return parse_schema(self._snapshot.metadata.schema_string)

    def _sql(self) -> SqlBacking:
        """The table in its catalog; an error where plain files are all there is."""
        if not isinstance(self._backing, SqlBacking):
            raise DeltaError(
                f"{self.name} is no table of a catalog, and only a catalog knows this; `dl attach` or `dl import` "
                "brings it into one"
            )
        return self._backing

    def _planned(self, predicate: Predicate, columns: Sequence[str] | None, explain: bool) -> PlannedFiles:
        return self._backing.plan(self._snapshot, predicate, columns, explain=explain)

    def _parsed(self, predicate: PredicateLike) -> Predicate:
        from deltalakedb.log.predicate import parse_predicate

        return parse_predicate(predicate, self._struct, self._snapshot.metadata.partition_columns)
