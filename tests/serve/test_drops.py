"""Drop, undrop and namespaces over HTTP, and tables created where a Delta table was."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import deltalake
import pyarrow as pa
import pytest

from deltalakedb.exceptions import (
    ConfigError,
    DeltaError,
    FilesPurgedError,
    TableExistsError,
    TableNotFoundError,
    VersionTakenError,
)
from deltalakedb.serve import LocalEndpoint
from deltalakedb.spark.endpoint import EndpointClient
from tests.serve.conftest import StartEndpoint
from tests.serve.wire import append, ask, first_commit, make_table, paths_in, versions


def theirs(folder: Path, *values: int) -> str:
    """A Delta table of another writer."""
    deltalake.write_deltalake(str(folder), pa.table({"id": pa.array(values, pa.int64())}), mode="append")
    return str(folder)


def bridged(path: str) -> str:
    assert path.startswith("dldb://")
    return path.removeprefix("dldb://")


def test_a_dropped_table_comes_back_under_its_old_or_a_new_name(client: EndpointClient) -> None:
    path = make_table(client, "sales.orders", "a.parquet")
    client.drop("sales.orders")
    with pytest.raises(FilesPurgedError, match=r"no a\.parquet any more"):
        client.undrop("sales.orders")
    Path(path.removeprefix("/file"), "a.parquet").touch()
    client.undrop("sales.orders")
    assert client.name("sales.orders").path == f"dldb://{path}"
    client.drop("sales.orders")
    client.undrop("sales.orders", "archive.`orders-2025`")
    assert client.names("sales") == []
    assert bridged(client.name("archive.`orders-2025`").path) == path
    following = versions(client, path)[-1] + 1
    assert client.write_commit(path, following, append("b.parquet")) == following


def test_what_was_not_dropped_or_whose_name_is_taken_is_not_undropped(client: EndpointClient) -> None:
    make_table(client, "sales.orders")
    with pytest.raises(TableNotFoundError, match="no dropped table"):
        client.undrop("sales.never")
    client.drop("sales.orders")
    make_table(client, "sales.orders")
    with pytest.raises(TableExistsError):
        client.undrop("sales.orders")
    client.undrop("sales.orders", "sales.before")
    assert client.names("sales") == ["sales.before", "sales.orders"]
    client.drop("sales.before", purge=True)
    with pytest.raises(TableNotFoundError):
        client.undrop("sales.before")


def test_a_new_table_under_the_name_of_a_dropped_one_gets_another_folder(client: EndpointClient) -> None:
    old = make_table(client, "sales.orders", "a.parquet")
    client.drop("sales.orders")
    new = make_table(client, "sales.orders")
    assert new != old
    assert versions(client, new) == [0]


def test_a_table_says_whose_files_it_has(client: EndpointClient, tmp_path: Path) -> None:
    make_table(client, "sales.ours")
    assert not client.reserve("sales.next").external
    placed = client.reserve("sales.placed", location=f"{tmp_path}/placed")
    client.write_commit(bridged(placed.path), 0, first_commit())
    assert placed.external
    assert [client.name(f"sales.{name}").external for name in ("ours", "placed")] == [False, True]


def test_a_protected_table_is_not_dropped_and_the_error_says_why(
    client: EndpointClient, endpoint: LocalEndpoint
) -> None:
    make_table(client, "sales.orders")
    endpoint.catalog.set_properties("sales.orders", {"drop_protection": "true"})
    with pytest.raises(DeltaError, match="drop_protection"):
        client.drop("sales.orders")
    assert client.names("sales") == ["sales.orders"]


def test_a_table_created_at_a_delta_table_gets_the_name_and_shows_what_others_commit(
    client: EndpointClient, endpoint: LocalEndpoint, tmp_path: Path
) -> None:
    place = theirs(tmp_path / "theirs", 1)
    made = client.reserve("ext.theirs", location=place, attach=True)
    assert (made.attached, made.external, made.path) == (True, True, f"dldb:///file{place}")
    assert client.name("ext.theirs").path == made.path
    assert versions(client, bridged(made.path)) == [0]
    theirs(tmp_path / "theirs", 2)
    assert versions(client, bridged(made.path)) == [0, 1]
    assert paths_in(client.read_commit(bridged(made.path), 1))
    assert endpoint.catalog.table_infos()[0].mode == "follower"
    with pytest.raises(TableExistsError):
        client.reserve("ext.theirs", location=place, attach=True)
    with pytest.raises(TableExistsError, match="a location has one owner"):
        client.reserve("ext.second", location=place, attach=True)


def test_the_first_commit_to_such_a_table_makes_it_managed_and_is_sent_again(
    client: EndpointClient, endpoint: LocalEndpoint, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    place = theirs(tmp_path / "theirs", 1)
    path = bridged(client.reserve("ext.theirs", location=place, attach=True).path)
    assert versions(client, path) == [0]
    with caplog.at_level(logging.WARNING), pytest.raises(VersionTakenError):
        client.write_commit(path, 1, append("x.parquet"))
    assert "is managed by this catalog from now on" in caplog.text
    assert versions(client, path) == [0, 1]
    assert paths_in(client.read_commit(path, 1)) == []
    assert client.write_commit(path, 2, append("x.parquet")) == 2
    assert [entry["action"] for entry in endpoint.catalog.audit(table="ext.theirs") if entry["action"] == "promote"]
    endpoint.catalog.mirror.flush(30)
    with pytest.raises(Exception, match="deltalakedb"):
        theirs(tmp_path / "theirs", 2)


def test_a_create_that_failed_gives_the_name_back_unless_it_was_written(
    client: EndpointClient, endpoint: LocalEndpoint, tmp_path: Path
) -> None:
    place = theirs(tmp_path / "theirs", 1)
    give_back = {"name": "ext.theirs", "attached": "true"}
    client.reserve("ext.theirs", location=place, attach=True)
    assert ask(endpoint.url, endpoint.token, "DELETE", "/name", give_back).json["dropped"] is True
    assert client.names("ext") == []
    assert deltalake.DeltaTable(place).version() == 0
    path = bridged(client.reserve("ext.theirs", location=place, attach=True).path)
    with pytest.raises(VersionTakenError):
        client.write_commit(path, 1, append("x.parquet"))
    assert ask(endpoint.url, endpoint.token, "DELETE", "/name", give_back).json["dropped"] is False
    assert client.names("ext") == ["ext.theirs"]


def test_where_no_delta_table_is_the_place_is_reserved_as_ever(client: EndpointClient, tmp_path: Path) -> None:
    made = client.reserve("ext.new", location=f"{tmp_path}/new", attach=True)
    assert not made.attached
    assert client.write_commit(bridged(made.path), 0, first_commit()) == 0


def test_without_promotion_by_writes_such_a_table_is_read_where_it_lies(start: StartEndpoint, tmp_path: Path) -> None:
    endpoint = start(catalog_promote_on_write=False)
    with EndpointClient(endpoint.url, endpoint.token) as client:
        made = client.reserve("ext.theirs", location=theirs(tmp_path / "theirs", 1), attach=True)
        assert (made.path, made.managed) == (f"file://{tmp_path}/theirs", False)


def test_a_namespace_has_properties(client: EndpointClient, endpoint: LocalEndpoint) -> None:
    client.create_namespace("sales", {"comment": "what we sell", "team": "a"})
    client.create_namespace("sales", {"team": "b"})
    client.set_namespace_properties("Sales", {"team": None, "cost": "7"})
    found = client.namespace("SALES")
    assert (found.namespace, found.properties) == ("sales", {"comment": "what we sell", "cost": "7"})
    assert found.updated_at_ms > found.created_at_ms
    assert dict(endpoint.catalog.namespace("sales").properties) == found.properties
    with pytest.raises(TableNotFoundError, match="no namespace"):
        client.namespace("nowhere")
    with pytest.raises(ConfigError):
        client.set_namespace_properties("sales", {"aws_secret_access_key": "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"})


def test_properties_that_are_no_texts_are_refused(endpoint: LocalEndpoint) -> None:
    body = json.dumps({"properties": {"a": 1}}).encode()
    answer = ask(endpoint.url, endpoint.token, "POST", "/namespace", {"namespace": "sales"}, body)
    assert (answer.status, answer.json["error"]) == (422, "ConfigError")
