"""A new table's metadata, and the metadata that a file holds."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from deltalakedb.iceberg.metadata.encryption_keys import parse_encryption_key
from deltalakedb.iceberg.metadata.normal_form import normal_form
from deltalakedb.iceberg.metadata.partition_specs import (
    INITIAL_SPEC_ID,
    check_names,
    check_sources,
    highest_field_id,
    parse_spec,
    parse_spec_fields,
    with_field_ids,
)
from deltalakedb.iceberg.metadata.rendering import render_metadata
from deltalakedb.iceberg.metadata.schemas import Schema, check_schema_version, parse_schema, with_fresh_ids
from deltalakedb.iceberg.metadata.shapes import (
    check,
    check_json,
    int_field,
    long_field,
    objects_field,
    optional_int,
    optional_long,
    optional_string,
    refuse,
    require_object,
    string_field,
    string_map,
)
from deltalakedb.iceberg.metadata.snapshot_refs import parse_ref
from deltalakedb.iceberg.metadata.snapshots import FIRST_VERSION_OF_ROW_LINEAGE, parse_snapshot
from deltalakedb.iceberg.metadata.sort_orders import (
    INITIAL_ORDER_ID,
    UNSORTED,
    check_sort_order,
    parse_sort_order,
)
from deltalakedb.iceberg.metadata.statistics import parse_partition_statistics, parse_statistics
from deltalakedb.iceberg.metadata.table_builder import (
    DEFAULT_FORMAT_VERSION,
    SUPPORTED_FORMAT_VERSION,
    strip_trailing_slash,
)
from deltalakedb.iceberg.metadata.table_checks import check_table
from deltalakedb.iceberg.metadata.table_draft import NO_SNAPSHOT
from deltalakedb.iceberg.metadata.table_properties import (
    FORMAT_VERSION,
    NEW_TABLE_PROPERTIES,
    RESERVED,
    check_new_properties,
    int_property,
)

__all__ = ["new_table_metadata", "parse_table_metadata", "render_metadata"]


def new_table_metadata(
    *,
    schema: Mapping[str, Any],
    partition_spec: Mapping[str, Any] | None = None,
    write_order: Mapping[str, Any] | None = None,
    properties: Mapping[str, str] | None = None,
    location: str,
    table_uuid: str,
    now_ms: int,
) -> dict[str, Any]:
    """The metadata of a table that a request creates: all columns and partition fields get fresh ids."""
    check_json([schema, partition_spec, write_order, properties, location, table_uuid], "new table")
    asked_properties = string_map({"properties": properties or {}}, "properties", "table")
    version = int_property(asked_properties, FORMAT_VERSION, DEFAULT_FORMAT_VERSION)
    check(1 <= version <= SUPPORTED_FORMAT_VERSION, f"Unsupported format version: v{version} (supported: v1 to v3)")
    stored = {name: value for name, value in asked_properties.items() if name not in RESERVED}
    asked = parse_schema(schema)
    fresh, last_column_id = with_fresh_ids(asked)
    check_schema_version(fresh, version)
    check_new_properties(stored, asked, version)
    spec = _fresh_spec(partition_spec, asked, fresh)
    order = _fresh_order(write_order, asked, fresh)
    check(bool(location), "Table location is required: it must not be null or empty")
    return normal_form({
        "format-version": version,
        "table-uuid": table_uuid,
        "location": strip_trailing_slash(location),
        "last-updated-ms": now_ms,
        "last-column-id": last_column_id,
        "current-schema-id": fresh.schema_id,
        "schemas": [fresh.json],
        "default-spec-id": spec["spec-id"],
        "partition-specs": [spec],
        "last-partition-id": highest_field_id(spec),
        "default-sort-order-id": order["order-id"],
        "sort-orders": [order],
        "properties": {**NEW_TABLE_PROPERTIES, **stored},
        "current-snapshot-id": NO_SNAPSHOT,
        "refs": {},
    })  # fmt: skip


def _fresh_spec(partition_spec: Mapping[str, Any] | None, asked: Schema, fresh: Schema) -> dict[str, Any]:
    spec = parse_spec({"fields": []} if partition_spec is None else partition_spec)
    check_names(spec, asked)
    check_sources(spec, asked)
    unnumbered = [{key: value for key, value in field.items() if key != "field-id"} for field in spec["fields"]]
    rebound = {**spec, "spec-id": INITIAL_SPEC_ID, "fields": [_rebind(field, asked, fresh) for field in unnumbered]}
    return with_field_ids(rebound, [], 0, 1)


def _fresh_order(write_order: Mapping[str, Any] | None, asked: Schema, fresh: Schema) -> dict[str, Any]:
    order = parse_sort_order(UNSORTED if write_order is None else write_order)
    check_sort_order(order, asked)
    if not order["fields"]:
        return order
    fields = [_rebind(field, asked, fresh) for field in order["fields"]]
    return {**order, "order-id": INITIAL_ORDER_ID, "fields": fields}


def _rebind(field: Mapping[str, Any], asked: Schema, fresh: Schema) -> dict[str, Any]:
    """The field with the fresh id of its source column."""
    column = asked.columns.get(field["source-id"])
    source = None if column is None else fresh.find(column.name)
    if source is None:
        refuse(f"Cannot find source column: {field['source-id']}")
    return {**field, "source-id": source.field_id}


def parse_table_metadata(text: bytes | str) -> dict[str, Any]:
    """The metadata that a metadata.json holds, checked, and with the fields of old v1 files brought up to date."""
    what = "table metadata"
    source = load_object(text, what)
    version = int_field(source, "format-version", what)
    check(1 <= version <= SUPPORTED_FORMAT_VERSION, f"Cannot read unsupported version {version}")
    _check_fields(source, version, what)
    fields = normal_form(source)
    _parse_lists(fields)
    schema = parse_schema(_current_schema(fields))
    for spec in fields["partition-specs"]:
        check_names(spec, schema)
    fields["location"] = strip_trailing_slash(fields["location"])
    check_table(fields)
    return fields


def load_object(text: bytes | str, what: str) -> Mapping[str, Any]:
    """A JSON object from its text; integers are exact."""

    def refuse_constant(name: str) -> NoReturn:
        raise ValueError(f"{name} is not JSON")

    try:
        value = json.loads(text, parse_constant=refuse_constant)
    except RecursionError:
        refuse(f"Cannot parse {what}: it is nested too deeply")
    except ValueError as error:
        refuse(f"Cannot parse {what}: {error}")
    check_json(value, what)
    return require_object(value, what)


def _check_fields(source: Mapping[str, Any], version: int, what: str) -> None:
    """Check the fields that are not lists, and those that v1 may leave out."""
    optional_string(source, "table-uuid", what)
    check(bool(string_field(source, "location", what)), f"Cannot parse {what}: 'location' is empty")
    int_field(source, "last-column-id", what)
    long_field(source, "last-updated-ms", what)
    optional_long(source, "current-snapshot-id", what)
    if version > 1:
        long_field(source, "last-sequence-number", what)
    if version >= FIRST_VERSION_OF_ROW_LINEAGE:
        long_field(source, "next-row-id", what)
    if source.get("properties") is not None:
        string_map(source, "properties", what)
    if version > 1 or source.get("last-partition-id") is not None:
        int_field(source, "last-partition-id", what)
    for name, chosen in _CHOSEN.items():
        if version > 1 or source.get(name) is not None:
            int_field(source, chosen, what)
            list(objects_field(source, name, what))
    if version == 1 and source.get("schemas") is None:
        optional_int(require_object(source.get("schema"), f"schema of {what}"), "schema-id", what)
    if version == 1 and source.get("partition-specs") is None:
        parse_spec_fields(source, "partition-spec", what)


def _parse_lists(fields: dict[str, Any]) -> None:
    """Check the items of the lists, which become what the parsers make of them."""
    what = "table metadata"
    for name, (id_name, parse) in _PARSERS.items():
        if name not in fields:
            continue
        items = [parse(item) for item in objects_field(fields, name, what)]
        ids = [item[id_name] for item in items]
        unique = len(set(ids)) == len(ids) or name in ("statistics", "partition-statistics")
        check(unique, f"Cannot parse {what}: '{name}' holds several items with the same '{id_name}'")
        fields[name] = items
    for spec in fields["partition-specs"]:
        check(all("field-id" in field for field in spec["fields"]), f"Cannot parse {what}: a field has no 'field-id'")
    refs = require_object(fields["refs"], f"refs of {what}")
    fields["refs"] = {name: parse_ref(ref, f"ref {name}") for name, ref in refs.items()}
    for name, of_entry in (("snapshot-log", "snapshot-id"), ("metadata-log", "metadata-file")):
        for entry in objects_field(fields, name, what):
            long_field(entry, "timestamp-ms", f"{name} of {what}")
            read: Callable[[Mapping[str, Any], str, str], object]
            read = long_field if name == "snapshot-log" else string_field
            read(entry, of_entry, f"{name} of {what}")


def _current_schema(fields: Mapping[str, Any]) -> Mapping[str, Any]:
    for schema in fields["schemas"]:
        if schema["schema-id"] == fields["current-schema-id"]:
            return dict(schema)
    return refuse(f"Cannot find schema with current-schema-id={fields['current-schema-id']} from schemas")


def _schema_json(item: Mapping[str, Any]) -> dict[str, Any]:
    return parse_schema(item).json


_CHOSEN = {
    "partition-specs": "default-spec-id",
    "schemas": "current-schema-id",
    "sort-orders": "default-sort-order-id",
}
_PARSERS: Mapping[str, tuple[str, Callable[[Mapping[str, Any]], dict[str, Any]]]] = {
    "encryption-keys": ("key-id", parse_encryption_key),
    "partition-specs": ("spec-id", parse_spec),
    "partition-statistics": ("snapshot-id", parse_partition_statistics),
    "schemas": ("schema-id", _schema_json),
    "snapshots": ("snapshot-id", parse_snapshot),
    "sort-orders": ("order-id", parse_sort_order),
    "statistics": ("snapshot-id", parse_statistics),
}
