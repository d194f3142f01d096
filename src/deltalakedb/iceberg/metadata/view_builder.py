"""Applies the updates of a request to a view's metadata, by the rules of Java's `ViewMetadata.Builder`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from deltalakedb.iceberg.metadata.schemas import INITIAL_SCHEMA_ID, parse_schema, same_schema
from deltalakedb.iceberg.metadata.shapes import (
    check,
    check_json,
    choose,
    int_field,
    refuse,
    require_list,
    require_object,
    string_field,
)
from deltalakedb.iceberg.metadata.table_draft import LAST_ADDED
from deltalakedb.iceberg.metadata.table_properties import (
    bool_property,
    int_property,
    removed_properties,
    updated_properties,
)
from deltalakedb.iceberg.metadata.view_versions import (
    check_one_query_each,
    dialects_of,
    parse_version,
    same_version,
)

VIEW_FORMAT_VERSION = 1
_HISTORY_SIZE = "version.history.num-entries"
_HISTORY_SIZE_DEFAULT = 10
_DROP_DIALECT_ALLOWED = "replace.drop-dialect.allowed"


class ViewDraft:
    """A view's metadata while the updates of one request are applied to it; nothing in the base is changed."""

    def __init__(self, fields: Mapping[str, Any], now_ms: int) -> None:
        self.fields = dict(fields)
        self.now_ms = now_ms
        self.changed = False
        self.last_schema_id: int | None = None
        self.last_version_id: int | None = None
        self.added_versions: set[int] = set()
        self.log_entry: dict[str, Any] | None = None

    def set(self, name: str, value: object) -> None:
        """Set a field, and record that something has changed."""
        self.fields[name] = value
        self.changed = True

    def version(self, version_id: int) -> Mapping[str, Any] | None:
        """The version with an id."""
        return next((one for one in self.fields["versions"] if one["version-id"] == version_id), None)


def apply_view_updates(
    base: Mapping[str, Any] | None,
    updates: Sequence[Mapping[str, Any]],
    *,
    now_ms: int,
    view_uuid: str | None = None,
) -> dict[str, Any]:
    """The metadata after the updates; without a base they create the view, which `view_uuid` names until one does.

    If the updates change nothing, the result equals the base. Parts that did not change are shared with the base.
    """
    for update in require_list(updates, "updates"):
        check_json(require_object(update, "update"), "update")
    known = [choose(update, "action", _UPDATES, "view update") for update in updates]
    draft = ViewDraft(_empty_view() if base is None else {"properties": {}, **base}, now_ms)
    for apply, update in zip(known, updates, strict=True):
        apply(draft, update)
    if base is not None and not draft.changed:
        return dict(base)
    if draft.fields["view-uuid"] is None:
        draft.fields["view-uuid"] = view_uuid
    previous = None if base is None else ViewDraft(base, now_ms).version(base["current-version-id"])
    return _finish(draft, previous)


def _empty_view() -> dict[str, Any]:
    return {
        "view-uuid": None,
        "format-version": VIEW_FORMAT_VERSION,
        "location": None,
        "properties": {},
        "schemas": [],
        "current-version-id": 0,
        "versions": [],
        "version-log": [],
    }


def _finish(draft: ViewDraft, previous: Mapping[str, Any] | None) -> dict[str, Any]:
    fields = draft.fields
    check(fields["view-uuid"] is not None, "Invalid view: it has no UUID")
    check(fields["location"] is not None, "Invalid location: null")
    check(bool(fields["versions"]), "Invalid view: no versions were added")
    current = draft.version(fields["current-version-id"])
    if current is None:
        refuse(f"Cannot find current version {fields['current-version-id']} in view versions")
    if draft.log_entry is not None:
        fields["version-log"] = [*fields["version-log"], draft.log_entry]
    if previous is not None and not bool_property(fields["properties"], _DROP_DIALECT_ALLOWED):
        _check_dialects(dialects_of(previous), dialects_of(current))
    _expire_versions(draft, current)
    return fields


def _check_dialects(before: set[str], after: set[str]) -> None:
    check(
        before <= after,
        f"Cannot replace view due to loss of view dialects ({_DROP_DIALECT_ALLOWED}=false): previous dialects:"
        f" {', '.join(sorted(before))}; new dialects: {', '.join(sorted(after))}",
    )


def _expire_versions(draft: ViewDraft, current: Mapping[str, Any]) -> None:
    """Keep as many versions as the view's properties say, with the current one and those that were just added."""
    fields = draft.fields
    size = int_property(fields["properties"], _HISTORY_SIZE, _HISTORY_SIZE_DEFAULT)
    check(size > 0, f"{_HISTORY_SIZE} must be positive but was {size}")
    keep = max(size, len(draft.added_versions | {current["version-id"]}))
    if len(fields["versions"]) <= keep:
        return
    newest = sorted(fields["versions"], key=lambda one: -int(one["version-id"]))
    others = [one for one in newest if one["version-id"] != current["version-id"]]
    fields["versions"] = [current, *others[: keep - 1]]
    kept = {one["version-id"] for one in fields["versions"]}
    log: list[Mapping[str, Any]] = []
    for entry in fields["version-log"]:
        # What came before an unknown version would be in the wrong place.
        log = [*log, entry] if entry["version-id"] in kept else []
    fields["version-log"] = log


def _add_schema(draft: ViewDraft, update: Mapping[str, Any]) -> None:
    schema = parse_schema(update.get("schema"))
    schema_id = INITIAL_SCHEMA_ID
    for json in draft.fields["schemas"]:
        if same_schema(parse_schema(json, f"schema {json['schema-id']}"), schema):
            draft.last_schema_id = json["schema-id"]
            return
        schema_id = max(schema_id, json["schema-id"] + 1)
    draft.set("schemas", [*draft.fields["schemas"], schema.with_id(schema_id).json])
    draft.last_schema_id = schema_id


def _add_view_version(draft: ViewDraft, update: Mapping[str, Any]) -> None:
    version = parse_version(update.get("view-version"))
    version_id = version["version-id"]
    for other in draft.fields["versions"]:
        if same_version(other, version):
            draft.last_version_id = other["version-id"]
            return
        version_id = max(version_id, other["version-id"] + 1)
    schema_id = version["schema-id"]
    if schema_id == LAST_ADDED:
        if draft.last_schema_id is None:
            refuse("Cannot set last added schema: no schema has been added")
        schema_id = draft.last_schema_id
    known = any(json["schema-id"] == schema_id for json in draft.fields["schemas"])
    check(known, f"Cannot add version with unknown schema: {schema_id}")
    check_one_query_each(version)
    added = {**version, "version-id": version_id, "schema-id": schema_id}
    draft.set("versions", [*draft.fields["versions"], added])
    draft.added_versions.add(version_id)
    draft.last_version_id = version_id


def _set_current_view_version(draft: ViewDraft, update: Mapping[str, Any]) -> None:
    version_id = int_field(update, "view-version-id", "set-current-view-version")
    if version_id == LAST_ADDED:
        if draft.last_version_id is None:
            refuse("Cannot set last version id: no current version id has been set")
        version_id = draft.last_version_id
    if version_id == draft.fields["current-version-id"]:
        return
    version = draft.version(version_id)
    if version is None:
        refuse(f"Cannot set current version to unknown version: {version_id}")
    draft.set("current-version-id", version_id)
    # Going back to a version that was there before happens now.
    timestamp = version["timestamp-ms"] if version_id in draft.added_versions else draft.now_ms
    draft.log_entry = {"timestamp-ms": timestamp, "version-id": version_id}


def _assign_uuid(draft: ViewDraft, update: Mapping[str, Any]) -> None:
    uuid = string_field(update, "uuid", "assign-uuid")
    check(draft.fields["view-uuid"] in (None, uuid), "Cannot reassign uuid")
    if draft.fields["view-uuid"] is None:
        draft.set("view-uuid", uuid)


def _upgrade_format_version(draft: ViewDraft, update: Mapping[str, Any]) -> None:
    version = int_field(update, "format-version", "upgrade-format-version")
    current = draft.fields["format-version"]
    check(version >= current, f"Cannot downgrade v{current} view to v{version}")
    check(version <= VIEW_FORMAT_VERSION, f"Unsupported format version: {version}")


def _set_location(draft: ViewDraft, update: Mapping[str, Any]) -> None:
    location = string_field(update, "location", "set-location")
    if location != draft.fields["location"]:
        draft.set("location", location)


def _set_properties(draft: ViewDraft, update: Mapping[str, Any]) -> None:
    updates = updated_properties(update)
    if updates:
        draft.set("properties", {**draft.fields["properties"], **updates})


def _remove_properties(draft: ViewDraft, update: Mapping[str, Any]) -> None:
    removed = set(removed_properties(update))
    if removed:
        kept = {name: value for name, value in draft.fields["properties"].items() if name not in removed}
        draft.set("properties", kept)


_UPDATES: Mapping[str, Callable[[ViewDraft, Mapping[str, Any]], None]] = {
    "add-schema": _add_schema,
    "add-view-version": _add_view_version,
    "assign-uuid": _assign_uuid,
    "remove-properties": _remove_properties,
    "set-current-view-version": _set_current_view_version,
    "set-location": _set_location,
    "set-properties": _set_properties,
    "upgrade-format-version": _upgrade_format_version,
}
