"""The log of a table over HTTP: listed, read, and taken as exactly one version."""

from __future__ import annotations

import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from deltalakedb import connect
from deltalakedb.exceptions import (
    ConfigError,
    InvalidCommitError,
    MalformedLogError,
    NotWritableError,
    TableNotFoundError,
    VersionNotFoundError,
    VersionTakenError,
)
from deltalakedb.log.protocol.fence import FEATURE
from deltalakedb.serve import LocalEndpoint
from deltalakedb.spark.endpoint import EndpointClient
from tests.serve.wire import add, append, ask, delete, first_commit, info, make_table, paths_in, versions

FENCE = f'"{FEATURE}"]'.encode()


def test_a_first_commit_in_the_warehouse_creates_the_table(
    client: EndpointClient, endpoint: LocalEndpoint, warehouse: Path
) -> None:
    path = f"/file{warehouse}/sales/orders"
    assert client.log(path) == []
    assert client.write_commit(path, 0, first_commit()) == 0
    assert client.write_commit(path, 1, append("a.parquet")) == 1
    assert [entry.name for entry in client.log(path)] == [f"{version:020}.json" for version in (0, 1)]
    assert endpoint.catalog.tables() == ["sales.orders"]
    assert endpoint.catalog.table("sales.orders").version() == 1
    assert (warehouse / "sales/orders/_delta_log" / f"{1:020}.json").exists(), "the mirror is written too"


def test_a_commit_is_served_in_the_length_that_the_listing_told(client: EndpointClient) -> None:
    path = make_table(client, "sales.orders", "a.parquet", "b.parquet")
    for entry in client.log(path):
        assert len(client.read_commit(path, entry.version)) == entry.size
    assert paths_in(client.read_commit(path, 1)) == ["a.parquet", "b.parquet"]


def test_a_commit_is_served_with_its_time_and_without_the_fence(
    client: EndpointClient, endpoint: LocalEndpoint, warehouse: Path
) -> None:
    path = make_table(client)
    answer = ask(endpoint.url, endpoint.token, "GET", "/commit", {"path": path, "version": 0, "txn": ""})
    assert answer.status == 200
    assert int(answer.headers["x-modified"]) == client.log(path)[0].modified_ms
    assert FENCE not in answer.body
    mirrored = (warehouse / "sales/orders/_delta_log" / f"{0:020}.json").read_bytes()
    assert FENCE in mirrored


def test_table_properties_that_look_like_credentials_are_refused_staged_or_not(client: EndpointClient) -> None:
    """`TBLPROPERTIES` of Spark arrive as a metaData action."""
    path = make_table(client)
    properties = '"configuration":{"loader.password":"hunter2-hunter2"}'
    lines = [line.replace('"configuration":{}', properties) for line in first_commit()]
    new = client.reserve("sales.new").path.removeprefix("dldb://")
    with pytest.raises(ConfigError, match="storage_options") as raised:
        client.write_commit(new, 0, lines)
    assert "hunter2" not in str(raised.value)
    tx = client.begin().txn
    client.write_commit(path, 1, append("a.parquet"), txn=tx)
    new = client.reserve("sales.new", txn=tx).path.removeprefix(f"dldb://{tx}")
    client.write_commit(new, 0, lines, txn=tx)
    with pytest.raises(ConfigError, match=r"loader\.password"):
        client.commit(tx)
    assert versions(client, path) == [0]


def test_a_listing_begins_where_it_is_asked_to(client: EndpointClient) -> None:
    path = make_table(client, "sales.orders", "a.parquet")
    assert versions(client, path, start=1) == [1]
    assert versions(client, path, start=2) == []


def test_a_commit_that_does_not_exist_is_not_found(client: EndpointClient) -> None:
    path = make_table(client)
    with pytest.raises(VersionNotFoundError, match="no commit 7"):
        client.read_commit(path, 7)
    with pytest.raises(VersionNotFoundError, match="no checksum of version 7"):
        client.checksum(path, 7)


def test_a_checksum_is_served_for_every_commit(client: EndpointClient) -> None:
    path = make_table(client, "sales.orders", "a.parquet", "b.parquet")
    assert b'"numFiles":0' in client.checksum(path, 0)
    assert b'"numFiles":2,' in client.checksum(path, 1)
    assert FENCE not in client.checksum(path, 1)


def test_a_path_outside_the_warehouse_is_left_to_delta(
    client: EndpointClient, endpoint: LocalEndpoint, tmp_path: Path
) -> None:
    path = f"/file{tmp_path}/elsewhere/t"
    for method, route in [("GET", "/log"), ("GET", "/commit"), ("GET", "/crc"), ("POST", "/commit")]:
        query = {"path": path, "version": 0, "id": str(uuid.uuid4())}
        answer = ask(endpoint.url, endpoint.token, method, route, query, "\n".join(first_commit()).encode())
        assert (route, answer.status, answer.json["error"]) == (route, 404, "TableNotFoundError")
    with pytest.raises(TableNotFoundError, match="not a place of this catalog"):
        client.log(path)


def test_a_path_in_the_warehouse_that_can_be_no_table_is_refused_at_the_commit(
    client: EndpointClient, warehouse: Path
) -> None:
    path = f"/file{warehouse}/one/two/three"
    assert client.log(path) == []
    with pytest.raises(ConfigError, match="<warehouse>/<namespace>/<name>"):
        client.write_commit(path, 0, first_commit())


def test_a_version_that_exists_is_refused_with_409_and_nothing_else_is(
    client: EndpointClient, endpoint: LocalEndpoint
) -> None:
    path = make_table(client, "sales.orders", "a.parquet")
    with pytest.raises(VersionTakenError, match=r"sales\.orders"):
        client.write_commit(path, 1, append("b.parquet"))
    with pytest.raises(VersionTakenError):
        client.write_commit(path, 5, append("b.parquet"))
    query = {"path": path, "version": 1, "id": str(uuid.uuid4())}
    answer = ask(endpoint.url, endpoint.token, "POST", "/commit", query, "\n".join(append("b.parquet")).encode())
    assert (answer.status, answer.json["error"]) == (409, "VersionTakenError")


def test_the_same_commit_sent_twice_is_one_version(client: EndpointClient) -> None:
    path, token = make_table(client), str(uuid.uuid4())
    lines = append("a.parquet")
    assert [client.write_commit(path, 1, lines, token=token) for _ in range(3)] == [1, 1, 1]
    assert client.write_commit(path, 2, append("b.parquet")) == 2
    assert client.write_commit(path, 1, lines, token=token) == 1
    assert versions(client, path) == [0, 1, 2]


def test_an_id_that_was_used_for_another_commit_is_no_repeat_of_it(client: EndpointClient) -> None:
    path, other, token = make_table(client, "sales.orders"), make_table(client, "sales.other"), str(uuid.uuid4())
    client.write_commit(path, 1, append("a.parquet"), token=token)
    with pytest.raises(InvalidCommitError, match="was used for another commit"):
        client.write_commit(path, 2, append("b.parquet"), token=token)
    with pytest.raises(VersionTakenError):
        client.write_commit(path, 0, append("b.parquet"), token=token)
    client.write_commit(other, 1, append("c.parquet"))
    with pytest.raises(VersionTakenError):
        client.write_commit(other, 1, append("d.parquet"), token=token)
    assert (versions(client, path), versions(client, other)) == ([0, 1], [0, 1])


def test_a_first_commit_sent_twice_is_one_table(client: EndpointClient, endpoint: LocalEndpoint) -> None:
    path, token, lines = client.reserve("sales.orders").path.removeprefix("dldb://"), str(uuid.uuid4()), first_commit()
    assert [client.write_commit(path, 0, lines, token=token) for _ in range(2)] == [0, 0]
    assert endpoint.catalog.tables() == ["sales.orders"]


def test_of_two_commits_of_one_version_exactly_one_wins(client: EndpointClient, endpoint: LocalEndpoint) -> None:
    path = make_table(client)

    def commit(version: int, number: int) -> int:
        query = {"path": path, "version": version, "id": str(uuid.uuid4())}
        body = "\n".join(append(f"{version}-{number}.parquet")).encode()
        return ask(endpoint.url, endpoint.token, "POST", "/commit", query, body).status

    with ThreadPoolExecutor(2) as pool:
        for version in range(1, 11):
            assert sorted(pool.map(commit, [version] * 2, range(2))) == [200, 409]
    assert versions(client, path) == list(range(11))


def test_of_two_creations_of_one_table_exactly_one_wins(
    client: EndpointClient, endpoint: LocalEndpoint, warehouse: Path
) -> None:
    def create(number: int, attempt: int) -> int:
        query = {"path": f"/file{warehouse}/sales/t{attempt}", "version": 0, "id": str(uuid.uuid4()), "number": number}
        return ask(endpoint.url, endpoint.token, "POST", "/commit", query, "\n".join(first_commit()).encode()).status

    with ThreadPoolExecutor(2) as pool:
        for attempt in range(5):
            assert sorted(pool.map(create, range(2), [attempt] * 2)) == [200, 409]
    assert client.names("sales") == [f"sales.t{attempt}" for attempt in range(5)]


def test_what_breaks_the_protocol_is_refused_with_422_and_changes_nothing(client: EndpointClient) -> None:
    path = make_table(client, "sales.orders", "a.parquet")
    with pytest.raises(MalformedLogError):
        client.write_commit(path, 2, [info(), '{"add": {"path": '])
    with pytest.raises(MalformedLogError, match="adds and removes"):
        client.write_commit(path, 2, [*append("b.parquet"), *delete("b.parquet")[1:]])
    with pytest.raises(InvalidCommitError, match="SHALLOW CLONE"):
        client.write_commit(path, 2, [info(), add("dldb:///file/other/t/x.parquet")])
    assert versions(client, path) == [0, 1]


def test_bytes_that_are_not_utf8_are_refused(endpoint: LocalEndpoint, client: EndpointClient) -> None:
    path = make_table(client)
    query = {"path": path, "version": 1, "id": str(uuid.uuid4())}
    body = add("a.parquet").encode().replace(b"a.parquet", b"\xff\xfe.parquet")
    answer = ask(endpoint.url, endpoint.token, "POST", "/commit", query, body)
    assert (answer.status, answer.json["error"]) == (422, "MalformedLogError")
    assert versions(client, path) == [0]


def test_a_frozen_table_is_refused_with_422(client: EndpointClient, catalog_uri: str) -> None:
    path = make_table(client)
    with connect(catalog_uri) as catalog, catalog.store.write() as conn:
        from deltalakedb.store import registry

        row = registry.resolve_table(conn, "sales", "orders")
        assert row is not None
        registry.change_table(conn, row.table_id, at_ms=conn.now_ms(), state="frozen")
    with pytest.raises(NotWritableError, match="frozen"):
        client.write_commit(path, 1, append("a.parquet"))


WRONG: list[tuple[str, str, dict[str, str], str]] = [
    ("GET", "/log", {}, "needs the parameter 'path'"),
    ("GET", "/log", {"path": "/file/x", "from": "-1"}, "must be a version"),
    ("GET", "/commit", {"path": "/file/x", "version": "1e3"}, "must be a version"),
    ("GET", "/commit", {"path": "/file/x", "version": "9" * 40}, "must be a version"),
    ("POST", "/commit", {"path": "/file/x", "version": "1"}, "needs the parameter 'id'"),
    ("GET", "/log", {"path": "nonsense"}, "no path of the bridge"),
    ("POST", "/read", {"path": "/file/x"}, "needs the parameter 'txn'"),
    ("DELETE", "/name", {"name": "a.b", "purge": "maybe"}, "must be true or false"),
    ("GET", "/name", {"name": "a..b"}, "not a valid name"),
]


def test_wrong_parameters_are_named(endpoint: LocalEndpoint) -> None:
    for method, route, query, what in WRONG:
        answer = ask(endpoint.url, endpoint.token, method, route, query)
        assert (answer.status, what in answer.json["message"]) == (422, True), (method, route, answer.body)


def test_a_route_that_does_not_exist_is_an_error_in_the_same_shape(endpoint: LocalEndpoint) -> None:
    answer = ask(endpoint.url, endpoint.token, "GET", "/nothing")
    assert (answer.status, answer.json["error"]) == (404, "NoSuchRouteError")
    answer = ask(endpoint.url, endpoint.token, "PATCH", "/log")
    assert (answer.status, answer.json["error"]) == (405, "HTTPError")
