"""The values of captured columns: converts texts as Postgres prints them into Arrow values of the lake's types."""

from __future__ import annotations

import re
from binascii import unhexlify
from collections.abc import Callable
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from deltalakedb.cdc.decode.array_texts import split_arrays
from deltalakedb.cdc.decode.record_texts import parse_record, to_json_text
from deltalakedb.exceptions import ValueNotHeld
from deltalakedb.log.schema.types import ArrayType, DataType, DecimalType, PrimitiveType, StructType, to_arrow_type

_DAY_MICROS: Final = 86_400_000_000
_SHOWN_CHARS: Final = 60
_RESHAPED: Final = " (its type may have other attributes than when the table was copied)"
_PLAIN_MOMENT: Final = r"^\d{4}-[^B]*$"
_MOMENT: Final = re.compile(
    r"(?P<year>\d{4,})-(?P<month>\d\d)-(?P<day>\d\d)"
    r"(?: (?P<hour>\d\d):(?P<minute>\d\d):(?P<second>\d\d)(?:\.(?P<fraction>\d{1,6}))?(?P<zone>\+00)?)?(?P<bc> BC)?"
)


def convert(texts: pa.Array | pa.ChunkedArray, type: DataType, *, where: str) -> pa.Array:  # noqa: A002
    """Convert the texts that Postgres prints under our session's settings into values of a type.

    `where` names the column (`schema.table.column`) in the ValueNotHeld for a value that the type cannot hold. Texts
    may also be bytes; they are checked to be UTF-8 if they stay texts.
    """
    if isinstance(texts, pa.ChunkedArray):
        texts = pa.concat_arrays(texts.chunks) if texts.num_chunks else pa.array([], texts.type)
    match type:
        case ArrayType():
            return _convert_arrays(texts, type, where)
        case PrimitiveType("string"):
            return _cast(texts, pa.string(), type, where)
        case PrimitiveType("binary"):
            return _convert_bytes(texts)
        case StructType():
            return _convert_records(texts, type, where)
    texts = texts.view(pa.string()) if pa.types.is_binary(texts.type) else texts
    match type:
        case PrimitiveType("boolean"):
            return pc.equal(texts, "t")
        case PrimitiveType("date" | "timestamp" | "timestamp_ntz"):
            return _convert_moments(texts, type, where)
        case PrimitiveType() | DecimalType():
            return _cast(texts, to_arrow_type(type), type, where)
    raise TypeError(f"no Postgres type becomes {type}")


def convert_json(texts: pa.Array, shape: DataType, *, where: str) -> pa.Array:
    """Convert the texts of composite values of this shape, or of arrays of them, into JSON."""
    texts = _cast(texts, pa.string(), PrimitiveType("string"), where)
    values = []
    for place, text in enumerate(texts.to_pylist()):
        value = None if text is None else to_json_text(text, shape)
        if text is not None and value is None:
            raise _not_held(texts, place, shape, where, _RESHAPED)
        values.append(value)
    return pa.array(values, pa.string())


def _convert_records(texts: pa.Array, data_type: StructType, where: str) -> pa.Array:
    texts = _cast(texts, pa.string(), PrimitiveType("string"), where)
    count = len(data_type.fields)
    columns: list[list[str | None]] = [[] for _ in range(count)]
    for place, text in enumerate(texts.to_pylist()):
        attributes = [None] * count if text is None else parse_record(text, count)
        if attributes is None:
            raise _not_held(texts, place, data_type, where, _RESHAPED)
        for column, value in zip(columns, attributes, strict=True):
            column.append(value)
    arrays = [
        convert(pa.array(column, pa.string()), item.type, where=where)
        for column, item in zip(columns, data_type.fields, strict=True)
    ]
    return pa.StructArray.from_arrays(
        arrays, fields=list(to_arrow_type(data_type)), mask=texts.is_null() if texts.null_count else None
    )


def _cast(texts: pa.Array, arrow: pa.DataType, data_type: DataType, where: str) -> pa.Array:
    try:
        return texts.cast(arrow)
    except pa.ArrowInvalid:
        place = _first_refused(texts, lambda part: part.cast(arrow))
        raise _not_held(texts, place, data_type, where) from None


def _first_refused(texts: pa.Array, cast: Callable[[pa.Array], Any]) -> int:
    """The position of the first value that a cast refuses; it must refuse one."""
    first, last = 0, len(texts)
    while last - first > 1:
        middle = (first + last) // 2
        try:
            cast(texts.slice(first, middle - first))
        except pa.ArrowInvalid:
            last = middle
        else:
            first = middle
    return first


def _not_held(texts: pa.Array, place: int, data_type: DataType, where: str, why: str = "") -> ValueNotHeld:
    value = texts[place].as_py() if not pa.types.is_string(texts.type) else texts.cast(pa.binary())[place].as_py()
    text = value.decode(errors="backslashreplace")
    excerpt = text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}..."
    return ValueNotHeld(
        f"{where} has a value that {data_type} cannot hold: {excerpt!r}{why}; to capture the column as text, add "
        f"{where} to text_columns and copy the table again",
        where=where,
        place=place,
    )


def _convert_bytes(texts: pa.Array) -> pa.Array:
    r"""Parse bytea, \x and two digits per byte: the digits of all values are parsed as one text."""
    whole = pc.fill_null(texts.cast(pa.binary()), b"\\x")
    _, offsets, data = whole.buffers()
    ends = np.frombuffer(offsets, np.int32, len(whole) + 1, whole.offset * 4)
    values = b"" if data is None else unhexlify(data[ends[0] : ends[-1]].to_pybytes().replace(b"\\x", b""))
    halves = (ends - ends[0]) // 2 - np.arange(len(ends), dtype=np.int32)
    converted = pa.Array.from_buffers(pa.binary(), len(whole), [None, pa.py_buffer(halves), pa.py_buffer(values)])
    return pc.if_else(texts.is_valid(), converted, pa.scalar(None, pa.binary())) if texts.null_count else converted


def _convert_moments(texts: pa.Array, data_type: PrimitiveType, where: str) -> pa.Array:
    arrow = to_arrow_type(data_type)
    try:
        return texts.cast(arrow)
    except pa.ArrowInvalid:
        pass
    plain = pc.match_substring_regex(texts, _PLAIN_MOMENT)
    number, largest = (pa.int32(), 2**31 - 1) if pa.types.is_date32(arrow) else (pa.int64(), 2**63 - 1)
    cast = _cast(pc.if_else(plain, texts, None), arrow, data_type, where)
    numbers = cast.view(number).fill_null(0).to_numpy().copy()
    odd = _is_true(pc.invert(plain))
    for text, infinite in (
        ("infinity", largest),
        ("-infinity", -largest),
    ):  # the largest values, which DuckDB reads as infinity
        ends = _is_true(pc.equal(texts, text))
        numbers[ends] = infinite
        odd &= ~ends
    for place in np.flatnonzero(odd).tolist():
        moment = _parse_moment(texts[place].as_py(), data_type.name == "date")
        if moment is None or abs(moment) >= largest:
            raise _not_held(texts, place, data_type, where)
        numbers[place] = moment
    missing = texts.is_null().to_numpy(zero_copy_only=False) if texts.null_count else None
    return pa.array(numbers, number, mask=missing).view(arrow)


def _is_true(values: pa.Array) -> Any:
    return pc.fill_null(values, False).to_numpy(zero_copy_only=False).copy()


def _parse_moment(text: str, is_date: bool) -> int | None:
    """Days or microseconds since 1970 of a date or timestamp in any year."""
    match = _MOMENT.fullmatch(text)
    if match is None:
        return None
    year = 1 - int(match["year"]) if match["bc"] else int(match["year"])
    days = _days(year, int(match["month"]), int(match["day"]))
    if is_date:
        return days
    seconds = int(match["hour"]) * 3600 + int(match["minute"]) * 60 + int(match["second"])
    return days * _DAY_MICROS + seconds * 1_000_000 + int((match["fraction"] or "").ljust(6, "0"))


def _days(year: int, month: int, day: int) -> int:
    """Days since 1970 for any year of the Gregorian calendar; years begin in March here, so leap days come last."""
    year -= month <= 2
    era, of_era = divmod(year, 400)
    of_year = (153 * (month + (-3 if month > 2 else 9)) + 2) // 5 + day - 1
    return era * 146_097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719_468


def _convert_arrays(texts: pa.Array, data_type: ArrayType, where: str) -> pa.Array:
    refused, parts = split_arrays(texts)
    if refused is not None:
        why = ", which has more than one dimension"
        raise _not_held(texts, refused, data_type, where, why)
    offsets = parts.offsets.to_numpy()
    try:
        values = convert(parts.values, data_type.element_type, where=where)
    except ValueNotHeld as error:
        error.place = int(np.searchsorted(offsets, error.place, side="right")) - 1
        raise
    return pa.ListArray.from_arrays(
        parts.offsets, values, type=to_arrow_type(data_type), mask=texts.is_null() if texts.null_count else None
    )
