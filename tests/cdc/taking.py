"""A capture of empty tables that goes on step by step in the test's own process, without Spark."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from deltalakedb.cdc.apply.batches import Committed, commit_batch
from deltalakedb.cdc.control import Capture, begin_batch, note_progress, save_tables
from deltalakedb.cdc.decode.reading import ChangesPlace, Description, FileWritten, write_range
from deltalakedb.cdc.layers import changes_schema, current_schema
from deltalakedb.cdc.run.opening import add_tables, open_capture
from deltalakedb.cdc.settings import CaptureSettings
from deltalakedb.cdc.source.postgres import Connection, connect, flush_lsn
from tests.cdc.conftest import Lake, Source

PUBLICATION = "shop"
ORDERS = "create table orders (id bigint primary key, name text, amount numeric(10, 2))"
ITEMS = "create table items (id int primary key, order_id bigint, note text)"


def create_shop(source: Source) -> None:
    source.run(ORDERS, ITEMS, f"create publication {PUBLICATION} for all tables")


@dataclass
class Taking:
    """The capture and what it needs; `lake` is its catalog's."""

    lake: Lake
    settings: CaptureSettings
    conn: Connection
    capture: Capture

    def read(self, start: int | None = None, end: int | None = None) -> list[Description]:
        """The descriptions of a range: by default of all that is not captured yet."""
        places = [ChangesPlace.of(self.lake.catalog, table) for table in self.capture.streaming]
        settings = self.settings
        begin = self.capture.lsn if start is None else start
        upto = flush_lsn(self.conn) if end is None else end
        where = (settings.source, settings.slot, settings.publication, begin, upto)
        return list(write_range(*where, places, settings.mask_key))

    def commit(self, read: Sequence[Description], end: int) -> Committed:
        files = [one for one in read if isinstance(one, FileWritten)]
        done = commit_batch(self.lake.catalog, self.capture, files, end)
        self.capture = done.capture
        return done

    def take(self) -> Committed:
        """All that is committed now, as one batch."""
        end = flush_lsn(self.conn)
        return self.commit(self.read(end=end), end)

    def rows(self, name: str) -> list[dict[str, Any]]:
        """The rows of a table; changes in their order."""
        found: list[dict[str, Any]] = self.lake.catalog.table(name).to_pyarrow_table().to_pylist()
        return sorted(found, key=lambda row: (row["_lsn"], row["_ordinal"])) if "_lsn" in (found or [{}])[0] else found


@contextmanager
def taking(lake: Lake, source: Source, **settings: Any) -> Iterator[Taking]:
    """A capture whose tables are empty, so that there is nothing to copy."""
    asked = CaptureSettings(source.dsn, PUBLICATION, namespace="lake", **settings)
    with connect(source.dsn) as conn:
        capture = add_tables(lake.catalog, conn, open_capture(lake.catalog, conn, asked), asked)
        waiting = [table for table in capture.tables.values() if table.stage == "pending"]
        with begin_batch(lake.catalog, capture, "empty tables") as tx:
            for table in waiting:
                properties = {"delta.enableDeletionVectors": "true"}
                tx.create_table(table.current, current_schema(table), properties=properties)
                tx.create_table(table.changes, changes_schema(table))
            copied = [replace(table, stage="streaming", start_lsn=capture.lsn) for table in waiting]
            capture = note_progress(tx, save_tables(tx, capture, copied), capture.lsn)
        yield Taking(lake, asked, conn, capture)
