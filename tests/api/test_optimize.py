"""DeltaTable.optimize does what `deltalake`'s does: files change, rows do not."""

from __future__ import annotations

import random
import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import deltalakedb
from deltalakedb.exceptions import CommitFailedError
from deltalakedb.operations.zorder import interleave
from tests.api.both import Both

COUNTS = ("numFilesAdded", "numFilesRemoved", "partitionsOptimized", "totalConsideredFiles", "totalFilesSkipped")


def rows(first: int, count: int = 4) -> dict[str, list[Any]]:
    ids = list(range(first, first + count))
    return {
        "id": ids,
        "s": [None if i % 5 == 0 else f"s{i:03d}" for i in ids],
        "p": ["a" if i % 2 else "b" for i in ids],
    }


def counts(metrics: dict[str, Any]) -> dict[str, Any]:
    return {key: metrics[key] for key in COUNTS}


def test_compact_puts_files_of_a_partition_together(everywhere: Both) -> None:
    both = everywhere
    both.seed(rows(0), rows(4), rows(8), partition_by=["p"])
    both.same(lambda lib: counts(lib.table().optimize.compact()), exactly=True)
    both.same(lambda lib: lib.table().optimize.compact(), exactly=True)
    both.same_rows()
    both.same_history()
    both.mirror_agrees()


def test_z_order_rewrites_every_partition(everywhere: Both) -> None:
    both = everywhere
    both.seed(rows(0), rows(4), rows(8), partition_by=["p"])
    both.same(lambda lib: counts(lib.table().optimize.z_order(["id", "s"])), exactly=True)
    both.same(lambda lib: counts(lib.table().optimize.z_order(("id",))), exactly=True)
    both.same_rows()
    both.same_history()


@pytest.mark.parametrize(
    "filters",
    [
        [("p", "=", "a")],
        [("p", "!=", "a")],
        [("p", "in", ["a", "b"])],
        [("p", "=", "nosuch")],
        [("nosuch", "=", "a")],
        [("p", "~~", "a")],
    ],
)
def test_filters_choose_partitions(both: Both, filters: list[Any]) -> None:
    both.seed(rows(0), rows(4), partition_by=["p"])
    both.same(lambda lib: counts(lib.table().optimize.compact(partition_filters=filters)), exactly=True)
    both.same_rows()
    both.same_version()


@pytest.mark.parametrize("columns", [[], ["nosuch"], ["p"], ["ID"]])
def test_a_z_order_needs_columns_that_can_be_sorted(both: Both, columns: list[str]) -> None:
    both.seed(rows(0), partition_by=["p"])
    both.fails(lambda lib: lib.table().optimize.z_order(columns))


def test_a_size_must_make_sense(both: Both) -> None:
    both.seed(rows(0))
    both.fails(lambda lib: lib.table().optimize.compact(target_size=0))
    both.fails(lambda lib: lib.table().optimize.compact(target_size=-1))


def test_an_interval_makes_several_commits(both: Both) -> None:
    both.seed(rows(0), rows(4), partition_by=["p"])
    both.same(lambda lib: counts(lib.table().optimize.compact(min_commit_interval=timedelta(0))), exactly=True)
    both.same_history()
    assert both.same_version() == 4


def test_neighbours_that_fit_the_target_size_go_together(both: Both) -> None:
    def noise(count: int) -> dict[str, list[int]]:
        return {"id": [random.Random(count).getrandbits(62) for _ in range(count)]}

    both.seed(*(noise(count) for count in (1000, 1001, 1002, 8000, 1003, 1004)))
    both.same(lambda lib: counts(lib.table().optimize.compact(target_size=20_000)), exactly=True)
    both.same_rows()


def test_properties_of_commits_and_writers_are_taken(both: Both) -> None:
    both.seed(rows(0), rows(4))

    def call(lib: Any) -> Any:
        return counts(
            lib.table().optimize.compact(
                writer_properties=lib.module.WriterProperties(compression="GZIP"),
                commit_properties=lib.module.CommitProperties(custom_metadata={"why": "tests"}),
                post_commithook_properties=lib.module.PostCommitHookProperties(create_checkpoint=False),
            )
        )

    both.same(call, exactly=True)
    both.same(lambda lib: lib.table().history(1)[0]["why"], exactly=True)
    both.same_rows()


def test_arguments_by_position_are_deprecated(both: Both) -> None:
    both.seed(rows(0), rows(4))
    both.same(lambda lib: counts(lib.table().optimize.compact(None, None, None, None, None, None, None, None)))


def make(tmp_path: Path, configuration: dict[str, str] | None = None, files: int = 3) -> deltalakedb.DeltaTable:
    cat = deltalakedb.connect(str(tmp_path / "c.db"), warehouse=str(tmp_path / "lake"))
    cat.create_table("s.t", "id long, s string, p string", properties=configuration or {})
    for number in range(files):
        with cat.begin() as tx:
            tx.write("s.t", pa.table(rows(number * 4)), mode="append")
    return cat.table("s.t")


def test_deletion_vectors_are_folded_in(tmp_path: Path) -> None:
    table = make(tmp_path, {"delta.enableDeletionVectors": "true"})
    table.delete("id in (1, 5)")
    assert any(table.files(["deletion_vector"]).column(0).to_pylist())
    expected = table.to_pyarrow_table().sort_by("id")
    table.optimize.compact()
    assert table.files(["deletion_vector"]).column(0).to_pylist() == [None]
    assert table.to_pyarrow_table().sort_by("id").equals(expected)
    table.delete("id = 9")
    assert table.optimize.compact()["numFilesRemoved"] == 1, "a file alone is written again for its vector"
    assert 9 not in table.to_pyarrow_table().column("id").to_pylist()


def test_rows_appended_meanwhile_do_not_disturb_and_deleted_ones_do(tmp_path: Path) -> None:
    table = make(tmp_path)
    cat = table._sql().catalog
    with cat.begin() as tx:
        tx.optimize("s.t")
        with cat.begin() as other:
            other.write("s.t", pa.table(rows(100)), mode="append")
    assert sorted(cat.table("s.t").to_pyarrow_table().column("id").to_pylist()) == [*range(12), *range(100, 104)]
    with cat.begin() as tx:
        tx.optimize("s.t")
        cat.table("s.t").delete("id = 1")
        with pytest.raises(CommitFailedError):
            tx.commit()


def row_ids(table: deltalakedb.DeltaTable) -> dict[int, int]:
    """The id of each row, by the protocol's rules: the materialized one, else the file's first plus its place."""
    name = table.metadata().configuration["delta.rowTracking.materializedRowIdColumnName"]
    ids: dict[int, int] = {}
    for file in table.files(["path", "base_row_id"]).to_pylist():
        rows = pq.read_table(Path(table.table_uri.removeprefix("file://")) / file["path"])
        for place, row in enumerate(rows.to_pylist()):
            kept = row.get(name)
            ids[row["id"]] = file["base_row_id"] + place if kept is None else kept
    return ids


def test_rows_keep_their_ids(tmp_path: Path) -> None:
    table = make(tmp_path, {"delta.enableRowTracking": "true"})
    before = row_ids(table)
    assert len(set(before.values())) == 12
    table.optimize.compact()
    assert (table.totals().num_files, row_ids(table)) == (1, before)
    table.optimize.z_order(["s"])
    assert row_ids(table) == before
    assert table.to_pyarrow_table().column_names == ["id", "s", "p"]


def test_a_transaction_optimizes_what_it_has_written(tmp_path: Path) -> None:
    table = make(tmp_path)
    with table._sql().catalog.begin() as tx:
        tx.write("s.t", pa.table(rows(50)), mode="append")
        assert tx.optimize("s.t")["numFilesRemoved"] == 4
        assert tx.table("s.t").totals().num_files == 1
    table.update_incremental()
    assert (table.totals().num_files, table.version()) == (1, 5)


def test_bits_are_interleaved_from_the_highest() -> None:
    import numpy as np

    key = interleave([np.array([0b10, 0b01], np.uint64), np.array([0b11, 0b00], np.uint64)], 2)
    assert key.tolist() == [0b1101, 0b0010]


def test_a_z_order_that_may_not_go_to_disk_says_so_and_changes_nothing(tmp_path: Path) -> None:
    deltalakedb.write_deltalake(
        tmp_path, pa.table({"x": range(400_000), "s": ["y" * 80 + str(n) for n in range(400_000)]})
    )
    table = deltalakedb.DeltaTable(tmp_path)
    with pytest.raises(deltalakedb.DeltaError):
        table.optimize.z_order(["x"], max_spill_size=16_000_000, max_temp_directory_size=1_000_000)
    assert deltalakedb.DeltaTable(tmp_path).version() == 0


def test_z_order_raises_pruning_on_both_columns(tmp_path: Path) -> None:
    cat = deltalakedb.connect(str(tmp_path / "c.db"), warehouse=str(tmp_path / "lake"))
    numbers = random.Random(7)
    data = pa.table(
        {
            "x": [numbers.randrange(10_000) for _ in range(40_000)],
            "y": [f"k{numbers.randrange(10_000):05d}" for _ in range(40_000)],
            "noise": [numbers.getrandbits(62) for _ in range(40_000)],
        }
    )
    cat.create_table("s.t", data.schema)
    for start in range(0, data.num_rows, 5_000):
        with cat.begin() as tx:
            tx.write("s.t", data.slice(start, 5_000), mode="append")
    table = cat.table("s.t")
    asked = ("x between 100 and 150", "y between 'k00100' and 'k00150'")
    assert all(table.plan(one).num_files == 8 for one in asked), "unsorted files all hold the whole range"
    table.optimize.z_order(["x", "y"], target_size=30_000, max_spill_size=64 * 1024 * 1024)
    total = table.totals().num_files
    assert total >= 8
    assert all(table.plan(one).num_files <= total / 2 for one in asked)
    assert (
        table.to_pyarrow_table()
        .sort_by([(name, "ascending") for name in data.column_names])
        .equals(data.sort_by([(name, "ascending") for name in data.column_names]))
    )


def test_files_of_a_partition_are_compacted_whatever_the_order_of_its_values(on_paths: Both) -> None:
    on_paths.seed({"id": [1], "a": ["x"], "b": ["y"]}, {"id": [2], "a": ["x"], "b": ["y"]}, partition_by=["a", "b"])
    for library in on_paths.libraries:
        for version, values in ((1, '{"a":"x","b":"y"}'), (2, '{"b":"y","a":"x"}')):
            commit = library.folder / "_delta_log" / f"{version:020}.json"
            text = re.sub(r'"partitionValues":\{[^}]*\}', f'"partitionValues":{values}', commit.read_text())
            commit.write_text(text)
    outcome = on_paths.same(lambda lib: lib.table().optimize.compact()["numFilesRemoved"], exactly=True)
    assert outcome.value == 2
    on_paths.same_rows()
