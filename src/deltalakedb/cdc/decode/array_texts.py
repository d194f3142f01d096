"""The texts of Postgres' arrays, parsed into the texts of their elements."""

from __future__ import annotations

import re
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_PLAIN: Final = r'^\{[^"\\{}]*\}$'
_BOUNDS: Final = re.compile(r"\[-?\d+:-?\d+\]=")
_ELEMENT: Final = re.compile(r'(?:"((?:[^"\\]|\\.)*)"|([^",{}\\]+))([,}])', re.DOTALL)
_ESCAPED: Final = re.compile(r"\\(.)", re.DOTALL)


def split_arrays(texts: pa.Array) -> tuple[int | None, pa.Array]:
    """Lists of the elements' texts, empty if the array is null; or the position of one that has not one dimension.

    `{1,NULL,"a b"}` has one dimension; a first subscript other than 1 (`[0:1]={1,2}`) is dropped.
    """
    texts = texts.cast(pa.string())
    is_plain = pc.match_substring_regex(texts, _PLAIN)
    if pc.all(is_plain, min_count=0).as_py():
        return None, _split_plain(texts)
    plain = is_plain.fill_null(True).to_numpy(zero_copy_only=False)
    parsed = []
    others = np.flatnonzero(~plain)
    for place in others.tolist():
        elements = parse_array(texts[place].as_py())
        if elements is None:
            return place, None
        parsed.append(elements)
    lists = pa.concat_arrays([_split_plain(texts.filter(pa.array(plain))), pa.array(parsed, pa.list_(pa.string()))])
    order = np.empty(len(texts), np.int64)
    order[np.flatnonzero(plain)] = np.arange(plain.sum())
    order[others] = np.arange(plain.sum(), len(texts))
    return None, lists.take(pa.array(order))


def _split_plain(texts: pa.Array) -> pa.Array:
    """Split arrays without quotes at commas. Elements cannot be empty there, so an empty one means an empty array."""
    lists = pc.split_pattern(pc.utf8_slice_codeunits(pc.fill_null(texts, "{}"), 1, -1), ",")
    values = lists.values
    filled = pc.not_equal(values, "")
    offsets = np.concatenate(([0], np.cumsum(filled.to_numpy(zero_copy_only=False))))[lists.offsets.to_numpy()]
    values = values.filter(filled)
    values = pc.if_else(pc.equal(values, "NULL"), pa.scalar(None, pa.string()), values)
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), values)


def parse_array(text: str) -> list[str | None] | None:
    """The texts of the elements; None if the array has not one dimension."""
    bounds = _BOUNDS.match(text)
    position = bounds.end() if bounds else 0
    if text[position:] == "{}":
        return []
    elements: list[str | None] = []
    if text[position : position + 1] != "{":
        return None
    position += 1
    while position < len(text):
        match = _ELEMENT.match(text, position)
        if match is None:
            return None
        quoted, plain, _ = match.groups()
        if quoted is not None:
            elements.append(_ESCAPED.sub(r"\1", quoted) if "\\" in quoted else quoted)
        else:
            elements.append(None if plain == "NULL" else plain)
        position = match.end()
    return elements
