"""Call and Reply: a request as the endpoints see it, and their answer; and the checks of a request's fields."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from deltalakedb.serve.iceberg.errors import bad_request
from deltalakedb.store.names import TableName

JsonObject = Mapping[str, Any]

MAX_DEPTH = 200
"""How deep objects and arrays of a body may be nested; a column of 60 nested types stays below it."""


@dataclass(frozen=True, slots=True)
class Call:
    """One request: the values in its path, the query, the headers in lower case, the JSON body."""

    path: Mapping[str, str] = field(default_factory=dict)
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: JsonObject = field(default_factory=dict)
    token: str | None = None
    """The client token of the commit, if the request has an idempotency key: a repeat finds the first outcome."""


@dataclass(frozen=True, slots=True)
class Reply:
    """One answer; `loads` is the table or view whose state the body is, so that a repeat gets its present state."""

    status: int = 204
    body: JsonObject | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    loads: TableName | None = None


def parse_body(data: bytes) -> JsonObject:
    """Return the JSON object of a request's body."""
    try:
        value = orjson.loads(data) if data.strip() else {}
    except orjson.JSONDecodeError as error:
        raise bad_request(f"the body is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise bad_request("the body must be a JSON object")
    _check_depth(value)
    return value


def _check_depth(value: Any) -> None:
    level = [value]
    for _ in range(MAX_DEPTH):
        level = [part for parent in level for part in _parts(parent)]
        if not level:
            return
    raise bad_request(f"the body is nested more than {MAX_DEPTH} levels deep")


def _parts(value: Any) -> list[Any]:
    """The objects and arrays directly inside a value."""
    parts = value.values() if isinstance(value, dict) else value
    return [part for part in parts if isinstance(part, dict | list)]


def text_of(body: JsonObject, key: str) -> str:
    """Return a required text."""
    value = body.get(key)
    if not isinstance(value, str) or not value:
        raise bad_request(f"the field {key} must be a text that is not empty")
    return value


def flag_of(body: JsonObject, key: str) -> bool:
    """Return an optional boolean, false by default."""
    value = body.get(key)
    if value is None:
        return False
    if not isinstance(value, bool):
        raise bad_request(f"the field {key} must be true or false")
    return value


def object_of(body: JsonObject, key: str) -> JsonObject:
    """Return an optional object, empty by default."""
    value = body.get(key)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise bad_request(f"the field {key} must be an object")
    return value


def texts_by_name(body: JsonObject, key: str) -> dict[str, str]:
    """Return an optional object whose values are texts, such as properties."""
    value = object_of(body, key)
    for name, text in value.items():
        if not isinstance(text, str):
            raise bad_request(f"the field {key} must be an object of texts, and {name!r} is not one")
    return dict(value)


def texts_of(body: JsonObject, key: str) -> list[str]:
    """Return an optional list of texts, empty by default."""
    value = body.get(key)
    if value is None:
        return []
    if not (isinstance(value, list) and all(isinstance(text, str) for text in value)):
        raise bad_request(f"the field {key} must be a list of texts")
    return value


def objects_of(body: JsonObject, key: str) -> Sequence[JsonObject]:
    """Return a required list of objects."""
    value = body.get(key)
    if not (isinstance(value, list) and all(isinstance(item, dict) for item in value)):
        raise bad_request(f"the field {key} must be a list of objects")
    return value


def query_flag(call: Call, key: str) -> bool:
    """Return an optional boolean of the query, false by default."""
    text = call.query.get(key, "false").lower()
    if text not in ("true", "false"):
        raise bad_request(f"the parameter {key} must be true or false")
    return text == "true"
