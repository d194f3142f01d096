"""Judges a capture: both layers of every table against the source, a witness, and what other readers see."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
from psycopg import sql
from psycopg.rows import TupleRow

import deltalakedb as dl
from deltalakedb.cdc import layers
from deltalakedb.cdc.captured_table import CapturedTable
from deltalakedb.cdc.control import Capture, load_capture
from deltalakedb.cdc.settings import CaptureSettings
from deltalakedb.cdc.source_names import source_parts
from deltalakedb.log.schema.types import PrimitiveType
from deltalakedb.mirror.reconciler import Reconciler
from tests.cdc.conftest import Source
from tests.cdc.witness import Happened
from tests.fixtures.readers import Deltalake, DuckDB

Row = tuple[Any, ...]
_STRING = PrimitiveType("string")


def captured(catalog: dl.Catalog, settings: CaptureSettings) -> Capture:
    """The capture, in which every table follows the stream."""
    capture = load_capture(catalog, settings)
    assert capture is not None, "nothing was captured"
    assert {table.source: table.reason for table in capture.tables.values() if table.stage != "streaming"} == {}
    return capture


def check_all(
    catalog: dl.Catalog,
    source: Source,
    capture: Capture,
    happened: Sequence[Happened] | None,
    altered: Collection[str] = (),
) -> None:
    """Every table equals its source, for us and for other readers; with a witness, layer 1 has what it saw, once.

    Tables that were `altered` are not replayed: their changes have the columns of their time.
    """
    check_current(catalog, source, capture)
    kept = {name: table for name, table in capture.tables.items() if name not in altered}
    check_replayed(catalog, source, replace(capture, tables=kept))
    if happened is not None:
        check_changes(catalog, capture, happened)
    check_mirror(catalog, capture)


# ---- layer 2


def check_current(catalog: dl.Catalog, source: Source, capture: Capture) -> None:
    """Row for row, no row more often than in the source."""
    with source.connect() as connection:
        for table in capture.tables.values():
            expected = source_rows(connection, table)
            found = Counter(rows_of(catalog.table(table.current).to_pyarrow_table(), table))
            check_equal(found, expected, table.current)


def check_mirror(catalog: dl.Catalog, capture: Capture) -> None:
    """`deltalake` and DuckDB see in the files what we see in SQL."""
    bring_level(catalog)
    duck, delta = DuckDB(), Deltalake()
    try:
        for table in capture.tables.values():
            ours = catalog.table(table.current)
            folder = Path(ours.table_uri.removeprefix("file://"))
            expected = Counter(rows_of(ours.to_pyarrow_table(), table))
            reading = delta.latest(folder)
            assert reading.version == ours.version(), f"{table.current}: the mirror is behind"
            check_equal(Counter(rows_of(reading.rows, table)), expected, f"{table.current} by deltalake")
            check_equal(Counter(rows_of(duck.latest(folder).rows, table)), expected, f"{table.current} by DuckDB")
    finally:
        duck.close()


def bring_level(catalog: dl.Catalog) -> None:
    """As `dl mirror run` does: whoever died may have left the files behind."""
    assert catalog.mirror.flush(60)
    with Reconciler(catalog.store, config=catalog.config, options_of=catalog.storage_options_of) as reconciler:
        assert [str(result.error) for result in reconciler.once() if result.error] == []


def source_rows(connection: psycopg.Connection[TupleRow], table: CapturedTable) -> Counter[Row]:
    """The rows of the source, how often each is there; what is captured as text, as text."""
    columns = [
        sql.SQL("{}::text" if column.type == _STRING else "{}").format(sql.Identifier(column.name))
        for column in table.columns
    ]
    query = sql.SQL("select {} from {}").format(
        sql.SQL(", ").join(columns), sql.Identifier(*source_parts(table.source))
    )
    return Counter(tuple(map(plain, row)) for row in connection.execute(query))


def rows_of(rows: pa.Table, table: CapturedTable) -> Iterable[Row]:
    columns = [[plain(value) for value in rows[column.name].to_pylist()] for column in table.columns]
    return zip(*columns, strict=True)


def plain(value: Any) -> Any:
    """A value that can be a key: lists are tuples, and NaN equals itself."""
    if isinstance(value, list):
        return tuple(map(plain, value))
    if isinstance(value, float) and value != value:
        return "NaN"
    return value


def check_equal(found: Counter[Row], expected: Counter[Row], where: str) -> None:
    """Equal as multisets; a difference is shown by a few rows."""
    more, less = found - expected, expected - found
    shown = [[_short(row) for row in list(rows)[:5]] for rows in (more, less)]
    differs = f"{where} differs, of {expected.total()} rows; too many: {shown[0]}; missing: {shown[1]}"
    assert (more.total(), less.total()) == (0, 0), differs


def _short(row: Row) -> Row:
    return tuple(
        f"{value[:20]}... ({len(value)})" if isinstance(value, str) and len(value) > 40 else value for value in row
    )


# ---- layer 1


def check_changes(
    catalog: dl.Catalog, capture: Capture, happened: Sequence[Happened], *, recopied: bool = False
) -> None:
    """Each change is there once, in the order of the source, from where its table was copied.

    `recopied`: tables were copied again, and have changes from before their last copy too: all of those happened.
    """
    found: list[tuple[int, int, Happened]] = []
    for table in capture.tables.values():
        rows = changes_of(catalog, table)
        places = [(row[layers.LSN], row[layers.ORDINAL]) for row in rows]
        assert len(set(places)) == len(places), f"{table.changes} has a change twice"
        found += (
            (
                row[layers.LSN],
                row[layers.ORDINAL],
                Happened(
                    row[layers.LSN], row[layers.XID], row[layers.COMMITTED_AT], row[layers.OP], table.source
                ),
            )
            for row in rows
        )  # fmt: skip
    starts = {table.source: table.start_lsn or 0 for table in capture.tables.values()}
    expected = [one for one in happened if one.table in starts and starts[one.table] <= one.lsn < capture.lsn]
    missed = [one for one in happened if one.table in starts and one.lsn >= capture.lsn]
    assert not missed, f"the capture stands at {capture.lsn}, before {len(missed)} changes such as {missed[0]}"
    found.sort(key=lambda one: one[:2])
    changes = [one for _, _, one in found]
    if recopied:
        invented = Counter(changes) - Counter(happened)
        assert not invented, f"{invented.total()} changes that never happened, such as {min(invented)}"
        changes = [one for one in changes if one.lsn >= starts[one.table]]
    _check_order(changes, expected)


def _check_order(found: Sequence[Happened], expected: Sequence[Happened]) -> None:
    """The tables of one truncate have no order among themselves."""
    ours, theirs = _with_truncates_sorted(found), _with_truncates_sorted(expected)
    more, less = Counter(ours) - Counter(theirs), Counter(theirs) - Counter(ours)
    assert not more, f"{more.total()} changes that never happened, such as {min(more)}"
    assert not less, f"{less.total()} changes are missing, such as {min(less)}"
    for place, (one, other) in enumerate(zip(ours, theirs, strict=True)):
        assert one == other, f"change {place} is out of order: {one} instead of {other}"


def _with_truncates_sorted(changes: Sequence[Happened]) -> list[Happened]:
    ordered: list[Happened] = []
    for (_, op), group in groupby(changes, key=lambda one: (one.lsn, one.op)):
        together = list(group)
        ordered += sorted(together) if op == layers.TRUNCATE else together
    return ordered


def check_replayed(catalog: dl.Catalog, source: Source, capture: Capture) -> None:
    """The first copy and then each change of layer 1, one by one, give the source: none is missing, none too many."""
    with source.connect() as connection:
        for table in capture.tables.values():
            base = rows_of(copied(catalog, capture, table), table)
            replay = KeyedReplay(table, base) if table.is_keyed else WholeRowReplay(table, base)
            for change in changes_of(catalog, table):
                replay.apply(change)
            check_equal(replay.rows(), source_rows(connection, table), f"{table.changes} replayed")


def copied(catalog: dl.Catalog, capture: Capture, table: CapturedTable) -> pa.Table:
    """The table of current rows as the copy left it."""
    for version in range(catalog.table(table.current).version(), -1, -1):
        then = catalog.table(table.current, version=version)
        if (then.transaction_version(capture.app_id) or 0) <= (table.start_lsn or 0):
            return then.to_pyarrow_table()
    raise AssertionError(f"{table.current} has no version of {table.start_lsn}")


def changes_of(catalog: dl.Catalog, table: CapturedTable) -> list[dict[str, Any]]:
    """Layer 1 in its order."""
    rows = catalog.table(table.changes).to_pyarrow_table()
    found: list[dict[str, Any]] = rows.sort_by([(layers.LSN, "ascending"), (layers.ORDINAL, "ascending")]).to_pylist()
    return found


class KeyedReplay:
    """A table by its key; every change must find what it needs."""

    def __init__(self, table: CapturedTable, base: Iterable[Row]) -> None:
        self._names = [column.name for column in table.columns]
        self._key = [self._names.index(name) for name in table.key]
        self._where = table.changes
        self._rows: dict[Row, Row] = {}
        for row in base:
            self._put(row, "the copy")

    def rows(self) -> Counter[Row]:
        return Counter(self._rows.values())

    def apply(self, change: Mapping[str, Any]) -> None:
        op = change[layers.OP]
        if op == layers.TRUNCATE:
            self._rows.clear()
        elif op == layers.INSERT:
            self._put(self._row(change[layers.AFTER]), change)
        elif op == layers.DELETE:
            self._take(self._row(change[layers.BEFORE]), change)
        else:
            after = self._row(change[layers.AFTER])
            before = self._take(after if change[layers.BEFORE] is None else self._row(change[layers.BEFORE]), change)
            self._put(_fill(self._names, change, after, before), change)

    def _row(self, values: Mapping[str, Any]) -> Row:
        return tuple(plain(values[name]) for name in self._names)

    def _take(self, row: Row, why: Any) -> Row:
        key = tuple(row[place] for place in self._key)
        assert key in self._rows, f"{self._where}: no row {key} for {_brief(why)}"
        return self._rows.pop(key)

    def _put(self, row: Row, why: Any) -> None:
        key = tuple(row[place] for place in self._key)
        assert key not in self._rows, f"{self._where}: a row {key} is there before {_brief(why)}"
        self._rows[key] = row


class WholeRowReplay:
    """A table without a key: rows are counted."""

    def __init__(self, table: CapturedTable, base: Iterable[Row]) -> None:
        self._names = [column.name for column in table.columns]
        self._where = table.changes
        self._rows = Counter(base)

    def rows(self) -> Counter[Row]:
        return +self._rows

    def apply(self, change: Mapping[str, Any]) -> None:
        if change[layers.OP] == layers.TRUNCATE:
            self._rows.clear()
            return
        before, after = (
            None if change[side] is None else tuple(plain(change[side][name]) for name in self._names)
            for side in (layers.BEFORE, layers.AFTER)
        )
        if before is not None:
            assert self._rows[before] > 0, f"{self._where}: no row left for {_brief(change)}"
            self._rows[before] -= 1
        if after is not None:
            self._rows[after if before is None else _fill(self._names, change, after, before)] += 1


def _fill(names: Sequence[str], change: Mapping[str, Any], after: Row, before: Row) -> Row:
    """Large values that the update left alone are those of the row before."""
    unchanged = change[layers.UNCHANGED] or ()
    return tuple(before[place] if name in unchanged else after[place] for place, name in enumerate(names))


def _brief(why: Any) -> str:
    return (
        str({key: why[key] for key in (layers.OP, layers.LSN, layers.ORDINAL)}) if isinstance(why, dict) else str(why)
    )
