"""Compares two metadata or protocols of a table: does the newer one demand more of files that were written before."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from deltalakedb.log.protocol.actions import Metadata, Protocol
from deltalakedb.log.protocol.features import COLUMN_MAPPING_MODE, CONSTRAINT_PREFIX, reader_features, writer_features
from deltalakedb.log.schema.types import ArrayType, DataType, MapType, StructField, StructType, parse_schema

HIGH_WATERMARK: Final = "delta.identity.highWaterMark"

# Properties that define how rows are stored in files; a file written under another value does not fit.
_BINDING: Final = (
    COLUMN_MAPPING_MODE,
    "delta.enableIcebergCompatV1",
    "delta.enableIcebergCompatV2",
    "delta.enableIcebergCompatV3",
)
_FREE_OF_ROWS: Final = frozenset({"comment", "CURRENT_DEFAULT", "EXISTS_DEFAULT", HIGH_WATERMARK})
"""Field metadata that does not restrict existing rows."""


def binds_rows(old: Metadata, new: Metadata) -> str:
    """What the new metadata demands of existing rows, as the end of a sentence; '' if nothing."""
    if old.partition_columns != new.partition_columns:
        return "changes the partition columns"
    for name, value in new.configuration.items():
        if name.startswith(CONSTRAINT_PREFIX) and old.configuration.get(name) != value:
            return f"adds the constraint {name.removeprefix(CONSTRAINT_PREFIX)}"
    for name in _BINDING:
        if (old.configuration.get(name) or "") != (new.configuration.get(name) or ""):
            return f"changes the property {name}"
    if old.schema_string == new.schema_string:
        return ""
    column = _changed_field(parse_schema(old.schema_string), parse_schema(new.schema_string))
    return f"changes the column {column}" if column else ""


def _changed_field(old: StructType, new: StructType, above: str = "") -> str:
    """The first column whose rows must be checked: renamed, dropped, retyped, or restricted; '' if there is none.

    New nullable columns demand nothing of existing rows.
    """
    fields = {item.name: item for item in new.fields}
    for item in old.fields:
        other = fields.pop(item.name, None)
        if other is None or not _same_but_wider(item, other):
            return f"{above}{item.name}"
        nested = _changed_in_type(item.type, other.type, f"{above}{item.name}.")
        if nested:
            return nested
    return next((f"{above}{item.name}" for item in fields.values() if not item.nullable or _conditions(item)), "")


def _same_but_wider(old: StructField, new: StructField) -> bool:
    same = old.physical_name == new.physical_name and _conditions(old) == _conditions(new)
    return same and (new.nullable or not old.nullable)


def _conditions(item: StructField) -> dict[str, Any]:
    """The field's metadata that restricts rows; column mapping only names them."""
    return {
        key: value
        for key, value in item.metadata.items()
        if key not in _FREE_OF_ROWS and not key.startswith("delta.columnMapping.")
    }


def _changed_in_type(old: DataType, new: DataType, above: str) -> str:
    match old, new:
        case StructType(), StructType():
            return _changed_field(old, new, above)
        case ArrayType(), ArrayType() if new.contains_null or not old.contains_null:
            return _changed_in_type(old.element_type, new.element_type, above)
        case MapType(), MapType() if new.value_contains_null or not old.value_contains_null:
            key = _changed_in_type(old.key_type, new.key_type, above)
            return key or _changed_in_type(old.value_type, new.value_type, above)
    return "" if old == new else above.rstrip(".")


def drops_features(old: Protocol | None, new: Protocol) -> bool:
    """Whether the new protocol lacks a feature of the old one; True if the old one is unknown."""
    if old is None:
        return True
    return not (reader_features(old) <= reader_features(new) and writer_features(old) <= writer_features(new))


def means_the_same(old: Protocol | None, new: Protocol) -> bool:
    """Whether two protocols demand the same of readers and writers; one may list what the other's version implies.

    A commit that adds or removes the fence repeats the protocol, and so changes nothing here.
    """
    if old is None or (old.min_reader_version, old.extra) != (new.min_reader_version, new.extra):
        return False
    return reader_features(old) == reader_features(new) and writer_features(old) == writer_features(new)


def moves_identity_only(old: Metadata, new: Metadata) -> bool:
    """Whether only the high watermarks of identity columns differ."""
    if old.schema_string == new.schema_string:
        return False
    if replace(old, schema_string="", extra="") != replace(new, schema_string="", extra=""):
        return False
    return _without_watermarks(parse_schema(old.schema_string)) == _without_watermarks(parse_schema(new.schema_string))


def _without_watermarks(schema: StructType) -> list[tuple[str, DataType, bool, Mapping[str, Any]]]:
    """The fields without high watermarks; identity columns are never nested (PROTOCOL.md, "Identity Columns")."""
    return [
        (item.name, item.type, item.nullable, {k: v for k, v in item.metadata.items() if k != HIGH_WATERMARK})
        for item in schema.fields
    ]
