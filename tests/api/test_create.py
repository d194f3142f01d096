"""DeltaTable.create, create_write_transaction and create_table_with_add_actions, the same calls on both libraries."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.api.both import Both, Library

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("day", pa.string())])


def test_a_table_is_created_empty(everywhere: Both) -> None:
    everywhere.create(SCHEMA, partition_by="day", description="what it is")
    everywhere.same_schema()
    assert everywhere.same_version() == 0
    assert everywhere.same_rows().num_rows == 0
    everywhere.same(lambda lib: lib.table().metadata().partition_columns, exactly=True)
    assert everywhere.same_history()[0]["operation"] == "CREATE TABLE"
    everywhere.same(lambda lib: sorted(lib.table().history()[0]["operationParameters"]), exactly=True)
    everywhere.write({"id": [1], "day": ["mon"]}, mode="append")
    everywhere.same_rows()


def test_a_schema_of_the_library_keeps_what_its_fields_say(both: Both) -> None:
    def schema(lib: Library) -> Any:
        field = lib.find("schema.Field")
        return lib.module.Schema(
            [field("id", "long", nullable=False, metadata={"note": "x"}), field("at", "timestamp")]
        )

    both.same(lambda lib: lib.create(schema(lib)))
    both.same_schema()


@pytest.mark.parametrize("mode", ["error", "append", "ignore", "nosuch"])
def test_a_table_that_is_there_is_left_alone(anywhere: Both, mode: str) -> None:
    anywhere.create(SCHEMA)
    anywhere.same(lambda lib: lib.create(pa.schema([("other", pa.int64())]), mode=mode))
    anywhere.same_schema()
    assert anywhere.same_version() == 0


def test_overwrite_puts_another_table_in_its_place(anywhere: Both) -> None:
    anywhere.write({"id": [1], "day": ["mon"]}, partition_by=["day"])
    anywhere.create(pa.schema([("other", pa.float64())]), mode="overwrite")
    anywhere.same_schema()
    assert anywhere.same_rows().num_rows == 0
    assert anywhere.same_version() == 1
    assert anywhere.same_history()[0]["operation"] == "CREATE OR REPLACE TABLE"
    anywhere.same_rows(version=0)
    anywhere.write({"other": [1.5]}, mode="append")
    anywhere.same_rows()


def test_unknown_properties_are_refused_unless_they_are_wanted(both: Both) -> None:
    both.fails(lambda lib: lib.create(SCHEMA, configuration={"nosuch": "x"}))
    both.create(SCHEMA, configuration={"nosuch": "x"}, raise_if_key_not_exists=False)
    both.same(lambda lib: dict(lib.table().metadata().configuration), exactly=True)
    both.other("empty").fails(lambda lib: lib.create(pa.schema([])))
    both.other("part").fails(lambda lib: lib.create(SCHEMA, partition_by=["nosuch"]))


def test_commit_arguments_by_position_are_taken_with_a_warning(both: Both) -> None:
    def by_position(lib: Library) -> None:
        properties = lib.module.CommitProperties(custom_metadata={"job": "x"})
        lib.module.DeltaTable.create(lib.uri, SCHEMA, "error", None, None, None, None, None, properties)

    assert both.same(by_position).warned == ("DeprecationWarning",)
    assert both.same(lambda lib: lib.table().history()[0]["job"], exactly=True).value == "x"


def put(lib: Library, path: str, rows: dict[str, Any], **values: str | None) -> Any:
    """A data file in the table's folder, and the action that names it."""
    file = lib.folder / path
    file.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(rows), file)
    stats = f'{{"numRecords":{len(rows["id"])}}}'
    return lib.find("transaction.AddAction")(path, file.stat().st_size, values, 1, True, stats)


def test_finished_files_become_part_of_a_table(anywhere: Both) -> None:
    anywhere.write({"id": [1], "day": ["mon"]}, partition_by=["day"])

    def append(lib: Library) -> None:
        add = put(lib, "day=tue/with space.parquet", {"id": [5, 6]}, day="tue")
        lib.table().create_write_transaction([add], "append", lib.table().schema(), ["day"])

    anywhere.same(append)
    assert anywhere.same_rows().num_rows == 3
    anywhere.same(lambda lib: lib.table().history(1)[0]["operationParameters"], exactly=True)
    anywhere.fails(lambda lib: lib.table().create_write_transaction([], "nosuch", lib.table().schema()))
    anywhere.fails(lambda lib: lib.table().create_write_transaction(["x"], "append", lib.table().schema()))


def test_files_of_some_partitions_are_replaced(anywhere: Both) -> None:
    anywhere.write({"id": [1, 2], "day": ["mon", "tue"]}, partition_by=["day"])

    def replace(lib: Library) -> None:
        add = put(lib, "day=mon/new.parquet", {"id": [9]}, day="mon")
        lib.table().create_write_transaction([add], "overwrite", lib.table().schema(), ["day"], [("day", "=", "mon")])

    anywhere.same(replace)
    assert sorted(anywhere.same_rows().column("id").to_pylist()) == [2, 9]


def test_a_file_is_ended_by_a_remove_action(anywhere: Both) -> None:
    anywhere.write({"id": [1, 2], "day": ["mon", "tue"]}, partition_by=["day"])

    def remove(lib: Library, mode: str = "append", *, also_adds: bool = False) -> None:
        table = lib.table()
        path = next(path for path in map(str, table.file_uris()) if "day=mon" in path)
        path = "day=mon/" + path.rpartition("/")[2]
        actions = [lib.find("transaction.RemoveAction")(path, True, 1_700_000_000_000)]
        if also_adds:
            actions.append(lib.find("transaction.AddAction")(path, 1, {"day": "mon"}, 1, True, "{}"))
        table.create_write_transaction(actions, mode, table.schema(), ["day"])

    anywhere.fails(lambda lib: remove(lib, "overwrite"))
    anywhere.fails(lambda lib: remove(lib, also_adds=True))
    anywhere.same(remove)
    assert anywhere.same_rows().column("id").to_pylist() == [2]


def test_a_table_begins_with_finished_files(anywhere: Both) -> None:
    def begin(lib: Library, mode: str = "error") -> None:
        add = put(lib, "day=mon/first.parquet", {"id": [1, 2]}, day="mon")
        schema = lib.module.Schema.from_arrow(pa.schema([("id", pa.int64()), ("day", pa.string())]))
        function = lib.find("transaction.create_table_with_add_actions")
        function(lib.uri, schema, [add], mode, "day", "called", "what it is")

    anywhere.same(begin)
    assert anywhere.same_rows().num_rows == 2
    anywhere.same(lambda lib: (lib.table().metadata().name, lib.table().metadata().description), exactly=True)
    anywhere.fails(begin)
    anywhere.fails(lambda lib: begin(lib, "append"))
    anywhere.same(lambda lib: begin(lib, "ignore"))
    assert anywhere.same_version() == 0
