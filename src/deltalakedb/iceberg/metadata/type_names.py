"""Iceberg's primitive types by name: parsing, the canonical spelling, the format version that introduced each."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from deltalakedb.iceberg.metadata.shapes import brief, check, refuse

FIRST_FORMAT_VERSION = {
    "geography": 3,
    "geometry": 3,
    "timestamp_ns": 3,
    "timestamptz_ns": 3,
    "unknown": 3,
    "variant": 3,
}
"""The first format version of a type, if it is not 1."""

NESTED = frozenset({"list", "map", "struct"})
_PLAIN = frozenset({
    "binary", "boolean", "date", "double", "float", "int", "long", "string", "time", "timestamp", "timestamp_ns",
    "timestamptz", "timestamptz_ns", "unknown", "uuid", "variant",
})  # fmt: skip
_DEFAULT_CRS = "OGC:CRS84"
_EDGE_ALGORITHMS = frozenset({"andoyer", "karney", "spherical", "thomas", "vincenty"})
_DECIMAL = re.compile(r"decimal\(\s*(\d+)\s*,\s*(\d+)\s*\)", re.ASCII)
_FIXED = re.compile(r"fixed\[\s*(\d+)\s*\]", re.ASCII)
_GEOMETRY = re.compile(r"geometry\s*(?:\(\s*([^)]*?)\s*\))?", re.ASCII | re.IGNORECASE)
_GEOGRAPHY = re.compile(r"geography\s*(?:\(\s*([^,]*?)\s*(?:,\s*(\w*)\s*)?\))?", re.ASCII | re.IGNORECASE)
_MAX_PRECISION = 38
_MAX_INT = 2**31 - 1


def canonical_type_name(text: str) -> str:
    """The name of a type that is not nested, spelled as Iceberg writes it."""
    lower = text.lower()
    if lower in _PLAIN:
        return lower
    if match := _DECIMAL.fullmatch(lower):
        precision, scale = _number(match[1], text), _number(match[2], text)
        check(
            precision <= _MAX_PRECISION,
            f"Decimals with precision larger than {_MAX_PRECISION} are not supported: {precision}",
        )
        return f"decimal({precision}, {scale})"
    if match := _FIXED.fullmatch(lower):
        return f"fixed[{_number(match[1], text)}]"
    if match := _GEOMETRY.fullmatch(text):
        return f"geometry({_crs(match[1])})"
    if match := _GEOGRAPHY.fullmatch(text):
        algorithm = "spherical" if match[2] is None else match[2].lower()
        check(algorithm in _EDGE_ALGORITHMS, f"Invalid edge interpolation algorithm: {brief(match[2])}")
        return f"geography({_crs(match[1])}, {algorithm})"
    return refuse(f"Cannot parse type string to primitive: {brief(text)}")


def _crs(name: str | None) -> str:
    check(name != "", "Invalid CRS: (empty string)")
    return _DEFAULT_CRS if name is None else name


def _number(digits: str, text: str) -> int:
    check(len(digits) <= 10 and int(digits) <= _MAX_INT, f"Cannot parse type string to primitive: {brief(text)}")
    return int(digits)


def type_kind(type_json: Any) -> str:
    """What kind a canonical type is: `decimal` for `decimal(9, 2)`, `struct` for a struct."""
    if isinstance(type_json, Mapping):
        return str(type_json["type"])
    return re.split(r"[(\[]", type_json, maxsplit=1)[0]


def is_primitive(type_json: Any) -> bool:
    """Whether it is neither nested nor a variant."""
    kind = type_kind(type_json)
    return kind not in NESTED and kind != "variant"
