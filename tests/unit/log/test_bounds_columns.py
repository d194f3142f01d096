"""Which columns have bounds."""

from __future__ import annotations

import pyarrow as pa

from deltalakedb.log.protocol.actions import AddFile
from deltalakedb.log.protocol.rows import adds_to_batch
from deltalakedb.log.schema.types import (
    ArrayType,
    DecimalType,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
    VariantType,
)
from deltalakedb.log.statistics.batch_bounds import compute_bounds_of_batch
from deltalakedb.log.statistics.bounds import compute_bounds
from deltalakedb.log.statistics.bounds_columns import bounds_columns

LONG, STRING = PrimitiveType("long"), PrimitiveType("string")


def paths(schema: StructType, partitions: list[str], **configuration: str) -> list[str]:
    return [
        item.column_path
        for item in bounds_columns(schema, partitions, {f"delta.{k}": v for k, v in configuration.items()})
    ]


def longs(count: int) -> StructType:
    return StructType(tuple(StructField(f"c{i}", LONG) for i in range(count)))


def test_the_first_32_leaves_have_bounds_and_every_partition_column() -> None:
    assert paths(longs(40), []) == [f'["c{i}"]' for i in range(32)]
    assert paths(longs(40), ["c39", "c0"]) == ['["c0"]', '["c39"]', *(f'["c{i}"]' for i in range(1, 33))]


def test_the_number_of_indexed_columns_is_the_tables_own() -> None:
    assert paths(longs(40), [], dataSkippingNumIndexedCols="2") == ['["c0"]', '["c1"]']
    assert paths(longs(40), ["c39"], dataSkippingNumIndexedCols="0") == ['["c39"]']
    assert len(paths(longs(40), [], dataSkippingNumIndexedCols="-1")) == 32
    assert len(paths(longs(40), [], dataSkippingNumIndexedCols="x")) == 32


def test_the_indexed_columns_may_be_named() -> None:
    inner = StructType((StructField("x", LONG), StructField("y", LONG)))
    schema = StructType((*longs(40).fields, StructField("s", inner), StructField("a,b.c", LONG)))
    assert paths(schema, [], dataSkippingStatsColumns="c35, s, `a,b.c`") == [
        '["c35"]',
        '["s","x"]',
        '["s","y"]',
        '["a,b.c"]',
    ]
    assert paths(schema, [], dataSkippingStatsColumns="S.y,C1") == ['["c1"]', '["s","y"]']


def test_types_without_order_and_collated_text_have_no_bounds() -> None:
    schema = StructType(
        (
            StructField("b", PrimitiveType("binary")),
            StructField("v", VariantType()),
            StructField("a", ArrayType(LONG)),
            StructField("m", MapType(STRING, LONG)),
            StructField("n", PrimitiveType("void")),
            StructField("g", PrimitiveType("of the future")),
            StructField("s", STRING, True, {"__COLLATIONS": {"s": "ICU.de"}}),
            StructField("d", DecimalType(38, 3)),
        )
    )
    assert paths(schema, []) == ['["d"]']
    assert paths(schema, ["b"]) == ['["d"]']


def test_floats_are_known_as_such() -> None:
    schema = StructType(tuple(StructField(name, PrimitiveType(name)) for name in ("float", "double", "long")))
    assert [(item.is_float, item.was_float32) for item in bounds_columns(schema, [], {})] == [
        (True, True),
        (True, False),
        (False, False),
    ]


def test_a_batch_of_files_is_bound_as_its_values() -> None:
    schema = StructType((StructField("p", STRING), StructField("c", STRING)))
    stats = '{"numRecords":1,"minValues":{"c":"\\u0000\\\\"},"maxValues":{"c":"b\\ud800"},"nullCount":{"c":0}}'
    adds = [
        AddFile("a", {"p": "x"}, 1, 1, True, stats=stats),
        AddFile("b", {"p": None}, 1, 1, True),
        AddFile("c", {}, 1, 1, True, "no json"),
    ]
    columns = bounds_columns(schema, ["p"], {})
    batch = compute_bounds_of_batch(columns, adds_to_batch(adds))
    plain = compute_bounds(columns, [(add.stats, add.partition_values) for add in adds])
    assert batch.columns == plain.columns
    assert batch.num_records.equals(pa.array([1, None, None], pa.int64()))
    assert (batch.unreadable_stats, plain.unreadable_stats) == (1, 1)
