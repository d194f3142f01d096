"""Casts numbers and text to decimals as Arrow in Rust does: rounded half away from zero, and never out of range.

Arrow C++ (26.0) makes 0 of a float that does not fit, and another number of a text with more than 38 digits.
"""

from __future__ import annotations

import re
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_ALL_INTEGERS: Final = pa.decimal128(20, 0)
_NUMBER: Final = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)", re.ASCII)
_EXACT: Final = Context(prec=200, rounding=ROUND_HALF_UP)
_TWO_TO_64: Final = 2.0**64
_TWO_TO_127: Final = 2.0**127


def integers_to_decimals(array: pa.Array, target: pa.Decimal128Type) -> pa.Array:
    """Arrow requires room for every integer of the source's type; here only the values must fit."""
    whole = array.cast(_ALL_INTEGERS)
    try:
        return whole.cast(target)
    except pa.ArrowInvalid:
        for value in whole:
            if value.is_valid:
                _refuse_too_large(int(value.as_py()) * 10**target.scale, target)
        raise


def floats_to_decimals(array: pa.Array, target: pa.Decimal128Type) -> pa.Array:
    """The value times ten to the power of the scale, rounded, as an integer of 128 bits."""
    nulls = array.is_null()
    floats = array.cast(pa.float64()).fill_null(0.0).to_numpy(zero_copy_only=False)
    with np.errstate(over="ignore", invalid="ignore"):
        scaled = floats * 10.0**target.scale
        # Not floor(x + 0.5): that sum is rounded, too.
        magnitudes = np.trunc(np.abs(scaled))
        magnitudes += np.abs(scaled) - magnitudes >= 0.5
        for place in np.flatnonzero(~(magnitudes < _TWO_TO_127))[:1]:
            value = "NaN" if np.isnan(floats[place]) else f"{floats[place]:g}".replace("e+", "e")
            raise pa.ArrowInvalid(
                f"Cannot cast to Decimal128({target.precision}, {target.scale}). Overflowing on {value}"
            )
    for place in np.flatnonzero(magnitudes >= 10.0**target.precision * (1 - 1e-9)):
        _refuse_too_large(int(np.copysign(magnitudes[place], scaled[place])), target)
    words = np.empty((len(floats), 2), dtype="<u8")
    words[:, 1] = np.floor(magnitudes / _TWO_TO_64).astype("<u8")
    words[:, 0] = (magnitudes - np.floor(magnitudes / _TWO_TO_64) * _TWO_TO_64).astype("<u8")
    decimals = pa.Array.from_buffers(target, len(floats), [None, pa.py_buffer(words.tobytes())])
    decimals = pc.if_else(pa.array(scaled < 0), pc.negate(decimals), decimals)
    return pc.if_else(nulls, pa.scalar(None, target), decimals)


def text_to_decimals(array: pa.Array, target: pa.Decimal128Type) -> pa.Array:
    """Text of digits with a point, without an exponent; white space around it is skipped."""
    text = pc.utf8_trim_whitespace(array)
    whole_digits, scale = target.precision - target.scale, target.scale
    fits = pc.match_substring_regex(text, rf"^[+-]?([0-9]{{1,{max(whole_digits, 1)}}}(\.[0-9]{{0,{scale}}})?)$")
    if whole_digits and pc.all(fits).as_py() is not False:
        return text.cast(target)
    return pa.array([None if value is None else _parse(value, target) for value in text.to_pylist()], target)


def _parse(text: str, target: pa.Decimal128Type) -> Decimal:
    if _NUMBER.fullmatch(text) is None:
        raise pa.ArrowInvalid(f"Cannot cast string '{text}' to value of Decimal128(38, 10) type")
    unscaled = int(Decimal(text).scaleb(target.scale, _EXACT).to_integral_value(context=_EXACT))
    _refuse_too_large(unscaled, target)
    return Decimal(unscaled).scaleb(-target.scale, _EXACT)


def _refuse_too_large(unscaled: int, target: pa.Decimal128Type) -> None:
    limit = 10**target.precision - 1
    if abs(unscaled) > limit:
        value, largest = (f"{Decimal(one).scaleb(-target.scale, _EXACT):f}" for one in (unscaled, limit))
        problem = f"{value} is too large to store in a Decimal128 of precision {target.precision}. Max is {largest}"
        if unscaled < 0:
            problem = (
                f"{value} is too small to store in a Decimal128 of precision {target.precision}. Min is -{largest}"
            )
        raise pa.ArrowInvalid(problem)
