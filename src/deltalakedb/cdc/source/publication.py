"""The tables of a publication: which are captured, what identifies their rows, and where they go in the lake."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from deltalakedb.cdc.captured_table import CapturedTable, SourceColumn
from deltalakedb.cdc.decode.values import convert_column
from deltalakedb.cdc.settings import CaptureSettings
from deltalakedb.cdc.source.postgres import Connection, find_unsent, read_sql, translate_errors
from deltalakedb.cdc.source.source_catalog import Shapes, source_columns
from deltalakedb.cdc.source_names import parse_source, quote_name, quote_source, resnapshot_command, source_parts
from deltalakedb.cdc.table_rules import TableChoice, find_unmatched
from deltalakedb.exceptions import CaptureSetupError, TableNameError, ValueNotHeld
from deltalakedb.log.schema.types import DecimalType, PrimitiveType
from deltalakedb.store.names import join_namespace, parse_table_name

if TYPE_CHECKING:
    from deltalakedb.cdc.control import Capture

_OWN_SCHEMA: Final = "deltalakedb"
"""A catalog of ours may be in the captured database; its own tables are not captured."""

_SENDS_GENERATED: Final = 180000
"""The version of Postgres from which on generated columns can be published."""
_KINDS: Final = {
    "v": "a view",
    "m": "a materialized view",
    "f": "a foreign table",
    "S": "a sequence",
    "i": "an index",
    "I": "an index",
    "c": "a type",
}
_PARTITIONABLE: Final = frozenset({"short", "integer", "long", "string", "boolean", "date"})
_PUBLISHED: Final = read_sql("select_published")
_OBJECT: Final = read_sql("select_object")
_COVERAGE: Final = read_sql("select_coverage")


@dataclass(frozen=True, slots=True)
class _Published:
    """A table of the publication."""

    oid: int
    schema: str
    name: str
    identity: str
    """`relreplident`: d (key), i (index), f (full), n (nothing)."""
    key: tuple[str, ...]
    """The columns of the primary key."""
    index: tuple[str, ...]
    """The columns of the index that REPLICA IDENTITY names."""
    filenode: int | None
    newest: int
    """The highest number that a column of it ever had."""
    membership: int
    """The oid of its entry in the publication, which changes when it is taken out and put back."""
    generated: Sequence[str]
    """Columns that the source computes."""
    unlogged_part: str | None
    """A partition whose changes are in no log."""
    publishing: str
    """The mark of the publication's options."""

    @property
    def source(self) -> str:
        return join_namespace([self.schema, self.name])

    @property
    def row_key(self) -> tuple[str, ...] | None:
        """The columns that identify a row; empty if the whole row does; None if nothing does."""
        if self.identity == "f":
            return self.key
        return {"d": self.key, "i": self.index}.get(self.identity, ()) or None


def take_out(source: str) -> str:
    """Advice for a table that will not come back."""
    return f"take it out of the capture: exclude {source} in the settings, then dl cdc apply"


@dataclass(frozen=True, slots=True)
class Publication:
    """The tables of a publication that the settings choose, as they are now and not yet copied."""

    name: str
    tables: tuple[CapturedTable, ...]
    refused: tuple[CapturedTable, ...]
    """Tables that cannot be captured: nothing identifies their rows, or their name in the lake is invalid or taken."""
    unmatched: tuple[str, ...] = ()
    """Settings for tables or columns that do not exist, and may be added later."""
    slips: tuple[str, ...] = ()
    """Settings that cannot be applied."""

    @property
    def sources(self) -> frozenset[str]:
        """The source tables that can be captured."""
        return frozenset(table.source for table in self.tables)

    def why_not(self, source: str, settings: CaptureSettings) -> str:
        """Why a table is not one of `tables`."""
        refused = {table.source: table.reason for table in self.refused}
        if not settings.wants(source):
            return "it is not among the tables that the settings ask for"
        return refused.get(source) or (
            f"it is not in the publication {self.name} any more: add it there, then {resnapshot_command(source)} "
            f"copies it anew; or {take_out(source)}"
        )

    def check_start(self, settings: CaptureSettings) -> None:
        """CaptureSetupError if a first start is useless: no table, or not the named one, can be captured."""
        self.check_choice()
        if self.refused and (settings.tables or not self.tables):
            self.check()

    def check(self) -> None:
        """CaptureSetupError if a table is refused; all of them in one message."""
        self.check_choice()
        if self.refused:
            listed = "; ".join(f"{table.source}: {table.reason}" for table in self.refused)
            raise CaptureSetupError(
                f"the publication {self.name} cannot be captured as it is: {listed}. "
                "Mend that, or name other tables that are to be captured (--tables)"
            )

    def check_choice(self) -> None:
        """CaptureSetupError if the settings cannot be applied; all problems in one message."""
        if self.slips:
            raise CaptureSetupError(
                f"the settings do not fit the publication {self.name}: {'; '.join(self.slips)}. Correct the file, and "
                "look at it with dl cdc apply --dry-run"
            )


def look_at_publication(conn: Connection, settings: CaptureSettings, capture: Capture | None = None) -> Publication:
    """The tables of the publication that the settings choose. CaptureSetupError if a named table is missing, unless
    `capture` has it already: then only that table stops.

    Its column lists and row filters are followed: the lake has what the stream sends.
    """
    tables, refused, slips = [], [], []
    names: dict[str, list[str]] = {}
    with translate_errors():
        published = {table.source: table for table in _read(conn, settings.publication)}
        # If two tables would have one name in the lake, the one that was copied already keeps it.
        copied = {} if capture is None else {one.source: one.start_lsn for one in capture.tables.values()}
        chosen = _choose(conn, settings, published, () if capture is None else capture.begun)
        columns = read_columns(conn, [(table.oid, table.source) for table in chosen], settings)
        unsent = find_unsent(conn, settings.publication)
        for table in sorted(chosen, key=lambda one: copied.get(one.source) is None):
            choice, sent = settings.choose(table.source), columns[table.oid]
            notes = _notes(table, sent, settings, conn.info.server_version)
            one = replace(_to_captured(table, sent, choice, _hidden_columns(capture, table)), notes=notes)
            # A rule still applies to a hidden column that the source has renamed.
            names[table.source] = [name for column in one.sent for name in (column.name, column.ruled_as) if name]
            reason = unsent or _problem_of(table, sent, one.columns) or _find_reveal(one, capture, settings)
            if reason is None and (reason := problem_of_choice(one)) is not None:
                slips.append(f"{one.source}: {reason}")
            if reason is None:
                tables.append(one)
            else:
                refused.append(replace(one, stage="stopped", reason=reason))
    clashes = _collisions(tables, settings)
    refused += [replace(one, stage="stopped", reason=clashes[one.source]) for one in tables if one.source in clashes]
    tables = [one for one in tables if one.source not in clashes]
    if settings.rules:
        slips += [f"{source}: {reason}" for source, reason in clashes.items()]
    unmatched = tuple(find_unmatched(settings.rules, settings.include, names))
    slips += [text for text, is_slip in unmatched if is_slip]
    slips += [
        f"{source} has no column {name}, which text_columns names"
        for source, columns_of in names.items()
        for name in sorted(settings.choose(source).text_columns.difference(columns_of))
    ]
    hints = tuple(text for text, is_slip in unmatched if not is_slip)
    return Publication(settings.publication, tuple(tables), tuple(refused), hints, tuple(slips))


@dataclass(frozen=True, slots=True)
class Coverage:
    """A summary of a publication."""

    tables: int
    left_out: Mapping[str, str]
    """Tables that it cannot publish, though it is for all of them or for their schema, and why; by source table."""
    quoted: str
    """Its name, quoted for SQL."""


def look_at_coverage(conn: Connection, publication: str) -> Coverage | None:
    """The summary of a publication; None if it does not exist."""
    with translate_errors():
        row = conn.execute(_COVERAGE, [publication]).fetchone()
    if row is None:
        return None
    count, left_out, quoted = row
    return Coverage(
        count, {join_namespace([schema, name]): _why_left_out(kind) for schema, name, kind in left_out}, quoted
    )


def _why_left_out(kind: str) -> str:
    if kind == "f":
        return "it is a foreign table, and its changes are in another server's log"
    return "it is unlogged, so that its changes are in no log: alter table ... set logged"


def published_tables(conn: Connection, settings: CaptureSettings) -> tuple[CapturedTable, ...]:
    """The tables that the settings choose; CaptureSetupError if one of them cannot be captured."""
    publication = look_at_publication(conn, settings)
    publication.check()
    return publication.tables


def read_columns(
    conn: Connection, tables: Iterable[tuple[int, str]], settings: CaptureSettings
) -> dict[int, tuple[SourceColumn, ...]]:
    """The columns that the publication sends of tables, given by oid and name, with the types that the settings
    choose; by oid."""
    choices = {oid: settings.choose(source) for oid, source in tables}
    shapes = {oid: Shapes(choice.is_text, choice.composites) for oid, choice in choices.items()}
    return source_columns(conn, shapes, publication=settings.publication)


def _read(conn: Connection, publication: str) -> Iterable[_Published]:
    for oid, schema, name, identity, key, index, *rest in conn.execute(_PUBLISHED, [publication]).fetchall():
        if schema != _OWN_SCHEMA:
            yield _Published(oid, schema, name, identity, tuple(key), tuple(index), *rest)


def _choose(
    conn: Connection, settings: CaptureSettings, published: dict[str, _Published], captured: Collection[str]
) -> Sequence[_Published]:
    for source in map(parse_source, settings.tables):
        if source not in published and source not in captured:
            raise CaptureSetupError(_why_missing(conn, source, settings.publication))
    return [table for source, table in published.items() if settings.wants(source)]


def _why_missing(conn: Connection, source: str, publication: str) -> str:
    """Why a named table is not in the publication."""
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


def _notes(
    table: _Published, columns: Sequence[SourceColumn], settings: CaptureSettings, server_version: int
) -> tuple[str, ...]:
    """Notes for readers of a table that has not been copied yet."""
    sent = {column.name for column in columns}
    remedy = (
        f"alter publication {quote_name(settings.publication)} set (publish_generated_columns = stored), then "
        f"{resnapshot_command(table.source)}"
        if server_version >= _SENDS_GENERATED
        else "Postgres sends generated columns from 18 on; compute it in a view of the lake"
    )
    return tuple(
        f"the column {name} is generated, and not sent: {remedy}" for name in table.generated if name not in sent
    )


def _problem_of(table: _Published, sent: Sequence[SourceColumn], captured: Sequence[SourceColumn]) -> str | None:
    """Why a table cannot be captured; None if it can."""
    if not sent:
        return "it has no columns"
    if table.unlogged_part is not None:
        return (
            f"its partition {table.unlogged_part} is foreign or unlogged, so that its changes are in no log: "
            "detach it, or make it an ordinary table"
        )
    key = table.row_key
    if key is None:
        return (
            "nothing names its rows: give it a primary key, or "
            f"alter table {quote_source(table.source)} replica identity full"
        )
    names = [column.name for column in sent]
    missing = [name for name in key if name not in names]
    if missing and missing[0] in table.generated:
        return (
            f"{missing[0]} is part of its key, and a generated column that the source does not send: alter table "
            f"{quote_source(table.source)} replica identity using an index of other columns"
        )
    if missing:
        return f"{missing[0]} is part of its key, and the publication's list of columns is without it"
    twins: dict[str, str] = {}
    for name in (column.name for column in captured):
        other = twins.setdefault(name.casefold(), name)
        if other != name:
            return f"the columns {other} and {name} differ by case only, which tells no names apart here"
    return None


def problem_of_choice(table: CapturedTable) -> str | None:
    """Why the settings for a table cannot be applied; None if they can."""
    columns = {column.name: column for column in table.columns}
    if not columns:
        return "the settings leave out all of its columns"
    for name in table.key:
        column = columns.get(name)
        if column is None:
            return f"{name} is part of its key, and the settings leave it out"
        if column.mask is not None and column.mask.kind != "hash":
            return f'{name} is part of its key, and masked it would name no row: only mask = "hash" does'
    for column in table.columns:
        if column.mask is not None and column.mask.kind == "constant":
            try:
                convert_column(pa.array([""]), column, None, where=f"{table.source}.{column.name}")
            except ValueNotHeld:
                return f"its column {column.name} is masked by {column.mask}, which is no value of {column.type}"
    options = table.options
    for key in ("partition_by", "cluster_by"):
        for name in () if options is None else getattr(options, key):
            if name not in columns:
                return f"it has no column {name} that is captured, which {key} names"
            if key == "partition_by" and not _can_partition(columns[name]):
                return f"its column {name} is {columns[name].type}, which no table is partitioned by"
    if options is not None and len(options.partition_by) == len(columns):
        return "partition_by names all of its columns"
    return None


def _can_partition(column: SourceColumn) -> bool:
    return isinstance(column.type, DecimalType) or (
        isinstance(column.type, PrimitiveType) and column.type.name in _PARTITIONABLE
    )


def _hidden_columns(capture: Capture | None, table: _Published) -> dict[int | str, SourceColumn]:
    """The columns of a captured table that are masked or left out: by number, or by name if it was recreated."""
    captured = None if capture is None else capture.tables.get(table.source)
    if captured is None:
        return {}
    hidden = (*captured.left_out, *(column for column in captured.columns if column.mask is not None))
    return {column.number if captured.oid == table.oid else column.name: column for column in hidden}


def _find_reveal(table: CapturedTable, capture: Capture | None, settings: CaptureSettings) -> str | None:
    """Why a table that was captured under another name would reveal what the settings hide; None if it would not."""
    for captured in () if capture is None else capture.tables.values():
        if captured.oid != table.oid or captured.source == table.source:
            continue
        unmasked = {column.number for column in table.columns if column.mask is None}
        choice = settings.choose(captured.source)
        for column in (*captured.left_out, *captured.columns):
            name = column.ruled_as or column.name
            if column.number in unmasked and (choice.excludes(name) or choice.mask_of(name) is not None):
                return (
                    f"it was called {captured.source} before, and the settings mask or leave out {column.name} of that "
                    f"table only: add {table.source} to that rule, then dl cdc apply"
                )
    return None


def _to_captured(
    table: _Published, sent: tuple[SourceColumn, ...], choice: TableChoice, hidden: dict[int | str, SourceColumn]
) -> CapturedTable:
    columns, left_out = choice.choose_again(sent, hidden)
    return CapturedTable(
        source=table.source,
        oid=table.oid,
        columns=columns,
        key=table.row_key or (),
        current=choice.current,
        changes=choice.changes,
        identity=table.identity,
        filenode=table.filenode,
        newest=table.newest,
        membership=table.membership,
        publishing=table.publishing,
        left_out=left_out,
        options=choice.options,
    )


def _collisions(tables: Sequence[CapturedTable], settings: CaptureSettings) -> dict[str, str]:
    """The tables whose names in the lake are invalid or would be used twice, and why."""
    problems = {}
    owners: dict[Any, str] = {parse_table_name(settings.control_table).key: "the capture's control table"}
    for table in tables:
        own_keys: set[Any] = set()
        for name in table.lake_tables:
            try:
                key = parse_table_name(name).key
            except TableNameError as error:
                problems[table.source] = str(error)
                break
            other = owners.setdefault(key, table.source)
            if other != table.source:
                problems[table.source] = f"it and {other} would both be {name} in the lake"
                break
            if key in own_keys:
                problems[table.source] = f"its current rows and its changes would both be {name} in the lake"
            own_keys.add(key)
    return problems
