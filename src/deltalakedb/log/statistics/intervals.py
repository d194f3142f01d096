"""Owns the rounding of values to bounds that contain them, numbers to doubles, strings to short ones; width classes."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from decimal import Decimal
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

Doubles: TypeAlias = npt.NDArray[np.float64]

POINT: Final = -5000  # lower == upper
UNBOUNDED: Final = 5000  # an end is infinite
EMPTY: Final = 5001  # only nulls
RANGE: Final = 0  # text without a common prefix; the classes above it are lengths of the common prefix of both ends

_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,3})?", re.ASCII)
_SPECIAL: Final = {
    "Infinity": math.inf,
    "+Infinity": math.inf,
    "inf": math.inf,
    "-Infinity": -math.inf,
    "-inf": -math.inf,
}
_EXACT_DIGITS: Final = 15  # every decimal with this many digits has its own double
_EXACT_INTEGER: Final = 2.0**53  # every integer below has its own double; 2**53 + 1 rounds to this one


def round_exact(value: int | Decimal) -> tuple[float, float]:
    """The nearest doubles around an exact number (Python compares int and Decimal with float exactly)."""
    try:
        nearest = float(value)
    except OverflowError:
        return (-math.inf, -_LARGEST) if value < 0 else (_LARGEST, math.inf)
    if math.isinf(nearest):
        return (nearest, -_LARGEST) if nearest < 0 else (_LARGEST, nearest)
    lower = nearest if nearest <= value else math.nextafter(nearest, -math.inf)
    upper = nearest if nearest >= value else math.nextafter(nearest, math.inf)
    return lower, upper


_LARGEST: Final = math.nextafter(math.inf, 0)


def round_integers(values: npt.NDArray[np.int64]) -> tuple[Doubles, Doubles]:
    """Computes `round_exact` for a column of integers."""
    nearest = values.astype(np.float64)
    if not len(values) or np.abs(nearest).max() < _EXACT_INTEGER:
        return nearest, nearest
    too_large = nearest >= 2.0**63
    rounded = np.where(too_large, 0, nearest).astype(np.int64)
    lower = np.where(too_large | (rounded > values), np.nextafter(nearest, -np.inf), nearest)
    upper = np.where(~too_large & (rounded < values), np.nextafter(nearest, np.inf), nearest)
    return lower, upper


class NumberColumn:
    """Converts a column's numbers in statistics to intervals, by the column's type."""

    __slots__ = ("_digits", "_is_float", "_saturates", "_was_float32")

    def __init__(self, *, is_float: bool, was_float32: bool, digits: int, saturates: bool) -> None:
        self._is_float = is_float
        self._was_float32 = was_float32
        self._digits = digits
        self._saturates = saturates

    def interval(self, value: Any) -> tuple[float, float]:
        """The interval of one value from JSON or a partition; all numbers if it is unknown."""
        lower, upper = self._unsaturated(*(np.array([end]) for end in self._interval(value)))
        return float(lower[0]), float(upper[0])

    def _interval(self, value: Any) -> tuple[float, float]:
        if isinstance(value, str):
            if self._is_float and value in _SPECIAL:
                return _SPECIAL[value], _SPECIAL[value]
            if not _NUMBER.fullmatch(value) or len(value) > 400:
                return -math.inf, math.inf
            exact = Decimal(value)
            return self._interval(float(exact)) if self._is_float else round_exact(exact)
        if isinstance(value, int) and not (self._is_float and abs(value) < 2**1000):
            return round_exact(value)
        if not isinstance(value, int | float):
            return -math.inf, math.inf
        lower, upper = self._floats(np.array([float(value)]))
        return float(lower[0]), float(upper[0])

    def intervals(self, values: Sequence[Any]) -> tuple[Doubles, Doubles]:
        """Computes `interval` for a column; None is unknown."""
        unknown = np.array([value is None for value in values], np.bool_)
        try:
            column = np.array([0 if value is None else value for value in values])
        except (ValueError, OverflowError):
            column = np.array([], object)
        kind = column.dtype.kind if column.ndim == 1 else "O"
        if kind == "f" and not self._is_float:
            lower, upper = self._mixed(values, column)
        elif kind in "ibf":
            return self.known_intervals(column, unknown)
        else:
            pairs = np.array([self._interval(value) for value in values], np.float64).reshape(-1, 2)
            lower, upper = pairs[:, 0], pairs[:, 1]
        return self._where_known(lower, upper, unknown)

    def known_intervals(self, column: npt.NDArray[Any], unknown: npt.NDArray[np.bool_]) -> tuple[Doubles, Doubles]:
        """Computes `intervals` for values of one type: integers or booleans, or for a float column also doubles."""
        if self._is_float:
            lower, upper = self._floats(column.astype(np.float64))
        else:
            lower, upper = round_integers(column.astype(np.int64))
        return self._where_known(lower, upper, unknown)

    def _where_known(self, lower: Doubles, upper: Doubles, unknown: npt.NDArray[np.bool_]) -> tuple[Doubles, Doubles]:
        lower, upper = self._unsaturated(lower, upper)
        if unknown.any():
            return np.where(unknown, -np.inf, lower), np.where(unknown, np.inf, upper)
        return lower, upper

    def _unsaturated(self, lower: Doubles, upper: Doubles) -> tuple[Doubles, Doubles]:
        """Widens ends at the 64-bit limits: `deltalake` writes larger decimals without fraction as that limit."""
        if not self._saturates:
            return lower, upper
        most, least = 2.0**63, -(2.0**63)
        open_above, open_below = (lower < most) & (upper >= most), (lower <= least) & (upper >= least)
        return np.where(open_below, -np.inf, lower), np.where(open_above, np.inf, upper)

    def _mixed(self, values: Sequence[Any], column: Doubles) -> tuple[Doubles, Doubles]:
        """Integers among decimals are exact, and are not widened like the others."""
        lower, upper = self._floats(column)
        places = [place for place, value in enumerate(values) if isinstance(value, int)]
        if places:
            integers = [values[place] for place in places]
            try:
                lower[places], upper[places] = round_integers(np.array(integers, np.int64))
            except OverflowError:
                lower[places], upper[places] = zip(*map(round_exact, integers), strict=True)
        return lower, upper

    def _floats(self, values: Doubles) -> tuple[Doubles, Doubles]:
        nan = np.isnan(values)
        if not self._is_float:
            # The JSON parser has rounded a decimal to the nearest double, and `deltalake` writes decimals as a double
            # divided by a power of ten, off by several steps: widen by more than that, unless the value is exact.
            exact = np.zeros(len(values), np.bool_)
            if self._digits <= _EXACT_DIGITS:
                exact = (values == np.trunc(values)) & (np.abs(values) < 10.0**_EXACT_DIGITS)
            with np.errstate(over="ignore"):
                slack = np.abs(values) * 2.0**-49
                lower = np.where(exact, values, np.nextafter(values - slack, -np.inf))
                upper = np.where(exact, values, np.nextafter(values + slack, np.inf))
        elif self._was_float32:
            # "0.1" stands for the float 0.1f = 0.10000000149..., or, after widening, for the double 0.1.
            with np.errstate(over="ignore"):
                narrow = values.astype(np.float32).astype(np.float64)
            lower, upper = np.minimum(values, narrow), np.maximum(values, narrow)
        else:
            lower = upper = values
        if nan.any():
            return np.where(nan, -np.inf, lower), np.where(nan, np.inf, upper)
        return lower, upper


def width_classes(lower: Doubles, upper: Doubles) -> npt.NDArray[np.int32]:
    """The class c of each interval, with upper - lower <= 2**c.

    Rounding the subtraction keeps this true: it is monotone, and 2**c is a double.
    """
    with np.errstate(invalid="ignore", over="ignore"):
        width = upper - lower
        classes = np.frexp(width)[1].astype(np.int32)
    classes[lower == upper] = POINT
    classes[~np.isfinite(width)] = UNBOUNDED
    return classes


_TEXT_BYTES: Final = 64
_EXACT_CHARS: Final = 32  # writers truncate longer strings
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")


def lower_text_bound(value: str) -> str:
    """A prefix of at most 64 bytes that every database can store; no string that starts with `value` is below it."""
    match = _UNSTORABLE.search(value)
    if match:
        value = value[: match.start()]
    if len(value) * 4 <= _TEXT_BYTES or (value.isascii() and len(value) <= _TEXT_BYTES):
        return value
    return value.encode()[:_TEXT_BYTES].decode(errors="ignore")


def upper_text_bound(value: str, *, exact: bool = False) -> str | None:
    """The value itself if it is short enough to be complete; else a string above all with its prefix; None: no bound.

    `exact`: the value is not truncated, however long it is.
    """
    match = _UNSTORABLE.search(value)
    if match:
        # The rest after the prefix is below the next character that can be stored.
        prefix = value[: match.start()]
        if len(prefix.encode()) < _TEXT_BYTES - 3:
            return prefix + ("\x01" if match.group() == "\x00" else "\ue000")
        value = prefix
    elif (exact or len(value) < _EXACT_CHARS) and len(value.encode()) <= _TEXT_BYTES:
        return value
    return successor(value.encode()[: _TEXT_BYTES - 4].decode(errors="ignore"))


def successor(prefix: str) -> str | None:
    """The smallest string, with no more characters, above every string with this prefix; None if there is none."""
    while prefix:
        code = ord(prefix[-1]) + 1
        if code <= 0x10FFFF:
            return prefix[:-1] + chr(0xE000 if code == 0xD800 else code)
        prefix = prefix[:-1]
    return None
