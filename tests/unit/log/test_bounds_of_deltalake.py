"""Bounds contain every value of a file, by the statistics that `deltalake` really writes."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from hypothesis import given
from hypothesis import strategies as st

from deltalakedb.log.protocol.actions import AddFile, Metadata
from deltalakedb.log.protocol.commit import iter_actions
from deltalakedb.log.schema.types import parse_schema
from deltalakedb.log.statistics.bounds import EMPTY, Bound, compute_bounds
from deltalakedb.log.statistics.bounds_columns import bounds_columns

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
US = timedelta(microseconds=1)


def decimals(precision: int, scale: int) -> st.SearchStrategy[Decimal]:
    most = 10**precision - 1
    return st.one_of(st.integers(-most, most), st.integers(-9, 9)).map(lambda n: Decimal((n < 0, _digits(n), -scale)))


def _digits(number: int) -> tuple[int, ...]:
    return tuple(int(digit) for digit in str(abs(number)))


COLUMNS: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "long": (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "byte": (pa.int8(), st.integers(-128, 127)),
    "double": (pa.float64(), st.floats()),
    "float": (pa.float32(), st.floats(width=32)),
    "boolean": (pa.bool_(), st.booleans()),
    "decimal(38,0)": (pa.decimal128(38, 0), decimals(38, 0)),
    "decimal(38,18)": (pa.decimal128(38, 18), decimals(38, 18)),
    "decimal(18,2)": (pa.decimal128(18, 2), decimals(18, 2)),
    "decimal(9,3)": (pa.decimal128(9, 3), decimals(9, 3)),
    "date": (pa.date32(), st.dates()),
    "timestamp": (pa.timestamp("us", "UTC"), st.datetimes(timezones=st.just(UTC))),
    "timestamp_ntz": (pa.timestamp("us"), st.datetimes()),
    "string": (pa.string(), st.text(st.characters(codec="utf-8") | st.sampled_from("\0\U0010ffff"), max_size=100)),
    "long string": (pa.string(), st.text(st.sampled_from("aé\ud7ff\U0010ffff"), min_size=28, max_size=40)),
}
rows = st.fixed_dictionaries(
    {name: st.lists(st.none() | values, min_size=2, max_size=2) for name, (_, values) in COLUMNS.items()}
)


def written(values: dict[str, list[Any]]) -> dict[str, Bound]:
    """The bounds of the one file `deltalake` makes of the values."""
    table = pa.table({name: pa.array(items, COLUMNS[name][0]) for name, items in values.items()})
    with TemporaryDirectory() as folder:
        write_deltalake(folder, table)
        with Path(folder, "_delta_log", f"{0:020}.json").open("rb") as lines:
            actions = list(iter_actions(lines, table="t", version=0))
    (add,) = (action for action in actions if isinstance(action, AddFile))
    (metadata,) = (action for action in actions if isinstance(action, Metadata))
    columns = bounds_columns(parse_schema(metadata.schema_string), (), {})
    bounds = compute_bounds(columns, [(add.stats, add.partition_values)])
    return {json.loads(item.column_path)[0]: bounds.bound(place, 0) for place, item in enumerate(columns)}


def as_number(value: Any) -> Any:
    if isinstance(value, datetime):
        return (value.replace(tzinfo=UTC) - EPOCH) // US
    if isinstance(value, date):
        return (value - EPOCH.date()).days
    return Fraction(value) if isinstance(value, Decimal) else value


def check(name: str, values: Sequence[Any], bound: Bound) -> None:
    real = [as_number(value) for value in values if value is not None]
    assert bound.null_count in (None, len(values) - len(real))
    if not real:
        assert bound.width_class == EMPTY
    elif name.endswith("string"):
        assert bound.lower_text is not None
        assert all(bound.lower_text <= value for value in real)
        assert bound.upper_text is None or all(value <= bound.upper_text for value in real)
    else:
        assert bound.lower is not None
        assert bound.upper is not None
        numbers = [value for value in real if not (isinstance(value, float) and math.isnan(value))]
        assert all(bound.lower <= value <= bound.upper for value in numbers), (name, values, bound)


@given(rows)
def test_every_value_lies_within_the_bounds_of_its_column(values: dict[str, list[Any]]) -> None:
    bounds = written(values)
    assert bounds.keys() == values.keys()
    for name, bound in bounds.items():
        check(name, values[name], bound)


@pytest.mark.parametrize("unscaled", [10**37, -(10**37), 2**63, -(2**63) - 1, 2**63 - 1])
def test_a_decimal_beyond_64_bits_is_written_as_the_last_number_within_and_read_as_no_bound(unscaled: int) -> None:
    (bound,) = written({"decimal(38,0)": [Decimal(unscaled)]}).values()
    check("decimal(38,0)", [Decimal(unscaled)], bound)
