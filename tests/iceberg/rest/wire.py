"""Requests to the Iceberg REST catalog without anybody's client, and the bodies that tests send."""

from __future__ import annotations

import http.client
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

SCHEMA: dict[str, Any] = {
    "type": "struct",
    "fields": [
        {"id": 1, "name": "id", "type": "long", "required": False},
        {"id": 2, "name": "note", "type": "string", "required": False},
    ],
}
VIEW: dict[str, Any] = {
    "name": "newest",
    "schema": SCHEMA,
    "view-version": {
        "version-id": 1,
        "schema-id": 0,
        "timestamp-ms": 1,
        "summary": {},
        "representations": [{"type": "sql", "sql": "select 1", "dialect": "spark"}],
        "default-namespace": ["shop"],
    },
    "properties": {},
}


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> tuple[int, str]:
        """The status and the type of an error, which must be in the protocol's form."""
        error = self.json["error"]
        assert set(error) == {"message", "type", "code"}, error
        assert error["code"] == self.status
        return self.status, error["type"]

    @property
    def message(self) -> str:
        return str(self.json["error"]["message"])


class Client:
    """Sends requests below `/iceberg`, each on a connection of its own."""

    def __init__(self, url: str, headers: Mapping[str, str] | None = None) -> None:
        self._address = urlsplit(url)
        self._headers = dict(headers or {})

    def ask(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        headers: Mapping[str, str] | None = None,
        **query: str | int,
    ) -> Answer:
        """Send a request; `body` is bytes as they are, or what becomes JSON."""
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        connection = http.client.HTTPConnection(self._address.hostname or "", self._address.port, timeout=60)
        target = f"/iceberg{path}{'?' + urlencode(query) if query else ''}"
        try:
            connection.request(method, target, data, {**self._headers, **(headers or {})})
            answer = connection.getresponse()
            return Answer(answer.status, {key.lower(): value for key, value in answer.getheaders()}, answer.read())
        finally:
            connection.close()

    def get(self, path: str, *, headers: Mapping[str, str] | None = None, **query: str | int) -> Answer:
        return self.ask("GET", path, headers=headers, **query)

    def post(
        self, path: str, body: object = None, *, headers: Mapping[str, str] | None = None, **query: str | int
    ) -> Answer:
        return self.ask("POST", path, body, headers=headers, **query)

    def head(self, path: str) -> Answer:
        return self.ask("HEAD", path)

    def delete(self, path: str, *, headers: Mapping[str, str] | None = None, **query: str | int) -> Answer:
        return self.ask("DELETE", path, headers=headers, **query)


def namespace_path(*parts: str) -> str:
    return f"/v1/namespaces/{quote(chr(0x1F).join(parts), safe='')}"


def table_path(name: str, *namespace: str) -> str:
    return f"{namespace_path(*(namespace or ('shop',)))}/tables/{quote(name, safe='')}"


def view_path(name: str, *namespace: str) -> str:
    return f"{namespace_path(*(namespace or ('shop',)))}/views/{quote(name, safe='')}"


def create_table(client: Client, name: str = "orders", **request: Any) -> dict[str, Any]:
    """Create a table in the namespace `shop`; the answer's body."""
    answer = client.post("/v1/namespaces/shop/tables", {"name": name, "schema": SCHEMA, **request})
    assert answer.status == 200, answer.body
    return dict(answer.json)


def set_properties(table: Mapping[str, Any], **properties: str) -> dict[str, Any]:
    """The body of a commit that sets properties of a loaded table."""
    return {
        "requirements": [{"type": "assert-table-uuid", "uuid": table["metadata"]["table-uuid"]}],
        "updates": [{"action": "set-properties", "updates": properties}],
    }


def change_of(name: str, body: Mapping[str, Any], *namespace: str) -> dict[str, Any]:
    """One table's part of `transactions/commit`."""
    return {"identifier": {"namespace": list(namespace or ("shop",)), "name": name}, **body}


def add_snapshot(table: Mapping[str, Any], snapshot_id: int) -> dict[str, Any]:
    """The body of a commit that adds a snapshot on top of the current one; its files do not exist."""
    metadata = table["metadata"]
    current = metadata.get("current-snapshot-id")
    parent = None if current in (None, -1) else current
    snapshot = {
        "snapshot-id": snapshot_id,
        "sequence-number": metadata["last-sequence-number"] + 1,
        "timestamp-ms": metadata["last-updated-ms"] + 1,
        "manifest-list": f"{metadata['location']}/metadata/snap-{snapshot_id}.avro",
        "summary": {"operation": "append"},
        "schema-id": 0,
        **({} if parent is None else {"parent-snapshot-id": parent}),
    }
    return {
        "requirements": [{"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": parent}],
        "updates": [
            {"action": "add-snapshot", "snapshot": snapshot},
            {"action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "snapshot-id": snapshot_id},
        ],
    }
