"""Random requests to views."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from tests.iceberg.metadata.random_schemas import Draw, Json, rare
from tests.iceberg.metadata.requests import PROPERTIES, draw_id

SCHEMAS: list[Json] = [
    {"type": "struct", "schema-id": 0, "fields": [{"id": 1, "name": "a", "required": True, "type": "int"}]},
    {"type": "struct", "schema-id": 0, "fields": [{"id": 1, "name": "a", "required": False, "type": "int"}]},
    {"type": "struct", "schema-id": 1, "fields": [{"id": 3, "name": "b", "required": False, "type": "variant"}]},
    {"type": "struct", "schema-id": 1, "identifier-field-ids": [1],
     "fields": [{"id": 1, "name": "a", "required": True, "type": "int"}]},
]  # fmt: skip
_VIEW_PROPERTIES = st.sampled_from([
    {"replace.drop-dialect.allowed": "TRUE"},
    {"replace.drop-dialect.allowed": "no"},
    {"version.history.num-entries": "1"},
    {"version.history.num-entries": "2"},
    {"version.history.num-entries": "0"},
    {"version.history.num-entries": "many"},
])  # fmt: skip


@st.composite
def versions(draw: Draw, schema_ids: list[int]) -> Json:
    """A version of a view."""
    dialects = draw(st.lists(st.sampled_from(["spark", "Spark", "trino", "duckdb"]), max_size=2))
    version: Json = {
        "version-id": draw(st.integers(1, 4)),
        "timestamp-ms": draw(st.integers(1, 2**41)),
        "schema-id": -1 if not rare(draw, 4) else draw_id(draw, schema_ids),
        "summary": draw(st.sampled_from([{}, {"engine-name": "x"}])),
        "default-namespace": draw(st.sampled_from([[], ["a"], ["a", "b.c"]])),
        "representations": [
            {"type": "sql", "dialect": dialect, "sql": draw(st.sampled_from(["select 1", "select 2"]))}
            for dialect in dialects or ["spark"]
        ],
    }
    if rare(draw, 3):
        version["default-catalog"] = "c"
    return version


def draw_view_group(draw: Draw, metadata: dict[str, Any]) -> list[Json]:
    """Updates that clients send together."""
    version_ids = [version["version-id"] for version in metadata["versions"]]
    kind = draw(st.integers(0, 7))
    if kind <= 2:
        return [
            {"action": "add-view-version", "view-version": draw(versions([one["schema-id"] for one in
                                                                           metadata["schemas"]]))},
            {"action": "set-current-view-version", "view-version-id": -1 if not rare(draw, 5) else
                                                                     draw_id(draw, version_ids)},
        ]  # fmt: skip
    if kind == 3:
        return [{"action": "set-current-view-version", "view-version-id": draw_id(draw, version_ids)}]
    if kind == 4:
        return [{"action": "set-properties", "updates": draw(_VIEW_PROPERTIES | PROPERTIES)}]
    if kind == 5:
        names = st.lists(st.sampled_from(["owner", "version.history.num-entries", "other"]), max_size=2)
        return [{"action": "remove-properties", "removals": draw(names)}]
    if kind == 6:
        # An old version that is written again, as it is.
        again = draw(st.sampled_from(metadata["versions"]))
        return [{"action": "add-view-version", "view-version": again},
                {"action": "set-current-view-version", "view-version-id": -1}]  # fmt: skip
    return [draw(st.sampled_from([
        {"action": "set-location", "location": "s3://bucket/elsewhere/"},
        {"action": "assign-uuid", "uuid": metadata["view-uuid"]},
        {"action": "assign-uuid", "uuid": "0b3d2cf8-44bb-4c08-8c6c-2f1f6b1d7a30"},
        {"action": "upgrade-format-version", "format-version": draw(st.integers(0, 2))},
        {"action": "set-current-schema", "schema-id": 0},
    ]))]  # fmt: skip


@st.composite
def view_updates(draw: Draw, metadata: dict[str, Any]) -> list[Json]:
    """The updates of a request; one schema at most is added, at its beginning."""
    updates = [{"action": "add-schema", "schema": draw(st.sampled_from(SCHEMAS))}] if draw(st.booleans()) else []
    return [*updates, *(one for _ in range(draw(st.integers(1, 3))) for one in draw_view_group(draw, metadata))]


@st.composite
def view_requirements(draw: Draw, metadata: dict[str, Any]) -> list[Json]:
    """The requirements of a request: most hold."""
    wrong: list[Json] = [{"type": "assert-view-uuid", "uuid": "x"}, {"type": "assert-create"}]
    if rare(draw, 10):
        return [draw(st.sampled_from(wrong))]
    return [{"type": "assert-view-uuid", "uuid": metadata["view-uuid"]}] if draw(st.booleans()) else []
