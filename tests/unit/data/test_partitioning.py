"""Partition values as text, the folders named after them, and rows parted by them."""

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deltalakedb.data.partitioning import HIVE_NULL, check_partition_field, folder_of, split, value_texts
from deltalakedb.exceptions import SchemaMismatchError
from deltalakedb.log.protocol.paths import decode_path, encode_path
from deltalakedb.log.schema.types import ArrayType, DataType, DecimalType, PrimitiveType, StructField, to_arrow_type

ALL_TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=300)


def texts(name: str, values: list[Any]) -> list[str | None]:
    kind: DataType = DecimalType(10, 2) if name == "decimal" else PrimitiveType(name)
    return value_texts(pa.array(values, to_arrow_type(kind)), StructField("p", kind))


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("long", -7, "-7"),
        ("boolean", True, "true"),
        ("string", "a b/=", "a b/="),
        ("string", "", None),
        ("string", None, None),
        ("date", date(2026, 2, 3), "2026-02-03"),
        ("date", date(1, 2, 3), "0001-02-03"),
        ("timestamp", datetime(2026, 1, 2, 3, 4, 5, 6, UTC), "2026-01-02T03:04:05.000006Z"),
        ("timestamp_ntz", datetime(2026, 1, 2, 3, 4, 5, 600), "2026-01-02 03:04:05.000600"),
        ("double", 1.5, "1.5"),
        ("double", 1e21, "1000000000000000000000"),
        ("double", 2.0, "2"),
        ("double", -0.0, "-0"),
        ("double", float("nan"), "NaN"),
        ("double", float("-inf"), "-inf"),
        ("float", 0.1, "0.1"),
        ("decimal", Decimal("1.10"), "1.10"),
        ("binary", b"a\x00\xff", "a\x00\xff"),
        ("binary", b"", None),
    ],
)
def test_a_value_is_spelled_as_the_protocol_says(name: str, value: Any, text: str | None) -> None:
    assert texts(name, [value]) == [text]


@pytest.mark.parametrize(
    ("text", "folder"),
    [
        ("a b", "p=a%20b"),
        (None, f"p={HIVE_NULL}"),
        ("é/=%:\"#?\\*'{}[]^", "p=%C3%A9%2F%3D%25%3A%22%23%3F%5C%2A%27%7B%7D%5B%5D%5E"),
        ("x\ny\x01~.", "p=x%0Ay%01~."),
        ("..", "p=.."),
        ("a\x00b", "p=a%00b"),
    ],
)
def test_a_folder_is_named_as_deltalake_names_it(text: str | None, folder: str) -> None:
    assert folder_of(["p"], (text,)) == folder


@given(st.lists(ALL_TEXTS | st.none(), min_size=1, max_size=3))
def test_every_folder_can_exist_and_its_path_survives_the_log(values: list[str | None]) -> None:
    folder = folder_of([f"p{place}" for place in range(len(values))], tuple(values))
    assert all(0 < len(name.encode()) <= 255 for name in folder.split("/"))
    assert len(folder.split("/")) == len(values)
    assert "\0" not in folder
    encoded = encode_path(f"{folder}/part-0.parquet")
    assert encoded.isascii()
    assert decode_path(encoded) == f"{folder}/part-0.parquet"


def test_long_values_have_folders_of_their_own() -> None:
    folders = {folder_of(["p"], ("x" * 300 + end,)) for end in "abc"}
    assert len(folders) == 3


@given(st.lists(st.tuples(st.integers(0, 2) | st.none(), st.sampled_from(["", "a", "b", None])), min_size=1))
def test_every_row_is_in_the_partition_of_its_values_in_its_old_order(rows: list[tuple[Any, Any]]) -> None:
    columns = [pa.array([row[0] for row in rows], pa.int64()), pa.array([row[1] for row in rows], pa.string())]
    fields = [StructField("x", PrimitiveType("long")), StructField("y", PrimitiveType("string"))]
    found: dict[Any, list[int]] = {}
    for key, indices in split(columns, fields):
        assert key not in found
        found[key] = list(range(len(rows))) if indices is None else indices.to_pylist()
    expected: dict[Any, list[int]] = {}
    for place, (number, text) in enumerate(rows):
        expected.setdefault((None if number is None else str(number), text or None), []).append(place)
    assert found == expected


def test_an_empty_value_is_refused_where_null_is() -> None:
    item = StructField("p", PrimitiveType("string"), nullable=False)
    with pytest.raises(SchemaMismatchError, match="'p'.*an empty partition value is null"):
        value_texts(pa.array(["a", ""]), item)


@pytest.mark.parametrize("kind", [ArrayType(PrimitiveType("long")), PrimitiveType("void")])
def test_not_every_type_can_part_a_table(kind: DataType) -> None:
    with pytest.raises(SchemaMismatchError, match="'p' cannot be a partition column"):
        check_partition_field(StructField("p", kind))
