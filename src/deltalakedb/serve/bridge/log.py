"""BridgedLog: the log of a table in SQL, as delta-spark reads and writes it. Commits are text only on the wire."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

from deltalakedb.catalog.catalog import Catalog
from deltalakedb.exceptions import (
    CommitFailedError,
    ConfigError,
    InvalidCommitError,
    OutcomeUnknownError,
    TableExistsError,
    VersionTakenError,
    redact,
)
from deltalakedb.log.predicates.atoms import TRUE, Predicate
from deltalakedb.log.protocol.actions import Action, CommitInfo, Protocol
from deltalakedb.log.protocol.codec import to_json
from deltalakedb.log.protocol.commit import Commit, render_commit
from deltalakedb.log.protocol.proposal import WHOLE_TABLE, ReadSet
from deltalakedb.log.protocol.rows import protocol_from_row
from deltalakedb.rights import Right, SecuredObject, current_access
from deltalakedb.runtime.steps import reached
from deltalakedb.serve.bridge.commits import (
    VACUUM_END,
    VACUUM_START,
    Listing,
    LogEntry,
    Rendered,
    RenderedCommits,
    begin_sparks_vacuum,
    end_sparks_vacuum,
    entries_of,
    parse_commit,
    proposed,
    read_by,
    runs_of,
    say_managed,
    transaction_id,
    without_row_ids,
    written_for,
)
from deltalakedb.serve.bridge.overlay import Overlay
from deltalakedb.serve.bridge.places import (
    Place,
    bring_up,
    given_location,
    location_of,
    name_in_warehouse,
    parents,
    path_of,
)
from deltalakedb.serve.bridge.staged import Staged
from deltalakedb.serve.rights import admitted_draft, require_free_name, require_free_place
from deltalakedb.store import locations, registry
from deltalakedb.store.connection import Row
from deltalakedb.store.names import TableName, parse_table_name
from deltalakedb.store.proposals import Outcome
from deltalakedb.store.reader import SqlTxnLogReader
from deltalakedb.store.registry import Head, TableRow
from deltalakedb.transactions.commit import commit_drafts
from deltalakedb.transactions.draft import TableDraft
from deltalakedb.transactions.drafts import Drafts
from deltalakedb.transactions.places import reserve_place
from deltalakedb.transactions.staging import stage
from deltalakedb.transactions.transaction import CatalogTransaction


class BridgedLog:
    """Lists, serves and accepts commits. `tx` is the transaction of a path, None for the catalog's present state."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._overlay = Overlay(catalog)
        self._rendered = RenderedCommits()
        self._staged: WeakKeyDictionary[CatalogTransaction, Staged] = WeakKeyDictionary()

    # -- places

    def resolve(self, path: str, tx: CatalogTransaction | None = None) -> Place | None:
        """The table at a bridge path, or a place where one may be created; None if it is not ours."""
        location = location_of(path)
        if tx is not None:
            draft = tx.draft_at(location)
            table = admitted_draft(draft) if draft is not None else None
        else:
            with self._catalog.store.read(single=True) as conn:
                table = current_access().admit(registry.table_by_location(conn, location))
        if table is not None:
            return Place(location, table) if table.mode != "detached" else None
        with self._catalog.store.read() as conn:
            held, now_ms = locations.find_location(conn, location), conn.now_ms()
        if held is not None and held.state == locations.RESERVED and held.expires_ms > now_ms:
            reserved = parse_table_name(held.table_name)
            # Others must not learn of the reservation, which has the name of a table that is about to be.
            if current_access().allows(Right.CREATE, SecuredObject.of_namespace(reserved.namespace)):
                return Place(location, None, reserved, held.table_uuid, held.files_owner)
        inside, name = name_in_warehouse(location, self._catalog.config.warehouse)
        return Place(location, name=name) if inside else None

    def find(self, name: str, tx: CatalogTransaction | None = None) -> Place | None:
        """The table of this name, or None."""
        target = parse_table_name(name)
        if tx is not None:
            draft = tx.find_draft(target)
            self.staged_of(tx).note("found", name)
            row = None if draft is None else admitted_draft(draft)
        else:
            with self._catalog.store.read(single=True) as conn:
                row = current_access().admit(registry.resolve_table(conn, target.namespace, target.name))
        return None if row is None else Place(row.location, row)

    def reserve(self, name: str, tx: CatalogTransaction | None = None, location: str | None = None) -> Place:
        """Reserve a place for a new table; its first commit there takes the name."""
        target = parse_table_name(name)
        require_free_name(self._catalog, target)
        if self.find(name, tx) is not None:
            raise TableExistsError(f"the table {target} exists already; drop or rename it, or choose another name")
        user_location = None if location is None else given_location(location)
        table_uuid = str(uuid.uuid4())
        # A failed CREATE of Spark's cannot release its place, so the latest reservation wins.
        reserved = reserve_place(self._catalog, target, table_uuid, user_location, None, latest_holds=True)
        return Place(reserved, None, target, table_uuid, "catalog" if user_location is None else "user")

    # -- reading

    def entries(self, place: Place, tx: CatalogTransaction | None, start: int) -> Listing:
        """The commits from `start` on. In a transaction: up to the pinned version, then its own."""
        staged = self.staged_at(tx, place.location)
        if tx is not None:
            self.note_opened(tx, place.location)
        own_commits = [rendered for _, rendered in staged]
        if place.table is None:
            return Listing(len(own_commits) - 1, entries_of(own_commits, 0, start))
        if tx is None:
            bring_up(self._catalog, place.table)
        head = self._head(place, tx)
        if head is None:  # created by this transaction
            return Listing(len(own_commits) - 1, entries_of(own_commits, 0, start))
        last = head.current_version
        with self._catalog.store.read(single=True) as conn:
            rows = conn.all(
                "select_log_entries", table_id=place.table.table_id, first_version=start, last_version=max(start, last)
            )
        commits = [row for row in rows if not row["is_base"] and row["version"] <= last]
        misses_base = start <= head.base_version and (not commits or commits[0]["version"] > start)
        self._overlay.ensure_checkpoint(place.table, head, start, last, misses_base=misses_base)
        sizes = self._sizes(place.table, commits)
        committed = tuple(LogEntry(row["version"], sizes[row["version"]], row["committed_at_ms"]) for row in commits)
        return Listing(last + len(own_commits), committed + entries_of(own_commits, last + 1, start), last)

    def read(self, place: Place, tx: CatalogTransaction | None, version: int) -> Rendered | None:
        """The text of a commit, without our fence."""
        staged = self.staged_at(tx, place.location)
        last = -1
        if tx is not None:
            draft = tx.draft_at(place.location)
            last = draft.base.version if draft is not None and draft.base is not None else -1
            if self.staged_of(tx).is_planned(place.location):
                self.note_read(tx, place.location)  # for the change feed, say: no plan tells what is read
            if version > last:
                number = version - last - 1
                return staged[number][1] if number < len(staged) else None
        return None if place.table is None else self._commit_text(place.table, version)

    def checksum(self, place: Place, tx: CatalogTransaction | None, version: int) -> bytes | None:
        """The checksum of a committed version; Spark writes its own for staged commits."""
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
        """Commit as exactly this version; VersionTakenError if another writer has it."""
        if place.table is None and place.name is None:
            raise ConfigError(
                f"no table can be created at {redact(place.location)}: inside the warehouse a table's folder is "
                "<warehouse>/<namespace>/<name>; create it by name, or give a location outside of the warehouse"
            )
        require_free_place(self._catalog, place)
        info, actions = parse_commit(lines, table=place.shown, version=version)
        if (place.table or place).files_owner == "catalog":
            info = say_managed(info)
        operation = None if info is None else info.operation
        if tx is not None:
            if operation == VACUUM_START:
                raise ConfigError(
                    f"table {place.shown}: VACUUM is no part of a transaction: it deletes files at once. Nothing was "
                    "deleted: run it outside of the transaction"
                )
            self.stage(place, tx, version, info, actions, token)
            return version
        self._autocommit(place, version, info, actions, token)
        if operation == VACUUM_END and place.table is not None:
            end_sparks_vacuum(self._catalog.store, place.table.table_id)
        return version

    def _autocommit(
        self, place: Place, version: int, info: CommitInfo | None, actions: list[Action], token: str
    ) -> None:
        name = place.table_name
        drafts = Drafts(self._catalog, [name])
        draft = drafts.find_at(place.location)
        if draft is None:
            if version != 0:
                self._refuse_unless_repeated(place, version, -1, token)
            if drafts.find(name) is not None:
                raise TableExistsError(f"the table {name} exists already, at another place; choose another name")
            draft = _new_draft(drafts, name, place)
        else:
            drafts.make_writable(draft)
            assert draft.base is not None
            if version != draft.base.version + 1:
                self._refuse_unless_repeated(place, version, draft.base.version, token)
                return
        draft.exactly = True
        draft.commits.append(proposed(info, actions, fenced=True if draft.is_new else None))
        outcome = self._ratify(draft, info, token)
        if outcome.repeated and all(commit.version != version for commit in outcome.commits):
            raise InvalidCommitError(
                f"table {place.shown}: the id {token[:80]!r} was used for another commit; send version {version} under "
                "an id of its own"
            )
        if not outcome.repeated and not any(isinstance(action, Protocol) for action in actions):
            (ratified,) = outcome.commits
            if ratified.data is not None:
                self._rendered.put(ratified.table, version, Rendered(ratified.data, ratified.timestamp_ms))

    def _ratify(self, draft: TableDraft, info: CommitInfo | None, token: str) -> Outcome:
        starts_vacuum = info is not None and info.operation == VACUUM_START and not draft.is_new
        if starts_vacuum:
            assert info is not None
            begin_sparks_vacuum(self._catalog.store, draft.pinned.table_id, info)
        try:
            outcome = commit_drafts(self._catalog, [draft], txn_id=transaction_id(info), token=token, message=None)
        except CommitFailedError as error:
            if starts_vacuum and not isinstance(error, OutcomeUnknownError):
                end_sparks_vacuum(self._catalog.store, draft.pinned.table_id)
            raise
        assert outcome is not None
        return outcome

    def _refuse_unless_repeated(self, place: Place, version: int, head: int, token: str) -> None:
        """VersionTakenError, unless the sender repeats a commit that it made: then its token has this version."""
        with self._catalog.store.read() as conn:
            token_row = conn.one("select_token", client_token=token)
            versions = conn.all("select_transaction_versions", txn_id=token_row["txn_id"]) if token_row else []
        table_id = place.table.table_id if place.table else None
        if any((row["table_id"], row["version"]) == (table_id, version) for row in versions):
            return
        raise VersionTakenError(
            f"table {place.shown}: the head is at version {head}, so version {version} cannot be committed",
            table=place.shown,
            version=version,
        )

    def stage(
        self,
        place: Place,
        tx: CatalogTransaction,
        version: int,
        info: CommitInfo | None,
        actions: list[Action],
        token: str,
        modified_ms: int | None = None,
    ) -> None:
        staged = self.staged_of(tx)
        commits = staged.commits.get(place.location, [])
        if any(sent == token for sent, _ in commits):
            return
        draft = tx.draft_at(place.location)
        commit = proposed(info, actions, fenced=True if draft is None else None)
        commit = replace(commit, actions=without_row_ids(commit.actions, draft))
        read = read_by(info, commit)
        if read == WHOLE_TABLE and draft is not None and staged.is_planned(place.location):
            read = draft.read  # what the plans of its search have recorded
        commit = replace(commit, read=read)
        written = written_for(commit)
        new = None if place.name is None else partial(_new_draft, name=place.name, place=place)
        base = None if draft is None else draft.base
        add = partial(stage, commit=commit, txn_id=tx.txn_id, location=place.location, version=version)
        try:
            tx.run_statement(partial(add, name=place.name, new=new, written=written))
        finally:
            if draft is not None and draft.base is not None and draft.base is not base:
                staged.note("promoted", place.location, draft.base.version)
        text = render_commit([info, *actions] if info else actions, fenced=False)
        earlier = commits[-1][1].modified_ms if commits else 0
        at_ms = modified_ms or max(time.time_ns() // 1_000_000, earlier + 1)
        staged.commits.setdefault(place.location, []).append((token, Rendered(text, at_ms)))
        staged.note("commit", path_of(place.location), version, token, at_ms, body=text.decode())
        reached("bridge.staged")

    # -- reads of a transaction

    def note_opened(self, tx: CatalogTransaction, location: str) -> None:
        """Record that the log of a table was listed: unless it is written or planned, it counts as read."""
        staged = self.staged_of(tx)
        staged.opened.add(location)
        staged.note("opened", location)

    def note_read(self, tx: CatalogTransaction, location: str) -> None:
        """Record that a whole table was read."""
        draft = tx.draft_at(location)
        if draft is not None:
            draft.note_read(WHOLE_TABLE)
            self.staged_of(tx).note("read", location)

    def note_plan(
        self,
        tx: CatalogTransaction,
        place: Place,
        version: int,
        filters: Sequence[Mapping[str, Any]],
        predicate: Predicate,
        paths: Iterable[str] = (),
    ) -> None:
        """Record a planned scan: its predicate counts as read, also if it keeps no file, and not the whole table."""
        draft = tx.draft_at(place.location)
        if draft is None:
            return
        is_whole = predicate.disjuncts == TRUE
        draft.note_read(WHOLE_TABLE if is_whole else ReadSet(predicates=(predicate,), definition=True))
        staged = self.staged_of(tx)
        staged.plan(place.location, paths)
        staged.note("plan", path_of(place.location), version, to_json(list(filters)))

    def app_version(self, tx: CatalogTransaction, name: str, app_id: str) -> int | None:
        """Return the version that an application has recorded; this counts as a read."""
        draft = tx.find_draft(parse_table_name(name))
        if draft is not None:
            admitted_draft(draft)
        self.staged_of(tx).note("app", name, app_id)
        return tx.app_version(name, app_id)

    def touch(self, path: str, tx: CatalogTransaction) -> str | None:
        """Record that a data file was opened: its whole table counts as read, unless a plan has chosen the file.

        Returns the path of what counts as read, the table or only the file; None if the file is of no table.
        """
        for location in parents(location_of(path)):
            draft = tx.draft_at(location)
            if draft is not None and admitted_draft(draft) is not None:
                table = path_of(location)
                if self.staged_of(tx).is_planned(location, path.removeprefix(f"{table}/")):
                    return path
                self.note_read(tx, location)
                return table
        return None

    def prepare(self, tx: CatalogTransaction) -> None:
        """Before the commit: tables that were opened but neither written nor planned count as read."""
        staged = self.staged_of(tx)
        for location in staged.opened:
            draft = tx.draft_at(location)
            if draft is not None and not draft.commits and not staged.is_planned(location):
                draft.note_read(WHOLE_TABLE)

    # -- helpers

    def staged_of(self, tx: CatalogTransaction) -> Staged:
        return self._staged.setdefault(tx, Staged())

    def staged_at(self, tx: CatalogTransaction | None, location: str) -> list[tuple[str, Rendered]]:
        return [] if tx is None else self.staged_of(tx).commits.get(location, [])

    def _head(self, place: Place, tx: CatalogTransaction | None) -> Head | None:
        if tx is not None:
            draft = tx.draft_at(place.location)
            return None if draft is None else draft.head
        assert place.table is not None
        with self._catalog.store.read(single=True) as conn:
            return registry.read_head(conn, place.table.table_id)

    def _commit_text(self, table: TableRow, version: int) -> Rendered | None:
        text = self._rendered.get(table, version)
        if text is None:
            reader = SqlTxnLogReader(self._catalog.store, table)
            if not reader.has_commit(version):
                return None
            (commit,) = reader.commits(version, version)
            text = self._render(table, commit)
        return text

    def _render(self, table: TableRow, commit: Commit) -> Rendered:
        """A commit as Spark reads it: without our fence. A commit that only adds or removes the fence has no protocol.

        Spark would take it for a change of the protocol, and fail statements that began before it.
        """
        actions = commit.actions
        if commit.version > 0 and any(isinstance(action, Protocol) for action in actions):
            ids = {"table_id": table.table_id}
            with self._catalog.store.read() as conn:
                current, before = (
                    conn.one("select_protocol", **ids, version=version)
                    for version in (commit.version, commit.version - 1)
                )
            if (
                current
                and before
                and current["fenced"] != before["fenced"]
                and protocol_from_row(current) == protocol_from_row(before)
            ):
                actions = tuple(action for action in actions if not isinstance(action, Protocol))
        text = Rendered(render_commit(actions, fenced=False), commit.timestamp_ms)
        self._rendered.put(table, commit.version, text)
        return text

    def _sizes(self, table: TableRow, rows: list[Row]) -> dict[int, int]:
        """The length of each commit's text: Spark reads exactly as many bytes as the listing says."""
        sizes = {row["version"]: row["rendered_bytes"] or self._rendered.size(table, row["version"]) for row in rows}
        missing = [version for version, size in sizes.items() if size is None]
        reader = SqlTxnLogReader(self._catalog.store, table)
        for first, last in runs_of(missing):
            for commit in reader.commits(first, last):
                sizes[commit.version] = len(self._render(table, commit).data)
        return {version: size for version, size in sizes.items() if size is not None}


def _new_draft(drafts: Drafts, name: TableName, place: Place) -> TableDraft:
    """The draft of a table that a first commit creates, at a reserved place or where Spark chose to write."""
    if place.reserved_for is None:
        return drafts.join(name, place.location)
    return drafts.adopt(name, place.location, place.reserved_for, place.files_owner)
