"""Composite types as text, as JSON and as structs, copied and streamed; domains are what they are based on."""

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from deltalakedb.cdc.decode.values import convert, parse_record, to_json_text
from deltalakedb.exceptions import ValueNotHeld
from deltalakedb.log.schema.types import ArrayType, PrimitiveType, StructField, StructType
from tests.cdc.choosing import choosing, rows, settings_from
from tests.cdc.conftest import Lake, Source

TYPES = (
    "create type point2 as (x int, y double precision)",
    "create domain zip as varchar(10) check (value <> '')",
    'create type address as (street text, "Zip" zip, at point2, tags text[], price numeric(8, 2), ok bool, day date)',
    "create domain home as address",
    "create table people (id int primary key, home home, places address[], plain zip)",
)
ROWS = (
    (1, """row('a "b" (c), \\d', '1', row(1, 2.5), array['x,y', null, '"'], 1.5, true, '2026-01-02')"""),
    (2, "row('', null, null, '{}', null, false, null)"),
    (3, "null"),
    (4, "row(null, null, row(null, null), null, null, null, null)"),
)
FIRST: dict[str, Any] = {
    "street": 'a "b" (c), \\d',
    "Zip": "1",
    "at": {"x": 1, "y": 2.5},
    "tags": ["x,y", None, '"'],
    "price": Decimal("1.50"),
    "ok": True,
    "day": "2026-01-02",
}


def insert(number: int, value: str) -> str:
    places = "null" if value == "null" else f"array[{value}::address, null]"
    return f"insert into people values ({number}, {value}, {places}, 'z')"


def plain(row: Any) -> Any:
    return row if row is None else {**row, "day": None if row["day"] is None else str(row["day"])}


def test_composite_types_are_structs_if_that_is_asked_for(lake: Lake, source: Source, tmp_path: Path) -> None:
    source.run(*TYPES, *(insert(*row) for row in ROWS), "create publication shop for all tables")
    settings = settings_from('namespace = "lake"\ncomposites = "struct"\n', source, tmp_path)
    with choosing(lake, source, settings) as capture:
        source.run(
            *(insert(number + 10, value) for number, value in ROWS), "update people set plain = 'w' where id = 1"
        )
        capture.catch_up()
        found = {row["id"]: row for row in rows(lake, "lake.people")}
        for base in (0, 10):
            assert plain(found[1 + base]["home"]) == FIRST
            assert [plain(one) for one in found[1 + base]["places"]] == [FIRST, None]
            assert found[2 + base]["home"]["street"] == ""
            assert found[2 + base]["home"]["at"] is None
            assert found[3 + base]["home"] is None
            assert found[4 + base]["home"]["at"] == {"x": None, "y": None}
        assert found[1]["plain"] == "w", "a domain is what it is based on"
        changes = sorted(rows(lake, "lake.people_changes"), key=lambda row: (row["_lsn"], row["_ordinal"]))
        assert plain(changes[0]["after"]["home"]) == FIRST
        source.run("alter type address add attribute more int")
        capture.settle()
        assert capture.table("public.people").stage == "stopped"
        assert "the type public.home of its column home has changed" in str(capture.table("public.people").reason)


def test_composite_types_are_json_if_that_is_asked_for_and_a_rule_may_say_otherwise(
    lake: Lake, source: Source, tmp_path: Path
) -> None:
    source.run(*TYPES, *(insert(*row) for row in ROWS), "create table others as select * from people")
    source.run("alter table others add primary key (id)", "create publication shop for all tables")
    rule = '[[cdc.rules]]\ntables = "others"\ncomposites = "text"\n'
    settings = settings_from(f'namespace = "lake"\ncomposites = "json"\n{rule}', source, tmp_path)
    with choosing(lake, source, settings) as capture:
        source.run(*(insert(number + 10, value) for number, value in ROWS))
        capture.catch_up()
        found = {row["id"]: row for row in rows(lake, "lake.people")}
        for base in (0, 10):
            assert json.loads(found[1 + base]["home"], parse_float=Decimal) == {
                **FIRST,
                "at": {"x": 1, "y": Decimal("2.5")},
            }
            assert json.loads(found[1 + base]["places"])[1] is None
            assert json.loads(found[2 + base]["home"])["ok"] is False
            assert found[3 + base]["home"] is None
        as_text = {row["id"]: row["home"] for row in rows(lake, "lake.others")}
        assert as_text[4] == '(,,"(,)",,,,)'
        # A value with other attributes than were known stops the table, and no other.
        source.run(
            "alter type point2 add attribute z int", insert(99, "row('a', 'b', row(1, 2, 3), null, null, null, null)")
        )
        capture.catch_up()
        assert capture.table("public.people").stage == "stopped"
        assert "other attributes" in str(capture.table("public.people").reason)
        assert capture.table("public.others").stage == "streaming"


@pytest.mark.parametrize(
    ("text", "attributes"),
    [
        ("(1,2)", ["1", "2"]),
        ("(,)", [None, None]),
        ('("",x)', ["", "x"]),
        ('("a""b","c\\\\d")', ['a"b', "c\\d"]),
        ('("(1,2)","{a,""b c""}")', ["(1,2)", '{a,"b c"}']),
        ("(1,2,3)", None),
        ("(1)", None),
        ("", None),
        ("x", None),
    ],
)
def test_a_record_is_taken_apart(text: str, attributes: list[str | None] | None) -> None:
    assert parse_record(text, 2) == attributes


def test_json_has_numbers_that_are_numbers_and_texts_for_those_that_are_not() -> None:
    shape = StructType(
        (StructField("a", PrimitiveType("double"), True), StructField("b", PrimitiveType("string"), True))
    )
    assert to_json_text("(NaN,ä)", shape) == '{"a": "NaN", "b": "ä"}'
    assert to_json_text("(1e10,)", shape) == '{"a": 1e10, "b": null}'
    assert to_json_text('{"(1,x)",NULL}', ArrayType(shape)) == '[{"a": 1, "b": "x"}, null]'
    assert to_json_text("{{(1\\,x)}}", ArrayType(shape)) is None


def test_a_value_that_does_not_fit_is_found_in_its_place() -> None:
    kind = StructType((StructField("a", PrimitiveType("integer"), True),))
    with pytest.raises(ValueNotHeld) as refused:
        convert(pa.array(["(1)", None, "(x)"]), kind, where="public.t.c")
    assert refused.value.place == 2
