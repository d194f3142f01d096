"""write_deltalake, the same calls on both libraries: modes, schemas, predicates, rules, what history says."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import deltalakedb as dl
from deltalakedb.exceptions import TableExistsError
from tests.api.both import Both, Library

ROWS = {"id": [1, 2, 3], "day": ["mon", "tue", "mon"]}
MORE = {"id": [4], "day": ["wed"]}


def write(both: Both, data: Any, **arguments: Any) -> None:
    both.write(data, **arguments)
    both.same_rows()
    both.same_version()


def test_every_mode_does_the_same(everywhere: Both) -> None:
    write(everywhere, ROWS)
    write(everywhere, MORE, mode="append")
    write(everywhere, MORE, mode="ignore")
    everywhere.fails(lambda lib: lib.write(MORE))
    everywhere.fails(lambda lib: lib.write(MORE, mode="nosuch"))
    write(everywhere, MORE, mode="overwrite")
    everywhere.same_schema()
    assert [entry["operation"] for entry in everywhere.same_history()] == ["WRITE"] * 3


def test_each_mode_creates_a_table_that_is_not_there(both: Both) -> None:
    for number, mode in enumerate(("error", "append", "overwrite", "ignore")):
        other = both.other(f"new{number}")
        other.write(ROWS, mode=mode)
        assert other.same_rows().num_rows == 3


def test_rows_for_a_table_that_another_writer_creates_meanwhile_are_appended(everywhere: Both) -> None:
    ours = everywhere.ours

    class Data:
        """The other writer is faster when these rows are read for the first time."""

        is_read = False

        def __arrow_c_stream__(self, requested_schema: object = None) -> object:
            if not self.is_read:
                self.is_read = True
                ours.write(ROWS, mode="append")
            return pa.table(MORE).__arrow_c_stream__(requested_schema)

    ours.module.write_deltalake(ours.uri, Data(), mode="append")
    assert ours.table().version() == 1
    assert sorted(ours.table().to_pyarrow_table()["id"].to_pylist()) == [1, 2, 3, 4]


def test_a_stream_for_a_table_that_another_writer_creates_meanwhile_is_refused_in_a_catalog(both: Both) -> None:
    def batches() -> Iterator[pa.RecordBatch]:
        both.ours.write(ROWS, mode="append")
        yield from pa.table(MORE).to_batches()

    stream = pa.RecordBatchReader.from_batches(pa.table(MORE).schema, batches())
    with pytest.raises(TableExistsError):  # its rows are gone: they cannot be written a second time
        both.ours.module.write_deltalake(both.ours.uri, stream, mode="append")
    assert both.ours.table().count() == 3


def test_partitions_are_made_and_kept(anywhere: Both) -> None:
    write(anywhere, ROWS, partition_by="day")
    write(anywhere, MORE, mode="append", partition_by=["day"])
    write(anywhere, MORE, mode="append")
    anywhere.same(lambda lib: lib.table().metadata().partition_columns, exactly=True)
    anywhere.same(lambda lib: sorted(map(str, lib.table().partitions())), exactly=True)
    for arguments in ({"mode": "append"}, {"mode": "overwrite"}):
        anywhere.fails(lambda lib, arguments=arguments: lib.write(MORE, partition_by=["id"], **arguments))  # type: ignore[misc]  # a default binds the loop
    anywhere.mirror_agrees()


def test_wrong_columns_are_refused_and_nothing_is_written(anywhere: Both) -> None:
    write(anywhere, ROWS)
    for data in (
        {"id": [4]},
        {**MORE, "more": [1]},
        {"id": [4], "nosuch": ["x"]},
        {"id": ["no number"], "day": ["x"]},
    ):
        anywhere.fails(lambda lib, data=data: lib.write(data, mode="append"))  # type: ignore[misc]  # a default binds the loop
        anywhere.fails(lambda lib, data=data: lib.write(data, mode="overwrite"))  # type: ignore[misc]  # a default binds the loop
    assert anywhere.same_rows().num_rows == 3


def test_values_are_cast_to_the_columns_of_the_table(both: Both) -> None:
    write(both, pa.table({"id": pa.array([1], pa.int32()), "day": ["mon"]}))
    write(both, {"id": [2], "day": ["tue"]}, mode="append")
    write(both, {"id": ["3"], "day": ["wed"]}, mode="append")
    write(both, pa.table({"day": ["thu"], "id": pa.array([4], pa.uint8())}), mode="append")
    both.fails(lambda lib: lib.write({"id": [3 * 10**12], "day": ["x"]}, mode="append"))


def test_schema_mode_merge_adds_columns_and_leaves_missing_ones_null(anywhere: Both) -> None:
    write(anywhere, {"id": [1], "part": [{"a": 1}]})
    write(anywhere, {"id": [2], "part": [{"a": 2}], "note": ["x"]}, mode="append", schema_mode="merge")
    write(anywhere, {"id": [3]}, mode="append", schema_mode="merge")
    write(anywhere, {"part": [{"b": True}]}, mode="append", schema_mode="merge")
    write(anywhere, {"note": ["y"], "more": [1.5]}, mode="overwrite", schema_mode="merge")
    anywhere.same_schema()


def test_schema_mode_overwrite_takes_the_schema_of_the_data(anywhere: Both) -> None:
    write(anywhere, ROWS, partition_by=["day"])
    anywhere.fails(lambda lib: lib.write({"id": ["x"]}, mode="append", schema_mode="overwrite"))
    anywhere.fails(lambda lib: lib.write({"other": [1]}, mode="overwrite", schema_mode="overwrite"))
    anywhere.fails(lambda lib: lib.write(MORE, mode="overwrite", schema_mode="nosuch"))
    write(anywhere, {"other": [1.5], "id": ["x"]}, mode="overwrite", schema_mode="overwrite", partition_by=["id"])
    anywhere.same_schema()
    anywhere.same(lambda lib: lib.table().metadata().partition_columns, exactly=True)


@pytest.mark.parametrize("partition_by", [None, ["day"]])
@pytest.mark.parametrize(
    ("predicate", "data"),
    [
        ("id = 2", {"id": [2, 2], "day": ["tue", "sun"]}),
        ("day = 'mon'", {"id": [9], "day": ["mon"]}),
        ("day = 'mon' and id > 1", {"id": [5], "day": ["mon"]}),
        ("id > 100", {"id": [101], "day": ["fri"]}),
        ("id > 0", {"id": pa.array([], pa.int64()), "day": pa.array([], pa.string())}),
    ],
)
def test_a_predicate_replaces_the_rows_it_matches(
    both: Both, predicate: str, data: dict[str, Any], partition_by: list[str] | None
) -> None:
    both.write(ROWS, partition_by=partition_by)
    first = set(both.ours.table().file_uris())
    both.write({"id": [10, 11], "day": ["sat", "sat"]}, mode="append")
    second = set(both.ours.table().file_uris()) - first
    write(both, data, mode="overwrite", predicate=predicate)
    if predicate != "id > 0":
        assert second <= set(both.ours.table().file_uris()), "a file without such a row stays"
    assert both.same_history()[0]["operationParameters"]["predicate"] == predicate.replace(" and ", " AND ")


def test_data_that_does_not_match_the_predicate_is_refused(anywhere: Both) -> None:
    write(anywhere, ROWS)
    for mode in ("overwrite", "append"):
        anywhere.fails(lambda lib, mode=mode: lib.write(ROWS, mode=mode, predicate="id = 1"))  # type: ignore[misc]  # a default binds the loop
    nothing = pa.table({"id": pa.array([None], pa.int64()), "day": ["mon"]})
    anywhere.fails(lambda lib: lib.write(nothing, mode="overwrite", predicate="id > 1"))
    anywhere.fails(lambda lib: lib.write(MORE, mode="overwrite", predicate="nosuch = 1"))
    anywhere.fails(lambda lib: lib.write(MORE, mode="overwrite", predicate="id = = 1"))
    write(anywhere, MORE, mode="append", predicate="id = 4")


def test_a_replaced_row_is_in_the_change_feed(both: Both) -> None:
    both.write(ROWS, configuration={"delta.enableChangeDataFeed": "true"})
    both.write({"id": [2], "day": ["new"]}, mode="overwrite", predicate="id = 2")

    def changes(lib: Library) -> list[tuple[Any, ...]]:
        feed = pa.table(lib.table().load_cdf(starting_version=1)).to_pylist()
        return sorted((row["id"], row["day"], row["_change_type"]) for row in feed)

    expected = [(2, "new", "insert"), (2, "tue", "delete")]
    assert both.same(changes, exactly=True).value == expected


def batches(rows: pa.Table) -> list[pa.RecordBatch]:
    return list(rows.to_batches(max_chunksize=1))


def as_pandas(rows: pa.Table) -> Any:
    return rows.to_pandas()


def as_polars(rows: pa.Table) -> Any:
    return pytest.importorskip("polars").from_arrow(rows)


@pytest.mark.parametrize("form", [pa.Table.to_reader, batches, as_pandas, as_polars, lambda rows: rows.to_batches()[0]])
def test_data_comes_in_any_form(both: Both, form: Callable[[pa.Table], Any]) -> None:
    rows = pa.table(ROWS)
    both.same(lambda lib: lib.module.write_deltalake(lib.uri, form(rows)))
    assert both.same_rows().num_rows == 3


class OnceThrough(Sequence[pa.RecordBatch]):
    """A sequence of batches that can be gone over once, as wrappers of generators are."""

    def __init__(self, batches: list[pa.RecordBatch]) -> None:
        self._left = batches

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        while self._left:
            yield self._left.pop(0)

    def __getitem__(self, place: Any) -> Any:
        return self._left[place]

    def __len__(self) -> int:
        raise NotImplementedError


def test_a_sequence_of_batches_is_gone_over_once(both: Both) -> None:
    for lib in both.libraries:
        lib.module.write_deltalake(lib.uri, OnceThrough(batches(pa.table({"id": [1, 2, 3]}))))
        assert sorted(lib.rows()["id"].to_pylist()) == [1, 2, 3]


def test_a_generator_of_batches_is_a_stream(both: Both) -> None:
    taken: list[int] = []

    def stream() -> Any:
        for number in range(5):
            taken.append(number)
            yield pa.record_batch({"id": [number]})

    both.ours.write(stream())
    assert taken == list(range(5))
    assert both.ours.rows().num_rows == 5


def test_what_is_no_data_is_refused(both: Both) -> None:
    for data in (3, None, {"id": [1]}):
        both.fails(lambda lib, data=data: lib.module.write_deltalake(lib.uri, data))  # type: ignore[misc]  # a default binds the loop
    both.fails(lambda lib: lib.module.write_deltalake(3, pa.table(ROWS)))
    both.fails(lambda lib: lib.write(ROWS, target_file_size=0))


def test_a_tiny_target_size_still_makes_files_of_many_rows(both: Both) -> None:
    both.write(pa.table({"id": range(5000)}), target_file_size=1)
    assert both.same(lambda lib: len(lib.table().file_uris()), exactly=True).value == 5


def test_data_without_rows_makes_a_version_without_files(anywhere: Both) -> None:
    write(anywhere, pa.table(ROWS).slice(0, 0))
    write(anywhere, pa.table(ROWS).slice(0, 0), mode="append")
    write(anywhere, ROWS, mode="append")
    write(anywhere, pa.table(ROWS).slice(0, 0), mode="overwrite")
    assert anywhere.same_version() == 3


def test_a_table_object_is_written_and_moves_along(anywhere: Both) -> None:
    anywhere.write(ROWS)

    def append(lib: Library) -> tuple[int, int]:
        table = lib.table()
        before = table.version()
        lib.module.write_deltalake(table, pa.table(MORE), mode="append")
        return before, table.version()

    assert anywhere.same(append, exactly=True).value == (0, 1)
    anywhere.fails(lambda lib: lib.module.write_deltalake(lib.table(), pa.table(MORE)))
    anywhere.same_rows()


def test_name_description_and_configuration_are_for_new_tables(anywhere: Both) -> None:
    arguments: dict[str, Any] = {"name": "called", "description": "what it is"}
    anywhere.write(ROWS, configuration={"delta.logRetentionDuration": "interval 3 days"}, **arguments)
    anywhere.write(MORE, mode="append", name="other", description="other", configuration={"delta.appendOnly": "true"})

    def said(lib: Library) -> Any:
        metadata = lib.table().metadata()
        return {"name": metadata.name, "description": metadata.description, "set": dict(metadata.configuration)}

    assert anywhere.same(said, exactly=True).value["name"] == "called"
    other = anywhere.other("other")
    other.fails(lambda lib: lib.write(ROWS, configuration={"nosuch": "x"}))
    other.write(ROWS, configuration={"delta.appendOnly": None})


def test_commit_properties_are_recorded(anywhere: Both) -> None:
    def append(lib: Library) -> None:
        application = lib.module.Transaction("loader", 7)
        properties = lib.module.CommitProperties(custom_metadata={"job": "nightly"}, app_transactions=[application])
        lib.write(MORE, mode="append", commit_properties=properties)

    anywhere.write(ROWS)
    anywhere.same(append)
    anywhere.same(lambda lib: lib.table().transaction_version("loader"), exactly=True)
    assert anywhere.same(lambda lib: lib.table().history(1)[0]["job"], exactly=True).value == "nightly"
    for wrong in ({"operation": "x"}, {"when": float("nan")}, {"readVersion": -1}, {"userName": 3}, {1: 2}):
        anywhere.fails(
            lambda lib, wrong=wrong: lib.write(  # type: ignore[misc]  # a default binds the loop
                MORE, mode="append", commit_properties=lib.module.CommitProperties(custom_metadata=wrong)
            )
        )


def test_history_has_the_metrics_of_deltalake(both: Both) -> None:
    both.write(ROWS, partition_by=["day"])
    both.write(MORE, mode="overwrite")
    keys = both.same(lambda lib: sorted(lib.table().history(1)[0]["operationMetrics"]), exactly=True).value
    assert "num_added_rows" in keys
    parameters = both.same(lambda lib: lib.table().history(1)[0]["operationParameters"], exactly=True).value
    assert parameters == {"mode": "Overwrite", "partitionBy": '["day"]'}


def test_an_append_only_table_is_not_overwritten(anywhere: Both) -> None:
    anywhere.write(ROWS, configuration={"delta.appendOnly": "true"})
    write(anywhere, MORE, mode="append")
    anywhere.fails(lambda lib: lib.write(MORE, mode="overwrite"))
    anywhere.fails(lambda lib: lib.write(MORE, mode="overwrite", predicate="id = 4"))


def test_a_transaction_writes_with_the_same_arguments(both: Both) -> None:
    both.ours.write(ROWS, partition_by=["day"])
    name = both.ours.uri.partition("table=")[2]
    with both.ours.catalog.begin() as tx:
        tx.write(name, pa.table({"id": [9], "day": ["mon"]}), "overwrite", predicate="day = 'mon'")
        tx.write(name, pa.table({"id": [10], "note": ["x"]}), "append", schema_mode="merge")
        tx.write("api.second", pa.table(ROWS), configuration={"delta.appendOnly": "true"}, description="made here")
        seen = tx.table(name).to_pyarrow_table().sort_by("id")
    assert seen.column("id").to_pylist() == [2, 9, 10]
    assert both.ours.rows().sort_by("id").equals(seen)
    second = both.ours.catalog.table("api.second")
    assert (second.metadata().description, second.count()) == ("made here", 3)


def test_a_configuration_is_only_that_of_a_new_table(tmp_path: Path) -> None:
    """As in `deltalake`: what is said of an existing table is neither set nor checked."""
    for place in (str(tmp_path / "t"), f"deltasql://sqlite/{tmp_path}/c.db?table=n.t&warehouse={tmp_path}/lake"):
        dl.write_deltalake(place, pa.table({"id": [1]}))
        dl.write_deltalake(place, pa.table({"id": [2]}), mode="append", configuration={"delta.nope": "1"})
        assert dl.DeltaTable(place).metadata().configuration == {}
        assert dl.DeltaTable(place).version() == 1
