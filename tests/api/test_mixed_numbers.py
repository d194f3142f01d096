"""Expressions that mix decimals with other numbers give what `deltalake` gives."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import deltalake
import pyarrow as pa
import pytest

import deltalakedb

ROWS = pa.table(
    {
        "number": pa.array([1, 2, 3], pa.int64()),
        "i": pa.array([4, 2, None], pa.int32()),
        "dec": pa.array([Decimal("5.50"), Decimal("2.50"), None], pa.decimal128(3, 2)),
        "out": pa.array([0, 0, 0], pa.int64()),
    }
)


@pytest.mark.parametrize(
    "expression",
    [
        "cast(coalesce(dec, 0) as bigint)",
        "cast(greatest(dec, 2) as bigint)",
        "cast(least(dec, 3) as bigint)",
        "cast(case when i > 2 then dec else i end as bigint)",
        "cast(nullif(dec, 1) as bigint)",
    ],
)
def test_a_cast_to_an_integer_cuts_off_the_fraction(tmp_path: Path, expression: str) -> None:
    found = []
    for library in (deltalake, deltalakedb):
        place = str(tmp_path / library.__name__)
        library.write_deltalake(place, ROWS)
        library.DeltaTable(place).update({"out": expression})
        rows = library.DeltaTable(place).to_pyarrow_table()
        found.append(dict(zip(rows["number"].to_pylist(), rows["out"].to_pylist(), strict=True)))
    theirs, ours = found
    assert ours == theirs


@pytest.mark.parametrize("expression", ["number / out", "number % out", "(number % out) / out"])
def test_null_divided_by_zero_is_null(tmp_path: Path, expression: str) -> None:
    rows = pa.table({"number": pa.array([None], pa.int64()), "out": pa.array([0], pa.int64())})
    for library in (deltalake, deltalakedb):
        place = str(tmp_path / library.__name__)
        library.write_deltalake(place, rows)
        library.DeltaTable(place).update({"number": expression})
        assert library.DeltaTable(place).to_pyarrow_table()["number"].to_pylist() == [None]
