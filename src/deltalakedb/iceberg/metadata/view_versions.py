"""Versions of a view: parsing, comparing, and the SQL dialects that they are written in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from deltalakedb.iceberg.metadata.shapes import (
    brief,
    check,
    int_field,
    long_field,
    objects_field,
    optional_string,
    require_object,
    string_field,
    string_list,
    string_map,
)


def parse_version(item: object, what: str = "view version") -> dict[str, Any]:
    """A version whose fields have been checked."""
    source = require_object(item, what)
    int_field(source, "version-id", what)
    int_field(source, "schema-id", what)
    long_field(source, "timestamp-ms", what)
    string_map(source, "summary", what)
    string_list(source, "default-namespace", what)
    optional_string(source, "default-catalog", what)
    representations = [_parse_representation(one, what) for one in objects_field(source, "representations", what)]
    version = {key: value for key, value in source.items() if value is not None or key != "default-catalog"}
    return {**version, "representations": representations}


def _parse_representation(source: Mapping[str, Any], what: str) -> dict[str, Any]:
    kind = string_field(source, "type", what).lower()
    check(kind == "sql", f"Cannot parse {what}: representations of type {brief(kind)} are not supported")
    string_field(source, "sql", what)
    string_field(source, "dialect", what)
    return {**source, "type": kind}


def check_one_query_each(version: Mapping[str, Any]) -> None:
    """Refuse two queries in one dialect."""
    dialects: set[str] = set()
    for one in version["representations"]:
        dialect = one["dialect"].lower()
        check(dialect not in dialects, f"Invalid view version: Cannot add multiple queries for dialect {dialect}")
        dialects.add(dialect)


def dialects_of(version: Mapping[str, Any]) -> set[str]:
    """The dialects of a version, in small letters."""
    return {one["dialect"].lower() for one in version["representations"]}


def same_version(one: Mapping[str, Any], two: Mapping[str, Any]) -> bool:
    """Whether both say the same, whatever their ids and times."""
    return _key(one) == _key(two)


def _key(version: Mapping[str, Any]) -> list[object]:
    queries = [(one["dialect"], one["sql"]) for one in version["representations"]]
    names = (version.get("default-catalog"), list(version["default-namespace"]), version["schema-id"])
    return [dict(version["summary"]), queries, *names]
