"""Makes the Iceberg metadata of a Delta table from its history."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from deltalakedb.iceberg.delta.delta_schema import iceberg_schema, iceberg_spec
from deltalakedb.iceberg.delta.delta_snapshots import FOLDER, sequence_number, snapshots_of
from deltalakedb.iceberg.delta.field_ids import Path, name_mapping
from deltalakedb.log.protocol.actions import Metadata
from deltalakedb.log.schema.types import PrimitiveType, leaf_columns, parse_schema
from deltalakedb.store.iceberg_delta import NEWEST_FORMAT, SnapshotRow, TableHistory
from deltalakedb.store.registry import OpenTable

MAX_TAGS: Final = 1_000
_NO_PARTITION_ID: Final = 999
_LOOSE: Final = frozenset({"timestamp", "timestamp_ntz", "float"})
"""Types whose statistics are cut to milliseconds, or rounded."""


def delta_metadata(
    opened: OpenTable, history: TableHistory, ids: Mapping[Path, int], *, location: str, format_version: int
) -> dict[str, Any]:
    """The metadata of a table at its head; `location` as Iceberg clients read it."""
    schemas = _Schemas()
    specs: dict[int, dict[str, Any]] = {}
    schema_ids: dict[int, int] = {}
    spec_ids: dict[int, int] = {}
    numbers: dict[int, tuple[int, int]] = {}
    for row, (version, metadata) in in_force(history):
        if version not in numbers:
            schema = iceberg_schema(parse_schema(metadata.schema_string), ids, 0)
            spec = iceberg_spec(metadata, ids)
            specs.setdefault(spec["spec-id"], spec)
            numbers[version] = schemas.number(schema, version), spec["spec-id"]
        schema_ids[row.version], spec_ids[row.version] = numbers[version]
    head = opened.head
    has_row_ids = format_version >= NEWEST_FORMAT and bool(history.row_id_marks)
    snapshots = snapshots_of(
        history.snapshots,
        table_uuid=opened.table.table_uuid,
        location=location,
        schema_ids=schema_ids,
        head=head,
        row_id_marks=history.row_id_marks if has_row_ids else None,
    )
    current = snapshots[-1]
    partition_ids = [item["field-id"] for spec in specs.values() for item in spec["fields"]]
    return {
        "format-version": format_version,
        "table-uuid": opened.table.table_uuid,
        "location": location,
        "last-sequence-number": sequence_number(head.current_version),
        **({"next-row-id": max(history.row_id_marks.values(), default=-1) + 1} if format_version > 2 else {}),
        "last-updated-ms": current["timestamp-ms"],
        "last-column-id": max(ids.values(), default=0),
        "current-schema-id": schema_ids[head.current_version],
        "schemas": schemas.items,
        "default-spec-id": spec_ids[head.current_version],
        "partition-specs": list(specs.values()),
        "last-partition-id": max(partition_ids, default=_NO_PARTITION_ID),
        "default-sort-order-id": 0,
        "sort-orders": [{"order-id": 0, "fields": []}],
        "properties": _properties(opened.metadata, ids, location),
        "current-snapshot-id": current["snapshot-id"],
        "refs": {"main": {"snapshot-id": current["snapshot-id"], "type": "branch"}} | _tags(history, snapshots),
        "snapshots": snapshots,
        "snapshot-log": [
            {"timestamp-ms": item["timestamp-ms"], "snapshot-id": item["snapshot-id"]} for item in snapshots
        ],
        "metadata-log": [],
        "statistics": [],
        "partition-statistics": [],
    }


def _tags(history: TableHistory, snapshots: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """A tag for each of the newest versions: people know versions by their numbers."""
    pairs = list(zip(history.snapshots, snapshots, strict=True))[-MAX_TAGS:]
    return {f"v{row.version}": {"snapshot-id": item["snapshot-id"], "type": "tag"} for row, item in pairs}


class _Schemas:
    """Schemas, each once, under the number of the version that first had it."""

    def __init__(self) -> None:
        self.items: list[dict[str, Any]] = []
        self._numbers: dict[str, int] = {}

    def number(self, schema: Mapping[str, Any], version: int) -> int:
        text = repr(schema)
        if text not in self._numbers:
            self._numbers[text] = version
            self.items.append({**schema, "schema-id": version})
        return self._numbers[text]


def in_force(history: TableHistory) -> Sequence[tuple[SnapshotRow, tuple[int, Metadata]]]:
    """Each kept version with the metadata that it has, and the version that set it."""
    pairs = []
    place = 0
    for row in history.snapshots:
        while place + 1 < len(history.metadata) and history.metadata[place + 1][0] <= row.version:
            place += 1
        pairs.append((row, history.metadata[place]))
    return pairs


def _properties(metadata: Metadata, ids: Mapping[Path, int], location: str) -> dict[str, str]:
    """Properties of the table; clients put their files where Delta expects them, and where VACUUM spares them."""
    named = {"comment": metadata.description} if metadata.description else {}
    return (
        named
        | {
            "schema.name-mapping.default": name_mapping(ids, metadata.configuration),
            "write.data.path": location,
            "write.metadata.path": f"{location}/{FOLDER}",
            "write.format.default": "parquet",
            "write.parquet.compression-codec": "zstd",
            "commit.manifest-merge.enabled": "false",
        }
        | {f"write.metadata.metrics.column.{name}": "counts" for name in _columns_with_loose_bounds(metadata)}
    )


def _columns_with_loose_bounds(metadata: Metadata) -> Iterator[str]:
    """Columns whose bounds may lie beyond their values: with this mode Spark takes no minimum or maximum from them."""
    for leaf in leaf_columns(parse_schema(metadata.schema_string)):
        if isinstance(leaf.type, PrimitiveType) and leaf.type.name in _LOOSE:
            yield ".".join(leaf.path)
