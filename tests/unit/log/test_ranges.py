"""Sets of ranges: what they unite and intersect to keeps exactly the files that their sources keep."""

from itertools import pairwise
from math import inf, nextafter
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from deltalakedb.log.predicates.ranges import (
    NumberRange,
    intersect_numbers,
    round_down,
    round_up,
    unite_numbers,
)

ends = st.sampled_from([-inf, -1.0, 0.0, 5e-324, 1.0, nextafter(1.0, inf), 2.0, inf])
number_ranges = st.builds(lambda a, b: NumberRange(min(a, b), max(a, b)), ends, ends)


@given(st.lists(number_ranges, max_size=4), st.lists(number_ranges, max_size=4), ends, ends)
def test_ranges_keep_a_file_exactly_if_one_of_their_sources_does(
    left: list[NumberRange], right: list[NumberRange], one: float, other: float
) -> None:
    low, high = min(one, other), max(one, other)
    united = unite_numbers(left + right)
    assert any(r.keeps(low, high) for r in united) >= any(r.keeps(low, high) for r in left + right)
    both = intersect_numbers(unite_numbers(left), unite_numbers(right))
    if low == high and low not in (inf, -inf):
        inside = any(r.keeps(low, low) for r in left) and any(r.keeps(low, low) for r in right)
        assert any(r.keeps(low, low) for r in both) == inside
    assert all(a.lo <= b.lo and a.hi <= b.hi for a, b in pairwise(both)), "in order"


@given(st.decimals(allow_nan=False, allow_infinity=False) | st.integers() | st.fractions())
def test_rounding_encloses_the_number(value: Any) -> None:
    assert round_down(value) <= value <= round_up(value)
    assert round_up(value) in (round_down(value), nextafter(round_down(value), inf))
