"""A new view's metadata, the metadata that a file holds, and what a request requires of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from deltalakedb.iceberg.metadata.rendering import render_object
from deltalakedb.iceberg.metadata.requirements import Requirement, check_uuid, fail, run_checks
from deltalakedb.iceberg.metadata.schemas import parse_schema
from deltalakedb.iceberg.metadata.shapes import (
    check,
    check_json,
    int_field,
    long_field,
    objects_field,
    require_object,
    string_field,
    string_map,
)
from deltalakedb.iceberg.metadata.table_draft import LAST_ADDED
from deltalakedb.iceberg.metadata.table_metadata import load_object
from deltalakedb.iceberg.metadata.view_builder import VIEW_FORMAT_VERSION, apply_view_updates
from deltalakedb.iceberg.metadata.view_versions import parse_version

__all__ = [
    "apply_view_updates",
    "check_view_requirements",
    "new_view_metadata",
    "parse_view_metadata",
    "render_view_metadata",
]

_FIRST_VERSION_ID = 1


def new_view_metadata(*, request: Mapping[str, Any], location: str, view_uuid: str, now_ms: int) -> dict[str, Any]:
    """The metadata of the view that a createView request asks for."""
    check_json(require_object(request, "create view request"), "create view request")
    version = parse_version(request.get("view-version"))
    check(bool(version["representations"]), "Cannot create view without specifying a query")
    first = {**version, "version-id": _FIRST_VERSION_ID, "schema-id": LAST_ADDED, "timestamp-ms": now_ms}
    has_properties = request.get("properties") is not None
    properties = string_map(request, "properties", "create view request") if has_properties else {}
    updates: list[dict[str, Any]] = [
        {"action": "assign-uuid", "uuid": view_uuid},
        {"action": "set-location", "location": location},
        {"action": "set-properties", "updates": properties},
        {"action": "add-schema", "schema": request.get("schema")},
        {"action": "add-view-version", "view-version": first},
        {"action": "set-current-view-version", "view-version-id": LAST_ADDED},
    ]
    return apply_view_updates(None, updates, now_ms=now_ms)


def check_view_requirements(requirements: Sequence[Mapping[str, Any]], base: Mapping[str, Any] | None) -> None:
    """Refuse the request if the view is not what it requires; None stands for a view that does not exist."""
    run_checks(requirements, _REQUIREMENTS, base)


def _view_uuid(requirement: Mapping[str, Any], base: Mapping[str, Any] | None) -> None:
    uuid = string_field(requirement, "uuid", "requirement")
    if base is None:
        fail(f"view does not exist, expected {uuid}")
    else:
        check_uuid(base["view-uuid"], uuid, "view UUID")


_REQUIREMENTS: Mapping[str, Requirement] = {"assert-view-uuid": _view_uuid}


def parse_view_metadata(text: bytes | str) -> dict[str, Any]:
    """The metadata that a view's metadata.json holds, checked."""
    what = "view metadata"
    source = load_object(text, what)
    string_field(source, "view-uuid", what)
    version = int_field(source, "format-version", what)
    check(version == VIEW_FORMAT_VERSION, f"Unsupported format version: {version}")
    string_field(source, "location", what)
    properties = {} if source.get("properties") is None else string_map(source, "properties", what)
    schemas = [parse_schema(item).json for item in objects_field(source, "schemas", what)]
    versions = [parse_version(item) for item in objects_field(source, "versions", what)]
    for entry in objects_field(source, "version-log", what):
        int_field(entry, "version-id", f"version-log of {what}")
        long_field(entry, "timestamp-ms", f"version-log of {what}")
    schema_ids, version_ids = [one["schema-id"] for one in schemas], [one["version-id"] for one in versions]
    check(len(set(schema_ids)) == len(schema_ids), f"Cannot parse {what}: several schemas have the same id")
    check(len(set(version_ids)) == len(version_ids), f"Cannot parse {what}: several versions have the same id")
    current_id = int_field(source, "current-version-id", what)
    check(current_id in version_ids, f"Cannot find current version {current_id} in view versions: {version_ids}")
    current = versions[version_ids.index(current_id)]
    known = current["schema-id"] in schema_ids
    check(known, f"Cannot find current schema with id {current['schema-id']} in schemas: {schema_ids}")
    return {**source, "properties": properties, "schemas": schemas, "versions": versions}


def render_view_metadata(metadata: Mapping[str, Any]) -> bytes:
    """The bytes of a view's metadata.json."""
    known = {name: metadata[name] for name in _ORDER if name in metadata}
    others = {name: metadata[name] for name in sorted(metadata) if name not in known}
    return render_object({**known, **others}, "view metadata")


_ORDER = (
    "view-uuid", "format-version", "location", "properties", "schemas", "current-version-id", "versions", "version-log",
)  # fmt: skip
