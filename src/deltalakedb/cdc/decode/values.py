"""The values of captured columns: texts as Postgres prints them become Arrow values of the lake, masks first."""

from __future__ import annotations

import hashlib
import json
import math
import re
from binascii import unhexlify
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from deltalakedb.cdc.captured_table import Mask, fingerprint
from deltalakedb.cdc.source_names import resnapshot_command
from deltalakedb.exceptions import CaptureError, ValueNotHeld
from deltalakedb.log.schema.types import ArrayType, DataType, DecimalType, PrimitiveType, StructType, to_arrow_type

if TYPE_CHECKING:
    from deltalakedb.cdc.captured_table import CapturedTable, SourceColumn

_FIRST_DAY: Final = -719_162
_LAST_DAY: Final = 2_932_896
"""Dates that can name a partition's folder: of the years 1 to 9999, in days since 1970."""
_BLOCK_BYTES: Final = 64
"""The block size of SHA-256."""


def mask_text(text: str | None, mask: Mask | None, key: str | None) -> str | None:
    """Mask one value, given as text."""
    return _mask(pa.array([text], pa.string()), mask, key)[0].as_py() if mask is not None else text


def convert_column(texts: pa.Array | pa.ChunkedArray, column: SourceColumn, key: str | None, *, where: str) -> pa.Array:
    """Convert the texts that Postgres prints into the lake's values of a column. Masks come first, so that no error
    shows a masked value."""
    if isinstance(texts, pa.ChunkedArray):
        texts = pa.concat_arrays(texts.chunks) if texts.num_chunks else pa.array([], texts.type)
    if column.mask is not None:
        texts = _mask(texts, column.mask, key)
    elif column.shape is not None:
        return convert_json(texts, column.shape, where=where)
    return convert(texts, column.type, where=where)


def convert_table_column(
    texts: pa.Array | pa.ChunkedArray, column: SourceColumn, table: CapturedTable, key: str | None
) -> pa.Array:
    """The same for a column of a table; ValueNotHeld if the lake's table cannot hold a value."""
    where = f"{table.source}.{column.name}"
    values = convert_column(texts, column, key, where=where)
    if table.options is None or column.name not in table.options.partition_by:
        return values
    if pa.types.is_string(values.type):
        place, what = pc.index(values, "").as_py(), "an empty text, which Delta cannot tell from null in"
    elif pa.types.is_date32(values.type):
        days = values.view(pa.int32())
        is_beyond = pc.or_(pc.less(days, _FIRST_DAY), pc.greater(days, _LAST_DAY))
        place, what = pc.index(is_beyond, True).as_py(), "a date before the year 1 or after 9999, which cannot be in"
    else:
        return values
    if place >= 0:
        raise ValueNotHeld(
            f"{where} has {what} a column that a table is partitioned by: take it out of partition_by, run dl cdc "
            f"apply, then {resnapshot_command(table.source)}",
            where=where,
            place=place,
        )
    return values


def _mask(texts: pa.Array, mask: Mask, key: str | None) -> pa.Array:
    if mask.kind == "null":
        return pa.nulls(len(texts), pa.string())
    if mask.kind == "constant":
        return pc.if_else(texts.is_valid(), pa.scalar(mask.text, pa.string()), pa.scalar(None, pa.string()))
    if key is None or (mask.key_id is not None and fingerprint(key) != mask.key_id):
        raise CaptureError(
            "a column is masked by a hash, and its key is not the one that the capture was begun with: set mask_key "
            "(DL_CDC_MASK_KEY) to that key, or have the tables copied anew with dl cdc apply"
        )
    values = texts.cast(pa.binary()).dictionary_encode()
    hashes = _hash(values.dictionary.to_pylist(), key.encode())
    return pa.array(hashes, pa.string()).take(values.indices)


def _hash(values: Iterable[bytes], key: bytes) -> list[str]:
    """HMAC-SHA256 of each value (RFC 2104). Both halves of the key are hashed once; `hmac.digest` would hash them for
    each value, which takes more than twice as long."""
    block = (key if len(key) <= _BLOCK_BYTES else hashlib.sha256(key).digest()).ljust(_BLOCK_BYTES, b"\0")
    inner, outer = (hashlib.sha256(bytes(byte ^ pad for byte in block)) for pad in (0x36, 0x5C))
    hashes = []
    for value in values:
        inside, outside = inner.copy(), outer.copy()
        inside.update(value)
        outside.update(inside.digest())
        hashes.append(outside.hexdigest())
    return hashes


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
            return _convert_bytes(texts, type, where)
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
        except ValueError:  # ArrowInvalid is one
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


def _convert_bytes(texts: pa.Array, data_type: PrimitiveType, where: str) -> pa.Array:
    whole = pc.fill_null(texts.cast(pa.binary()), b"\\x")
    try:
        converted = _parse_bytes(whole)
    except ValueError:
        raise _not_held(whole, _first_refused(whole, _parse_bytes), data_type, where) from None
    return pc.if_else(texts.is_valid(), converted, pa.scalar(None, pa.binary())) if texts.null_count else converted


def _parse_bytes(whole: pa.BinaryArray) -> pa.BinaryArray:
    r"""Parse bytea, \x and two digits per byte: the digits of all values are parsed as one text."""
    _, offsets, data = whole.buffers()
    ends = np.frombuffer(offsets, np.int32, len(whole) + 1, whole.offset * 4)
    text = b"" if data is None else data[ends[0] : ends[-1]].to_pybytes()
    digits = text.replace(b"\\x", b"")
    # Each value begins with the only \x that it has, or the offsets below would lie outside of the bytes.
    if len(text) - len(digits) != 2 * len(whole) or pc.any(pc.invert(pc.starts_with(whole, "\\x"))).as_py():
        raise ValueError("a value does not begin with \\x")
    if (np.diff(ends) % 2).any():
        raise ValueError("a value has an odd number of digits")
    values = unhexlify(digits)
    halves = (ends - ends[0]) // 2 - np.arange(len(ends), dtype=np.int32)
    return pa.Array.from_buffers(pa.binary(), len(whole), [None, pa.py_buffer(halves), pa.py_buffer(values)])


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


_ATTRIBUTE: Final = re.compile(r'(?:"((?:[^"\\]|""|\\.)*)"|([^",()\\]*))([,)])', re.DOTALL)
_ESCAPED_OR_DOUBLED: Final = re.compile(r'\\(.)|""', re.DOTALL)
_INTEGERS: Final = frozenset({"short", "integer", "long"})


def parse_record(text: str, count: int) -> list[str | None] | None:
    """The texts of `count` attributes: `(1,,"a b")` has three; None if it has another number of them."""
    attributes: list[str | None] = []
    position = 1
    while position < len(text):
        match = _ATTRIBUTE.match(text, position)
        if match is None:
            return None
        quoted, plain, _ = match.groups()
        attributes.append(
            (plain or None) if quoted is None else _ESCAPED_OR_DOUBLED.sub(lambda one: one[1] or '"', quoted)
        )
        position = match.end()
    return attributes if text.startswith("(") and len(attributes) == count else None


def to_json_text(text: str | None, shape: DataType) -> str | None:
    """A composite value, or an array of them, as JSON: attributes by name, numbers and booleans as such, everything
    else as text. None if the value does not have the shape."""
    if text is None:
        return "null"
    match shape:
        case StructType():
            return _object(text, shape)
        case ArrayType():
            elements = parse_array(text)
            if elements is None:
                return None
            parts = [to_json_text(element, shape.element_type) for element in elements]
            return None if None in parts else f"[{', '.join(map(str, parts))}]"
        case PrimitiveType("boolean"):
            return "true" if text == "t" else "false"
        case PrimitiveType(name) if name in _INTEGERS:
            return text
        case PrimitiveType("float" | "double") | DecimalType():
            return text if math.isfinite(float(text)) else json.dumps(text)
    return json.dumps(text, ensure_ascii=False)


def _object(text: str, shape: StructType) -> str | None:
    attributes = parse_record(text, len(shape.fields))
    if attributes is None:
        return None
    values = [to_json_text(value, item.type) for value, item in zip(attributes, shape.fields, strict=True)]
    if None in values:
        return None
    names = [json.dumps(item.name, ensure_ascii=False) for item in shape.fields]
    return "{" + ", ".join(f"{name}: {value}" for name, value in zip(names, values, strict=True)) + "}"


_PLAIN_ARRAY: Final = r'^\{[^"\\{}]*\}$'
_BOUNDS: Final = re.compile(r"\[-?\d+:-?\d+\]=")
_ELEMENT: Final = re.compile(r'(?:"((?:[^"\\]|\\.)*)"|([^",{}\\]+))([,}])', re.DOTALL)
_ESCAPED: Final = re.compile(r"\\(.)", re.DOTALL)


def split_arrays(texts: pa.Array) -> tuple[int | None, pa.Array]:
    """Lists of the elements' texts, empty if the array is null; or the position of one that has not one dimension.

    `{1,NULL,"a b"}` has one dimension; a first subscript other than 1 (`[0:1]={1,2}`) is dropped.
    """
    texts = texts.cast(pa.string())
    is_plain = pc.match_substring_regex(texts, _PLAIN_ARRAY)
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
