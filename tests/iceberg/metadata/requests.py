"""Random requests to tables: mostly sensible for the metadata that they meet, some wrong."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hypothesis import strategies as st

from tests.iceberg.metadata.random_schemas import Draw, Json, rare, schema_changes

TRANSFORMS = ["identity", "day", "month", "year", "hour", "bucket[4]", "truncate[2]", "void", "mystery"]
SIMPLE_TRANSFORMS = ["identity", "bucket[4]", "void", "mystery"]
TIMES = st.sampled_from([-50_000, -1, 0, 30_000, 100_000])
"""Away from now; up to a minute is not noticed."""


def column_ids(metadata: Json) -> list[int]:
    """The ids of the top columns of all schemas."""
    return sorted({field["id"] for schema in metadata["schemas"] for field in schema["fields"]})


def draw_source(draw: Draw, ids: list[int]) -> int:
    """The id of a column, sometimes of none."""
    return draw(st.sampled_from(ids) if ids and not rare(draw, 10) else st.integers(0, 30))


def draw_transform(draw: Draw) -> str:
    """A transform, mostly of those that take many types."""
    return draw(st.sampled_from(TRANSFORMS if rare(draw, 3) else SIMPLE_TRANSFORMS))


@st.composite
def specs(draw: Draw, ids: list[int], *, version: int, last_id: int = 999) -> Json:
    """A partition spec; clients of v2 and v3 number the fields themselves."""
    numbered = version > 1 or draw(st.booleans())
    fields = []
    for place in range(draw(st.integers(0, 3))):
        field: Json = {"source-id": draw_source(draw, ids), "transform": draw_transform(draw)}
        field["name"] = draw(st.sampled_from([f"p{place}", "p0", "a", "id", "x_day"]))
        if numbered:
            field["field-id"] = (1000 if version == 1 else draw(st.sampled_from([1000, last_id + 1]))) + place
        fields.append(field)
    return {"spec-id": draw(st.integers(0, 3)), "fields": fields}


@st.composite
def orders(draw: Draw, ids: list[int]) -> Json:
    """A sort order."""
    fields = [
        {
            "transform": draw_transform(draw),
            "source-id": draw_source(draw, ids),
            "direction": draw(st.sampled_from(["asc", "desc"])),
            "null-order": draw(st.sampled_from(["nulls-first", "nulls-last"])),
        }
        for _ in range(draw(st.integers(0, 2)))
    ]
    wrong = rare(draw, 10)
    return {"order-id": draw(st.integers(0, 3)) if wrong else int(bool(fields)), "fields": fields}


PROPERTIES = st.dictionaries(
    st.sampled_from(["owner", "comment", "größe", "write.format.default"]), st.sampled_from(["", "x", "parquet"])
)


NEW_TABLE_PROPERTIES = st.sampled_from([
    {"commit.retry.num-retries": "4"},
    {"commit.retry.num-retries": "-1"},
    {"commit.retry.total-timeout-ms": "soon"},
    {"write.metadata.metrics.column.a": "counts"},
    {"write.metadata.metrics.column.b.c": "none"},
    {"write.parquet.compression-codec": "snappy"},
    {"encryption.key-id": "k"},
    {"snapshot-count": "3", "uuid": "x"},
])  # fmt: skip


def snapshot_ids(metadata: Json) -> list[int]:
    """The ids of the table's snapshots."""
    return [snapshot["snapshot-id"] for snapshot in metadata["snapshots"]]


def draw_snapshot_id(draw: Draw, metadata: Json, fresh: list[int]) -> int:
    """The id of a snapshot that is there or was just added, sometimes of none."""
    known = [*snapshot_ids(metadata), *fresh]
    return draw(st.sampled_from(known) if known and not rare(draw, 10) else st.integers(1, 5))


def draw_snapshot(draw: Draw, metadata: Json, fresh: list[int], now_ms: int) -> Json:
    """A snapshot on top of the current one, or of those just added."""
    version = metadata["format-version"]
    snapshot_id = draw(st.integers(2**40, 2**62)) if not rare(draw, 10) else draw(st.integers(1, 5))
    snapshot: Json = {
        "snapshot-id": snapshot_id,
        "timestamp-ms": now_ms + (draw(TIMES) if rare(draw, 4) else len(fresh)),
        "manifest-list": f"s3://bucket/{snapshot_id}.avro",
        "summary": {"operation": draw(st.sampled_from(["append", "overwrite"])), "added-records": "1"},
        "schema-id": metadata["current-schema-id"],
    }
    current = metadata["current-snapshot-id"]
    if current not in (None, -1) or fresh:
        snapshot["parent-snapshot-id"] = fresh[-1] if fresh else current
    if version > 1 or rare(draw, 20):
        stale = 0 if not rare(draw, 8) else draw(st.integers(0, 2))
        snapshot["sequence-number"] = max(1, metadata.get("last-sequence-number", 0) + 1 + len(fresh) - stale)
    if version > 2 or rare(draw, 20):
        stale = 0 if not rare(draw, 8) else draw(st.integers(-2, 2))
        snapshot["first-row-id"] = max(0, metadata.get("next-row-id", 0) + 10 * len(fresh) - stale)
        snapshot["added-rows"] = 10
    fresh.append(snapshot_id)
    return snapshot


def draw_ref(draw: Draw, metadata: Json, fresh: list[int]) -> Json:
    """A move of a branch or tag."""
    name = draw(st.sampled_from(["main", "main", "dev", "v1"]))
    kind = "branch" if name != "v1" and not rare(draw, 20) else "tag"
    snapshot_id = fresh[-1] if fresh and not rare(draw, 4) else draw_snapshot_id(draw, metadata, fresh)
    update = {"action": "set-snapshot-ref", "ref-name": name, "type": kind, "snapshot-id": snapshot_id}
    if rare(draw, 4):
        chosen = draw(st.sampled_from(["min-snapshots-to-keep", "max-snapshot-age-ms", "max-ref-age-ms"]))
        update[chosen] = draw(st.integers(0, 3))
    return update


def draw_statistics(draw: Draw, metadata: Json, fresh: list[int]) -> Json:
    """A statistics file."""
    blob = {"type": "apache-datasketches-theta-v1", "snapshot-id": 1, "sequence-number": 2, "fields": [1],
            "properties": {"ndv": "3"}}  # fmt: skip
    return {
        "snapshot-id": draw_snapshot_id(draw, metadata, fresh),
        "statistics-path": draw(st.sampled_from(["s3://bucket/a.puffin", "s3://bucket/b.puffin"])),
        "file-size-in-bytes": 10,
        "file-footer-size-in-bytes": 5,
        "blob-metadata": [blob],
    }


def draw_partition_statistics(draw: Draw, metadata: Json, fresh: list[int]) -> Json:
    """A partition statistics file."""
    return {
        "snapshot-id": draw_snapshot_id(draw, metadata, fresh),
        "statistics-path": draw(st.sampled_from(["s3://bucket/a.parquet", "s3://bucket/b.parquet"])),
        "file-size-in-bytes": 10,
    }


def draw_key(draw: Draw) -> Json:
    """An encryption key."""
    key = {"key-id": draw(st.sampled_from(["k1", "k2"])), "encrypted-key-metadata": "AQID"}
    if draw(st.booleans()):
        key["encrypted-by-id"] = "k0"
    return key


def draw_id(draw: Draw, ids: list[int]) -> int:
    """One of some ids, mostly; sometimes the one that was added last, or none."""
    return draw(st.sampled_from([*ids, *ids, -1, 7]))


def draw_group(draw: Draw, metadata: Json, fresh: list[int], now_ms: int) -> list[Json]:
    """Updates that clients send together."""
    schema_ids = [schema["schema-id"] for schema in metadata["schemas"]]
    spec_ids = [spec["spec-id"] for spec in metadata["partition-specs"]]
    order_ids = [order["order-id"] for order in metadata["sort-orders"]]
    columns, version = column_ids(metadata), metadata["format-version"]
    kind = draw(st.integers(0, 17))
    if kind <= 2:
        add = {"action": "add-snapshot", "snapshot": draw_snapshot(draw, metadata, fresh, now_ms)}
        return [add, draw_ref(draw, metadata, fresh)] if not rare(draw, 5) else [add]
    if kind <= 4:
        add = {"action": "add-schema", "schema": draw(schema_changes(metadata))}
        chosen = -1 if not rare(draw, 5) else draw_id(draw, schema_ids)
        return [add, {"action": "set-current-schema", "schema-id": chosen}] if not rare(draw, 4) else [add]
    if kind == 5:
        spec = draw(specs(columns, version=version, last_id=metadata["last-partition-id"]))
        add = {"action": "add-spec", "spec": spec}
        chosen = -1 if not rare(draw, 5) else draw_id(draw, spec_ids)
        return [add, {"action": "set-default-spec", "spec-id": chosen}] if not rare(draw, 4) else [add]
    if kind == 6:
        add = {"action": "add-sort-order", "sort-order": draw(orders(columns))}
        chosen = -1 if not rare(draw, 5) else draw_id(draw, order_ids)
        return [add, {"action": "set-default-sort-order", "sort-order-id": chosen}]
    if kind == 7:
        return [{"action": "set-current-schema", "schema-id": draw_id(draw, schema_ids)}]
    if kind == 8:
        return [{"action": "set-default-spec", "spec-id": draw_id(draw, spec_ids)}]
    return [draw_single(draw, kind, metadata, fresh)]


def draw_single(draw: Draw, kind: int, metadata: Json, fresh: list[int]) -> Json:
    """An update that clients send alone."""
    if kind == 9:
        asked = [draw_snapshot_id(draw, metadata, fresh) for _ in range(draw(st.integers(0, 2)))]
        return {"action": "remove-snapshots", "snapshot-ids": asked}
    if kind == 10:
        return draw_ref(draw, metadata, fresh)
    if kind == 11:
        return {"action": "remove-snapshot-ref", "ref-name": draw(st.sampled_from(["main", "dev", "v1"]))}
    if kind == 12:
        return {"action": "set-properties", "updates": draw(PROPERTIES)}
    if kind == 13:
        names = st.lists(st.sampled_from(["owner", "comment", "other"]), max_size=2)
        return {"action": "remove-properties", "removals": draw(names)}
    if kind == 14:
        return draw(st.sampled_from([
            {"action": "set-location", "location": metadata["location"]},
            {"action": "set-location", "location": "s3://bucket/elsewhere//"},
            {"action": "assign-uuid", "uuid": metadata["table-uuid"]},
            {"action": "assign-uuid", "uuid": "0b3d2cf8-44bb-4c08-8c6c-2f1f6b1d7a30"},
            {"action": "upgrade-format-version", "format-version": metadata["format-version"]},
            {"action": "upgrade-format-version", "format-version": min(3, metadata["format-version"] + 1)},
            {"action": "upgrade-format-version", "format-version": 1},
        ]))  # fmt: skip
    return draw_file(draw, kind, metadata, fresh)


def draw_file(draw: Draw, kind: int, metadata: Json, fresh: list[int]) -> Json:
    """An update of statistics or encryption keys."""
    snapshot_id = draw_snapshot_id(draw, metadata, fresh)
    if kind == 15:
        return draw(st.sampled_from([
            {"action": "set-statistics", "snapshot-id": snapshot_id,
             "statistics": draw_statistics(draw, metadata, fresh)},
            {"action": "remove-statistics", "snapshot-id": snapshot_id},
        ]))  # fmt: skip
    if kind == 16:
        return draw(st.sampled_from([
            {"action": "set-partition-statistics",
             "partition-statistics": draw_partition_statistics(draw, metadata, fresh)},
            {"action": "remove-partition-statistics", "snapshot-id": snapshot_id},
        ]))  # fmt: skip
    return draw(st.sampled_from([
        {"action": "add-encryption-key", "encryption-key": draw_key(draw)},
        {"action": "remove-encryption-key", "key-id": draw(st.sampled_from(["k1", "k3"]))},
    ]))  # fmt: skip


@st.composite
def table_updates(draw: Draw, metadata: Json, now_ms: int) -> list[Json]:
    """The updates of a request; schemas and specs are removed at its end, as by clients."""
    fresh: list[int] = []
    updates = [one for _ in range(draw(st.integers(1, 3))) for one in draw_group(draw, metadata, fresh, now_ms)]
    if rare(draw, 10):
        name, fields = draw(st.sampled_from([
            ("schema-ids", ("remove-schemas", "schemas", "schema-id")),
            ("spec-ids", ("remove-partition-specs", "partition-specs", "spec-id")),
        ]))  # fmt: skip
        action, items, id_name = fields
        ids = [item[id_name] for item in metadata[items]]
        updates.append({"action": action, name: draw(st.lists(st.sampled_from([*ids, 9]), max_size=2))})
    return updates


@st.composite
def table_requirements(draw: Draw, metadata: Json) -> list[Json]:
    """The requirements of a request: most hold."""
    main = metadata["refs"].get("main", {}).get("snapshot-id")
    kept = [
        {"type": "assert-table-uuid", "uuid": metadata["table-uuid"].upper()},
        {"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": main},
        {"type": "assert-last-assigned-field-id", "last-assigned-field-id": metadata["last-column-id"]},
        {"type": "assert-current-schema-id", "current-schema-id": metadata["current-schema-id"]},
        {"type": "assert-last-assigned-partition-id", "last-assigned-partition-id": metadata["last-partition-id"]},
        {"type": "assert-default-spec-id", "default-spec-id": metadata["default-spec-id"]},
        {"type": "assert-default-sort-order-id", "default-sort-order-id": metadata["default-sort-order-id"]},
    ]
    broken = [
        {"type": "assert-create"},
        {"type": "assert-table-uuid", "uuid": "0b3d2cf8-44bb-4c08-8c6c-2f1f6b1d7a31"},
        {"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": 1},
        {"type": "assert-ref-snapshot-id", "ref": "dev", "snapshot-id": None},
        {"type": "assert-ref-snapshot-id", "ref": "v1", "snapshot-id": 2},
        {"type": "assert-last-assigned-field-id", "last-assigned-field-id": 1},
        {"type": "assert-current-schema-id", "current-schema-id": 1},
        {"type": "assert-last-assigned-partition-id", "last-assigned-partition-id": 1000},
        {"type": "assert-default-spec-id", "default-spec-id": 1},
        {"type": "assert-default-sort-order-id", "default-sort-order-id": 1},
        {"type": "assert-view-uuid", "uuid": "x"},
        {"type": "assert-nothing"},
    ]
    chosen = draw(st.lists(st.sampled_from(kept), max_size=2))
    return [*chosen, draw(st.sampled_from(broken))] if rare(draw, 10) else chosen


def create_updates(metadata: Mapping[str, Any]) -> list[Json]:
    """The updates that a client sends to create a table that was staged."""
    return [
        {"action": "assign-uuid", "uuid": metadata["table-uuid"]},
        {"action": "upgrade-format-version", "format-version": metadata["format-version"]},
        {"action": "add-schema", "schema": metadata["schemas"][0], "last-column-id": metadata["last-column-id"]},
        {"action": "set-current-schema", "schema-id": -1},
        {"action": "add-spec", "spec": metadata["partition-specs"][0]},
        {"action": "set-default-spec", "spec-id": -1},
        {"action": "add-sort-order", "sort-order": metadata["sort-orders"][0]},
        {"action": "set-default-sort-order", "sort-order-id": -1},
        {"action": "set-location", "location": metadata["location"]},
        {"action": "set-properties", "updates": metadata["properties"]},
    ]
