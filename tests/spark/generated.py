"""Tables by delta-spark on plain paths, as a seed makes them: odd values, nulls, vectors, mapping, changed schemas."""

import random
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql import types as T  # noqa: N812

TEXTS: Final = [
    "plain", "a b", "é/=%:\"#?\\*'{}[]^", "", None, "x\ny\x01~.", "..", "日本😀", "%41", " ",
    "a+b&c;d@e!f$g,h(i)j|k<l>m`n",
]  # fmt: skip
VALUES: Final[dict[str, list[Any]]] = {
    "string": TEXTS,
    "int": [0, -1, 2**31 - 1, -(2**31), None],
    "bigint": [0, 2**62, -(2**62), None],
    "double": [0.0, -0.0, 1.5, float("nan"), float("inf"), -1e300, None],
    "boolean": [True, False, None],
    "date": [date(2026, 1, 1), date(1, 1, 1), date(9999, 12, 31), None],
    "timestamp": [datetime(2026, 1, 1, 10, 0, 0, 123456), datetime(1969, 12, 31, 23, 59, 59, 999999), None],
    "decimal(20,3)": [Decimal("12345678901234567.125"), Decimal("-0.001"), None],
}
PARTITIONS: Final = [
    (), ("string",), ("string", "date"), ("timestamp",), ("double",), ("boolean", "int"), ("decimal(20,3)",),
    ("bigint",),
]  # fmt: skip
OPS: Final = ("insert", "delete", "update", "add_column", "add_nested", "rename", "drop", "optimize")


@dataclass(frozen=True)
class Recipe:
    """What a table is made of."""

    seed: int
    partitions: tuple[str, ...]
    mapping: str
    vectors: bool
    ops: tuple[str, ...]


recipes = st.builds(
    Recipe,
    seed=st.integers(0, 2**32),
    partitions=st.sampled_from(PARTITIONS),
    mapping=st.sampled_from(["none", "name", "id"]),
    vectors=st.booleans(),
    ops=st.lists(st.sampled_from(OPS), min_size=1, max_size=4).map(tuple),
)


def make(spark: SparkSession, path: Path, recipe: Recipe) -> None:
    """Write the table; what an operation cannot do to it, such as a rename without mapping, is left out."""
    rng = random.Random(recipe.seed)
    table = f"delta.`{path}`"
    names = [f"p{place} %é" if recipe.mapping != "none" else f"p{place}_é" for place in range(len(recipe.partitions))]
    columns = ", ".join(f"`{name}` {kind}" for name, kind in zip(names, recipe.partitions, strict=True))
    properties = f"'delta.columnMapping.mode' = '{recipe.mapping}', 'delta.enableDeletionVectors' = '{recipe.vectors}'"
    spark.sql(
        f"create table {table} (id bigint, v double, t string, at timestamp, s struct<a: int, b: string>, "
        f"l array<struct<x: int>>, m map<string, decimal(20,3)>{', ' + columns if columns else ''}) using delta "
        + (f"partitioned by ({', '.join(f'`{name}`' for name in names)}) " if names else "")
        + f"tblproperties ({properties})"
    )
    insert(spark, path, rng, 0)
    for number, op in enumerate(recipe.ops, 1):
        match op:
            case "insert":
                insert(spark, path, rng, number)
            case "delete":
                spark.sql(f"delete from {table} where id % 3 = {rng.randrange(3)}")
            case "update":
                spark.sql(f"update {table} set t = 'updated {number}' where id % 4 = {rng.randrange(4)}")
            case "add_column":
                spark.sql(f"alter table {table} add columns (c{number} {rng.choice(list(VALUES))})")
            case "add_nested":
                spark.sql(f"alter table {table} add columns (s.n{number} string, l.element.n{number} bigint)")
            case "rename" if recipe.mapping != "none":
                column = rng.choice(["v", "t"])
                if column in spark.read.format("delta").load(str(path)).columns:
                    spark.sql(f"alter table {table} rename column {column} to `{column} new,{number}`")
            case "drop" if recipe.mapping != "none":
                if "at" in spark.read.format("delta").load(str(path)).columns:
                    spark.sql(f"alter table {table} drop column at")
            case "optimize":
                spark.sql(f"optimize {table}")


def insert(spark: SparkSession, path: Path, rng: random.Random, number: int) -> None:
    schema = spark.read.format("delta").load(str(path)).schema
    rows = [tuple(value(field.dataType, rng) for field in schema.fields) for _ in range(12)]
    rows = [(number * 100 + place, *row[1:]) for place, row in enumerate(rows)]
    spark.createDataFrame(rows, schema).coalesce(1).write.format("delta").mode("append").save(str(path))


def value(kind: T.DataType, rng: random.Random) -> Any:
    """A value of a type, null among them."""
    if isinstance(kind, T.StructType):
        return None if rng.random() < 0.2 else tuple(value(field.dataType, rng) for field in kind.fields)
    if isinstance(kind, T.ArrayType):
        return None if rng.random() < 0.2 else [value(kind.elementType, rng) for _ in range(rng.randrange(3))]
    if isinstance(kind, T.MapType):
        return None if rng.random() < 0.2 else {f"k{i}": value(kind.valueType, rng) for i in range(rng.randrange(3))}
    return rng.choice(VALUES[kind.simpleString()])
