"""Merges on tables with more than plain rows: deletion vectors, change data, mapped, generated and computed columns,
and merges inside transactions."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import deltalakedb as dl
from deltalakedb.exceptions import ConcurrentAppendError
from tests.api.both import Both, Library

BASE = {"id": [1, 2, 3, 4], "v": ["a", "b", "c", "d"], "n": [10, 20, 30, 40]}
SOURCE = pa.table({"id": [1, 2, 9], "v": ["x", "y", "z"], "n": [1, 2, 3]})
ON = "t.id = s.id"
FEED = {"delta.enableChangeDataFeed": "true"}
VECTORS = {"delta.enableDeletionVectors": "true"}


@pytest.fixture
def catalog(tmp_path: Path) -> Any:
    with dl.connect(str(tmp_path / "catalog.db"), warehouse=str(tmp_path / "lake")) as opened:
        yield opened


def make(catalog: Any, rows: Any = BASE, name: str = "m.t", **options: Any) -> Any:
    with catalog.begin() as tx:
        tx.write(name, pa.table(rows), mode="append", **options)
    return catalog.table(name)


def merging(table: Any, source: pa.Table = SOURCE, on: str = ON, **options: Any) -> Any:
    return table.merge(source, on, source_alias="s", target_alias="t", **options)


def values(table: Any, key: str = "id", value: str = "v") -> dict[Any, Any]:
    return {row[key]: row[value] for row in table.to_pyarrow_table().to_pylist()}


def everything(merger: Any) -> Any:
    """Rows updated, deleted and inserted, and one that no row of the source matches."""
    return (
        merger.when_matched_update_all("s.n = 1")
        .when_matched_delete()
        .when_not_matched_insert_all()
        .when_not_matched_by_source_update({"v": "'gone'"}, "t.n = 30")
        .execute()
    )


AFTER = {1: "x", 3: "gone", 4: "d", 9: "z"}


def changes_of(lib: Library) -> pa.Table:
    feed = pa.RecordBatchReader.from_stream(lib.table().load_cdf(starting_version=1)).read_all()
    return feed.drop_columns(["_commit_timestamp"])


# -- change data feed


def test_the_change_data_feed_is_that_of_deltalake(both: Both) -> None:
    both.seed(BASE, configuration=FEED)

    def run(lib: Library) -> None:
        everything(merging(lib.table()))
        merging(lib.table(), SOURCE.slice(0, 1)).when_not_matched_by_source_delete("t.id = 4").execute()
        merging(lib.table(), pa.table({"id": [50], "v": ["new"], "n": [0]})).when_not_matched_insert_all().execute()
        twice = pa.concat_tables([SOURCE.slice(0, 1), SOURCE.slice(0, 1)])
        merging(lib.table(), twice).when_matched_delete().execute()

    both.same(run)
    both.same_rows()
    both.same(changes_of)


def test_the_feed_of_a_partitioned_table_is_that_of_deltalake(both: Both) -> None:
    both.seed(BASE, partition_by=["v"], configuration=FEED)
    both.same(lambda lib: everything(merging(lib.table())))
    both.same(changes_of)


# -- deletion vectors


def test_deletion_vectors_leave_the_files_where_they_are(catalog: Any) -> None:
    table = make(catalog, properties=VECTORS)
    before = table.file_uris()
    metrics = everything(merging(table))
    assert values(table) == AFTER
    assert set(before) < set(table.file_uris())
    assert (metrics["num_target_rows_copied"], metrics["num_target_files_removed"]) == (0, 0)
    assert table.get_add_actions().num_rows == 2


def test_a_second_merge_adds_to_the_vectors(catalog: Any) -> None:
    table = make(catalog, properties={**VECTORS, **FEED})
    everything(merging(table))
    merging(table, pa.table({"id": [4, 9], "v": ["D", "Z"], "n": [0, 0]})).when_matched_update_all().execute()
    assert values(table) == {1: "x", 3: "gone", 4: "D", 9: "Z"}
    feed = pa.RecordBatchReader.from_stream(table.load_cdf(starting_version=2)).read_all()
    assert sorted(feed.column("_change_type").to_pylist()) == ["update_postimage"] * 2 + ["update_preimage"] * 2


def test_a_file_all_of_whose_rows_go_is_removed(catalog: Any) -> None:
    table = make(catalog, properties=VECTORS)
    metrics = merging(table, SOURCE.slice(0, 0)).when_not_matched_by_source_delete().execute()
    assert (metrics["num_target_files_removed"], metrics["num_target_rows_deleted"]) == (1, 4)
    assert table.file_uris() == []


def test_unmodified_readers_read_what_was_merged(both: Both) -> None:
    both.seed(BASE, {"id": [5], "v": ["e"], "n": [50]}, configuration=FEED)
    everything(merging(both.ours.table()))
    both.mirror_agrees()


# -- columns that are more than their values


def test_mapped_columns_are_merged_and_added_by_their_names(catalog: Any) -> None:
    table = make(catalog, {**BASE, "s": [{"a": n} for n in range(4)]}, properties={"delta.columnMapping.mode": "name"})
    source = SOURCE.append_column("s", pa.array([{"a": 7}] * 3)).append_column("extra", pa.array([1, 2, 3]))
    merging(table, source, merge_schema=True).when_matched_update_all().when_not_matched_insert_all().execute()
    assert values(table) == {1: "x", 2: "y", 3: "c", 4: "d", 9: "z"}
    assert values(table, value="extra") == {1: 1, 2: 2, 3: None, 4: None, 9: 3}
    assert values(table, value="s")[9] == {"a": 7}
    names = [field.metadata["delta.columnMapping.physicalName"] for field in table.schema().fields]
    assert len(set(names)) == 5
    assert not set(names) & {"id", "v", "n", "s", "extra"}


def test_fields_added_inside_a_struct_are_null_in_rows_that_stay(catalog: Any) -> None:
    table = make(catalog, {"id": [1, 2], "s": [{"a": 1}, {"a": 3}]})
    source = pa.table({"id": [1, 3], "s": [{"a": 8, "b": 9}, {"a": 1, "b": 2}]})
    merger = merging(table, source, merge_schema=True)
    merger.when_matched_update_all().when_not_matched_insert_all().execute()
    assert values(table, value="s") == {1: {"a": 8, "b": 9}, 2: {"a": 3, "b": None}, 3: {"a": 1, "b": 2}}


def test_generated_columns_follow_the_new_values(catalog: Any) -> None:
    made = {"delta.generationExpression": "n * 2"}
    schema = pa.schema([("id", pa.int64()), ("n", pa.int64()), pa.field("twice", pa.int64(), metadata=made)])
    catalog.create_table("m.g", schema)
    with catalog.begin() as tx:
        tx.write("m.g", pa.table({"id": [1, 2], "n": [5, 6]}), mode="append")
    table = catalog.table("m.g")
    source = pa.table({"id": [1, 9], "n": [50, 90]})
    merging(table, source).when_matched_update_all().when_not_matched_insert_all().execute()
    assert values(table, value="twice") == {1: 100, 2: 12, 9: 180}
    wrong = pa.table({"id": [1], "twice": [7]})
    with pytest.raises(dl.DeltaError, match="twice"):
        merging(table, wrong).when_matched_update({"twice": "s.twice"}).execute()
    assert table.version() == catalog.table("m.g").version() == 2


def test_row_ids_stay_with_the_rows(catalog: Any) -> None:
    table = make(catalog, properties={"delta.enableRowTracking": "true"})
    column = table.metadata().configuration["delta.rowTracking.materializedRowIdColumnName"]
    everything(merging(table))
    assert values(table) == AFTER
    (file,) = table.file_uris()
    rows = pq.read_table(file).to_pylist()
    # the ids that the rows had in their first file; a row that is new gets one from its new file
    assert {row["id"]: row[column] for row in rows} == {1: 0, 3: 2, 4: 3, 9: None}


# -- which files are read


@contextmanager
def away(table: Any, *, but: set[int]) -> Iterator[None]:
    """Only the files in which one of these ids is can be read."""
    gone = [path for path in table.file_uris() if not but & set(pq.read_table(path)["id"].to_pylist())]
    for path in gone:
        os.rename(path, f"{path}.away")
    try:
        yield
    finally:
        for path in gone:
            os.rename(f"{path}.away", path)


def test_files_that_no_key_of_the_source_reaches_are_not_looked_at(catalog: Any) -> None:
    table = make(catalog)
    for start in (100, 200):
        with catalog.begin() as tx:
            tx.write("m.t", pa.table({"id": [start, start + 9], "v": ["e", "f"], "n": [1, 2]}), mode="append")
    table.update_incremental()
    before = set(table.file_uris())
    source = pa.table({"id": [100, 300], "v": ["x", "new"], "n": [0, 0]})
    with away(table, but={100}):
        metrics = merging(table, source).when_matched_update_all().when_not_matched_insert_all().execute()
    assert (metrics["num_target_rows_updated"], metrics["num_target_rows_inserted"]) == (1, 1)
    # as in `deltalake`, only the files that the condition excludes without the source count as skipped
    assert (metrics["num_target_files_scanned"], metrics["num_target_files_skipped_during_scan"]) == (3, 0)
    assert len(before & set(table.file_uris())) == 2
    many = pa.table({"id": range(1000, 4000), "v": ["x"] * 3000, "n": [0] * 3000})
    with away(table, but=set()):
        assert merging(table, many).when_matched_update_all().execute()["num_target_rows_updated"] == 0


def test_many_keys_leave_out_the_files_in_the_gaps_between_them(catalog: Any) -> None:
    table = make(catalog)
    for start in (10_000, 20_000, 30_000):
        with catalog.begin() as tx:
            tx.write("m.t", pa.table({"id": [start, start + 9], "v": ["e", "f"], "n": [1, 2]}), mode="append")
    table.update_incremental()
    ids = [1, 2, *range(20_000, 22_000), 30_009]
    source = pa.table({"id": ids, "v": ["x"] * len(ids), "n": [0] * len(ids)})
    with away(table, but={1, 20_000, 30_000}):
        assert merging(table, source).when_matched_update_all().execute()["num_target_rows_updated"] == 5


def test_an_update_of_every_column_does_not_need_what_the_row_was(catalog: Any) -> None:
    table = make(catalog, properties={"delta.enableDeletionVectors": "true"})
    (file,) = table.file_uris()
    source = pa.table({"id": [1, 2], "v": ["x", "y"], "n": [7, 8]})
    merging(table, source).when_matched_update_all().execute()
    assert values(table) == {1: "x", 2: "y", 3: "c", 4: "d"}
    assert file in table.file_uris()


def test_clauses_without_a_match_look_at_what_their_predicates_reach(catalog: Any) -> None:
    table = make(catalog, partition_by=["v"])
    with away(table, but={1, 2, 4}):  # the source's keys, and the partition d
        metrics = merging(table, SOURCE).when_not_matched_by_source_delete("t.v = 'd'").execute()
    assert metrics["num_target_rows_deleted"] == 1
    assert values(table) == {1: "a", 2: "b", 3: "c"}


KEYS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "byte": (pa.int8(), [-128, 0, 127]),
    "long": (pa.int64(), [-(2**63), 5, 2**63 - 1]),
    "double": (pa.float64(), [-0.5, 0.1, float("inf")]),
    "float": (pa.float32(), [0.1, 0.25, 1e30]),
    "decimal": (pa.decimal128(38, 4), [Decimal("-1.0001"), Decimal(0), Decimal("9" * 30)]),
    "string": (pa.string(), ["", "Ärger", "\U0001f600" * 40]),
    "boolean": (pa.bool_(), [False, True, None]),
    "binary": (pa.binary(), [b"", b"\x00", b"\xff"]),
    "date": (pa.date32(), [date(1, 1, 1), date(1970, 1, 1), date(9999, 12, 31)]),
    "timestamp": (
        pa.timestamp("us", "UTC"),
        [datetime(1900, 1, 1, tzinfo=UTC), datetime(2026, 1, 1, 5, tzinfo=UTC), None],
    ),
    "timestamp_ntz": (pa.timestamp("us"), [datetime(1, 1, 1), datetime(2026, 1, 1, 5, 6, 7, 8), None]),
}


@pytest.mark.parametrize("kind", KEYS)
def test_keys_of_every_type_find_their_rows(both: Both, kind: str) -> None:
    """One file a row: a file left out by mistake would be a row inserted beside itself."""
    arrow, found = KEYS[kind]
    schema = pa.schema([("id", arrow), ("v", pa.int64())])
    both.seed(*[pa.table({"id": [key], "v": [0]}, schema=schema) for key in found])
    source = pa.table({"id": found, "v": [1] * len(found)}, schema=schema)
    both.same(lambda lib: upsert(merging(lib.table(), source)))
    both.same_rows()
    both.same(lambda lib: upsert(merging(lib.table(), source.slice(1, 1))))
    both.same_rows()


def test_a_key_that_is_no_number_finds_its_row(catalog: Any) -> None:
    nan = float("nan")
    table = make(catalog, {"id": [1.0, nan], "v": ["a", "b"]})
    with catalog.begin() as tx:
        tx.write("m.t", pa.table({"id": [nan], "v": ["c"]}), mode="append")
    table.update_incremental()
    metrics = upsert(merging(table, pa.table({"id": [nan, 2.0], "v": ["x", "y"]}), "t.id = s.id and t.id > 1.5"))
    assert (metrics["num_target_rows_updated"], metrics["num_target_rows_inserted"]) == (2, 1)
    assert sorted(table.to_pyarrow_table().column("v").to_pylist()) == ["a", "x", "x", "y"]


def upsert(merger: Any) -> Any:
    return merger.when_matched_update_all().when_not_matched_insert_all().execute()


def test_many_files_are_rewritten_at_a_time(both: Both, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deltalakedb.operations.merge_writing._UNIT_BYTES", 1)
    parts = [{"id": [n * 10 + i for i in range(10)], "v": ["a"] * 10, "n": list(range(10))} for n in range(8)]
    both.seed(*parts, configuration=FEED)
    source = pa.table({"id": [n * 10 + 3 for n in range(12)], "v": ["x"] * 12, "n": [0] * 12})
    both.same(lambda lib: upsert(merging(lib.table(), source)))
    both.same_rows()
    both.same(changes_of)


def test_a_source_that_fails_leaves_nothing_behind(catalog: Any, tmp_path: Path) -> None:
    table = make(catalog)

    def batches() -> Iterator[pa.RecordBatch]:
        yield SOURCE.to_batches()[0]
        raise OSError("the line is dead")

    source = pa.RecordBatchReader.from_batches(SOURCE.schema, batches())
    with pytest.raises(OSError, match="the line is dead"):
        upsert(merging(table, source))
    assert table.version() == catalog.table("m.t").version() == 0
    assert len(list((tmp_path / "lake").rglob("*.parquet"))) == 1


# -- transactions


def test_a_merge_in_a_transaction_sees_what_came_before_it(catalog: Any) -> None:
    make(catalog)
    with catalog.begin() as tx:
        tx.write("m.other", pa.table({"id": [1]}), mode="append")
        tx.delete("m.t", "id = 1")
        merger = tx.merge("m.t", SOURCE, ON, source_alias="s", target_alias="t")
        metrics = merger.when_matched_update_all().when_not_matched_insert_all().execute()
        assert (metrics["num_target_rows_updated"], metrics["num_target_rows_inserted"]) == (1, 2)
        assert values(tx.table("m.t")) == {1: "x", 2: "y", 3: "c", 4: "d", 9: "z"}
        assert values(catalog.table("m.t"))[2] == "b"
    assert values(catalog.table("m.t")) == {1: "x", 2: "y", 3: "c", 4: "d", 9: "z"}
    assert tx.result == {"m.other": 0, "m.t": 2}


def test_a_failed_merge_leaves_nothing_of_itself(catalog: Any, tmp_path: Path) -> None:
    make(catalog)
    files = sorted((tmp_path / "lake").rglob("*.parquet"))
    with catalog.begin() as tx:
        twice = pa.concat_tables([SOURCE, SOURCE])
        with pytest.raises(dl.DeltaError, match="multiple source rows"):
            tx.merge("m.t", twice, ON, source_alias="s", target_alias="t").when_matched_update_all().execute()
        with pytest.raises(dl.DeltaError):
            tx.merge("m.t", SOURCE, ON, "s", "t").when_matched_update({"n": "s.v"}).execute()
    assert sorted((tmp_path / "lake").rglob("*.parquet")) == files
    assert catalog.table("m.t").version() == 0


@pytest.mark.parametrize(("key", "clashes"), [(9, True), (1000, False)])
def test_a_row_appended_meanwhile_clashes_only_where_the_merge_looked(catalog: Any, key: int, clashes: bool) -> None:
    make(catalog)
    tx = catalog.begin()
    tx.merge("m.t", SOURCE, ON, source_alias="s", target_alias="t").when_not_matched_insert_all().execute()
    with catalog.begin() as other:
        other.write("m.t", pa.table({"id": [key], "v": ["other"], "n": [0]}), mode="append")
    if clashes:
        with pytest.raises(ConcurrentAppendError):
            tx.commit()
        assert values(catalog.table("m.t"))[9] == "other"
    else:
        tx.commit()
        assert values(catalog.table("m.t"))[9] == "z"


def test_a_merge_without_effect_still_counts_as_read(catalog: Any) -> None:
    make(catalog)
    tx = catalog.begin()
    tx.merge("m.t", SOURCE.slice(2), ON, source_alias="s", target_alias="t").when_matched_delete().execute()
    tx.write("m.log", pa.table({"said": ["nothing to delete"]}), mode="append")
    with catalog.begin() as other:
        other.write("m.t", pa.table({"id": [9], "v": ["other"], "n": [0]}), mode="append")
    with pytest.raises(ConcurrentAppendError):
        tx.commit()


# -- memory


def test_a_merge_larger_than_its_memory_goes_to_disk(catalog: Any) -> None:
    count = 120_000
    text = "x" * 600
    table = make(catalog, {"id": range(count), "v": [f"{text}{n}" for n in range(count)], "n": range(count)})
    source = pa.table({"id": range(1, count, 2), "v": [f"{text}new{n}" for n in range(1, count, 2)]})
    merger = merging(table, source, max_spill_size=80_000_000)
    metrics = merger.when_matched_update({"v": "s.v"}).when_not_matched_by_source_delete("t.n < 10").execute()
    assert (metrics["num_target_rows_updated"], metrics["num_target_rows_deleted"]) == (count // 2, 5)
    assert metrics["num_output_rows"] == count - 5 == table.count()


def test_a_merge_that_may_not_go_to_disk_says_so(catalog: Any) -> None:
    table = make(catalog, {"id": range(300_000), "v": ["x" * 50 + str(n) for n in range(300_000)]})
    merger = merging(table, table.to_pyarrow_table(), max_spill_size=8_000_000, max_temp_directory_size=1_000_000)
    with pytest.raises(dl.DeltaError):
        merger.when_matched_update_all().execute()
    assert table.version() == 0
