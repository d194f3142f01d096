"""Bounds of one file, and of a batch of them, are those that the column-wise computation gives."""

import json
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deltalakedb.log.protocol.codec import to_sql_text
from deltalakedb.log.schema.types import parse_schema
from deltalakedb.log.statistics.batch_bounds import compute_bounds_of_batch, read_stats_columns
from deltalakedb.log.statistics.bounds import compute_bounds
from deltalakedb.log.statistics.bounds_columns import BoundsColumn, bounds_columns
from deltalakedb.log.statistics.file_bounds import bounds_of_file

TYPES = [
    "long",
    "integer",
    "double",
    "float",
    "string",
    "date",
    "timestamp",
    "timestamp_ntz",
    "boolean",
    "decimal(10,2)",
]
SCHEMA = parse_schema(
    json.dumps(
        {
            "type": "struct",
            "fields": [
                {"name": f"c{number}", "type": kind, "nullable": True, "metadata": {}}
                for number, kind in enumerate([*TYPES, *TYPES])
            ],
        }
    )
)
PARTITIONS = tuple(f"c{len(TYPES) + number}" for number in range(len(TYPES)))
COLUMNS = bounds_columns(SCHEMA, PARTITIONS, {})

texts = st.text(max_size=40)
moments = st.datetimes().map(lambda at: at.isoformat(timespec="milliseconds") + "Z")
days = st.dates().map(str)
numbers = st.one_of(st.integers(-(2**70), 2**70), st.floats(allow_nan=False, allow_infinity=False), st.integers(-9, 9))
values = st.one_of(st.none(), numbers, texts, moments, days, st.booleans(), st.just("2024-13-01"))
common: dict[str, st.SearchStrategy[Any]] = {
    "long": st.integers(-(2**60), 2**60),
    "integer": st.integers(-9, 9),
    "double": st.floats(allow_nan=False, allow_infinity=False),
    "float": st.floats(width=32, allow_nan=False, allow_infinity=False),
    "string": texts,
    "date": days,
    "timestamp": moments,
}
counts = st.one_of(st.none(), st.integers(-1, 12))


@st.composite
def statistics(draw: st.DrawFn) -> str | None:
    if draw(st.integers(0, 9)) == 0:
        return draw(st.sampled_from([None, "", "not json", "[]", "{}"]))

    def some(kind: str) -> Any:
        return draw(st.one_of(st.none(), common[kind])) if kind in common and draw(st.integers(0, 4)) else draw(values)

    stats: dict[str, Any] = {"numRecords": draw(counts)}
    if draw(st.booleans()):
        stats["tightBounds"] = draw(st.booleans())
    for part in ("minValues", "maxValues"):
        stats[part] = {f"c{number}": some(kind) for number, kind in enumerate(TYPES) if draw(st.integers(0, 5))}
    stats["nullCount"] = {f"c{number}": draw(counts) for number in range(len(TYPES)) if draw(st.integers(0, 3))}
    return json.dumps(stats)


partition_values = st.dictionaries(
    st.sampled_from(PARTITIONS), st.one_of(st.none(), texts, days, moments, st.integers(-99, 99).map(str), st.just(""))
)


@given(statistics(), partition_values)
def test_one_file_by_hand_is_one_file_of_many(stats: str | None, partitions: dict[str, str | None]) -> None:
    for column in COLUMNS:  # one at a time, so that an uncommon value does not hide the others
        found = bounds_of_file([column], stats, json.dumps(partitions))
        if found is not None:
            assert found == [compute_bounds([column], [(stats, partitions)]).bound(0, 0)]


def test_the_forms_that_our_own_statistics_have_are_answered() -> None:
    low = {"c0": 1, "c1": -1, "c2": 0.5, "c4": "a", "c5": "2024-01-01", "c6": "2024-01-01T00:00:00.123Z"}
    high = {"c0": 9, "c1": -1, "c2": 1.5, "c4": "b", "c5": "2024-02-01", "c6": "2024-01-02T00:00:00.123Z"}
    stats = json.dumps({"numRecords": 3, "minValues": low, "maxValues": high, "nullCount": dict.fromkeys(low, 0)})
    mine = [column for column in COLUMNS if column.column_path.strip('["]') in low]
    assert len(mine) == len(low)
    assert bounds_of_file(mine, stats, "{}") is not None


def test_nested_columns_are_answered_too() -> None:
    row = {"type": "struct", "fields": [{"name": "a", "type": "long", "nullable": True, "metadata": {}}]}
    fields = [{"name": "row", "type": row, "nullable": True, "metadata": {}}]
    columns = bounds_columns(parse_schema(json.dumps({"type": "struct", "fields": fields})), (), {})
    for low, nulls in (({"row": {"a": 1}}, {"row": {"a": 0}}), ({}, {"row": {"a": 3}}), ({"row": 7}, {"row": 1})):
        stats = json.dumps({"numRecords": 3, "minValues": low, "maxValues": low, "nullCount": nulls})
        assert bounds_of_file(columns, stats, "{}") == [compute_bounds(columns, [(stats, {})]).bound(0, 0)]


def assert_a_batch_has_the_bounds_of_its_files(
    columns: Sequence[BoundsColumn], files: list[tuple[str | None, dict[str, str | None]]]
) -> None:
    batch = pa.RecordBatch.from_pydict(
        {
            "stats": pa.array([None if stats is None else to_sql_text(stats) for stats, _ in files], pa.string()),
            "partition_values": pa.array([json.dumps(values) for _, values in files], pa.string()),
        }
    )
    found, wanted = compute_bounds_of_batch(columns, batch), compute_bounds(columns, files)
    assert found.columns == wanted.columns
    assert found.num_records == wanted.num_records
    assert found.unreadable_stats == wanted.unreadable_stats


@given(st.lists(st.tuples(statistics(), partition_values), max_size=5))
def test_a_batch_has_the_bounds_of_its_files(files: list[tuple[str | None, dict[str, str | None]]]) -> None:
    for column in COLUMNS:  # one at a time, so that an odd value does not send the others the long way
        assert_a_batch_has_the_bounds_of_its_files([column], files)
    assert_a_batch_has_the_bounds_of_its_files(COLUMNS, files)


PLAIN = [column for column in COLUMNS if "decimal" not in str(column.type).lower()]


@st.composite
def plain_statistics(draw: st.DrawFn) -> str | None:
    """Each value of its column's type, or absent: what is read column by column."""
    both = {
        part: {
            f"c{number}": draw(st.one_of(st.none(), common[kind]))
            for number, kind in enumerate(TYPES)
            if kind in common and draw(st.integers(0, 5))
        }
        for part in ("minValues", "maxValues")
    }
    nulls = {f"c{number}": draw(counts) for number in range(len(TYPES)) if draw(st.integers(0, 3))}
    text = json.dumps({"numRecords": draw(counts), "nullCount": nulls, **both}, ensure_ascii=draw(st.booleans()))
    return draw(st.sampled_from([text, text, text, text, None]))


@given(st.lists(st.tuples(plain_statistics(), partition_values), min_size=1, max_size=8))
def test_a_batch_of_plain_statistics_has_the_bounds_of_its_files(
    files: list[tuple[str | None, dict[str, str | None]]],
) -> None:
    assert_a_batch_has_the_bounds_of_its_files(PLAIN, files)


def test_plain_statistics_are_read_column_by_column() -> None:
    stats = '{"numRecords":3,"minValues":{"c0":1,"c2":2,"c4":"a"},"maxValues":{"c0":2},"nullCount":{"c0":0}}'
    data = [(column.physical_path, column.type) for column in PLAIN if not column.is_partition]
    assert read_stats_columns(data, pa.array([stats, None, ""])) is not None


@pytest.mark.parametrize(
    "texts",
    [
        ['{"numRecords":1}{"numRecords":2}', "{}"],
        ['{"minValues":', '{"c0":1}}', '{"numRecords":1}{"numRecords":2}'],
        ['{"numRecords":1,', '"numRecords":2}'],
        ['{"numRecords":1}', " "],
        ['{\n"numRecords":1}'],
        ['{\r"numRecords":1}'],
        ['{"numRecords":1.0}'],
        ['{"numRecords":1,"numRecords":2}'],
        ['{"minValues":{"c0":"1"}}'],
        ['{"minValues":{"c0":12345678901234567890}}'],
        ['{"minValues":{"c4":"\\ud800"}}'],
        ['{"minValues":[]}'],
        ['{"tightBounds":0}'],
        ["[]"],
        ["{"],
        ['{"x":"' + "y" * 3_000_000 + '"}'],
    ],
)
def test_statistics_of_another_form_are_read_one_by_one(texts: list[str]) -> None:
    data = [(column.physical_path, column.type) for column in PLAIN if not column.is_partition]
    assert read_stats_columns(data, pa.array(texts, pa.string())) is None
    assert_a_batch_has_the_bounds_of_its_files(PLAIN, [(text, {}) for text in texts])


def test_statistics_that_are_no_unicode_are_read_one_by_one() -> None:
    assert_a_batch_has_the_bounds_of_its_files(PLAIN, [('{"minValues":{"c4":"\ud800"}}', {}), ("{}", {})])


def test_long_and_foreign_texts_in_a_batch_are_cut_as_alone() -> None:
    texts = [
        "",
        "a",
        "é",
        "éa",
        "éè",
        "x" * 31,
        "x" * 32,
        "x" * 70,
        "é" * 31,
        "é" * 40,
        "a\0b",
        "\0",
        "日本",
        "日木",
        "😀",
    ]
    files: list[tuple[str | None, dict[str, str | None]]] = [
        (json.dumps({"minValues": {"c4": low}, "maxValues": {"c4": high}}), {}) for low in texts for high in texts
    ]
    data = [(column.physical_path, column.type) for column in PLAIN if not column.is_partition]
    assert read_stats_columns(data, pa.array([stats for stats, _ in files])) is not None
    assert_a_batch_has_the_bounds_of_its_files(PLAIN, files)
