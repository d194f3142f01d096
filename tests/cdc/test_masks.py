"""Masks of values: hashes, constants and nulls, of every type, and errors that show nothing."""

import hashlib
import hmac
from dataclasses import replace

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deltalakedb.cdc.captured_table import CapturedTable, Mask, MaskKind, SourceColumn, TableOptions, fingerprint
from deltalakedb.cdc.decode.values import convert_column, convert_table_column, mask_text
from deltalakedb.cdc.table_rules import mask_column
from deltalakedb.exceptions import CaptureError, ValueNotHeld
from deltalakedb.log.schema.types import DataType, PrimitiveType

KEY = "0123456789abcdef"


def column(kind: MaskKind, data_type: str = "string", text: str | None = None, key: str = KEY) -> SourceColumn:
    mask = Mask(kind, text, fingerprint(key) if kind == "hash" else None)
    made: DataType = PrimitiveType(data_type)
    return mask_column(SourceColumn("c", 0, -1, made, 1), mask)


@given(st.lists(st.none() | st.text()), st.text(min_size=1, max_size=200))
def test_a_hash_is_the_hmac_of_the_text(texts: list[str | None], key: str) -> None:
    found = convert_column(pa.array(texts, pa.string()), column("hash", "integer", key=key), key, where="t.c")
    assert found.type == pa.string()
    assert found.to_pylist() == [
        None if text is None else hmac.new(key.encode(), text.encode(), hashlib.sha256).hexdigest() for text in texts
    ]


def test_a_constant_has_the_type_of_the_column_and_null_stays_null() -> None:
    texts = pa.chunked_array([["1", None], ["2"]])
    assert convert_column(texts, column("constant", "integer", "7"), None, where="t.c").to_pylist() == [7, None, 7]
    assert convert_column(texts, column("null", "integer"), None, where="t.c").to_pylist() == [None, None, None]
    assert convert_column(texts, column("null", "integer"), None, where="t.c").type == pa.int32()
    assert mask_text("x", Mask("constant", "y"), None) == "y"
    assert mask_text(None, Mask("constant", "y"), None) is None
    assert mask_text("x", None, None) == "x"


@pytest.mark.parametrize("key", [None, "another key, not that one"])
def test_a_hash_without_its_key_is_refused_and_shows_no_value(key: str | None) -> None:
    with pytest.raises(CaptureError, match="DL_CDC_MASK_KEY") as refused:
        convert_column(pa.array(["secret"]), column("hash"), key, where="t.c")
    assert "secret" not in str(refused.value)


def test_a_value_that_the_type_cannot_hold_is_no_trouble_when_it_is_masked() -> None:
    for kind in ("hash", "null"):
        made = column(kind, "date")
        assert len(convert_column(pa.array(["not a date"]), made, KEY, where="t.c")) == 1


def test_what_no_partition_can_be_named_by_is_refused_where_a_table_is_partitioned_by_it() -> None:
    text = SourceColumn("c", 25, -1, PrimitiveType("string"), 1)
    day = SourceColumn("d", 1082, -1, PrimitiveType("date"), 2)
    plain = CapturedTable("public.t", 1, (text, day), (), "lake.t", "lake.t_changes")
    parted = replace(plain, options=TableOptions(partition_by=("c", "d")))
    texts, days = pa.array(["a", None, ""]), pa.array(["0001-01-01", "9999-12-31", None, "infinity"])
    for column, read, place in ((text, texts, 2), (day, days, 3), (day, pa.array(["0001-12-31 BC"]), 0)):
        assert len(convert_table_column(read, column, plain, None)) == len(read)
        assert convert_table_column(read.slice(0, place), column, parted, None).null_count == place // 2
        with pytest.raises(
            ValueNotHeld, match=rf"public\.t\.{column.name} has a.*take it out of partition_by"
        ) as refused:
            convert_table_column(read, column, parted, None)
        assert refused.value.place == place
