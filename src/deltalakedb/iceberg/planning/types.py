"""Owns Iceberg's primitive types: their single values as bytes, as JSON, and as values that can be compared.

A comparable value is an int (whole numbers, booleans, days, microseconds, nanoseconds), a float, a Decimal, a str, or
bytes (uuid, fixed and binary).
"""

from __future__ import annotations

import math
import re
import struct
from dataclasses import dataclass
from decimal import Context, Decimal
from functools import lru_cache
from typing import Any, Final, TypeAlias

import numpy as np

Value: TypeAlias = int | float | Decimal | str | bytes

_EXACT: Final = Context(prec=100)  # the default context rounds to 28 digits
_FAMILIES: Final = {
    "boolean": "boolean",
    "int": "integer",
    "long": "integer",
    "float": "float",
    "double": "float",
    "date": "days",
    "time": "time",
    "timestamp": "micros",
    "timestamptz": "micros",
    "timestamp_ns": "nanos",
    "timestamptz_ns": "nanos",
    "string": "text",
    "uuid": "bytes",
    "binary": "bytes",
}
_DECIMAL: Final = re.compile(r"decimal\(\s*(\d+)\s*,\s*(\d+)\s*\)")
_FIXED: Final = re.compile(r"fixed\[\s*(\d+)\s*\]")
_UNITS: Final = {"days": ("D", 1), "micros": ("us", 10**6), "nanos": ("ns", 10**9), "time": ("us", 10**6)}


@dataclass(frozen=True, slots=True)
class Primitive:
    """A primitive type. Types of one family can be promoted to each other, and then compare alike."""

    name: str
    family: str
    scale: int = 0

    @property
    def is_text(self) -> bool:
        """Whether bounds are stored as text; bytes are, in hexadecimal digits, which sort like them."""
        return self.family in ("text", "bytes")


@lru_cache(maxsize=1024)
def parse_type(text: str) -> Primitive | None:
    """A primitive type by its name; None if its values are not compared here (variant, geometry, unknown)."""
    name = text.strip().lower()
    if name in _FAMILIES:
        return Primitive(name, _FAMILIES[name])
    if match := _DECIMAL.fullmatch(name):
        scale = int(match[2])
        return Primitive(f"decimal({int(match[1])}, {scale})", f"decimal{scale}", scale)
    if match := _FIXED.fullmatch(name):
        return Primitive(f"fixed[{int(match[1])}]", "bytes")
    return None


def is_decimal(type_: Primitive) -> bool:
    return type_.family.startswith("decimal")


def decimal_of(type_: Primitive, unscaled: int) -> Decimal:
    return Decimal(unscaled).scaleb(-type_.scale, _EXACT)


def unscaled_of(type_: Primitive, value: Decimal) -> int:
    """The digits of a decimal as a whole number, without those beyond the type's scale."""
    return int(value.scaleb(type_.scale, _EXACT))


# ---- bytes


def from_bytes(type_: Primitive, raw: bytes) -> Value | None:
    """A single value from its binary form, which may be that of a type before promotion; None if it is unreadable."""
    family = type_.family
    if family == "text":
        return raw.decode("utf-8", "strict") if _is_utf8(raw) else None
    if family == "bytes":
        return raw
    if family == "boolean":
        return int(raw != b"\0") if len(raw) == 1 else None
    if family == "float":
        if len(raw) == 8:
            return float(struct.unpack("<d", raw)[0])
        return float(struct.unpack("<f", raw)[0]) if len(raw) == 4 else None
    if is_decimal(type_):
        return decimal_of(type_, int.from_bytes(raw, "big", signed=True)) if 0 < len(raw) <= 17 else None
    if len(raw) == 8 or (len(raw) == 4 and family in ("integer", "days")):
        return int.from_bytes(raw, "little", signed=True)
    return None


def _is_utf8(raw: bytes) -> bool:
    try:
        raw.decode()
    except UnicodeDecodeError:
        return False
    return True


def from_avro(type_: Primitive | None, raw: Any) -> Value | None:
    """A partition value from a manifest, as Avro stores it without its logical type."""
    if raw is None or type_ is None:
        return None
    if is_decimal(type_):
        return from_bytes(type_, raw) if isinstance(raw, bytes) else None
    if type_.family == "boolean":
        return int(raw) if isinstance(raw, bool) else None
    if type_.family == "float":
        return float(raw) if isinstance(raw, int | float) else None
    expected = {"text": str, "bytes": bytes}.get(type_.family, int)
    return raw if isinstance(raw, expected) else None


# ---- JSON


def to_json_value(type_: Primitive | None, value: Value | None) -> Any:
    """A single value in Iceberg's JSON form."""
    if value is None or type_ is None:
        return None
    family = type_.family
    if family == "boolean":
        return bool(value)
    if isinstance(value, bytes):
        return _uuid_text(value) if type_.name == "uuid" and len(value) == 16 else value.hex().upper()
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, float):
        return value if math.isfinite(value) else {math.inf: "Infinity", -math.inf: "-Infinity"}.get(value, "NaN")
    if family in _UNITS and isinstance(value, int):
        return moment_text(type_, value)
    return value


def _uuid_text(value: bytes) -> str:
    digits = value.hex()
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


def moment_text(type_: Primitive, value: int) -> str:
    """A date, time or timestamp in ISO form, also outside of the years that Python knows."""
    unit, per_second = _UNITS[type_.family]
    if unit == "D":
        return _iso_date(value)
    days, rest = divmod(value, 86_400 * per_second)
    seconds, fraction = divmod(rest, per_second)
    digits = f".{fraction:0{len(str(per_second)) - 1}d}" if fraction else ""
    clock = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}{digits}"
    if type_.family == "time":
        return clock
    return f"{_iso_date(days)}T{clock}" + ("+00:00" if type_.name.startswith("timestamptz") else "")


def _iso_date(days: int) -> str:
    text = str(np.datetime64(days, "D"))
    return f"+{text}" if text[0].isdigit() and text.index("-") > 4 else text
