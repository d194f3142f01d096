"""The interface between verbs and logs: the table as one statement sees it, and the commit that results."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeAlias
from typing import Protocol as Interface

from deltalakedb.log.protocol.actions import AppTransaction, Metadata, Protocol
from deltalakedb.log.protocol.proposal import NOTHING_READ, ProposedCommit, ReadSet
from deltalakedb.log.schema.types import StructType, parse_schema
from deltalakedb.operations.written_files import WrittenFiles
from deltalakedb.runtime.config import Config
from deltalakedb.runtime.lazy import cached_property

if TYPE_CHECKING:
    import pyarrow as pa

    from deltalakedb.log.predicates.atoms import Predicate
    from deltalakedb.storage.interface import Storage

PlanFiles: TypeAlias = "Callable[[Predicate], pa.Table]"


class TableSnapshot(Interface):
    """What a verb needs of a log: LogSnapshot, and all files in one table."""

    @property
    def version(self) -> int: ...

    @property
    def protocol(self) -> Protocol: ...

    @property
    def metadata(self) -> Metadata: ...

    def app_transaction(self, app_id: str) -> AppTransaction | None:
        """Return the last `txn` action of an application."""
        ...

    def files_table(self, columns: Sequence[str] | None = None) -> pa.Table:
        """Return the live files in FILES_SCHEMA, or only `columns` of them."""
        ...

    def metadata_history(self) -> Sequence[Metadata] | None:
        """Return the metadata of every version up to this one; None if early commits are gone, or it has too many."""
        ...


@dataclass(frozen=True)
class Target:
    """A table as one statement sees it; the statement writes files, and returns the commit in `Done`."""

    name: str
    """The table's name in messages."""
    location: str
    options: Mapping[str, str] | None
    snapshot: TableSnapshot
    plan: PlanFiles
    """Returns the live files (FILES_SCHEMA) that may hold a row for which a predicate is true."""
    written: WrittenFiles = field(default_factory=WrittenFiles)
    """Records new files, so that they are deleted if the commit does not happen."""
    config: Config | None = None
    """The settings of the catalog; None without a catalog."""

    @cached_property
    def storage(self) -> Storage:
        from deltalakedb.storage.opening import (
            open_storage,  # slow to import, and not every transaction writes files
        )

        return open_storage(self.location, self.options)

    @cached_property
    def schema(self) -> StructType:
        return parse_schema(self.metadata.schema_string)

    @property
    def metadata(self) -> Metadata:
        return self.snapshot.metadata

    @property
    def protocol(self) -> Protocol:
        return self.snapshot.protocol

    def read(
        self, files: pa.Table | pa.RecordBatch, columns: Sequence[str], *, positions: bool = False
    ) -> pa.RecordBatchReader:
        """Read columns of some live files (FILES_SCHEMA); with `positions`, also the file and row of each row."""
        from deltalakedb.data import read_files

        return read_files(
            files,
            storage=self.storage,
            schema=self.schema,
            partition_columns=self.metadata.partition_columns,
            configuration=self.metadata.configuration,
            columns=columns,
            positions=positions,
        )

    def history(self) -> Sequence[Metadata] | None:
        """Return the metadata of every version up to this one, or None if it is unknown."""
        return self.snapshot.metadata_history()


@dataclass(frozen=True, slots=True)
class Done:
    """The commit of a statement (None if nothing changes), and its metrics with the names of `deltalake`."""

    commit: ProposedCommit | None
    metrics: dict[str, Any] = field(default_factory=dict)
    read: ReadSet = NOTHING_READ
    """What was read to find that nothing changes; a commit has its own read set."""

    def noting(self, app_transactions: Sequence[AppTransaction], user_info: Mapping[str, Any]) -> Done:
        """Return the same with the caller's `txn` actions and commitInfo fields; the statement's parameters win."""
        if self.commit is None or not (app_transactions or user_info):
            return self
        fields = {**self.commit.user_info, **user_info}
        parameters = fields.pop("operationParameters", {})
        commit = replace(
            self.commit,
            actions=(*app_transactions, *self.commit.actions),
            operation_parameters={**parameters, **self.commit.operation_parameters},
            user_info=fields,
        )
        return replace(self, commit=commit)


Verb: TypeAlias = Callable[[Target], Done]
