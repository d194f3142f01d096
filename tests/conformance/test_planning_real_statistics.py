"""Plans on statistics that delta-spark and deltalake themselves wrote, over values chosen to be awkward."""

import math
import random
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import deltalakedb as dl
from deltalakedb.log.protocol.codec import from_sql_text
from tests.fixtures.judge import Judge

NUM_FILES = 6
NUM_PREDICATES = 300
OPERATORS = ("=", "<", "<=", ">", ">=", "<>")

LONG = "a long string that differs only far behind the place where writers cut: "
VALUES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "whole": (pa.int64(), [0, 1, -1, 2**53, 2**53 + 1, -(2**53) - 1, 2**63 - 1, -(2**63), 7, 1_000_000_007]),
    "small": (pa.int32(), [0, -5, 2**31 - 1, -(2**31), 12, 13, 14]),
    "real": (pa.float64(), [0.0, -0.0, 0.1, -1.5, math.nan, math.inf, -math.inf, 1e308, 5e-324, 1 / 3]),
    "single": (pa.float32(), [0.0, 0.1, -2.5, math.nan, 16777217.0, 3.4e38]),
    "exact": (
        pa.decimal128(38, 10),
        [Decimal("0E-10"), Decimal("1.5"), Decimal("-9999999999999999999999999999.0000000001"), Decimal("0.1"),
         Decimal("12345678901234567890.0123456789")],
    ),
    "text": (
        pa.string(),
        ["", "a", "z", "\u00e9t\u00e9", "\u65e5\u672c\u8a9e", "\U0001f600", "\uffff", LONG + "a", LONG + "b",
         "\U0001f600" * 40, "\uffff" * 33 + "\U0001f600", "x" * 31, "x" * 32, "x" * 33],
    ),
    "day": (
        pa.date32(),
        [date(1970, 1, 1), date(1969, 12, 31), date(2026, 2, 28), date(1900, 1, 1), date(9999, 12, 31)],
    ),
    "moment": (
        pa.timestamp("us", "UTC"),
        [datetime(2026, 1, 1, 12, 0, 0, 123456, UTC), datetime(1969, 12, 31, 23, 59, 59, 999999, UTC),
         datetime(1950, 6, 1, 0, 0, 0, 1, UTC), datetime(2026, 1, 1, 12, 0, 0, 123999, UTC),
         datetime(1970, 1, 1, tzinfo=UTC)],
    ),
}  # fmt: skip


def make_rows() -> pa.Table:
    """Rows of all files; each file holds a few values of each column, some nulls, and one file nothing but nulls."""
    chance = random.Random(3)
    columns: dict[str, pa.Array] = {}
    files = [number for number in range(NUM_FILES) for _ in range(4)]
    for name, (kind, values) in VALUES.items():
        picked = [
            None if number == NUM_FILES - 1 or chance.random() < 0.2 else chance.choice(values) for number in files
        ]
        columns[name] = pa.array(picked, kind)
    return pa.table({"file": pa.array(files, pa.int32()), **columns})


def literal(name: str, value: Any) -> str:
    match value:
        case str():
            return "'" + value.replace("'", "''") + "'"
        case datetime():
            return f"timestamptz '{value.isoformat(sep=' ')}'"
        case date():
            return f"date '{value.isoformat()}'"
        case Decimal():
            return f"cast('{value}' as decimal(38, 10))"
        case float():
            return f"cast('{value!r}' as {'float' if name == 'single' else 'double'})"
        case _:
            return str(value)


def predicates() -> list[str]:
    chance = random.Random(5)
    simple = [
        f"{name} {operator} {literal(name, value)}"
        for name, (_, values) in VALUES.items()
        for value in values
        for operator in OPERATORS
    ]
    nulls = [f"{name} is {negated}null" for name in VALUES for negated in ("", "not ")]
    joined = [f" {chance.choice(('and', 'or'))} ".join(chance.sample(simple, 2)) for _ in range(NUM_PREDICATES // 3)]
    return [*nulls, *chance.sample(simple, NUM_PREDICATES), *joined, *(f"not ({text})" for text in joined[:30])]


def check(path: Path, catalog: str, rows: pa.Table) -> None:
    """Commit v + 1 of the table holds the rows of file v."""
    judge = Judge()
    num_pruned = 0
    with dl.connect(catalog) as cat:
        table = cat.attach_table(path, "real")
        added = cat.sql("select version, path from dl_add_files order by version").to_pylist()
        numbers = {from_sql_text(row["path"]): number for number, row in enumerate(added)}
        assert len(numbers) == NUM_FILES
        for predicate in predicates():
            wanted = judge.matching(rows, predicate)
            assert wanted is not None, predicate
            plan = table.plan(predicate)
            kept = {numbers[from_sql_text(name)] for name in plan.files.column("path").to_pylist()}
            assert wanted <= kept, f"{predicate} loses files {sorted(wanted - kept)}"
            num_pruned += plan.num_pruned
    assert num_pruned > NUM_PREDICATES, "sound, but it also has to prune something"


@pytest.fixture(scope="module")
def rows() -> pa.Table:
    return make_rows()


@pytest.fixture(scope="module")
def by_deltalake(tmp_path_factory: pytest.TempPathFactory, rows: pa.Table) -> Path:
    path = tmp_path_factory.mktemp("real") / "by_deltalake"
    for number in range(NUM_FILES):
        part = rows.filter(pa.compute.equal(rows.column("file"), number)).drop_columns(["file"])
        deltalake.write_deltalake(path, part, mode="append")
    return path


@pytest.fixture(scope="module")
def by_spark(tmp_path_factory: pytest.TempPathFactory, rows: pa.Table, spark: SparkSession) -> Path:
    root = tmp_path_factory.mktemp("real")
    pq.write_table(rows, root / "rows.parquet")
    given = spark.read.parquet(str(root / "rows.parquet"))
    for number in range(NUM_FILES):
        part = given.where(given["file"] == number).drop("file").coalesce(1)
        part.write.format("delta").mode("append").save(str(root / "by_spark"))
    return root / "by_spark"


def test_a_plan_on_the_statistics_of_deltalake_loses_no_file(by_deltalake: Path, target: str, rows: pa.Table) -> None:
    check(by_deltalake, target, rows)


@pytest.mark.spark
def test_a_plan_on_the_statistics_of_spark_loses_no_file(by_spark: Path, target: str, rows: pa.Table) -> None:
    check(by_spark, target, rows)
