"""convert_to_deltalake, the same calls on both libraries."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.api.both import Both, Library

ROWS = pa.table({"id": [1, 2], "name": ["x", None]})


def convert(lib: Library, **arguments: Any) -> None:
    lib.module.convert_to_deltalake(lib.uri, **arguments)


def put(both: Both, path: str, rows: pa.Table = ROWS) -> None:
    for lib in both.libraries:
        file = lib.folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(rows, file)


def columns(lib: Library) -> Any:
    field = lib.find("schema.Field")
    return lib.module.Schema([field("day", "string"), field("hour", "integer")])


def test_files_in_one_folder_become_a_table(anywhere: Both) -> None:
    put(anywhere, "a.parquet")
    put(anywhere, "b.parquet", ROWS.append_column("more", pa.array([1.5, 2.5])))
    anywhere.same(lambda lib: convert(lib, name="called", description="what it is"))
    assert anywhere.same_rows().num_rows == 4
    anywhere.same_schema()
    anywhere.same(lambda lib: (lib.table().metadata().name, lib.table().metadata().description), exactly=True)
    assert anywhere.same_history()[0]["operation"] == "CONVERT"
    anywhere.same(lambda lib: lib.table().history()[0]["operationParameters"], exactly=True)
    anywhere.fails(convert)
    anywhere.same(lambda lib: convert(lib, mode="ignore"))
    anywhere.write({"id": [3], "name": ["y"], "more": [0.5]}, mode="append")
    assert anywhere.same_rows().num_rows == 5


@pytest.mark.parametrize("strategy", ["hive", "directory"])
def test_folders_are_partitions(both: Both, strategy: str) -> None:
    names = ("day=mon a/hour=1", "day=tue/hour=2") if strategy == "hive" else ("mon a/1", "tue/2")
    for name in names:
        put(both, f"{name}/file.parquet")
    both.same(lambda lib: convert(lib, partition_by=columns(lib), partition_strategy=strategy))
    assert both.same_rows().num_rows == 4
    both.same_schema()
    both.mirror_agrees()


def test_what_cannot_be_converted_is_refused(both: Both) -> None:
    both.fails(convert)
    put(both, "day=mon/hour=1/file.parquet")
    both.fails(convert)
    both.fails(lambda lib: convert(lib, partition_by=columns(lib)))
    both.fails(lambda lib: convert(lib, partition_strategy="nosuch"))
    put(both, "day=mon/hour=1/other.parquet", pa.table({"id": ["text"]}))
    both.fails(lambda lib: convert(lib, partition_by=columns(lib), partition_strategy="hive"))


def test_statistics_come_from_the_footers(both: Both) -> None:
    moments = pa.array([datetime(2026, 1, 1), datetime(2026, 1, 2)], pa.timestamp("ns"))
    put(both, "a.parquet", ROWS.append_column("at", moments))
    convert(both.ours)
    (action,) = pa.table(both.ours.table().get_add_actions(flatten=True)).to_pylist()
    assert (action["num_records"], action["min.id"], action["max.id"], action["null_count.name"]) == (2, 1, 2, 1)
    bounds = (action["min.at"], action["max.at"])
    assert bounds == (datetime(2026, 1, 1), datetime(2026, 1, 2)), "a bound in another unit is told in the table's"
    assert both.ours.table().to_pyarrow_table(filters=[("id", ">", 1)]).num_rows == 1
    plain = both.other("plain")
    put(plain, "a.parquet")
    plain.same(lambda lib: convert(lib, collect_stats=False))
    (line,) = (json.loads(line)["add"] for line in _first_commit(plain.ours) if '"add"' in line)
    assert line.get("stats") is None


def _first_commit(lib: Library) -> list[str]:
    return (lib.folder / "_delta_log" / f"{0:020d}.json").read_text().splitlines()
