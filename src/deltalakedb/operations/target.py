"""Owns the seam between verbs and logs: the table as one statement sees it, and what the statement made of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias
from typing import Protocol as Interface

from deltalakedb.config import Config
from deltalakedb.log.actions import AppTransaction, Metadata, Protocol
from deltalakedb.log.proposal import NOTHING_READ, ProposedCommit, ReadSet
from deltalakedb.log.types import StructType, parse_schema
from deltalakedb.operations.written_files import WrittenFiles

if TYPE_CHECKING:
    import pyarrow as pa

    from deltalakedb.data import DataStorage
    from deltalakedb.log.atoms import Predicate

PlanFiles: TypeAlias = "Callable[[Predicate], pa.Table]"


class TableSnapshot(Interface):
    """What a verb reads of a log: LogSnapshot, and its files at once."""

    @property
    def version(self) -> int: ...

    @property
    def protocol(self) -> Protocol: ...

    @property
    def metadata(self) -> Metadata: ...

    def app_transaction(self, app_id: str) -> AppTransaction | None:
        """What an application has recorded last."""
        ...

    def files_table(self, columns: Sequence[str] | None = None) -> pa.Table:
        """The live files in FILES_SCHEMA; only some columns when `columns` names them."""
        ...

    def metadata_history(self) -> Sequence[Metadata] | None:
        """The metadata of every version up to this one; None where the first of them are gone, or too many."""
        ...


@dataclass(frozen=True)
class Target:
    """A table as one statement sees it; the statement writes files, and says in `Done` what to commit."""

    name: str
    """How messages call the table."""
    location: str
    options: Mapping[str, str] | None
    snapshot: TableSnapshot
    plan: PlanFiles
    """The live files (FILES_SCHEMA) that may hold a row for which a predicate is true."""
    written: WrittenFiles = field(default_factory=WrittenFiles)
    """Where new files are noted, so that they go when the commit does not happen."""
    config: Config | None = None
    """The settings of the catalog; None where there is no catalog."""

    @cached_property
    def storage(self) -> DataStorage:
        from deltalakedb.storage import open_data_storage  # slow to load, and not every transaction writes files

        return open_data_storage(self.location, self.options)

    @cached_property
    def schema(self) -> StructType:
        return parse_schema(self.metadata.schema_string)

    @property
    def metadata(self) -> Metadata:
        return self.snapshot.metadata

    @property
    def protocol(self) -> Protocol:
        return self.snapshot.protocol

    def history(self) -> Sequence[Metadata] | None:
        """The metadata of every version up to this one, where it is known."""
        return self.snapshot.metadata_history()


@dataclass(frozen=True, slots=True)
class Done:
    """The commit of a statement, None when nothing changes, and what its caller is told, in `deltalake`'s words."""

    commit: ProposedCommit | None
    metrics: dict[str, Any] = field(default_factory=dict)
    read: ReadSet = NOTHING_READ
    """What was looked at to know that nothing changes; a commit says itself what it read."""

    def noting(self, app_transactions: Sequence[AppTransaction], user_info: Mapping[str, Any]) -> Done:
        """The same with what the caller wants recorded beside it; a statement's own parameters stay what they are."""
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
