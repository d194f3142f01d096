"""Sort orders: parsing, checks against a schema, and their updates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from deltalakedb.iceberg.metadata.partition_specs import check_transform
from deltalakedb.iceberg.metadata.schemas import Schema
from deltalakedb.iceberg.metadata.shapes import (
    brief,
    check,
    int_field,
    objects_field,
    refuse,
    require_object,
    string_field,
)
from deltalakedb.iceberg.metadata.table_draft import TableDraft, Update
from deltalakedb.iceberg.metadata.transforms import canonical_transform

UNSORTED_ID = 0
INITIAL_ORDER_ID = 1
UNSORTED: Mapping[str, Any] = {"order-id": UNSORTED_ID, "fields": []}


def parse_sort_order(item: object, what: str = "sort order") -> dict[str, Any]:
    """A sort order with canonical transforms, directions and null orders."""
    source = require_object(item, what)
    order_id = int_field(source, "order-id", what)
    fields = [_parse_field(field, what) for field in objects_field(source, "fields", what)]
    check(bool(fields) or order_id == UNSORTED_ID, "Unsorted order ID must be 0")
    check(not fields or order_id != UNSORTED_ID, "Sort order ID 0 is reserved for unsorted order")
    return {**source, "fields": fields}


def _parse_field(source: Mapping[str, Any], what: str) -> dict[str, Any]:
    int_field(source, "source-id", what)
    direction = string_field(source, "direction", what).lower()
    check(direction in ("asc", "desc"), f"Invalid sort direction: {brief(source['direction'])}")
    null_order = string_field(source, "null-order", what).lower()
    check(null_order in ("nulls-first", "nulls-last"), f"Unexpected null order: {brief(source['null-order'])}")
    transform = canonical_transform(string_field(source, "transform", what))
    return {**source, "transform": transform, "direction": direction, "null-order": null_order}


def check_sort_order(order: Mapping[str, Any], schema: Schema) -> None:
    """Refuse fields whose source is missing, or not of a type that the transform takes."""
    for field in order["fields"]:
        transform, source_id = canonical_transform(field["transform"]), field["source-id"]
        column = schema.columns.get(source_id)
        if column is None:
            refuse(f"Cannot find source column for sort field: {transform}({source_id})")
        check_transform(transform, column.type_json, "sort")


def _key(order: Mapping[str, Any]) -> list[tuple[object, ...]]:
    return [
        (canonical_transform(field["transform"]), field["source-id"], field["direction"].lower(),
         field["null-order"].lower())
        for field in order["fields"]
    ]  # fmt: skip


def add_sort_order(draft: TableDraft, update: Mapping[str, Any]) -> None:
    """Add a sort order for the current schema, or find the same one among those that the table has."""
    order = parse_sort_order(update.get("sort-order"))
    check_sort_order(order, draft.current_schema)
    order_id = INITIAL_ORDER_ID if order["fields"] else UNSORTED_ID
    for other in draft.fields["sort-orders"]:
        if _key(other) == _key(order):
            draft.last_added["sort-orders"] = other["order-id"]
            return
        if order["fields"]:
            order_id = max(order_id, other["order-id"] + 1)
    draft.append("sort-orders", {**order, "order-id": order_id})
    draft.last_added["sort-orders"] = order_id


def set_default_sort_order(draft: TableDraft, update: Mapping[str, Any]) -> None:
    """Make a sort order the default one; it must be there when all updates are applied."""
    asked = int_field(update, "sort-order-id", "set-default-sort-order")
    order_id = draft.resolve(asked, "sort-orders", "sort order")
    if order_id != draft.fields["default-sort-order-id"]:
        draft.set("default-sort-order-id", order_id)


UPDATES: Mapping[str, Update] = {
    "add-sort-order": add_sort_order,
    "set-default-sort-order": set_default_sort_order,
}
