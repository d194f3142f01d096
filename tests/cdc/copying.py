"""Copies tables without a stream: a capture whose source changes only between its copies."""

from collections import Counter
from collections.abc import Callable
from typing import Any, Final

from pyspark.sql import SparkSession

import deltalakedb as dl
from deltalakedb.cdc.apply.batches import commit_progress
from deltalakedb.cdc.control import Capture, load_capture
from deltalakedb.cdc.copy.copying import copy_tables
from deltalakedb.cdc.run.opening import add_tables, open_capture
from deltalakedb.cdc.settings import CaptureSettings
from deltalakedb.cdc.source.postgres import connect
from tests.cdc.conftest import Lake, Source

TABLES: Final = (
    "create table orders (id int primary key, note text)",
    "create table items (id int primary key, price numeric(10, 2), at timestamptz)",
    "insert into orders select i, 'order ' || i from generate_series(1, 500) i",
    "insert into items select i, i / 7.0, now() + i * interval '1s' from generate_series(1, 70) i",
    "analyze",
    "create publication shop for all tables",
)


class Told:
    """What a copy tells of its progress."""

    def __init__(self) -> None:
        self.begun: dict[str, tuple[int, int]] = {}
        self.rows: Counter[str] = Counter()
        self.ended: dict[str, int] = {}

    def table_begins(self, source: str, rows: int, tasks: int) -> None:
        self.begun[source] = rows, tasks

    def task_ended(self, source: str, rows: int) -> None:
        self.rows[source] += rows

    def table_ended(self, source: str, rows: int) -> None:
        self.ended[source] = rows


class Copying:
    """A capture whose source changes only between its copies, so that the stream has nothing to bring."""

    def __init__(self, lake: Lake, source: Source, spark: SparkSession) -> None:
        source.run(*TABLES)
        self.lake, self.source, self.spark = lake, source, spark
        self.dsn = source.dsn
        self.told = Told()
        self.drained: list[int] = []
        self.meanwhile: list[str] = []
        """What happens once, between the snapshot and the first task."""

    def settings(self, **given: Any) -> CaptureSettings:
        return CaptureSettings(self.dsn, "shop", **{"namespace": "shop", **given})

    def copy(self, *, check: Callable[[], None] | None = None, **given: Any) -> Capture:
        """Start the capture, and copy what waits for it."""
        settings = self.settings(**given)

        def drain(capture: Capture, lsn: int) -> Capture:
            self.drained.append(lsn)
            self.source.run(*self.meanwhile)
            self.meanwhile.clear()
            return commit_progress(self.lake.catalog, capture, lsn)

        with connect(self.dsn) as conn:
            capture = open_capture(self.lake.catalog, conn, settings)
            capture = add_tables(self.lake.catalog, conn, capture, settings)
        return copy_tables(
            self.spark, self.lake.catalog, capture, settings, drain=drain, progress=self.told, check=check
        )

    def saved(self) -> Capture:
        found = load_capture(self.lake.catalog, self.settings())
        assert found is not None
        return found

    def table(self, name: str) -> dl.DeltaTable:
        return self.lake.catalog.table(f"shop.{name}")

    def stages(self) -> dict[str, str]:
        return {source: table.stage for source, table in self.saved().tables.items()}
