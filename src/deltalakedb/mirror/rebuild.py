"""Rebuild: turns an empty database into the catalog that wrote the mirrors: names, ids and transactions.

Each of our commits has a mark: catalog, table, name and transaction. The files alone are therefore enough, as far back
as they hold the history. The audit trail and followers are not in them.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from deltalakedb.exceptions import DeltaError, TableExistsError, redact
from deltalakedb.files.discovery import find_tables
from deltalakedb.files.reader import FileTxnLogReader
from deltalakedb.log.protocol.commit import Commit
from deltalakedb.log.protocol.completion import Mark, parse_mark
from deltalakedb.log.protocol.fence import shows_iceberg, unfence
from deltalakedb.mirror.external import Importer, newest_mark
from deltalakedb.mirror.follow import load_history
from deltalakedb.runtime.steps import reached
from deltalakedb.store import locations, registry
from deltalakedb.store.audit import write_audit
from deltalakedb.store.connection import LIVE, Connection, Store
from deltalakedb.store.iceberg import write_iceberg_commits
from deltalakedb.store.loader import Loader, Progress
from deltalakedb.store.names import MAX_PART_LENGTH, TableName, parse_table_name
from deltalakedb.store.proposals import IcebergCommit, TableProposal
from deltalakedb.store.registry import TableRow


@dataclass(frozen=True, slots=True)
class MirroredTable:
    """A table in the files that a catalog of ours manages, as its newest commit names it."""

    reader: FileTxnLogReader
    mark: Mark

    @property
    def location(self) -> str:
        return self.reader.location


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A table that was found but not loaded, and the reason."""

    location: str
    reason: str


@dataclass(frozen=True, slots=True)
class FoundTable:
    """An Iceberg table or view in the files, and the commit that makes its newest metadata the first version here."""

    name: TableName
    location: str
    mode: str
    files_owner: str
    commit: IcebergCommit


@dataclass(frozen=True, slots=True)
class RebuiltTable:
    table: TableRow
    version: int
    was_named: str | None = None
    """The name in its newest commit, if another table has that name now."""
    dropped: bool = False
    """Whether it was dropped; it can be undropped."""


@dataclass(frozen=True, slots=True)
class Rebuilt:
    catalog_id: str
    tables: tuple[RebuiltTable, ...]
    left_out: tuple[LeftOut, ...]
    num_transactions: int = 0


def rebuild(
    store: Store,
    prefix: str | os.PathLike[str],
    *,
    take_over: str | None = None,
    storage_options: Mapping[str, str] | None = None,
    properties: Mapping[str, object] | None = None,
    progress: Progress | None = None,
    actor: str | None = None,
    origin: str | None = None,
    drop_retention_ms: int = 0,
    iceberg: Sequence[FoundTable] = (),
) -> Rebuilt:
    """Load all tables below `prefix` that one catalog managed, and take over its id, in one SQL transaction.

    `iceberg` are Iceberg tables and views to register in the same transaction. If there are only those, the catalog
    keeps its own id.
    """
    with store.read() as conn:
        _check_empty(conn)
    mirrored, left_out = find_mirrored(prefix, storage_options)
    chosen = _choose(prefix, mirrored, take_over) if mirrored or take_over or not iceberg else []
    left_out += [
        LeftOut(table.location, f"managed by another catalog, {table.mark.catalog_id}")
        for table in mirrored
        if table.mark.catalog_id != chosen[0].mark.catalog_id
    ]
    _check_no_copies(chosen)
    with store.write() as conn:
        job = _Rebuild(conn, chosen, iceberg, dict(properties or {}), progress, actor, origin, drop_retention_ms)
        rebuilt = job.run()
        reached("rebuild.written")
    return replace(rebuilt, left_out=tuple(left_out))


def find_mirrored(
    prefix: str | os.PathLike[str], options: Mapping[str, str] | None
) -> tuple[list[MirroredTable], list[LeftOut]]:
    """The tables below a prefix that have our fence, and those that do not."""
    mirrored: list[MirroredTable] = []
    left_out: list[LeftOut] = []
    for location in find_tables(prefix, options):
        try:
            reader = FileTxnLogReader(location, options)
            snapshot = reader.snapshot()
            if shows_iceberg(snapshot.metadata):
                continue  # found by its own metadata files
            _, fenced = unfence(snapshot.protocol)
            mark = newest_mark(reader) if fenced else None
            mark = None if mark is None else _quote_name(mark)
        except DeltaError as error:
            left_out.append(LeftOut(location, str(error)))
            continue
        if mark is not None:
            mirrored.append(MirroredTable(reader, mark))
        else:
            reason = "fenced, but no commit tells by whom" if fenced else "not managed by a catalog"
            left_out.append(LeftOut(location, reason))
    return mirrored, left_out


def _quote_name(mark: Mark) -> Mark:
    """The mark with its table name quoted where needed: older commits have names without backticks."""
    return replace(mark, table=str(parse_table_name(mark.table)))


def _check_empty(conn: Connection) -> None:
    row = conn.one("count_registered")
    if row is not None and (row["num_tables"] or row["num_transactions"]):
        raise TableExistsError(
            f"this catalog is not empty: it knows {row['num_tables']} tables and {row['num_transactions']} "
            "transactions. Rebuild into a new database; `dl import PATH --as NS.NAME` takes a single table into this"
        )


def _choose(
    prefix: str | os.PathLike[str], mirrored: Sequence[MirroredTable], take_over: str | None
) -> list[MirroredTable]:
    """The tables of the catalog that is to be rebuilt."""
    counts: dict[str, int] = {}
    for table in mirrored:
        counts[table.mark.catalog_id] = counts.get(table.mark.catalog_id, 0) + 1
    listed = ", ".join(f"{catalog_id} ({count} tables)" for catalog_id, count in sorted(counts.items()))
    where = redact(os.fspath(prefix))
    if not counts:
        raise DeltaError(
            f"no table below {where} is managed by a catalog of ours; `dl import --recursive {where}` takes in tables "
            "that others write"
        )
    if take_over is not None and take_over not in counts:
        raise DeltaError(f"no table below {where} is managed by the catalog {take_over}; found: {listed}")
    if take_over is None and len(counts) > 1:
        raise DeltaError(
            f"the tables below {where} are managed by several catalogs: {listed}. Say which one to be with --take-over "
            "ID, and make sure that no database still decides for it"
        )
    chosen_id = take_over or next(iter(counts))
    return sorted(
        (table for table in mirrored if table.mark.catalog_id == chosen_id), key=lambda one: one.mark.table_id
    )


def _check_no_copies(chosen: Iterable[MirroredTable]) -> None:
    locations_by_uuid: dict[str, str] = {}
    for table in chosen:
        other = locations_by_uuid.setdefault(table.mark.table_uuid, table.location)
        if other != table.location:
            raise DeltaError(
                f"{redact(other)} and {redact(table.location)} are the same table ({table.mark.table}): one is a copy. "
                "Move the copy out of the way, or rebuild from a narrower prefix"
            )


@dataclass(slots=True)
class _Names:
    """The names of a table and the times since which it had them, from the marks of its commits."""

    since: list[tuple[int, str | None]] = field(default_factory=list)
    """The name is None from the time the table was dropped."""

    def watch(self, commits: Iterable[Commit], catalog_id: str) -> Iterator[Commit]:
        for commit in commits:
            mark = parse_mark(commit.commit_info)
            if mark is not None and mark.catalog_id == catalog_id:
                self.see(_quote_name(mark))
            yield commit

    def begin(self, at_ms: int, name: str) -> None:
        """Record the oldest known name for the time before the first remaining commit, if the history was cut."""
        self.since[:1] = [(at_ms, self.since[0][1] or name if self.since else name)]

    def see(self, mark: Mark) -> None:
        self._note(mark.committed_at_ms, mark.table)
        if mark.dropped:
            self._note(mark.committed_at_ms, None)

    def _note(self, at_ms: int, name: str | None) -> None:
        if not self.since or self.since[-1][1] != name:
            self.since.append((max(at_ms, self.since[-1][0] + 1) if self.since else at_ms, name))


@dataclass(slots=True)
class _WatchingImporter(Importer):
    """An Importer that also records the names in the commits' marks."""

    names: _Names = field(default_factory=_Names)

    def take(self, commits: Iterable[Commit]) -> None:
        Importer.take(self, self.names.watch(commits, self.catalog_id))


@dataclass(slots=True)
class _Rebuild:
    """The transaction that fills the database."""

    conn: Connection
    chosen: Sequence[MirroredTable]
    iceberg: Sequence[FoundTable]
    properties: dict[str, object]
    progress: Progress | None
    actor: str | None
    origin: str | None
    drop_retention_ms: int
    _used_names: set[tuple[str, str]] = field(default_factory=set)

    def run(self) -> Rebuilt:
        self.conn.one("select_next_table_id")  # takes a lock, so that concurrent rebuilds run one after the other
        _check_empty(self.conn)
        catalog_id = registry.catalog_id(self.conn)
        if self.chosen:
            catalog_id = self.chosen[0].mark.catalog_id
            next_id = max(table.mark.table_id for table in self.chosen) + 1
            self.conn.run("take_over_catalog", catalog_id=catalog_id, next_table_id=next_id)
        # The table that was named last keeps the name: the other was renamed, and had no commit since.
        newest_first = sorted(self.chosen, key=lambda one: one.mark.committed_at_ms, reverse=True)
        names = {table.location: self._name_of(table.mark) for table in newest_first}
        used: set[int] = set()
        tables = []
        for table in self.chosen:
            table_id = registry.next_table_id(self.conn) if table.mark.table_id in used else table.mark.table_id
            used.add(table_id)
            tables.append(self._take(table, table_id, catalog_id, names[table.location]))
        tables += [self._register_iceberg(found, number) for number, found in enumerate(self.iceberg)]
        counts = self.conn.one("count_registered") or {}
        details = {"catalog_id": catalog_id, "tables": len(tables), "transactions": counts.get("num_transactions")}
        write_audit(
            self.conn, action="rebuild", at_ms=self.conn.now_ms(), actor=self.actor, origin=self.origin, details=details
        )
        return Rebuilt(catalog_id, tuple(tables), (), int(counts.get("num_transactions") or 0))

    def _take(self, one: MirroredTable, table_id: int, catalog_id: str, name: str) -> RebuiltTable:
        loader = Loader(self.conn, table_id, table=name, progress=self.progress)
        importer = _WatchingImporter(self.conn, loader, catalog_id)
        load_history(importer, one.reader, "full")
        head = loader.finish()
        self.conn.run("mark_mirrored", table_id=table_id, version=head.current_version)
        base = self.conn.one("select_earliest_version", table_id=table_id)
        if head.base_version > 0 and base is not None:
            importer.names.begin(base["committed_at_ms"], one.mark.table)
        row = self._register(one, table_id, importer.names.since, name)
        return RebuiltTable(
            row, head.current_version, one.mark.table if name != one.mark.table else None, one.mark.dropped
        )

    def _register_iceberg(self, found: FoundTable, number: int) -> RebuiltTable:
        """Register an Iceberg table or view with one version; its earlier versions are only in old metadata files."""
        full_name = self._free_name(str(found.name), number)
        name = parse_table_name(full_name)
        at_ms = self.conn.now_ms()
        row = registry.register_table(
            self.conn,
            namespace=name.namespace,
            name=name.name,
            location=found.location,
            mode=found.mode,
            properties=self.properties,
            at_ms=at_ms,
            files_owner=found.files_owner,
        )
        proposal = TableProposal(row, -1, iceberg=(found.commit,))
        write_iceberg_commits(self.conn, proposal, row, None, at_ms=at_ms, txn_id=None)
        return RebuiltTable(row, 0, str(found.name) if full_name != str(found.name) else None)

    def _register(
        self, one: MirroredTable, table_id: int, since: Sequence[tuple[int, str | None]], name: str
    ) -> TableRow:
        """Register every name the table had, each until the next, so that `cat.at` finds it."""
        names = [*since] or [(one.mark.committed_at_ms, one.mark.table)]
        if not one.mark.dropped and names[-1][1] != name:
            names.append((max(self.conn.now_ms(), names[-1][0] + 1), name))
        row = None
        for position, (from_ms, full_name) in enumerate(names):
            until_ms = names[position + 1][0] if position + 1 < len(names) else LIVE
            if full_name is not None:
                row = self._insert(one, table_id, full_name, from_ms, until_ms)
        assert row is not None, "a table has a name"
        self._claim(one, row)
        return row

    def _claim(self, one: MirroredTable, row: TableRow) -> None:
        """Claim the location; a dropped table can be undropped for this catalog's drop retention."""
        now_ms = self.conn.now_ms()
        claimant = locations.Claimant(row.table_uuid, row.full_name, row.files_owner, row.table_id)
        locations.claim(self.conn, row.location, claimant, now_ms=now_ms)
        if one.mark.dropped:
            until_ms = now_ms + self.drop_retention_ms
            locations.change_location(self.conn, row.table_id, row.full_name, locations.DROPPED, until_ms)

    def _insert(self, one: MirroredTable, table_id: int, full_name: str, from_ms: int, until_ms: int) -> TableRow:
        name = parse_table_name(full_name)
        row = TableRow(
            table_id,
            one.mark.table_uuid,
            name.namespace,
            name.name,
            one.location,
            "managed",
            "live",
            self.properties,
            one.mark.files_owner,
        )
        registry.record_table(self.conn, row, from_ms=from_ms, until_ms=until_ms)
        return row

    def _name_of(self, mark: Mark) -> str:
        return mark.table if mark.dropped else self._free_name(mark.table, mark.table_id)

    def _free_name(self, wanted: str, number: int) -> str:
        """Return a name, with a number added if another table has it."""
        first_name = name = parse_table_name(wanted)
        while name.key in self._used_names:
            suffix = f"_{number}"
            name = TableName(first_name.namespace, first_name.name[: MAX_PART_LENGTH - len(suffix)] + suffix)
            number += 1
        self._used_names.add(name.key)
        return str(name)
