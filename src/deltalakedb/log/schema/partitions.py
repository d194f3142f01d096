"""Owns partition values: strings in the log, typed by the schema."""

from __future__ import annotations

import math
import re
from decimal import Decimal, InvalidOperation
from typing import Final

from deltalakedb.exceptions import MalformedLogError
from deltalakedb.log.schema.types import DataType, DecimalType, PrimitiveType
from deltalakedb.log.statistics.stats import Value, to_date, to_datetime

_INTEGER = re.compile(r"[+-]?\d{1,19}", re.ASCII)
_FLOAT = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)
_SPECIAL: Final = {"nan": math.nan, "infinity": math.inf, "inf": math.inf, "-infinity": -math.inf, "-inf": -math.inf}


def parse_partition_value(text: str | None, data_type: DataType) -> Value | bytes | None:
    """Parses a partition value; an empty string is null for every type (PROTOCOL.md, "Partition Values")."""
    if text is None or text == "":
        return None
    value = _parse(text, data_type)
    if value is None:
        raise MalformedLogError(f"the partition value {text!r} is no {data_type}")
    return value


def _parse(text: str, data_type: DataType) -> Value | bytes | None:
    if isinstance(data_type, DecimalType):
        return _decimal(text)
    if not isinstance(data_type, PrimitiveType):
        return None
    match data_type.name:
        case "string":
            return text
        case "byte" | "short" | "integer" | "long":
            return int(text) if _INTEGER.fullmatch(text) else None
        case "float" | "double":
            special = _SPECIAL.get(text.lower())
            return float(text) if special is None and _FLOAT.fullmatch(text) else special
        case "boolean":
            return {"true": True, "false": False}.get(text.lower())
        case "date":
            return to_date(text)
        case "timestamp" | "timestamp_ntz":
            return to_datetime(text, data_type.name)
        case "binary":
            # Spark writes each byte as the character with that code.
            return text.encode("latin-1", "ignore") if all(ord(char) < 256 for char in text) else text.encode()
        case _:
            return None


def _decimal(text: str) -> Decimal | None:
    try:
        value = Decimal(text)
    except InvalidOperation:
        return None
    return value if value.is_finite() else None
