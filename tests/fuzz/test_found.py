"""Inputs that once ended in another way than with a value or an error of ours, each with what is to be told of it."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

from deltalakedb import DeltaTable
from deltalakedb.cdc.decode.values import convert
from deltalakedb.exceptions import CaptureError, InvalidValueError, MalformedLogError, ValueNotHeld, redact
from deltalakedb.log.schema.ddl import parse_ddl
from deltalakedb.log.schema.types import PrimitiveType, parse_schema
from deltalakedb.log.statistics.stats import typed_value
from deltalakedb.schema.forms import type_from_json
from deltalakedb.storage.local import LocalStorage
from deltalakedb.storage.location import open_storage
from tests.cdc import pgoutput_messages as pg
from tests.cdc.test_pgoutput import NOON, RELATIONS, decode, in_transaction
from tests.fixtures.handmade import HandmadeTable, add


@pytest.mark.parametrize(
    ("message", "told"),
    [
        (b"", "without any bytes"),
        (pg.begin(1000, NOON, 7)[:-1], "'B' that is cut short"),
        (b"T\0\0\0\xff\0", "cut short"),
        (b"R\0\0\0\x64public\0orders", "cut short"),
        (b"R\0\0\0\x64\xff\xfe\0orders\0d\0\0", "cut short"),
        # The text of the last column is said to be longer than the message.
        (pg.delete(100, "K", ["1", "x"])[:-2] + b"\x09x", "do not end where their message does"),
        (b"D\0\0\0\x64K\0\x02t\x7f\xff\xff\xff1n", "cut short"),
        (b"B" + bytes(8) + b"\x7f" * 8 + bytes(4), "between the years"),
    ],
)
def test_messages_that_postgres_does_not_send_stop_the_capture(message: bytes, told: str) -> None:
    with pytest.raises(CaptureError, match=told):
        decode([*in_transaction(1000, *RELATIONS), pg.begin(2000, NOON, 8), message, pg.commit(2000)])


@pytest.mark.parametrize("text", ["00ff", "\\x0", "\\x0g", "\\x00\\x00", "x\\x0", ""])
def test_bytes_that_are_not_written_in_digits_are_told(text: str) -> None:
    """Their lengths would be places outside of the buffer."""
    with pytest.raises(ValueNotHeld, match="public.t.x has a value"):
        convert(pa.array(["\\xff", text]), PrimitiveType("binary"), where="public.t.x")
    whole = convert(pa.array(["\\xff", None, "\\x"]), PrimitiveType("binary"), where="public.t.x")
    assert whole.to_pylist() == [b"\xff", None, b""]


def test_a_text_of_megabytes_is_masked_at_once() -> None:
    """The time was once a power of the length: this text took days."""
    text = redact("x" * 2_000_000 + " my-secret=abc postgres://ann:pass@host/db")
    assert text.endswith("x my-secret=*** postgres://ann:***@host/db")


@pytest.mark.parametrize(
    "change",
    [{"metadata": "x"}, {"metadata": ["x"]}],
    ids=["text as metadata", "list as metadata"],
)
def test_schemas_that_make_no_sense_are_refused(change: dict[str, object]) -> None:
    field = {"name": "id", "type": "long", "nullable": True, "metadata": {}}
    fields = [{**field, **change}, {**field, "name": "other"}]
    with pytest.raises(MalformedLogError, match="is not a Delta schema"):
        parse_schema(json.dumps({"type": "struct", "fields": fields}))


def test_a_table_with_a_name_twice_has_no_flat_add_actions(tmp_path: Path) -> None:
    """The values of a column and of a struct with its name cannot stand side by side."""
    table = HandmadeTable(tmp_path / "t").create()
    place = {"type": "struct", "fields": [{"name": "city", "type": "string", "nullable": True, "metadata": {}}]}
    fields = [{"name": "place", "type": kind, "nullable": True, "metadata": {}} for kind in ("long", place)]
    table.commit(
        {
            "metaData": {
                "id": "x",
                "format": {"provider": "parquet", "options": {}},
                "schemaString": json.dumps({"type": "struct", "fields": fields}),
                "partitionColumns": [],
                "configuration": {},
            }
        },
        add("x.parquet"),
    )
    with pytest.raises(MalformedLogError, match="two columns with the name 'place'"):
        DeltaTable(table.path).get_add_actions()


def test_types_inside_each_other_have_a_limit() -> None:
    with pytest.raises(InvalidValueError, match="more than 100 types inside each other"):
        parse_ddl("x " + "array<" * 5000 + "int" + ">" * 5000)
    with pytest.raises(ValueError, match="nested too deeply"):
        type_from_json('{"type":"array","elementType":' * 10**5)


def test_a_number_that_no_double_is_near_is_no_bound() -> None:
    assert typed_value(10**400, PrimitiveType("double")) is None


def test_a_part_of_a_file_takes_no_more_memory_than_the_file(tmp_path: object) -> None:
    storage = open_storage(str(tmp_path))
    assert isinstance(storage, LocalStorage)
    storage.replace("x", b"content")
    assert storage.get_range("x", 3, 2**60) == b"tent"
    assert storage.get_range("x", 30, 2**60) == b""
