"""Renders Arrow columns as JSON text, a whole column at a time."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from deltalakedb.log.protocol.codec import may_contain, to_json, to_sql_text

_NEEDS_ESCAPE = r'["\\\x00-\x1f]'
_ESCAPED_BYTES = np.array([byte < 0x20 or byte in b'"\\' for byte in range(256)])


def sql_text(column: pa.Array) -> pa.Array:
    """`log.text.to_sql_text` for a column (Arrow strings have no lone surrogates)."""
    column = column.cast(pa.string())
    if may_contain(column, b"\\"):
        column = pc.replace_substring(column, "\\", to_sql_text("\\"))
    if may_contain(column, b"\0"):
        column = pc.replace_substring(column, "\0", to_sql_text("\0"))
    return column


def json_strings(column: pa.Array) -> pa.Array:
    """Each string as a JSON string; null stays null."""
    column = column.cast(pa.string())
    quoted = pc.binary_join_element_wise('"', column, '"', "")
    data = column.buffers()[2]
    if data is None or not np.any(_ESCAPED_BYTES[np.frombuffer(data, np.uint8)]):
        return quoted
    special = pc.match_substring_regex(column, _NEEDS_ESCAPE).fill_null(False)
    escaped = pa.array([to_json(text) for text in column.filter(special).to_pylist()], pa.string())
    return pc.replace_with_mask(quoted, special, escaped)


def json_maps(column: pa.MapArray) -> pa.Array:
    """Each map of strings as a JSON object; null stays null."""
    if len(column.keys) == 0:
        texts = pa.repeat(pa.scalar("{}"), len(column))
    else:
        names = pc.binary_join_element_wise(json_strings(column.keys), ":", "")
        members = pc.binary_join_element_wise(names, json_strings(column.items).fill_null("null"), "")
        joined = pc.binary_join(pa.ListArray.from_arrays(column.offsets, members), ",")
        texts = pc.binary_join_element_wise("{", joined, "}", "")
    return _null_like(texts, column)


def json_structs(column: pa.StructArray) -> pa.Array:
    """Each struct as a JSON object without null members and types that JSON cannot express; null stays null."""
    members: list[pa.Array] = []
    for field, child in zip(column.type, column.flatten(), strict=True):
        texts = json_values(child)
        if texts is not None and texts.null_count < len(texts):
            members.append(pc.binary_join_element_wise(f",{to_json(field.name)}:", texts, "").fill_null(""))
    if not members:
        return _null_like(pa.repeat(pa.scalar("{}"), len(column)), column)
    # Not joined with null_handling="skip": Arrow then loses rows in which every member is null.
    joined = pc.binary_replace_slice(pc.binary_join_element_wise(*members, ""), 0, 1, "{")
    return _null_like(pc.binary_join_element_wise(joined, "}", ""), column)


def json_values(column: pa.Array) -> pa.Array | None:
    """Each value as JSON text, as Delta writes it in statistics; None if the type cannot be expressed."""
    kind = column.type
    for matches, render in _RENDERERS:
        if matches(kind):
            return render(column)
    return None


def _numbers(column: pa.Array) -> pa.Array:
    return column.cast(pa.string())


def _floats(column: pa.Array) -> pa.Array:
    # As doubles: the shortest text of a 32-bit float is a different number, and a bound must not move inwards.
    column = column.cast(pa.float64())
    texts = column.cast(pa.string())
    if _all(pc.is_finite(column)):
        return texts
    texts = pc.if_else(pc.is_nan(column), '"NaN"', texts)
    infinite = pc.if_else(pc.greater(column, 0.0), '"Infinity"', '"-Infinity"')
    return pc.if_else(pc.is_inf(column), infinite, texts)


def _dates(column: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise('"', column.cast(pa.date32()).cast(pa.string()), '"', "")


def _timestamps(column: pa.Array) -> pa.Array:
    # Arrow writes 2020-01-01 00:00:00.000000, and a trailing Z if there is a zone.
    zone = "UTC" if column.type.tz is not None else None
    texts = column.cast(pa.timestamp("us", zone), safe=False).cast(pa.string())
    return pc.binary_join_element_wise('"', pc.replace_substring(texts, " ", "T", max_replacements=1), '"', "")


def _lists(column: pa.Array) -> pa.Array | None:
    members = json_values(column.values)
    if members is None:
        return None
    joined = pc.binary_join(pa.ListArray.from_arrays(column.offsets, members.fill_null("null")), ",")
    return _null_like(pc.binary_join_element_wise("[", joined, "]", ""), column)


def _maps(column: pa.MapArray) -> pa.Array | None:
    texts = all(_is_text(kind) for kind in (column.type.key_type, column.type.item_type))
    return json_maps(column) if texts else None


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


_RENDERERS: tuple[tuple[Callable[[pa.DataType], bool], Callable[[pa.Array], pa.Array | None]], ...] = (
    (pa.types.is_struct, json_structs),
    (pa.types.is_boolean, _numbers),
    (pa.types.is_integer, _numbers),
    (pa.types.is_decimal, _numbers),
    (pa.types.is_floating, _floats),
    (_is_text, json_strings),
    (pa.types.is_date, _dates),
    (pa.types.is_timestamp, _timestamps),
    (pa.types.is_list, _lists),
    (pa.types.is_map, _maps),
)


def _null_like(texts: pa.Array, column: pa.Array) -> pa.Array:
    return texts if column.null_count == 0 else pc.if_else(column.is_valid(), texts, pa.scalar(None, pa.string()))


def _all(mask: pa.Array) -> bool:
    return pc.all(mask).as_py() is not False
