"""The Avro schemas of manifests and manifest lists, as Iceberg's specification numbers their fields."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from typing import Any, Final

from deltalakedb.iceberg.planning.types import Primitive, is_decimal

Json = dict[str, Any]

_TIMESTAMPS: Final = {"timestamp": False, "timestamptz": True}
_SIMPLE: Final = {
    "boolean": "boolean", "int": "int", "long": "long", "float": "float", "double": "double", "string": "string",
    "binary": "bytes",
}  # fmt: skip


def _field(field_id: int, name: str, kind: Any) -> Json:
    return {"name": name, "type": kind, "field-id": field_id}


def _optional(field_id: int, name: str, kind: Any) -> Json:
    return {"name": name, "type": ["null", kind], "default": None, "field-id": field_id}


def _map(field_id: int, name: str, key_id: int, value_id: int, value: str) -> Json:
    pair = {
        "type": "record",
        "name": f"k{key_id}_v{value_id}",
        "fields": [_field(key_id, "key", "int"), _field(value_id, "value", value)],
    }
    return _optional(field_id, name, {"type": "array", "items": pair, "logicalType": "map"})


def _list(field_id: int, name: str, element_id: int, element: str) -> Json:
    return _optional(field_id, name, {"type": "array", "items": element, "element-id": element_id})


@cache
def manifest_list_schema(format_version: int) -> Json:
    """The schema of the rows of a manifest list: a manifest each."""
    summary = {
        "type": "record",
        "name": "r508",
        "fields": [
            _field(509, "contains_null", "boolean"),
            _optional(518, "contains_nan", "boolean"),
            _optional(510, "lower_bound", "bytes"),
            _optional(511, "upper_bound", "bytes"),
        ],
    }
    fields = [
        _field(500, "manifest_path", "string"),
        _field(501, "manifest_length", "long"),
        _field(502, "partition_spec_id", "int"),
        _field(517, "content", "int"),
        _field(515, "sequence_number", "long"),
        _field(516, "min_sequence_number", "long"),
        _field(503, "added_snapshot_id", "long"),
        _field(504, "added_files_count", "int"),
        _field(505, "existing_files_count", "int"),
        _field(506, "deleted_files_count", "int"),
        _field(512, "added_rows_count", "long"),
        _field(513, "existing_rows_count", "long"),
        _field(514, "deleted_rows_count", "long"),
        _optional(507, "partitions", {"type": "array", "items": summary, "element-id": 508}),
        _optional(519, "key_metadata", "bytes"),
    ]
    if format_version > 2:
        fields.append(_optional(520, "first_row_id", "long"))
    return {"type": "record", "name": "manifest_file", "fields": fields}


def manifest_schema(format_version: int, partition: Sequence[tuple[int, str, Primitive]]) -> Json:
    """The schema of a manifest's entries; `partition` is the id, the name and the type of each partition field."""
    values: Json = {
        "type": "record",
        "name": "r102",
        "fields": [_partition_field(field_id, name, type_) for field_id, name, type_ in partition],
    }
    fields = [
        _field(134, "content", "int"),
        _field(100, "file_path", "string"),
        _field(101, "file_format", "string"),
        _field(102, "partition", values),
        _field(103, "record_count", "long"),
        _field(104, "file_size_in_bytes", "long"),
        _map(108, "column_sizes", 117, 118, "long"),
        _map(109, "value_counts", 119, 120, "long"),
        _map(110, "null_value_counts", 121, 122, "long"),
        _map(137, "nan_value_counts", 138, 139, "long"),
        _map(125, "lower_bounds", 126, 127, "bytes"),
        _map(128, "upper_bounds", 129, 130, "bytes"),
        _optional(131, "key_metadata", "bytes"),
        _list(132, "split_offsets", 133, "long"),
        _list(135, "equality_ids", 136, "int"),
        _optional(140, "sort_order_id", "int"),
    ]
    if format_version > 2:
        fields += [
            _optional(142, "first_row_id", "long"),
            _optional(143, "referenced_data_file", "string"),
            _optional(144, "content_offset", "long"),
            _optional(145, "content_size_in_bytes", "long"),
        ]
    return {
        "type": "record",
        "name": "manifest_entry",
        "fields": [
            _field(0, "status", "int"),
            _optional(1, "snapshot_id", "long"),
            _optional(3, "sequence_number", "long"),
            _optional(4, "file_sequence_number", "long"),
            _field(2, "data_file", {"type": "record", "name": "r2", "fields": fields}),
        ],
    }


def _partition_field(field_id: int, name: str, type_: Primitive) -> Json:
    plain = avro_name(name)
    field = _optional(field_id, plain, _partition_type(field_id, type_))
    return field if plain == name else {**field, "iceberg-field-name": name}


def avro_name(name: str) -> str:
    """A name as Iceberg's writers spell it in Avro, which knows letters, digits and underscores only."""
    escaped = re.sub(r"[^A-Za-z0-9_]", lambda match: f"_x{ord(match.group()):X}", name)
    return f"_{escaped}" if escaped[:1].isdigit() else escaped


def _partition_type(field_id: int, type_: Primitive) -> Any:
    if is_decimal(type_):
        precision = decimal_precision(type_)
        return {
            "type": "fixed",
            "name": f"decimal_{field_id}",
            "size": decimal_size(precision),
            "logicalType": "decimal",
            "precision": precision,
            "scale": type_.scale,
        }
    if type_.name == "date":
        return {"type": "int", "logicalType": "date"}
    if type_.name in _TIMESTAMPS:
        return {"type": "long", "logicalType": "timestamp-micros", "adjust-to-utc": _TIMESTAMPS[type_.name]}
    return _SIMPLE[type_.name]


def decimal_precision(type_: Primitive) -> int:
    return int(type_.name[len("decimal(") :].partition(",")[0])


@cache
def decimal_size(precision: int) -> int:
    """The bytes that hold every decimal with so many digits."""
    return (int(10**precision).bit_length() + 8) // 8
