"""Polars, DuckDB, pandas and PyArrow on our tables, in the ways that the docs show."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import deltalake
import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pa_fs
import pytest

import deltalakedb as dl
import deltalakedb.polars as dlp
from deltalakedb.fs import DeltaStorageHandler
from tests.api.both import Both

ROWS = {"id": [1, 2, 3, 4], "kind": ["a", "a", "b", None], "price": [1.5, 2.5, 3.5, None]}


@pytest.fixture
def seeded(anywhere: Both) -> Both:
    anywhere.ours.seed([pa.table(ROWS)], ["kind"], {})
    return anywhere


def test_polars_scans_and_reads_a_table(seeded: Both) -> None:
    table = seeded.ours.table()
    assert dlp.scan_delta(table).filter(pl.col("kind") == "b").select("id").collect().rows() == [(3,)]
    assert dlp.scan_delta(table).filter(pl.col("price") > 2).collect().height == 2
    assert dlp.read_delta(seeded.ours.uri, columns=["id"]).sort("id")["id"].to_list() == [1, 2, 3, 4]
    assert dlp.read_delta(table, version=0).height == 0
    assert table.version() == 1
    lazily = pl.scan_pyarrow_dataset(table.lazy_dataset()).filter(pl.col("id") == 2).collect()
    assert lazily.rows() == [(2, "a", 2.5)]
    assert pl.DataFrame(table).height == 4


def test_polars_writes_and_merges_into_a_table(seeded: Both) -> None:
    table = seeded.ours.table()
    new = pl.DataFrame({"id": [5], "kind": ["c"], "price": [1.0]})
    dlp.write_delta(new, table, mode="append")
    assert table.version() == 2
    new.write_delta(table, mode="append")  # Polars' own
    assert table.version() == 3
    matching = {"predicate": "s.id = t.id", "source_alias": "s", "target_alias": "t"}
    merger = dlp.write_delta(new.with_columns(price=9.0), table, mode="merge", delta_merge_options=matching)
    assert merger is not None
    merger.when_matched_update_all().execute()
    assert dlp.read_delta(seeded.ours.uri).filter(id=5)["price"].to_list() == [9.0, 9.0]
    with pytest.raises(ValueError, match="delta_merge_options"):
        dlp.write_delta(new, table, mode="merge")


def test_polars_own_functions_take_our_tables(seeded: Both) -> None:
    table = seeded.ours.table()
    assert pl.scan_delta(table).filter(pl.col("price") > 2).select("id").collect()["id"].sort().to_list() == [2, 3]
    assert pl.read_delta(table).height == 4
    table.load_as_version(0)
    assert pl.read_delta(table).height == 0
    assert [isinstance(table, kind) for kind in (dl.DeltaTable, deltalake.DeltaTable)] == [True, True]


def test_polars_own_functions_find_nan_in_files_of_deltalake(tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    deltalake.write_deltalake(path, pa.table({"x": [1.0, float("nan")]}))
    table: Any = dl.DeltaTable(path)
    assert "max" not in pl.DataFrame(_asked_by_polars(table)).columns
    assert "max" in pl.DataFrame(table.get_add_actions()).columns
    assert pl.scan_delta(table).filter(pl.col("x") > 5).collect().height == 1


def _asked_by_polars(table: dl.DeltaTable) -> Any:
    """The add actions that a function of Polars is given."""
    return eval("table.get_add_actions()", {"table": table, "__name__": "polars.io.delta"})


def test_polars_does_not_look_for_partition_values_where_they_are_not(tmp_path: Path) -> None:
    path = tmp_path / "t"
    dl.write_deltalake(str(path), pa.table({"id": [1], "kind": ["a"]}), partition_by=["kind"])
    (file,) = path.glob("kind=a/*.parquet")
    size = file.stat().st_size
    moved = dl.transaction.AddAction("moved.parquet", size, {"kind": "b"}, 0, True, '{"numRecords": 1}')
    file.rename(path / "moved.parquet")
    table: Any = dl.DeltaTable(str(path))
    table.create_write_transaction([moved], "overwrite", table.schema(), ["kind"])
    table.update_incremental()
    with pytest.raises(Exception, match=r"not in its path.*deltalakedb\.polars"):
        pl.scan_delta(table).collect()
    assert dlp.read_delta(table).rows() == [(1, "b")]


def test_polars_reads_mapped_columns_and_deleted_rows(both: Both) -> None:
    mapping = {"delta.columnMapping.mode": "name"}
    both.ours.seed([pa.table(ROWS)], ["kind"], mapping)
    assert dlp.scan_delta(both.ours.table()).filter(pl.col("kind") == "b").collect().rows() == [(3, "b", 3.5)]
    vectors = both.other("vectors")
    vectors.ours.seed([pa.table(ROWS)], [], {"delta.enableDeletionVectors": "true"})
    vectors.ours.table().delete("id = 2")
    assert dlp.read_delta(vectors.ours.uri)["id"].to_list() == [1, 3, 4]


def test_duckdb_hands_columns_and_filters_to_the_plan(both: Both) -> None:
    both.ours.seed([pa.table({"id": [n], "text": [f"row {n}"]}) for n in range(5)], [], {})
    table = both.ours.table()
    (wanted,) = table.file_uris(file_pruning_predicate="id = 3")
    for path in set(table.file_uris()) - {wanted}:
        Path(path).unlink()
    t = table.lazy_dataset()
    assert t.schema.names == ["id", "text"]
    assert duckdb.sql("select text from t where id = 3").fetchall() == [("row 3",)]
    with duckdb.connect() as connection:
        connection.register("orders", table.lazy_dataset())
        assert connection.sql("from orders where id between 3 and 3").fetchall() == [(3, "row 3")]


def test_duckdb_and_pyarrow_read_a_table_as_it_is(seeded: Both) -> None:
    t = seeded.ours.table()
    assert duckdb.sql("select count(*), sum(id) from t").fetchall() == [(4, 10)]
    assert pa.table(t).sort_by("id").column("id").to_pylist() == [1, 2, 3, 4]


def test_a_lazy_dataset_is_a_dataset(seeded: Both) -> None:
    dataset = seeded.ours.table().lazy_dataset()
    assert dataset.count_rows() == 4
    assert dataset.to_table(columns=["id"], filter=pc.field("id") > 2).num_rows == 2
    assert dataset.to_table(columns={"twice": pc.field("id") * 2}).column_names == ["twice"]
    assert len(list(dataset.get_fragments())) == 3
    assert dataset.head(1).num_rows == 1
    assert sum(batch.num_rows for batch in dataset.to_batches(columns=["price"])) == 4
    assert dataset.filter(pc.field("id") == 1).to_table().num_rows == 1
    assert dataset.sort_by("id").to_table().column("id").to_pylist() == [1, 2, 3, 4]


def test_the_storage_handler_reads_and_writes_below_the_table(seeded: Both) -> None:
    files = pa_fs.PyFileSystem(DeltaStorageHandler.from_table(seeded.ours.table()))
    with files.open_output_stream("notes/a.txt") as stream:
        stream.write(b"words")
    assert files.open_input_file("notes/a.txt").read() == b"words"
    files.copy_file("notes/a.txt", "notes/b.txt")
    files.move("notes/b.txt", "notes/c.txt")
    found = files.get_file_info(pa_fs.FileSelector("notes"))
    assert sorted((info.base_name, info.size) for info in found) == [("a.txt", 5), ("c.txt", 5)]
    files.delete_dir("notes")
    assert files.get_file_info("notes/a.txt").type == pa_fs.FileType.NotFound
    assert files.handler.equals(DeltaStorageHandler(str(seeded.ours.folder)))
    assert files != pa_fs.PyFileSystem(DeltaStorageHandler(str(seeded.ours.folder))), "as in deltalake"


def test_what_others_ask_behind_a_table(seeded: Both) -> None:
    """Polars reads the sizes of files there, scripts the place."""
    table = seeded.ours.table()
    raw = table._table
    assert (raw.table_uri(), raw.version(), raw.get_latest_version()) == (table.table_uri, 1, 1)
    assert raw.schema == table.schema()
    sizes = {f"{seeded.ours.folder}/{path}": size for path, size in raw.get_add_file_sizes().items()}
    assert sizes == {path: Path(path).stat().st_size for path in table.file_uris()}
