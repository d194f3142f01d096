"""Delta readers see the rows that PyIceberg sees, class by class; one that cannot read a class refuses it."""

from __future__ import annotations

import datetime
import math
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import BucketTransform, DayTransform, IdentityTransform
from pyiceberg.types import DecimalType, DoubleType, FloatType, IntegerType, LongType, NestedField, StringType

from deltalakedb import Catalog
from tests.iceberg.mirror.deleting import data_files, delete_by_vectors, delete_positions, upgrade
from tests.iceberg.mirror.judging import BY_NAME, PLAIN, check, folder_of, last

UTC = datetime.UTC
AT = datetime.datetime(2026, 1, 2, 3, 4, 5, 678901)
BEFORE = datetime.datetime(1931, 12, 31, 23, 59, 59, 999999)

KINDS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "flag": (pa.bool_(), [True, False, None]),
    "small": (pa.int32(), [-1, 2**31 - 1, None]),
    "big": (pa.int64(), [-(2**63), 2**63 - 1, None]),
    "real": (pa.float32(), [1.5, -0.25, None]),
    "wide": (pa.float64(), [math.pi, -1e300, None]),
    "unreal": (pa.float64(), [math.nan, math.inf, None]),
    "price": (pa.decimal128(10, 2), [Decimal("1.10"), Decimal("-99999999.99"), None]),
    "sum": (pa.decimal128(38, 9), [Decimal("1.000000001"), Decimal("-5E+20"), None]),
    "day": (pa.date32(), [datetime.date(2026, 1, 2), datetime.date(1900, 1, 1), None]),
    "moment": (pa.timestamp("us", "UTC"), [AT.replace(tzinfo=UTC), BEFORE.replace(tzinfo=UTC), None]),
    "clock": (pa.timestamp("us"), [AT, BEFORE, None]),
    "text": (pa.string(), ["", "grün 🍏 " * 9, None]),
    "raw": (pa.binary(), [b"", b"\x00\xff", None]),
}
NESTED: dict[str, tuple[pa.DataType, list[Any]]] = {
    "point": (pa.struct([("x", pa.int64()), ("name", pa.string())]), [{"x": 1, "name": None}, None]),
    "list": (pa.list_(pa.struct([("a", pa.int64())])), [[{"a": 1}, None], []]),
    "map": (pa.map_(pa.string(), pa.int64()), [[("k", 1)], None]),
}


def create(catalog: Catalog, rows: pa.Table, **options: Any) -> Table:
    table = catalog.iceberg().create_table("shop.t", options.pop("schema", rows.schema), **options)
    table.append(rows)
    return table


def of(**columns: tuple[pa.DataType, list[Any]]) -> pa.Table:
    return pa.table({name: pa.array(values, kind) for name, (kind, values) in columns.items()})


def ids(*numbers: int, text: str = "x") -> pa.Table:
    return of(id=(pa.int64(), list(numbers)), s=(pa.string(), [f"{text}{number}" for number in numbers]))


@pytest.mark.parametrize("kind", KINDS)
def test_every_type_that_both_have(catalog: Catalog, kind: str) -> None:
    create(catalog, of(id=(pa.int64(), [1, 2, 3]), **{kind: KINDS[kind]}))
    check(catalog)


@pytest.mark.parametrize("kind", NESTED)
def test_nested_columns(catalog: Catalog, kind: str) -> None:
    create(catalog, of(id=(pa.int64(), [1, 2]), **{kind: NESTED[kind]}))
    check(catalog)


def test_lists_that_arrow_calls_large(catalog: Catalog) -> None:
    rows = of(id=(pa.int64(), [1, 2]), l=(pa.large_list(pa.large_string()), [["a", None], []]))
    catalog.iceberg().create_table("shop.t", rows.schema).append(rows)
    check(catalog)


def test_a_table_without_rows(catalog: Catalog) -> None:
    catalog.iceberg().create_table("shop.t", ids().schema)
    check(catalog)


def test_rows_that_were_deleted_and_replaced(catalog: Catalog) -> None:
    table = create(catalog, ids(1, 2, 3))
    check(catalog)
    table.delete("id = 2")
    check(catalog)
    table.overwrite(ids(7, 8))
    check(catalog)
    table.delete()
    check(catalog)


def test_columns_that_were_added_dropped_and_moved(catalog: Catalog) -> None:
    table = create(catalog, ids(1, 2))
    with table.update_schema() as update:
        update.add_column("n", DoubleType())
        update.move_first("n")
    check(catalog)
    table.append(of(id=(pa.int64(), [3]), s=(pa.string(), ["c"]), n=(pa.float64(), [0.5])))
    check(catalog)
    with table.update_schema() as update:
        update.delete_column("s")
    check(catalog)


def test_a_renamed_column_until_files_have_its_new_name(catalog: Catalog) -> None:
    table = create(catalog, ids(1, 2))
    with table.update_schema() as update:
        update.rename_column("s", "name")
    check(catalog, refusing=PLAIN)
    assert last(folder_of(catalog), "metaData")["configuration"]["delta.columnMapping.mode"] == "name"
    table.append(ids(3).rename_columns(["id", "name"]))
    check(catalog, refusing=BY_NAME)
    assert last(folder_of(catalog), "metaData")["configuration"]["delta.columnMapping.mode"] == "id"
    table.overwrite(ids(1, 2, 3).rename_columns(["id", "name"]))
    check(catalog)


def test_a_name_that_another_column_had_before(catalog: Catalog) -> None:
    table = create(catalog, ids(1, 2))
    with table.update_schema() as update:
        update.delete_column("s")
    with table.update_schema() as update:
        update.add_column("s", StringType())
    check(catalog, refusing=PLAIN)
    table.append(ids(3, text="new"))
    check(catalog, refusing=BY_NAME)


def test_a_renamed_field_in_a_struct(catalog: Catalog) -> None:
    table = create(catalog, of(id=(pa.int64(), [1]), point=(NESTED["point"][0], [{"x": 1, "name": "p"}])))
    with table.update_schema() as update:
        update.rename_column("point.x", "left")
    check(catalog, refusing=PLAIN)


@pytest.mark.parametrize(
    ("before", "after", "arrow", "wide", "values"),
    [
        (IntegerType(), LongType(), pa.int32(), pa.int64(), ([1, None], [2**40])),
        (FloatType(), DoubleType(), pa.float32(), pa.float64(), ([0.1, None], [0.1])),
        (
            DecimalType(9, 2),
            DecimalType(20, 2),
            pa.decimal128(9, 2),
            pa.decimal128(20, 2),
            ([Decimal("1.25"), None], [Decimal("123456789012.25")]),
        ),
    ],
    ids=["int", "float", "decimal"],
)
def test_a_promoted_type(
    catalog: Catalog,
    before: Any,
    after: Any,
    arrow: pa.DataType,
    wide: pa.DataType,
    values: tuple[list[Any], list[Any]],
) -> None:
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "n", before))
    table = create(catalog, of(id=(pa.int64(), [1, 2]), n=(arrow, values[0])), schema=schema)
    check(catalog)
    with table.update_schema() as update:
        update.update_column("n", after)
    table.append(of(id=(pa.int64(), [3]), n=(wide, values[1])))
    check(catalog, refusing=(*PLAIN, "scan", "datafusion"))
    table.overwrite(of(id=(pa.int64(), [3]), n=(wide, values[1])))
    check(catalog)


def test_names_that_delta_allows_with_column_mapping_only(catalog: Catalog) -> None:
    create(catalog, pa.table({"a b": [1], "c,d": ["x"]}))
    check(catalog, refusing=PLAIN)


@pytest.mark.parametrize("key", ["s", "id"])
def test_identity_partitions_are_those_of_delta(catalog: Catalog, key: str) -> None:
    table = catalog.iceberg().create_table("shop.t", ids().schema)
    with table.update_spec() as spec:
        spec.add_field(key, IdentityTransform(), key)
    table.append(ids(1, 2))
    check(catalog)
    assert last(folder_of(catalog), "metaData")["partitionColumns"] == [key]
    assert {"x1", "x2"} | {"1", "2"} >= set(last(folder_of(catalog), "add")["partitionValues"].values())


@pytest.mark.parametrize("value", ["a b", "", None, "a/b", "ä", "100%", "a=b", "null"])
def test_partition_values_that_the_folders_spell_otherwise_are_read_from_the_files(
    catalog: Catalog, value: str | None
) -> None:
    table = catalog.iceberg().create_table("shop.t", ids().schema)
    with table.update_spec() as spec:
        spec.add_field("s", IdentityTransform(), "s")
    table.append(of(id=(pa.int64(), [1, 2]), s=(pa.string(), [value, "plain"])))
    check(catalog)


def test_other_partitions_and_changes_of_them(catalog: Catalog) -> None:
    rows = of(id=(pa.int64(), [1, 2]), s=(pa.string(), ["a", "b"]), at=(pa.timestamp("us", "UTC"), [AT, BEFORE]))
    table = catalog.iceberg().create_table("shop.t", rows.schema)
    table.append(rows)
    check(catalog)
    with table.update_spec() as spec:
        spec.add_field("s", IdentityTransform(), "s")
    table.append(rows)
    check(catalog)
    table.overwrite(rows)
    check(catalog)
    assert last(folder_of(catalog), "metaData")["partitionColumns"] == ["s"]
    with table.update_spec() as spec:
        spec.add_field("at", DayTransform(), "day")
        spec.add_field("id", BucketTransform(4), "bucket")
    table.append(rows)
    check(catalog)
    assert last(folder_of(catalog), "metaData")["partitionColumns"] == []


def test_position_deletes_become_one_vector_of_each_file(catalog: Catalog) -> None:
    table = create(catalog, ids(*range(10)))
    table.append(ids(*range(10, 20)))
    first, second = data_files(catalog)
    delete_positions(catalog, {first: [0, 9], second: [3]})
    check(catalog, refusing=("pyarrow",))
    delete_positions(catalog, {first: [4, 9]})
    check(catalog, refusing=("pyarrow",))
    assert last(folder_of(catalog), "add")["deletionVector"]["cardinality"] == 3


def test_position_deletes_that_are_older_than_a_file_do_not_apply_to_it(catalog: Catalog) -> None:
    table = create(catalog, ids(1, 2, 3))
    (first,) = data_files(catalog)
    delete_positions(catalog, {first: [1]})
    table.append(ids(4, 5))
    check(catalog, refusing=("pyarrow",))


def test_vectors_of_version_3(catalog: Catalog) -> None:
    table = create(catalog, ids(*range(100)))
    table.append(ids(*range(100, 200)))
    upgrade(catalog, "shop.t")
    check(catalog)
    first, second = data_files(catalog)
    delete_by_vectors(catalog, {first: list(range(0, 100, 3)), second: [99]})
    check(catalog, refusing=("pyarrow",))


def test_files_outside_of_the_tables_folder(catalog: Catalog, tmp_path: Path) -> None:
    create(catalog, ids(1, 2), properties={"write.data.path": f"file://{tmp_path}/else where%20"})
    check(catalog, refusing=(*PLAIN, "duckdb"))


def test_files_without_field_ids_are_found_by_the_name_mapping(catalog: Catalog) -> None:
    table = create(catalog, ids(1))
    taken = folder_of(catalog) / "data" / "taken.parquet"
    pq.write_table(ids(2, 3), taken)
    table.add_files([f"file://{taken}"])
    check(catalog)
    with table.update_schema() as update:
        update.rename_column("s", "name")
    check(catalog, refusing=PLAIN)


def test_odd_names_of_folders(catalog: Catalog, tmp_path: Path) -> None:
    create(catalog, ids(1, 2), location=f"file://{tmp_path}/a b")
    check(catalog, refusing=("polars",))  # it looks in `a%20b`
