"""Bounds of one file are those that the column-wise computation gives, wherever the short way answers at all."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from deltalakedb.log.bounds import bounds_columns, compute_bounds
from deltalakedb.log.file_bounds import bounds_of_file
from deltalakedb.log.types import parse_schema

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
