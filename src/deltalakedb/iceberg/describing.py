"""Versions of Iceberg tables and views for people: their metadata, history and description, from SQL alone."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from deltalakedb.catalog.entries import require_table
from deltalakedb.exceptions import NotADeltaTableError, VersionNotFoundError
from deltalakedb.iceberg.catalog import LoadedTable
from deltalakedb.store import registry
from deltalakedb.store.connection import LIVE
from deltalakedb.store.iceberg import read_iceberg_version
from deltalakedb.store.names import TableName, parse_table_name
from deltalakedb.store.registry import VIEW
from deltalakedb.store.snapshot import version_at

if TYPE_CHECKING:
    from deltalakedb.catalog.catalog import Catalog
    from deltalakedb.store.registry import TableRow


def load_version(catalog: Catalog, name: str, version: int | None = None, *, at_ms: int | None = None) -> LoadedTable:
    """Return a table or view at a version, at an instant, or as it is now."""
    with catalog.store.read() as conn:
        row = require_table(conn, parse_table_name(name))
        if row.is_delta:
            raise NotADeltaTableError(f"{row.full_name} is a Delta table, not an Iceberg table or view")
        head = registry.read_head(conn, row.table_id)
        assert head is not None, "an Iceberg table is registered with its first version"
        wanted = head.current_version if version is None else version
        if at_ms is not None:
            found_version = version_at(conn, row.table_id, at_ms)
            wanted = -1 if found_version is None else found_version
        if not 0 <= wanted <= head.current_version:
            when = f"version {version}" if at_ms is None else "version at that time"
            raise VersionNotFoundError(
                f"{row.full_name} has no {when}: it has the versions 0 to {head.current_version}"
            )
        found = read_iceberg_version(conn, row.table_id, wanted)
    full_name, options = TableName(row.namespace, row.name), catalog.storage_options_of(row)
    return LoadedTable(
        full_name, row.table_id, row.table_uuid, wanted, found.metadata_location, found.metadata, options
    )


def history(
    catalog: Catalog,
    table: TableRow,
    limit: int | None = None,
    since_ms: int | None = None,
    until_ms: int | None = None,
) -> list[dict[str, Any]]:
    """Return the versions of a table or view, newest first, in the form in which Delta tables have their history."""
    with catalog.store.read(single=True) as conn:
        rows = conn.all(
            "select_history",
            table_id=table.table_id,
            since_ms=since_ms,
            until_ms=until_ms,
            max_rows=LIVE if limit is None else limit,
        )
    return [
        {
            "timestamp": entry["committed_at_ms"],
            "operation": entry["operation"],
            "operationParameters": json.loads(entry["operation_params"] or "{}"),
            "userName": entry["actor"],
            "txnId": entry["txn_id"],
            "message": entry["message"],
            "version": entry["version"],
        }
        for entry in rows
    ]


def describe(catalog: Catalog, loaded: LoadedTable) -> dict[str, Any]:
    """Return what `dl show` tells of a table or view."""
    with catalog.store.read() as conn:
        row = require_table(conn, loaded.name)
        committed = conn.one("select_version", table_id=row.table_id, version=loaded.version)
    metadata = loaded.metadata
    common = {
        "table": row.full_name,
        "format": row.mode,
        "location": metadata["location"],
        "version": loaded.version,
        "committed_at_ms": None if committed is None else committed["committed_at_ms"],
        "id": metadata["view-uuid" if row.mode == VIEW else "table-uuid"],
        "metadata_file": loaded.metadata_location,
        "format_version": metadata["format-version"],
        "properties": metadata.get("properties", {}),
    }
    return {**common, **(_view_parts(metadata) if row.mode == VIEW else _table_parts(metadata))}


def _table_parts(metadata: Mapping[str, Any]) -> dict[str, Any]:
    snapshot_id = metadata.get("current-snapshot-id")
    snapshot: Mapping[str, Any] = _find(metadata.get("snapshots", ()), "snapshot-id", snapshot_id) or {}
    schema = _find(metadata["schemas"], "schema-id", metadata["current-schema-id"])
    spec = _find(metadata["partition-specs"], "spec-id", metadata["default-spec-id"]) or {"fields": []}
    order = _find(metadata["sort-orders"], "order-id", metadata["default-sort-order-id"]) or {"fields": []}
    names = _column_names(schema or {"fields": []})
    summary = snapshot.get("summary", {})
    return {
        "snapshot_id": snapshot.get("snapshot-id"),
        "num_snapshots": len(metadata.get("snapshots", ())),
        "refs": metadata.get("refs", {}),
        "num_files": _number(summary, "total-data-files", snapshot),
        "size_bytes": _number(summary, "total-files-size", snapshot),
        "num_records": _number(summary, "total-records", snapshot),
        "num_delete_files": _number(summary, "total-delete-files", snapshot),
        "partitioned_by": [_transform_text(field, names) for field in spec["fields"]],
        "sorted_by": [f"{_transform_text(field, names)} {field['direction']}" for field in order["fields"]],
        "schema": schema,
    }


def _view_parts(metadata: Mapping[str, Any]) -> dict[str, Any]:
    version = _find(metadata["versions"], "version-id", metadata["current-version-id"]) or {}
    return {
        "view_version": version.get("version-id"),
        "sql": {text["dialect"]: text["sql"] for text in version.get("representations", ()) if "sql" in text},
        "default_namespace": version.get("default-namespace"),
        "schema": _find(metadata["schemas"], "schema-id", version.get("schema-id")),
    }


def columns_of(schema: Mapping[str, Any]) -> list[tuple[str, str, bool, str]]:
    """Return the columns of a schema: name, type as text, whether it is required, comment."""
    return [
        (field["name"], type_text(field["type"]), bool(field.get("required")), field.get("doc") or "")
        for field in schema["fields"]
    ]


def type_text(type_json: Any) -> str:
    """Return an Iceberg type as text: `long`, `list<string>`, `struct<a: int, b: date>`."""
    if not isinstance(type_json, Mapping):
        return str(type_json)
    match type_json["type"]:
        case "list":
            return f"list<{type_text(type_json['element'])}>"
        case "map":
            return f"map<{type_text(type_json['key'])}, {type_text(type_json['value'])}>"
        case _:
            fields = ", ".join(f"{field['name']}: {type_text(field['type'])}" for field in type_json["fields"])
            return f"struct<{fields}>"


def _column_names(type_json: Any, before: str = "") -> dict[int, str]:
    """Return the names of all fields of a type by their ids; nested ones as `a.b`."""
    if not isinstance(type_json, Mapping):
        return {}
    names: dict[int, str] = {}
    parts = [(field["id"], field["name"], field["type"]) for field in type_json.get("fields", ())]
    inner_keys = [key for key in ("element", "key", "value") if key in type_json]
    parts += [(type_json[f"{key}-id"], key, type_json[key]) for key in inner_keys]
    for field_id, name, inner in parts:
        names[field_id] = f"{before}{name}"
        names.update(_column_names(inner, f"{before}{name}."))
    return names


def _transform_text(field: Mapping[str, Any], names: Mapping[int, str]) -> str:
    source_ids = field.get("source-ids") or [field.get("source-id")]
    sources = ", ".join(names.get(source_id, f"field {source_id}") for source_id in source_ids)
    transform = field["transform"]
    return sources if transform == "identity" else f"{transform}({sources})"


def _find(items: Any, key: str, value: object) -> Mapping[str, Any] | None:
    return next((item for item in items if item[key] == value), None)


def _number(summary: Mapping[str, Any], key: str, snapshot: Mapping[str, Any]) -> int | None:
    """Return a total of the snapshot's summary; 0 for a table without a snapshot, None if the summary lacks it."""
    if not snapshot:
        return 0
    text = str(summary.get(key, ""))
    return int(text) if text.isascii() and text.isdigit() else None
