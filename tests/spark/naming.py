"""Names: a namespace of a test's own, for statements that name tables."""

import uuid
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

import deltalakedb as dl

NOT_FOUND = "TABLE_OR_VIEW_NOT_FOUND"


class Names:
    """A namespace of the test's own, written `ns` in statements."""

    def __init__(self, spark: SparkSession, catalog: dl.Catalog) -> None:
        self.spark, self.catalog, self.ns = spark, catalog, f"names_{uuid.uuid4().hex[:8]}"

    def sql(self, text: str) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in self.spark.sql(text.replace("ns.", f"{self.ns}.")).collect()]

    def name(self, table: str) -> str:
        return f"{self.ns}.{table}"

    def make(self, table: str, *values: int) -> None:
        """By Python, as another process would."""
        with self.catalog.begin() as tx:
            tx.create_table(self.name(table), pa.schema([("id", pa.int64())]))
            tx.write(self.name(table), pa.table({"id": list(values)}), mode="append")

    def tables(self) -> list[str]:
        return sorted(str(row[1]) for row in self.sql(f"show tables in {self.ns}"))

    def registered(self) -> list[str]:
        prefix = f"{self.ns}."
        return sorted(str(one).removeprefix(prefix) for one in self.catalog.tables() if str(one).startswith(prefix))
