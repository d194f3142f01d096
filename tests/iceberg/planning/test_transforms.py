"""Transforms compute what PyIceberg computes, and a projected range holds the transform of each of its values."""

import math
from decimal import Decimal
from random import Random

import pytest

from deltalakedb.iceberg.planning.binding import atoms_of, column_of_field
from deltalakedb.iceberg.planning.schema import Field
from deltalakedb.iceberg.planning.transforms import parse_transform
from deltalakedb.iceberg.planning.types import Primitive, Value, from_bytes, parse_type
from deltalakedb.log.predicates import dnf
from deltalakedb.log.predicates.atoms import Within
from deltalakedb.log.predicates.ranges import NumberRange, Ranges, TextRange
from deltalakedb.log.statistics.intervals import round_exact
from tests.fixtures.sizes import sized
from tests.iceberg.planning.columns import KINDS, single_value, transformed

CASES = [(kind.name, transform) for kind in KINDS.values() for transform in kind.transforms]
VALUES = sized(150, 3000)


def type_of(name: str) -> Primitive:
    parsed = parse_type(name)
    assert parsed is not None
    return parsed


@pytest.mark.parametrize(("name", "transform"), CASES)
def test_a_transform_gives_what_pyiceberg_gives(name: str, transform: str) -> None:
    random = Random(1)
    for _ in range(VALUES):
        value = KINDS[name].draw(random)
        if isinstance(value, float) and math.isnan(value):
            continue
        assert parse_transform(transform).apply(type_of(name), value) == transformed(transform, name, value), value


@pytest.mark.parametrize(("name", "transform"), CASES)
def test_a_projected_condition_holds_the_transform_of_each_value_that_satisfies_it(name: str, transform: str) -> None:
    random, type_ = Random(2), type_of(name)
    column = column_of_field(Field(1, "c", type_, has_bounds=True), type_)
    projected = 0
    for _ in range(VALUES):
        low, value, high = sorted((finite(random, name) for _ in range(3)), key=lambda item: item)
        for op, literal in (("eq", value), ("lt-eq", high), ("gt-eq", low), ("lt", high), ("gt", low)):
            atoms = atoms_of(op, column, type_, [int(literal) if isinstance(literal, bool) else literal])
            if (op in ("lt", "gt") and literal == value) or not atoms or not isinstance(atoms[0][0], Within):
                continue
            ranges = parse_transform(transform).project(type_, atoms[0][0].ranges)
            if ranges is not None:
                projected += 1
                result = transformed(transform, name, value)
                assert holds(ranges, result), f"{op} {literal!r}: {result!r} of {value!r} is not in {ranges}"
    assert projected > 0


def finite(random: Random, name: str) -> Value:
    while True:
        value: Value = KINDS[name].draw(random)
        if not isinstance(value, float) or math.isfinite(value):
            return value


def holds(ranges: Ranges, value: Value) -> bool:
    if isinstance(value, str | bytes):
        text = value.hex() if isinstance(value, bytes) else value
        return any(item.keeps(text, text) for item in ranges if isinstance(item, TextRange))
    # The index has the interval of doubles around a value.
    lower, upper = (float(value), float(value)) if isinstance(value, float) else round_exact(value)
    return any(item.keeps(lower, upper) for item in ranges if isinstance(item, NumberRange))


def test_a_range_of_decimals_that_no_double_is_equal_to_has_the_buckets_of_its_ends() -> None:
    type_ = type_of("decimal(9,2)")
    column = column_of_field(Field(1, "c", type_, has_bounds=True), type_)
    low, high = Decimal("14.20"), Decimal("14.23")
    both = dnf.all_of([atoms_of("gt-eq", column, type_, [low]), atoms_of("lt-eq", column, type_, [high])])
    ((atom,),) = both
    assert isinstance(atom, Within)
    buckets = parse_transform("bucket[1000]").project(type_, atom.ranges)
    assert buckets is not None
    for cents in range(1420, 1424):
        assert holds(buckets, transformed("bucket[1000]", "decimal(9,2)", Decimal(cents).scaleb(-2)))


@pytest.mark.parametrize("name", KINDS)
def test_a_bound_is_read_as_it_was_written(name: str) -> None:
    random = Random(3)
    for _ in range(VALUES):
        value = finite(random, name)
        assert from_bytes(type_of(name), single_value(name, value)) == value


@pytest.mark.parametrize(("old", "new"), [("int", "long"), ("float", "double"), ("decimal(9,2)", "decimal(18,2)")])
def test_a_bound_from_before_a_promotion_is_read_by_the_new_type(old: str, new: str) -> None:
    value = finite(Random(4), old)
    assert from_bytes(type_of(new), single_value(old, value)) == value


def test_bounds_of_a_wrong_length_and_broken_texts_are_unknown() -> None:
    for name in ("boolean", "int", "long", "double", "date", "timestamp"):
        assert from_bytes(type_of(name), b"abc") is None
    assert from_bytes(type_of("string"), b"\xff") is None
    assert from_bytes(type_of("timestamp"), b"\0\0\0\0") is None  # days from before a promotion
    assert parse_type("variant") is None
