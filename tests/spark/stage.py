"""Where a kind of statement plays, on plain Delta and through the bridge alike, and what a kind consists of."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, slots=True)
class Stage:
    """A session, a table by its name in SQL and by its path, and a folder for all that is no table."""

    spark: SparkSession
    table: str
    path: str
    scratch: Path

    def sql(self, text: str) -> list[tuple[Any, ...]]:
        """`{t}` is the table, `{path}` its path, `{scratch}` the folder."""
        filled = text.format(t=self.table, path=self.path, scratch=self.scratch)
        return [tuple(row) for row in self.spark.sql(filled).collect()]

    def frame(self, values: str, columns: str = "id, city, amount") -> DataFrame:
        return self.spark.sql(f"select * from values {values} as v({columns})").coalesce(1)

    def save(self, rows: DataFrame, mode: str, **options: str) -> None:
        """By path, as a job does that knows no names."""
        rows.write.format("delta").mode(mode).options(**options).save(self.path)

    def refused(self, statement: str | Callable[[], object], *words: str) -> None:
        """The statement fails, and says why in these words."""
        with pytest.raises(Exception, match=words[0]) as refused:
            self.sql(statement) if isinstance(statement, str) else statement()
        missing = [word for word in words if word not in str(refused.value)]
        assert not missing, f"{missing} not in: {refused.value}"

    @contextmanager
    def conf(self, key: str, value: str) -> Iterator[None]:
        before = self.spark.conf.get(key, None)
        self.spark.conf.set(key, value)
        try:
            yield
        finally:
            if before is None:
                self.spark.conf.unset(key)
            else:
                self.spark.conf.set(key, before)


Step = str | Callable[[Stage], object]


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of statement.

    `leaves` are words that the table's commits must hold, so that a kind cannot pass without having happened, `lacks`
    words that they must not. Rows of versions before `read_from` are gone from the disk (vacuum).
    """

    name: str
    listed: str
    before: tuple[Step, ...]
    statements: tuple[Step, ...]
    rows: Sequence[tuple[Any, ...]]
    leaves: tuple[str, ...] = ()
    lacks: tuple[str, ...] = ()
    read_from: int = 0


def play(stage: Stage, steps: Sequence[Step]) -> None:
    for step in steps:
        if isinstance(step, str):
            stage.sql(step)
        else:
            step(stage)


def create(*properties: str, columns: str = "id bigint, city string, amount double", more: str = "") -> str:
    pairs = ", ".join(f"'delta.{name}' = '{value}'" for name, _, value in (text.partition("=") for text in properties))
    return f"create table {{t}} ({columns}) using delta {more} " + (f"tblproperties ({pairs})" if pairs else "")
