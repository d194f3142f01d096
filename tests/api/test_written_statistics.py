"""The statistics that a write puts into the log are those of `deltalake`, to the letter."""

from __future__ import annotations

import json
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa

from tests.api.both import Both

SECOND, MILLI, MICRO = (datetime(2020, 1, 1, 1, 2, 3, micros) for micros in (0, 120_000, 1))
ENDS = [datetime(1, 1, 1, 0, 0, 0, 5), datetime(9999, 12, 31, 23, 59, 59, 999_999), None]
UTC, LOCAL = pa.timestamp("us", "UTC"), pa.timestamp("us")
PARTS = pa.struct([("l", pa.list_(pa.int64())), ("b", pa.binary()), ("yes", pa.bool_()), ("t", UTC)])

COLUMNS: dict[str, pa.Array] = {
    "yes_and_no": pa.array([True, False, None]),
    "yes": pa.array([True, True, None]),
    "no_boolean": pa.array([None] * 3, pa.bool_()),
    **{f"{kind.tz}_second": pa.array([SECOND] * 3, kind) for kind in (UTC, LOCAL)},
    **{f"{kind.tz}_milli": pa.array([MILLI] * 3, kind) for kind in (UTC, LOCAL)},
    **{f"{kind.tz}_micro": pa.array([MICRO] * 3, kind) for kind in (UTC, LOCAL)},
    **{f"{kind.tz}_ends": pa.array(ENDS, kind) for kind in (UTC, LOCAL)},
    "array": pa.array([[1], None, [None]]),
    "structs": pa.array([[{"a": 1}]] * 3),
    "map": pa.array([[("a", 1)], None, []], pa.map_(pa.string(), pa.int64())),
    "bytes": pa.array([b"a", None, b"b"]),
    "parts": pa.array([{"l": [1], "b": b"x", "yes": True, "t": SECOND}] * 2 + [None], PARTS),
    "no_parts": pa.array([None] * 3, pa.struct([("a", pa.int64())])),
    "day": pa.array([date(1, 1, 1), date(9999, 12, 31), None]),
    "price": pa.array([Decimal("1.50"), Decimal("-3.25"), None], pa.decimal128(10, 2)),
    "long_text": pa.array(["x" * 64, "y" * 65, "z" * 100]),
    "wide_text": pa.array(["\N{GRINNING FACE}" * 40, "\N{LATIN SMALL LETTER E WITH ACUTE}" * 33, None]),
    "number": pa.array([2**63 - 1, -(2**63), None]),
    "double": pa.array([1.5, -0.0, 1e300]),
}


def statistics(folder: Path) -> list[Any]:
    lines = [json.loads(line) for path in sorted(folder.glob("_delta_log/*.json")) for line in path.open()]
    return [json.loads(line["add"]["stats"]) for line in lines if "add" in line]


def test_statistics_are_written_as_deltalake_writes_them(anywhere: Both) -> None:
    rows = pa.table(COLUMNS)
    anywhere.write(rows)
    anywhere.same(lambda lib: lib.table().delete("number < 0"))  # a file is written anew
    theirs, ours = (statistics(library.folder) for library in anywhere.libraries)
    assert len(ours) == 2
    assert ours == theirs
    anywhere.same(lambda lib: lib.table().get_add_actions(flatten=True).select(["null_count.map", "min.yes"]))
