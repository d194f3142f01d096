"""Names of namespaces, tables and views as the REST protocol spells them: lists of parts, or one text in a path."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from deltalakedb.serve.iceberg.call import Call, JsonObject
from deltalakedb.serve.iceberg.errors import bad_request
from deltalakedb.store.names import TableName, check_part, join_namespace, namespace_parts

SEPARATOR = "\x1f"
"""Between the parts of a namespace in a path or query, which send it as %1F."""


def namespace_in_path(text: str) -> str:
    """Return the namespace that one segment of a path names."""
    return _namespace_of(text.split(SEPARATOR))


def namespace_in_body(value: Any) -> str:
    """Return the namespace that a body has as a list of parts."""
    if not (isinstance(value, list) and value and all(isinstance(part, str) for part in value)):
        raise bad_request("a namespace must be a list of texts that is not empty")
    return _namespace_of(value)


def identifier_in_body(value: Any) -> TableName:
    """Return the name of a table or view: `{"namespace": ["a", "b"], "name": "t"}`."""
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        raise bad_request('an identifier must be an object with "namespace" and "name"')
    return table_name(namespace_in_body(value.get("namespace")), value["name"])


def name_in_path(call: Call, noun: str = "table") -> TableName:
    """Return the name of the table or view that the path of a request names."""
    return table_name(namespace_in_path(call.path["namespace"]), call.path[noun])


def table_name(namespace: str, name: str) -> TableName:
    """Return the name of a table or view, after checking it."""
    _refuse_dots(name)
    return TableName(namespace, check_part(name, whole=name))


def to_identifier(namespace: str, name: str) -> JsonObject:
    """Return a name as bodies have it."""
    return {"namespace": namespace_parts(namespace), "name": name}


def shown_namespace(namespace: str) -> str:
    """Return a namespace as messages of the protocol have it: without backticks."""
    return ".".join(namespace_parts(namespace))


def shown_name(name: TableName) -> str:
    """Return the name of a table or view as messages of the protocol have it: without backticks."""
    return f"{shown_namespace(name.namespace)}.{name.name}"


def _refuse_dots(part: str) -> None:
    """Refuse names that clients and proxies take out of a URL, as they do with `.` and `..` in a path."""
    if part in (".", ".."):
        raise bad_request(f"a namespace, table or view cannot be called {part!r}: clients take that out of URLs")


def _namespace_of(parts: Sequence[str]) -> str:
    for part in parts:
        _refuse_dots(part)
        check_part(part, whole=".".join(parts))
    return join_namespace(parts)
