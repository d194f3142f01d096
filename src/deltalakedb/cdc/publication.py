"""The tables of a publication: which are captured, what names their rows, and where they go in the lake."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from deltalakedb.cdc.server import Connection, read_sql, translate_errors
from deltalakedb.cdc.settings import CaptureSettings
from deltalakedb.cdc.tables import CapturedTable, SourceColumn, parse_source, source_parts
from deltalakedb.cdc.types import source_columns
from deltalakedb.exceptions import CaptureSetupError, TableNameError
from deltalakedb.names import TableName, join_namespace, parse_table_name, quote_part, split_name

if TYPE_CHECKING:
    from deltalakedb.cdc.control import Capture

CHANGES_SUFFIX: Final = "_changes"
_OWN_SCHEMA: Final = "deltalakedb"
"""A catalog of ours may live in the very database that is captured; nobody wants its log of that in the lake."""

_KINDS: Final = {
    "v": "a view",
    "m": "a materialized view",
    "f": "a foreign table",
    "S": "a sequence",
    "i": "an index",
    "I": "an index",
    "c": "a type",
}
_PUBLISHED: Final = read_sql("select_published")
_OBJECT: Final = read_sql("select_object")


@dataclass(frozen=True, slots=True)
class _Published:
    """A table as the publication has it."""

    oid: int
    schema: str
    name: str
    identity: str
    """`relreplident`: d (key), i (index), f (full), n (nothing)."""
    key: tuple[str, ...]
    """Of the primary key."""
    index: tuple[str, ...]
    """Of the index that REPLICA IDENTITY names."""
    filenode: int | None
    newest: int
    """The highest number that a column of it ever had."""
    membership: int
    """The oid of what makes it a table of the publication: another one when it was taken out and put back."""

    @property
    def source(self) -> str:
        return join_namespace([self.schema, self.name])

    @property
    def row_key(self) -> tuple[str, ...] | None:
        """The columns that name a row; none of them when the whole row does; None when nothing does."""
        if self.identity == "f":
            return self.key
        return {"d": self.key, "i": self.index}.get(self.identity, ()) or None


@dataclass(frozen=True, slots=True)
class Publication:
    """The tables of a publication that the settings ask for, as they are now and not yet copied."""

    name: str
    tables: tuple[CapturedTable, ...]
    refused: tuple[CapturedTable, ...]
    """Those that cannot be captured: nothing names their rows, or their name in the lake is none, or another one's."""

    @property
    def sources(self) -> frozenset[str]:
        """The tables that can be captured, by the source's name."""
        return frozenset(table.source for table in self.tables)

    def why_not(self, source: str, settings: CaptureSettings) -> str:
        """Why a table is not one of `tables`."""
        refused = {table.source: table.reason for table in self.refused}
        among = " or not among the tables asked for" if settings.tables else ""
        return refused.get(source) or f"it is not in the publication {self.name} any more{among}"

    def check(self) -> None:
        """CaptureSetupError if a table is refused; all of them in one message."""
        if self.refused:
            listed = "; ".join(f"{table.source}: {table.reason}" for table in self.refused)
            raise CaptureSetupError(
                f"the publication {self.name} cannot be captured as it is: {listed}. "
                "Mend that, or name the tables that are to be captured (--tables)"
            )


def look_at_publication(conn: Connection, settings: CaptureSettings, capture: Capture | None = None) -> Publication:
    """What the publication has of what the settings ask for. CaptureSetupError if a table that was named is missing
    there, unless `capture` has it already: then it stops alone.

    Its lists of columns and its row filters are followed: the lake has what the stream sends.
    """
    tables, refused = [], []
    with translate_errors():
        found = {table.source: table for table in _read(conn, settings.publication)}
        # Of two tables that would have one name in the lake, the one that was copied already has it.
        copied = {} if capture is None else {one.source: one.start_lsn for one in capture.tables.values()}
        chosen = _choose(conn, settings, found, () if capture is None else capture.begun)
        for table in sorted(chosen, key=lambda one: copied.get(one.source) is None):
            columns = source_columns(
                conn, table.oid, as_text=text_columns(settings, table.source), publication=settings.publication
            )
            one = _captured(table, columns, settings)
            reason = _problem_of(table, columns)
            if reason is None:
                tables.append(one)
            else:
                refused.append(replace(one, stage="stopped", reason=reason))
    clashes = _collisions(tables, settings)
    refused += [replace(one, stage="stopped", reason=clashes[one.source]) for one in tables if one.source in clashes]
    tables = [one for one in tables if one.source not in clashes]
    return Publication(settings.publication, tuple(tables), tuple(refused))


def published_tables(conn: Connection, settings: CaptureSettings) -> tuple[CapturedTable, ...]:
    """The tables that the settings ask for; CaptureSetupError if one of them cannot be captured."""
    found = look_at_publication(conn, settings)
    found.check()
    return found.tables


def lake_names(source: str, settings: CaptureSettings) -> tuple[str, str]:
    """What a source table's two tables are called: of current rows, and of changes."""
    schema, name = source_parts(source)
    namespace = settings.namespace or quote_part(schema)
    return str(TableName(namespace, name)), str(TableName(namespace, name + CHANGES_SUFFIX))


def _read(conn: Connection, publication: str) -> Iterable[_Published]:
    for oid, schema, name, identity, key, index, *rest in conn.execute(_PUBLISHED, [publication]).fetchall():
        if schema != _OWN_SCHEMA:
            yield _Published(oid, schema, name, identity, tuple(key), tuple(index), *rest)


def _choose(
    conn: Connection, settings: CaptureSettings, found: dict[str, _Published], captured: Collection[str]
) -> Sequence[_Published]:
    if not settings.tables:
        return list(found.values())
    chosen: dict[str, _Published] = {}
    for wanted in settings.tables:
        source = parse_source(wanted)
        if source in found:
            chosen[source] = found[source]
        elif source not in captured:
            raise CaptureSetupError(_why_missing(conn, source, settings.publication))
    return list(chosen.values())


def _why_missing(conn: Connection, source: str, publication: str) -> str:
    """Why a table that is asked for is not in the publication."""
    schema, name = source_parts(source)
    row = conn.execute(_OBJECT, {"schema": schema, "name": name, "publication": publication}).fetchone()
    if row is None:
        return f"there is no table {source} in the database {conn.info.dbname}; names are as Postgres keeps them"
    kind, persistence, via_root, root, quoted, quoted_publication = row
    if kind not in ("r", "p"):
        return f"{source} is {_KINDS.get(kind, 'no table')}: only the changes of ordinary tables are in the log"
    if persistence == "u":
        return f"{source} is unlogged, so that its changes are in no log: alter table {quoted} set logged"
    if persistence == "t":
        return f"{source} is a temporary table: its changes are in no log"
    if kind == "p" and not via_root:
        return (
            f"the publication {publication} has the partitions of {source} and not the table itself: "
            f"alter publication {quoted_publication} set (publish_via_partition_root = true), or name the partitions"
        )
    if via_root and root is not None:
        return f"{source} is a partition of {root}, which the publication {publication} has as a whole: name that one"
    return (
        f"the table {source} is not in the publication {publication}: "
        f"alter publication {quoted_publication} add table {quoted}"
    )


def text_columns(settings: CaptureSettings, source: str) -> set[str]:
    table, found = source_parts(source), set()
    for column in map(split_name, settings.text_columns):
        schema, name, *rest = column if len(column) > 2 else ["public", *column]
        if [schema, name] == table:
            found.add(".".join(rest))  # a column's name may have dots without backticks around it
    return found


def _problem_of(table: _Published, columns: Sequence[SourceColumn]) -> str | None:
    """Why a table cannot be captured."""
    if not columns:
        return "it has no columns"
    key = table.row_key
    if key is None:
        return (
            "nothing names its rows: give it a primary key, or "
            f'alter table "{table.schema}"."{table.name}" replica identity full'
        )
    names = [column.name for column in columns]
    missing = [name for name in key if name not in names]
    if missing:
        return f"{missing[0]} is part of its key, and the publication's list of columns is without it"
    twins: dict[str, str] = {}
    for name in names:
        other = twins.setdefault(name.casefold(), name)
        if other != name:
            return f"the columns {other} and {name} differ by case only, which tells no names apart here"
    return None


def _captured(table: _Published, columns: tuple[SourceColumn, ...], settings: CaptureSettings) -> CapturedTable:
    current, changes = lake_names(table.source, settings)
    return CapturedTable(
        source=table.source,
        oid=table.oid,
        columns=columns,
        key=table.row_key or (),
        current=current,
        changes=changes,
        identity=table.identity,
        filenode=table.filenode,
        newest=table.newest,
        membership=table.membership,
    )


def _collisions(tables: Sequence[CapturedTable], settings: CaptureSettings) -> dict[str, str]:
    """The tables whose names the lake cannot have, or would have twice, and why."""
    problems = {}
    taken: dict[Any, str] = {parse_table_name(settings.control_table).key: "the capture's control table"}
    for table in tables:
        for name in (table.current, table.changes):
            try:
                key = parse_table_name(name).key
            except TableNameError as error:
                problems[table.source] = str(error)
                break
            other = taken.setdefault(key, table.source)
            if other != table.source:
                problems[table.source] = f"it and {other} would both be {name} in the lake"
                break
    return problems
