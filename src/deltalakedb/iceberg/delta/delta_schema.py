"""Says a Delta table's schema and partitioning in Iceberg's terms, or why that cannot be done."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from deltalakedb.iceberg.delta.field_ids import ELEMENT, KEY, VALUE, Path
from deltalakedb.log.protocol.actions import Metadata
from deltalakedb.log.schema.types import (
    ArrayType,
    DataType,
    DecimalType,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
    TypeChange,
    parse_schema,
    parse_type,
)

FIRST_PARTITION_ID: Final = 1000

_TYPES: Final = {
    "string": "string", "long": "long", "integer": "int", "short": "int", "byte": "int", "float": "float",
    "double": "double", "boolean": "boolean", "binary": "binary", "date": "date", "timestamp": "timestamptz",
    "timestamp_ntz": "timestamp",
}  # fmt: skip
_PROMOTIONS: Final = {("int", "long"), ("float", "double")}


def problems_of(history: Sequence[Metadata]) -> list[str]:
    """Why Iceberg cannot say a table's columns, one sentence for each; empty if it can."""
    found: dict[str, None] = {}
    for metadata in history:
        names: dict[str, str] = {}
        seen: set[str] = set()
        for name, field in _all_fields(parse_schema(metadata.schema_string), ""):
            found |= dict.fromkeys(_field_problems(name, field))
            other = names.setdefault(name.casefold(), name)
            if name in seen:
                found[f"two columns are called {name} where nested columns are named with dots"] = None
            elif other != name:
                found[f"the columns {other} and {name} differ only in case"] = None
            seen.add(name)
    return list(found)


def _all_fields(struct: StructType, prefix: str) -> Iterator[tuple[str, StructField]]:
    for item in struct.fields:
        name = f"{prefix}{item.name}"
        yield name, item
        for inner in _structs_in(item.type):
            yield from _all_fields(inner, f"{name}.")


def _structs_in(kind: DataType) -> Iterator[StructType]:
    match kind:
        case StructType():
            yield kind
        case ArrayType():
            yield from _structs_in(kind.element_type)
        case MapType():
            yield from _structs_in(kind.key_type)
            yield from _structs_in(kind.value_type)


def _field_problems(name: str, field: StructField) -> Iterator[str]:
    for kind in _simple_types(field.type):
        if isinstance(kind, DecimalType):
            if not 0 <= kind.scale <= kind.precision:
                yield f"the column {name} is a {kind}, and Iceberg has no negative scales"
        elif str(kind) not in _TYPES:
            yield f"the column {name} is of the type {kind}, which Iceberg does not have"
    for change in field.type_changes:
        if not _is_promotion(change):
            yield (
                f"the column {name} was widened from {change.from_type} to {change.to_type}, and Iceberg's readers "
                "cannot read the older files"
            )


def _simple_types(kind: DataType) -> Iterator[DataType]:
    match kind:
        case StructType():
            return
        case ArrayType():
            yield from _simple_types(kind.element_type)
        case MapType():
            yield from _simple_types(kind.key_type)
            yield from _simple_types(kind.value_type)
        case _:
            yield kind


def _is_promotion(change: TypeChange) -> bool:
    before, after = parse_type(change.from_type), parse_type(change.to_type)
    if isinstance(before, DecimalType) and isinstance(after, DecimalType):
        return before.scale == after.scale and before.precision <= after.precision
    names = _TYPES.get(str(before)), _TYPES.get(str(after))
    return names[0] == names[1] or names in _PROMOTIONS


def iceberg_schema(schema: StructType, ids: Mapping[Path, int], schema_id: int) -> dict[str, Any]:
    """A schema in Iceberg's JSON."""
    return {"type": "struct", "schema-id": schema_id, "fields": _fields(schema, (), ids)}


def _fields(struct: StructType, above: Path, ids: Mapping[Path, int]) -> list[dict[str, Any]]:
    fields = []
    for item in struct.fields:
        path = (*above, item.physical_name)
        comment = item.metadata.get("comment")
        fields.append(
            {"id": ids[path], "name": item.name, "required": not item.nullable, "type": _type(item.type, path, ids)}
            | ({"doc": comment} if isinstance(comment, str) else {})
        )
    return fields


def _type(kind: DataType, path: Path, ids: Mapping[Path, int]) -> Any:
    match kind:
        case StructType():
            return {"type": "struct", "fields": _fields(kind, path, ids)}
        case ArrayType():
            inner = (*path, ELEMENT)
            return {
                "type": "list",
                "element-id": ids[inner],
                "element": _type(kind.element_type, inner, ids),
                "element-required": not kind.contains_null,
            }
        case MapType():
            key, value = (*path, KEY), (*path, VALUE)
            return {
                "type": "map",
                "key-id": ids[key],
                "key": _type(kind.key_type, key, ids),
                "value-id": ids[value],
                "value": _type(kind.value_type, value, ids),
                "value-required": not kind.value_contains_null,
            }
        case _:
            return simple_type(kind)


def simple_type(kind: DataType) -> str:
    """The Iceberg type of a column without parts."""
    if isinstance(kind, DecimalType):
        return f"decimal({kind.precision}, {kind.scale})"
    assert isinstance(kind, PrimitiveType), f"{kind} was refused before"
    return _TYPES[kind.name]


def iceberg_spec(metadata: Metadata, ids: Mapping[Path, int]) -> dict[str, Any]:
    """The partitioning in Iceberg's JSON: the values of the columns as they are.

    Its id is made of its content: manifests outlive the versions by which one could number it.
    """
    schema = parse_schema(metadata.schema_string)
    fields = []
    for name in metadata.partition_columns:
        column = schema.field(name)
        assert column is not None, "a partition column is a column"
        number = ids[(column.physical_name,)]
        fields.append(
            {
                "source-id": number,
                "field-id": FIRST_PARTITION_ID + number,
                "name": column.name,
                "transform": "identity",
            }
        )
    text = repr([(item["source-id"], item["name"]) for item in fields])
    spec_id = int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big") >> 1 if fields else 0
    return {"spec-id": spec_id, "fields": fields}
