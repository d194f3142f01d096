"""Metadata as documents: nothing is lost, nothing is changed in place, and equal metadata has equal bytes."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from typing import Any

import pytest

from deltalakedb.exceptions import BadIcebergRequestError
from deltalakedb.iceberg.metadata.table_builder import apply_updates, render_metadata, with_previous_file
from deltalakedb.iceberg.metadata.table_metadata import new_table_metadata, parse_table_metadata
from deltalakedb.iceberg.metadata.view_metadata import (
    apply_view_updates,
    new_view_metadata,
    parse_view_metadata,
    render_view_metadata,
)
from tests.iceberg.metadata.samples import (
    ORDER,
    SCHEMA,
    SPEC,
    START_MS,
    UUID,
    VERSION,
    Json,
    add_snapshot,
    empty_table,
    partition_statistics_file,
    sample_table,
    sample_view,
    set_main,
    statistics_file,
)

ALL = pytest.mark.parametrize("version", [1, 2, 3])
NOW_MS = START_MS + 1_000_000


def marked(value: Any) -> Any:
    """The same JSON with an unknown field in each object, except in maps of strings and of refs."""
    if isinstance(value, list):
        return [marked(item) for item in value]
    if not isinstance(value, Mapping):
        return value
    return {"x-more": {"deep": [1, None]}} | {
        key: {name: marked(ref) for name, ref in item.items()}
        if key == "refs"
        else item
        if key in ("properties", "summary")
        else marked(item)
        for key, item in value.items()
    }


def count_marks(value: object) -> int:
    return json.dumps(value).count('"x-more"')


@ALL
def test_unknown_fields_survive_at_all_levels(version: int) -> None:
    before = marked(json.loads(render_metadata(sample_table(version))))
    table = parse_table_metadata(json.dumps(before))
    copies = sum(count_marks(before.get(name)) for name in ("schema", "partition-spec"))
    assert count_marks(table) == count_marks(before) - copies
    assert json.loads(render_metadata(table)) == before
    updates = [
        marked(add_snapshot(4, version)),
        set_main(4),
        {"action": "add-schema", "schema": marked({**SCHEMA, "fields": SCHEMA["fields"][:2]})},
        {"action": "add-spec", "spec": marked({**SPEC, "fields": []})},
        {"action": "add-sort-order", "sort-order": marked({**ORDER, "fields": [{**ORDER["fields"][0],
                                                           "null-order": "nulls-last"}]})},
        {"action": "set-statistics", "statistics": marked(statistics_file(3))},
        {"action": "set-partition-statistics", "partition-statistics": marked(partition_statistics_file(3))},
        {"action": "add-encryption-key",
         "encryption-key": marked({"key-id": "k2", "encrypted-key-metadata": "AQID"})},
    ]  # fmt: skip
    after = apply_updates(table, updates, now_ms=NOW_MS)
    added = sum(count_marks(update) for update in updates) - 1  # the first update has one mark beside its snapshot's
    assert count_marks(after) == count_marks(table) + added
    assert parse_table_metadata(render_metadata(after)) == after


def test_unknown_fields_of_a_view_survive() -> None:
    before = marked(json.loads(render_view_metadata(sample_view())))
    view = parse_view_metadata(json.dumps(before))
    assert view == before
    version = marked({**VERSION, "version-id": 2, "summary": {}})
    updates = [
        {"action": "add-view-version", "view-version": version},
        {"action": "set-current-view-version", "view-version-id": -1},
    ]
    after = apply_view_updates(view, updates, now_ms=NOW_MS)
    assert after["versions"] == [*view["versions"], version]
    assert after["x-more"] == view["x-more"]


@ALL
def test_the_base_and_the_updates_are_not_changed(version: int) -> None:
    base, updates = copy.deepcopy(dict(sample_table(version))), [
        add_snapshot(4, version),
        set_main(4),
        {"action": "set-snapshot-ref", "ref-name": "first", "type": "branch", "snapshot-id": 20},
        {"action": "remove-snapshots", "snapshot-ids": [10, 20]},
        {"action": "upgrade-format-version", "format-version": 3},
        {"action": "set-properties", "updates": {"a": "b"}},
        {"action": "remove-encryption-key", "key-id": "k1"},
    ]  # fmt: skip
    before = copy.deepcopy((base, updates))
    changed = apply_updates(base, updates, now_ms=NOW_MS)
    with_previous_file(changed, previous_location="s3://m", previous_updated_ms=START_MS)
    render_metadata(changed)
    assert (base, updates) == before


@ALL
def test_nothing_changes_without_updates(version: int) -> None:
    assert apply_updates(sample_table(version), [], now_ms=NOW_MS) == sample_table(version)
    same = {"action": "set-location", "location": sample_table(version)["location"]}
    assert apply_updates(sample_table(version), [same], now_ms=NOW_MS) == sample_table(version)


@ALL
def test_equal_metadata_has_equal_bytes(version: int) -> None:
    def backwards(value: Any) -> Any:
        if isinstance(value, list):
            return [backwards(item) for item in value]
        return {key: backwards(value[key]) for key in reversed(value)} if isinstance(value, Mapping) else value

    table = sample_table(version)
    assert render_metadata(backwards(table)) == render_metadata(table)
    assert render_view_metadata(backwards(sample_view())) == render_view_metadata(sample_view())


def test_integers_are_exact() -> None:
    snapshot_id = 2**63 - 25
    update = add_snapshot(1, 2, **{"snapshot-id": snapshot_id})
    main = {"action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "snapshot-id": snapshot_id}
    table = apply_updates(empty_table(2), [update, main], now_ms=NOW_MS)
    assert parse_table_metadata(render_metadata(table))["current-snapshot-id"] == snapshot_id


def test_files_of_v1_have_the_fields_that_old_readers_know() -> None:
    written = json.loads(render_metadata(sample_table(1)))
    assert written["schema"] == written["schemas"][0]
    assert written["partition-spec"] == written["partition-specs"][0]["fields"]
    assert not {"schema", "partition-spec"} & json.loads(render_metadata(sample_table(2))).keys()


def test_the_oldest_files_are_brought_up_to_date() -> None:
    oldest = {
        "format-version": 1,
        "location": "s3://bucket/table/",
        "last-updated-ms": START_MS,
        "last-column-id": 2,
        "schema": {"type": "struct", "fields": SCHEMA["fields"][:2]},
        "partition-spec": [{"source-id": 2, "transform": "day", "name": "ts_day"}],
        "current-snapshot-id": 10,
        "snapshots": [
            {"snapshot-id": 10, "timestamp-ms": START_MS, "manifests": ["s3://bucket/table/metadata/m.avro"]}
        ],
    }
    table = parse_table_metadata(json.dumps(oldest))
    assert table["schemas"] == [{**oldest["schema"], "schema-id": 0}]  # type: ignore[dict-item]
    assert table["partition-specs"][0]["fields"][0]["field-id"] == table["last-partition-id"] == 1000
    assert table["sort-orders"] == [{"order-id": 0, "fields": []}]
    assert table["refs"] == {"main": {"snapshot-id": 10, "type": "branch"}}
    updates: list[Json] = [
        {"action": "assign-uuid", "uuid": UUID},
        {"action": "upgrade-format-version", "format-version": 2},
    ]
    upgraded = apply_updates(table, updates, now_ms=NOW_MS)
    assert (upgraded["last-sequence-number"], upgraded["table-uuid"]) == (0, UUID)


def test_a_table_of_v2_without_snapshots_may_say_so_by_null_or_nothing() -> None:
    written = json.loads(render_metadata(empty_table(2)))
    for absent in ({**written, "current-snapshot-id": None}, {key: value for key, value in written.items()
                                                               if key != "current-snapshot-id"}):  # fmt: skip
        assert parse_table_metadata(json.dumps(absent)) == empty_table(2)


BROKEN: dict[str, Json] = {
    "an unknown version": {"format-version": 4},
    "a version that is a text": {"format-version": "2"},
    "no location": {"location": None},
    "no last column": {"last-column-id": None},
    "no schemas": {"schemas": None},
    "schemas that are none": {"schemas": [1]},
    "two schemas with one id": {"schemas": [SCHEMA, SCHEMA]},
    "no current schema": {"current-schema-id": 9},
    "no default spec": {"default-spec-id": 9},
    "no default order": {"default-sort-order-id": 9},
    "a field without an id": {
        "partition-specs": [{"spec-id": 0, "fields": [{"source-id": 1, "transform": "void", "name": "x"}]}]
    },
    "a ref to nothing": {"refs": {"main": {"snapshot-id": 7, "type": "branch"}}, "current-snapshot-id": 7},
    "another snapshot on main": {"current-snapshot-id": 10},
    "a main without a current snapshot": {"current-snapshot-id": -1},
    "refs that are a list": {"refs": []},
    "a number beyond the last": {"last-sequence-number": 1},
    "no last number": {"last-sequence-number": None},
    "properties that are numbers": {"properties": {"a": 1}},
    "a log without times": {"snapshot-log": [{"snapshot-id": 10}]},
    "a log back in time": {"snapshot-log": [{"snapshot-id": 10, "timestamp-ms": NOW_MS},
                                            {"snapshot-id": 20, "timestamp-ms": START_MS}]},
    "an update before the log": {"last-updated-ms": START_MS - 100_000},
    "statistics without a path": {"statistics": [{"snapshot-id": 10}]},
}  # fmt: skip


@pytest.mark.parametrize("changes", [pytest.param(changes, id=name) for name, changes in BROKEN.items()])
def test_broken_files_are_refused(changes: Json) -> None:
    broken = {**json.loads(render_metadata(sample_table(2))), **changes}
    with pytest.raises(BadIcebergRequestError):
        parse_table_metadata(json.dumps(broken))


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "null", "{}", b"\xff", '{"format-version": NaN}', '{"a": ' * 5000, "[" * 100_000,
     '{"x": "\\ud800"}', '{"format-version": 99999999999999999999}', '{"x": ' + "9" * 5000 + "}"],
    ids=range(12),
)  # fmt: skip
def test_files_that_are_no_metadata_are_refused(text: str | bytes) -> None:
    for parse in (parse_table_metadata, parse_view_metadata):
        with pytest.raises(BadIcebergRequestError):
            parse(text)


@pytest.mark.parametrize(
    "changes",
    [
        {"format-version": 2},
        {"view-uuid": None},
        {"location": None},
        {"current-version-id": 9},
        {"versions": [{**VERSION, "schema-id": 9}]},
        {"versions": [VERSION, VERSION]},
        {"schemas": []},
        {"version-log": [{"version-id": 1}]},
    ],
)
def test_broken_files_of_views_are_refused(changes: Json) -> None:
    with pytest.raises(BadIcebergRequestError):
        parse_view_metadata(json.dumps({**sample_view(), **changes}))


def test_files_that_fall_out_of_the_log_are_deleted_if_the_table_asks_for_it() -> None:
    properties = {"write.metadata.previous-versions-max": "2", "write.metadata.delete-after-commit.enabled": "true"}
    table: Any = {**sample_table(2), "properties": properties}
    for number in range(5):
        table, deleted = with_previous_file(table, previous_location=f"m{number}", previous_updated_ms=START_MS)
        assert deleted == ([] if number < 2 else [f"m{number - 2}"])
    assert [entry["metadata-file"] for entry in table["metadata-log"]] == ["m3", "m4"]
    table["properties"] = {"write.metadata.previous-versions-max": "1"}
    table, deleted = with_previous_file(table, previous_location="m5", previous_updated_ms=START_MS)
    assert ([entry["metadata-file"] for entry in table["metadata-log"]], deleted) == (["m5"], [])


def test_a_log_of_files_is_not_trimmed_by_nonsense() -> None:
    table = {**sample_table(2), "properties": {"write.metadata.previous-versions-max": "many"}}
    with pytest.raises(BadIcebergRequestError, match="must have integer value"):
        with_previous_file(table, previous_location="m", previous_updated_ms=START_MS)
    with pytest.raises(BadIcebergRequestError, match="before the latest metadata log entry"):
        with_previous_file(sample_table(2), previous_location="m", previous_updated_ms=START_MS + 10_000_000)


@pytest.mark.parametrize(
    "changes",
    [
        {"schema": None},
        {"schema": []},
        {"partition_spec": {"fields": [{"source-id": 99, "transform": "identity", "name": "x"}]}},
        {"partition_spec": {"fields": [{"source-id": 99, "transform": "void", "name": "x"}]}},
        {"write_order": {"fields": []}},
        {"properties": {"format-version": "4"}},
        {"properties": {"format-version": "new"}},
        {"properties": {"a": 1}},
        {"properties": {"a": "\ud800"}},
        {"location": ""},
    ],
)
def test_a_table_is_not_created_from_nonsense(changes: Json) -> None:
    asked: Json = {"schema": SCHEMA, "location": "s3://bucket/table", "table_uuid": UUID, "now_ms": START_MS}
    assert new_table_metadata(**asked)["format-version"] == 2
    with pytest.raises(BadIcebergRequestError):
        new_table_metadata(**{**asked, **changes})


def test_a_view_is_not_created_from_nonsense() -> None:
    for request in ({}, {"schema": SCHEMA}, {"view-version": VERSION}, {"schema": SCHEMA, "view-version": []}):
        with pytest.raises(BadIcebergRequestError):
            new_view_metadata(request=request, location="s3://bucket/view", view_uuid=UUID, now_ms=START_MS)
