"""Parses dates and timestamps from text: one at a time in any spelling, a column at a time in the usual ones.

Days and microseconds count from 1970-01-01 in the proleptic Gregorian calendar, also beyond Python's range of years.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from enum import IntEnum
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

US_PER_SECOND: Final = 1_000_000
US_PER_DAY: Final = 86_400 * US_PER_SECOND
TIMESTAMP_BYTES: Final = 36
_LIMIT_US: Final = 2**62  # moments farther away are unreadable, to avoid an overflow

_DATE = re.compile(r"([+-]?\d{4,6})-(\d{2})-(\d{2})", re.ASCII)
_TIMESTAMP = re.compile(
    _DATE.pattern + r"(?:[T ](\d{2}):(\d{2})(?::(\d{2})(?:\.(\d{1,9}))?)?\s?(Z|UTC|[+-]\d{2}:?\d{2})?)?", re.ASCII
)


class Zone(IntEnum):
    """The zone in a timestamp's text."""

    NONE = 0
    UTC = 1
    OFFSET = 2
    UNREADABLE = 3


class Moment(NamedTuple):
    micros: int
    zone: Zone


def days_from_civil(year: Any, month: Any, day: Any) -> Any:
    """Days since 1970-01-01, for numbers and for arrays."""
    year = year - (month <= 2)
    era = year // 400
    year_of_era = year - era * 400
    day_of_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    return era * 146097 + year_of_era * 365 + year_of_era // 4 - year_of_era // 100 + day_of_year - 719468


def _days_in_month(year: Any, month: Any) -> Any:
    leap = (year % 4 == 0) & ((year % 100 != 0) | (year % 400 == 0))
    return 30 + ((month + month // 8) % 2) - (month == 2) * (2 - leap * 1)


def parse_date(text: str) -> int | None:
    """Days since the epoch; None if the text is not a date."""
    match = _DATE.fullmatch(text)
    return None if match is None else _days(match)


def _days(match: re.Match[str]) -> int | None:
    year, month, day = int(match[1]), int(match[2]), int(match[3])
    if not 1 <= month <= 12 or not 1 <= day <= _days_in_month(year, month):
        return None
    return int(days_from_civil(year, month, day))


def parse_timestamp(text: str) -> Moment | None:
    """Microseconds since the epoch (truncated); None if the text is not a timestamp. A date means its midnight."""
    match = _TIMESTAMP.fullmatch(text)
    days = None if match is None else _days(match)
    if match is None or days is None:
        return None
    hour, minute, second = int(match[4] or 0), int(match[5] or 0), int(match[6] or 0)
    if hour > 23 or minute > 59 or second > 59:
        return None
    micros = days * US_PER_DAY + ((hour * 60 + minute) * 60 + second) * US_PER_SECOND
    micros += int(((match[7] or "") + "000000")[:6])
    zone, suffix = Zone.NONE, match[8]
    if suffix in ("Z", "UTC"):
        zone = Zone.UTC
    elif suffix:
        offset = int(suffix[1:3]) * 60 + int(suffix[-2:])
        micros -= (-offset if suffix[0] == "-" else offset) * 60 * US_PER_SECOND
        zone = Zone.OFFSET if offset else Zone.UTC
    return Moment(micros, zone) if abs(micros) < _LIMIT_US else None


class Moments(NamedTuple):
    """A parsed column; if `zone` is UNREADABLE, `micros` is meaningless."""

    micros: npt.NDArray[np.int64]
    zone: npt.NDArray[np.int8]


def parse_timestamps(texts: Sequence[Any]) -> Moments:
    """Parses a column of timestamps; values that are not strings are unreadable."""
    matrix = _ascii_matrix(texts)
    if matrix is not None:
        return parse_timestamp_bytes(matrix, texts.__getitem__)
    parsed = _unreadable(len(texts))
    _parse_each(parsed, range(len(texts)), texts.__getitem__)
    return parsed


def parse_timestamp_bytes(matrix: npt.NDArray[np.uint8], text_at: Callable[[int], Any]) -> Moments:
    """Parses timestamps given as ASCII: a row of TIMESTAMP_BYTES for each text, padded with zeros."""
    parsed = _unreadable(len(matrix))
    lengths = (matrix != 0).sum(axis=1)
    for length in np.unique(lengths):
        if 19 <= length <= 35:
            _parse_shape(matrix, np.flatnonzero(lengths == length), int(length), parsed.micros, parsed.zone)
    remaining = np.flatnonzero((parsed.zone == Zone.UNREADABLE) & (lengths > 0))
    _parse_each(parsed, remaining.tolist(), text_at)
    return parsed


def _unreadable(count: int) -> Moments:
    return Moments(np.zeros(count, np.int64), np.full(count, Zone.UNREADABLE, np.int8))


def _parse_each(parsed: Moments, places: Iterable[int], text_at: Callable[[int], Any]) -> None:
    for place in places:
        text = text_at(place)
        moment = parse_timestamp(text) if isinstance(text, str) else None
        if moment is not None:
            parsed.micros[place], parsed.zone[place] = moment


def parse_dates(texts: Sequence[Any]) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.bool_]]:
    """Parses a column of dates as days, and tells which of them could be read."""
    days_by_text: dict[Any, int | None] = {}
    days: list[int] = []
    readable: list[bool] = []
    for text in texts:
        if not isinstance(text, str):
            parsed = None
        elif text in days_by_text:
            parsed = days_by_text[text]
        else:
            parsed = days_by_text[text] = parse_date(text)
        days.append(parsed or 0)
        readable.append(parsed is not None)
    return np.array(days, np.float64), np.array(readable, np.bool_)


def _ascii_matrix(texts: Sequence[Any]) -> npt.NDArray[np.uint8] | None:
    """One row of bytes per text, empty for other values; None if the column is not all ASCII."""
    try:
        packed = np.array([text if type(text) is str else "" for text in texts], dtype=f"S{TIMESTAMP_BYTES}")
    except UnicodeEncodeError:
        return None
    return packed.view(np.uint8).reshape(len(texts), TIMESTAMP_BYTES)


def _parse_shape(
    matrix: npt.NDArray[np.uint8],
    rows: npt.NDArray[np.intp],
    length: int,
    micros: npt.NDArray[np.int64],
    zone: npt.NDArray[np.int8],
) -> None:
    """Parses the rows that have the same spelling as the first; leaves the others unchanged."""
    chars = matrix if len(rows) == len(matrix) else matrix[rows]
    first = chars[0]
    suffix = 1 if first[length - 1] == ord("Z") else 6 if length >= 25 and first[length - 3] == ord(":") else 0
    fraction = length - 19 - suffix
    if fraction == 1 or not 0 <= fraction <= 10:
        return
    digits = chars.astype(np.int64) - ord("0")
    valid = (chars[:, 4] == ord("-")) & (chars[:, 7] == ord("-"))
    valid &= (chars[:, 10] == ord("T")) | (chars[:, 10] == ord(" "))
    valid &= (chars[:, 13] == ord(":")) & (chars[:, 16] == ord(":"))
    year, month, day = _number(digits, 0, 4), _number(digits, 5, 7), _number(digits, 8, 10)
    hour, minute, second = _number(digits, 11, 13), _number(digits, 14, 16), _number(digits, 17, 19)
    places = [0, 1, 2, 3, 5, 6, 8, 9, 11, 12, 14, 15, 17, 18, *range(20, 19 + fraction)]
    total = days_from_civil(year, month, day) * US_PER_DAY + ((hour * 60 + minute) * 60 + second) * US_PER_SECOND
    if fraction:
        valid &= chars[:, 19] == ord(".")
        num_digits = min(fraction - 1, 6)
        total += _number(digits, 20, 20 + num_digits) * 10 ** (6 - num_digits)
    zone_found: Any = Zone.NONE
    if suffix == 1:
        valid &= chars[:, length - 1] == ord("Z")
        zone_found = Zone.UTC
    elif suffix == 6:
        sign, tens = chars[:, length - 6], length - 5
        valid &= ((sign == ord("+")) | (sign == ord("-"))) & (chars[:, length - 3] == ord(":"))
        offset = _number(digits, tens, tens + 2) * 60 + _number(digits, length - 2, length)
        total -= np.where(sign == ord("-"), -offset, offset) * 60 * US_PER_SECOND
        zone_found = np.where(offset == 0, Zone.UTC, Zone.OFFSET)
        places += [tens, tens + 1, length - 2, length - 1]
    digit_columns = digits[:, places]
    valid &= ((digit_columns >= 0) & (digit_columns <= 9)).all(axis=1)
    valid &= (month >= 1) & (month <= 12) & (day >= 1) & (day <= _days_in_month(year, month))
    valid &= (hour <= 23) & (minute <= 59) & (second <= 59)
    micros[rows] = np.where(valid, total, micros[rows])
    zone[rows] = np.where(valid, zone_found, zone[rows])


def _number(digits: npt.NDArray[np.int64], start: int, stop: int) -> npt.NDArray[np.int64]:
    number = digits[:, start].copy()
    for place in range(start + 1, stop):
        number = number * 10 + digits[:, place]
    return number
