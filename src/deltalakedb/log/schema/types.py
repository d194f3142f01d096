"""Owns the table schema: Delta's types, column mapping, type widening, and the leaf columns that have statistics."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final, TypeAlias

import pyarrow as pa

from deltalakedb.exceptions import DeltaProtocolError, MalformedLogError
from deltalakedb.log.protocol.codec import to_json
from deltalakedb.runtime.lazy import cached_property

_PHYSICAL_NAME: Final = "delta.columnMapping.physicalName"
_FIELD_ID: Final = "delta.columnMapping.id"
_TYPE_CHANGES: Final = "delta.typeChanges"
_COLLATIONS: Final = "__COLLATIONS"
_DECIMAL = re.compile(r"decimal\(\s*(\d{1,2})\s*,\s*(-?\d{1,2})\s*\)")


@dataclass(frozen=True, slots=True)
class PrimitiveType:
    """A type without parts; an unknown name is kept, and rejected only by code that must understand it."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class DecimalType:
    precision: int
    scale: int

    def __str__(self) -> str:
        return f"decimal({self.precision},{self.scale})"


@dataclass(frozen=True, slots=True)
class VariantType:
    def __str__(self) -> str:
        return "variant"


@dataclass(frozen=True, slots=True)
class ArrayType:
    element_type: DataType
    contains_null: bool = True

    def __str__(self) -> str:
        return f"array<{self.element_type}>"


@dataclass(frozen=True, slots=True)
class MapType:
    key_type: DataType
    value_type: DataType
    value_contains_null: bool = True

    def __str__(self) -> str:
        return f"map<{self.key_type},{self.value_type}>"


@dataclass(frozen=True, slots=True)
class TypeChange:
    """One step of type widening; `field_path` leads into arrays and maps ("element", "key.element", ...)."""

    from_type: str
    to_type: str
    field_path: str = ""


@dataclass(frozen=True, slots=True)
class StructField:
    name: str
    type: DataType
    nullable: bool = True
    metadata: Mapping[str, Any] = field(default_factory=dict)

    @property
    def physical_name(self) -> str:
        """The name in data files, statistics and partition values."""
        name = self.metadata.get(_PHYSICAL_NAME)
        return name if isinstance(name, str) else self.name

    @property
    def id(self) -> int | None:
        number = self.metadata.get(_FIELD_ID)
        return number if isinstance(number, int) else None

    @property
    def type_changes(self) -> tuple[TypeChange, ...]:
        changes = self.metadata.get(_TYPE_CHANGES)
        if not isinstance(changes, list):
            return ()
        return tuple(
            TypeChange(str(item.get("fromType", "")), str(item.get("toType", "")), str(item.get("fieldPath", "")))
            for item in changes
            if isinstance(item, dict)
        )

    @property
    def has_collation(self) -> bool:
        """Whether its strings compare by other rules than their bytes."""
        return bool(self.metadata.get(_COLLATIONS))


@dataclass(frozen=True)
class StructType:
    fields: tuple[StructField, ...]

    def __str__(self) -> str:
        return f"struct<{','.join(f'{item.name}:{item.type}' for item in self.fields)}>"

    @cached_property
    def names(self) -> tuple[str, ...]:
        return tuple(item.name for item in self.fields)

    def field(self, name: str) -> StructField | None:
        """The field of that name, or else the one that differs only in case: names are unique ignoring case."""
        folded = name.casefold()
        exact = next((item for item in self.fields if item.name == name), None)
        return exact or next((item for item in self.fields if item.name.casefold() == folded), None)

    def to_json(self) -> str:
        """Renders the schema as the protocol's schemaString."""
        return to_json(type_to_value(self))

    def to_arrow(self) -> pa.Schema:
        return pa.schema([_arrow_field(item) for item in self.fields])


DataType: TypeAlias = PrimitiveType | DecimalType | VariantType | ArrayType | MapType | StructType


@dataclass(frozen=True, slots=True)
class Leaf:
    """A column that is not a struct; `path` has the users' names, `physical_path` those in files and statistics."""

    path: tuple[str, ...]
    physical_path: tuple[str, ...]
    type: DataType
    nullable: bool
    field: StructField

    @property
    def name(self) -> str:
        return ".".join(self.path)


def leaf_columns(schema: StructType) -> Iterator[Leaf]:
    """Yields the leaves in the schema's order; arrays and maps are leaves, structs are descended into."""
    yield from _leaves(schema, (), (), False)


def _leaves(
    struct: StructType, path: tuple[str, ...], physical: tuple[str, ...], nullable_above: bool
) -> Iterator[Leaf]:
    for item in struct.fields:
        logical_path, physical_path = (*path, item.name), (*physical, item.physical_name)
        nullable = nullable_above or item.nullable
        if isinstance(item.type, StructType):
            yield from _leaves(item.type, logical_path, physical_path, nullable)
        else:
            yield Leaf(logical_path, physical_path, item.type, nullable, item)


@lru_cache(maxsize=64)
def parse_schema(schema_string: str) -> StructType:
    """Parses the schema of a metaData action."""
    try:
        parsed = type_from_value(json.loads(schema_string))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise MalformedLogError(f"a schemaString is not a Delta schema: {repr(error)[:500]}") from error
    if not isinstance(parsed, StructType):
        raise MalformedLogError("a schemaString is not a struct")
    return parsed


def parse_type(name: str) -> DataType:
    """Parses a type given by its name alone."""
    if name == "variant":
        return VariantType()
    if name == "decimal":
        return DecimalType(10, 0)
    match = _DECIMAL.fullmatch(name)
    return DecimalType(int(match.group(1)), int(match.group(2))) if match else PrimitiveType(name)


def type_from_value(value: Any) -> DataType:
    """Parses a type from the JSON of a schema."""
    if isinstance(value, str):
        return parse_type(value)
    kind = value["type"]
    if kind == "struct":
        return StructType(tuple(_field_from_value(item) for item in value["fields"]))
    if kind == "array":
        return ArrayType(type_from_value(value["elementType"]), bool(value.get("containsNull", True)))
    if kind == "map":
        contains_null = bool(value.get("valueContainsNull", True))
        return MapType(type_from_value(value["keyType"]), type_from_value(value["valueType"]), contains_null)
    raise ValueError(f"unknown type {kind!r}")


def _field_from_value(value: Any) -> StructField:
    name = value["name"]
    if not isinstance(name, str):
        raise TypeError("a field's name is not a string")
    metadata = value.get("metadata") or {}
    if not isinstance(metadata, dict):
        raise TypeError(f"the metadata of the field {name!r} is not an object")
    return StructField(name, type_from_value(value["type"]), bool(value.get("nullable", True)), metadata)


def type_to_value(data_type: DataType) -> Any:
    """Renders a type for the JSON of a schema."""
    match data_type:
        case StructType():
            fields = [
                {
                    "name": item.name,
                    "type": type_to_value(item.type),
                    "nullable": item.nullable,
                    "metadata": dict(item.metadata),
                }
                for item in data_type.fields
            ]
            return {"type": "struct", "fields": fields}
        case ArrayType():
            element = type_to_value(data_type.element_type)
            return {"type": "array", "elementType": element, "containsNull": data_type.contains_null}
        case MapType():
            return {
                "type": "map",
                "keyType": type_to_value(data_type.key_type),
                "valueType": type_to_value(data_type.value_type),
                "valueContainsNull": data_type.value_contains_null,
            }
        case _:
            return str(data_type)


_ARROW: Final[dict[str, pa.DataType]] = {
    "string": pa.string(),
    "long": pa.int64(),
    "integer": pa.int32(),
    "short": pa.int16(),
    "byte": pa.int8(),
    "float": pa.float32(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "void": pa.null(),
}


def to_arrow_type(data_type: DataType) -> pa.DataType:
    match data_type:
        case StructType():
            return pa.struct([_arrow_field(item) for item in data_type.fields])
        case ArrayType():
            element = to_arrow_type(data_type.element_type)
            return pa.list_(pa.field("element", element, nullable=data_type.contains_null))
        case MapType():
            value = pa.field("value", to_arrow_type(data_type.value_type), nullable=data_type.value_contains_null)
            return pa.map_(to_arrow_type(data_type.key_type), value)
        case DecimalType():
            return pa.decimal128(data_type.precision, data_type.scale)
        case VariantType():
            parts = [pa.field(part, pa.binary(), nullable=False) for part in ("metadata", "value")]
            return pa.struct(parts)
    if data_type.name not in _ARROW:
        raise DeltaProtocolError(
            f"the type {data_type.name[:100]!r} of a schema is not known; a newer release may know it"
        )
    return _ARROW[data_type.name]


def _arrow_field(item: StructField) -> pa.Field:
    return pa.field(item.name, to_arrow_type(item.type), nullable=item.nullable)
