"""Owns the casting of a column to the table's type: what `deltalake` casts is cast, but no value is lost on the way.

Rounding to a float, to a decimal's fraction and to microseconds is what those types mean; a value out of range, a
fraction cut off an integer, or text that is no number is refused with the column's name.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from deltalakedb.data.arrow_types import file_type, is_any_list, stored_fields
from deltalakedb.exceptions import SchemaMismatchError
from deltalakedb.log.types import ArrayType, DataType, DecimalType, MapType, PrimitiveType, StructField, StructType

Cast: TypeAlias = Callable[[pa.Array], pa.Array]
Path: TypeAlias = tuple[str, ...]

_INTEGERS: Final = frozenset({"byte", "short", "integer", "long"})
_FLOATS: Final = frozenset({"float", "double"})
_MOMENTS: Final = frozenset({"timestamp", "timestamp_ntz", "date"})
_ALL_INTEGERS: Final = pa.decimal128(20, 0)


def make_cast(source: pa.DataType, target: DataType, path: Path) -> Cast | None:
    """How a column of `source` becomes one of the table's type; None when it is one. SchemaMismatchError when never."""
    arrow = file_type(target)
    if source.equals(arrow, check_metadata=True):
        return None
    if pt.is_null(source):
        return lambda array: pa.nulls(len(array), arrow)
    if isinstance(source, pa.BaseExtensionType):
        return _after(lambda array: array.storage, make_cast(source.storage_type, target, path))
    if pt.is_dictionary(source):
        return _after(lambda array: array.dictionary_decode(), make_cast(source.value_type, target, path))
    if pt.is_run_end_encoded(source):
        return _after(pc.run_end_decode, make_cast(source.value_type, target, path))
    match target:
        case StructType() if pt.is_struct(source):
            return _struct_cast(source, target, path)
        case ArrayType() if is_any_list(source):
            return _list_cast(source, target, arrow, path)
        case MapType() if pt.is_map(source):
            return _map_cast(source, target, arrow, path)
        case PrimitiveType() | DecimalType() if not pt.is_nested(source):
            return _leaf_cast(source, target, arrow, path)
    raise mismatch(path, target, source)


def mismatch(path: Path, expected: DataType, got: object, detail: str = "") -> SchemaMismatchError:
    """The error for a column whose data cannot become what the table has."""
    tail = f": {detail}" if detail else ""
    return SchemaMismatchError(f"column {'.'.join(path)!r}: the table has {expected}, the data has {got}{tail}")


def _after(first: Cast, then: Cast | None) -> Cast:
    return first if then is None else lambda array: then(first(array))


class StructPlan:
    """Which column of the data becomes which field of a struct; missing ones are null, the order is the table's."""

    def __init__(self, names: list[str], types: list[pa.DataType], struct: StructType, path: Path) -> None:
        places = {name.casefold(): place for place, name in enumerate(names)}
        self.fields = stored_fields(struct)
        self._parts: list[tuple[int, Cast | None]] = []
        for item in self.fields:
            place = places.get(item.name.casefold())
            here = (*path, item.name)
            if place is None:
                self._parts.append((-1, _absent(item, here)))
            else:
                self._parts.append((place, make_cast(types[place], item.type, here)))

    def arrays(self, columns: list[pa.Array], length: int) -> list[pa.Array]:
        arrays = []
        for place, cast in self._parts:
            if place < 0:
                arrays.append(cast(length))  # type: ignore[misc]
            else:
                arrays.append(columns[place] if cast is None else cast(columns[place]))
        return arrays


def _absent(item: StructField, path: Path) -> Callable[[int], pa.Array]:
    if not item.nullable:
        raise SchemaMismatchError(
            f"column {'.'.join(path)!r} is not in the data, and the table does not let it be null ({item.type})"
        )
    return partial(_nulls, file_type(item.type))


def _nulls(arrow: pa.DataType, length: int) -> pa.Array:
    return pa.nulls(length, arrow)


def _struct_cast(source: pa.DataType, target: StructType, path: Path) -> Cast:
    plan = StructPlan([item.name for item in source], [item.type for item in source], target, path)
    fields = list(file_type(target))

    def cast(array: pa.Array) -> pa.Array:
        children = plan.arrays([array.field(place) for place in range(len(source))], len(array))
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
    """Lists of any layout as plain ones; by hand, as pyarrow's own cast of list views gives wrong offsets (26.0)."""
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
        raise mismatch(path, target, source, _hint(source, target))
    convert = _conversion(source, target, arrow)

    def cast(array: pa.Array) -> pa.Array:
        try:
            return convert(array)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise mismatch(path, target, source, str(error).partition("\n")[0]) from error

    return cast


def _conversion(source: pa.DataType, target: PrimitiveType | DecimalType, arrow: pa.DataType) -> Cast:
    if _is_text(source) and str(target) in _MOMENTS:
        return partial(_text_to_moments, arrow=arrow)
    if isinstance(target, DecimalType) and pt.is_integer(source):
        # Arrow asks for room for every integer of the type; here it is the values that must fit.
        return lambda array: array.cast(_ALL_INTEGERS).cast(arrow)
    if str(target) == "string":
        if pt.is_floating(source):
            return lambda array: pc.replace_substring_regex(array.cast(arrow), r"^(-?[0-9]+)$", r"\1.0")
        if pt.is_timestamp(source):
            utc = pa.timestamp(source.unit, source.tz and "UTC")
            return lambda array: pc.replace_substring(array.cast(utc).cast(arrow), " ", "T")
    options = pc.CastOptions(
        target_type=arrow,
        allow_time_truncate=True,
        allow_float_truncate=str(target) in _FLOATS,
        allow_decimal_truncate=pt.is_floating(source),
    )
    return lambda array: pc.cast(array, options=options)


def _text_to_moments(array: pa.Array, arrow: pa.DataType) -> pa.Array:
    """Text with a zone, or without one: then it is UTC, as `deltalake` takes it; a date may have a time behind it."""
    for way in (pa.timestamp("us"), pa.timestamp("us", "UTC")):
        try:
            return array.cast(way).cast(arrow)
        except pa.ArrowInvalid:
            continue
    return array.cast(arrow)


def _may_cast(source: pa.DataType, target: PrimitiveType | DecimalType) -> bool:
    if isinstance(target, DecimalType):
        if pt.is_decimal(source):
            whole = source.precision - source.scale
            return bool(whole <= target.precision - target.scale and 0 <= source.scale <= target.scale)
        return _is_number(source) or _is_text(source)
    name = target.name
    if name in _INTEGERS or name in _FLOATS:
        return bool(_is_number(source) or pt.is_decimal(source) or pt.is_boolean(source) or _is_text(source))
    if name == "boolean":
        return bool(_is_number(source) or pt.is_boolean(source) or _is_text(source))
    if name in _MOMENTS:
        # A timestamp without a zone is no instant: which zone is meant nobody here can know.
        naive = pt.is_timestamp(source) and source.tz is None
        if naive and name == "timestamp":
            return False
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


def _hint(source: pa.DataType, target: PrimitiveType | DecimalType) -> str:
    if pt.is_timestamp(source) and str(target) == "timestamp":
        return "give it a zone first, e.g. with pyarrow.compute.assume_timezone or pandas' tz_localize"
    return ""
