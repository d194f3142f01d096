"""A capture whose tables change their columns on the way, step by step and without Spark, and its comparison."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from deltalakedb.cdc.captured_table import CapturedTable
from deltalakedb.cdc.control import begin_batch, note_progress, save_tables
from deltalakedb.cdc.evolve.evolution import follow, stop_table
from deltalakedb.cdc.layers import changes_schema, current_schema
from deltalakedb.cdc.run.opening import add_tables, open_capture
from deltalakedb.cdc.run.watch import apply_unseen_changes, look_for_changes
from deltalakedb.cdc.settings import CaptureSettings
from deltalakedb.cdc.source.peek import RelationChanged, Stopped
from deltalakedb.cdc.source.postgres import connect, flush_lsn
from deltalakedb.log.schema.types import StructType, parse_schema
from tests.cdc.conftest import Lake, Source
from tests.cdc.judging import check_equal, rows_of, source_rows
from tests.cdc.taking import PUBLICATION, Taking

_MOST_STEPS = 60
_NAMES = (
    "select attname from pg_attribute where attrelid = %s and attnum > 0 and not attisdropped and attgenerated = '' "
    "order by attnum"
)


class Evolving(Taking):
    """Takes in all that is committed, and follows columns where they change, as the runner does."""

    def catch_up(self) -> None:
        end = flush_lsn(self.conn)
        for _ in range(_MOST_STEPS):
            if self._step(end):
                return
        raise AssertionError("the range does not come to its end")

    def _step(self, end: int) -> bool:
        read = self.read(end=end)
        changed = [one for one in read if isinstance(one, RelationChanged | Stopped)]
        if not changed:
            self.commit(read, end)
            return True
        first = min(changed, key=lambda one: one.lsn)
        if first.lsn > self.capture.lsn:
            return self._step(first.lsn) and False
        catalog = self.lake.catalog
        if isinstance(first, Stopped):
            self.capture = stop_table(catalog, self.capture, first.source, first.reason, first.lsn)
        else:
            self.capture = follow(
                catalog, self.capture, self.settings, first.relation, self.conn, source=first.source, lsn=first.lsn
            )
        return False

    def settle(self) -> None:
        """Look at the source's catalog too, for what no row has told."""
        self.catch_up()
        unseen = look_for_changes(self.conn, self.capture, self.settings)
        self.catch_up()
        assert not unseen or self.capture.lsn >= unseen.lsn
        self.capture = apply_unseen_changes(self.lake.catalog, self.conn, self.capture, self.settings, unseen)

    def table(self, name: str = "public.orders") -> CapturedTable:
        return self.capture.tables[name]

    def schema(self, name: str) -> StructType:
        return parse_schema(self.lake.catalog.table(name)._backing.newest().metadata.schema_string)

    def check_equal(self, source: Source, name: str = "public.orders") -> None:
        """The lake's rows are the source's, in the columns that the source has, whatever it calls the table."""
        table = self.table(name)
        assert table.stage == "streaming", table.reason
        with source.connect() as connection:
            names = connection.execute(_NAMES, [table.oid]).fetchall()
            assert [column.name for column in table.columns] == [name for (name,) in names], table.notes
            expected = source_rows(connection, table)
        check_equal(Counter(rows_of(self.lake.catalog.table(table.current).to_pyarrow_table(), table)), expected, name)


@contextmanager
def evolving(lake: Lake, source: Source, *statements: str, **settings: Any) -> Iterator[Evolving]:
    """A capture of the tables that the statements make; they must be empty, so that there is nothing to copy.

    All tables are published, unless one of the statements makes the publication.
    """
    source.run(*statements)
    if not any(statement.startswith("create publication") for statement in statements):
        source.run(f"create publication {PUBLICATION} for all tables")
    asked = CaptureSettings(source.dsn, PUBLICATION, namespace="lake", **settings)
    with connect(source.dsn) as conn:
        capture = add_tables(lake.catalog, conn, open_capture(lake.catalog, conn, asked), asked)
        properties: dict[str, Any] = {"delta.enableDeletionVectors": "true"}
        if asked.column_mapping:
            properties["delta.columnMapping.mode"] = "name"
        if asked.change_data_feed:
            properties["delta.enableChangeDataFeed"] = "true"
        waiting = [table for table in capture.tables.values() if table.stage == "pending"]
        with begin_batch(lake.catalog, capture, "empty tables") as tx:
            for table in waiting:
                tx.create_table(table.current, current_schema(table), properties=properties)
                tx.create_table(table.changes, changes_schema(table), properties=properties)
            copied = [replace(table, stage="streaming", start_lsn=capture.lsn) for table in waiting]
            capture = note_progress(tx, save_tables(tx, capture, copied), capture.lsn)
        yield Evolving(lake, asked, conn, capture)
