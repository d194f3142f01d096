"""Finds which table features a table's columns and properties use."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from deltalakedb.log.schema.types import ArrayType, DataType, MapType, StructField, StructType, VariantType

CONSTRAINT_PREFIX: Final = "delta.constraints."
COLUMN_MAPPING_MODE: Final = "delta.columnMapping.mode"
GENERATION_EXPRESSION: Final = "delta.generationExpression"

BY_PROPERTY: Final[Mapping[str, str]] = {
    "delta.appendOnly": "appendOnly",
    "delta.enableChangeDataFeed": "changeDataFeed",
    "delta.enableDeletionVectors": "deletionVectors",
    "delta.enableInCommitTimestamps": "inCommitTimestamp",
    "delta.enableRowTracking": "rowTracking",
    "delta.enableTypeWidening": "typeWidening",
    "delta.enableVariantShredding": "variantShredding",
    "delta.enableIcebergCompatV1": "icebergCompatV1",
    "delta.enableIcebergCompatV2": "icebergCompatV2",
    "delta.enableIcebergCompatV3": "icebergCompatV3",
}
"""Properties, and the feature that each turns on if it is true."""

BY_FIELD: Final[Mapping[str, str]] = {
    "delta.invariants": "invariants",
    GENERATION_EXPRESSION: "generatedColumns",
    "delta.identity.start": "identityColumns",
    "delta.identity.step": "identityColumns",
    "delta.typeChanges": "typeWidening",
    "CURRENT_DEFAULT": "allowColumnDefaults",
    "__COLLATIONS": "collations",
}
"""Keys of a field's metadata, and the feature that defines each."""

PREVIEWS: Final[Mapping[str, str]] = {
    name: f"{name}-preview" for name in ("typeWidening", "variantType", "variantShredding", "collations")
}
"""Features that had another name before they were final; either name is accepted."""


def features_in_use(schema: StructType, configuration: Mapping[str, str | None]) -> dict[str, str]:
    """The features in use, each with the property or column that uses it."""
    used: dict[str, str] = {}
    for key, value in configuration.items():
        feature = _by_property(key, (value or "").strip().lower())
        if feature is not None:
            used.setdefault(feature, f"the property {key}={value}")
    for path, data_type in every_type(schema):
        feature = "variantType" if isinstance(data_type, VariantType) else None
        feature = "timestampNtz" if str(data_type) == "timestamp_ntz" else feature
        if feature is not None:
            used.setdefault(feature, f"the type {data_type} of column {path}")
    for path, item in every_field(schema):
        for key, feature in BY_FIELD.items():
            if key in item.metadata:
                used.setdefault(feature, f"{key} of column {path}")
    return used


def _by_property(key: str, value: str) -> str | None:
    if key.startswith(CONSTRAINT_PREFIX):
        return "checkConstraints"
    if key == COLUMN_MAPPING_MODE:
        return None if value in ("", "none") else "columnMapping"
    if key == "delta.checkpointPolicy":
        return "v2Checkpoint" if value == "v2" else None
    return BY_PROPERTY.get(key) if value == "true" else None


def every_field(data_type: DataType, above: str = "") -> Iterator[tuple[str, StructField]]:
    """Yields each field with its dotted path, including those inside arrays and maps."""
    match data_type:
        case StructType():
            for item in data_type.fields:
                yield f"{above}{item.name}", item
                yield from every_field(item.type, f"{above}{item.name}.")
        case ArrayType():
            yield from every_field(data_type.element_type, f"{above}element.")
        case MapType():
            yield from every_field(data_type.key_type, f"{above}key.")
            yield from every_field(data_type.value_type, f"{above}value.")


def every_type(data_type: DataType, path: tuple[str, ...] = ()) -> Iterator[tuple[str, DataType]]:
    """Yields each type with its dotted path; the schema itself comes first, with an empty path."""
    yield ".".join(path), data_type
    match data_type:
        case StructType():
            for item in data_type.fields:
                yield from every_type(item.type, (*path, item.name))
        case ArrayType():
            yield from every_type(data_type.element_type, (*path, "element"))
        case MapType():
            yield from every_type(data_type.key_type, (*path, "key"))
            yield from every_type(data_type.value_type, (*path, "value"))
