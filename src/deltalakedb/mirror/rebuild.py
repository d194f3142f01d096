"""Rebuild: an empty database becomes the catalog that its own mirrors tell of: names, ids, transactions and all.

Every commit of ours carries a mark: which catalog, which table, under which name, in which transaction. So the files
alone are enough to go on, as far back as they still hold the history; the audit trail and followers are not in them.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from deltalakedb.exceptions import DeltaError, TableExistsError, redact
from deltalakedb.files.discovery import find_tables
from deltalakedb.files.reader import FileTxnLogReader
from deltalakedb.log.commit import Commit
from deltalakedb.log.commit_info import Mark, parse_mark
from deltalakedb.log.fence import unfence
from deltalakedb.mirror.external import Importer, newest_mark
from deltalakedb.mirror.importer import load_history
from deltalakedb.names import MAX_PART_LENGTH, TableName, parse_table_name
from deltalakedb.steps import reached
from deltalakedb.store import locations, registry
from deltalakedb.store.audit import write_audit
from deltalakedb.store.connection import LIVE, Connection, Store
from deltalakedb.store.loader import Loader, Progress
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
    """A table that was found and not taken in, and why."""

    location: str
    reason: str


@dataclass(frozen=True, slots=True)
class RebuiltTable:
    table: TableRow
    version: int
    was_named: str | None = None
    """The name its newest commit gives, where another table has that name now."""
    dropped: bool = False
    """It was dropped, and can be undropped."""


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
) -> Rebuilt:
    """Take in every table below `prefix` that one catalog managed, and be that catalog, in one SQL transaction."""
    with store.read() as conn:
        _check_empty(conn)
    found, left_out = find_mirrored(prefix, storage_options)
    chosen = _choose(prefix, found, take_over)
    left_out += [
        LeftOut(one.location, f"managed by another catalog, {one.mark.catalog_id}")
        for one in found
        if one.mark.catalog_id != chosen[0].mark.catalog_id
    ]
    _check_no_copies(chosen)
    with store.write() as conn:
        job = _Rebuild(conn, chosen, dict(properties or {}), progress, actor, origin, drop_retention_ms)
        rebuilt = job.run()
        reached("rebuild.written")
    return replace(rebuilt, left_out=tuple(left_out))


def find_mirrored(
    prefix: str | os.PathLike[str], options: Mapping[str, str] | None
) -> tuple[list[MirroredTable], list[LeftOut]]:
    """The tables below a prefix that are behind our fence, and those that are not."""
    found: list[MirroredTable] = []
    left_out: list[LeftOut] = []
    for location in find_tables(prefix, options):
        try:
            reader = FileTxnLogReader(location, options)
            _, fenced = unfence(reader.snapshot().protocol)
            mark = newest_mark(reader) if fenced else None
            mark = None if mark is None else _quote_name(mark)
        except DeltaError as error:
            left_out.append(LeftOut(location, str(error)))
            continue
        if mark is not None:
            found.append(MirroredTable(reader, mark))
        else:
            reason = "fenced, but no commit tells by whom" if fenced else "not managed by a catalog"
            left_out.append(LeftOut(location, reason))
    return found, left_out


def _quote_name(mark: Mark) -> Mark:
    """The mark with its name in backticks where it needs them: names in older commits have none."""
    return replace(mark, table=str(parse_table_name(mark.table)))


def _check_empty(conn: Connection) -> None:
    row = conn.one("count_registered")
    if row is not None and (row["num_tables"] or row["num_transactions"]):
        raise TableExistsError(
            f"this catalog is not empty: it knows {row['num_tables']} tables and {row['num_transactions']} "
            "transactions. Rebuild into a new database; `dl import PATH --as NS.NAME` takes a single table into this"
        )


def _choose(
    prefix: str | os.PathLike[str], found: Sequence[MirroredTable], take_over: str | None
) -> list[MirroredTable]:
    """The tables of the one catalog to become."""
    counts: dict[str, int] = {}
    for one in found:
        counts[one.mark.catalog_id] = counts.get(one.mark.catalog_id, 0) + 1
    shown = ", ".join(f"{catalog_id} ({count} tables)" for catalog_id, count in sorted(counts.items()))
    where = redact(os.fspath(prefix))
    if not counts:
        raise DeltaError(
            f"no table below {where} is managed by a catalog of ours; `dl import --recursive {where}` takes in tables "
            "that others write"
        )
    if take_over is not None and take_over not in counts:
        raise DeltaError(f"no table below {where} is managed by the catalog {take_over}; found: {shown}")
    if take_over is None and len(counts) > 1:
        raise DeltaError(
            f"the tables below {where} are managed by several catalogs: {shown}. Say which one to be with --take-over "
            "ID, and make sure that no database still decides for it"
        )
    wanted = take_over or next(iter(counts))
    return sorted((one for one in found if one.mark.catalog_id == wanted), key=lambda one: one.mark.table_id)


def _check_no_copies(chosen: Iterable[MirroredTable]) -> None:
    places: dict[str, str] = {}
    for one in chosen:
        other = places.setdefault(one.mark.table_uuid, one.location)
        if other != one.location:
            raise DeltaError(
                f"{redact(other)} and {redact(one.location)} are the same table ({one.mark.table}): one is a copy. "
                "Move the copy out of the way, or rebuild from a narrower prefix"
            )


@dataclass(slots=True)
class _Names:
    """What a table was called, from when on, as its commits tell."""

    since: list[tuple[int, str | None]] = field(default_factory=list)
    """None: from then on it was dropped."""

    def watch(self, commits: Iterable[Commit], catalog_id: str) -> Iterator[Commit]:
        for commit in commits:
            mark = parse_mark(commit.commit_info)
            if mark is not None and mark.catalog_id == catalog_id:
                self.see(_quote_name(mark))
            yield commit

    def begin(self, at_ms: int, name: str) -> None:
        """The history was cut: the table was there, under its oldest name known, before its first commit left."""
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
    """Takes commits in, and remembers the names in their marks."""

    names: _Names = field(default_factory=_Names)

    def take(self, commits: Iterable[Commit]) -> None:
        Importer.take(self, self.names.watch(commits, self.catalog_id))


@dataclass(slots=True)
class _Rebuild:
    """The transaction that fills the database."""

    conn: Connection
    chosen: Sequence[MirroredTable]
    properties: dict[str, object]
    progress: Progress | None
    actor: str | None
    origin: str | None
    drop_retention_ms: int
    _taken: set[tuple[str, str]] = field(default_factory=set)

    def run(self) -> Rebuilt:
        self.conn.one("select_next_table_id")  # locks: two rebuilds at once follow each other
        _check_empty(self.conn)
        catalog_id = self.chosen[0].mark.catalog_id
        next_id = max(one.mark.table_id for one in self.chosen) + 1
        self.conn.run("take_over_catalog", catalog_id=catalog_id, next_table_id=next_id)
        # Who was named last keeps the name: the other one was renamed, and nothing was committed to it since.
        newest_first = sorted(self.chosen, key=lambda one: one.mark.committed_at_ms, reverse=True)
        names = {
            one.location: one.mark.table if one.mark.dropped else self._free_name(one.mark) for one in newest_first
        }
        used: set[int] = set()
        tables = []
        for one in self.chosen:
            table_id = registry.next_table_id(self.conn) if one.mark.table_id in used else one.mark.table_id
            used.add(table_id)
            tables.append(self._take(one, table_id, catalog_id, names[one.location]))
        counted = self.conn.one("count_registered") or {}
        details = {"catalog_id": catalog_id, "tables": len(tables), "transactions": counted.get("num_transactions")}
        write_audit(
            self.conn, action="rebuild", at_ms=self.conn.now_ms(), actor=self.actor, origin=self.origin, details=details
        )
        return Rebuilt(catalog_id, tuple(tables), (), int(counted.get("num_transactions") or 0))

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

    def _register(
        self, one: MirroredTable, table_id: int, since: Sequence[tuple[int, str | None]], name: str
    ) -> TableRow:
        """Every name the table had, each from its time to the next, so that `cat.at` finds it."""
        named = [*since] or [(one.mark.committed_at_ms, one.mark.table)]
        if not one.mark.dropped and named[-1][1] != name:
            named.append((max(self.conn.now_ms(), named[-1][0] + 1), name))
        row = None
        for place, (from_ms, full_name) in enumerate(named):
            until_ms = named[place + 1][0] if place + 1 < len(named) else LIVE
            if full_name is not None:
                row = self._insert(one, table_id, full_name, from_ms, until_ms)
        assert row is not None, "a table has a name"
        self._claim(one, row)
        return row

    def _claim(self, one: MirroredTable, row: TableRow) -> None:
        """The location is the table's; one that was dropped can be undropped for as long as this catalog keeps it."""
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

    def _free_name(self, mark: Mark) -> str:
        wanted = name = parse_table_name(mark.table)
        for number in range(len(self.chosen) + 1):
            if name.key not in self._taken:
                break
            ending = f"_{mark.table_id + number}"
            name = TableName(wanted.namespace, wanted.name[: MAX_PART_LENGTH - len(ending)] + ending)
        self._taken.add(name.key)
        return str(name)
