"""Cases of HTTP: bodies, parameters, paths and headers of requests to a served catalog, called without a network."""

from __future__ import annotations

import asyncio
import atexit
import json
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import quote, unquote

from deltalakedb import connect
from deltalakedb.serve.app import create_app
from deltalakedb.serve.iceberg.call import Call
from deltalakedb.serve.iceberg.errors import Refusal
from deltalakedb.serve.iceberg.paging import page_of
from tests.fuzz.cases import parser
from tests.fuzz.mutations import damage_bytes, damage_text, damaged_json_text
from tests.fuzz.of_iceberg import FILTERS
from tests.fuzz.of_logs import FIRST, METADATA, PROTOCOL, add_of, lines_of
from tests.iceberg.metadata.samples import sample_table
from tests.iceberg.rest.wire import SCHEMA, VIEW

Json = dict[str, Any]


class BrokenAnswerError(Exception):
    """An answer that no request may get."""


class Served:
    """An application over a catalog with a table of each format."""

    def __init__(self, folder: Path) -> None:
        self.loop = asyncio.new_event_loop()
        self.lake = folder / "lake"
        self.catalog = connect(folder / "catalog.db", warehouse=str(self.lake))
        self.app = create_app(self.catalog, token=None, bridge=True, iceberg=True)
        log = self.lake / "shop/orders/_delta_log"
        log.mkdir(parents=True)
        lines = [json.dumps(action) for action in (PROTOCOL, METADATA, add_of(1), add_of(2))]
        (log / f"{0:020d}.json").write_text("\n".join(lines))
        self.catalog.attach_table(self.lake / "shop/orders", "shop.orders")
        (self.lake / "v1.json").write_text(json.dumps(sample_table(2)))
        self._make("/iceberg/v1/namespaces/shop/tables", {"name": "notes", "schema": SCHEMA})
        self._make("/iceberg/v1/namespaces/shop/views", VIEW)

    def _make(self, path: str, body: Any) -> None:
        status, answer = self.call("POST", path, "", json.dumps(body).encode(), {})
        assert status == 200, answer

    def call(self, method: str, path: str, query: str, body: bytes, headers: Mapping[str, str]) -> tuple[int, bytes]:
        """The status and the body of the answer."""
        return self.loop.run_until_complete(self._call(method, path, query, body, headers))

    async def _call(
        self, method: str, path: str, query: str, body: bytes, headers: Mapping[str, str]
    ) -> tuple[int, bytes]:
        sent: list[Any] = []
        raw = path.encode("latin-1", "replace")
        fields = [(name.encode(), value.encode("latin-1", "replace")) for name, value in headers.items()]
        scope: Json = {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method, "scheme": "http",
            "path": unquote(raw.decode("latin-1")), "raw_path": raw, "query_string": query.encode("latin-1", "replace"),
            "root_path": "", "headers": [(b"host", b"127.0.0.1"), *fields], "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 80), "state": {},
        }  # fmt: skip
        pieces = [body[:40], body[40:]]

        async def receive() -> Any:
            if pieces:
                return {"type": "http.request", "body": pieces.pop(0), "more_body": bool(pieces)}
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            sent.append(message)

        await self.app(scope, receive, send)
        return int(sent[0]["status"]), b"".join(message.get("body", b"") for message in sent[1:])


@cache
def served() -> Served:
    folder = tempfile.TemporaryDirectory(prefix="served-")
    made = Served(Path(folder.name))
    atexit.register(folder.cleanup)
    return made


def check_answer(status: int, answer: bytes) -> int:
    """No request gets the answer that a bug gets, or an error that is no JSON."""
    if status >= 500 and status != 503:
        raise BrokenAnswerError(f"status {status}: {answer[:2000]!r}")
    if status >= 400 and answer:
        json.loads(answer)
    return status


FILTER: Json = {
    "k": "and",
    "p": [
        {"k": "cmp", "c": ["id"], "o": ">", "v": {"i": 5}},
        {"k": "in", "c": ["name"], "v": [{"s": "a"}, {"s": "b"}]},
        {"k": "or", "p": [{"k": "null", "c": ["price"]}, {"k": "cmp", "c": ["price"], "o": "<=", "v": {"d": "1.25"}}]},
        {"k": "cmp", "c": ["at"], "o": "<", "v": {"ts": 1_700_000_000_000_000}},
        {"k": "prefix", "c": ["name"], "v": {"s": "a"}},
        {"k": "cmp", "c": ["day"], "o": "=", "v": {"date": 20000}},
        {"k": "notin", "c": ["ratio"], "v": [{"f": 0.5}]},
    ],
}


def orders() -> str:
    return f"path={quote(str(served().lake / 'shop/orders'))}"


@parser("filters of Spark", cases=60)
def plan_for_spark(random: Random) -> object:
    request = {"filters": [FILTER], "records": True, "stats": random.random() < 0.5}
    body = damaged_json_text(random, request, FILTER["p"])
    return check_answer(*served().call("POST", "/bridge/v1/plan", f"{orders()}&version=0", body, {}))


BRIDGE: list[tuple[str, str, Json]] = [
    ("POST", "/bridge/v1/aggregates?PATH&version=0", {"min": ["id"], "max": ["id", "at"]}),
    ("POST", "/bridge/v1/txn?id=x", {"lock": ["shop.orders"], "tables": ["shop.orders"]}),
    ("POST", "/bridge/v1/txn/t1/commit", {"app_versions": {"shop.orders": ["a", 1]}}),
    ("POST", "/bridge/v1/namespace?namespace=n1", {"properties": {"a": "b"}}),
    ("POST", "/bridge/v1/namespace/properties?namespace=shop", {"properties": {"a": None}}),
    ("GET", "/bridge/v1/name?name=shop.orders", {}),
    ("GET", "/bridge/v1/log?PATH&from=0", {}),
    ("GET", "/bridge/v1/commit?PATH&version=0", {}),
    ("GET", "/bridge/v1/crc?PATH&version=0", {}),
    ("POST", "/bridge/v1/rename?name=shop.orders&to=shop.notes", {}),
    ("GET", "/bridge/v1/names?namespace=shop", {}),
    ("GET", "/bridge/v1/state?PATH&version=0", {}),
    ("POST", "/bridge/v1/name?name=shop.x1", {"schema": "id long"}),
    ("GET", "/bridge/v1/log?path=dldb://t1/file/lake&from=0", {}),
    ("POST", "/bridge/v1/undrop?name=shop.gone", {}),
]


@parser("requests of the bridge", cases=60)
def ask_bridge(random: Random) -> object:
    method, target, body = random.choice(BRIDGE)
    path, _, query = target.replace("PATH", orders()).partition("?")
    if random.random() < 0.5:
        query = damage_text(random, query)
    if random.random() < 0.2:
        path = quote(damage_text(random, path), safe="/%")
    data = damaged_json_text(random, body) if body else b""
    return check_answer(*served().call(method, path, query, data, {}))


@parser("commits of Spark", cases=40)
def commit_for_spark(random: Random) -> object:
    data = lines_of(random, FIRST)
    query = f"path={quote(str(served().lake / f'shop/new{random.randrange(10**9)}'))}&version=0&id={random.random()}"
    return check_answer(*served().call("POST", "/bridge/v1/commit", query, data, {}))


def _rest() -> list[tuple[str, str, Any]]:
    tables, notes = "/iceberg/v1/namespaces/shop/tables", "/iceberg/v1/namespaces/shop/tables/notes"
    name = {"namespace": ["shop"], "name": "notes"}
    change = {"identifier": name, "requirements": [], "updates": [{"action": "set-properties", "updates": {"a": "b"}}]}
    no_snapshot = {"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": None}
    add_schema = {"action": "add-schema", "schema": SCHEMA, "last-column-id": 5}
    set_property = {"action": "set-properties", "updates": {"a": "b"}}
    table = {"name": "x", "schema": SCHEMA, "properties": {"a": "b"}, "location": f"{served().lake}/shop/x"}
    register = {"name": "r", "metadata-location": f"{served().lake}/v1.json"}
    return [
        ("POST", "/iceberg/v1/namespaces", {"namespace": ["a", "b"], "properties": {"k": "v"}}),
        ("POST", "/iceberg/v1/namespaces/shop/properties", {"removals": ["a"], "updates": {"b": "c"}}),
        ("POST", tables, table),
        ("POST", notes, {"requirements": [], "updates": [set_property]}),
        ("POST", notes, {"requirements": [no_snapshot], "updates": [add_schema]}),
        ("POST", f"{notes}/plan", {"filter": FILTERS[0], "select": ["id"]}),
        ("POST", f"{tables}/orders/plan", {"filter": {"type": "gt", "term": "id", "value": 1}}),
        ("POST", f"{notes}/tasks", {"plan-task": "x"}),
        ("POST", "/iceberg/v1/transactions/commit", {"table-changes": [change]}),
        ("POST", "/iceberg/v1/tables/rename", {"source": name, "destination": name}),
        ("POST", "/iceberg/v1/namespaces/shop/register", register),
        ("POST", "/iceberg/v1/namespaces/shop/views", {**VIEW, "name": "v2"}),
        ("GET", "/iceberg/v1/namespaces?pageSize=2&pageToken=&parent=shop", None),
        ("GET", f"{notes}?snapshots=refs", None),
        ("GET", "/iceberg/v1/config?warehouse=x", None),
    ]  # fmt: skip


@parser("requests of Iceberg clients", cases=60)
def ask_iceberg(random: Random) -> object:
    method, target, body = random.choice(_rest())
    path, _, query = target.partition("?")
    if random.random() < 0.25:
        path = quote(damage_text(random, path), safe="/%")
    if query:
        query = damage_text(random, query)
    data = damaged_json_text(random, body, [SCHEMA, FILTERS[0]]) if body is not None else b""
    key = damage_text(random, "0190c0de-0000-7000-8000-000000000000")
    headers = {"idempotency-key": key} if random.random() < 0.2 else {}
    return check_answer(*served().call(method, path, query, data, headers))


@parser("page tokens", also=(Refusal,), cases=80)
def read_page_token(random: Random) -> object:
    query = {"pageToken": damage_text(random, "YWZ0ZXI6c2hvcA"), "pageSize": damage_text(random, "10")}
    return page_of(Call(query=query), ["a", "shop", "z"], key=str)


@parser("token requests", cases=80)
def ask_for_token(random: Random) -> object:
    body = damage_bytes(random, b"grant_type=client_credentials&client_id=a&client_secret=b%20c&scope=catalog")
    headers = {"authorization": damage_text(random, "Basic YTpiJTIwYw==")}
    return check_answer(*served().call("POST", "/iceberg/v1/oauth/tokens", "", body, headers))
