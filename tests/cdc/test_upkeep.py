"""Compaction between batches: small files are put together when enough have gathered, and it never fails the stream."""

import os
import threading
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

import deltalakedb as dl
from deltalakedb import telemetry
from deltalakedb.cdc.apply.upkeep import compact_if_due, find_small, find_worn
from deltalakedb.cdc.captured_table import CapturedTable
from deltalakedb.cdc.control import Capture, Server
from deltalakedb.cdc.settings import CaptureSettings
from deltalakedb.log.protocol.actions import AddFile, DeletionVector

SETTINGS = CaptureSettings("", "shop", namespace="shop", optimize_files=4)
TABLE = CapturedTable("public.orders", 1, (), ("id",), "shop.orders", "shop.orders_changes", stage="streaming")
CAPTURE = Capture("shop.cdc_dl_shop", Server("7", 1, "shop"), "shop", "dl_shop", 8, {TABLE.source: TABLE})


def file(number: int, size: int, **partition: str) -> AddFile:
    return AddFile(f"part-{number}.parquet", partition, size, number, True, '{"numRecords":100}')


def with_rows_deleted(add: AddFile, count: int) -> AddFile:
    return replace(add, deletion_vector=DeletionVector("u", "ab^-aqEH.-t@S}K{vb[*k^", 40, count, offset=4))


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.fixture
def catalog(tmp_path: Path) -> dl.Catalog:
    made = dl.connect(tmp_path / "catalog.db", warehouse=str(tmp_path / "lake"))
    for name in (TABLE.current, TABLE.changes):
        made.create_table(name, "id long, note string")
    return made


def append(catalog: dl.Catalog, name: str, times: int) -> None:
    for number in range(times):
        with catalog.begin() as tx:
            tx.write(name, pa.table({"id": [number], "note": ["a"]}), mode="append")


def test_small_files_of_both_layers_are_compacted_once_enough_have_gathered(catalog: dl.Catalog) -> None:
    append(catalog, TABLE.current, 3)
    append(catalog, TABLE.changes, 4)
    assert compact_if_due(catalog, CAPTURE, SETTINGS) == ["shop.orders_changes: 4 files became 1"]
    assert catalog.table(TABLE.current).files().num_rows == 3
    assert catalog.table(TABLE.changes).files().num_rows == 1
    assert catalog.table(TABLE.changes).count() == 4
    append(catalog, TABLE.current, 1)
    assert compact_if_due(catalog, CAPTURE, SETTINGS) == ["shop.orders: 4 files became 1"]
    assert catalog.history(TABLE.current)[0]["operation"] == "OPTIMIZE"
    assert compact_if_due(catalog, CAPTURE, SETTINGS) == []


def test_tables_that_do_not_stream_and_captures_that_do_not_want_it_are_left_alone(catalog: dl.Catalog) -> None:
    append(catalog, TABLE.current, 5)
    stopped = replace(CAPTURE, tables={TABLE.source: replace(TABLE, stage="stopped")})
    assert compact_if_due(catalog, stopped, SETTINGS) == []
    assert compact_if_due(catalog, CAPTURE, replace(SETTINGS, optimize_files=0)) == []
    assert catalog.table(TABLE.current).files().num_rows == 5


def test_a_compaction_that_fails_is_told_and_counted_and_raises_nothing(catalog: dl.Catalog, tmp_path: Path) -> None:
    append(catalog, TABLE.current, 4)
    append(catalog, TABLE.changes, 4)
    next((tmp_path / "lake" / "shop" / "orders").glob("*.parquet")).unlink()
    before = telemetry.total_of(telemetry.CDC_FAILURES)
    told = compact_if_due(catalog, CAPTURE, SETTINGS)
    assert told[0].startswith("shop.orders: not compacted now")
    assert told[1] == "shop.orders_changes: 4 files became 1", "the other table is none the worse for it"
    assert telemetry.total_of(telemetry.CDC_FAILURES) == before + 1
    catalog.store.close()
    assert compact_if_due(catalog, CAPTURE, SETTINGS)[0].startswith("the catalog's tables: not compacted now")


def test_a_compaction_returns_free_memory_to_the_system(catalog: dl.Catalog) -> None:
    append(catalog, TABLE.changes, 4)
    assert compact_if_due(catalog, CAPTURE, SETTINGS) == ["shop.orders_changes: 4 files became 1"]
    append(catalog, TABLE.changes, 4)
    before = resident_bytes()
    kept = fill_and_free_memory()
    assert resident_bytes() - before > 300 << 20, "the allocators keep what is free"
    assert compact_if_due(catalog, CAPTURE, SETTINGS) == ["shop.orders_changes: 5 files became 1"]
    assert resident_bytes() - before < 150 << 20
    assert len(kept) == 20


def fill_and_free_memory() -> list[bytes]:
    """Take 400 MB, half from Arrow in a thread that ends, and free them; returns the few values that are kept.

    The values come from the heap of the C library, which cannot shrink by itself because of those that are kept.
    """
    arrays: list[pa.Array] = []
    thread = threading.Thread(target=lambda: arrays.extend(pa.array([b"x" * 100_000]) for _ in range(2_000)))
    thread.start()
    thread.join()
    return [b"x" * (100_000 + number) for number in range(2_000)][::100]


def test_files_grow_by_tiers_and_each_partition_by_itself() -> None:
    tiny = [file(number, 1000, bucket="1") for number in range(4)]
    middle = [file(10 + number, 3 << 20, bucket="2") for number in range(4)]
    few = [file(20 + number, 1000, bucket="3") for number in range(3)]
    large = [file(30, 90 << 20, bucket="1")]
    found = list(find_small([*large, *middle, *few, *tiny], 4))
    assert {frozenset(add.path for add in work.files): work.target_size for work in found} == {
        frozenset(add.path for add in tiny): 2 << 20,
        frozenset(add.path for add in middle): 16 << 20,
    }


def test_files_that_cannot_be_put_together_are_no_work() -> None:
    nearly = [file(number, (2 << 20) - 1) for number in range(3)]
    assert list(find_small(nearly, 3)) == [] or all(work.target_size > 2 << 20 for work in find_small(nearly, 3))
    full = [file(number, 60 << 20) for number in range(40)]
    assert list(find_small(full, 4)) == []


def test_one_look_writes_no_more_than_a_part_of_a_large_table() -> None:
    (work,) = find_small([file(number, 40 << 20) for number in range(100)], 4)
    assert 2 <= len(work.files) <= 7


def test_large_files_with_many_deleted_rows_are_written_again_the_worst_first() -> None:
    worn = with_rows_deleted(file(1, 20 << 20), 30)
    worse = with_rows_deleted(file(2, 20 << 20), 60)
    (work,) = find_worn([file(3, 20 << 20), worn, with_rows_deleted(file(4, 20 << 20), 20), worse])
    assert [add.path for add in work.files] == [worse.path, worn.path]
    assert list(find_worn([file(1, 20 << 20)])) == []
