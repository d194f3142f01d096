"""Checks what a request requires of a table, with the texts of Java's `UpdateRequirement`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from deltalakedb.exceptions import RequirementFailedError
from deltalakedb.iceberg.metadata.normal_form import normal_form
from deltalakedb.iceberg.metadata.shapes import (
    check_json,
    choose,
    int_field,
    optional_long,
    refuse,
    require_list,
    string_field,
)

Requirement = Callable[[Mapping[str, Any], Mapping[str, Any] | None], None]
"""Checks one requirement against the metadata, or against None if there is no table yet."""


def check_requirements(requirements: Sequence[Mapping[str, Any]], base: Mapping[str, Any] | None) -> None:
    """Refuse the request if the table is not what it requires; None stands for a table that does not exist."""
    run_checks(requirements, _REQUIREMENTS, None if base is None else normal_form(base))


def run_checks(
    requirements: Sequence[Mapping[str, Any]], known: Mapping[str, Requirement], base: Mapping[str, Any] | None
) -> None:
    """Check the requirements in their order, once all of them are known."""
    require_list(requirements, "requirements")
    checks = [choose(requirement, "type", known, "requirement") for requirement in requirements]
    for check_one, requirement in zip(checks, requirements, strict=True):
        check_json(requirement, "requirement")
        check_one(requirement, base)


def fail(message: str) -> None:
    """Raise a RequirementFailedError."""
    raise RequirementFailedError(f"Requirement failed: {message}")


def check_uuid(expected: object, uuid: str, subject: str) -> None:
    """Refuse another UUID than expected, whatever the case of its letters."""
    if not isinstance(expected, str) or expected.lower() != uuid.lower():
        fail(f"{subject} does not match: expected {'null' if expected is None else expected} != {uuid}")


def _does_not_exist(_: Mapping[str, Any], base: Mapping[str, Any] | None) -> None:
    if base is not None:
        fail("table already exists")


def _table_uuid(requirement: Mapping[str, Any], base: Mapping[str, Any] | None) -> None:
    uuid = string_field(requirement, "uuid", "requirement")
    check_uuid(_existing(requirement, base).get("table-uuid"), uuid, "UUID")


def _existing(requirement: Mapping[str, Any], base: Mapping[str, Any] | None) -> Mapping[str, Any]:
    if base is None:
        refuse(f"Invalid create requirements: {requirement['type']} needs a table that exists")
    return base


def _ref_snapshot_id(requirement: Mapping[str, Any], base: Mapping[str, Any] | None) -> None:
    name = string_field(requirement, "ref", "requirement")
    snapshot_id = optional_long(requirement, "snapshot-id", "requirement")
    ref = None if base is None else base["refs"].get(name)
    if ref is None:
        if snapshot_id is not None:
            fail(f"branch or tag {name} is missing, expected {snapshot_id}")
        return
    kind, actual = ref["type"].lower(), ref["snapshot-id"]
    if snapshot_id is None:
        fail(f"{kind} {name} was created concurrently")
    if snapshot_id != actual:
        fail(f"{kind} {name} has changed: expected id {snapshot_id} != {actual}")


def _same_id(name: str, field: str, subject: str, *, of_new_tables: bool = False) -> Requirement:
    def check_one(requirement: Mapping[str, Any], base: Mapping[str, Any] | None) -> None:
        expected = int_field(requirement, name, "requirement")
        if base is None and of_new_tables:
            return
        actual = _existing(requirement, base)[field]
        if actual != expected:
            fail(f"{subject} changed: expected id {expected} != {actual}")

    return check_one


_REQUIREMENTS: Mapping[str, Requirement] = {
    "assert-create": _does_not_exist,
    "assert-current-schema-id": _same_id("current-schema-id", "current-schema-id", "current schema"),
    "assert-default-sort-order-id": _same_id("default-sort-order-id", "default-sort-order-id", "default sort order"),
    "assert-default-spec-id": _same_id("default-spec-id", "default-spec-id", "default partition spec"),
    "assert-last-assigned-field-id": _same_id(
        "last-assigned-field-id", "last-column-id", "last assigned field id", of_new_tables=True
    ),
    "assert-last-assigned-partition-id": _same_id(
        "last-assigned-partition-id", "last-partition-id", "last assigned partition id", of_new_tables=True
    ),
    "assert-ref-snapshot-id": _ref_snapshot_id,
    "assert-table-uuid": _table_uuid,
}
