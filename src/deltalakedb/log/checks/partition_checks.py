"""Checks partition values before they are written: valid for their types, and in the spelling that readers expect."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Final

from deltalakedb.exceptions import MalformedLogError
from deltalakedb.log.schema.partitions import parse_partition_value
from deltalakedb.log.schema.types import DataType, DecimalType, PrimitiveType, parse_schema

_BITS: Final = {"byte": 8, "short": 16, "integer": 32, "long": 64}


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
