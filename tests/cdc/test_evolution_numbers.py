"""The numbers of a relation's columns, and which types hold what others held."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deltalakedb.cdc.captured_table import CapturedTable, SourceColumn
from deltalakedb.cdc.decode.messages import Relation, RelationColumn
from deltalakedb.cdc.evolve.decision import number_columns
from deltalakedb.cdc.evolve.lake_columns import widening_steps
from deltalakedb.cdc.source.source_catalog import Attribute
from deltalakedb.log.schema.ddl import parse_ddl
from deltalakedb.log.schema.types import DataType, PrimitiveType

INT = PrimitiveType("integer")


def table(columns: dict[int, str]) -> CapturedTable:
    made = tuple(SourceColumn(name, 23, -1, INT, number) for number, name in columns.items())
    return CapturedTable("public.t", 1, made, (), "lake.t", "lake.t_changes", "streaming")


def message(*names: str) -> Relation:
    return Relation(1, "public", "t", "f", tuple(RelationColumn(name, 23, -1, True) for name in names))


def catalog(columns: dict[int, str | None]) -> tuple[Attribute, ...]:
    """A column without a name is a dropped one."""
    return tuple(
        Attribute(number, name or f"........pg.dropped.{number}........", name is None, 23, -1, False, None, False)
        for number, name in columns.items()
    )


def numbers(captured: dict[int, str], sent: tuple[str, ...], now: dict[int, str | None]) -> tuple[int, ...] | None:
    live = {number for number, name in now.items() if name is not None}
    return number_columns(message(*sent), table(captured), catalog(now), live)


@pytest.mark.parametrize(
    ("captured", "sent", "now", "expected"),
    [
        # the catalog is as the message is
        ({1: "a", 2: "b"}, ("a", "b", "c"), {1: "a", 2: "b", 3: "c"}, (1, 2, 3)),
        ({1: "a", 2: "b"}, ("a",), {1: "a", 2: None}, (1,)),
        ({1: "a", 2: "b"}, ("a", "x"), {1: "a", 2: "x"}, (1, 2)),
        ({1: "a", 2: "b"}, ("b", "a"), {1: "b", 2: "a"}, (1, 2)),
        ({1: "a", 2: "b"}, ("a", "b"), {1: "a", 2: None, 3: "b"}, None),
        # it has moved on
        ({1: "a", 2: "b"}, ("a", "b", "c"), {1: "a", 2: "b", 3: "c", 4: "d"}, (1, 2, 3)),
        ({1: "a", 2: "b"}, ("a", "b", "c"), {1: "a", 2: "b", 3: None}, (1, 2, 3)),
        ({1: "a", 2: "b"}, ("a", "b", "c"), {1: "a", 2: None, 3: None, 4: "c"}, None),
        ({1: "a", 2: "b"}, ("a", "b", "c"), {1: "a", 2: "b", 3: None, 4: "c"}, None),
        ({1: "a", 2: "b"}, ("a", "c"), {1: "a", 2: None, 3: "c"}, (1, 3)),
        ({1: "a", 2: "b"}, ("a", "x"), {1: "a", 2: None}, (1, 2)),
        ({1: "a", 2: "b"}, ("a", "x"), {1: "a", 2: None, 3: None}, None),
        ({1: "a", 2: "b"}, ("a", "x"), {1: "a", 2: "y"}, (1, 2)),
        # a column that was dropped before cannot be meant, one that is there cannot be missing
        ({1: "a", 3: "b"}, ("a", "x"), {1: "a", 2: None, 3: "x"}, (1, 3)),
        ({1: "a", 2: "b"}, ("a",), {1: "a", 2: "b"}, None),
        ({1: "a"}, ("b",), {1: "a", 2: "b"}, (1,)),
        # names are given again: their places alone decide
        ({1: "a", 2: "b"}, ("a", "b2", "b"), {1: "a", 2: "b2", 3: "b3", 4: "b"}, (1, 2, 3)),
        ({1: "a", 2: "b"}, ("a", "b", "c"), {1: "a", 2: "b", 3: None, 4: None, 5: "c"}, None),
    ],
)
def test_columns_are_told_by_what_is_sure_of_their_numbers(
    captured: dict[int, str], sent: tuple[str, ...], now: dict[int, str | None], expected: tuple[int, ...] | None
) -> None:
    assert numbers(captured, sent, now) == expected


STEPS = st.lists(st.tuples(st.sampled_from(["add", "drop", "rename"]), st.integers(0, 9)), max_size=6)


@given(before=STEPS, after=STEPS)
def test_numbers_that_are_told_are_the_right_ones(before: list[tuple[str, int]], after: list[tuple[str, int]]) -> None:
    """From any history between the capture and the message, and between that and now, where names are never reused."""
    captured = {1: "a", 2: "b", 3: "c"}
    then, newest = _play(dict(captured), 3, before, "x")
    now, newest = _play(dict(then), newest, after, "y")
    if not then:
        return
    found = numbers(captured, tuple(then.values()), {number: now.get(number) for number in range(1, newest + 1)})
    assert found in (None, tuple(then))
    if not after and then.keys() - captured.keys() == set(range(4, newest + 1)):
        assert found == tuple(then)


def _play(
    columns: dict[int, str], newest: int, steps: list[tuple[str, int]], prefix: str
) -> tuple[dict[int, str], int]:
    for place, (step, choice) in enumerate(steps):
        number = sorted(columns)[choice % len(columns)] if columns else 0
        if step == "add" or not columns:
            newest += 1
            columns[newest] = f"{prefix}{place}"
        elif step == "drop":
            del columns[number]
        else:
            columns[number] = f"{prefix}{place}"
    return columns, newest


def typed(text: str) -> DataType:
    return parse_ddl(f"x {text}").fields[0].type


@pytest.mark.parametrize(
    ("old", "new", "noted"),
    [
        ("short", "long", "short>long"),
        ("integer", "double", "integer>double"),
        ("long", "decimal(20,0)", "long>decimal(20,0)"),
        ("long", "decimal(19,0)", None),
        ("integer", "decimal(12,2)", "integer>decimal(12,2)"),
        ("integer", "decimal(11,2)", None),
        ("decimal(10,2)", "decimal(12,4)", "decimal(10,2)>decimal(12,4)"),
        ("decimal(10,2)", "decimal(11,4)", None),
        ("decimal(10,2)", "decimal(38,2)", "decimal(10,2)>decimal(38,2)"),
        ("float", "double", "float>double"),
        ("long", "double", None),
        ("date", "timestamp_ntz", None),
        ("string", "string", ""),
        ("array<integer>", "array<long>", "integer>long at element"),
        ("array<array<short>>", "array<array<long>>", "short>long at element.element"),
        ("array<integer>", "array<string>", None),
        ("integer", "array<integer>", None),
    ],
)
def test_a_wider_type_is_noted_as_delta_does(old: str, new: str, noted: str | None) -> None:
    steps = widening_steps(typed(old), typed(new))
    if noted is None:
        assert steps is None
        return
    assert steps is not None
    told = [f"{one.from_type}>{one.to_type}" + (f" at {one.field_path}" if one.field_path else "") for one in steps]
    assert ", ".join(told) == noted


def test_what_is_known_of_a_table_survives_its_json() -> None:
    columns = (SourceColumn("a", 23, -1, INT, 1, "integer"), SourceColumn("b", 25, -1, PrimitiveType("string"), 4))
    known = replace(
        table({}),
        columns=columns,
        stage="stopped",
        reason="because",
        stopped_lsn=17,
        changed_lsn=16,
        former=(columns[:1], (replace(columns[1], missing="x"),)),
        filenode=5,
        newest=4,
    )
    assert CapturedTable.from_value(known.to_value()) == known
