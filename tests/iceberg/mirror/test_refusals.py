"""What Delta readers would read wrongly is not mirrored, and the error names the column or the file."""

from __future__ import annotations

from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import FixedType, ListType, LongType, NestedField, TimeType, UUIDType

import deltalakedb
from deltalakedb import Catalog
from deltalakedb.exceptions import CannotMirrorError, MirrorError, NotADeltaTableError, TableNotFoundError
from tests.conformance.transacting import numbers
from tests.iceberg.lake import SCHEMA, create, view_version
from tests.iceberg.mirror.deleting import (
    change,
    data_files,
    delete_by_vectors,
    delete_equal,
    delete_positions,
    upgrade,
)
from tests.iceberg.mirror.judging import check, commits, folder_of, mirror


def refused(catalog: Catalog, text: str, name: str = "shop.t") -> None:
    """The table is not mirrored, for a reason that has this text, and nothing is written."""
    folder = folder_of(catalog, name)
    before = commits(folder)
    with pytest.raises(CannotMirrorError, match=text) as refusal:
        catalog.mirror_iceberg(name)
    assert "\n" not in str(refusal.value)
    assert str(refusal.value).startswith(f"{name} cannot be mirrored for Delta readers: ")
    assert commits(folder) == before


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (TimeType(), "the column odd has the type time"),
        (UUIDType(), "the column odd has the type uuid"),
        (FixedType(4), r"the column odd has the type fixed\[4\]"),
        (ListType(5, TimeType()), "the column odd.element has the type time"),
    ],
    ids=str,
)
def test_types_that_delta_does_not_have(catalog: Catalog, kind: Any, text: str) -> None:
    catalog.iceberg().create_table("shop.t", Schema(NestedField(1, "id", LongType()), NestedField(2, "odd", kind)))
    refused(catalog, text)


@pytest.mark.parametrize("kind", ["timestamp_ns", "timestamptz_ns", "variant", "geometry", "unknown"])
def test_types_of_version_3(catalog: Catalog, kind: str) -> None:
    create(catalog, "shop.t")
    upgrade(catalog, "shop.t")
    fields = [
        {"id": 1, "name": "id", "type": "long", "required": False},
        {"id": 2, "name": "odd", "type": kind, "required": False},
    ]
    add_schema(catalog, fields)
    with pytest.raises(CannotMirrorError, match=f"the column odd has the type {kind}"):
        catalog.mirror_iceberg("shop.t")


def add_schema(catalog: Catalog, fields: list[dict[str, Any]]) -> None:
    schema = {"type": "struct", "schema-id": 7, "fields": fields}
    change(
        catalog, "shop.t", {"action": "add-schema", "schema": schema}, {"action": "set-current-schema", "schema-id": -1}
    )


def test_a_default_of_rows_that_are_older_than_the_column(catalog: Catalog) -> None:
    table = create(catalog, "shop.t", 1)
    upgrade(catalog, "shop.t")
    known = {"id": 1, "name": table.schema().fields[0].name, "type": "long", "required": False}
    new = {"id": 9, "name": "n", "type": "long", "required": False, "initial-default": 5, "write-default": 5}
    add_schema(catalog, [known, new])
    with pytest.raises(CannotMirrorError, match="the column n has a default for rows that are older than it"):
        catalog.mirror_iceberg("shop.t")
    add_schema(catalog, [known, {**new, "id": 10, "initial-default": None}])
    catalog.mirror_iceberg("shop.t")


def test_names_that_differ_in_case_only(catalog: Catalog) -> None:
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "ID", LongType()))
    catalog.iceberg().create_table("shop.t", schema)
    refused(catalog, "differ only in the case of their names")


def test_equality_deletes(catalog: Catalog) -> None:
    create(catalog, "shop.t", 1, 2, 3)
    check(catalog)
    delete_equal(catalog, pa.table({"id": pa.array([2], pa.int64())}), 1)
    refused(catalog, "equality deletes apply to the file .*: rewrite the data files")


def test_equality_deletes_that_can_apply_to_no_file_are_ignored(catalog: Catalog) -> None:
    create(catalog, "shop.t", 1, 2)
    delete_equal(catalog, pa.table({"id": pa.array([2], pa.int64())}), 1, lower_bounds=9, upper_bounds=9)
    path, _ = mirror(catalog)
    assert deltalakedb.DeltaTable(str(path)).to_pyarrow_table().num_rows == 2


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"file_format": "AVRO"}, "is avro, and Delta has Parquet files only"),
        ({"file_format": "ORC"}, "is orc, and Delta has Parquet files only"),
        ({"key_metadata": b"k"}, "is encrypted"),
    ],
    ids=["avro", "orc", "encrypted"],
)
def test_files_of_other_formats_and_encrypted_ones(catalog: Catalog, changed: dict[str, Any], text: str) -> None:
    create(catalog, "shop.t", 1, 2)
    delete_positions(catalog, {data_files(catalog)[0]: [0]}, **changed)
    refused(catalog, text)


def test_a_file_of_another_type_than_its_column(catalog: Catalog) -> None:
    create(catalog, "shop.t", 1)
    (path,) = folder_of(catalog).glob("data/*.parquet")
    item = pa.field("id", pa.timestamp("ns"), metadata={"PARQUET:field_id": "1"})
    pq.write_table(pa.table([[5]], schema=pa.schema([item])), path)
    refused(catalog, r"the column id is a long, and timestamp\[ns\] in some data files")


def test_a_file_with_ids_for_a_part_of_its_fields(catalog: Catalog) -> None:
    rows = pa.table({"id": pa.array([1], pa.int64()), "l": pa.array([[1]], pa.list_(pa.int64()))})
    catalog.iceberg().create_table("shop.t", rows.schema).append(rows)
    (path,) = folder_of(catalog).glob("data/*.parquet")
    fields = [item.with_metadata({"PARQUET:field_id": str(number)}) for number, item in enumerate(rows.schema, 1)]
    pq.write_table(rows.cast(pa.schema(fields)), path)
    refused(catalog, "has no field ids within its column l")


def test_a_file_that_is_no_parquet(catalog: Catalog) -> None:
    create(catalog, "shop.t", 1)
    (path,) = folder_of(catalog).glob("data/*.parquet")
    path.write_bytes(b"not Parquet")
    refused(catalog, "cannot be read as Parquet")


def test_partition_values_that_are_in_no_file(catalog: Catalog) -> None:
    schema = pa.schema([("id", pa.int64()), ("day", pa.string())])
    table = catalog.iceberg().create_table("shop.t", schema)
    with table.update_spec() as spec:
        spec.add_field("day", IdentityTransform(), "day")
    table.append(pa.table({"id": pa.array([1], pa.int64()), "day": ["m n"]}))
    (path,) = folder_of(catalog).glob("data/day=m+n/*.parquet")
    pq.write_table(pq.read_table(path, partitioning=None).select(["id"]), path)
    refused(catalog, "the partition column day is not in the data file .*: rewrite the data files")


def test_version_1_of_the_format(catalog: Catalog) -> None:
    create(catalog, "shop.t", 1, **{"format-version": "1"})
    with pytest.raises(CannotMirrorError, match="version 1 of the format; upgrade it"):
        catalog.mirror_iceberg("shop.t")


def test_what_is_no_iceberg_table(catalog: Catalog) -> None:
    catalog.iceberg().create_view("shop.recent", SCHEMA, view_version())
    with catalog.begin() as tx:
        tx.write("shop.delta", numbers(1))
    with pytest.raises(MirrorError, match="is a view"):
        catalog.mirror_iceberg("shop.recent")
    with pytest.raises(NotADeltaTableError, match="is a Delta table"):
        catalog.mirror_iceberg("shop.delta")
    with pytest.raises(TableNotFoundError):
        catalog.mirror_iceberg("shop.none")


def test_other_branches_are_not_mirrored(catalog: Catalog) -> None:
    table = create(catalog, "shop.t", 1)
    snapshot = table.current_snapshot()
    assert snapshot is not None
    table.manage_snapshots().create_branch(snapshot.snapshot_id, "side").commit()
    table.append(numbers(2), branch="side")
    check(catalog)


def test_a_vector_that_is_damaged(catalog: Catalog) -> None:
    create(catalog, "shop.t", 1, 2, 3)
    upgrade(catalog, "shop.t")
    delete_by_vectors(catalog, {data_files(catalog)[0]: [1]})
    (path,) = folder_of(catalog).glob("data/*.puffin")
    content = bytearray(path.read_bytes())
    content[20] ^= 1
    path.write_bytes(content)
    with pytest.raises(Exception, match="is damaged: its checksum differs"):
        catalog.mirror_iceberg("shop.t")
    assert not list((folder_of(catalog) / "_delta_log").glob("*"))


def test_the_log_of_another_table_in_the_folder(catalog: Catalog) -> None:
    create(catalog, "shop.t", 1)
    deltalake.write_deltalake(folder_of(catalog), numbers(7))
    before = commits(folder_of(catalog))
    with pytest.raises(MirrorError, match="has the _delta_log of another table"):
        catalog.mirror_iceberg("shop.t")
    assert commits(folder_of(catalog)) == before
