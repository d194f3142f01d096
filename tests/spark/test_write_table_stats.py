"""Statistics from footers are those that delta-spark writes, or wider, for every type."""

import json
from collections.abc import Iterator
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyspark.sql import DataFrame, SparkSession

import deltalakedb as dl
import deltalakedb.spark as dls
from deltalakedb.data.footers import FooterStats
from deltalakedb.log.schema.types import Leaf, leaf_columns
from deltalakedb.log.statistics.moments import parse_timestamp
from deltalakedb.schema import to_struct
from deltalakedb.spark.jobs import gather

pytestmark = pytest.mark.spark

ROWS = """
    select cast(id as tinyint) i8, cast(id * 7 as smallint) i16, cast(-id as int) i32, id * 1000000007 i64,
        cast(id / 7 as float) f32, id / 3 - 0.0 f64, if(id = 3, double('NaN'), id) nan,
        if(id = 3, double('Infinity'), id) inf, if(id = 0, -0.0D, 0.0D) zero, cast(id / 7 as decimal(7, 2)) d32,
        cast(-id / 7 as decimal(18, 9)) d64, cast(id as decimal(38, 10)) * -1000000000000 d128,
        concat('text ', id) short, repeat(concat('é', id), 40) long, repeat('\U0010ffff', 40) top,
        concat(repeat('x', 5000), id) huge, id % 2 = 0 flag, cast(concat('b', id) as binary) bytes,
        date_add(date'1969-12-30', cast(id as int)) day, timestamp_micros(id * 1001 - 3) at,
        cast(timestamp_micros(1700000000123456 + id) as timestamp_ntz) local,
        timestamp'9999-12-31 23:59:59.999999' last, if(id > 4, null, id) some, cast(null as string) nothing,
        if(id = 1, null, named_struct('a', id, 'b', struct('x' c))) s, if(id = 2, null, array(id, null)) l,
        map('k', id) m, array(named_struct('q', id)) ls
    from range(6)
"""


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[dl.Catalog]:
    with dl.connect(tmp_path / "catalog.db", warehouse=str(tmp_path / "lake")) as opened:
        yield opened


def parsed(text: str) -> dict[str, Any]:
    stats: dict[str, Any] = json.loads(text, parse_float=Decimal)
    return stats


def stats_by_delta(frame: DataFrame, path: Path, **properties: str) -> dict[str, Any]:
    writer = frame.write.format("delta")
    for name, value in properties.items():
        writer = writer.option(f"delta.{name}", value)
    writer.save(str(path))
    lines = (path / "_delta_log" / f"{0:020d}.json").read_text("utf-8").splitlines()
    (add,) = [json.loads(line)["add"] for line in lines if line.startswith('{"add"')]
    return parsed(add["stats"])


def stats_by_us(catalog: dl.Catalog, name: str) -> dict[str, Any]:
    (text,) = catalog.table(name).files(["stats"]).column("stats").to_pylist()
    return parsed(text)


def at(values: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        values = values.get(name) if isinstance(values, dict) else None
    return values


def as_number(raw: Any, leaf: Leaf) -> Any:
    """A bound in a form that has an order."""
    if str(leaf.type) == "date":
        return date.fromisoformat(raw)
    if str(leaf.type) in ("timestamp", "timestamp_ntz"):
        found = parse_timestamp(raw)
        assert found is not None
        return found.micros
    return raw[:32].encode() if isinstance(raw, str) else raw  # Delta cuts texts there, we do after 64 bytes


def _without_tie_breaker(raw: Any) -> Any:
    """Delta ends a text that is cut with its highest character; ours is the next text instead, which is no lower."""
    return raw.rstrip("\U0010ffff\uffff\ufffd") if isinstance(raw, str) else raw


EXACT = {
    "i8", "i16", "i32", "i64", "f64", "zero", "d32", "d64", "d128", "short", "day", "some", "s.a", "s.b.c",
}  # fmt: skip


def test_every_type_has_the_bounds_that_delta_writes_or_wider_ones(
    spark: SparkSession, catalog: dl.Catalog, tmp_path: Path
) -> None:
    frame = spark.sql(ROWS.replace("\n", " ")).coalesce(1)
    dls.write_table(frame, "a.t", catalog=catalog)
    ours, theirs = stats_by_us(catalog, "a.t"), stats_by_delta(frame, tmp_path / "delta")
    assert ours["numRecords"] == theirs["numRecords"] == 6
    seen = set()
    for leaf in leaf_columns(to_struct(catalog.table("a.t").schema())):
        low, high, nulls = (at(ours[part], leaf.path) for part in ("minValues", "maxValues", "nullCount"))
        parts = ("minValues", "maxValues", "nullCount")
        their_low, their_high, their_nulls = (at(theirs[part], leaf.path) for part in parts)
        assert nulls in (their_nulls, None), leaf.name
        if low is not None and their_low is not None:
            assert as_number(low, leaf) <= as_number(their_low, leaf), leaf.name
        if high is not None and their_high is not None:
            assert as_number(high, leaf) >= as_number(_without_tie_breaker(their_high), leaf), leaf.name
        if leaf.name in EXACT:
            seen.add(leaf.name)
            assert (low, high, nulls) == (their_low, their_high, their_nulls), leaf.name
        elif str(leaf.type) == "float":  # ours says the same number with more digits
            assert [np.float32(one) for one in (low, high)] == [np.float32(one) for one in (their_low, their_high)]
    assert seen == EXACT
    highs = ours["maxValues"]
    assert {"nan", "inf", "bytes", "huge"}.isdisjoint(highs)
    assert ours["nullCount"]["nothing"] == 6
    assert "l" not in ours["nullCount"]


def test_a_timestamps_maximum_is_rounded_up_to_the_millisecond(spark: SparkSession, catalog: dl.Catalog) -> None:
    frame = spark.sql("select timestamp_micros(id) at, cast(timestamp_micros(id) as timestamp_ntz) n from range(-1, 2)")
    dls.write_table(frame.coalesce(1), "a.t", catalog=catalog)
    stats = stats_by_us(catalog, "a.t")
    assert stats["minValues"] == {"at": "1969-12-31T23:59:59.999Z", "n": "1969-12-31 23:59:59.999"}
    assert stats["maxValues"] == {"at": "1970-01-01T00:00:00.001Z", "n": "1970-01-01 00:00:00.001"}
    for text in ("at > '1970-01-01 00:00:00'", "at = timestamp'1970-01-01 00:00:00.000001'"):
        assert dls.read_table(spark, "a.t", where=text, catalog=catalog).count() == 1


@pytest.mark.parametrize(
    "properties",
    # two, and not three: a struct counts as one column, as with `deltalake`; for Spark each of its fields counts
    [{"dataSkippingNumIndexedCols": "2"}, {"dataSkippingStatsColumns": "e,b"}, {"enableDeletionVectors": "true"}],
)
def test_the_same_columns_have_statistics(
    spark: SparkSession, catalog: dl.Catalog, tmp_path: Path, properties: dict[str, str]
) -> None:
    frame = spark.range(3).selectExpr("id a", "id b", "struct(id x, id y) c", "id d", "id e").coalesce(1)
    dls.write_table(frame, "a.t", properties={f"delta.{k}": v for k, v in properties.items()}, catalog=catalog)
    assert stats_by_us(catalog, "a.t") == stats_by_delta(frame, tmp_path / "delta", **properties)


def test_only_the_first_32_columns_have_statistics_and_partition_columns_none(
    spark: SparkSession, catalog: dl.Catalog
) -> None:
    frame = spark.range(1).selectExpr("'x' p", *(f"id c{place}" for place in range(40)))
    dls.write_table(frame, "a.t", partition_by="p", catalog=catalog)
    ours = stats_by_us(catalog, "a.t")
    assert list(ours["minValues"]) == [f"c{place}" for place in range(32)]
    assert catalog.table("a.t").files(["partition_values"]).column(0).to_pylist() == ['{"p":"x"}']


def test_executors_read_footers_as_the_driver_does(
    spark: SparkSession, catalog: dl.Catalog, caplog: pytest.LogCaptureFixture
) -> None:
    frame = spark.range(0, 40, numPartitions=4).selectExpr("id", "concat('t', id) t", "struct(id / 3 a) s", "id % 3 p")
    dls.write_table(frame, "a.t", partition_by="p", catalog=catalog)
    table = catalog.table("a.t")
    files = table.files(["path", "stats"]).to_pylist()
    metadata = table.metadata()
    stats = FooterStats(to_struct(table.schema()), metadata.partition_columns, metadata.configuration)
    paths, location = [row["path"] for row in files], table.table_uri.rstrip("/")
    assert len(paths) == 12
    by_executors = gather(spark, paths, stats, location, None, driver_files=0)
    assert [one.stats for one in by_executors] == [row["stats"] for row in files]
    assert sum(one.num_rows for one in by_executors) == 40
    assert "executors cannot" not in caplog.text
    assert gather(spark, paths, stats, location, None) == by_executors
    # where executors cannot, the driver tries: here neither can
    with pytest.raises(dl.DeltaError, match="cannot read none.parquet"):
        gather(spark, ["none.parquet"], stats, location, None, driver_files=0)
    assert "executors cannot read the footers" in caplog.text
