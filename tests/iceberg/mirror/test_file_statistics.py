"""Bounds in the log hold for every row of a file, and a reader prunes files by them."""

from __future__ import annotations

import datetime
import json
import math
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

import deltalakedb
from deltalakedb import Catalog
from deltalakedb.log.schema.types import parse_schema
from deltalakedb.log.statistics.stats import typed_value
from tests.conformance.transacting import numbers
from tests.iceberg.lake import create
from tests.iceberg.mirror.judging import last, mirror
from tests.iceberg.mirror.test_readers_agree import KINDS

ODD: dict[str, tuple[pa.DataType, list[Any]]] = {
    "long text": (pa.string(), ["\U0010ffff" * 80, "a" * 300]),
    "moments": (pa.timestamp("us"), [datetime.datetime(2026, 1, 1, 0, 0, 0, 999), datetime.datetime(1, 1, 1)]),
    "late": (pa.timestamp("us"), [datetime.datetime(9999, 12, 31, 23, 59, 59, 999999), None]),
    "zero": (pa.float64(), [-0.0, 0.0]),
    "nothing": (pa.int64(), [None, None]),
}

NO_BOUNDS = ("flag", "raw", "late", "long text", "real", "wide", "zero")
"""PyIceberg does not count NaN, so floats that it wrote have none."""


@pytest.mark.parametrize("kind", [*KINDS, *ODD])
def test_bounds_hold(catalog: Catalog, kind: str) -> None:
    arrow, values = {**KINDS, **ODD}[kind]
    rows = pa.table({"c": pa.array(values, arrow)})
    catalog.iceberg().create_table("shop.t", rows.schema).append(rows)
    path, _ = mirror(catalog)
    stats = json.loads(last(path, "add")["stats"], parse_float=Decimal)
    (column,) = parse_schema(last(path, "metaData")["schemaString"]).fields
    low = typed_value(stats["minValues"].get("c"), column.type)
    high = typed_value(stats["maxValues"].get("c"), column.type)
    present = [value for value in rows["c"].to_pylist() if value is not None]
    assert (stats["numRecords"], stats["nullCount"]) == (len(values), {"c": len(values) - len(present)})
    assert low is None or all(low <= value for value in present)
    assert high is None or all(value <= high for value in present)
    if any(isinstance(value, float) and math.isnan(value) for value in present):
        assert low is high is None
    elif present and kind not in NO_BOUNDS:
        assert low is not None
        assert high is not None


def test_files_are_pruned(catalog: Catalog) -> None:
    table = create(catalog, "shop.t", 1, 2)
    table.append(numbers(8, 9))
    path, _ = mirror(catalog)
    assert len(deltalakedb.DeltaTable(str(path)).file_uris(file_pruning_predicate="id > 5")) == 1
