"""Files of a write: how many, how large, where, and what is left of one that failed."""

import errno
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from deltalakedb.data import ParquetOptions, arrow_to_schema, read_files, write_files
from deltalakedb.exceptions import DeltaError, SchemaMismatchError
from deltalakedb.log.protocol.paths import decode_path
from deltalakedb.log.protocol.rows import adds_to_batch
from deltalakedb.log.statistics.stats import parse_stats
from deltalakedb.storage.local import LocalStorage
from deltalakedb.storage.location import open_storage, parse_location
from tests.data.tables import WrittenTable, new_table

SMALL = pa.table({"id": [1, 2, 3], "p": ["x", "y", "x"]})


def files_below(path: Path) -> set[str]:
    return {found.relative_to(path).as_posix() for found in path.rglob("*.parquet")}


def records(table: WrittenTable) -> list[int]:
    stats = [parse_stats(add.stats) for add in table.adds]
    return [item.num_records or 0 for item in stats if item is not None]


def test_one_small_write_is_one_file_with_a_name_of_its_own(tmp_path: Path) -> None:
    table = new_table(tmp_path / "t", SMALL)
    table.append(SMALL)
    names = [add.path for add in table.adds]
    assert len(set(names)) == 2
    assert all(re.fullmatch(r"part-00000-[0-9a-f-]{36}-c000\.snappy\.parquet", name) for name in names)
    assert files_below(tmp_path / "t") == set(names)


def test_an_add_tells_size_and_time_of_its_file(tmp_path: Path) -> None:
    table = new_table(tmp_path / "t", SMALL)
    (add,) = table.adds
    stat = (tmp_path / "t" / add.path).stat()
    assert (add.size, add.modification_time) == (stat.st_size, stat.st_mtime_ns // 1_000_000)
    assert add.data_change
    (rearranged,) = table.append(SMALL, data_change=False)
    assert not rearranged.data_change


def test_data_without_rows_makes_no_file(tmp_path: Path) -> None:
    table = WrittenTable(tmp_path / "t", arrow_to_schema(SMALL.schema))
    assert table.append(SMALL.slice(0, 0)) == []
    assert files_below(tmp_path / "t") == set()


def test_files_end_at_about_the_size_asked_for(tmp_path: Path) -> None:
    data = pa.table({"id": range(200_000), "noise": [os.urandom(16) for _ in range(200_000)]})
    table = WrittenTable(tmp_path / "t", arrow_to_schema(data.schema))
    table.append(data, target_file_size=500_000)
    assert sum(records(table)) == 200_000
    assert len(table.adds) > 5
    assert all(400_000 < add.size < 1_500_000 for add in table.adds[:-1])
    assert table.read().equals(data.cast(table.schema.to_arrow()))


@pytest.mark.parametrize(("text", "many"), [("300kb", True), ("300000", True), ("1g", False), ("nonsense", False)])
def test_the_table_may_say_how_large_files_are(tmp_path: Path, text: str, many: bool) -> None:
    data = pa.table({"noise": [os.urandom(16) for _ in range(100_000)]})
    table = new_table(tmp_path / "t", data, delta__targetFileSize=text)
    assert (len(table.adds) > 1) == many


def test_row_groups_are_bounded(tmp_path: Path) -> None:
    data = pa.table({"id": range(10_000)})
    table = WrittenTable(tmp_path / "t", arrow_to_schema(data.schema))
    (add,) = table.append(data, options=ParquetOptions(row_group_rows=3_000, compression="zstd"))
    assert add.path.endswith("-c000.zstd.parquet")
    file = pq.ParquetFile(tmp_path / "t" / add.path)
    assert [file.metadata.row_group(place).num_rows for place in range(4)] == [3_000, 3_000, 3_000, 1_000]
    assert file.metadata.row_group(0).column(0).compression == "ZSTD"


def test_a_partitioned_write_has_a_file_in_each_folder(tmp_path: Path) -> None:
    table = new_table(tmp_path / "t", SMALL, ["p"])
    assert {add.partition_values["p"] for add in table.adds} == {"x", "y"}
    for add in table.adds:
        assert decode_path(add.path).startswith(f"p={add.partition_values['p']}/part-")
        assert pq.read_schema(tmp_path / "t" / decode_path(add.path)).names == ["id"]


def test_rows_of_a_partition_meet_in_one_file_however_they_are_strewn(tmp_path: Path) -> None:
    rows = [pa.record_batch({"id": [n, n + 1], "p": ["x", "y"]}) for n in range(0, 200, 2)]
    table = WrittenTable(tmp_path / "t", arrow_to_schema(rows[0].schema), ["p"])
    table.append(rows)
    assert records(table) == [100, 100]


def test_many_partitions_need_few_open_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deltalakedb.data.writer._MAX_PENDING_BYTES", 20_000)
    monkeypatch.setattr("deltalakedb.data.writer._MAX_OPEN_FILES", 4)
    storage = CountingStorage(tmp_path / "t")
    data = pa.table({"id": range(3_000), "p": [n % 50 for n in range(3_000)]})
    schema = arrow_to_schema(data.schema)
    adds = write_files(data.to_batches(100), storage=storage, schema=schema, partition_columns=["p"])
    assert 0 < storage.most_open <= 4
    assert {add.partition_values["p"] for add in adds} == {str(n) for n in range(50)}
    read = read_files(adds_to_batch(adds), storage=storage, schema=schema, partition_columns=["p"]).read_all()
    assert read.sort_by("id").equals(data)


class CountingStorage(LocalStorage):
    """Local disk that counts how many files are being written at a time."""

    def __init__(self, root: Path) -> None:
        root.mkdir()
        super().__init__(parse_location(root))
        self.open_now = self.most_open = 0

    def create(self, path: str, *, part_bytes: int | None = None) -> Any:
        file = super().create(path, part_bytes=part_bytes)
        self.open_now += 1
        self.most_open = max(self.most_open, self.open_now)
        finish = file.finish

        def finished() -> Any:
            self.open_now -= 1
            return finish()

        file.finish = finished  # type: ignore[method-assign]
        return file


def broken_stream() -> Iterator[pa.RecordBatch]:
    yield from SMALL.to_batches()
    raise RuntimeError("the source broke")


def test_a_write_that_fails_leaves_no_file(tmp_path: Path) -> None:
    table = WrittenTable(tmp_path / "t", arrow_to_schema(SMALL.schema), ["p"])
    with pytest.raises(RuntimeError, match="the source broke"):
        table.append(broken_stream())
    late = [*SMALL.to_batches(), pa.record_batch({"id": [None], "p": [b"\xff"]})]
    with pytest.raises(DeltaError):
        table.append(late, target_file_size=100)
    assert files_below(tmp_path / "t") == set()


def test_a_value_that_does_not_fit_late_in_the_data_leaves_no_file(tmp_path: Path) -> None:
    table = WrittenTable(tmp_path / "t", arrow_to_schema(pa.schema([("id", pa.int32())])))
    data = pa.table({"id": [*range(1_000), 2**40]})
    with pytest.raises(SchemaMismatchError, match="'id'"):
        table.append(data.to_batches(100), target_file_size=400)
    assert files_below(tmp_path / "t") == set()


def test_a_full_disk_is_told_with_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    table = WrittenTable(tmp_path / "t", arrow_to_schema(SMALL.schema))
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(DeltaError, match=r"cannot write .*No space left on device"):
        table.append(SMALL)
    assert files_below(tmp_path / "t") == set()


def test_files_and_all_new_folders_are_forced_to_disk_before_the_adds_are_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    fsync = os.fsync

    def record(descriptor: int) -> None:
        synced.append(os.path.relpath(os.readlink(f"/proc/self/fd/{descriptor}"), tmp_path / "t"))
        fsync(descriptor)

    table = WrittenTable(tmp_path / "t", arrow_to_schema(SMALL.schema), ["p", "id"])
    table.schema = arrow_to_schema(SMALL.append_column("v", [[1, 2, 3]]).schema)
    monkeypatch.setattr(os, "fsync", record)
    adds = table.append(SMALL.append_column("v", [[1, 2, 3]]))
    paths = [decode_path(add.path) for add in adds]
    folders = {".", *(str(above) for path in paths for above in Path(path).parents)}
    assert set(synced) >= folders | set(paths)


def test_the_name_of_a_new_tables_folder_is_forced_to_disk_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: synced.append(os.readlink(f"/proc/self/fd/{descriptor}")))
    storage = open_storage(str(tmp_path / "lake" / "new" / "table"))
    write_files(SMALL, storage=storage, schema=arrow_to_schema(SMALL.schema), partition_columns=["p"])
    assert set(synced) >= {str(tmp_path), str(tmp_path / "lake"), str(tmp_path / "lake" / "new")}


def test_every_column_a_partition_column_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SchemaMismatchError, match="needs a column that is no partition column"):
        new_table(tmp_path / "t", pa.table({"p": [1]}), ["p"])
    with pytest.raises(SchemaMismatchError, match="'q' is no column"):
        new_table(tmp_path / "u", pa.table({"p": [1]}), ["q"])


def test_columns_may_have_any_name(tmp_path: Path) -> None:
    names = ["a", "a.b", "a b", "ä", "a/b", ".", "a.b.c", "list", "list.element", "`", '"', "key_value"]
    data = pa.table([pa.array([{"b": 7}] if name == "a" else [place]) for place, name in enumerate(names)], names=names)
    table = new_table(tmp_path / "t", data)
    assert table.read().to_pylist() == data.to_pylist()
    for name in names:
        assert table.read(columns=[name]).to_pylist() == data.select([name]).to_pylist()


def test_a_stream_larger_than_memory_passes_through(tmp_path: Path) -> None:
    at_once: list[int] = []

    def batches() -> Iterator[pa.RecordBatch]:
        for _ in range(50):
            at_once.append(pa.total_allocated_bytes())
            yield pa.record_batch({"noise": pa.array([os.urandom(2_000_000)], pa.large_binary())})

    table = WrittenTable(tmp_path / "t", arrow_to_schema(pa.schema([("noise", pa.binary())])))
    before = pa.total_allocated_bytes()
    table.append(batches(), options=ParquetOptions(row_group_bytes=10_000_000))
    assert sum(records(table)) == 50
    assert max(at_once) - before < 50_000_000, "of 100 MB"


def test_many_small_files_are_filtered_and_keep_their_order(tmp_path: Path) -> None:
    table = new_table(tmp_path / "t", SMALL)
    for start in range(10, 100, 10):
        table.append(pa.table({"id": [start, start + 1], "p": ["x", "y"]}))
    assert table.read(columns=["id"], predicate="p = 'x' and id >= 3")["id"].to_pylist() == [3, *range(10, 100, 10)]
    assert table.read(predicate=[("id", ">", 1000)]).num_rows == 0


def test_a_file_that_is_gone_is_named(tmp_path: Path) -> None:
    table = new_table(tmp_path / "t", SMALL)
    (tmp_path / "t" / table.adds[0].path).unlink()
    with pytest.raises(DeltaError, match=f"{table.adds[0].path} not found: the log names this data file"):
        table.read()


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    table = new_table(tmp_path / "t", SMALL)
    (tmp_path / "t" / table.adds[0].path).write_bytes(b"PAR1 not at all PAR1")
    with pytest.raises(DeltaError, match=f"cannot read the data file {table.adds[0].path}"):
        table.read()
