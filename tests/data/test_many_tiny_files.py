"""Many tiny files are read together; rows, their order and what is said of a broken file stay the same."""

from dataclasses import replace
from pathlib import Path

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from deltalakedb import DeltaTable
from deltalakedb.exceptions import DeltaError
from deltalakedb.log.protocol.actions import AddFile
from deltalakedb.log.schema.types import PrimitiveType, StructField, StructType
from tests.data.tables import WrittenTable

FIELDS = tuple(StructField(name, PrimitiveType(kind), True) for name, kind in (("id", "long"), ("name", "string")))
SCHEMA = StructType(FIELDS)
COUNT = 300


def rows(number: int) -> pa.Table:
    return pa.table({"id": [number * 10 + one for one in range(3)], "name": [f"{number}-{one}" for one in range(3)]})


def small_files(path: Path, *, partitioned: bool = False) -> WrittenTable:
    fields = (*FIELDS, StructField("part", PrimitiveType("integer"), True)) if partitioned else FIELDS
    table = WrittenTable(path / "table", StructType(fields), ("part",) if partitioned else ())
    for number in range(COUNT):
        data = rows(number)
        if partitioned:
            data = data.append_column("part", pa.array([number // 100] * 3, pa.int32()))
        table.append(data)
    return table


def put(table: WrittenTable, data: pa.Table, name: str) -> AddFile:
    pq.write_table(data, table.path / name)
    return replace(table.adds[0], path=name, size=(table.path / name).stat().st_size, stats=None)


def ids() -> list[int]:
    return [number * 10 + one for number in range(COUNT) for one in range(3)]


def test_rows_come_in_the_order_of_their_files(tmp_path: Path) -> None:
    read = small_files(tmp_path).read()
    assert read.column("id").to_pylist() == ids()
    assert read.column("name").to_pylist() == [f"{one // 10}-{one % 10}" for one in ids()]


def test_each_partition_keeps_its_value(tmp_path: Path) -> None:
    read = small_files(tmp_path, partitioned=True).read()
    assert read.column("id").to_pylist() == ids()
    assert read.column("part").to_pylist() == [one // 1000 for one in ids()]


def test_files_of_other_writers_may_lie_between_them(tmp_path: Path) -> None:
    table = small_files(tmp_path)
    narrow = put(table, pa.table({"id": pa.array([-1], pa.int32())}), "narrow.parquet")
    turned = put(table, pa.table({"name": ["t"], "more": [1], "id": [-2]}), "turned.parquet")
    table.adds[150:150] = [narrow, turned]
    read = table.read()
    assert read.column("id").to_pylist() == [*ids()[:450], -1, -2, *ids()[450:]]
    assert read.column("name").to_pylist()[450:452] == [None, "t"]


def test_only_columns_that_no_file_has_are_asked_for(tmp_path: Path) -> None:
    table = small_files(tmp_path)
    table.schema = StructType((*FIELDS, StructField("new", PrimitiveType("double"), True)))
    assert table.read(columns=["new"]).column("new").to_pylist() == [None] * (COUNT * 3)


def test_a_size_in_the_log_that_is_wrong_does_not_matter(tmp_path: Path) -> None:
    table = small_files(tmp_path)
    table.adds = [replace(add, size=100 + number) for number, add in enumerate(table.adds)]
    assert table.read().column("id").to_pylist() == ids()


@pytest.mark.parametrize("content", [b"", b"PAR1", b"not parquet at all", b"PAR1" + bytes(500) + b"PAR1"])
def test_a_broken_file_among_them_is_named(tmp_path: Path, content: bytes) -> None:
    table = small_files(tmp_path)
    (table.path / table.adds[200].path).write_bytes(content)
    with pytest.raises(DeltaError, match=table.adds[200].path):
        table.read()


def test_a_missing_file_among_them_is_named(tmp_path: Path) -> None:
    table = small_files(tmp_path)
    (table.path / table.adds[200].path).unlink()
    with pytest.raises(DeltaError, match=f"{table.adds[200].path} not found"):
        table.read()


def test_files_that_deltalake_wrote_are_compacted_without_a_change(tmp_path: Path) -> None:
    for number in range(120):
        deltalake.write_deltalake(tmp_path / "theirs", rows(number), mode="append")
    table = DeltaTable(str(tmp_path / "theirs"))
    before = table.to_pyarrow_table().sort_by("id")
    assert table.optimize.compact()["numFilesRemoved"] == 120
    assert table.to_pyarrow_table().sort_by("id").equals(before)
    assert deltalake.DeltaTable(tmp_path / "theirs").to_pyarrow_table().sort_by("id").equals(before)
