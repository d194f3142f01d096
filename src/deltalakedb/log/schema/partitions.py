"""Owns partition values: strings in the log, typed by the schema, and checked before they are written."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Final

from deltalakedb.exceptions import MalformedLogError
from deltalakedb.log.schema.types import DataType, DecimalType, PrimitiveType, parse_schema
from deltalakedb.log.statistics.stats import Value, to_date, to_datetime

_INTEGER = re.compile(r"[+-]?\d{1,19}", re.ASCII)
_FLOAT = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)
_SPECIAL: Final = {"nan": math.nan, "infinity": math.inf, "inf": math.inf, "-infinity": -math.inf, "-inf": -math.inf}
_BITS: Final = {"byte": 8, "short": 16, "integer": 32, "long": 64}


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


@dataclass(frozen=True, slots=True)
class PartitionField:
    """A partition column as in an add action: `name` is the physical name."""

    column: str
    name: str
    type: DataType
    nullable: bool


def partition_fields(schema_string: str, partition_columns: tuple[str, ...]) -> tuple[PartitionField, ...]:
    schema = parse_schema(schema_string)
    fields = []
    for column in partition_columns:
        item = schema.field(column)
        if item is None:
            raise MalformedLogError(f"the partition column {column} is not in the schema")
        fields.append(PartitionField(column, item.physical_name, item.type, item.nullable))
    return tuple(fields)


def wrong_partition_value(text: str | None, field: PartitionField) -> str:
    """Describes what is wrong with a value; '' if it is valid."""
    try:
        value = parse_partition_value(text, field.type)
    except MalformedLogError:
        return f"{field.name}={text!r} is no {field.type}"
    if value is None:
        return "" if field.nullable else f"{field.name} is null, and the column does not allow that"
    return "" if _fits(value, field.type) else f"{field.name}={text} does not fit {field.type}"


def _fits(value: object, data_type: DataType) -> bool:
    if isinstance(data_type, DecimalType) and isinstance(value, Decimal):
        _, digits, exponent = value.normalize().as_tuple()
        assert isinstance(exponent, int), "only finite decimals are parsed"
        return -exponent <= data_type.scale and len(digits) + exponent <= data_type.precision - data_type.scale
    if isinstance(data_type, PrimitiveType) and data_type.name in _BITS and isinstance(value, int):
        limit = 1 << (_BITS[data_type.name] - 1)
        return -limit <= value < limit
    return True
