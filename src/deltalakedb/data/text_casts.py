"""Casts text to values and values to text, with the spellings of Arrow in Rust, which `deltalake` casts with."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, date, datetime
from typing import Any, Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

_TRUE: Final = pa.array(["t", "tr", "tru", "true", "y", "ye", "yes", "on", "1"])
_FALSE: Final = pa.array(["f", "fa", "fal", "fals", "false", "n", "no", "of", "off", "0"])
_SHORT_DATE: Final = re.compile(r"(\d{4})(?:-(\d{1,2})-(\d{1,2})|(\d\d)(\d\d))", re.ASCII)
_MOMENT: Final = re.compile(
    r"(\d{4}-\d\d-\d\d)(?:[T ](\d\d:\d\d:\d\d)(?:\.(\d+))?)? ?(Z|[+-]\d\d:?\d\d|[A-Za-z][\w/+-]*)?", re.ASCII
)
_SCIENTIFIC: Final = re.compile(r"(-?)(\d)\.(\d*)e([+-]\d+)")


def text_to_numbers(array: pa.Array, target: pa.DataType) -> pa.Array:
    """Parse numbers, with a sign and with white space around them."""
    text = pc.utf8_trim_whitespace(array)
    if pt.is_integer(target):
        hexadecimal = pc.match_substring_regex(text, "[xX]")
        if pc.any(hexadecimal).as_py():
            first = text.filter(hexadecimal)[0].as_py()
            raise pa.ArrowInvalid(f"Failed to parse string: '{first}' as a scalar of type {target}")
        text = pc.replace_substring_regex(text, r"^\+([0-9])", r"\1")
    return text.cast(target)


def text_to_booleans(array: pa.Array) -> pa.Array:
    """Parse `true`, `yes`, `on`, `1` and their opposites, in any case, or their beginnings."""
    text = pc.utf8_lower(pc.utf8_trim_whitespace(array)).cast(pa.string())
    is_true = pc.is_in(text, _TRUE)
    is_other = pc.invert(pc.or_(pc.or_(is_true, pc.is_in(text, _FALSE)), text.is_null()))
    if pc.any(is_other).as_py():
        first = array.filter(is_other)[0].as_py()
        raise pa.ArrowInvalid(f"Cannot cast value '{first}' to value of Boolean type")
    return pc.if_else(text.is_null(), pa.scalar(None, pa.bool_()), is_true)


def text_to_moments(array: pa.Array, target: pa.DataType) -> pa.Array:
    """Parse dates and timestamps with a zone, or without one (then UTC); a date may be followed by a time."""
    for timestamp_type in (pa.timestamp("us"), pa.timestamp("us", "UTC")):
        try:
            return array.cast(timestamp_type).cast(target)
        except pa.ArrowInvalid:
            continue
    parse: Callable[[str], Any] = _parse_date if pt.is_date(target) else _parse_moment
    try:
        values = [None if text is None else parse(text) for text in array.to_pylist()]
    except (ValueError, ZoneInfoNotFoundError):
        return array.cast(target)  # its error names the text
    if pt.is_date(target):
        return pa.array(values, target)
    return pa.array(values, pa.timestamp("us", "UTC")).cast(target)


def _parse_date(text: str) -> date:
    match = _SHORT_DATE.fullmatch(text)
    if match is None:
        return _parse_moment(text).date()
    year, *rest = (int(part) for part in match.groups() if part is not None)
    return date(year, *rest)


def _parse_moment(text: str) -> datetime:
    match = _MOMENT.fullmatch(text)
    if match is None:
        raise ValueError(text)
    day, clock, fraction, zone = match.groups()
    moment = datetime.fromisoformat(f"{day}T{clock or '00:00:00'}.{(fraction or '0')[:6]:0<6}")
    if zone is None or zone == "Z":
        return moment.replace(tzinfo=UTC)
    if zone[0] in "+-":
        return datetime.fromisoformat(moment.isoformat() + zone).astimezone(UTC)
    return moment.replace(tzinfo=ZoneInfo(zone)).astimezone(UTC)


def floats_to_text(array: pa.Array) -> pa.Array:
    """The fewest digits that are the same float: `1.0`, `0.1`, `1e20`, `NaN`."""
    if pt.is_float16(array.type):
        array = array.cast(pa.float32())
    floats = array.fill_null(0.0).to_numpy(zero_copy_only=False)
    text = pc.replace_substring_regex(array.cast(pa.string()), r"^(-?[0-9]+)$", r"\1.0")
    sizes = np.abs(floats)
    with np.errstate(invalid="ignore"):
        is_plain = (sizes == 0) | ((sizes >= 1e-3) & (sizes < 1e12)) | np.isinf(floats)
    if is_plain.all():
        return text
    texts = np.array(text.to_pylist(), dtype=object)
    for place in np.flatnonzero(~is_plain):
        texts[place] = _float_text(floats[place])
    return pa.array(texts, pa.string())


def _float_text(value: np.floating[Any]) -> str:
    match = _SCIENTIFIC.fullmatch(np.format_float_scientific(value))
    if match is None:
        return "NaN"
    sign, first, rest, power = match[1], match[2], match[3], int(match[4])
    digits, point = first + rest, power + 1
    lowest, highest = (-5, 13) if value.dtype == np.float32 else (-4, 16)
    if len(digits) <= point <= highest:
        return f"{sign}{digits.ljust(point, '0')}.0"
    if 0 < point <= highest:
        return f"{sign}{digits[:point]}.{digits[point:]}"
    if lowest <= point <= 0:
        return f"{sign}0.{'0' * -point}{digits}"
    return f"{sign}{first}{'.' if rest else ''}{rest}e{power}"


def moments_to_text(array: pa.Array) -> pa.Array:
    """ISO 8601 with `Z` if there is a zone, and with as many groups of three digits after the second as needed."""
    text = array.cast(pa.timestamp("us", array.type.tz and "UTC"), safe=False).cast(pa.string())
    text = pc.replace_substring(text, " ", "T")
    text = pc.replace_substring_regex(text, r"\.000000(Z?)$", r"\1")
    return pc.replace_substring_regex(text, r"(\.[0-9]{3})000(Z?)$", r"\1\2")


def lists_to_text(array: pa.Array, elements: pa.Array) -> pa.Array:
    """`[a, b]`; `elements` are the texts of the values. A null within is an empty text."""
    texts = pa.ListArray.from_arrays(array.offsets, elements.fill_null(""))
    joined = pc.binary_join_element_wise("[", pc.binary_join(texts, ", "), "]", "")
    return pc.if_else(array.is_null(), pa.scalar(None, pa.string()), joined)


def bytes_to_hex(array: pa.Array) -> pa.Array:
    """The bytes in a list that is cast to text."""
    return pa.array([None if value is None else value.hex() for value in array.to_pylist()], pa.string())
