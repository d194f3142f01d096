"""Random tables for plans: every type that has bounds, files with narrow bounds, and all that a table may have."""

import random
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession

FILES = 6
ROWS_PER_FILE = 4
TYPES: Final = {
    "i8": "tinyint", "i16": "smallint", "i32": "int", "f32": "float", "f64": "double", "n5": "decimal(5,2)",
    "n20": "decimal(20,3)", "n38": "decimal(38,10)", "b": "boolean", "s": "string", "c": "char(4)", "vc": "varchar(8)",
    "d": "date", "ts": "timestamp", "tn": "timestamp_ntz", "bin": "binary",
    "st": "struct<a: int, s: string, d: date>", "l": "array<int>",
}  # fmt: skip
_NAN, _INF = float("nan"), float("inf")
VALUES: Final[dict[str, list[Any]]] = {
    "i8": [-128, -1, 0, 1, 127],
    "i16": [-32768, 0, 5, 32767],
    "i32": [-(2**31), -7, 0, 1, 2, 3, 2**31 - 1],
    "f32": [-_INF, -0.0, 0.0, 0.5, 0.1, 16777216.0, 3.4e38, _INF, _NAN],
    "f64": [-_INF, -1e300, -0.0, 0.0, 0.1, 1.5, 2.0**53, _INF, _NAN],
    "n5": [Decimal("-999.99"), Decimal("-0.01"), Decimal(0), Decimal("0.10"), Decimal("1.50"), Decimal("999.99")],
    "n20": [Decimal("-12345678901234567.125"), Decimal("-0.001"), Decimal(0), Decimal("12345678901234567.125")],
    "n38": [Decimal("-1234567890123456789012345678.0123456789"), Decimal(0), Decimal("0.1000000001")],
    "b": [False, True],
    "s": ["", " ", "A", "a", "a b", "ab", "abc", "b", "é", "日本", "😀", "%41", "2026-01-01", "10", "9", "x" * 40],
    "c": ["", "a", "ab", "abcd", "b"],
    "vc": ["", "a", "a ", "ab", "abcdefgh"],
    "d": [date(1, 1, 1), date(1582, 10, 4), date(1969, 12, 31), date(2026, 1, 1), date(2026, 1, 2), date(9999, 12, 31)],
    "ts": [
        datetime(1969, 12, 31, 23, 59, 59, 999999), datetime(2026, 1, 1), datetime(2026, 1, 1, 10, 0, 0, 123456),
        datetime(2026, 1, 1, 10, 0, 0, 123999), datetime(2026, 1, 1, 23, 30), datetime(2026, 3, 8, 2, 30),
    ],
    "tn": [datetime(1969, 12, 31), datetime(2026, 1, 1), datetime(2026, 1, 1, 0, 0, 0, 1), datetime(2026, 6, 1, 12)],
    "bin": [b"", b"a", b"\xff\x00"],
    "st": [(1, "a", date(2026, 1, 1)), (2, None, None), (None, "b", date(2026, 1, 2))],
    "l": [[], [1], [1, None, 2]],
}  # fmt: skip
PARTITIONS: Final = (
    (), ("s",), ("d",), ("i32", "s"), ("ts",), ("n5",), ("f64",), ("b", "d"), ("tn",), ("c",), ("g",), ("g", "m"),
)  # fmt: skip
GENERATED: Final = {
    "g": "g date generated always as (cast(ts as date))",
    "m": "m string generated always as (date_format(d, 'yyyy-MM'))",
}
AFTER: Final = ("insert", "delete", "update", "add", "widen", "rename", "drop", "optimize", "no stats")
ZONES: Final = ("UTC", "America/New_York", "Asia/Kathmandu")


@dataclass(frozen=True)
class Recipe:
    """What a table is made of, and the time zone in which it is read."""

    seed: int
    partitions: tuple[str, ...]
    clustered: bool
    mapping: str
    vectors: bool
    row_tracking: bool
    change_feed: bool
    indexed: int
    zone: str
    after: tuple[str, ...]


recipes = st.builds(
    Recipe,
    seed=st.integers(0, 2**32),
    partitions=st.sampled_from(PARTITIONS),
    clustered=st.booleans(),
    mapping=st.sampled_from(["none", "name", "id"]),
    vectors=st.booleans(),
    row_tracking=st.booleans(),
    change_feed=st.booleans(),
    indexed=st.sampled_from([32, 32, 32, 5, 0]),
    zone=st.sampled_from(ZONES),
    after=st.lists(st.sampled_from(AFTER), min_size=1, max_size=4).map(tuple),
)


def make_table(spark: SparkSession, path: Path, recipe: Recipe) -> None:
    """Writes the table by plain delta-spark; what it does not allow, such as a rename, is left out."""
    rng, table = random.Random(recipe.seed), f"delta.`{path}`"
    columns = ["id bigint", *(f"{name} {kind}" for name, kind in TYPES.items())]
    columns += [GENERATED[name] for name in recipe.partitions if name in GENERATED]
    if recipe.partitions:
        layout = f"partitioned by ({', '.join(recipe.partitions)})"
    else:
        layout = "cluster by (i32, s)" if recipe.clustered else ""
    properties = {
        "columnMapping.mode": recipe.mapping,
        "enableDeletionVectors": recipe.vectors,
        "enableRowTracking": recipe.row_tracking,
        "enableChangeDataFeed": recipe.change_feed,
        "enableTypeWidening": "widen" in recipe.after,
        "dataSkippingNumIndexedCols": recipe.indexed,
    }
    pairs = ", ".join(f"'delta.{key}' = '{str(value).lower()}'" for key, value in properties.items())
    spark.sql(f"create table {table} ({', '.join(columns)}) using delta {layout} tblproperties ({pairs})")
    append(spark, path, rng, 0)
    mapped, narrow = recipe.mapping != "none", {"i8", "f32"} - set(recipe.partitions)
    for number, step in enumerate(recipe.after, 1):
        present = {column.lower() for column in spark.read.format("delta").load(str(path)).columns}
        match step:
            case "insert":
                append(spark, path, rng, number)
            case "delete":
                spark.sql(f"delete from {table} where id % 3 = {rng.randrange(3)}")
            case "update":
                spark.sql(f"update {table} set i16 = {number}, vc = null where id % 4 = {rng.randrange(4)}")
            case "add":
                spark.sql(f"alter table {table} add columns (new{number} int, st.n{number} string)")
                append(spark, path, rng, number)
            case "widen" if "i8" in narrow:
                spark.sql(f"alter table {table} alter column i8 type int")
                append(spark, path, rng, number)
            case "rename" if mapped and "n20" in present:
                spark.sql(f"alter table {table} rename column n20 to `n 20,`")
            case "drop" if mapped and "bin" in present:
                spark.sql(f"alter table {table} drop column bin")
            case "optimize":
                spark.sql(f"optimize {table}")
            case "no stats":
                spark.conf.set("spark.databricks.delta.stats.collect", "false")
                try:
                    append(spark, path, rng, number, files=1)
                finally:
                    spark.conf.unset("spark.databricks.delta.stats.collect")


def append(spark: SparkSession, path: Path, rng: random.Random, number: int, files: int = FILES) -> None:
    """Files whose values come from a few of the possible ones, so that bounds rule something out."""
    target = spark.read.format("delta").load(str(path)).schema
    kinds = {field.name: TYPES.get(field.name, "int") for field in target.fields if field.name in VALUES}
    rows = []
    for file in range(files):
        few = {
            name: [*rng.sample(VALUES[name], rng.choice([1, 1, 2])), None][: rng.choice([1, 2, 3])] for name in kinds
        }
        few |= {name: [None] for name in kinds if rng.random() < 0.1}
        for row in range(ROWS_PER_FILE):
            one = number * 1000 + file * ROWS_PER_FILE + row
            rows.append((one, *(rng.choice(few[name]) for name in kinds)))
    _frame(spark, rows, kinds).repartitionByRange(files, "id").write.format("delta").mode("append").save(str(path))


def _some(values: list[Any], rng: random.Random) -> list[Any]:
    """One or two values, with null in a third of all cases; seldom null alone."""
    if rng.random() < 0.1:
        return [None]
    chosen = rng.sample(values, min(rng.choice([1, 1, 2]), len(values)))
    return [*chosen, None] if rng.random() < 0.33 else chosen


def _frame(spark: SparkSession, rows: list[tuple[Any, ...]], kinds: dict[str, str]) -> DataFrame:
    """Char columns are texts until they are written."""
    spelled = {name: "string" if kind.startswith(("char", "varchar")) else kind for name, kind in kinds.items()}
    return spark.createDataFrame(rows, ", ".join(["id long", *(f"{name} {kind}" for name, kind in spelled.items())]))
