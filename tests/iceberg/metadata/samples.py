"""Tables and a view that tests start from: one table of each format version, with snapshots, refs and statistics."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from deltalakedb.iceberg.metadata.table_builder import apply_updates
from deltalakedb.iceberg.metadata.table_metadata import new_table_metadata
from deltalakedb.iceberg.metadata.view_metadata import new_view_metadata

Json = dict[str, Any]

UUID = "3d2b2ec5-6f4e-4c39-9c43-8c6a5d1f3b10"
START_MS = 1_700_000_000_000
SCHEMA: Json = {
    "type": "struct",
    "schema-id": 0,
    "identifier-field-ids": [1],
    "fields": [
        {"id": 1, "name": "id", "required": True, "type": "long"},
        {"id": 2, "name": "ts", "required": False, "type": "timestamp"},
        {"id": 3, "name": "tags", "required": False, "type": {
            "type": "list", "element-id": 4, "element": "string", "element-required": False}},
        {"id": 5, "name": "place", "required": False, "type": {"type": "struct", "fields": [
            {"id": 6, "name": "city", "required": False, "type": "string"}]}},
        {"id": 7, "name": "prices", "required": False, "type": {
            "type": "map", "key-id": 8, "key": "string", "value-id": 9, "value": "double", "value-required": False}},
    ],
}  # fmt: skip
SPEC: Json = {"spec-id": 0, "fields": [{"source-id": 2, "transform": "day", "name": "ts_day", "field-id": 1000}]}
ORDER: Json = {
    "order-id": 1,
    "fields": [{"source-id": 1, "transform": "identity", "direction": "asc", "null-order": "nulls-first"}],
}


def snapshot(number: int, version: int, **changes: object) -> Json:
    """The number-th snapshot of a table, whose id is 10 times its number."""
    made: Json = {
        "snapshot-id": 10 * number,
        "timestamp-ms": START_MS + number * 1000,
        "manifest-list": f"s3://bucket/table/metadata/{number}.avro",
        "summary": {"operation": "append", "added-records": "5"},
        "schema-id": 0,
    }
    if number > 1:
        made["parent-snapshot-id"] = 10 * (number - 1)
    if version > 1:
        made["sequence-number"] = number
    if version > 2:
        made |= {"first-row-id": 5 * (number - 1), "added-rows": 5}
    made |= changes
    return {key: value for key, value in made.items() if value != "absent"}


def add_snapshot(number: int, version: int, **changes: object) -> Json:
    """The update that adds the number-th snapshot."""
    return {"action": "add-snapshot", "snapshot": snapshot(number, version, **changes)}


def set_main(number: int) -> Json:
    """The update that makes the number-th snapshot the current one."""
    return {"action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "snapshot-id": 10 * number}


def statistics_file(number: int) -> Json:
    """The statistics file of the number-th snapshot."""
    blob = {"type": "apache-datasketches-theta-v1", "snapshot-id": 10 * number, "sequence-number": number,
            "fields": [1], "properties": {"ndv": "5"}}  # fmt: skip
    return {**partition_statistics_file(number), "file-footer-size-in-bytes": 40, "blob-metadata": [blob]}


def partition_statistics_file(number: int) -> Json:
    """The partition statistics file of the number-th snapshot."""
    path = f"s3://bucket/table/metadata/{number}.stats"
    return {"snapshot-id": 10 * number, "statistics-path": path, "file-size-in-bytes": 100}


@cache
def empty_table(version: int) -> Mapping[str, Any]:
    """A table without snapshots."""
    return new_table_metadata(
        schema=SCHEMA,
        partition_spec=SPEC,
        write_order=ORDER,
        properties={"format-version": str(version), "owner": "x"},
        location="s3://bucket/table",
        table_uuid=UUID,
        now_ms=START_MS,
    )


@cache
def sample_table(version: int) -> Mapping[str, Any]:
    """A table with three snapshots, a tag, statistics, and a second schema, spec and sort order."""
    wider = {**SCHEMA, "fields": [*SCHEMA["fields"], {"id": 10, "name": "note", "required": False, "type": "string"}]}
    spec = {**SPEC, "fields": [*SPEC["fields"], {"source-id": 1, "transform": "bucket[4]", "name": "id_bucket",
                                                 "field-id": 1001}]}  # fmt: skip
    order = {**ORDER, "fields": [{**ORDER["fields"][0], "direction": "desc"}]}
    updates = [
        *(one for number in (1, 2, 3) for one in (add_snapshot(number, version), set_main(number))),
        {"action": "set-snapshot-ref", "ref-name": "first", "type": "tag", "snapshot-id": 10},
        {"action": "set-snapshot-ref", "ref-name": "dev", "type": "branch", "snapshot-id": 20,
         "min-snapshots-to-keep": 2},
        {"action": "set-statistics", "statistics": statistics_file(2)},
        {"action": "set-partition-statistics", "partition-statistics": partition_statistics_file(2)},
        {"action": "add-schema", "schema": fresh_ids(wider)},
        {"action": "add-spec", "spec": spec},
        {"action": "add-sort-order", "sort-order": order},
        {"action": "add-encryption-key", "encryption-key": {"key-id": "k1", "encrypted-key-metadata": "AQID"}},
    ]  # fmt: skip
    metadata: Mapping[str, Any] = empty_table(version)
    for number, update in enumerate(updates):
        metadata = apply_updates(metadata, [update], now_ms=START_MS + 10_000 + number)
    return metadata


def fresh_ids(schema: Json) -> Json:
    """A schema of the sample with the ids that the table has given to its columns."""
    return {**schema, "fields": [*empty_table(2)["schemas"][0]["fields"], *schema["fields"][5:]]}


SQL: Json = {"type": "sql", "sql": "select 1", "dialect": "spark"}
VERSION: Json = {
    "version-id": 1,
    "timestamp-ms": START_MS,
    "schema-id": 0,
    "summary": {"engine-name": "x"},
    "default-namespace": ["a"],
    "representations": [SQL],
}


@cache
def sample_view() -> Mapping[str, Any]:
    """A view with one version."""
    return new_view_metadata(
        request={"name": "v", "schema": SCHEMA, "view-version": VERSION, "properties": {"owner": "x"}},
        location="s3://bucket/view",
        view_uuid=UUID,
        now_ms=START_MS,
    )
