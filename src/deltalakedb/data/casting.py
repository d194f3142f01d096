"""Casts a column to the table's type, as `deltalake` does, but without losing values.

Rounding to a float, to a decimal's fraction and to microseconds is part of those types. A value out of range, a
fraction cut off an integer, or text that is not a number is refused with the column's name. The spellings of values
are in `text_casts`, decimals in `decimal_casts`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from deltalakedb.data.arrow_types import file_type, is_any_list, rust_name, stored_fields
from deltalakedb.data.decimal_casts import floats_to_decimals, integers_to_decimals, text_to_decimals
from deltalakedb.data.text_casts import (
    bytes_to_hex,
    floats_to_text,
    lists_to_text,
    moments_to_text,
    text_to_booleans,
    text_to_moments,
    text_to_numbers,
)
from deltalakedb.exceptions import InvalidValueError, SchemaMismatchError
from deltalakedb.log.schema.types import ArrayType, DataType, DecimalType, MapType, PrimitiveType, StructType

Cast: TypeAlias = Callable[[pa.Array], pa.Array]
Path: TypeAlias = tuple[str, ...]

_INTEGERS: Final = frozenset({"byte", "short", "integer", "long"})
_FLOATS: Final = frozenset({"float", "double"})
_DAYS: Final = frozenset({"integer", "long"})
"""Integers that hold a date as its days since 1970; of timestamps the unit is not known."""
_DAY_BITS: Final = 32
_MOMENTS: Final = frozenset({"timestamp", "timestamp_ntz", "date"})
_NOT_PARSED: Final = re.compile(r"Failed to parse string: '(.*)' as a scalar of type")
_NOT_IN_RANGE: Final = re.compile(r"(?:Integer|Float) value (\S+) (?:not in range|was truncated)")
_INVALID_VALUE: Final = re.compile(r".* is too (?:large|small) to store|Cannot cast to Decimal128|Invalid UTF8")
"""Errors for which `deltalake` raises a ValueError, or should."""
_PREFIXES: Final = {"Cannot cast": "Cast error: ", "Invalid UTF8": "Encountered non UTF-8 data: "}


def make_cast(source: pa.DataType, target: DataType, path: Path) -> Cast | None:
    """The cast of a column from `source` to the table's type; None if not needed. SchemaMismatchError if impossible."""
    arrow = file_type(target)
    if source.equals(arrow, check_metadata=True):
        return None
    if pt.is_null(source):
        return lambda array: pa.nulls(len(array), arrow)
    if isinstance(source, pa.BaseExtensionType):
        return _after(lambda array: array.storage, make_cast(source.storage_type, target, path))
    if pt.is_dictionary(source):
        return _dictionary_cast(source, target, path)
    if pt.is_run_end_encoded(source):
        return _after(pc.run_end_decode, make_cast(source.value_type, target, path))
    match target:
        case StructType() if pt.is_struct(source):
            return _struct_cast(source, target, path)
        case ArrayType() if is_any_list(source):
            return _list_cast(source, target, arrow, path)
        case MapType() if pt.is_map(source):
            return _map_cast(source, target, arrow, path)
        case PrimitiveType("string") if is_any_list(source) and not pt.is_fixed_size_list(source):
            return _list_text_cast(source, target, path)
        case PrimitiveType() | DecimalType() if not pt.is_nested(source):
            return _leaf_cast(source, target, arrow, path)
    raise mismatch(path, target, source)


def mismatch(path: Path, expected: DataType, got: object, detail: str = "") -> SchemaMismatchError:
    """The error for a column whose data does not fit the table's type."""
    where = f"column {'.'.join(path)!r}: the table has {expected}, the data has {got}"
    if not detail:
        return SchemaMismatchError(f"Cannot cast field {_cast_from_to(path, expected, got)}; {where}")
    if _INVALID_VALUE.match(detail) is not None:
        prefix = next((words for start, words in _PREFIXES.items() if detail.startswith(start)), "")
        return InvalidValueError(f"{prefix}{detail}; {where}")
    text = _in_usual_words(detail, expected)
    if isinstance(got, pa.DataType) and pt.is_unsigned_integer(got):
        # Delta has no such numbers: `deltalake` casts them before it looks at the table.
        what = f"Failed to cast {'.'.join(path)} from {rust_name(file_type(expected))} to {rust_name(got)}"
        text = (
            f"Cast error: Failed to convert into Arrow schema: Cast error: {what}: {text.removeprefix('Cast error: ')}"
        )
    return SchemaMismatchError(f"{text}; {where}")


def _cast_from_to(path: Path, expected: DataType, got: object) -> str:
    source = rust_name(got) if isinstance(got, pa.DataType) else str(got)
    return f"{'.'.join(path)} from {source} to {rust_name(file_type(expected))}"


def _in_usual_words(detail: str, expected: DataType) -> str:
    """An error of Arrow C++ for a value that does not fit, worded as Arrow in Rust does."""
    type_name = rust_name(file_type(expected))
    if (text := _NOT_PARSED.match(detail)) is not None:
        return f"Cast error: Cannot cast string '{text[1]}' to value of {type_name} type"
    if (number := _NOT_IN_RANGE.match(detail)) is not None:
        return f"Cast error: Can't cast value {number[1]} to type {type_name}"
    return f"Cast error: {detail}"


def _after(first: Cast, then: Cast | None) -> Cast:
    return first if then is None else lambda array: then(first(array))


class StructPlan:
    """The mapping of data columns to the fields of a struct; missing ones are null, in the table's order."""

    def __init__(self, names: list[str], types: list[pa.DataType], struct: StructType, path: Path) -> None:
        positions = {name.casefold(): position for position, name in enumerate(names)}
        self.fields = stored_fields(struct)
        self._has_others = len(names) > len(self.fields)
        self._parts: list[tuple[int, Cast | None]] = []
        for item in self.fields:
            position = positions.get(item.name.casefold())
            field_path = (*path, item.name)
            if position is None:
                self._parts.append((-1, partial(_nulls, file_type(item.type))))
            else:
                self._parts.append((position, make_cast(types[position], item.type, field_path)))

    @property
    def is_identity(self) -> bool:
        """Whether the data's columns are those of the table, in its order and types."""
        return all(part == (place, None) for place, part in enumerate(self._parts)) and not self._has_others

    def arrays(self, columns: list[pa.Array], length: int) -> list[pa.Array]:
        arrays = []
        for position, cast in self._parts:
            if position < 0:
                arrays.append(cast(length))  # type: ignore[misc]
            else:
                arrays.append(columns[position] if cast is None else cast(columns[position]))
        return arrays


def _nulls(arrow: pa.DataType, length: int) -> pa.Array:
    return pa.nulls(length, arrow)


def _dictionary_cast(source: pa.DataType, target: DataType, path: Path) -> Cast:
    """Decode categories first, as not all of them need be used; Arrow decodes none that are views (Polars)."""
    values = source.value_type
    if _is_text(values) or _is_bytes(values):
        values = pa.large_string() if _is_text(values) else pa.large_binary()

    def decode(array: pa.Array) -> pa.Array:
        return array.dictionary.cast(values).take(array.indices)

    return _after(decode, make_cast(values, target, path))


def _list_text_cast(source: pa.DataType, target: DataType, path: Path) -> Cast:
    is_bytes = _is_bytes(source.value_type)
    element = bytes_to_hex if is_bytes else make_cast(source.value_type, target, (*path, "element"))

    def cast(array: pa.Array) -> pa.Array:
        if not pt.is_list(source):
            array = _plain_lists(array)
        return lists_to_text(array, array.values if element is None else element(array.values))

    return cast


def _struct_cast(source: pa.DataType, target: StructType, path: Path) -> Cast:
    plan = StructPlan([item.name for item in source], [item.type for item in source], target, path)
    fields = list(file_type(target))

    def cast(array: pa.Array) -> pa.Array:
        children = plan.arrays([array.field(index) for index in range(len(source))], len(array))
        mask = array.is_null() if array.null_count else None
        return pa.StructArray.from_arrays(children, fields=fields, mask=mask)

    return cast


def _list_cast(source: pa.DataType, target: ArrayType, arrow: pa.DataType, path: Path) -> Cast:
    element = make_cast(source.value_type, target.element_type, (*path, "element"))

    def cast(array: pa.Array) -> pa.Array:
        if not pt.is_list(source):
            array = _plain_lists(array)
        values = array.values if element is None else element(array.values)
        return pa.Array.from_buffers(
            arrow, len(array), array.buffers()[:2], array.null_count, array.offset, children=[values]
        )

    return cast


def _plain_lists(array: pa.Array) -> pa.Array:
    """Convert lists of any layout to plain ones; by hand, because pyarrow (26.0) casts list views to wrong offsets."""
    lengths = pc.list_value_length(array).fill_null(0).to_numpy()
    offsets = np.concatenate(([0], np.cumsum(lengths)))
    mask = array.is_null() if array.null_count else None
    return pa.ListArray.from_arrays(pa.array(offsets).cast(pa.int32()), pc.list_flatten(array), mask=mask)


def _map_cast(source: pa.DataType, target: MapType, arrow: pa.DataType, path: Path) -> Cast:
    key = make_cast(source.key_type, target.key_type, (*path, "key"))
    value = make_cast(source.item_type, target.value_type, (*path, "value"))
    fields = [arrow.key_field, arrow.item_field]

    def cast(array: pa.Array) -> pa.Array:
        keys, items = array.keys, array.items
        parts = [keys if key is None else key(keys), items if value is None else value(items)]
        entries = pa.StructArray.from_arrays(parts, fields=fields)
        return pa.Array.from_buffers(
            arrow, len(array), array.buffers()[:2], array.null_count, array.offset, children=[entries]
        )

    return cast


def _leaf_cast(source: pa.DataType, target: PrimitiveType | DecimalType, arrow: pa.DataType, path: Path) -> Cast:
    if not _may_cast(source, target):
        raise mismatch(path, target, source)
    convert = _conversion(source, target, arrow)

    def cast(array: pa.Array) -> pa.Array:
        try:
            return convert(array)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            first = _first_failure(convert, array) or error
            raise mismatch(path, target, source, str(first).partition("\n")[0]) from error

    return cast


def _first_failure(convert: Cast, array: pa.Array) -> Exception | None:
    """The error of the first value that cannot be cast; Arrow tells of any of them."""
    fits, fails, first_error = 0, len(array), None
    while fits < fails:
        middle = (fits + fails) // 2
        try:
            convert(array[fits : middle + 1])
            fits = middle + 1
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            fails, first_error = middle, error
    return first_error


def _conversion(source: pa.DataType, target: PrimitiveType | DecimalType, arrow: pa.DataType) -> Cast:
    name = str(target)
    if _is_text(source) and name not in ("string", "binary"):
        return lambda array: _from_text(array.cast(pa.large_string()), target, arrow)
    if isinstance(target, DecimalType) and _is_number(source):
        to_decimals = integers_to_decimals if pt.is_integer(source) else floats_to_decimals
        return partial(to_decimals, target=arrow)
    if name == "string":
        if pt.is_floating(source):
            return floats_to_text
        if pt.is_timestamp(source):
            return moments_to_text
    if pt.is_date(source) and name in _INTEGERS:
        return lambda array: array.cast(pa.date32()).cast(pa.int32()).cast(arrow)
    if pt.is_integer(source) and name == "date":
        return lambda array: array.cast(pa.int32()).cast(arrow)
    options = pc.CastOptions(target_type=arrow, allow_time_truncate=True, allow_float_truncate=name in _FLOATS)
    return lambda array: pc.cast(array, options=options)


def _from_text(text: pa.Array, target: PrimitiveType | DecimalType, arrow: pa.DataType) -> pa.Array:
    if isinstance(target, DecimalType):
        return text_to_decimals(text, arrow)
    if target.name in _MOMENTS:
        return text_to_moments(text, arrow)
    return text_to_booleans(text) if target.name == "boolean" else text_to_numbers(text, arrow)


def _may_cast(source: pa.DataType, target: PrimitiveType | DecimalType) -> bool:
    if isinstance(target, DecimalType):
        if pt.is_decimal(source):
            integer_digits = source.precision - source.scale
            return bool(integer_digits <= target.precision - target.scale and 0 <= source.scale <= target.scale)
        return _is_number(source) or _is_text(source)
    name = target.name
    if pt.is_date(source) and name in _DAYS:
        return True
    if name in _INTEGERS or name in _FLOATS:
        return bool(_is_number(source) or pt.is_decimal(source) or pt.is_boolean(source) or _is_text(source))
    if name == "boolean":
        return bool(_is_number(source) or pt.is_boolean(source) or _is_text(source))
    if name in _MOMENTS:
        if pt.is_integer(source):
            return name == "date" and bool(source.bit_width >= _DAY_BITS)
        return bool(pt.is_timestamp(source) or pt.is_date(source) or _is_text(source))
    if name == "string":
        return True
    return name == "binary" and (_is_text(source) or _is_bytes(source))


def _is_number(source: pa.DataType) -> bool:
    return bool(pt.is_integer(source) or pt.is_floating(source))


def _is_text(source: pa.DataType) -> bool:
    return bool(pt.is_string(source) or pt.is_large_string(source) or pt.is_string_view(source))


def _is_bytes(source: pa.DataType) -> bool:
    return bool(
        pt.is_binary(source)
        or pt.is_large_binary(source)
        or pt.is_fixed_size_binary(source)
        or pt.is_binary_view(source)
    )
