"""The plan of a copy: the page ranges that it reads, sessions at its snapshot, and what makes the plan useless."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any, Final, NamedTuple

from psycopg import errors, sql

from deltalakedb.cdc.captured_table import CapturedTable
from deltalakedb.cdc.source.postgres import Connection, connect, read_sql, translate_errors
from deltalakedb.cdc.source_names import quote_name, quote_source
from deltalakedb.exceptions import CaptureSetupError, SourceUnavailableError

_MIN_PAGES: Final = 2048
"""The least that is worth a task of its own: 16 MB, at the usual page size."""
_MAX_PAGES: Final = 32768
"""The most of a task: 256 MB. Progress is reported by task."""
_PARTS: Final = read_sql("select_parts")
_ROW_FILTER: Final = read_sql("select_row_filter")


class SourceMoved(Exception):  # noqa: N818  not an error: another snapshot is taken
    """A table was changed since the snapshot, so that the snapshot's rows no longer exist."""


@dataclass(frozen=True, slots=True)
class PageRange:
    """Rows of a table, or of one of its partitions, by their pages."""

    oid: int
    filenode: int
    """At the snapshot: a table that is truncated or rewritten gets another one."""
    lock: str
    copy: str
    is_whole: bool = False
    """Whether these are all pages of the table or partition, however many there are."""

    def to_value(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_value(cls, value: Mapping[str, Any]) -> PageRange:
        return cls(**value)


class _Part(NamedTuple):
    """A table, or one of its partitions, at the snapshot."""

    oid: int
    schema: str
    name: str
    kind: str
    filenode: int
    pages: int


@dataclass(frozen=True, slots=True)
class CopyPlan:
    """The plan of a table's copy."""

    table: CapturedTable
    rows: int
    """The estimate of the source's planner."""
    tasks: tuple[tuple[PageRange, ...], ...]
    """The ranges of each task."""
    pages: int = 0


@contextmanager
def session_at(dsn: str, snapshot: str) -> Iterator[Connection]:
    """A session at an exported snapshot, for the duration of the block."""
    conn = connect(dsn)
    try:
        begin = sql.SQL("begin isolation level repeatable read read only; set transaction snapshot {}").format(snapshot)
        with translate_errors():
            try:
                conn.execute(begin)
            except (errors.InvalidParameterValue, errors.UndefinedObject) as error:
                raise SourceUnavailableError(
                    f"the snapshot {snapshot} of the source is gone: the connection that held it broke"
                ) from error
        yield conn
    finally:
        conn.close()


def plan_copy(conn: Connection, table: CapturedTable, publication: str, tasks: int, most: int = _MAX_PAGES) -> CopyPlan:
    """Divide the pages of a table among tasks of up to `most` pages; `conn` is a session at the snapshot."""
    with translate_errors(), refusals(conn, table.source):
        parts = [_Part(*row) for row in conn.execute(_PARTS, [table.oid]).fetchall()]
        if not parts and not _is_partitioned(conn, table):
            raise SourceMoved(f"{table.source} was dropped")
        _check_kinds(table, parts)
        query = _Query(conn, table, _row_filter(conn, table, publication))
        if not table.keeps_current:  # a table with changes only has no rows to copy
            return CopyPlan(table, 0, ())
        rows = sum(query.estimate(part) for part in parts)
        return CopyPlan(table, rows, _divide(query, parts, tasks, most), sum(part.pages for part in parts))


def claim(conn: Connection, pages: PageRange, source: str) -> None:
    """Lock a table against rewrites until the session ends; SourceMoved if it was rewritten since the snapshot.

    A snapshot does not survive a rewrite: it sees no rows of a truncated table. The lock is that of any query, and is
    held by one task only: a statement that waits for it makes others wait, so it must be short.
    """
    conn.execute(pages.lock.encode())
    row = conn.execute("select pg_relation_filenode(%s::oid)::bigint", [pages.oid]).fetchone()
    if row is None or row[0] != pages.filenode:
        raise SourceMoved(f"{source} was truncated, rewritten or dropped")


@dataclass(frozen=True, slots=True)
class _Query:
    """The query for the rows of a table that its publication sends."""

    conn: Connection
    table: CapturedTable
    row_filter: str | None

    def of(self, part: _Part, first: int = 0, end: int | None = None) -> sql.Composable:
        columns = sql.SQL(", ").join(sql.Identifier(column.name) for column in self.table.columns)
        where = []
        if first:
            where.append(sql.SQL("ctid >= {}::tid").format(f"({first},0)"))
        if end is not None:
            where.append(sql.SQL("ctid < {}::tid").format(f"({end},0)"))
        if self.row_filter is not None:
            # The publication's condition as the server prints it.
            where.append(sql.SQL("({})").format(sql.SQL(self.row_filter)))
        query = sql.SQL("select {} from only {}").format(columns, _name(part))
        return query if not where else sql.SQL("{} where {}").format(query, sql.SQL(" and ").join(where))

    def range(self, part: _Part, first: int, end: int | None) -> PageRange:
        lock = sql.SQL("lock table only {} in access share mode").format(_name(part))
        copy = sql.SQL("copy ({}) to stdout (format csv)").format(self.of(part, first, end))
        is_whole = not first and end is None
        return PageRange(part.oid, part.filenode, lock.as_string(self.conn), copy.as_string(self.conn), is_whole)

    def estimate(self, part: _Part) -> int:
        """The planner's estimate of rows; this also checks that the columns exist."""
        row = self.conn.execute(sql.SQL("explain (format json) {}").format(self.of(part))).fetchone()
        assert row is not None, "a plan is one row"
        plan = row[0] if isinstance(row[0], list) else json.loads(row[0])
        return int(plan[0]["Plan"]["Plan Rows"])


def _divide(query: _Query, parts: Sequence[_Part], tasks: int, most: int) -> tuple[tuple[PageRange, ...], ...]:
    """Ranges of about the same number of pages. The last range of a part has no end: its pages were counted before."""
    pages_per_task = -(-sum(part.pages for part in parts) // max(1, tasks))
    step = max(min(_MIN_PAGES, most), min(most, pages_per_task))
    divided: list[list[PageRange]] = []
    room = 0
    for part in parts:
        for first in range(0, max(part.pages, 1), step):
            end = first + step if first + step < part.pages else None
            pages = min(step, part.pages - first)
            if not divided or pages > room:
                divided.append([])
                room = step
            divided[-1].append(query.range(part, first, end))
            room -= pages
    return tuple(map(tuple, divided))


def _is_partitioned(conn: Connection, table: CapturedTable) -> bool:
    """Whether it is a partitioned table, which may have no partition yet."""
    row = conn.execute("select relkind::text = 'p' from pg_class where oid = %s::oid", [table.oid]).fetchone()
    return row is not None and bool(row[0])


def _check_kinds(table: CapturedTable, parts: Sequence[_Part]) -> None:
    for part in parts:
        if part.kind != "r":
            raise CaptureSetupError(
                f"{table.source} cannot be captured: its partition {part.schema}.{part.name} is no ordinary table, so "
                "that its changes are not in the log; detach it, or name other tables (--tables)"
            )


def _row_filter(conn: Connection, table: CapturedTable, publication: str) -> str | None:
    row = conn.execute(_ROW_FILTER, [publication, table.oid]).fetchone()
    if row is None:
        raise SourceMoved(f"{table.source} was taken out of the publication {publication}")
    return None if row[0] is None else str(row[0])


def _name(part: _Part) -> sql.Identifier:
    return sql.Identifier(part.schema, part.name)


@contextmanager
def refusals(conn: Connection, source: str) -> Iterator[None]:
    """Translate server errors about a table: it was changed, or the role may not read it."""
    try:
        yield
    except (errors.UndefinedTable, errors.UndefinedColumn) as error:
        raise SourceMoved(f"{source}: {error.diag.message_primary}") from error
    except errors.InsufficientPrivilege as error:
        role = quote_name(conn.info.user)
        raise CaptureSetupError(
            f"{source} cannot be copied: {error.diag.message_primary}; grant select on {quote_source(source)} to "
            f"{role} (and usage on its schema; policies that hide rows from the role must not be there: "
            f"alter role {role} bypassrls)"
        ) from error
