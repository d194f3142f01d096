"""The tables that calls start from: each is made once a library by the same statements, and copied for every call."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa

Make = Callable[[Any, str], None]


def rows(count: int = 3, start: int = 1, **other: Any) -> pa.Table:
    """Rows of the table `plain`; a column of another value by its name, None leaves it out."""
    ids = list(range(start, start + count))
    columns: dict[str, Any] = {
        "id": pa.array(ids, pa.int64()),
        "name": pa.array([f"n{i}" for i in ids], pa.string()),
        "x": pa.array([i + 0.5 for i in ids], pa.float64()),
        "day": pa.array([f"d{i % 2}" for i in ids], pa.string()),
    }
    for name, value in other.items():
        columns[name] = value if isinstance(value, pa.Array | pa.ChunkedArray | list) else [value] * count
    return pa.table({name: value for name, value in columns.items() if value is not None and value != [None] * count})


def _close(table: Any) -> None:
    """Ours ends what its catalog does in the background."""
    if hasattr(table, "close"):
        table.close()


def nothing(dl: Any, uri: str) -> None:
    """No table yet."""


def plain(dl: Any, uri: str) -> None:
    """Versions 0 to 2, two files and a null."""
    dl.write_deltalake(uri, rows(3))
    dl.write_deltalake(uri, rows(2, 4), mode="append")
    last = pa.table(
        {"id": [6, None], "name": [None, "z"], "x": [None, -1.0], "day": ["d0", None]}, schema=rows(1).schema
    )
    dl.write_deltalake(uri, last, mode="append")


def parted(dl: Any, uri: str) -> None:
    """Partitioned by `day` and `n`, with nulls in both; versions 0 and 1."""
    first = pa.table(
        {
            "id": pa.array([1, 2, 3, 4], pa.int64()),
            "day": ["a", "a", "b", None],
            "n": pa.array([1, 2, 1, 2], pa.int32()),
            "v": ["p", "q", None, "s"],
        }
    )
    dl.write_deltalake(uri, first, partition_by=["day", "n"])
    dl.write_deltalake(
        uri, pa.table({"id": [5], "day": ["a"], "n": [None], "v": ["t"]}, schema=first.schema), mode="append"
    )


def typed(dl: Any, uri: str) -> None:
    """A column of every type."""
    dl.write_deltalake(uri, typed_rows(), configuration={"delta.dataSkippingNumIndexedCols": "-1"})


def types(dl: Any, uri: str) -> None:
    """As `typed`, without a NaN, whose bounds are a difference of their own."""
    place = typed_rows().schema.get_field_index("f32")
    data = typed_rows().set_column(place, "f32", pa.array([1.5, -2.5], pa.float32()))
    dl.write_deltalake(uri, data, configuration={"delta.dataSkippingNumIndexedCols": "-1"})


def typed_rows() -> pa.Table:
    return pa.table(
        {
            "i8": pa.array([1, None], pa.int8()),
            "i16": pa.array([1, -2], pa.int16()),
            "i32": pa.array([1, -2], pa.int32()),
            "i64": pa.array([2**53 + 1, None], pa.int64()),
            "f32": pa.array([1.5, float("nan")], pa.float32()),
            "f64": pa.array([-0.0, float("inf")], pa.float64()),
            "s": pa.array(["", "é" * 40], pa.string()),
            "b": pa.array([True, None], pa.bool_()),
            "bin": pa.array([b"\x00\xff", None], pa.binary()),
            "d": pa.array([date(2024, 2, 29), None], pa.date32()),
            "ts": pa.array([datetime(2024, 3, 1, 12, 0, 0, 123456, tzinfo=UTC), None], pa.timestamp("us", "UTC")),
            "dec": pa.array([Decimal("1.25"), Decimal("-99999.99")], pa.decimal128(7, 2)),
            "st": pa.array([{"a": 1, "b": "x"}, None], pa.struct([("a", pa.int64()), ("b", pa.string())])),
            "ar": pa.array([[1, None], []], pa.list_(pa.int32())),
            "mp": pa.array([[("k", 1)], None], pa.map_(pa.string(), pa.int64())),
        }
    )


def feed(dl: Any, uri: str) -> None:
    """With a change data feed: written, appended, updated, deleted; versions 0 to 3."""
    dl.write_deltalake(uri, rows(3), configuration={"delta.enableChangeDataFeed": "true"})
    dl.write_deltalake(uri, rows(2, 4), mode="append")
    table = dl.DeltaTable(uri)
    table.update({"name": "'new'"}, predicate="id = 2")
    table.delete("id = 3")
    _close(table)


def ruled(dl: Any, uri: str) -> None:
    """A column that is never null, and a constraint."""
    schema = pa.schema(
        [pa.field("id", pa.int64(), nullable=False), pa.field("name", pa.string()), pa.field("x", pa.float64())]
    )
    _close(dl.DeltaTable.create(uri, dl.Schema.from_arrow(schema), name="ruled", description="with rules"))
    dl.write_deltalake(uri, pa.table({"id": [1, 2], "name": ["a", "b"], "x": [1.0, 2.0]}, schema=schema), mode="append")
    table = dl.DeltaTable(uri)
    table.alter.add_constraint({"positive": "x > 0"})
    _close(table)


def many(dl: Any, uri: str) -> None:
    """Twelve versions of one file each, the tenth with a checkpoint."""
    dl.write_deltalake(uri, rows(1))
    for number in range(2, 13):
        dl.write_deltalake(uri, rows(1, number), mode="append")


def empty(dl: Any, uri: str) -> None:
    """A table without a file."""
    _close(dl.DeltaTable.create(uri, dl.Schema.from_arrow(rows(1).schema)))


def restricted(dl: Any, uri: str) -> None:
    """Rows may only be appended."""
    dl.write_deltalake(uri, rows(3), configuration={"delta.appendOnly": "true"})


def generated(dl: Any, uri: str) -> None:
    """`twice` is made from `id`."""
    long, text = dl.schema.PrimitiveType("long"), dl.schema.PrimitiveType("string")
    twice = dl.Field("twice", long, metadata={"delta.generationExpression": "id * 2"})
    _close(dl.DeltaTable.create(uri, dl.Schema([dl.Field("id", long), dl.Field("name", text), twice])))
    dl.write_deltalake(uri, pa.table({"id": [1, 2], "name": ["a", "b"]}), mode="append")


def wide(dl: Any, uri: str) -> None:
    """Names that need quotes, and partitions whose values need escapes."""
    data = pa.table({"a b": [1, 2, 3], "Id": ["x", "y", "z"], "select": [1.0, 2.0, None], "p q": ["u v", "1:2", "ä%"]})
    dl.write_deltalake(uri, data, partition_by=["p q"])


def mixed(dl: Any, uri: str) -> None:
    """Two files with a column of most types, nulls and values whose texts differ between engines."""
    dl.write_deltalake(uri, mixed_rows().slice(0, 4))
    dl.write_deltalake(uri, mixed_rows().slice(4), mode="append")


def mixed_rows() -> pa.Table:
    return pa.table(
        {
            "id": pa.array([1, 2, 3, 4, 5, 6], pa.int64()),
            "qty": pa.array([10, 20, None, 7, 0, -3], pa.int32()),
            "small": pa.array([1, 2, 3, 4, 5, 6], pa.int16()),
            "price": pa.array([1.5, 2.0, 1e20, None, 1e-7, 3.14159], pa.float64()),
            "ratio": pa.array([0.1, 0.25, 1.0, None, 3e10, -2.5], pa.float32()),
            "amount": pa.array(
                [Decimal("10.50"), Decimal("0.00"), Decimal("-3.25"), None, Decimal("99999.99"), Decimal("7.10")],
                pa.decimal128(10, 2),
            ),
            "name": pa.array(["Apple", "banana", None, "cherry pie", "Ärger", "x'y"]),
            "cat": pa.array(["a", "b", "a", "b", "a", None]),
            "ok": pa.array([True, False, None, True, True, False]),
            "day": pa.array(
                [date(2024, 1, 1), date(2024, 2, 29), None, date(1969, 12, 31), date(2024, 12, 31), date(2000, 1, 1)],
                pa.date32(),
            ),
            "ts": pa.array(
                [
                    datetime(2024, 1, 1, 0, 0, tzinfo=UTC),
                    datetime(2024, 2, 29, 12, 30, 15, 500000, tzinfo=UTC),
                    None,
                    datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
                    datetime(2024, 12, 31, 23, 0, 0, 1000, tzinfo=UTC),
                    datetime(2000, 1, 1, 6, 7, 8, tzinfo=UTC),
                ],
                pa.timestamp("us", "UTC"),
            ),
            "ntz": pa.array(
                [
                    datetime(2024, 1, 1),
                    datetime(2024, 2, 29, 12, 30, 15, 500000),
                    None,
                    datetime(1969, 12, 31, 23, 59, 59, 999999),
                    datetime(2024, 12, 31, 23, 0, 0, 1000),
                    datetime(2000, 1, 1, 6, 7, 8),
                ],
                pa.timestamp("us"),
            ),
            "bin": pa.array([b"abc", b"\x00\x01", None, b"", b"zz", b"\xff"], pa.binary()),
            "tags": pa.array([["a", "b"], [], None, ["c"], [None], ["a"]], pa.list_(pa.string())),
            "loc": pa.array(
                [
                    {"x": 1, "y": "u"},
                    {"x": None, "y": "v"},
                    None,
                    {"x": 3, "y": None},
                    {"x": 4, "y": "w"},
                    {"x": 5, "y": "z"},
                ],
                pa.struct([("x", pa.int32()), ("y", pa.string())]),
            ),
        }
    )


STARTS: dict[str, Make] = {
    "none": nothing,
    "plain": plain,
    "parted": parted,
    "typed": typed,
    "types": types,
    "feed": feed,
    "ruled": ruled,
    "many": many,
    "empty": empty,
    "restricted": restricted,
    "generated": generated,
    "wide": wide,
    "mixed": mixed,
}
