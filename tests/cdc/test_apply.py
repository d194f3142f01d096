"""The rows of a table after a batch, told by hand: moved and swapped keys, values not sent again, truncates."""

import math
from collections.abc import Callable
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import deltalakedb as dl
from deltalakedb.cdc.apply.current_rows import Applied, apply_to_tables
from deltalakedb.cdc.captured_table import CapturedTable
from deltalakedb.cdc.control import begin_batch
from deltalakedb.cdc.layers import changes_schema
from deltalakedb.exceptions import DeltaError
from deltalakedb.log.schema.types import ArrayType, DecimalType, PrimitiveType
from tests.cdc.applying import Lake, SourceTable, captured, counted, replayed

PEOPLE = captured({"id": "integer", "name": "string", "doc": "string"}, ["id"])


@pytest.fixture
def make_lake(tmp_path: Path) -> Callable[..., Lake]:
    catalog = dl.connect(tmp_path / "catalog.db", warehouse=str(tmp_path / "lake"))
    return lambda *tables, **settings: Lake(catalog, tables, **settings)


def people(*ids: int) -> SourceTable:
    source = SourceTable(PEOPLE)
    for number in ids:
        source.insert({"id": number, "name": f"n{number}", "doc": f"large {number}"})
    return source


def check(lake: Lake, source: SourceTable, *, files: int = 1) -> Applied:
    """Apply what the source has to tell; its rows are then those of the lake."""
    table = source.table
    changes = source.take_changes()
    applied = lake.apply({table.source: changes}, files)[table.source]
    assert lake.rows(table) == counted(source.rows, [column.name for column in table.columns])
    return applied


@pytest.mark.parametrize("vectors", [True, False])
def test_rows_come_change_and_go(make_lake: Callable[..., Lake], vectors: bool) -> None:
    lake, source = make_lake(PEOPLE, deletion_vectors=vectors), people(1, 2, 3)
    assert check(lake, source) == Applied(inserted=3)
    source.update(0, {"name": "new"})
    source.delete(1)
    source.insert({"id": 4, "name": None, "doc": None})
    assert check(lake, source) == Applied(inserted=1, updated=1, deleted=1)


def test_a_batch_is_one_version_with_its_progress(make_lake: Callable[..., Lake]) -> None:
    lake, source = make_lake(PEOPLE), people(1, 2, 3)
    check(lake, source)
    before = lake.catalog.table(PEOPLE.current).version()
    source.update(0, {"name": "new"})
    source.insert({"id": 4, "name": None, "doc": None})
    check(lake, source)
    table = lake.catalog.table(PEOPLE.current)
    assert table.version() == before + 1
    assert table.transaction_version(lake.capture.app_id) == lake.capture.lsn


def test_what_is_born_and_dies_in_a_batch_makes_no_version(make_lake: Callable[..., Lake]) -> None:
    lake, source = make_lake(PEOPLE), people(1)
    source.delete(0)
    before = lake.catalog.table(PEOPLE.current).version()
    assert check(lake, source) == Applied()
    assert lake.catalog.table(PEOPLE.current).version() == before


def test_two_rows_swap_their_keys_and_keep_what_was_not_sent(make_lake: Callable[..., Lake]) -> None:
    lake, source = make_lake(PEOPLE), people(1, 2)
    check(lake, source)
    source.update(0, {"id": 9})
    source.update(1, {"id": 1})
    source.update(0, {"id": 2})
    assert check(lake, source) == Applied(updated=2)
    assert lake.rows(PEOPLE) == {(2, "n1", "large 1"): 1, (1, "n2", "large 2"): 1}


def test_a_row_goes_from_key_to_key_and_its_first_one_is_used_again(make_lake: Callable[..., Lake]) -> None:
    lake, source = make_lake(PEOPLE), people(1)
    check(lake, source)
    source.update(0, {"id": 2, "name": "second"})
    source.update(0, {"id": 3})
    source.insert({"id": 1, "name": "another", "doc": "large other"})
    source.update(1, {"name": "other"})
    source.update(0, {"id": 4})
    assert check(lake, source, files=2) == Applied(inserted=1, updated=1)


def test_a_key_that_a_deleted_row_had_is_moved_to(make_lake: Callable[..., Lake]) -> None:
    lake, source = make_lake(PEOPLE), people(1, 2)
    check(lake, source)
    source.delete(1)
    source.update(0, {"id": 2})
    source.update(0, {"name": "moved"})
    assert check(lake, source) == Applied(updated=1, deleted=1)


def test_a_long_way_over_many_keys_is_followed(make_lake: Callable[..., Lake]) -> None:
    lake, source = make_lake(PEOPLE), people(*range(5))
    check(lake, source)
    for step in range(300):
        source.update(step % 5, {"id": 100 + step})
    assert check(lake, source, files=3) == Applied(updated=5)


def test_a_row_deleted_and_inserted_again_has_nothing_of_what_it_was(make_lake: Callable[..., Lake]) -> None:
    lake, source = make_lake(PEOPLE), people(1)
    check(lake, source)
    source.delete(0)
    source.insert({"id": 1, "name": None, "doc": None})
    check(lake, source)


def test_values_not_sent_are_the_last_ones_known(make_lake: Callable[..., Lake]) -> None:
    lake, source = make_lake(PEOPLE), people(1, 2, 3)
    check(lake, source)
    source.update(0, {"doc": "large and new"})
    source.update(0, {"name": "known in the batch"})
    source.update(1, {"name": "known in the table"})
    source.insert({"id": 4, "name": "x", "doc": "large 4"})
    source.update(3, {"name": "born in the batch"})
    source.update(2, {"doc": None})
    source.update(2, {"name": "null is a value"})
    check(lake, source)


def test_a_truncate_in_the_middle_leaves_what_came_after(make_lake: Callable[..., Lake]) -> None:
    lake, source = make_lake(PEOPLE), people(1, 2, 3)
    check(lake, source)
    source.update(0, {"id": 9})
    source.truncate()
    source.insert({"id": 1, "name": "after", "doc": "large"})
    source.commit()
    source.update(0, {"id": 7})
    assert check(lake, source, files=2) == Applied(inserted=1, truncated=True)
    source.truncate()
    assert check(lake, source) == Applied(truncated=True)
    source.truncate()
    assert check(lake, source) == Applied(truncated=True)


@pytest.mark.parametrize("vectors", [True, False])
def test_a_table_without_a_key_keeps_the_number_of_equal_rows(make_lake: Callable[..., Lake], vectors: bool) -> None:
    table = captured({"a": "integer", "f": "double", "t": "string"}, [], identity="f")
    lake, source = make_lake(table, deletion_vectors=vectors, change_data_feed=True), SourceTable(table)
    for _ in range(3):
        source.insert({"a": 1, "f": math.nan, "t": "large text"})
        source.insert({"a": None, "f": None, "t": None})
    assert check(lake, source) == Applied(inserted=6)
    source.delete(0)
    source.update(1, {"a": 2})
    source.delete(0)
    source.insert({"a": 7, "f": -1.5, "t": "x"})
    check(lake, source)
    source.update(0, {"a": 5})
    source.update(0, {"a": 5})
    check(lake, source, files=2)
    source.delete(0)
    source.truncate()
    source.insert({"a": None, "f": math.nan, "t": ""})
    source.insert({"a": None, "f": math.nan, "t": ""})
    assert check(lake, source) == Applied(inserted=2, truncated=True)
    assert replayed(lake, table) == lake.rows(table)


def test_whole_rows_under_full_identity_tell_what_was_not_sent(make_lake: Callable[..., Lake]) -> None:
    table = captured({"id": "long", "doc": "string", "n": "integer"}, ["id"], identity="f")
    lake, source = make_lake(table), SourceTable(table)
    source.insert({"id": 1, "doc": "large", "n": 1})
    check(lake, source)
    source.update(0, {"id": 2})
    source.update(0, {"n": 2})
    check(lake, source)


def test_an_unsent_key_is_the_one_the_old_row_shows(make_lake: Callable[..., Lake]) -> None:
    table = captured({"id": "string", "n": "integer"}, ["id"])
    lake, source = make_lake(table), SourceTable(table)
    source.insert({"id": "large key", "n": 1})
    check(lake, source)
    source.update(0, {"n": 2})
    source.changes[-1]["before"] = {"id": "large key", "n": None}
    check(lake, source)


def every_type() -> CapturedTable:
    types: dict[str, Any] = {
        "s": "short", "i": "integer", "l": "long", "f": "float", "d": "double", "b": "boolean", "t": "string",
        "x": "binary", "day": "date", "at": "timestamp_ntz", "tz": "timestamp", "n": DecimalType(38, 10),
        "a": ArrayType(PrimitiveType("integer")), "ta": ArrayType(PrimitiveType("string")),
    }  # fmt: skip
    return captured({"id": "integer", **types, "Odd \"name'": "string", "alive": "integer"}, ["id"])


def test_values_of_every_type_pass_a_merge_as_they_are(make_lake: Callable[..., Lake]) -> None:
    table = every_type()
    lake, source = make_lake(table), SourceTable(table)
    full: dict[str, Any] = {
        "s": -(2**15), "i": 2**31 - 1, "l": -(2**63), "f": math.inf, "d": math.nan, "b": True, "t": "ünï",
        "x": b"\0\xff", "day": date(1, 1, 1), "at": datetime(9999, 12, 31, 23, 59, 59, 999999), "tz": None, "n": None,
        "a": [1, None], "ta": [], "Odd \"name'": "q", "alive": 0,
    }  # fmt: skip
    empty = dict.fromkeys(full)
    for number, row in enumerate((full, empty, full, empty)):
        source.insert({"id": number, **row})
    check(lake, source)
    source.update(0, {"t": "other"})
    source.update(1, {"i": 1})
    source.insert({"id": 9, **full})
    check(lake, source)


def test_infinite_dates_and_moments_pass_a_merge(make_lake: Callable[..., Lake]) -> None:
    table = captured({"id": "integer", "day": "date", "at": "timestamp_ntz", "tz": "timestamp"}, ["id"])
    lake = make_lake(table)
    schema = changes_schema(table).to_arrow()
    days = pa.array([2**31 - 1, -(2**31 - 1), -800_000], pa.int32()).cast(pa.date32())
    moments = pa.array([2**63 - 1, -(2**63 - 1), -80_000_000_000_000_000], pa.int64())

    def changes(op: str) -> pa.Table:
        rows = pa.StructArray.from_arrays(
            [
                pa.array([1, 2, 3], pa.int32()),
                days,
                moments.cast(pa.timestamp("us")),
                moments.cast(pa.timestamp("us", "UTC")),
            ],
            fields=list(schema.field("after").type),
        )
        lsn = lake.capture.lsn + 1
        columns = {
            "_op": pa.array([op] * 3), "_lsn": pa.array([lsn] * 3), "_xid": pa.nulls(3, pa.int64()),
            "_ordinal": pa.array([1, 2, 3]), "_committed_at": pa.nulls(3, schema.field("_committed_at").type),
            "_unchanged": pa.nulls(3, schema.field("_unchanged").type),
            "before": pa.nulls(3, schema.field("before").type), "after": rows,
        }  # fmt: skip
        return pa.table(columns, schema=schema)

    for op in ("insert", "update"):
        lake.apply_files(table, lake.write_table(table, changes(op)))
        found = lake.catalog.table(table.current).to_pyarrow_table().sort_by("id")
        assert found["day"].combine_chunks().cast(pa.int32()).to_pylist() == [2**31 - 1, -(2**31 - 1), -800_000]
        for name in ("at", "tz"):
            assert found[name].combine_chunks().cast(pa.int64()).to_pylist() == moments.to_pylist()


def test_columns_the_source_has_no_more_are_null_in_rows_written_since(make_lake: Callable[..., Lake]) -> None:
    lake, source = make_lake(PEOPLE), people(1, 2)
    check(lake, source)
    narrow = captured({"id": "integer", "name": "string"}, ["id"], source=PEOPLE.source)
    later = SourceTable(narrow, [{"id": 1, "name": "n1"}, {"id": 2, "name": "n2"}], lsn=lake.capture.lsn)
    later.update(0, {"name": "new"})
    adds = lake.write_changes(narrow, later.take_changes())
    lake.apply_files(narrow, adds)
    assert lake.rows(PEOPLE) == {(1, "new", None): 1, (2, "n2", "large 2"): 1}


def test_several_tables_are_brought_along_in_one_batch(make_lake: Callable[..., Lake]) -> None:
    others = [captured({"id": "long", "n": "integer"}, ["id"], source=f"public.other{number}") for number in range(3)]
    lake, sources = make_lake(PEOPLE, *others), [people(1, 2), *map(SourceTable, others)]
    for source in sources[1:]:
        source.insert({"id": 1, "n": 1})
    lake.apply({source.table.source: source.take_changes() for source in sources})
    sources[0].update(0, {"name": "new"})
    sources[1].delete(0)
    sources[2].truncate()
    applied = lake.apply({source.table.source: source.take_changes() for source in sources[:3]})
    assert list(applied.values()) == [Applied(updated=1), Applied(deleted=1), Applied(truncated=True)]
    for source in sources:
        assert lake.rows(source.table) == counted(source.rows, [column.name for column in source.table.columns])


def test_many_new_rows_beside_changed_ones_make_one_version(make_lake: Callable[..., Lake]) -> None:
    table = captured({"id": "long", "n": "integer"}, ["id"])
    lake, source = make_lake(table), SourceTable(table)
    for number in range(10):
        source.insert({"id": number, "n": 0})
    check(lake, source)
    before = lake.catalog.table(table.current).version()
    for number in range(10, 10_020):
        source.insert({"id": number, "n": 1})
    source.update(0, {"n": 2})
    source.delete(1)
    assert check(lake, source) == Applied(inserted=10_010, updated=1, deleted=1)
    assert lake.catalog.table(table.current).version() == before + 1
    for number in range(20_000, 32_000):
        source.insert({"id": number, "n": 3})
    assert check(lake, source, files=3) == Applied(inserted=12_000)
    assert lake.catalog.table(table.current).version() == before + 2


def test_where_one_table_fails_none_is_changed(make_lake: Callable[..., Lake]) -> None:
    other = captured({"id": "long", "n": "integer"}, ["id"], source="public.other")
    lake, sources = make_lake(PEOPLE, other), [people(1), SourceTable(other)]
    sources[1].insert({"id": 1, "n": 1})
    adds = {one.table.source: lake.write_changes(one.table, one.take_changes()) for one in sources}
    lost = Path(lake.catalog.table(other.changes).table_uri.removeprefix("file://")) / adds[other.source][0].path
    lost.unlink()
    versions = [lake.catalog.table(one.table.current).version() for one in sources]
    with pytest.raises(DeltaError, match="not found"), begin_batch(lake.catalog, lake.capture, "batch") as tx:
        apply_to_tables(tx, lake.capture, [(one.table, adds[one.table.source]) for one in sources], 2000)
    assert [lake.catalog.table(one.table.current).version() for one in sources] == versions
    assert lake.rows(PEOPLE) == {}


def test_changes_far_apart_in_the_log_stay_in_their_order(make_lake: Callable[..., Lake]) -> None:
    lake, source = make_lake(PEOPLE), people(1, 2)
    check(lake, source)
    source.update(0, {"id": 3, "name": "first"})
    source.lsn, source.ordinal = 2**61, 2**40
    source.update(0, {"id": 4})
    source.update(1, {"id": 1})
    source.update(0, {"name": "last"})
    assert check(lake, source, files=2) == Applied(updated=2)


def test_rows_that_somebody_took_away_come_back_and_it_is_told(
    make_lake: Callable[..., Lake], caplog: pytest.LogCaptureFixture
) -> None:
    lake, source = make_lake(PEOPLE), people(1, 2)
    check(lake, source)
    lake.catalog.table(PEOPLE.current).delete("id = 1")
    source.update(0, {"name": "back", "doc": "sent"})
    assert check(lake, source) == Applied(inserted=1)
    assert "of 1 rows that the source changed or deleted 0 were found in lake.things" in caplog.text


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("long", [1, 2, 3]),
        ("string", ["", "a", "ä" * 100]),
        ("boolean", [True, False]),
        ("binary", [b"", b"\x00", b"\xff" * 40]),
        ("date", [date(1, 1, 1), date(2024, 2, 29), date(9999, 12, 31)]),
        ("timestamp_ntz", [datetime(1970, 1, 1), datetime(2024, 1, 1, 0, 0, 0, 1), datetime(1, 1, 1)]),
        (DecimalType(20, 2), [Decimal("0.10"), Decimal("-5.00"), Decimal("123456789012345678.99")]),
        ("double", [math.inf, -1.5, math.nan]),
        (ArrayType(PrimitiveType("integer")), [[1, 2], [], [1, None]]),
    ],
)
def test_a_key_may_have_any_type_and_large_arrays_are_kept_like_texts(
    make_lake: Callable[..., Lake], kind: Any, values: list[Any]
) -> None:
    table = captured({"n": "integer", "key": kind, "list": ArrayType(PrimitiveType("string"))}, ["key"])
    lake, source = make_lake(table, buckets=2, change_data_feed=True), SourceTable(table)
    for value in values:
        source.insert({"n": 1, "key": value, "list": ["a", None]})
    check(lake, source)
    source.update(0, {"n": 2})
    source.changes[-1]["_unchanged"] = ["list"]
    source.changes[-1]["after"]["list"] = None
    source.delete(1)
    check(lake, source)
    source.insert({"n": 5, "key": values[1], "list": None})
    source.update(0, {"n": 3, "list": []})
    source.update(0, {"n": 4})
    source.changes[-1]["_unchanged"] = ["list"]
    source.changes[-1]["after"]["list"] = None
    check(lake, source)
    assert replayed(lake, table) == lake.rows(table)
