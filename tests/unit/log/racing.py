"""A small table whose rows are known one by one: statements as functions on rows, and as commits on files.

The two are written independently of each other and of the code under test, so that one can judge the other.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from deltalakedb.log.predicates.atoms import Predicate
from deltalakedb.log.predicates.predicate import parse_predicate
from deltalakedb.log.protocol.actions import Action, AddFile, DeletionVector, Format, Metadata, RemoveFile
from deltalakedb.log.protocol.proposal import NOTHING_READ, WHOLE_TABLE, ProposedCommit, ReadSet
from deltalakedb.log.schema.types import PrimitiveType, StructField, StructType

SCHEMA = StructType(
    (
        StructField("id", PrimitiveType("string")),
        StructField("p", PrimitiveType("string")),
        StructField("x", PrimitiveType("long")),
    )
)


def metadata_of(partition_columns: tuple[str, ...], max_x: int | None = None) -> Metadata:
    configuration = {} if max_x is None else {"delta.constraints.small": f"x <= {max_x}"}
    return Metadata("table", Format(), SCHEMA.to_json(), partition_columns, configuration)


class Row(NamedTuple):
    id: str
    p: str
    x: int


class Impossible(Exception):
    """A statement that cannot run on the table as it is."""


@dataclass(frozen=True)
class Rows:
    """The table as a user sees it."""

    rows: frozenset[Row] = frozenset()
    max_x: int | None = None

    def changed(self, rows: Iterable[Row]) -> Rows:
        found = frozenset(rows)
        if self.max_x is not None and any(row.x > self.max_x for row in found):
            raise Impossible("the constraint")
        return replace(self, rows=found)


@dataclass(frozen=True)
class File:
    path: str
    rows: frozenset[Row]
    vector: str = ""
    deleted: frozenset[str] = frozenset()
    has_stats: bool = True

    @property
    def live(self) -> frozenset[Row]:
        return frozenset(row for row in self.rows if row.id not in self.deleted)


@dataclass(frozen=True)
class Files:
    """The table as its log sees it."""

    files: dict[str, File] = field(default_factory=dict)
    partitioned: bool = True
    max_x: int | None = None

    @property
    def rows(self) -> Rows:
        return Rows(frozenset(row for file in self.files.values() for row in file.live), self.max_x)

    @property
    def metadata(self) -> Metadata:
        return metadata_of(("p",) if self.partitioned else (), self.max_x)

    def apply(self, change: Change) -> Files:
        """Replay of a commit, which must fit."""
        files = dict(self.files)
        for path, vector in change.removed:
            if path not in files or files[path].vector != vector:
                raise Impossible(f"{path} is not in the table")
            del files[path]
        for file in change.added:
            if file.path in files and files[file.path] != file:
                raise Impossible(f"{file.path} is in the table already")
            files[file.path] = file
        return replace(self, files=files, max_x=self.max_x if change.max_x is None else change.max_x)


@dataclass(frozen=True)
class Change:
    """What a statement does to files, and what it says it has read."""

    removed: tuple[tuple[str, str], ...] = ()
    added: tuple[File, ...] = ()
    data_change: bool = True
    read: ReadSet = NOTHING_READ
    max_x: int | None = None


@dataclass(frozen=True)
class Statement:
    """`run` is what it means, `plan` how a writer carries it out on the files it sees."""

    name: str
    run: Callable[[Rows], Rows]
    plan: Callable[[Files], Change]

    def __repr__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Where:
    """A condition, for Python and for the check."""

    filters: tuple[tuple[str, str, Any], ...]

    def __call__(self, row: Row) -> bool:
        tests = {"=": lambda a, b: a == b, "<=": lambda a, b: a <= b, ">=": lambda a, b: a >= b}
        return all(tests[operator](getattr(row, name), value) for name, operator, value in self.filters)

    def predicate(self, files: Files) -> Predicate:
        return parse_predicate(list(self.filters), SCHEMA, files.metadata.partition_columns)


def as_files(rows: Iterable[Row], path: str, table: Files, *, has_stats: bool = True) -> tuple[File, ...]:
    """New files for the rows, one a partition; no file without rows."""
    groups: dict[str, set[Row]] = {}
    for row in rows:
        groups.setdefault(row.p if table.partitioned else "all", set()).add(row)
    return tuple(
        File(f"{path}-{name}", frozenset(found), has_stats=has_stats) for name, found in sorted(groups.items())
    )


# ---- statements


def append(name: str, *rows: Row, has_stats: bool = True) -> Statement:
    return Statement(
        f"append {name} {rows}",
        lambda table: table.changed(table.rows | set(rows)),
        lambda files: Change(added=as_files(rows, name, files, has_stats=has_stats)),
    )


def change_rows(
    name: str, where: Where, new: Callable[[Row], Row | None], *, by_vector: bool = False, says: str = "predicate"
) -> Statement:
    """DELETE (`new` gives None) and UPDATE: files with matching rows are rewritten, or get a deletion vector."""

    def rewrite(row: Row) -> Row | None:
        return new(row) if where(row) else row

    def run(table: Rows) -> Rows:
        return table.changed(row for old in table.rows if (row := rewrite(old)) is not None)

    def plan(files: Files) -> Change:
        touched = [file for _, file in sorted(files.files.items()) if any(where(row) for row in file.live)]
        added: list[File] = []
        for number, file in enumerate(touched):
            kept = {row for row in file.live if not where(row)}
            made = {row for old in file.live if where(old) and (row := new(old)) is not None}
            if by_vector:
                gone = file.deleted | {row.id for row in file.live if where(row)}
                if gone != {row.id for row in file.rows}:
                    added.append(replace(file, vector=f"u{name}{number}", deleted=gone))
                added += as_files(made, f"{name}-{number}", files)
            else:
                added += as_files(kept | made, f"{name}-{number}", files)
        removed = tuple((file.path, file.vector) for file in touched)
        return Change(removed, tuple(added), read=_said(says, where, files, bool(removed)))

    return Statement(f"change {name} {where.filters} {says} {by_vector=}", run, plan)


def insert_select(name: str, where: Where, *, says: str = "predicate") -> Statement:
    """Copies of the matching rows, each with a new id: what is written depends on what was read."""

    def copies(rows: Iterable[Row]) -> set[Row]:
        return {Row(f"{row.id}+{name}", row.p, row.x) for row in rows if where(row)}

    def plan(files: Files) -> Change:
        added = as_files(copies(files.rows.rows), name, files)
        return Change(added=added, read=_said(says, where, files, False))

    return Statement(f"insert {name} {where.filters} {says}", lambda t: t.changed(t.rows | copies(t.rows)), plan)


def copy_file(name: str, number: int) -> Statement:
    """Copies of the rows that one file held, wherever they are now; the writer names that file as what it read."""
    seen: list[str] = []

    def run(table: Rows) -> Rows:
        return table.changed(
            table.rows | {Row(f"{row.id}+{name}", row.p, row.x) for row in table.rows if row.id in seen}
        )

    def plan(files: Files) -> Change:
        if not files.files:
            return Change()
        file = sorted(files.files.values(), key=lambda one: one.path)[number % len(files.files)]
        seen[:] = [row.id for row in file.live]
        copies = {Row(f"{row.id}+{name}", row.p, row.x) for row in file.live}
        read = ReadSet(files=frozenset({(file.path, file.vector)}))
        return Change(added=as_files(copies, name, files), read=read)

    return Statement(f"copy file {number} {name}", run, plan)


def overwrite(name: str, *rows: Row) -> Statement:
    def plan(files: Files) -> Change:
        removed = tuple((file.path, file.vector) for file in files.files.values())
        return Change(removed, as_files(rows, name, files), read=WHOLE_TABLE)

    return Statement(f"overwrite {name} {rows}", lambda table: table.changed(rows), plan)


def compact(name: str, numbers: Iterable[int], *, says: str = "nothing") -> Statement:
    """Some files of each partition become one; the rows stay."""

    def plan(files: Files) -> Change:
        paths = sorted(files.files)
        chosen = [files.files[paths[n]] for n in sorted({n % len(paths) for n in numbers})] if paths else []
        removed = tuple((file.path, file.vector) for file in chosen)
        read = ReadSet(files=frozenset(removed)) if says == "files" else NOTHING_READ
        rows = {row for file in chosen for row in file.live}
        return Change(removed, as_files(rows, name, files), data_change=False, read=read)

    return Statement(f"compact {name} {sorted(numbers)} {says}", lambda table: table, plan)


def restate(name: str, number: int) -> Statement:
    """A file added once more, as it is, for new statistics or row ids."""

    def plan(files: Files) -> Change:
        paths = sorted(files.files)
        return Change(added=(files.files[paths[number % len(paths)]],) if paths else (), data_change=False)

    return Statement(f"restate {name} {number}", lambda table: table, plan)


def constrain(name: str, max_x: int) -> Statement:
    """A constraint that all rows must keep; the writer has looked, and does not say so."""

    def run(table: Rows) -> Rows:
        return replace(table, max_x=max_x).changed(table.rows)

    def plan(files: Files) -> Change:
        if any(row.x > max_x for row in files.rows.rows):
            raise Impossible("the constraint")
        return Change(max_x=max_x)

    return Statement(f"constrain {name} {max_x}", run, plan)


def _said(says: str, where: Where, files: Files, removes: bool) -> ReadSet:
    if says == "table":
        return WHOLE_TABLE
    if says == "nothing" and removes:
        return NOTHING_READ
    return ReadSet(predicates=(where.predicate(files),))


# ---- as actions


def to_commit(change: Change, files: Files, *, describe_removes: bool = True) -> ProposedCommit:
    actions: list[Action] = []
    for path, _ in change.removed:
        file = files.files[path]
        told = _add(file, files, data_change=True) if describe_removes else None
        actions.append(
            RemoveFile(
                path,
                change.data_change,
                deletion_timestamp=1,
                partition_values=told.partition_values if told else None,
                stats=told.stats if told else None,
                deletion_vector=_vector(file),
            )
        )
    actions += [_add(file, files, data_change=change.data_change) for file in change.added]
    if change.max_x is not None:
        actions.append(replace(files, max_x=change.max_x).metadata)
    return ProposedCommit(tuple(actions), read=change.read)


def _add(file: File, files: Files, *, data_change: bool) -> AddFile:
    partition = {"p": next(iter(file.rows)).p} if files.partitioned else {}
    columns = ("id", "x") if files.partitioned else ("id", "p", "x")
    values = {name: [getattr(row, name) for row in file.rows] for name in columns}
    stats = {
        "numRecords": len(file.rows),
        "tightBounds": not file.deleted,
        "minValues": {name: min(found) for name, found in values.items()},
        "maxValues": {name: max(found) for name, found in values.items()},
        "nullCount": dict.fromkeys(columns, 0),
    }
    text = json.dumps(stats) if file.has_stats else None
    return AddFile(file.path, partition, 1, 1, data_change, text, deletion_vector=_vector(file))


def _vector(file: File) -> DeletionVector | None:
    return DeletionVector("u", file.vector[1:], 1, len(file.deleted)) if file.vector else None
