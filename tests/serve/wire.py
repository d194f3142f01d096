"""Commits as delta-spark writes them, and HTTP without the product's own client."""

from __future__ import annotations

import http.client
import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode, urlsplit

from deltalakedb.spark.endpoint import EndpointClient

SCHEMA = json.dumps(
    {"type": "struct", "fields": [{"name": "id", "type": "long", "nullable": True, "metadata": {}}]},
    separators=(",", ":"),
)


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


def ask(
    url: str,
    token: str | None,
    method: str,
    route: str,
    query: Mapping[str, Any] | None = None,
    body: bytes | None = None,
    prefix: str = "/bridge/v1",
) -> Answer:
    """One request on a connection of its own."""
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=60)
    headers = {"Authorization": f"Bearer {token}"} if token is not None else {}
    try:
        connection.request(method, f"{prefix}{route}?{urlencode(query or {})}", body, headers)
        answer = connection.getresponse()
        return Answer(answer.status, {key.lower(): value for key, value in answer.getheaders()}, answer.read())
    finally:
        connection.close()


def info(operation: str = "WRITE", *, blind: bool = True) -> str:
    value = {"timestamp": 1, "operation": operation, "operationParameters": {}, "isBlindAppend": blind}
    return _line("commitInfo", value | {"engineInfo": "Apache-Spark/4.1.4", "txnId": str(uuid.uuid4())})


def add(path: str, **fields: Any) -> str:
    value = {"path": path, "partitionValues": {}, "size": 100, "modificationTime": 1, "dataChange": True}
    return _line("add", value | {"stats": '{"numRecords":1}'} | fields)


def remove(path: str) -> str:
    return _line("remove", {"path": path, "deletionTimestamp": 1, "dataChange": True})


def first_commit() -> list[str]:
    """The commit that creates a table."""
    metadata = {
        "id": str(uuid.uuid4()),
        "format": {"provider": "parquet", "options": {}},
        "schemaString": SCHEMA,
        "partitionColumns": [],
        "configuration": {},
        "createdTime": 1,
    }
    protocol = {"minReaderVersion": 1, "minWriterVersion": 2}
    return [info("CREATE TABLE"), _line("protocol", protocol), _line("metaData", metadata)]


def append(*paths: str) -> list[str]:
    return [info(), *map(add, paths)]


def delete(*paths: str) -> list[str]:
    return [info("DELETE", blind=False), *map(remove, paths)]


def make_table(client: EndpointClient, name: str = "sales.orders", *files: str) -> str:
    """Create a table through the bridge; its path."""
    path = client.reserve(name).path.removeprefix("dldb://")
    client.write_commit(path, 0, first_commit())
    if files:
        client.write_commit(path, 1, append(*files))
    return path


def paths_in(text: bytes) -> list[str]:
    """The files that a commit adds."""
    actions = (json.loads(line) for line in text.splitlines())
    return [action["add"]["path"] for action in actions if "add" in action]


def versions(client: EndpointClient, path: str, txn: str = "", start: int = 0) -> list[int]:
    return [entry.version for entry in client.log(path, txn=txn, start=start)]


def _line(kind: str, value: Mapping[str, Any]) -> str:
    return json.dumps({kind: value}, separators=(",", ":"))
