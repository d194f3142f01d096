"""Updates of a table's partition specs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from deltalakedb.iceberg.metadata.partition_specs import (
    FIRST_FIELD_ID,
    INITIAL_SPEC_ID,
    check_names,
    check_sources,
    has_sequential_ids,
    highest_field_id,
    parse_spec,
    same_spec,
    with_field_ids,
)
from deltalakedb.iceberg.metadata.shapes import check, int_field, int_list
from deltalakedb.iceberg.metadata.table_draft import TableDraft, Update


def add_spec(draft: TableDraft, update: Mapping[str, Any]) -> None:
    """Add a partition spec for the current schema, or find the same one among those that the table has."""
    spec = parse_spec(update.get("spec"))
    check_names(spec, draft.current_schema)
    check_sources(spec, draft.current_schema)
    specs = draft.fields["partition-specs"]
    spec_id = INITIAL_SPEC_ID
    for other in specs:
        if same_spec(other, spec):
            draft.last_added["partition-specs"] = other["spec-id"]
            return
        spec_id = max(spec_id, other["spec-id"] + 1)
    spec = with_field_ids(spec, specs, draft.fields["last-partition-id"], draft.format_version)
    check(
        draft.format_version > 1 or has_sequential_ids(spec),
        "Spec does not use sequential IDs that are required in v1",
    )
    last_id = max(draft.fields["last-partition-id"], FIRST_FIELD_ID - 1, highest_field_id(spec))
    draft.set("last-partition-id", last_id)
    draft.append("partition-specs", {**spec, "spec-id": spec_id})
    draft.last_added["partition-specs"] = spec_id


def set_default_spec(draft: TableDraft, update: Mapping[str, Any]) -> None:
    """Make a partition spec the default one; it must be there when all updates are applied."""
    spec_id = draft.resolve(int_field(update, "spec-id", "set-default-spec"), "partition-specs", "spec")
    if spec_id != draft.fields["default-spec-id"]:
        draft.set("default-spec-id", spec_id)


def remove_partition_specs(draft: TableDraft, update: Mapping[str, Any]) -> None:
    """Remove partition specs that are not the default; unknown ids are ignored."""
    removed = set(int_list(update, "spec-ids", "remove-partition-specs"))
    check(draft.fields["default-spec-id"] not in removed, "Cannot remove the default partition spec")
    if removed:
        kept = [spec for spec in draft.fields["partition-specs"] if spec["spec-id"] not in removed]
        draft.set("partition-specs", kept)


UPDATES: Mapping[str, Update] = {
    "add-spec": add_spec,
    "remove-partition-specs": remove_partition_specs,
    "set-default-spec": set_default_spec,
}
