"""Columns of test tables: random values that meet each other, their bounds, and their literals in requests.

Values are as Iceberg counts them: days, microseconds, bytes. PyIceberg computes transforms and binary forms.
"""

import json
import math
import struct
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Context, Decimal
from random import Random
from typing import Any

from pyiceberg.conversions import to_bytes
from pyiceberg.transforms import parse_transform
from pyiceberg.types import NestedField

WORDS: tuple[str, ...] = ("", "a", "ab", "abc", "b", "é", "\U0010ffff", "a\0b", "z" * 80)
WORDS += ("abcdefghijklmnopqrstuvw", "abcdefghijklmnopqrstuvx")
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Kind:
    """A type: its name, random values, and values in JSON."""

    name: str
    draw: Callable[[Random], Any]
    to_json: Callable[[Any], Any] = lambda value: value
    transforms: tuple[str, ...] = ("identity",)

    @property
    def is_float(self) -> bool:
        return self.name in ("float", "double")


def _moment(value: int, zone: str = "") -> str:
    return (EPOCH + timedelta(microseconds=value)).replace(tzinfo=None).isoformat() + zone


def _day(value: int) -> str:
    return (EPOCH + timedelta(days=value)).date().isoformat()


def _float(random: Random) -> float:
    return random.choice((-0.0, 0.0, math.nan, math.inf, -math.inf, 1.5, -2.25, float(random.randint(-20, 20))))


def _micros(random: Random) -> int:
    return random.choice((0, -1, 1, 1_700_000_000_123_456)) + random.randint(-40, 40) * 43_200_000_000


def _bytes(length: int | None) -> Callable[[Random], bytes]:
    def draw(random: Random) -> bytes:
        size = length if length is not None else random.choice((0, 1, 2, 40))
        return bytes(random.choice((0, 1, 127, 128, 255)) for _ in range(size))

    return draw


def _decimal(digits: int, scale: int) -> Callable[[Random], Decimal]:
    def draw(random: Random) -> Decimal:
        whole = random.choice((random.randint(-500, 500), 10 ** (digits - 1) + random.randint(0, 3)))
        return Decimal(whole).scaleb(-scale, Context(prec=60))

    return draw


def _long(random: Random) -> int:
    return random.choice((random.randint(-30, 30), 2**62 + random.randint(0, 600), 10 - 2**63, 2**53 + 1))


_TIME = ("identity", "year", "month", "day", "hour", "bucket[4]")
_KINDS = (
    Kind("boolean", lambda r: r.random() < 0.5),
    Kind(
        "int",
        lambda r: r.choice((r.randint(-30, 30), 2**31 - 1)),
        transforms=("identity", "bucket[4]", "truncate[10]"),
    ),
    Kind("long", _long, transforms=("identity", "bucket[3]", "truncate[7]")),
    Kind("float", _float),
    Kind("double", lambda r: r.choice((_float(r), 0.1, 1e300))),
    Kind("decimal(9,2)", _decimal(9, 2), str, ("identity", "bucket[3]", "truncate[50]")),
    Kind("decimal(18,2)", _decimal(18, 2), str, ("identity", "bucket[3]")),
    Kind("decimal(38,3)", _decimal(38, 3), str),
    Kind("date", lambda r: r.randint(-800, 800), _day, ("identity", "year", "month", "day", "bucket[4]")),
    Kind("time", lambda r: r.randint(0, 23) * 3_600_000_000, lambda value: _moment(value)[11:]),
    Kind("timestamp", _micros, _moment, _TIME),
    Kind("timestamptz", _micros, lambda value: _moment(value, "+00:00"), _TIME),
    Kind("string", lambda r: r.choice(WORDS), transforms=("identity", "bucket[4]", "truncate[2]")),
    Kind("uuid", _bytes(16), lambda value: str(uuid.UUID(bytes=value)), ("identity", "bucket[4]")),
    Kind("binary", _bytes(None), bytes.hex, ("identity", "bucket[3]", "truncate[1]")),
    Kind("fixed[4]", _bytes(4), bytes.hex),
)
KINDS = {kind.name: kind for kind in _KINDS}
PROMOTIONS = {"int": "long", "float": "double", "decimal(9,2)": "decimal(18,2)"}


def iceberg_type(name: str) -> Any:
    """PyIceberg's type of a name."""
    text = json.dumps({"id": 1, "name": "x", "required": False, "type": name.replace(",", ", ")})
    return NestedField.model_validate_json(text).field_type


def transformed(transform: str, name: str, value: Any) -> Any:
    """The partition value that PyIceberg computes."""
    if transform == "void" or value is None:
        return None
    if transform == "identity":
        return value
    kind = iceberg_type(name)
    if name == "uuid" and transform.startswith("bucket"):
        value = uuid.UUID(bytes=value)
    return parse_transform(transform).transform(kind)(value)


def result_type(transform: str, name: str) -> str:
    if transform in ("identity", "void") or transform.startswith("truncate"):
        return name
    return "date" if transform == "day" else "int"


def single_value(name: str, value: Any) -> bytes:
    """The binary form of a bound."""
    if name == "float":
        return struct.pack("<f", value)
    return bytes(value) if isinstance(value, bytes) else bytes(to_bytes(iceberg_type(name), value))


def order(value: Any) -> Any:
    """Orders values as Iceberg does: NaN above all."""
    return (1, 0.0) if isinstance(value, float) and math.isnan(value) else (0, value)


def bounds(name: str, values: list[Any], *, truncate: int | None) -> tuple[bytes | None, bytes | None]:
    """The bounds of values, without NaN; texts are cut as writers do."""
    present = [value for value in values if not (isinstance(value, float) and math.isnan(value))]
    if not present:
        return None, None
    low, high = min(present), max(present)
    if truncate is not None and isinstance(low, str | bytes):
        low = low[:truncate]
        high = high if len(high) <= truncate else _above(high[:truncate])
    return single_value(name, low), None if high is None else single_value(name, high)


def _above(prefix: Any) -> Any:
    """The smallest text or bytes above all with the prefix; None if there is none."""
    most = chr(0x10FFFF) if isinstance(prefix, str) else b"\xff"
    while prefix and prefix[-1:] == most:
        prefix = prefix[:-1]
    if not prefix:
        return None
    if isinstance(prefix, bytes):
        return prefix[:-1] + bytes([prefix[-1] + 1])
    code = ord(prefix[-1]) + 1
    return prefix[:-1] + chr(0xE000 if code == 0xD800 else code)
