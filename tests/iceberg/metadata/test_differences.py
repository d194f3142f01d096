"""Where the metadata differs from Iceberg's own Java on purpose: each test says why, and what Java does."""

from __future__ import annotations

import json
from typing import Any

import pytest

from deltalakedb.exceptions import BadIcebergRequestError, CommitFailedError
from deltalakedb.iceberg.metadata.requirements import check_requirements
from deltalakedb.iceberg.metadata.table_builder import apply_updates, render_metadata
from deltalakedb.iceberg.metadata.view_metadata import apply_view_updates, render_view_metadata
from tests.iceberg.metadata.judge import Judge, Verdict
from tests.iceberg.metadata.samples import (
    SCHEMA,
    SQL,
    START_MS,
    VERSION,
    Json,
    add_snapshot,
    empty_table,
    sample_table,
    sample_view,
    snapshot,
)

pytestmark = pytest.mark.spark

NOW_MS = START_MS + 1_000_000


def java(judge: Judge, base: Any, *updates: Json) -> Verdict:
    return judge.table(None if base is None else _json(render_metadata(base)), updates)


def _json(text: bytes) -> Any:
    return json.loads(text)


def ours(base: Any, *updates: Json) -> dict[str, Any]:
    return apply_updates(base, updates, now_ms=NOW_MS)


def test_what_the_table_has_already_counts_as_added_last(judge: Judge) -> None:
    """The client adds what somebody else was faster to add, and means it by -1; Java refuses the -1."""
    table = sample_table(2)
    for add, use, chosen, expected in (
        ({"action": "add-schema", "schema": table["schemas"][1]}, "set-current-schema", "schema-id", 1),
        ({"action": "add-spec", "spec": table["partition-specs"][1]}, "set-default-spec", "spec-id", 1),
        ({"action": "add-sort-order", "sort-order": table["sort-orders"][1]}, "set-default-sort-order",
         "sort-order-id", 2),
    ):  # fmt: skip
        updates = [add, {"action": use, chosen: -1}]
        assert java(judge, table, *updates).message.startswith("Cannot set last added")
        names = {"schema-id": "current-schema-id", "spec-id": "default-spec-id"}
        assert ours(table, *updates)[names.get(chosen, "default-sort-order-id")] == expected


def test_a_schema_that_the_view_has_counts_as_added_last(judge: Judge) -> None:
    """Java takes the schema that was added before it, or none."""
    view = sample_view()
    other = {"type": "struct", "fields": [{"id": 1, "name": "a", "required": False, "type": "int"}]}
    updates: list[Json] = [
        {"action": "add-schema", "schema": other},
        {"action": "add-schema", "schema": SCHEMA},
        {"action": "add-view-version", "view-version": {**VERSION, "schema-id": -1, "summary": {}}},
        {"action": "set-current-view-version", "view-version-id": -1},
    ]
    assert judge.view(_json(render_view_metadata(view)), updates).result["versions"][1]["schema-id"] == 1
    assert apply_view_updates(view, updates, now_ms=NOW_MS)["versions"][1]["schema-id"] == 0


def test_a_stale_number_is_a_conflict_also_without_a_parent(judge: Judge) -> None:
    """The client may try again. Java refuses the snapshot for good, or lets the last sequence number go down."""
    stale = add_snapshot(4, 2, **{"parent-snapshot-id": "absent", "sequence-number": 2})
    assert java(judge, sample_table(2), stale).error == "ValidationException"
    expired = ours(sample_table(2), {"action": "remove-snapshots", "snapshot-ids": [10, 20, 30]})
    assert java(judge, expired, stale).result["last-sequence-number"] == 2
    for table in (sample_table(2), expired):
        with pytest.raises(CommitFailedError, match="older than last sequence number 3"):
            ours(table, stale)


def test_more_snapshots_than_there_are_may_be_removed(judge: Judge) -> None:
    """Java makes a list of a negative length."""
    update = {"action": "remove-snapshots", "snapshot-ids": [1, 2, 3]}
    assert "cannot be negative" in java(judge, empty_table(2), update).message
    assert ours(empty_table(2), update) == empty_table(2)


def test_unnumbered_partition_fields_get_ids_that_no_other_field_has(judge: Judge) -> None:
    """Java numbers them from 1000 again, and one id stands for two fields."""
    spec = {"spec-id": 0, "fields": [{"source-id": 1, "transform": "identity", "name": "id"},
                                     {"source-id": 2, "transform": "day", "name": "the_day"}]}  # fmt: skip
    update = {"action": "add-spec", "spec": spec}
    theirs = java(judge, sample_table(2), update).result["partition-specs"][2]["fields"]
    assert [field["field-id"] for field in theirs] == [1000, 1001]
    added = ours(sample_table(2), update)
    assert [field["field-id"] for field in added["partition-specs"][2]["fields"]] == [1002, 1000]
    assert added["last-partition-id"] == 1002


def test_one_id_for_two_partition_fields_is_refused(judge: Judge) -> None:
    """No reader can tell the fields apart."""
    fields = [{"source-id": 1, "transform": "identity", "name": name, "field-id": 1005} for name in ("id", "other")]
    update = {"action": "add-spec", "spec": {"spec-id": 0, "fields": fields}}
    assert java(judge, sample_table(2), update).error == ""
    with pytest.raises(BadIcebergRequestError, match="same 'field-id'"):
        ours(sample_table(2), update)


def test_optional_fields_may_be_missing_or_null(judge: Judge) -> None:
    """The REST protocol does not require a spec's id, and other libraries write null for what is absent."""
    column = {"id": 11, "name": "x", "required": False, "type": "int", "initial-default": None}
    for update in (
        {"action": "add-spec", "spec": {"fields": []}},
        {"action": "add-snapshot", "snapshot": {**snapshot(4, 3), "parent-snapshot-id": None}},
        {"action": "add-schema", "schema": {"type": "struct", "fields": [column]}},
    ):
        assert java(judge, sample_table(3), update).error != ""
        assert ours(sample_table(3), update) != sample_table(3)


def test_format_version_4_is_refused(judge: Judge) -> None:
    """It is a draft."""
    update = {"action": "upgrade-format-version", "format-version": 4}
    assert java(judge, sample_table(3), update).result["format-version"] == 4
    with pytest.raises(BadIcebergRequestError, match="unsupported format version: v4"):
        ours(sample_table(3), update)


def test_a_schema_may_be_added_after_another_was_removed(judge: Judge) -> None:
    """Java gives it the id of the removed one, and forgets to add it."""
    column = {"id": 11, "name": "x", "required": False, "type": "int"}
    updates: list[Json] = [
        {"action": "remove-schemas", "schema-ids": [1]},
        {"action": "add-schema", "schema": {"type": "struct", "fields": [*SCHEMA["fields"][:2], column]}},
    ]
    base = {**sample_table(2), "last-column-id": 11}
    assert [schema["schema-id"] for schema in java(judge, base, *updates).result["schemas"]] == [0]
    assert [schema["schema-id"] for schema in ours(base, *updates)["schemas"]] == [0, 1]


def test_a_table_without_a_log_of_snapshots_loses_snapshots(judge: Judge) -> None:
    """The log is optional; Java looks for its last entry."""
    base = {**sample_table(2), "snapshot-log": []}
    update = {"action": "remove-snapshots", "snapshot-ids": [10]}
    assert java(judge, base, update).error == "NoSuchElementException"
    assert len(ours(base, update)["snapshots"]) == 2


def test_row_lineage_is_enabled_by_old_clients(judge: Judge) -> None:
    """Java has dropped the update, which v3 makes superfluous."""
    update = {"action": "enable-row-lineage"}
    assert java(judge, sample_table(3), update).error == "UnsupportedOperationException"
    assert ours(sample_table(3), update) == sample_table(3)
    with pytest.raises(BadIcebergRequestError, match="it needs v3"):
        ours(sample_table(2), update)


def test_a_view_in_something_else_than_sql_is_refused(judge: Judge) -> None:
    """Java takes it, and fails to write it."""
    version = {**VERSION, "representations": [SQL, {"type": "substrait", "plan": "x"}]}
    updates = [{"action": "add-view-version", "view-version": version}]
    assert "unsupported view representation" in judge.view(_json(render_view_metadata(sample_view())), updates).message
    with pytest.raises(BadIcebergRequestError, match="not supported"):
        apply_view_updates(sample_view(), updates, now_ms=NOW_MS)


def test_a_new_table_may_require_that_it_has_no_branch(judge: Judge) -> None:
    """It says the same as `assert-create`, which for Java must be the only requirement of a new table."""
    required: list[Json] = [
        {"type": "assert-create"},
        {"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": None},
    ]
    check_requirements(required, None)
    assert judge.table(None, [], required).error == "NullPointerException"
    with pytest.raises(BadIcebergRequestError, match="needs a table that exists"):
        check_requirements([{"type": "assert-table-uuid", "uuid": "x"}], None)
