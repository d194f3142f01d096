"""Partition specs: parsing, binding to a schema, numbering of the fields."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from deltalakedb.iceberg.metadata.schemas import Schema
from deltalakedb.iceberg.metadata.shapes import (
    brief,
    check,
    int_field,
    objects_field,
    optional_int,
    refuse,
    require_object,
    string_field,
)
from deltalakedb.iceberg.metadata.transforms import VOID, canonical_transform, takes_type
from deltalakedb.iceberg.metadata.type_names import is_primitive

FIRST_FIELD_ID = 1000
INITIAL_SPEC_ID = 0


def parse_spec(item: object, what: str = "partition spec") -> dict[str, Any]:
    """A spec with canonical transforms; its fields have ids all of them or none."""
    source = require_object(item, what)
    spec_id = optional_int(source, "spec-id", what) or INITIAL_SPEC_ID
    return {**source, "spec-id": spec_id, "fields": parse_spec_fields(source, "fields", what)}


def parse_spec_fields(item: Mapping[str, Any], name: str, what: str) -> list[dict[str, Any]]:
    """The fields of a spec."""
    fields = []
    for source in objects_field(item, name, what):
        field = {**source, "name": string_field(source, "name", what), "transform": _transform(source, what)}
        int_field(field, "source-id", what)
        if "field-id" in field:
            int_field(field, "field-id", what)
        fields.append(field)
    ids = [field["field-id"] for field in fields if "field-id" in field]
    missing = len(fields) - len(ids)
    check(not ids or not missing, f"Cannot parse {what}: {missing} of {len(fields)} fields have no 'field-id'")
    check(len(set(ids)) == len(ids), f"Invalid {what}: several fields have the same 'field-id'")
    return fields


def _transform(source: Mapping[str, Any], what: str) -> str:
    return canonical_transform(string_field(source, "transform", what))


def check_names(spec: Mapping[str, Any], schema: Schema) -> None:
    """Refuse empty names, a name used twice, and the name of a column that is not the field's source."""
    names: set[str] = set()
    for field in spec["fields"]:
        name = field["name"]
        check(name != "", "Cannot use empty partition name")
        check(name not in names, f"Cannot use partition name more than once: {name}")
        names.add(name)
        column = schema.find(name)
        if column is not None and field["source-id"] in schema.columns:
            check(
                column.field_id == field["source-id"],
                f"Cannot create identity partition sourced from different field in schema: {name}",
            )


def check_sources(spec: Mapping[str, Any], schema: Schema) -> None:
    """Refuse fields whose source is missing, or not of a type that the transform takes."""
    for field in spec["fields"]:
        transform, source_id = field["transform"], field["source-id"]
        if transform == VOID:
            continue  # takes all types, and stays in a v1 spec when its source is dropped
        column = schema.columns.get(source_id)
        if column is None:
            refuse(f"Cannot find source column for partition field: {brief(field['name'])} ({transform}({source_id}))")
        check_transform(transform, column.type_json, "partition")
        for parent in schema.parents(source_id):
            is_struct = isinstance(parent.type_json, Mapping) and parent.type_json["type"] == "struct"
            check(is_struct, f"Invalid partition field parent: {parent.name} is not a struct")


def check_transform(transform: str, type_json: Any, verb: str) -> None:
    """Refuse a source that is not primitive, or of a type that the transform does not take."""
    check(is_primitive(type_json), f"Cannot {verb} by non-primitive source field: {brief(type_json)}")
    check(takes_type(transform, type_json), f"Invalid source type {type_json} for transform: {transform}")


def same_spec(one: Mapping[str, Any], two: Mapping[str, Any]) -> bool:
    """Whether both have the same fields, whatever their ids."""
    return [_key(field) for field in one["fields"]] == [_key(field) for field in two["fields"]]


def _key(field: Mapping[str, Any]) -> tuple[int, str, str]:
    return field["source-id"], canonical_transform(field["transform"]), field["name"]


def with_field_ids(
    spec: dict[str, Any], specs: Sequence[Mapping[str, Any]], last_id: int, format_version: int
) -> dict[str, Any]:
    """The spec with ids for all fields.

    A field that some spec of the table has keeps its id, since an id stands for one meaning in the whole table. v1
    knows no ids: fields are numbered by their place.
    """
    if all("field-id" in field for field in spec["fields"]):
        return spec
    known: dict[tuple[int, str], int] = {}
    if format_version > 1:
        known = {_meaning(field): field["field-id"] for other in specs for field in other["fields"]}
        next_id = max(last_id, FIRST_FIELD_ID - 1) + 1
    else:
        next_id = FIRST_FIELD_ID
    fields = []
    for field in spec["fields"]:
        field_id = known.pop(_meaning(field), None)
        if field_id is None:
            field_id, next_id = next_id, next_id + 1
        fields.append({**field, "field-id": field_id})
    return {**spec, "fields": fields}


def _meaning(field: Mapping[str, Any]) -> tuple[int, str]:
    return field["source-id"], canonical_transform(field["transform"])


def highest_field_id(spec: Mapping[str, Any]) -> int:
    """The highest id of a partition field, or 999 if there is none."""
    return max((field["field-id"] for field in spec["fields"]), default=FIRST_FIELD_ID - 1)


def has_sequential_ids(spec: Mapping[str, Any]) -> bool:
    """Whether the fields are numbered by their place, as v1 requires."""
    return all(field["field-id"] == FIRST_FIELD_ID + place for place, field in enumerate(spec["fields"]))
