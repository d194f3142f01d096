"""Transforms of partition and sort fields: the canonical spelling, and which types each takes."""

from __future__ import annotations

import re
from typing import Any

from deltalakedb.iceberg.metadata.shapes import brief, check
from deltalakedb.iceberg.metadata.type_names import is_primitive, type_kind

VOID = "void"
_WITH_WIDTH = re.compile(r"(\w+)\[(\d+)\]", re.ASCII)
_PLAIN = frozenset({"day", "hour", "identity", "month", VOID, "year"})
_TIMESTAMPS = frozenset({"timestamp", "timestamptz", "timestamp_ns", "timestamptz_ns"})
_TAKES = {
    "bucket": _TIMESTAMPS | {"int", "long", "date", "time", "string", "binary", "fixed", "decimal", "uuid"},
    "day": _TIMESTAMPS | {"date"},
    "hour": _TIMESTAMPS,
    "month": _TIMESTAMPS | {"date"},
    "truncate": frozenset({"int", "long", "string", "binary", "decimal"}),
    "year": _TIMESTAMPS | {"date"},
}
_MAX_INT = 2**31 - 1


def canonical_transform(text: str) -> str:
    """The transform as Iceberg writes it; an unknown one stays as it is."""
    if match := _WITH_WIDTH.fullmatch(text):
        name, digits = match[1].lower(), match[2].lstrip("0") or "0"
        check(len(digits) <= 10 and int(digits) <= _MAX_INT, f"Invalid width of a transform: {brief(text)}")
        if name in ("bucket", "truncate"):
            check(int(digits) > 0, f"Invalid width of a transform: {brief(text)} (must be > 0)")
            return f"{name}[{digits}]"
    lower = text.lower()
    return lower if lower in _PLAIN else text


def takes_type(transform: str, type_json: Any) -> bool:
    """Whether the transform applies to values of the type; an unknown one applies to all."""
    kind = type_kind(type_json)
    if transform == "identity":
        return is_primitive(type_json) and kind not in ("geometry", "geography")
    takes = _TAKES.get(transform.partition("[")[0])
    return takes is None or kind in takes
