"""Renders metadata as the bytes of a file: equal metadata always gives equal bytes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from deltalakedb.iceberg.metadata.normal_form import wire_form
from deltalakedb.iceberg.metadata.shapes import refuse

_SORTED = orjson.OPT_SORT_KEYS


def render_object(item: Mapping[str, Any], what: str) -> bytes:
    """JSON with the object's fields in their order, and the fields of everything inside sorted by name."""
    try:
        members = [orjson.dumps(name) + b":" + orjson.dumps(value, option=_SORTED) for name, value in item.items()]
    except orjson.JSONEncodeError as error:
        refuse(f"Cannot write {what}: {error}")
    return b"{" + b",".join(members) + b"}"


def render_metadata(metadata: Mapping[str, Any]) -> bytes:
    """The bytes of a table's metadata.json; v1 also has the fields `schema` and `partition-spec`, for old readers."""
    return render_object(wire_form(metadata), "table metadata")
