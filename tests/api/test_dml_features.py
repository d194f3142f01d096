"""delete and update with vectors, feeds, row ids, mapped and generated columns; in transactions, beside others."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import deltalakedb as dl
from deltalakedb.exceptions import ConcurrentAppendError, DeltaError
from deltalakedb.log.protocol.rows import add_from_row
from tests.api.both import Both

ROWS = {
    "id": list(range(20)),
    "s": [f"s{i}" for i in range(20)],
    "p": [i % 2 for i in range(20)],
}
VECTORS = {"delta.enableDeletionVectors": "true"}
FEED = {"delta.enableChangeDataFeed": "true"}
STEPS: list[Callable[[Any], Any]] = [
    lambda table: table.delete("id in (3, 4, 5)"),
    lambda table: table.update({"s": "concat(s, '_u')"}, predicate="id between 4 and 8"),
    lambda table: table.delete("id = 7 or p = 0 and id > 15"),
    lambda table: table.update({"p": "p + 2"}, predicate="id < 2"),
    lambda table: table.delete("p = 3"),
    lambda table: table.update({"id": "id + 100"}),
    lambda table: table.delete("id > 5"),
]


@pytest.fixture
def catalog(tmp_path: Path) -> Any:
    with dl.connect(str(tmp_path / "catalog.db"), warehouse=str(tmp_path / "lake")) as opened:
        yield opened


def adds_of(table: Any) -> list[Any]:
    return [add_from_row(row) for row in table._snapshot.files_table().to_pylist()]


def stored(folder: Path) -> set[Path]:
    """All files of tables but those of their logs, which the mirror may still be writing."""
    found = (path for path in (folder / "lake").rglob("*") if path.is_file())
    return {path for path in found if not {"_delta_log", "_dldb"} & set(path.parts)}


# -- deletion vectors


@pytest.mark.parametrize("partition_by", [[], ["p"]])
def test_deletion_vectors_give_the_rows_that_rewriting_gives(both: Both, partition_by: list[str]) -> None:
    both.seed(ROWS, ROWS, partition_by=partition_by, ours_only=VECTORS)
    for step in STEPS:
        for library in both.libraries:
            step(library.table())
        both.same_rows()
        both.mirror_agrees()


def test_a_vector_leaves_the_data_file_alone_and_grows(both: Both) -> None:
    both.seed(ROWS, {"id": [50], "s": ["x"], "p": [1]}, ours_only=VECTORS)
    files = set(both.ours.table().file_uris())
    table = both.ours.table()
    assert table.delete("id in (1, 2)")["num_deleted_rows"] == 2
    assert table.delete("id in (2, 3)")["num_deleted_rows"] == 1
    (add,) = [add for add in adds_of(table) if add.deletion_vector is not None]
    assert add.deletion_vector.cardinality == 3
    assert '"tightBounds":false' in add.stats
    assert '"numRecords":20' in add.stats
    assert set(table.file_uris()) == files
    assert len(list(both.ours.folder.glob("deletion_vector_*.bin"))) == 2
    assert table.delete("id < 40")["num_removed_files"] == 1
    assert table.count() == 1


def test_vectors_of_many_files_lie_in_one(both: Both) -> None:
    both.seed(*[{"id": [i * 10 + j for j in range(10)]} for i in range(4)], ours_only=VECTORS)
    assert both.ours.table().delete("id % 10 = 3")["num_deleted_rows"] == 4
    vectors = [add.deletion_vector for add in adds_of(both.ours.table())]
    assert len({vector.path_or_inline_dv for vector in vectors}) == 1
    assert len({vector.offset for vector in vectors}) == 4
    both.mirror_agrees()


def test_a_table_that_had_vectors_before_is_rewritten_without_them(both: Both) -> None:
    both.seed(ROWS, ours_only=VECTORS)
    table = both.ours.table()
    table.delete("id < 5")
    name = both.ours.uri.partition("table=")[2]
    both.ours.catalog.set_properties(name, {"delta.enableDeletionVectors": "false"})
    table.update_incremental()
    assert table.update({"s": "'new'"}, predicate="id = 6")["num_copied_rows"] == 14
    assert all(add.deletion_vector is None for add in adds_of(table))
    assert sorted(both.ours.rows().column("id").to_pylist()) == list(range(5, 20))


# -- change data feed


@pytest.mark.parametrize("vectors", [False, True])
@pytest.mark.parametrize("partition_by", [[], ["p"]])
def test_the_feed_tells_what_deltalakes_tells(both: Both, partition_by: list[str], vectors: bool) -> None:
    both.seed(ROWS, partition_by=partition_by, configuration=FEED, ours_only=VECTORS if vectors else {})
    for step in STEPS:
        for library in both.libraries:
            step(library.table())
    tables = [deltalake.DeltaTable(str(library.folder)) for library in both.libraries]
    feeds = [pa.table(table.load_cdf(starting_version=1).read_all()) for table in tables]
    columns = ["id", "s", "p", "_change_type", "_commit_version"]
    theirs, ours = (sorted(map(repr, feed.select(columns).to_pylist())) for feed in feeds)
    assert ours == theirs


def test_files_that_go_whole_need_no_feed_of_their_own(both: Both) -> None:
    both.seed(ROWS, partition_by=["p"], configuration=FEED)
    both.same(lambda lib: lib.table().delete("p = 1"), exactly=True)
    assert not (both.ours.folder / "_change_data").exists()


# -- row tracking, column mapping, generated columns


def test_rows_keep_their_ids_when_they_move(catalog: dl.Catalog, tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.int64()), ("s", pa.string())])
    catalog.create_table("a.t", schema, properties={"delta.enableRowTracking": "true"})
    for start in (0, 5):
        with catalog.begin() as tx:
            tx.write("a.t", pa.table({"id": range(start, start + 5), "s": ["x"] * 5}), mode="append")
    table = catalog.table("a.t")
    table.delete("id in (1, 7)")
    table.update({"s": "'new'"}, predicate="id = 8")
    names = [str(value) for key, value in table.metadata().configuration.items() if "materializedRow" in key]
    found: dict[int, int] = {}
    versions: dict[int, int] = {}
    for add in adds_of(table):
        rows = pq.read_table(tmp_path / "lake" / "a" / "t" / add.path).to_pylist()
        for number, row in enumerate(rows):
            ids = [row[name] for name in sorted(names, key=lambda name: "row-id" not in name)]
            found[row["id"]] = add.base_row_id + number if ids[0] is None else ids[0]
            versions[row["id"]] = add.default_row_commit_version if ids[1] is None else ids[1]
    assert found == {number: number for number in range(10) if number not in (1, 7)}
    assert versions == {0: 1, 2: 1, 3: 1, 4: 1, 5: 2, 6: 2, 8: 4, 9: 2}


@pytest.mark.parametrize("mode", ["name", "id"])
def test_renamed_columns_are_changed_under_their_names(catalog: dl.Catalog, mode: str) -> None:
    properties = {"delta.columnMapping.mode": mode, **FEED}
    kind = pa.struct([("x", pa.int64())])
    schema = pa.schema([("odd name", pa.int64()), ("st", kind), ("p", pa.string())])
    catalog.create_table("a.t", schema, ["p"], properties=properties)
    rows = pa.table({"odd name": [1, 2, 3], "st": pa.array([{"x": 1}, {"x": 2}, {"x": 3}], kind), "p": ["a", "a", "b"]})
    with catalog.begin() as tx:
        tx.write("a.t", rows, mode="append")
    table = catalog.table("a.t")
    assert table.delete("st.x = 1")["num_deleted_rows"] == 1
    table.update({"st": "{'x': st.x * 10}", "p": "'c'"}, predicate='"odd name" = 2')
    assert table.delete("p = 'b'")["num_removed_files"] == 1
    expected = [{"odd name": 2, "st": {"x": 20}, "p": "c"}]
    assert table.to_pyarrow_table().to_pylist() == expected


def test_generated_columns_follow_what_is_set(catalog: dl.Catalog) -> None:
    fields = [
        dl.Field("id", "long"),
        dl.Field("double_id", "long", metadata={"delta.generationExpression": "id * 2"}),
    ]
    catalog.create_table("a.t", dl.Schema(fields))
    with catalog.begin() as tx:
        tx.write("a.t", pa.table({"id": [1, 2]}), mode="append")
    table = catalog.table("a.t")
    table.update({"id": "id + 10"}, predicate="id = 2")
    assert sorted(table.to_pyarrow_table().column("double_id").to_pylist()) == [2, 24]
    with pytest.raises(DeltaError, match="double_id"):
        table.update({"double_id": "7"})


# -- in transactions, and beside others


def test_statements_of_a_transaction_see_each_other_and_become_true_together(catalog: dl.Catalog) -> None:
    with catalog.begin() as tx:
        tx.write("a.t", pa.table({"id": range(10)}))
        tx.write("a.u", pa.table({"id": range(10)}))
    with catalog.begin() as tx:
        assert tx.delete("a.t", "id < 3")["num_deleted_rows"] == 3
        assert tx.update("a.t", {"id": "id + 100"}, predicate="id < 5")["num_updated_rows"] == 2
        assert tx.delete("a.u", "id > 100")["num_deleted_rows"] == 0
        tx.update("a.u", new_values={"id": 7}, predicate="id = 1")
        assert catalog.table("a.t").count() == 10
    assert sorted(catalog.table("a.t").to_pyarrow_table().column("id").to_pylist()) == [5, 6, 7, 8, 9, 103, 104]
    assert catalog.table("a.t").version() == 2
    assert catalog.table("a.u").version() == 1


def test_a_transaction_that_is_given_up_leaves_no_file(catalog: dl.Catalog, tmp_path: Path) -> None:
    with catalog.begin() as tx:
        tx.write("a.t", pa.table({"id": range(10)}), properties=VECTORS | FEED)
    before = stored(tmp_path)
    tx = catalog.begin()
    tx.delete("a.t", "id < 3")
    tx.update("a.t", {"id": "0"}, predicate="id = 5")
    tx.rollback()
    assert stored(tmp_path) == before


def test_changes_of_other_rows_do_not_stop_a_delete(catalog: dl.Catalog) -> None:
    with catalog.begin() as tx:
        tx.write("a.t", pa.table({"id": range(10)}))
    mine = catalog.begin()
    mine.delete("a.t", "id < 3")
    with catalog.begin() as tx:
        tx.write("a.t", pa.table({"id": [50]}), mode="append")
    mine.commit()
    assert catalog.table("a.t").count() == 8
    mine = catalog.begin()
    mine.delete("a.t", "id > 40")
    with catalog.begin() as tx:
        tx.write("a.t", pa.table({"id": [60]}), mode="append")
    with pytest.raises(ConcurrentAppendError):
        mine.commit()


def test_what_matched_nothing_is_read_all_the_same(catalog: dl.Catalog) -> None:
    with catalog.begin() as tx:
        tx.write("a.t", pa.table({"id": range(10)}))
        tx.write("a.u", pa.table({"id": [1]}))
    mine = catalog.begin()
    assert mine.delete("a.t", "id > 40")["num_deleted_rows"] == 0
    mine.delete("a.u")
    with catalog.begin() as tx:
        tx.write("a.t", pa.table({"id": [60]}), mode="append")
    with pytest.raises(ConcurrentAppendError):
        mine.commit()


def test_many_files_are_changed_under_a_small_memory_limit(tmp_path: Path) -> None:
    limit = {"data_memory_limit": "200MB", "data_temp_folder": str(tmp_path / "spill")}
    with dl.connect(str(tmp_path / "c.db"), warehouse=str(tmp_path / "lake"), **limit) as catalog:
        rows = pa.table({"id": range(300_000), "s": [f"{i:08}" for i in range(300_000)]})
        with catalog.begin() as tx:
            tx.write("a.t", rows, target_file_size=500_000)
        table = catalog.table("a.t")
        assert len(table.file_uris()) > 2
        assert table.delete("id % 100 = 0")["num_deleted_rows"] == 3000
        assert table.update({"s": "reverse(s)"}, predicate="id % 100 = 1")["num_updated_rows"] == 3000
        assert table.count() == 297_000
        kept = table.to_pyarrow_table(filters="id = 101").column("s").to_pylist()
        assert kept == ["10100000"]


def test_spark_reads_vectors_feed_and_row_ids(spark: SparkSession, catalog: dl.Catalog, tmp_path: Path) -> None:
    properties = {**VECTORS, **FEED, "delta.enableRowTracking": "true"}
    schema = pa.schema([("id", pa.int64()), ("s", pa.string())])
    catalog.create_table("a.t", schema, properties=properties)
    with catalog.begin() as tx:
        tx.write("a.t", pa.table({"id": range(1000), "s": ["x"] * 1000}), mode="append")
    table = catalog.table("a.t")
    table.delete("id % 7 = 3 or id between 100 and 400")
    table.update({"s": "'new'"}, predicate="id in (501, 900)")
    path = str(tmp_path / "lake" / "a" / "t")
    found = spark.read.format("delta").load(path).selectExpr("id", "s", "_metadata.row_id as r").collect()
    assert sorted((row["id"], row["s"]) for row in found) == sorted(
        (row["id"], row["s"]) for row in table.to_pyarrow_table().to_pylist()
    )
    assert all(row["r"] == row["id"] for row in found)
    feed = spark.read.format("delta").option("readChangeFeed", "true").option("startingVersion", 2).load(path)
    counts = {row["_change_type"]: row["count"] for row in feed.groupBy("_change_type").count().collect()}
    gone = sum(1 for i in range(1000) if i % 7 == 3 or 100 <= i <= 400)
    assert counts == {"delete": gone, "update_preimage": 2, "update_postimage": 2}


def test_row_groups_without_a_matching_row_are_skipped(catalog: dl.Catalog) -> None:
    rows = pa.table({"id": range(10_000), "s": [f"{i:05}" for i in range(10_000)]})
    with catalog.begin() as tx:
        properties = dl.WriterProperties(max_row_group_size=1000)
        tx.write("a.t", rows, properties=VECTORS | FEED, writer_properties=properties)
    table = catalog.table("a.t")
    assert table.update({"s": "'new'"}, predicate="id in (1500, 1999, 2000, 7001)")["num_updated_rows"] == 4
    assert table.delete("id in (0, 1501, 9999)")["num_deleted_rows"] == 3
    found = dict(zip(*(table.to_pyarrow_table()[name].to_pylist() for name in ("id", "s")), strict=True))
    assert {key for key, value in found.items() if value == "new"} == {1500, 1999, 2000, 7001}
    assert len(found) == 9997
    assert all(value == f"{key:05}" for key, value in found.items() if value != "new")


def test_an_update_that_fails_halfway_leaves_no_file_and_the_transaction_open(
    catalog: dl.Catalog, tmp_path: Path
) -> None:
    with catalog.begin() as tx:
        tx.write("a.t", pa.table({"id": range(4), "s": ["1", "2", "x", "3"]}), properties=FEED)
    before = stored(tmp_path)
    with catalog.begin() as tx:
        with pytest.raises(DeltaError, match="'x'"):
            tx.update("a.t", {"id": "cast(s as bigint)"})
        assert stored(tmp_path) == before
        tx.update("a.t", {"id": "cast(s as bigint)"}, predicate="s <> 'x'")
    assert sorted(catalog.table("a.t").to_pyarrow_table()["id"].to_pylist()) == [1, 2, 2, 3]
