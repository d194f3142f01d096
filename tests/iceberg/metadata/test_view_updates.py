"""Each update of a view, valid and refused, has the outcome that it has in Iceberg's own Java."""

from __future__ import annotations

from typing import Any

import pytest

from deltalakedb.exceptions import BadIcebergRequestError
from deltalakedb.iceberg.metadata.view_metadata import apply_view_updates, new_view_metadata
from tests.iceberg.metadata.comparing import commit_both_views
from tests.iceberg.metadata.judge import Judge
from tests.iceberg.metadata.samples import SCHEMA, SQL, START_MS, UUID, VERSION, Json, sample_view

pytestmark = pytest.mark.spark


def add(**changes: object) -> Json:
    """A version that differs from the sample's."""
    version: Json = {**VERSION, "version-id": 2, "summary": {"engine-name": "y"}}
    version |= {name.replace("_", "-"): value for name, value in changes.items()}
    return {"action": "add-view-version", "view-version": {k: v for k, v in version.items() if v != "absent"}}


def use(version_id: int) -> Json:
    return {"action": "set-current-view-version", "view-version-id": version_id}


def properties(**updates: str) -> Json:
    names = {"size": "version.history.num-entries", "drop": "replace.drop-dialect.allowed"}
    return {"action": "set-properties", "updates": {names.get(name, name): value for name, value in updates.items()}}


OTHER_SCHEMA = {"type": "struct", "schema-id": 0, "fields": [{"id": 1, "name": "a", "required": False, "type": "int"}]}
ADD_SCHEMA = {"action": "add-schema", "schema": OTHER_SCHEMA}
TRINO = {**SQL, "dialect": "trino"}

TAKEN: dict[str, list[Json]] = {
    "a version": [add(), use(-1)],
    "a version beside the current one": [add()],
    "a version with a new schema": [ADD_SCHEMA, add(schema_id=-1), use(-1)],
    "a schema": [ADD_SCHEMA],
    "a version that the view has": [add(summary=VERSION["summary"])],
    "a version with a used id": [add(version_id=1), use(-1)],
    "versions one after the other": [add(), use(2), add(summary={}), use(3)],
    "a version forth and back": [add(), use(2), use(1)],
    "a dialect more": [add(representations=[SQL, TRINO]), use(-1)],
    "a dialect less, which is allowed": [properties(drop="true"), add(representations=[TRINO]), use(-1)],
    "a catalog": [add(default_catalog="c", default_namespace=[]), use(-1)],
    "one version kept": [properties(size="1"), add(), use(-1)],
    "two versions kept": [properties(size="2"), add(), add(summary={}), use(-1)],
    "a location": [{"action": "set-location", "location": "s3://bucket/other"}],
    "a property more and one less": [properties(a="b"), {"action": "remove-properties", "removals": ["owner", "x"]}],
    "the UUID that the view has": [{"action": "assign-uuid", "uuid": UUID}],
    "the format version that there is": [{"action": "upgrade-format-version", "format-version": 1}],
    "nothing": [],
}
REFUSED: dict[str, list[Json]] = {
    "an unknown update": [{"action": "set-weather"}],
    "an update of tables": [{"action": "set-current-schema", "schema-id": 0}],
    "another UUID": [{"action": "assign-uuid", "uuid": "other"}],
    "format version 2": [{"action": "upgrade-format-version", "format-version": 2}],
    "format version 0": [{"action": "upgrade-format-version", "format-version": 0}],
    "a version of an unknown schema": [add(schema_id=9)],
    "a version of the last schema, and there is none": [add(schema_id=-1)],
    "a version without an id": [add(version_id="absent")],
    "a version without a namespace": [add(default_namespace="absent")],
    "a version without queries": [add(representations="absent")],
    "a query without a dialect": [add(representations=[{"type": "sql", "sql": "select 1"}])],
    "two queries in one dialect": [add(representations=[SQL, {**SQL, "dialect": "Spark", "sql": "select 2"}])],
    "a dialect less": [add(representations=[TRINO]), use(-1)],
    "an unknown version": [use(9)],
    "the last version, and there is none": [use(-1)],
    "no versions kept": [properties(size="0")],
    "many versions kept": [properties(size="many")],
    "a null location": [{"action": "set-location", "location": None}],
}


@pytest.mark.parametrize("updates", [pytest.param(updates, id=name) for name, updates in TAKEN.items()])
def test_updates_are_taken_as_by_java(judge: Judge, updates: list[Json]) -> None:
    assert commit_both_views(judge, sample_view(), updates).error == ""


@pytest.mark.parametrize("updates", [pytest.param(updates, id=name) for name, updates in REFUSED.items()])
def test_updates_are_refused_as_by_java(judge: Judge, updates: list[Json]) -> None:
    assert commit_both_views(judge, sample_view(), updates).error == "refused"


def test_old_versions_expire_as_in_java(judge: Judge) -> None:
    view: Any = sample_view()
    for number in range(14):
        updates = [add(summary={"number": str(number)}), use(-1)]
        view = commit_both_views(judge, view, updates).metadata
    assert [version["version-id"] for version in view["versions"]] == list(range(15, 5, -1))
    assert [entry["version-id"] for entry in view["version-log"]] == list(range(6, 16))


@pytest.mark.parametrize(
    ("requirement", "error"),
    [
        ({"type": "assert-view-uuid", "uuid": UUID.upper()}, ""),
        ({"type": "assert-view-uuid", "uuid": "other"}, "conflict"),
        ({"type": "assert-view-uuid"}, "refused"),
        ({"type": "assert-table-uuid", "uuid": UUID}, "refused"),
        ({"type": "assert-create"}, "refused"),
        ({"type": "assert-weather"}, "refused"),
    ],
)
def test_requirements_have_the_outcome_of_java(judge: Judge, requirement: Json, error: str) -> None:
    assert commit_both_views(judge, sample_view(), [properties(a="b")], [requirement]).error == error


def test_a_view_is_created_by_updates() -> None:
    updates: list[Json] = [
        {"action": "assign-uuid", "uuid": UUID},
        {"action": "set-location", "location": "s3://bucket/view"},
        {"action": "add-schema", "schema": SCHEMA},
        add(schema_id=-1),
        use(-1),
    ]
    view = apply_view_updates(None, updates, now_ms=START_MS)
    assert (view["current-version-id"], view["view-uuid"]) == (2, UUID)
    assert apply_view_updates(None, updates[1:], now_ms=START_MS, view_uuid="mine")["view-uuid"] == "mine"
    for place in (1, 2, 3):
        with pytest.raises(BadIcebergRequestError):
            apply_view_updates(None, [*updates[:place], *updates[place + 1 :]], now_ms=START_MS)


def test_a_view_needs_a_query() -> None:
    request = {"schema": SCHEMA, "view-version": {**VERSION, "representations": []}}
    with pytest.raises(BadIcebergRequestError, match="without specifying a query"):
        new_view_metadata(request=request, location="s3://bucket/view", view_uuid=UUID, now_ms=START_MS)
