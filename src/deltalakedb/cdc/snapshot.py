"""A snapshot of the source held still for a copy: sessions that see it, locks on its tables, and ranges of pages."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from psycopg import errors, sql

from deltalakedb.cdc.server import Connection, connect, read_sql, translate_errors
from deltalakedb.cdc.tables import CapturedTable
from deltalakedb.exceptions import CaptureSetupError, SourceUnavailableError

_MIN_PAGES: Final = 2048
"""What is worth a task of its own: 16 MB, at the usual size of a page."""
_MAX_PAGES: Final = 32768
"""Of a task: 256 MB. Progress is told by tasks."""
_PARTS: Final = read_sql("select_parts")
_REWRITTEN: Final = read_sql("select_rewritten")
_ROW_FILTER: Final = read_sql("select_row_filter")


class SourceMoved(Exception):  # noqa: N818  it is no error: another snapshot is taken
    """Somebody changed a table between the snapshot and the lock on it, so that the snapshot's rows are not there."""


class _Part(NamedTuple):
    """A table, or one partition of it, as the snapshot has it."""

    oid: int
    schema: str
    name: str
    kind: str
    filenode: int
    pages: int


@dataclass(frozen=True, slots=True)
class CopyPlan:
    """How a table is copied."""

    table: CapturedTable
    rows: int
    """As many as the source's planner expects."""
    tasks: tuple[tuple[str, ...], ...]
    """The COPY statements of each task."""


@contextmanager
def session_at(dsn: str, snapshot: str) -> Iterator[Connection]:
    """A session that sees the source as an exported snapshot has it, for as long as the block lasts."""
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


def plan_copy(conn: Connection, table: CapturedTable, publication: str, tasks: int) -> CopyPlan:
    """Lock a table against being rewritten, which a snapshot does not survive, and divide its pages among tasks.

    The lock (ACCESS SHARE, as any query takes) stays until the session ends.
    """
    with translate_errors(), _refusals(conn, table):
        parts = [_Part(*row) for row in conn.execute(_PARTS, [table.oid]).fetchall()]
        if not parts and not _is_partitioned(conn, table):
            raise SourceMoved(f"{table.source} was dropped")
        _check_kinds(table, parts)
        if parts:
            names = sql.SQL(", ").join(sql.SQL("only {}").format(_name(part)) for part in parts)
            conn.execute(sql.SQL("lock table {} in access share mode").format(names))
        _check_files(conn, table, parts)
        query = _Query(conn, table, _row_filter(conn, table, publication))
        rows = sum(query.estimate(part) for part in parts)
        return CopyPlan(table, rows, _divide(query, parts, tasks))


@dataclass(frozen=True, slots=True)
class _Query:
    """The rows of a table that its publication sends."""

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
            # The server's own text of the publication's condition.
            where.append(sql.SQL("({})").format(sql.SQL(self.row_filter)))
        query = sql.SQL("select {} from only {}").format(columns, _name(part))
        return query if not where else sql.SQL("{} where {}").format(query, sql.SQL(" and ").join(where))

    def copy(self, part: _Part, first: int, end: int | None) -> str:
        statement = sql.SQL("copy ({}) to stdout (format csv)").format(self.of(part, first, end))
        return statement.as_string(self.conn)

    def estimate(self, part: _Part) -> int:
        """What the planner expects; it also looks whether the columns are there."""
        row = self.conn.execute(sql.SQL("explain (format json) {}").format(self.of(part))).fetchone()
        assert row is not None, "a plan is one row"
        plan = row[0] if isinstance(row[0], list) else json.loads(row[0])
        return int(plan[0]["Plan"]["Plan Rows"])


def _divide(query: _Query, parts: Sequence[_Part], tasks: int) -> tuple[tuple[str, ...], ...]:
    """Ranges of about the same number of pages. The last one of a part has no end: its pages were counted before."""
    wanted = -(-sum(part.pages for part in parts) // max(1, tasks))
    step = max(_MIN_PAGES, min(_MAX_PAGES, wanted))
    divided: list[list[str]] = []
    room = 0
    for part in parts:
        for first in range(0, max(part.pages, 1), step):
            end = first + step if first + step < part.pages else None
            pages = min(step, part.pages - first)
            if not divided or pages > room:
                divided.append([])
                room = step
            divided[-1].append(query.copy(part, first, end))
            room -= pages
    return tuple(map(tuple, divided))


def _is_partitioned(conn: Connection, table: CapturedTable) -> bool:
    """A partitioned table may have no partition yet."""
    row = conn.execute("select relkind::text = 'p' from pg_class where oid = %s::oid", [table.oid]).fetchone()
    return row is not None and bool(row[0])


def _check_kinds(table: CapturedTable, parts: Sequence[_Part]) -> None:
    for part in parts:
        if part.kind != "r":
            raise CaptureSetupError(
                f"{table.source} cannot be captured: its partition {part.schema}.{part.name} is no ordinary table, so "
                "that its changes are not in the log; detach it, or name other tables (--tables)"
            )


def _check_files(conn: Connection, table: CapturedTable, parts: Sequence[_Part]) -> None:
    """A table that was truncated or rewritten since the snapshot has no rows for it any more."""
    oids = [part.oid for part in parts]
    now = dict(conn.execute(_REWRITTEN, [oids]).fetchall())
    if any(now.get(part.oid) != part.filenode for part in parts):
        raise SourceMoved(f"{table.source} was truncated, rewritten or dropped")


def _row_filter(conn: Connection, table: CapturedTable, publication: str) -> str | None:
    row = conn.execute(_ROW_FILTER, [publication, table.oid]).fetchone()
    if row is None:
        raise SourceMoved(f"{table.source} was taken out of the publication {publication}")
    return None if row[0] is None else str(row[0])


def _name(part: _Part) -> sql.Identifier:
    return sql.Identifier(part.schema, part.name)


@contextmanager
def _refusals(conn: Connection, table: CapturedTable) -> Iterator[None]:
    try:
        yield
    except (errors.UndefinedTable, errors.UndefinedColumn) as error:
        raise SourceMoved(f"{table.source}: {error.diag.message_primary}") from error
    except errors.InsufficientPrivilege as error:
        role: Any = conn.info.user
        raise CaptureSetupError(
            f"{table.source} cannot be copied: {error.diag.message_primary}; grant select on {table.source} to {role} "
            "(and usage on its schema; policies that hide rows from the role must not be there: alter role "
            f"{role} bypassrls)"
        ) from error
