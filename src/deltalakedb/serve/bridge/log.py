"""BridgedLog: the log of a table as delta-spark reads and writes it, kept in SQL. Commits are text only on the wire."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from weakref import WeakKeyDictionary

from deltalakedb.catalog import Catalog
from deltalakedb.exceptions import ConfigError, InvalidCommitError, TableExistsError, VersionTakenError, redact
from deltalakedb.log.actions import Action, AddFile, CommitInfo, DomainMetadata, Protocol, RemoveFile
from deltalakedb.log.commit import iter_actions
from deltalakedb.log.paths import check_path, is_absolute
from deltalakedb.log.proposal import NOTHING_READ, WHOLE_TABLE, ProposedCommit, ReadSet
from deltalakedb.log.render import render_commit
from deltalakedb.log.row_tracking import DOMAIN, high_water_mark
from deltalakedb.names import TableName, parse_table_name
from deltalakedb.serve.bridge.overlay import Overlay
from deltalakedb.serve.bridge.places import SCHEME, Place, location_of, name_in_warehouse, parents, path_of
from deltalakedb.serve.bridge.rendered import Rendered, RenderedCommits
from deltalakedb.serve.bridge.reservations import Reservations
from deltalakedb.steps import reached
from deltalakedb.store import registry
from deltalakedb.store.connection import Row
from deltalakedb.store.reader import SqlTxnLogReader
from deltalakedb.store.registry import Head, TableRow
from deltalakedb.transactions.commit import commit_drafts
from deltalakedb.transactions.draft import TableDraft
from deltalakedb.transactions.drafts import Drafts
from deltalakedb.transactions.transaction import CatalogTransaction

_WRITING = frozenset(
    {"WRITE", "MERGE", "UPDATE", "DELETE", "OPTIMIZE", "STREAMING UPDATE"}
    | {"CREATE TABLE", "REPLACE TABLE", "CREATE OR REPLACE TABLE"}
)
"""Operations of Spark whose adds are files that it has just written."""


@dataclass(frozen=True, slots=True)
class LogEntry:
    """A commit, as a listing shows it."""

    version: int
    size: int
    modified_ms: int


@dataclass(frozen=True, slots=True)
class Listing:
    """The commits from some version on, and the last version that the reader may see."""

    head: int
    entries: tuple[LogEntry, ...] = ()
    pinned: int = -1
    """The last of them that everybody sees: what others have put into the overlay since is not the transaction's."""


@dataclass(slots=True)
class _Staged:
    """What a transaction has staged, by location: the texts as Spark wrote them, and who sent them."""

    commits: dict[str, list[tuple[str, Rendered]]] = field(default_factory=dict)
    opened: set[str] = field(default_factory=set)


class BridgedLog:
    """Lists, serves and takes commits. `tx` is the transaction that a path names, None for the catalog as it is."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._overlay = Overlay(catalog)
        self._rendered = RenderedCommits()
        self._staged: WeakKeyDictionary[CatalogTransaction, _Staged] = WeakKeyDictionary()
        self._reservations = Reservations(catalog.store)

    # -- places

    def resolve(self, path: str, tx: CatalogTransaction | None = None) -> Place | None:
        """The table at a bridge path, or where one may be created; None: not ours."""
        location = location_of(path)
        if tx is not None:
            draft = tx.draft_at(location)
            table = draft.row if draft is not None else None
        else:
            with self._catalog.store.read(single=True) as conn:
                table = registry.table_by_location(conn, location)
        if table is not None:
            return Place(location, table) if table.mode != "detached" else None
        reserved = self._reservations.get(location)
        if reserved is not None:
            return Place(location, name=reserved)
        inside, name = name_in_warehouse(location, self._catalog.config.warehouse)
        return Place(location, name=name) if inside else None

    def find(self, name: str, tx: CatalogTransaction | None = None) -> Place | None:
        """The table of a name; None when there is none."""
        target = parse_table_name(name)
        if tx is not None:
            draft = tx.find_draft(target)
            row = None if draft is None else draft.row
        else:
            with self._catalog.store.read(single=True) as conn:
                row = registry.resolve_table(conn, target.namespace, target.name)
        return None if row is None else Place(row.location, row)

    def reserve(self, name: str, tx: CatalogTransaction | None = None, location: str | None = None) -> Place:
        """Where a table of a name is to be created; its first commit there takes the name."""
        target = parse_table_name(name)
        if self.find(name, tx) is not None:
            raise TableExistsError(f"the table {target} exists already; drop or rename it, or choose another name")
        if location is None:
            at = Drafts(self._catalog, [target]).location_of_new(target)
        else:
            at = location_of(location.removeprefix(f"{SCHEME}://")) if location.startswith(SCHEME) else location
            at = location_of(path_of(at))
        owner = self.resolve(path_of(at), tx)
        if owner is not None and owner.table is not None:
            raise TableExistsError(
                f"{target} cannot be created at {redact(at)}: {owner.shown} is there; a location has one owner"
            )
        if owner is None or owner.name != target:  # else its place in the warehouse says the same
            self._reservations.put(at, target)
        return Place(at, name=target)

    # -- reading

    def entries(self, place: Place, tx: CatalogTransaction | None, start: int) -> Listing:
        """The commits from `start` on. Inside a transaction: up to the pinned version, and then its own."""
        staged = self._staged_at(tx, place.location)
        if tx is not None:
            self._staged.setdefault(tx, _Staged()).opened.add(place.location)
        own = [one for _, one in staged]
        if place.table is None:
            return Listing(len(own) - 1, _entries(own, 0, start))
        head = self._head(place, tx)
        if head is None:  # created by this transaction
            return Listing(len(own) - 1, _entries(own, 0, start))
        last = head.current_version
        with self._catalog.store.read(single=True) as conn:
            rows = conn.all(
                "select_log_entries", table_id=place.table.table_id, first_version=start, last_version=max(start, last)
            )
        kept = [row for row in rows if not row["is_base"] and row["version"] <= last]
        misses_base = start <= head.base_version and (not kept or kept[0]["version"] > start)
        self._overlay.ensure_checkpoint(place.table, head, start, last, misses_base=misses_base)
        sizes = self._sizes(place.table, kept)
        committed = tuple(LogEntry(row["version"], sizes[row["version"]], row["committed_at_ms"]) for row in kept)
        return Listing(last + len(own), committed + _entries(own, last + 1, start), last)

    def read(self, place: Place, tx: CatalogTransaction | None, version: int) -> Rendered | None:
        """The text of a commit, without our fence."""
        staged = self._staged_at(tx, place.location)
        last = -1
        if tx is not None:
            draft = tx.draft_at(place.location)
            last = draft.base.version if draft is not None and draft.base is not None else -1
            if version > last:
                number = version - last - 1
                return staged[number][1] if number < len(staged) else None
        return None if place.table is None else self._commit_text(place.table, version)

    def checksum(self, place: Place, tx: CatalogTransaction | None, version: int) -> bytes | None:
        """The checksum of a committed version; of what a transaction has staged Spark writes its own."""
        head = None if place.table is None else self._head(place, tx)
        if place.table is None or head is None or not 0 <= version <= head.current_version:
            return None
        with self._catalog.store.read(single=True) as conn:
            now = registry.read_head(conn, place.table.table_id)
        return None if now is None else self._overlay.checksum(place.table, now, version)

    # -- writing

    def commit(
        self, place: Place, tx: CatalogTransaction | None, version: int, lines: Iterable[bytes], token: str
    ) -> int:
        """Take a commit of Spark's as exactly this version; VersionTakenError when that is somebody else's."""
        if place.table is None and place.name is None:
            raise ConfigError(
                f"no table can be created at {redact(place.location)}: inside the warehouse a table's folder is "
                "<warehouse>/<namespace>/<name>; create it by name, or give a location outside of the warehouse"
            )
        info, actions = _parse(lines, table=place.shown, version=version)
        if tx is not None:
            self._stage(place, tx, version, info, actions, token)
        else:
            self._autocommit(place, version, info, actions, token)
        return version

    def _autocommit(
        self, place: Place, version: int, info: CommitInfo | None, actions: list[Action], token: str
    ) -> None:
        name = _name_of(place)
        drafts = Drafts(self._catalog, [name])
        draft = drafts.find_at(place.location)
        if draft is None:
            self._refuse_unless_first(place, version, token)
            if drafts.find(name) is not None:
                raise TableExistsError(f"the table {name} exists already, at another place; choose another name")
            draft = drafts.new_at(name, place.location)
        else:
            draft.check_writable()
            assert draft.base is not None
            if version != draft.base.version + 1:
                self._refuse_unless_repeated(place, version, draft.base.version, token)
                return
        draft.exactly = True
        draft.propose(_proposed(info, actions, fenced=True if draft.is_new else None))
        txn_id = _transaction_id(info)
        outcome = commit_drafts(self._catalog, [draft], txn_id=txn_id, token=token, message=None)
        assert outcome is not None
        if outcome.repeated and all(commit.version != version for commit in outcome.commits):
            raise InvalidCommitError(
                f"table {place.shown}: the id {token[:80]!r} was used for another commit; send version {version} under "
                "an id of its own"
            )
        if not outcome.repeated and not any(isinstance(action, Protocol) for action in actions):
            (made,) = outcome.commits
            if made.data is not None:
                self._rendered.put(made.table, version, Rendered(made.data, made.timestamp_ms))
        if draft.is_new:
            self._reservations.drop(place.location, name)

    def _refuse_unless_first(self, place: Place, version: int, token: str) -> None:
        if version != 0:
            self._refuse_unless_repeated(place, version, -1, token)

    def _refuse_unless_repeated(self, place: Place, version: int, head: int, token: str) -> None:
        """A sender that has lost the answer sends again: its commit is there, under its token."""
        with self._catalog.store.read() as conn:
            known = conn.one("select_token", client_token=token)
            made = conn.all("select_transaction_versions", txn_id=known["txn_id"]) if known else []
        table_id = place.table.table_id if place.table else None
        if any((row["table_id"], row["version"]) == (table_id, version) for row in made):
            return
        raise VersionTakenError(
            f"table {place.shown}: the head is at version {head}, so version {version} cannot be committed",
            table=place.shown,
            version=version,
        )

    def _stage(
        self,
        place: Place,
        tx: CatalogTransaction,
        version: int,
        info: CommitInfo | None,
        actions: list[Action],
        token: str,
    ) -> None:
        if any(sent == token for sent, _ in self._staged_at(tx, place.location)):
            return
        draft = tx.draft_at(place.location)
        commit = _proposed(info, actions, fenced=True if draft is None else None)
        commit = replace(commit, actions=_without_row_ids(commit.actions, draft))
        commit = replace(commit, read=_read_by(info, commit))
        written = _written_for(commit)
        tx.stage(commit, location=place.location, version=version, name=place.name, written=written)
        text = render_commit([info, *actions] if info else actions, fenced=False)
        staged = self._staged.setdefault(tx, _Staged()).commits.setdefault(place.location, [])
        earlier = staged[-1][1].modified_ms if staged else 0
        staged.append((token, Rendered(text, max(time.time_ns() // 1_000_000, earlier + 1))))
        reached("bridge.staged")

    # -- what a transaction has read

    def touch(self, path: str, tx: CatalogTransaction) -> str | None:
        """A data file was opened: its table counts as read, whole. The table's path; None: of no table of ours."""
        for location in parents(location_of(path)):
            draft = tx.draft_at(location)
            if draft is not None:
                draft.note_read(WHOLE_TABLE)
                return path_of(location)
        return None

    def prepare(self, tx: CatalogTransaction) -> None:
        """Before the commit: a table that was opened and not written to was opened to be read."""
        staged = self._staged.get(tx)
        for location in staged.opened if staged else ():
            draft = tx.draft_at(location)
            if draft is not None and not draft.commits:
                draft.note_read(WHOLE_TABLE)

    # -- helpers

    def _staged_at(self, tx: CatalogTransaction | None, location: str) -> list[tuple[str, Rendered]]:
        staged = self._staged.get(tx) if tx is not None else None
        return staged.commits.get(location, []) if staged else []

    def _head(self, place: Place, tx: CatalogTransaction | None) -> Head | None:
        if tx is not None:
            draft = tx.draft_at(place.location)
            return None if draft is None else draft.head
        assert place.table is not None
        with self._catalog.store.read(single=True) as conn:
            return registry.read_head(conn, place.table.table_id)

    def _commit_text(self, table: TableRow, version: int) -> Rendered | None:
        known = self._rendered.get(table, version)
        if known is None:
            reader = SqlTxnLogReader(self._catalog.store, table)
            if not reader.has_commit(version):
                return None
            (commit,) = reader.commits(version, version)
            known = Rendered(render_commit(commit.actions, fenced=False), commit.timestamp_ms)
            self._rendered.put(table, version, known)
        return known

    def _sizes(self, table: TableRow, rows: list[Row]) -> dict[int, int]:
        """The length of each commit's text: Spark reads as far as the listing says, and no further."""
        known = {row["version"]: row["rendered_bytes"] or self._rendered.size(table, row["version"]) for row in rows}
        missing = [version for version, size in known.items() if size is None]
        reader = SqlTxnLogReader(self._catalog.store, table)
        for first, last in _runs(missing):
            for commit in reader.commits(first, last):
                text = Rendered(render_commit(commit.actions, fenced=False), commit.timestamp_ms)
                self._rendered.put(table, commit.version, text)
                known[commit.version] = len(text.data)
        return {version: size for version, size in known.items() if size is not None}


def _runs(versions: list[int]) -> Iterator[tuple[int, int]]:
    """The first and last of each unbroken run."""
    start = 0
    for end in range(1, len(versions) + 1):
        if end == len(versions) or versions[end] != versions[end - 1] + 1:
            yield versions[start], versions[end - 1]
            start = end


def _entries(staged: list[Rendered], first: int, start: int) -> tuple[LogEntry, ...]:
    numbered = enumerate(staged, start=first)
    return tuple(LogEntry(version, len(one.data), one.modified_ms) for version, one in numbered if version >= start)


def _parse(lines: Iterable[bytes], *, table: str, version: int) -> tuple[CommitInfo | None, list[Action]]:
    info: CommitInfo | None = None
    actions: list[Action] = []
    for action in iter_actions(lines, table=table, version=version):
        if isinstance(action, CommitInfo):
            info = action
            continue
        if isinstance(action, AddFile) and action.path.startswith(f"{SCHEME}:"):
            raise InvalidCommitError(
                f"table {table}, version {version}: the commit adds files of another table by their address in this "
                "session, as SHALLOW CLONE does; nothing was committed: no other reader could follow that address, so "
                "copy the rows (CREATE TABLE ... AS SELECT)"
            )
        actions.append(action)
    return info, actions


def _proposed(info: CommitInfo | None, actions: list[Action], *, fenced: bool | None) -> ProposedCommit:
    operation = (info.operation if info else None) or "WRITE"
    return ProposedCommit(tuple(actions), operation, fenced=fenced, commit_info=info)


def _read_by(info: CommitInfo | None, commit: ProposedCommit) -> ReadSet:
    """A commit's text has no read set: what is not said to be blind has read the table, whole."""
    blind = info is not None and info.value.get("isBlindAppend") is True
    return NOTHING_READ if blind and commit.is_blind_append else WHOLE_TABLE


def _written_for(commit: ProposedCommit) -> list[AddFile]:
    """The files that were made for a commit. Those that it takes over (RESTORE, CONVERT) or marks (DVs) are older."""
    if commit.operation.removesuffix(" AS SELECT") not in _WRITING:
        return []
    older = {action.path for action in commit.actions if isinstance(action, RemoveFile)}
    adds = [action for action in commit.actions if isinstance(action, AddFile) and action.path not in older]
    for add in adds:
        check_path(add.path)
    return [add for add in adds if not is_absolute(add.path)]


def _without_row_ids(actions: tuple[Action, ...], draft: TableDraft | None) -> tuple[Action, ...]:
    """Row ids that Spark handed out itself: if others commit first, they are theirs. The writer gives new ones."""
    if not any(isinstance(action, DomainMetadata) and action.domain == DOMAIN for action in actions):
        return actions
    known = draft.snapshot().domain_metadata() if draft is not None and (draft.base or draft.commits) else {}
    mark = high_water_mark(known.get(DOMAIN))
    return tuple(_strip(actions, mark))


def _strip(actions: Iterable[Action], mark: int) -> Iterator[Action]:
    for action in actions:
        if isinstance(action, DomainMetadata) and action.domain == DOMAIN:
            continue
        if isinstance(action, AddFile) and action.base_row_id is not None and action.base_row_id > mark:
            yield replace(action, base_row_id=None, default_row_commit_version=None)
        else:
            yield action


def _name_of(place: Place) -> TableName:
    if place.table is not None:
        return TableName(place.table.namespace, place.table.name)
    assert place.name is not None
    return place.name


def _transaction_id(info: CommitInfo | None) -> str:
    """Spark's own id of the commit, where it is one nobody else can have."""
    try:
        return str(uuid.UUID((info.txn_id if info else None) or ""))
    except ValueError:
        return str(uuid.uuid4())
