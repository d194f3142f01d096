"""Decides whether a proposed commit is still valid after other commits won the race: compares what the transaction read
and proposes with each winner.

Never weaker than Spark's Serializable (the result equals running the statements one after another, in the order of
their versions), and finer where that is safe: a blind append conflicts with no change of data, a winner that only
rearranged rows (`dataChange` false) conflicts with no reader, and statistics are used as well as partition values.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, NoReturn, TypeVar

from deltalakedb.exceptions import (
    CommitFailedError,
    ConcurrentAppendError,
    ConcurrentDeleteDeleteError,
    ConcurrentDeleteReadError,
    ConcurrentTransactionError,
    MetadataChangedError,
    ProtocolChangedError,
    redact,
)
from deltalakedb.log.checks.binding import binds_rows, drops_features, means_the_same, moves_identity_only
from deltalakedb.log.predicates.pruning import FileMatcher
from deltalakedb.log.protocol.actions import (
    Action,
    AddFile,
    AppTransaction,
    DomainMetadata,
    Metadata,
    Protocol,
    RemoveFile,
)
from deltalakedb.log.protocol.completion import ROW_TRACKING
from deltalakedb.log.protocol.proposal import WHOLE_TABLE, ProposedCommit, ReadSet
from deltalakedb.log.schema.types import StructType

_T = TypeVar("_T")
_AGAIN: Final = "Open the table again and repeat the statement."
_USUAL_WORDS: Final[dict[type, str]] = {
    ConcurrentAppendError: "Commit failed: a concurrent transactions added new data.",
    ConcurrentDeleteReadError: "Commit failed: a concurrent transaction deleted data this operation read.",
    ConcurrentDeleteDeleteError: (
        "Commit failed: a concurrent transaction deleted the same data your transaction deletes."
    ),
    MetadataChangedError: "Metadata changed since last commit.",
    ProtocolChangedError: "Protocol changed since last commit.",
    ConcurrentTransactionError: "Concurrent transaction failed.",
}
"""The messages `deltalake` uses for these conflicts."""


@dataclass(frozen=True, slots=True)
class Winner:
    """A commit that came first. Its removes carry the partition values and statistics of the removed files where these
    are known; a file without them may hold any row."""

    version: int
    actions: tuple[Action, ...]
    is_blind_append: bool = False


@dataclass(frozen=True, slots=True)
class Needs:
    """What `check` reads of the winners, beside their metaData and protocol, which are always read."""

    adds: bool = False
    removes: bool = False
    values: bool = False
    """Partition values and statistics of the files; only predicates use them."""
    txns: bool = False
    domains: bool = False
    commits: bool = False
    """Whether a commit exists at all."""

    @property
    def any(self) -> bool:
        return self.adds or self.removes or self.txns or self.domains or self.commits


def needs(mine: Sequence[ProposedCommit], also_read: ReadSet) -> Needs:
    """Returns which rows of the winners `check` will read; for a blind append, no files."""
    stake = _stake(mine, also_read)
    reads = [reading.read for reading in stake.readings]
    return Needs(
        adds=any(reading.sees_adds or reading.read.files for reading in stake.readings) or stake.changes_table,
        removes=bool(reads or stake.removed or stake.restated or stake.reads_removals),
        values=any(read.predicates for read in reads),
        txns=bool(stake.app_ids),
        domains=bool(stake.domains) or stake.reads_definition,
        commits=stake.reads_history or bool(stake.only_next),
    )


def check(
    table: str,
    mine: Sequence[ProposedCommit],
    also_read: ReadSet,
    winners: Iterable[Winner],
    *,
    schema: StructType,
    metadata: Metadata,
    protocol: Protocol | None = None,
) -> None:
    """Raises the error that says why `mine` conflicts with the winners, which must be in the order of versions.

    `schema`, `metadata` and `protocol` are those of the snapshot that was read.
    """
    against = _Check(table, _stake(mine, also_read), FileMatcher(schema, metadata), metadata, protocol)
    for winner in winners:
        against.meet(winner)


@dataclass(frozen=True, slots=True)
class _Reading:
    """What one statement read, and whether rows added since then affect it."""

    operation: str
    read: ReadSet
    sees_adds: bool


@dataclass(slots=True)
class _Stake:
    """What the proposed commits depend on."""

    readings: list[_Reading] = field(default_factory=list)
    removed: dict[str, str] = field(default_factory=dict)
    """Paths, and the operation that removes each. Paths and not file keys, because two changes of one file's deletion
    vector remove the same path, whichever vector each of them read."""
    restated: dict[str, str] = field(default_factory=dict)
    """Paths that the writer may have copied from the table: adding them must not undo a winner's remove."""
    app_ids: set[str] = field(default_factory=set)
    domains: set[str] = field(default_factory=set)
    metadata: Metadata | None = None
    protocol: Protocol | None = None
    reads_definition: bool = False
    reads_history: bool = False
    reads_removals: bool = False
    only_next: str = ""
    """The operation of a commit that must be the next version."""

    @property
    def changes_table(self) -> bool:
        return self.metadata is not None or self.protocol is not None

    def take(self, commit: ProposedCommit) -> None:
        blind = commit.is_blind_append
        if commit.only_next:
            self.only_next = commit.operation
        for action in commit.actions:
            match action:
                case AddFile():
                    if not (blind and action.data_change):
                        self.restated.setdefault(action.path, commit.operation)
                case RemoveFile():
                    self.removed.setdefault(action.path, commit.operation)
                case AppTransaction():
                    self.app_ids.add(action.app_id)
                case DomainMetadata() if action.domain != ROW_TRACKING:
                    self.domains.add(action.domain)
                case Metadata():
                    self.metadata = action
                case Protocol():
                    self.protocol = action
                case _:
                    pass
        self.app_ids |= commit.read.app_ids
        self.reads_definition |= commit.read.definition
        self.reads_history |= commit.read.history
        self.reads_removals |= commit.read.removals
        if not blind:
            self._take_reading(commit)

    def _take_reading(self, commit: ProposedCommit) -> None:
        read = commit.read
        if read.is_empty and any(remove.data_change for remove in _of(RemoveFile, commit.actions)):
            # A delete has read something. If the commit does not record what, it may have read anything.
            read = read | WHOLE_TABLE
        if not read.is_empty:
            self.readings.append(_Reading(commit.operation, read, not _only_rearranges(commit)))


def _stake(mine: Sequence[ProposedCommit], also_read: ReadSet) -> _Stake:
    stake = _Stake(
        app_ids=set(also_read.app_ids),
        reads_definition=also_read.definition,
        reads_history=also_read.history,
        reads_removals=also_read.removals,
    )
    if not also_read.is_empty:
        stake.readings.append(_Reading("", also_read, sees_adds=True))
    for commit in mine:
        stake.take(commit)
    return stake


def _only_rearranges(commit: ProposedCommit) -> bool:
    """Whether the rows stay unchanged: then rows appended meanwhile have no effect (Spark: snapshot isolation)."""
    files = [action for action in commit.actions if isinstance(action, AddFile | RemoveFile)]
    others = [action for action in commit.actions if not isinstance(action, AddFile | RemoveFile)]
    harmless = all(isinstance(other, DomainMetadata) and other.domain == ROW_TRACKING for other in others)
    return bool(files) and harmless and not any(file.data_change for file in files)


class _Check:
    """Checks one proposal against the winners, in turn."""

    def __init__(
        self, table: str, stake: _Stake, matcher: FileMatcher, metadata: Metadata, protocol: Protocol | None
    ) -> None:
        self._table = table
        self._stake = stake
        self._matcher = matcher
        self._metadata = metadata
        self._protocol = protocol
        self._read_paths = [{path for path, _ in reading.read.files} for reading in stake.readings]
        self._binding = _binding(stake, metadata, protocol)

    def meet(self, winner: Winner) -> None:
        """Checks one winner, in Spark's order, so that the same race raises the same error in both."""
        if self._stake.only_next:
            what = f"version {winner.version} came before this {self._stake.only_next}, and max_commit_retries is 0"
            self._raise(CommitFailedError, winner, what)
        self._check_protocol(winner)
        self._check_metadata(winner)
        self._check_domains(winner)
        self._check_txns(winner)
        adds, removes = _of(AddFile, winner.actions), _of(RemoveFile, winner.actions)
        self._check_binding(winner, adds)
        self._check_adds(winner, adds)
        self._check_removes(winner, removes)
        self._check_history(winner)
        self._follow_rearranged(adds, removes)

    def _check_protocol(self, winner: Winner) -> None:
        """A winner that repeats the protocol unchanged, as the fence of a promote does, is no conflict."""
        for protocol in _of(Protocol, winner.actions):
            if self._stake.protocol is not None or not means_the_same(self._protocol, protocol):
                self._raise(ProtocolChangedError, winner, f"version {winner.version} changed the protocol")

    def _check_metadata(self, winner: Winner) -> None:
        """A winner that repeats the metadata unchanged is no conflict; nor is one that only advances identity columns,
        if this transaction generates no values for them."""
        for metadata in _of(Metadata, winner.actions):
            if metadata == self._metadata:
                continue
            what = f"version {winner.version} changed the metadata (schema, partitioning or properties)"
            if self._stake.metadata is not None:
                self._raise(MetadataChangedError, winner, f"{what}, as this transaction does")
            if not moves_identity_only(self._metadata, metadata):
                self._raise(MetadataChangedError, winner, what)
            self._metadata = metadata

    def _check_domains(self, winner: Winner) -> None:
        for domain in _of(DomainMetadata, winner.actions):
            if domain.domain in self._stake.domains:
                what = f"version {winner.version} wrote the metadata domain {domain.domain}, as this transaction does"
                self._raise(ConcurrentTransactionError, winner, what)
            if self._stake.reads_definition and domain.domain != ROW_TRACKING:
                what = f"version {winner.version} wrote the domain {domain.domain}, which this transaction read"
                self._raise(MetadataChangedError, winner, what)

    def _check_txns(self, winner: Winner) -> None:
        for txn in _of(AppTransaction, winner.actions):
            if txn.app_id in self._stake.app_ids:
                what = f"version {winner.version} holds version {txn.version} of the application {txn.app_id}"
                advice = "Another run of it came first: read its version from the table, and go on from there."
                self._raise(ConcurrentTransactionError, winner, what, advice=advice)

    def _check_binding(self, winner: Winner, adds: Sequence[AddFile]) -> None:
        if self._binding and adds:
            what = f"version {winner.version} added {_show(adds[0])}, and this transaction {self._binding}"
            self._raise(ConcurrentAppendError, winner, what, adds[0])

    def _check_adds(self, winner: Winner, adds: Sequence[AddFile]) -> None:
        changed = [add for add in adds if add.data_change]
        for reading in self._stake.readings if changed else ():
            if not reading.sees_adds:
                continue
            if reading.read.whole_table:
                what = f"version {winner.version} added {_show(changed[0])}, and {_who(reading)} read the whole table"
                self._raise(ConcurrentAppendError, winner, what, changed[0])
            match = self._matcher.first_match(changed, reading.read.predicates)
            if match is not None:
                add, predicate = match
                what = f"version {winner.version} added {_show(add)}, which may hold rows that {_who(reading)} read"
                self._raise(ConcurrentAppendError, winner, f"{what} ({predicate.text})", add)

    def _check_removes(self, winner: Winner, removes: Sequence[RemoveFile]) -> None:
        changed = [remove for remove in removes if remove.data_change]
        if changed and self._stake.reads_removals:
            what = f"version {winner.version} deleted {_show(changed[0])}, and this transaction is based on its rows"
            self._raise(ConcurrentDeleteReadError, winner, what, changed[0])
        for reading, paths in zip(self._stake.readings, self._read_paths, strict=True) if changed else ():
            for remove in changed:
                if remove.path in paths or reading.read.whole_table:
                    what = f"version {winner.version} deleted {_show(remove)}, which {_who(reading)} read"
                    self._raise(ConcurrentDeleteReadError, winner, what, remove)
            match = self._matcher.first_match(changed, reading.read.predicates)
            if match is not None:
                removed, predicate = match
                what = (
                    f"version {winner.version} deleted {_show(removed)}, which may have held rows that {_who(reading)}"
                )
                self._raise(ConcurrentDeleteReadError, winner, f"{what} read ({predicate.text})", removed)
        for remove in removes:
            if remove.path in self._stake.removed:
                what = f"version {winner.version} deleted or replaced {_show(remove)}, which this transaction "
                operation = self._stake.removed[remove.path]
                self._raise(ConcurrentDeleteDeleteError, winner, f"{what}({operation}) deletes or replaces too", remove)
            if remove.path in self._stake.restated:
                what = f"version {winner.version} deleted {_show(remove)}, which this transaction "
                operation = self._stake.restated[remove.path]
                self._raise(ConcurrentDeleteReadError, winner, f"{what}({operation}) would bring back", remove)

    def _check_history(self, winner: Winner) -> None:
        if self._stake.reads_history:
            what = f"version {winner.version} was committed, and this transaction read the history up to the newest one"
            self._raise(ConcurrentAppendError, winner, what)

    def _follow_rearranged(self, adds: Sequence[AddFile], removes: Sequence[RemoveFile]) -> None:
        """Adds the files that a winner rearranged read files into: a later winner may delete them."""
        for paths in self._read_paths:
            if any(remove.path in paths for remove in removes):
                paths.update(add.path for add in adds)

    def _raise(
        self,
        error: type[CommitFailedError],
        winner: Winner,
        what: str,
        file: AddFile | RemoveFile | None = None,
        *,
        advice: str = _AGAIN,
    ) -> NoReturn:
        prefix = _USUAL_WORDS.get(error, "Commit failed.")
        message = redact(f"{prefix} Table {self._table}: {what}. Nothing was committed. {advice}")
        raise error(message, table=self._table, version=winner.version, path=file.path if file is not None else None)


def _binding(stake: _Stake, metadata: Metadata, protocol: Protocol | None) -> str:
    """Returns why files that this transaction has not read may not fit the table it defines; '' if they fit."""
    if stake.protocol is not None and drops_features(protocol, stake.protocol):
        return "takes features out of the protocol, which new files may need"
    if stake.metadata is not None:
        return binds_rows(metadata, stake.metadata)
    return ""


def _of(kind: type[_T], actions: Iterable[object]) -> list[_T]:
    return [action for action in actions if isinstance(action, kind)]


def _who(reading: _Reading) -> str:
    return f"this transaction's {reading.operation}" if reading.operation else "this transaction"


def _show(file: AddFile | RemoveFile) -> str:
    values = file.partition_values or {}
    partition = ", ".join(f"{name}={value}" for name, value in values.items())
    return f"{file.path} ({partition})" if partition else file.path
