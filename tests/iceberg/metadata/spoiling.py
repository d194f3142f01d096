"""Requests and files with one mistake in them."""

from __future__ import annotations

import copy
from typing import Any

from hypothesis import strategies as st

from tests.iceberg.metadata.random_schemas import Draw

WRONG: st.SearchStrategy[Any] = st.sampled_from(
    [None, True, 0, -1, 1.5, 2**31, 2**63, 2**64, -(2**63), "", "x", "1", "\ud800", [], [None], [[]], {}, {"a": None},
     {"type": "struct"}, float("nan")]
)  # fmt: skip


@st.composite
def spoiled(draw: Draw, value: Any) -> Any:
    """The same JSON with one value replaced, one field removed, or one item repeated."""
    value = copy.deepcopy(value)
    holder: Any = {"root": value}
    key: Any = "root"
    while isinstance(holder[key], dict | list) and holder[key] and draw(st.integers(0, 4)):
        holder = holder[key]
        key = draw(st.sampled_from(sorted(holder) if isinstance(holder, dict) else range(len(holder))))
    change = draw(st.integers(0, 3))
    if change == 0 and isinstance(holder, dict) and holder is not value and key != "root":
        del holder[key]
    elif change == 1 and isinstance(holder, list):
        holder.append(copy.deepcopy(holder[key]))
    elif key != "root":
        holder[key] = draw(WRONG)
    return value
