"""One table twice: a plain one that Delta plans, and a copy of its files in the catalog, read and written alike."""

import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from tests.spark.compare import rows_of_all
from tests.spark.compared.volatile import METRICS
from tests.spark.shop import Shop


@dataclass(frozen=True, slots=True)
class Twins:
    """A table by its path for plain delta-spark, and its twin by its name in the catalog."""

    spark: SparkSession
    plain: Path
    name: str
    path: str
    """Of the twin, as Spark takes it."""

    @property
    def tables(self) -> tuple[str, str]:
        """As SQL names them: the plain one, then the twin."""
        return f"delta.`{self.plain}`", self.name

    def ask(self, query: str) -> tuple[DataFrame, DataFrame]:
        """`{t}` is the table; what comes back is of the plain one and of its twin."""
        plain, ours = (self.spark.sql(query.replace("{t}", table)) for table in self.tables)
        return plain, ours

    def read(self, **options: Any) -> tuple[DataFrame, DataFrame]:
        """By path, with options of Delta's reader."""
        reader = self.spark.read.format("delta").options(**options)
        return reader.load(str(self.plain)), reader.load(self.path)

    def check_rows(self, queries: Iterable[str]) -> dict[str, Counter[str]]:
        """Both give the same rows, in any order; returns them by query."""
        asked = {query: self.ask(query) for query in queries}
        theirs = rows_of_all({query: plain for query, (plain, _) in asked.items()})
        ours = rows_of_all({query: twin for query, (_, twin) in asked.items()})
        wrong = {query: (theirs[query] - ours[query], ours[query] - theirs[query]) for query in asked}
        assert ours == theirs, {query: sides for query, sides in wrong.items() if any(sides)}
        return theirs

    def check_answer(self, query: str) -> list[Any]:
        """The same rows of one query that runs alone, as metadata alone answers it; in order if the query has one."""
        theirs, ours = (frame.collect() for frame in self.ask(query))
        if " order by " not in query:
            theirs, ours = sorted(theirs, key=repr), sorted(ours, key=repr)
        assert repr(ours) == repr(theirs), query  # as text, NaN is NaN
        return theirs

    def run(self, *statements: str) -> list[dict[str, str]]:
        """Runs them on both: each leaves the same rows and metrics; returns the metrics of those that wrote."""
        before = self.versions()
        for statement in statements:
            for table in self.tables:
                self.spark.sql(statement.replace("{t}", table)).collect()
        return self.check_since(before)

    def versions(self) -> tuple[int, int]:
        """The newest of each; the catalog's own first commit makes the twin's higher."""
        plain, ours = (self._history(table)[-1][0] for table in self.tables)
        return plain, ours

    def check_since(self, before: tuple[int, int]) -> list[dict[str, str]]:
        """As many commits since then on both sides, with the same metrics, and the same rows after each of them."""
        plain, ours = (
            [metrics for version, metrics in self._history(table) if version > first]
            for table, first in zip(self.tables, before, strict=True)
        )
        assert ours == plain
        frames: list[dict[int, DataFrame]] = [
            {step: self._at(table, first + step) for step in range(1, len(plain) + 1)}
            for table, first in zip(self.tables, before, strict=True)
        ]
        theirs, rows = (rows_of_all(steps) for steps in frames)
        assert rows == theirs, [plain[step - 1] for step in rows if rows[step] != theirs[step]]
        return plain

    def _at(self, table: str, version: int) -> DataFrame:
        return self.spark.sql(f"select * from {table} version as of {version}")

    def _history(self, table: str) -> list[tuple[int, dict[str, str]]]:
        """Each version with its operation and its metrics, without times and lengths in bytes."""
        found = []
        for entry in self.spark.sql(f"describe history {table}").collect():
            metrics = {k: v for k, v in (entry.operationMetrics or {}).items() if not METRICS.fullmatch(k)}
            found.append((entry.version, {"operation": entry.operation, **metrics}))
        return sorted(found, key=lambda entry: entry[0])

    def planned(self, condition: str) -> tuple[set[str], set[str]]:
        """Names of the files that a filtered scan reads."""
        theirs, ours = (_names(frame.inputFiles()) for frame in self.ask(f"select * from {{t}} where {condition}"))
        return theirs, ours


def new_twins(shop: Shop, folder: Path, make: Callable[[SparkSession, Path], None], name: str = "twin") -> Twins:
    """`make` writes a table at a path by plain delta-spark; the catalog imports a copy of it."""
    plain, copy = folder / f"{name}_plain", folder / f"{name}_ours"
    make(shop.spark, plain)
    shutil.copytree(plain, copy)
    shop.catalog.import_table(str(copy), shop.name(name))
    return Twins(shop.spark, plain, shop.name(name), f"dldb:///file{copy}")


def written(*statements: str) -> Callable[[SparkSession, Path], None]:
    """A table made by statements; `{t}` is the table."""

    def make(spark: SparkSession, path: Path) -> None:
        for statement in statements:
            spark.sql(statement.replace("{t}", f"delta.`{path}`")).collect()

    return make


@contextmanager
def setting(spark: SparkSession, **settings: str) -> Iterator[None]:
    """Settings of the shared session for a while; `_` stands for a dot."""
    wanted = {key.replace("_", "."): value for key, value in settings.items()}
    before = {key: spark.conf.get(key, None) for key in wanted}
    for key, value in wanted.items():
        spark.conf.set(key, value)
    try:
        yield
    finally:
        for key, former in before.items():
            if former is None:
                spark.conf.unset(key)
            else:
                spark.conf.set(key, former)


def _names(files: Iterable[str]) -> set[str]:
    return {re.sub(r".*/", "", file) for file in files}
