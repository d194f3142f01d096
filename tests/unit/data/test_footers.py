"""Statistics from footers: each column is found by its path in the file's own schema."""

import io
import json
from datetime import datetime
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from deltalakedb.data.footers import FooterStats
from deltalakedb.log.schema.types import StructType, parse_schema


def schema_of(*fields: tuple[str, Any]) -> StructType:
    listed = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in fields]
    return parse_schema(json.dumps({"type": "struct", "fields": listed}))


def stats_of(rows: pa.Table, schema: StructType, partition_columns: tuple[str, ...] = ()) -> dict[str, Any]:
    sink = io.BytesIO()
    pq.write_table(rows, sink)
    footer = pq.ParquetFile(io.BytesIO(sink.getvalue())).metadata
    found: dict[str, Any] = json.loads(FooterStats(schema, partition_columns, {}).of(footer))
    return found


def test_a_file_that_holds_its_partition_columns_too_has_its_own_bounds() -> None:
    schema = schema_of(("p", "long"), ("a", "long"), ("b", "long"))
    found = stats_of(pa.table({"p": [7, 7], "b": [100, 200], "a": [1, None]}), schema, ("p",))
    assert found["minValues"] == {"a": 1, "b": 100}
    assert found["maxValues"] == {"a": 1, "b": 200}
    assert found["nullCount"] == {"a": 1, "b": 0}


def test_columns_stand_in_any_order_and_beside_others() -> None:
    inner = {"type": "struct", "fields": [{"name": "y", "type": "long", "nullable": True, "metadata": {}}]}
    schema = schema_of(("s.y", "long"), ("s", inner), ("z", "long"))
    rows = pa.table(
        {
            "extra": [{"deep": [1], "more": 2}],
            "z": [3],
            "tags": pa.array([["a", "b"]], pa.large_list(pa.string())),
            "s": [{"x": 8, "y": 4}],
            "props": pa.array([[("k", 9)]], pa.map_(pa.string(), pa.int64())),
            "s.y": [5],
        }
    )
    found = stats_of(rows, schema)
    assert found["minValues"] == found["maxValues"] == {"s.y": 5, "s": {"y": 4}, "z": 3}
    assert found["nullCount"] == {"s.y": 0, "s": {"y": 0}, "z": 0}


def test_what_the_file_does_not_have_or_has_in_another_unit_is_not_known() -> None:
    schema = schema_of(("a", "long"), ("t", "timestamp"), ("n", "long"), ("s", "string"))
    moment = pa.array([datetime(2020, 1, 1)], pa.timestamp("us"))  # no instant without a zone
    found = stats_of(
        pa.table({"t": moment, "n": pa.array([5], pa.int32()), "s": pa.array(["x"], pa.large_string())}), schema
    )
    assert found == {"numRecords": 1, "minValues": {"s": "x"}, "maxValues": {"s": "x"}, "nullCount": {"s": 0}}


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_moments_are_known_in_every_unit(unit: str) -> None:
    moments = pa.array([datetime(2020, 1, 1), datetime(1960, 1, 1, 0, 0, 1)], pa.timestamp(unit))
    found = stats_of(pa.table({"t": moments}), schema_of(("t", "timestamp_ntz")))
    assert found["minValues"] == {"t": "1960-01-01 00:00:01"}
    assert found["maxValues"] == {"t": "2020-01-01 00:00:00"}


def test_a_dictionary_has_the_bounds_of_its_values() -> None:
    rows = pa.table({"s": pa.array(["b", "a", None]).dictionary_encode()})
    found = stats_of(rows, schema_of(("s", "string")))
    assert (found["minValues"], found["maxValues"], found["nullCount"]) == ({"s": "a"}, {"s": "b"}, {"s": 1})


def test_a_maximum_beside_which_a_nan_may_be_is_not_known() -> None:
    """Most writers leave NaN, which is above all numbers, out of the bounds of a footer."""
    found = stats_of(pa.table({"x": [1.5, float("nan")]}), schema_of(("x", "double")))
    assert (found["minValues"], found["maxValues"]) == ({"x": 1.5}, {})
