"""Spark writes the same data: same folders, same statistics, and our files are its rows."""

import json
from collections import Counter
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from deltalakedb.log.schema.types import parse_schema
from tests.data.tables import WrittenTable, new_table

pytestmark = pytest.mark.spark

NAMES = ["a b", "é/=%:\"#?\\*'{}[]^", "", None, "x\ny\x01~.", "..", "a+b&c;d@e!f$g,h(i)j|k<l>m`n", "日本", "%41", " "]


def rows_of(table: pa.Table) -> Counter[str]:
    return Counter(repr(plain(row)) for row in table.to_pylist())


def plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat() if value.tzinfo else value.isoformat()
    if isinstance(value, dict):
        return {name: plain(item) for name, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, list | tuple) else value


def adds_by_spark(path: Path) -> list[dict[str, Any]]:
    lines = (path / "_delta_log" / f"{0:020d}.json").read_text("utf-8").splitlines()
    return [json.loads(line)["add"] for line in lines if line.startswith('{"add"')]


EVERYTHING = pa.table(
    {
        "i": pa.array([1, None, 3], pa.int32()),
        "l": pa.array([2**62, -(2**62), 0]),
        "f": pa.array([0.1, 1.5, None], pa.float32()),
        "d": pa.array([-1.25, 1e300, 0.5]),
        "dec": pa.array([Decimal("12345678.90"), Decimal("-0.01"), None], pa.decimal128(10, 2)),
        "big": pa.array([Decimal(10**37), Decimal(1), None], pa.decimal128(38, 0)),
        "s": ["x" * 40, "a", None],
        "b": [True, False, None],
        "bin": [b"\x00", None, b"x"],
        "day": [date(2026, 1, 2), date(1900, 1, 1), None],
        "at": pa.array([1_234_567_891_234_567, -1_234_567, None], pa.timestamp("us", "UTC")),
        "n": pa.array([1_234_567_891_234_567, -1_234_567, None], pa.timestamp("us")),
        "st": [{"x": 1, "y": "a"}, None, {"x": None, "y": "b"}],
        "arr": [[1, None], None, []],
        "m": pa.array([[("k", 1)], None, []], pa.map_(pa.string(), pa.int64())),
        "nothing": pa.array([None, None, None], pa.int64()),
    }
)


def test_spark_reads_every_type(spark: SparkSession, tmp_path: Path) -> None:
    new_table(tmp_path / "t", EVERYTHING)
    assert rows_of(spark.read.format("delta").load(str(tmp_path / "t")).toArrow()) == rows_of(EVERYTHING)


def test_statistics_are_those_of_spark(spark: SparkSession, tmp_path: Path) -> None:
    ours = json.loads(new_table(tmp_path / "ours", EVERYTHING).adds[0].stats or "", parse_float=Decimal)
    spark.read.format("delta").load(str(tmp_path / "ours")).coalesce(1).write.format("delta").save(
        str(tmp_path / "theirs")
    )
    (add,) = adds_by_spark(tmp_path / "theirs")
    theirs = json.loads(add["stats"], parse_float=Decimal)
    for stats in (ours, theirs):
        for part in ("minValues", "maxValues"):
            stats[part].pop("f")  # Spark writes 0.1 for the float 0.1f, which is above it
    # Spark keeps 32 characters and adds one above all that follow; ours keep 64 bytes, as deltalake's do
    assert ours["maxValues"].pop("s") == "x" * 40
    assert "x" * 40 < theirs["maxValues"].pop("s") < "x" * 31 + "y"
    # The others are deltalake's ways: bounds of booleans, a space in times without a zone, no counts of containers.
    assert (ours["minValues"].pop("b"), ours["maxValues"].pop("b")) == (False, True)
    assert [theirs["nullCount"].pop(name) for name in ("bin", "arr", "m")] == [1, 1, 1]
    for part in ("minValues", "maxValues"):
        ours[part]["n"] = ours[part]["n"].replace(" ", "T")
    theirs.pop("tightBounds", None)
    assert ours == theirs


def test_partition_values_are_those_of_spark_and_it_finds_our_folders(spark: SparkSession, tmp_path: Path) -> None:
    data = pa.table({"id": range(len(NAMES)), "p": NAMES})
    ours = new_table(tmp_path / "ours", data, ["p"])
    frame = spark.createDataFrame(list(enumerate(NAMES)), "id bigint, p string")
    frame.coalesce(1).write.format("delta").partitionBy("p").save(str(tmp_path / "theirs"))
    theirs = adds_by_spark(tmp_path / "theirs")
    assert {add.partition_values["p"] for add in ours.adds} == {add["partitionValues"]["p"] for add in theirs}
    read = spark.read.format("delta").load(str(tmp_path / "ours")).toArrow().select(["id", "p"])
    assert sorted(read.to_pylist(), key=lambda row: row["id"]) == [
        {"id": place, "p": name or None} for place, name in enumerate(NAMES)
    ]


def test_spark_reads_partitions_of_every_type(spark: SparkSession, tmp_path: Path) -> None:
    names = ["i", "l", "d", "dec", "s", "b", "day", "at", "n"]
    data = EVERYTHING.select([*names, "nothing"]).slice(0, 2)
    new_table(tmp_path / "t", data, names)
    read = spark.read.format("delta").load(str(tmp_path / "t")).toArrow().select(data.column_names)
    assert rows_of(read) == rows_of(data)


@pytest.mark.parametrize("mode", ["name", "id"])
def test_spark_reads_mapped_columns(spark: SparkSession, tmp_path: Path, mode: str) -> None:
    def field(name: str, kind: Any, number: int) -> dict[str, Any]:
        mapping = {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": f"col-{number}"}
        return {"name": name, "type": kind, "nullable": True, "metadata": mapping}

    inner = {"type": "struct", "fields": [field("x y", "long", 4)]}
    items = {"type": "array", "elementType": inner, "containsNull": True}
    fields = [field("the id", "long", 1), field("p,q", "string", 2), field("items", items, 3)]
    schema = parse_schema(json.dumps({"type": "struct", "fields": fields}))
    properties = {"delta.columnMapping.mode": mode, "delta.columnMapping.maxColumnId": "4"}
    table = WrittenTable(tmp_path / "t", schema, ["p,q"], properties)
    data = pa.table({"the id": [1, 2], "p,q": ["u", None], "items": [[{"x y": 1}, None], None]})
    table.append(data)
    assert {name for add in table.adds for name in add.partition_values} == {"col-2"}
    assert rows_of(table.read()) == rows_of(data)
    assert rows_of(spark.read.format("delta").load(str(tmp_path / "t")).toArrow()) == rows_of(data)
