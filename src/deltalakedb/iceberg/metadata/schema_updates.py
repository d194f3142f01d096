"""Updates of a table's schemas."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from deltalakedb.iceberg.metadata.partition_specs import check_names
from deltalakedb.iceberg.metadata.schemas import check_schema_version, parse_schema, same_schema
from deltalakedb.iceberg.metadata.shapes import check, int_field, int_list
from deltalakedb.iceberg.metadata.table_draft import TableDraft, Update


def add_schema(draft: TableDraft, update: Mapping[str, Any]) -> None:
    """Add a schema, or find the same one among those that the table has."""
    schema = parse_schema(update.get("schema"))
    check_schema_version(schema, draft.format_version)
    last_column_id = max(draft.fields["last-column-id"], schema.highest_id())
    if last_column_id != draft.fields["last-column-id"]:
        draft.set("last-column-id", last_column_id)
    schema_id = draft.fields["current-schema-id"]
    for json in draft.fields["schemas"]:
        if same_schema(parse_schema(json, f"schema {json['schema-id']}"), schema):
            draft.last_added["schemas"] = json["schema-id"]
            return
        schema_id = max(schema_id, json["schema-id"] + 1)
    draft.append("schemas", schema.with_id(schema_id).json)
    draft.last_added["schemas"] = schema_id


def set_current_schema(draft: TableDraft, update: Mapping[str, Any]) -> None:
    """Make a schema the current one, if the partition specs' names do not clash with its columns."""
    schema_id = draft.resolve(int_field(update, "schema-id", "set-current-schema"), "schemas", "schema")
    if schema_id == draft.fields["current-schema-id"]:
        return
    found = draft.find("schemas", "schema-id", schema_id) is not None
    check(found, f"Cannot set current schema to unknown schema: {schema_id}")
    draft.set("current-schema-id", schema_id)
    for spec in draft.fields["partition-specs"]:
        check_names(spec, draft.current_schema)


def remove_schemas(draft: TableDraft, update: Mapping[str, Any]) -> None:
    """Remove schemas that are not current; unknown ids are ignored."""
    removed = set(int_list(update, "schema-ids", "remove-schemas"))
    check(draft.fields["current-schema-id"] not in removed, "Cannot remove the current schema")
    if removed:
        draft.set("schemas", [json for json in draft.fields["schemas"] if json["schema-id"] not in removed])


UPDATES: Mapping[str, Update] = {
    "add-schema": add_schema,
    "remove-schemas": remove_schemas,
    "set-current-schema": set_current_schema,
}
