"""Names, times and paths as `deltalake` takes them: of tables in a catalog and at paths."""

from __future__ import annotations

import json
import shutil
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from tests.api.both import Both, Library

ROWS = pa.table({"a": [1, 2], "b": ["x", "y"]})


@pytest.mark.parametrize(
    "early", [datetime(2000, 1, 1, tzinfo=UTC), "2000-01-01T00:00:00Z", "2000-01-01T00:00:00+02:00"]
)
def test_a_time_before_the_first_commit_is_the_first_version(anywhere: Both, early: datetime | str) -> None:
    anywhere.write(ROWS)
    anywhere.write(ROWS, mode="append")

    def loaded(lib: Library) -> int:
        table = lib.table()
        table.load_as_version(early)
        return int(table.version())

    assert anywhere.same(loaded, exactly=True).value == 0
    anywhere.same(lambda lib: lib.table().restore(early))
    assert anywhere.same_rows().num_rows == 2


def test_a_table_has_the_name_it_was_given_and_no_other(anywhere: Both) -> None:
    def described(lib: Library) -> list[Any]:
        found = lib.table().metadata()
        return [found.name, found.description]

    anywhere.write(ROWS)
    assert anywhere.same(described, exactly=True).value == [None, None]
    anywhere.same(lambda lib: lib.table().alter.set_table_name("orders"))
    assert anywhere.same(described, exactly=True).value == ["orders", None]
    created = anywhere.other("created")
    created.create(ROWS.schema)
    assert created.same(described, exactly=True).value == [None, None]
    named = anywhere.other("named")
    named.write(ROWS, name="sales", description="all of them")
    assert named.same(described, exactly=True).value == ["sales", "all of them"]


@pytest.mark.parametrize(
    "rows",
    [
        pa.table({"b": ["x"], "p": ["q"], "a": [1]}),
        pa.table({"b": ["x"], "p": ["q"], "a": [1.5]}),
        pa.table({"c": [1], "b": ["x"], "p": ["q"], "a": [1]}),
        pa.table({"p": ["q"], "b": ["x"]}),
    ],
    ids=["the same columns", "another type", "one more", "one less"],
)
def test_columns_keep_their_order_if_they_stay_the_same(anywhere: Both, rows: pa.Table) -> None:
    anywhere.write(pa.table({"a": [1], "b": ["x"], "p": ["q"]}), partition_by=["p"])
    anywhere.write(rows, mode="overwrite", schema_mode="overwrite")
    anywhere.same_schema()
    anywhere.same_rows()


def test_a_file_is_added_by_its_absolute_path(anywhere: Both) -> None:
    anywhere.write(ROWS)

    def added(lib: Library) -> list[str]:
        elsewhere = lib.folder.parent / f"{lib.folder.name}-elsewhere.parquet"
        shutil.copy(next(lib.folder.glob("*.parquet")), elsewhere)
        action = lib.find("transaction.AddAction")(
            str(elsewhere), elsewhere.stat().st_size, {}, 0, True, json.dumps({"numRecords": 2})
        )
        lib.table().create_write_transaction([action], "append", lib.module.Schema.from_arrow(ROWS.schema))
        log = (lib.folder / "_delta_log" / f"{1:020}.json").read_text().splitlines()
        return [json.loads(line)["add"]["path"].rpartition("-")[2] for line in log if '"add"' in line]

    assert anywhere.same(added, exactly=True).value == ["elsewhere.parquet"]
    assert anywhere.same_version() == 1
    assert anywhere.ours.table().to_pyarrow_table().num_rows == 4  # `deltalake` looks for it inside of the table
