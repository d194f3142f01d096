"""A namespace of the shared session's catalog for one test: its tables as Spark, SQL and readers of files see them."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

import deltalakedb as dl
from tests.fixtures.readers import Deltalake


@dataclass(frozen=True, slots=True)
class Shop:
    """What a test of transactions works with."""

    spark: SparkSession
    catalog: dl.Catalog
    namespace: str

    def name(self, table: str) -> str:
        return f"{self.namespace}.{table}"

    def frame(self, ids: Iterable[int], value: int = 0) -> DataFrame:
        """Rows (id, value) in one file."""
        rows = [(number, value) for number in ids]
        return self.spark.createDataFrame(rows, "id long, value long").coalesce(1)

    def create(self, table: str, ids: Iterable[int] = (), *, value: int = 0, **properties: str) -> str:
        """A table made by Python, as by any other process; returns its name."""
        name = self.name(table)
        with self.catalog.begin() as tx:
            tx.create_table(name, "id long, value long", properties={f"delta.{k}": v for k, v in properties.items()})
            numbers = list(ids)
            if numbers:
                tx.write(name, rows_of(numbers, value), mode="append")
        return name

    def append_elsewhere(self, table: str, ids: Iterable[int]) -> None:
        """Somebody else commits, whom Spark learns of from the log alone."""
        with self.catalog.begin() as tx:
            tx.write(self.name(table), rows_of(list(ids), -1), mode="append")

    def path(self, table: str) -> Path:
        return Path(self.catalog.table(self.name(table)).table_uri.removeprefix("file://"))

    def version(self, table: str) -> int:
        return int(self.catalog.table(self.name(table)).version())

    def rows(self, table: str) -> list[tuple[int, int]]:
        """The rows by three ways that must agree: SQL, this very session by path, and deltalake on the mirror."""
        self.catalog.mirror.flush(30)
        by_sql = as_rows(self.catalog.table(self.name(table)).to_pyarrow_table())
        by_path = self.spark.read.format("delta").load(f"dldb:///file{self.path(table)}").collect()
        assert sorted((row.id, row.value) for row in by_path) == by_sql
        assert as_rows(Deltalake().latest(self.path(table)).rows) == by_sql
        return by_sql

    def ids(self, table: str) -> list[int]:
        return [number for number, _ in self.rows(table)]

    def check_level(self, *tables: str) -> None:
        """SQL and the mirror are the same, and no transaction has left a folder behind."""
        self.catalog.mirror.flush(30)
        for table in tables:
            report = self.catalog.validate(self.name(table))
            assert report.drift is None, report.drift
            assert report.lag == 0
            assert list(self.path(table).glob("_dldb/txn-*")) == []


def rows_of(ids: list[int], value: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64()), "value": pa.array([value] * len(ids), pa.int64())})


def as_rows(data: Any) -> list[tuple[int, int]]:
    return sorted((row["id"], row["value"]) for row in data.to_pylist())
