"""Data written by transactions: modes, schemas, partitions, and input that is refused with nothing half done."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import date
from pathlib import Path
from typing import Any

import deltalake
import pandas as pd  # type: ignore[import-untyped]
import polars as pl
import pyarrow as pa
import pytest

from deltalakedb import Catalog, CatalogTransaction, Transaction
from deltalakedb.exceptions import (
    ConfigError,
    DeltaError,
    InvalidCommitError,
    SchemaMismatchError,
    StoreError,
    TableExistsError,
    UnsupportedFeatureError,
)
from deltalakedb.log.protocol.actions import AddFile, AppTransaction, Metadata, Protocol, RemoveFile
from tests.conformance.transacting import (
    add,
    data_files,
    days,
    ids_in,
    numbers,
    open_catalog,
    operations,
    remove,
    row_counts,
)


@pytest.fixture
def catalog(target: str, tmp_path: Path) -> Iterator[Catalog]:
    with open_catalog(target, tmp_path) as opened:
        yield opened


def write(catalog: Catalog, *args: Any, **options: Any) -> CatalogTransaction:
    with catalog.begin() as tx:
        tx.write(*args, **options)
    return tx


# -- modes


def test_the_modes_are_those_of_write_deltalake(catalog: Catalog) -> None:
    assert write(catalog, "t", numbers(1)).result == {"default.t": 0}
    with pytest.raises(TableExistsError, match="mode append or overwrite"):
        write(catalog, "t", numbers(2))
    assert write(catalog, "t", numbers(2), mode="ignore").result == {}
    assert write(catalog, "t", numbers(2), mode="append").result == {"default.t": 1}
    assert ids_in(catalog, "t") == [1, 2]
    assert write(catalog, "t", numbers(3), mode="overwrite").result == {"default.t": 2}
    assert ids_in(catalog, "t") == [3]
    with pytest.raises(ConfigError, match="Invalid save mode provided: replace"):
        write(catalog, "t", numbers(2), mode="replace")


def test_a_write_says_in_its_commit_what_it_did(catalog: Catalog) -> None:
    write(catalog, "t", days((1, "mon"), (2, "tue")), partition_by=["day"], user_info={"job": "nightly"})
    write(catalog, "t", days((3, "mon")), mode="overwrite")
    first, second = reversed(catalog.history("t"))
    assert (first["operation"], first["operationParameters"]["mode"]) == ("WRITE", "ErrorIfExists")
    assert first["operationParameters"]["partitionBy"] == '["day"]'
    assert (first["operationMetrics"]["num_added_rows"], first["job"]) == (2, "nightly")
    assert second["operationParameters"]["mode"] == "Overwrite"
    assert second["operationMetrics"]["num_removed_files"] == 2
    assert operations(catalog, "t") == ["WRITE", "WRITE"]


@pytest.mark.in_turn
@pytest.mark.parametrize(
    "data",
    [
        lambda: pa.table({"id": [1, 2]}),
        lambda: pa.record_batch({"id": [1, 2]}),
        lambda: pa.table({"id": [1, 2]}).to_reader(),
        lambda: pd.DataFrame({"id": [1, 2]}),
        lambda: pl.DataFrame({"id": [1, 2]}),
        lambda: [pa.record_batch({"id": [1]}), pa.record_batch({"id": [2]})],
    ],
    ids=["table", "batch", "reader", "pandas", "polars", "batches"],
)
def test_anything_that_exports_arrow_can_be_written(catalog: Catalog, data: Callable[[], Any]) -> None:
    write(catalog, "t", data())
    assert ids_in(catalog, "t") == [1, 2]


def test_partitioned_data_is_read_back_and_planned_by_its_partitions(catalog: Catalog) -> None:
    rows = {"id": [1, 2, 3], "day": [date(2026, 1, 1), date(2026, 1, 2), None]}
    write(catalog, "t", pa.table(rows), partition_by="day")
    table = catalog.table("t")
    assert table.plan("day = '2026-01-02'").num_files == 1
    assert sorted(table.partitions(), key=str) == [{"day": "2026-01-01"}, {"day": "2026-01-02"}, {"day": None}]
    assert table.to_pyarrow_table(filters=[("day", "=", date(2026, 1, 1))]).to_pylist() == [
        {"id": 1, "day": date(2026, 1, 1)}
    ]
    assert table.to_pandas(columns=["id"], filters="day is null")["id"].to_list() == [3]
    judged = deltalake.DeltaTable(table.table_uri).to_pyarrow_table().sort_by("id").to_pylist()
    assert judged == table.to_pyarrow_table().sort_by("id").to_pylist()
    with pytest.raises(SchemaMismatchError, match=r'expected: \["day"\], got: \["id"\].*default\.t'):
        write(catalog, "t", pa.table(rows), mode="append", partition_by="id")


def test_exactly_once_across_processes_by_application_transactions(catalog: Catalog) -> None:
    with catalog.begin() as tx:
        tx.write("t", numbers(1), app_transactions=[Transaction("loader", 5)])
    assert catalog.table("t").transaction_version("loader") == 5
    with pytest.raises(DeltaError, match="loader is at version 5 already"):
        write(catalog, "t", numbers(1), mode="append", app_transactions=[AppTransaction("loader", 5)])
    assert ids_in(catalog, "t") == [1]


def test_an_empty_write_is_a_version_without_files(catalog: Catalog) -> None:
    write(catalog, "t", numbers(1))
    assert write(catalog, "t", numbers(), mode="overwrite").result == {"default.t": 1}
    assert (ids_in(catalog, "t"), catalog.table("t").totals().num_files) == ([], 0)


def test_a_table_written_over_deletion_vectors_removes_them_by_their_keys(catalog: Catalog, tmp_path: Path) -> None:
    """A file with a deletion vector is live under (path, vector): a remove of the path alone would leave it."""
    place = tmp_path / "dv"
    catalog.create_table("t", "id long", location=place, properties={"delta.enableDeletionVectors": True})
    from deltalakedb.log.protocol.actions import DeletionVector

    vector = DeletionVector("i", "wi5b=000010000siXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L", 40, 1)
    with catalog.begin() as tx:
        tx.commit_actions("t", [AddFile("x", {}, 10, 0, True, '{"numRecords":5}', deletion_vector=vector)])
    with catalog.begin() as tx:
        tx.write("t", numbers(7), mode="overwrite")
        assert tx.table("t").count() == 1
    assert ids_in(catalog, "t") == [7]


# -- refused


SCHEMA_MISMATCHES = [
    pa.table({"other": ["x"]}),
    pa.table({"id": ["no number"]}),
    pa.table({"id": [1], "day": ["mon"], "extra": [1]}),
    pa.table({"id": pa.array([[1]], pa.list_(pa.int64())), "day": ["mon"]}),
]


@pytest.mark.parametrize("data", SCHEMA_MISMATCHES, ids=["unknown column", "text", "extra column", "list"])
def test_data_that_does_not_fit_is_refused_and_leaves_no_file(catalog: Catalog, tmp_path: Path, data: pa.Table) -> None:
    write(catalog, "t", days((1, "mon")))
    before, files = row_counts(catalog), data_files(tmp_path)
    with pytest.raises(SchemaMismatchError):
        write(catalog, "t", data, mode="append")
    assert (row_counts(catalog), data_files(tmp_path)) == (before, files)


def test_an_interrupt_in_the_middle_of_the_data_leaves_no_file(catalog: Catalog, tmp_path: Path) -> None:
    write(catalog, "t", days((1, "mon")), partition_by="day")
    before, files = row_counts(catalog), data_files(tmp_path)
    schema = pa.schema([("id", pa.int64()), ("day", pa.string())])

    def batches() -> Iterator[pa.RecordBatch]:
        for number in range(3):
            yield pa.record_batch([[number], [f"day {number}"]], schema=schema)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write(catalog, "t", pa.RecordBatchReader.from_batches(schema, batches()), mode="append", target_file_size=1)
    assert (row_counts(catalog), data_files(tmp_path)) == (before, files)


def test_null_in_a_column_that_must_not_be_null_is_refused(catalog: Catalog, tmp_path: Path) -> None:
    catalog.create_table("t", "id long not null")
    with pytest.raises(SchemaMismatchError, match="id"):
        write(catalog, "t", pa.table({"id": pa.array([None], pa.int64())}), mode="append")
    assert data_files(tmp_path) == []


def test_tables_whose_rules_we_do_not_evaluate_are_not_written_by_us(catalog: Catalog) -> None:
    catalog.create_table("t", "id long, v variant")
    with pytest.raises(UnsupportedFeatureError, match="variantType"):
        write(catalog, "t", numbers(1), mode="append", schema_mode="merge")
    with catalog.begin() as tx:
        tx.commit_actions("t", [add("by-spark.parquet")])
    assert tx.result == {"default.t": 1}, "finished files are welcome"


def test_an_append_only_table_keeps_its_rows(catalog: Catalog) -> None:
    catalog.create_table("t", "id long", properties={"delta.appendOnly": True})
    write(catalog, "t", numbers(1), mode="append")
    with pytest.raises(InvalidCommitError, match="append-only"):
        write(catalog, "t", numbers(2), mode="overwrite")
    (path,) = catalog.table("t").files(["path"]).column("path").to_pylist()
    with pytest.raises(InvalidCommitError, match=r"default\.t"), catalog.begin() as tx:
        tx.commit_actions("t", [remove(path)], read=[path])
    assert ids_in(catalog, "t") == [1]


def metadata_of(catalog: Catalog, **changes: Any) -> Metadata:
    from dataclasses import replace

    with catalog.begin() as tx:
        snapshot = tx._drafts.get("t").snapshot()
    return replace(snapshot.metadata, **changes)


def of(*actions: Any) -> Callable[[Catalog], list[Any]]:
    return lambda _catalog: list(actions)


BAD_ACTIONS: list[tuple[str, Callable[[Catalog], list[Any]]]] = [
    ("two adds of one path", of(add("x", day="mon"), add("x", day="mon"))),
    ("an add and a remove of one path", of(add("x", day="mon"), remove("x", day="mon"))),
    ("a remove of an unknown file", of(remove("nobody", day="mon"))),
    ("no partition value", of(add("x"))),
    ("a wrong partition key", of(AddFile("x", {"week": "1"}, 1, 0, True))),
    ("an escaping path", of(add("../../etc/passwd", day="mon"))),
    ("a negative size", of(AddFile("x", {"day": "mon"}, -1, 0, True))),
    ("two metaData", lambda c: [metadata_of(c, name="a"), metadata_of(c, name="b")]),
    ("a feature that the protocol does not list", lambda c: [
        metadata_of(c, configuration={"delta.enableDeletionVectors": "true"})
    ]),
    ("another table's id", lambda c: [metadata_of(c, id="somebody-else")]),
    ("a schema that is none", lambda c: [metadata_of(c, schema_string="{")]),
    ("partition columns that do not exist", lambda c: [metadata_of(c, partition_columns=("week",))]),
    ("a protocol with features but an old version", of(Protocol(1, 2, None, ("appendOnly",)))),
    ("two txn actions of one application", of(AppTransaction("a", 1), AppTransaction("a", 2))),
    ("an unknown feature", of(Protocol(3, 7, ("dance",), ("dance",)))),
    ("a remove of a file that lives elsewhere", of(RemoveFile("file:///etc/passwd", True))),
]  # fmt: skip


@pytest.mark.in_turn
@pytest.mark.parametrize("actions", [case[1] for case in BAD_ACTIONS], ids=[case[0] for case in BAD_ACTIONS])
def test_actions_that_break_the_protocol_are_refused_with_nothing_done(
    catalog: Catalog, tmp_path: Path, actions: Callable[[Catalog], list[Any]]
) -> None:
    catalog.create_table("t", "id long, day string", partition_by="day")
    catalog.create_table("innocent", "id long")
    proposed = actions(catalog)
    before = row_counts(catalog)
    tx = catalog.begin()
    tx.write("innocent", numbers(1), mode="append")
    tx.commit_actions("t", proposed)
    with pytest.raises(DeltaError, match=r"default\.t") as caught:
        tx.commit()
    assert not isinstance(caught.value, StoreError), caught.value
    assert row_counts(catalog) == before
    assert data_files(tmp_path) == []


def test_what_was_read_must_be_understood(catalog: Catalog) -> None:
    catalog.create_table("t", "id long")
    with pytest.raises(InvalidCommitError, match="a list of paths"), catalog.begin() as tx:
        tx.commit_actions("t", [add("x")], read=[1])
    with pytest.raises(DeltaError, match="nothing"), catalog.begin() as tx:
        tx.commit_actions("t", [add("x")], read="nothing > 1")
    with pytest.raises(ConfigError, match="at least one action"), catalog.begin() as tx:
        tx.commit_actions("t", [])
    with pytest.raises(TypeError, match="cannot take data"), catalog.begin() as tx:
        tx.write("t", {"id": [1]}, mode="append")


@pytest.mark.in_turn
@pytest.mark.parametrize(
    ("schema", "partition_by", "match"),
    [
        ("id long, ID string", (), "Duplicate field name"),
        ("id long", "week", "Partition column 'week' not found"),
        ("id long, s struct<a: long>", "s", "which is struct"),
        ("id long, day date", ["day", "day"], "Duplicate partition column"),
        ("id lonk", (), "the type 'lonk'"),
        ('{"type":"struct","fields":[]}', (), "At least one column"),
        ('{"type":"nonsense"}', (), "schemaString"),
    ],
)
def test_a_table_that_cannot_be_is_not_created(
    catalog: Catalog, tmp_path: Path, schema: str, partition_by: Any, match: str
) -> None:
    before = row_counts(catalog)
    with pytest.raises(DeltaError, match=match):
        catalog.create_table("t", schema, partition_by)
    assert row_counts(catalog) == before
    assert not (tmp_path / "lake").exists()


def test_a_folder_that_cannot_be_written_is_said_and_nothing_is_committed(catalog: Catalog, tmp_path: Path) -> None:
    catalog.create_table("t", "id long")
    before = row_counts(catalog)
    folder = tmp_path / "lake/default/t"
    folder.rename(tmp_path / "aside")
    folder.write_text("not a folder")
    with pytest.raises(DeltaError, match="cannot write"):
        write(catalog, "t", numbers(1), mode="append")
    assert row_counts(catalog) == before
