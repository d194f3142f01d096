"""Writes manifest lists and manifests with fastavro, for tables that no library writes."""

import io
import json
from collections.abc import Mapping, Sequence
from typing import Any

import fastavro

Row = dict[str, Any]

FILE_COUNTS = ("added_files_count", "existing_files_count", "deleted_files_count")
ROW_COUNTS = ("added_rows_count", "existing_rows_count", "deleted_rows_count")


def optional(kind: Any) -> list[Any]:
    return ["null", kind]


def field(field_id: int, name: str, kind: Any) -> Row:
    return {"name": name, "type": kind, "field-id": field_id}


def pairs(key_id: int, value_id: int, kind: str) -> Row:
    """A map with whole numbers as keys, which Avro has as a list of pairs."""
    fields = [field(key_id, "key", "int"), field(value_id, "value", kind)]
    record = {"type": "record", "name": f"k{key_id}_v{value_id}", "fields": fields}
    return {"type": "array", "logicalType": "map", "items": record}


AVRO_TYPES: dict[str, Any] = {
    "boolean": "boolean",
    "int": "int",
    "long": "long",
    "float": "float",
    "double": "double",
    "date": {"type": "int", "logicalType": "date"},
    "time": {"type": "long", "logicalType": "time-micros"},
    "timestamp": {"type": "long", "logicalType": "timestamp-micros", "adjust-to-utc": False},
    "timestamptz": {"type": "long", "logicalType": "timestamp-micros", "adjust-to-utc": True},
    "timestamp_ns": {"type": "long", "logicalType": "timestamp-nanos", "adjust-to-utc": False},
    "string": "string",
    "binary": "bytes",
    "uuid": {"type": "fixed", "size": 16, "name": "uuid_fixed", "logicalType": "uuid"},
    "fixed[4]": {"type": "fixed", "size": 4, "name": "fixed_4"},
}


def avro_type(iceberg_type: str, name: str) -> Any:
    if iceberg_type.startswith("decimal"):
        precision, scale = (int(part) for part in iceberg_type[8:-1].split(","))
        size = {9: 4, 18: 8}.get(precision, 16)
        return {
            "type": "fixed", "name": f"d_{name}", "size": size, "logicalType": "decimal", "precision": precision,
            "scale": scale,
        }  # fmt: skip
    kind = AVRO_TYPES[iceberg_type]
    return {**kind, "name": f"{kind['name']}_{name}"} if isinstance(kind, dict) and "name" in kind else kind


def manifest_schema(version: int, partition: Sequence[tuple[int, str, str]]) -> Row:
    """`partition`: id, name and result type of each field of the spec."""
    parts = [field(number, name, optional(avro_type(kind, f"p{number}"))) for number, name, kind in partition]
    items = [
        *([field(134, "content", "int")] if version > 1 else []),
        field(100, "file_path", "string"),
        field(101, "file_format", "string"),
        field(102, "partition", {"type": "record", "name": "r102", "fields": parts}),
        field(103, "record_count", "long"),
        field(104, "file_size_in_bytes", "long"),
        *([field(105, "block_size_in_bytes", "long")] if version == 1 else []),
        field(108, "column_sizes", optional(pairs(117, 118, "long"))),
        field(109, "value_counts", optional(pairs(119, 120, "long"))),
        field(110, "null_value_counts", optional(pairs(121, 122, "long"))),
        field(137, "nan_value_counts", optional(pairs(138, 139, "long"))),
        field(125, "lower_bounds", optional(pairs(126, 127, "bytes"))),
        field(128, "upper_bounds", optional(pairs(129, 130, "bytes"))),
        field(135, "equality_ids", optional({"type": "array", "items": "int", "element-id": 136})),
        field(140, "sort_order_id", optional("int")),
    ]
    if version > 2:
        items += [
            field(142, "first_row_id", optional("long")),
            field(143, "referenced_data_file", optional("string")),
            field(144, "content_offset", optional("long")),
            field(145, "content_size_in_bytes", optional("long")),
        ]
    numbers = [field(3, "sequence_number", optional("long")), field(4, "file_sequence_number", optional("long"))]
    fields = [
        field(0, "status", "int"),
        field(1, "snapshot_id", optional("long")),
        *(numbers if version > 1 else []),
        field(2, "data_file", {"type": "record", "name": "r2", "fields": items}),
    ]
    return {"type": "record", "name": "manifest_entry", "fields": fields}


def list_schema(version: int) -> Row:
    fields = [
        field(500, "manifest_path", "string"),
        field(501, "manifest_length", "long"),
        field(502, "partition_spec_id", "int"),
        field(503, "added_snapshot_id", "long"),
    ]
    fields += [
        field(504 + place, name, "int" if version > 1 else optional("int")) for place, name in enumerate(FILE_COUNTS)
    ]
    fields += [
        field(512 + place, name, "long" if version > 1 else optional("long")) for place, name in enumerate(ROW_COUNTS)
    ]
    if version > 1:
        names = ((517, "content", "int"), (515, "sequence_number", "long"), (516, "min_sequence_number", "long"))
        fields += [field(*item) for item in names]
    if version > 2:
        fields.append(field(520, "first_row_id", optional("long")))
    return {"type": "record", "name": "manifest_file", "fields": fields}


def to_avro(schema: Row, rows: Sequence[Row], metadata: Mapping[str, str], codec: str = "deflate") -> bytes:
    stream = io.BytesIO()
    fastavro.writer(stream, schema, rows, codec=codec, metadata={"test": "1", **metadata}, sync_interval=400)
    return stream.getvalue()


def manifest_metadata(version: int, schema: Any, spec: Any, content: str) -> dict[str, str]:
    return {
        "schema": json.dumps(schema),
        "schema-id": str(schema.get("schema-id", 0)),
        "partition-spec": json.dumps(spec["fields"]),
        "partition-spec-id": str(spec["spec-id"]),
        "format-version": str(version),
        "content": content,
    }
