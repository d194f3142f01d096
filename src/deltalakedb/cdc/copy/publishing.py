"""The publication of copies made beside the stream: applies the changes since, so that they are the table at one LSN.

The files of a copy show pages at different moments. A row that was not changed since the copy began is there once, as
it is. A row that was changed may be there in its old or new state, twice because it moved to a page that was read
later, or not at all because it moved to one that was read before. But the changes have the present state of every
such row. So the rows that the changes name are replaced by that state, and the others stay.

Only large values that an update did not change are in no change. They are taken from the row in the files; if it is
not there, or what is there may be another row that had its key before, it is read from the source once more
(`RowsMissing`, `patch_ranges`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from psycopg import sql

from deltalakedb.cdc.apply.batches import commit_until_won, decided_batch
from deltalakedb.cdc.apply.buckets import buckets_of
from deltalakedb.cdc.apply.current_rows import merge_rows, overwrite
from deltalakedb.cdc.apply.keyless import apply_keyless
from deltalakedb.cdc.apply.landing import LandingChanged, copied_at, propose_copy
from deltalakedb.cdc.apply.net import COLUMNS, NetEffect, RowLookup
from deltalakedb.cdc.captured_table import CapturedTable
from deltalakedb.cdc.control import Capture, note_progress, save_tables
from deltalakedb.cdc.copy.copies import TableCopy, domains_of, removed
from deltalakedb.cdc.layers import LSN, changes_schema
from deltalakedb.cdc.lsn import format_lsn
from deltalakedb.cdc.source.copy_plan import PageRange
from deltalakedb.cdc.source_names import source_parts
from deltalakedb.data import read_files
from deltalakedb.data.reader import FILE, ROW
from deltalakedb.exceptions import CaptureError
from deltalakedb.log.predicates.atoms import ALWAYS
from deltalakedb.log.protocol.actions import AddFile, RemoveFile
from deltalakedb.log.protocol.paths import decode_path
from deltalakedb.log.protocol.proposal import WHOLE_TABLE, ProposedCommit
from deltalakedb.log.protocol.rows import adds_to_batch
from deltalakedb.log.protocol.snapshot import replay
from deltalakedb.operations.expressions import quoted
from deltalakedb.operations.find import gather_rows, touched_files
from deltalakedb.operations.rewriting import remove_rows
from deltalakedb.operations.target import Done, Target, open_engine
from deltalakedb.operations.write import metrics_in_sparks_words
from deltalakedb.runtime.steps import reached
from deltalakedb.storage.location import open_storage
from deltalakedb.store.names import parse_table_name

if TYPE_CHECKING:
    import pyarrow as pa

    from deltalakedb.catalog.catalog import Catalog
    from deltalakedb.cdc.settings import CaptureSettings
    from deltalakedb.data.engine import Engine
    from deltalakedb.transactions.draft import TableDraft
    from deltalakedb.transactions.transaction import CatalogTransaction


class RowsMissing(CaptureError):  # noqa: N818  the rows are read, then it succeeds
    """Rows whose large values are neither in the changes nor in what was copied."""

    def __init__(self, copy: TableCopy, keys: pa.Table) -> None:
        super().__init__(f"{keys.num_rows} rows of {copy.source} have to be read once more")
        self.copy, self.keys = copy, keys
        """The columns of the key, as k0, k1, ..."""


def publish_copies(
    catalog: Catalog, capture: Capture, settings: CaptureSettings, copies: Sequence[TableCopy]
) -> Capture:
    """Commit complete copies as their tables, at the capture's LSN, in one transaction.

    The capture must be at, or past, the watermark of every copy. RowsMissing if rows must be read once more,
    LandingChanged if a copy can no longer be used; then nothing is committed.
    """
    for copy in copies:
        assert not copy.missing, f"{copy.source} is not read to the end"
        assert copy.watermark <= capture.lsn, f"{copy.source} shows what the stream has not brought yet"
    description = f"the copies of {', '.join(copy.source for copy in copies)}"
    landed, unused = commit_until_won(partial(_publish, catalog, capture, settings, copies), description)
    for copy, paths in zip(copies, unused, strict=True):
        remove_unused(copy, paths)
    return landed


def _publish(
    catalog: Catalog, capture: Capture, settings: CaptureSettings, copies: Sequence[TableCopy]
) -> tuple[Capture, list[list[str]]]:
    lsn = capture.lsn
    message = f"copies of {', '.join(copy.source for copy in copies)} at {format_lsn(lsn)}"
    forgotten = removed(domains_of(catalog, capture, [copy.id for copy in copies]))
    with decided_batch(catalog, capture, message, lsn) as tx:
        unused = [_propose(tx, capture, copy, settings) for copy in copies]
        streaming = [copied_at(copy.table, lsn) for copy in copies]
        landed = note_progress(tx, save_tables(tx, capture, streaming), lsn, forgotten)
        reached("cdc.copy_proposed")
    reached("cdc.copy_committed")
    return landed, unused


def _propose(tx: CatalogTransaction, capture: Capture, copy: TableCopy, settings: CaptureSettings) -> list[str]:
    """Propose the table as one version; returns the paths of files that are not part of it."""
    adds = [add for chunk in copy.chunks.values() for add in chunk.adds]
    _check_files(copy, adds)
    propose_copy(tx, capture, copy.landing, adds, settings)
    draft = tx.find_draft(parse_table_name(copy.table.current))
    assert draft is not None, "it was just proposed"
    changes = _Changes(copy)
    if copy.changes and not copy.table.is_keyed:
        tx.run(copy.table.current, lambda target: apply_keyless(target, copy.table, changes.read(COLUMNS)))
    elif copy.changes:
        if len(copy.chunks) > 1:  # what was read at one moment has no row twice
            tx.run(copy.table.current, partial(_remove_doubles, changes=changes))
        tx.run(copy.table.current, partial(_catch_up, changes=changes))
    live = _squash(draft)
    live_paths = {add.path for add in live}
    return [decode_path(add.path) for add in (*adds, *copy.changes) if add.path not in live_paths]


def _check_files(copy: TableCopy, adds: Sequence[AddFile]) -> None:
    """LandingChanged if a file is missing: no version names these files, so a VACUUM may have deleted them."""
    assert copy.landing.job is not None, "only tables of current rows are copied"
    paths = copy.landing.job.paths()
    missing = [add.path for add in (*adds, *copy.changes) if decode_path(add.path) not in paths]
    if missing:
        raise LandingChanged(f"{missing[0]}, which the copy of {copy.source} had written, is gone: it begins anew")


def _squash(draft: TableDraft) -> list[AddFile]:
    """Combine the copy and the changes on top of it into one version; returns its files."""
    first, *others = draft.commits
    removes = [action for action in first.actions if isinstance(action, RemoveFile)]
    live = list(replay(action for commit in draft.commits for action in commit.actions).files.values())
    if others:
        actions = [action for action in first.actions if not isinstance(action, AddFile)]
        metrics = metrics_in_sparks_words(live, removes)
        draft.commits[:] = [replace(first, actions=(*actions, *live), operation_metrics=metrics)]
    return live


@dataclass(frozen=True, slots=True)
class _Changes:
    """The changes of a table since its copy began."""

    copy: TableCopy

    def read(self, columns: Sequence[str]) -> pa.RecordBatchReader:
        copy = self.copy
        rows = read_files(
            adds_to_batch(copy.changes),
            storage=open_storage(copy.landing.location, copy.landing.options),
            schema=changes_schema(copy.table),
            columns=columns,
        )
        first = copy.snapshot_lsn
        if first is None:
            return rows
        assert LSN in columns, "changes before the snapshot are told by their LSN"
        later = (batch.filter(pc.greater_equal(batch.column(LSN), first)) for batch in rows)
        return pa.RecordBatchReader.from_batches(rows.schema, later)


def _remove_doubles(target: Target, changes: _Changes) -> Done:
    """Remove all but one of the copies of a row; RowsMissing if a row that is needed is not there at all."""
    copy = changes.copy
    with open_engine(target) as engine:
        net = NetEffect(engine, copy.table, changes.read(COLUMNS))
        if net.truncated:
            return Done(None)
        files = target.plan(ALWAYS)
        _find_rows(engine, net, net.final(), target, copy, files)
        keys = _keys(copy)
        doubles = gather_rows(
            engine.reader(
                f"select file, row from (select *, row_number() over (partition by {keys} order by is_own desc, file, "
                "row) as nth from matches) where nth > 1 order by file, row"
            )
        )
    if not doubles:
        return Done(None)
    touched = touched_files(files, doubles)
    removed_rows = remove_rows(target, touched)
    return Done(ProposedCommit(tuple(removed_rows.actions), "DELETE", {}, read=WHOLE_TABLE))


def _find_rows(
    engine: Engine, net: NetEffect, final: pa.Table, target: Target, copy: TableCopy, files: pa.Table
) -> None:
    """Create a table `matches` of the rows of the copy that the changes name; RowsMissing if one of them is missing.

    `is_own` is false for rows that may be those of another row, which had the key before: a row came to the key or left
    it, and the file may have been read before that.
    """
    keys = _keys(copy)
    engine.register("final", final)
    engine.register("vacated", net.vacated())
    engine.register("moves", net.moves())
    engine.register("read_at", _read_at(copy, files))
    engine.register("scan", target.read(files, copy.table.key, positions=True))
    same = " and ".join(f"s.{quoted(name)} = t.k{place}" for place, name in enumerate(copy.table.key))
    key = ", ".join(f"t.k{place}" for place in range(len(copy.table.key)))
    engine.execute(
        f"create temp table matches as select s.{quoted(FILE)} as file, s.{quoted(ROW)} as row, {key}, "
        "coalesce(r.since > t.moved_at, true) as is_own from scan s "
        f"join (select {keys}, moved_at from (select {keys} from final union all select {keys} from vacated) "
        f"left join moves using ({keys})) t on {same} join read_at r on r.file = s.{quoted(FILE)}"
    )
    if not net.left_out or not final.num_rows:
        return
    needs = [final.column(f"w{place}").is_null() for place in net.left_out]
    needed = needs[0]
    for column in needs[1:]:
        needed = pc.or_(needed, column)
    engine.register("needed", final.filter(needed))
    missing = engine.table(
        f"select {keys} from needed anti join (select {keys} from matches where is_own) using ({keys})"
    )
    if missing.num_rows:
        raise RowsMissing(copy, missing)


def _read_at(copy: TableCopy, files: pa.Table) -> pa.Table:
    """For each file, by its position: the LSN before which it shows every change."""
    since = {add.path: chunk.since for chunk in copy.chunks.values() for add in chunk.adds}
    return pa.table(
        {
            "file": pa.array(range(files.num_rows), pa.int32()),
            "since": pa.array([since.get(path, 0) for path in files.column("path").to_pylist()], pa.int64()),
        }
    )


def _keys(copy: TableCopy) -> str:
    return ", ".join(f"k{number}" for number in range(len(copy.table.key)))


def _catch_up(target: Target, changes: _Changes) -> Done:
    """Bring the rows that the changes name to their present state."""
    table = changes.copy.table
    buckets = buckets_of(target.metadata.configuration)
    with open_engine(target) as engine:
        net = NetEffect(engine, table, changes.read(COLUMNS))
        final, vacated = net.final(buckets), net.vacated(buckets)
        if net.left_out and not net.truncated and len(changes.copy.chunks) == 1:  # with more it was done before
            _find_rows(engine, net, final, target, changes.copy, target.plan(ALWAYS))
    rows = RowLookup(table, changes.read, net.left_out, net.partly_sent, bool(buckets))
    if net.truncated:
        return overwrite(target, rows, final)
    if not final.num_rows and not vacated.num_rows:
        return Done(None)
    return merge_rows(target, rows, final, vacated)


def remove_unused(copy: TableCopy, paths: Sequence[str]) -> None:
    """Delete files of a published copy; failures are ignored."""
    storage = open_storage(copy.landing.location, copy.landing.options)
    for path in paths:
        try:
            storage.delete(path)
        except (CaptureError, OSError):
            continue


_KEYS_A_QUERY: Final = 1000


def patch_ranges(table: CapturedTable, keys: pa.Table) -> tuple[PageRange, ...] | None:
    """Queries that read rows by their keys; None if a key cannot be written as a text that Postgres reads."""
    columns = {column.name: column for column in table.columns}
    if any(columns[name].mask is not None for name in table.key):  # the lake does not have the source's keys
        return None
    names = sql.SQL(", ").join(sql.Identifier(name) for name in columns)
    key = sql.SQL(", ").join(map(sql.Identifier, table.key))
    types = [columns[name].type_name for name in table.key]
    relation = sql.Identifier(*source_parts(table.source))
    lock = sql.SQL("lock table {} in access share mode").format(relation).as_string(None)
    ranges = []
    values = [column.to_pylist() for column in keys.columns]
    rows = list(zip(*values, strict=True))
    for start in range(0, len(rows), _KEYS_A_QUERY):
        tuples = []
        for row in rows[start : start + _KEYS_A_QUERY]:
            texts = [_text_of(value) for value in row]
            if None in texts:
                return None
            parts = [
                sql.SQL("{}::{}").format(sql.Literal(text), sql.SQL(kind))
                for text, kind in zip(texts, types, strict=True)
            ]
            tuples.append(sql.SQL("({})").format(sql.SQL(", ").join(parts)))
        query = sql.SQL("copy (select {} from {} where ({}) in ({})) to stdout (format csv)").format(
            names, relation, key, sql.SQL(", ").join(tuples)
        )
        ranges.append(PageRange(table.oid, 0, lock, query.as_string(None), is_whole=True))
    return tuple(ranges)


def _text_of(value: Any) -> str | None:
    """A value of a key as a text that Postgres reads, or None."""
    match value:
        case str():
            return value
        case bool():
            return "true" if value else "false"
        case int() | Decimal() | float():
            return str(value)
        case bytes():
            return "\\x" + value.hex()
        case datetime() | date():
            return value.isoformat()
        case _:
            return None
