"""Names over HTTP: resolved, reserved, dropped, renamed, listed."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest

from deltalakedb.exceptions import DeltaError, TableExistsError, TableNameError, TableNotFoundError
from deltalakedb.serve import LocalEndpoint
from deltalakedb.spark.endpoint import EndpointClient
from tests.serve.conftest import StartEndpoint
from tests.serve.wire import append, first_commit, make_table, versions


def test_a_name_is_found_whatever_its_case_and_says_where_spark_finds_the_table(
    client: EndpointClient, warehouse: Path
) -> None:
    make_table(client, "sales.Orders")
    found = client.name("SALES.orders")
    assert (found.name, found.managed) == ("sales.Orders", True)
    assert found.path == f"dldb:///file{warehouse}/sales/Orders"


def test_a_table_made_by_another_process_is_found(client: EndpointClient, endpoint: LocalEndpoint) -> None:
    with endpoint.catalog.begin() as tx:
        tx.write("sales.rates", pa.table({"id": [1, 2]}))
    path = client.name("sales.rates").path.removeprefix("dldb://")
    assert versions(client, path) == [0]
    assert client.write_commit(path, 1, append("x.parquet")) == 1
    assert endpoint.catalog.table("sales.rates").version() == 1


def test_a_name_that_does_not_exist_is_not_found_and_the_nearest_one_is_named(client: EndpointClient) -> None:
    make_table(client)
    with pytest.raises(TableNotFoundError, match=r"did you mean sales\.orders"):
        client.name("sales.order")


def test_a_follower_is_read_where_its_files_lie(
    client: EndpointClient, endpoint: LocalEndpoint, tmp_path: Path
) -> None:
    import deltalake

    deltalake.write_deltalake(str(tmp_path / "theirs"), pa.table({"id": [1]}))
    endpoint.catalog.attach_table(str(tmp_path / "theirs"), "ext.theirs")
    found = client.name("ext.theirs")
    assert (found.path, found.managed) == (f"file://{tmp_path}/theirs", False)


def test_a_reserved_name_is_created_by_its_first_commit_also_outside_the_warehouse(
    client: EndpointClient, endpoint: LocalEndpoint, tmp_path: Path
) -> None:
    reserved = client.reserve("sales.far", location=f"file://{tmp_path}/elsewhere/far")
    assert reserved.path == f"dldb:///file{tmp_path}/elsewhere/far"
    path = reserved.path.removeprefix("dldb://")
    assert client.log(path) == []
    client.write_commit(path, 0, first_commit())
    assert endpoint.catalog.tables() == ["sales.far"]


def test_a_reservation_outlives_its_endpoint_and_the_latest_one_holds(start: StartEndpoint, tmp_path: Path) -> None:
    first, second = (EndpointClient(one.url, one.token) for one in (start(), start()))
    place = f"{tmp_path}/elsewhere/t"
    path = first.reserve("sales.failed", location=place).path.removeprefix("dldb://")
    assert first.reserve("sales.wanted", location=place).path == f"dldb://{path}"
    second.write_commit(path, 0, first_commit())
    assert first.name("sales.wanted").path == f"dldb://{path}"
    assert first.names("sales") == ["sales.wanted"]


def test_a_name_or_a_place_that_is_taken_cannot_be_reserved(client: EndpointClient, warehouse: Path) -> None:
    make_table(client)
    with pytest.raises(TableExistsError, match=r"sales\.orders exists already"):
        client.reserve("sales.orders")
    with pytest.raises(TableExistsError, match="a location has one owner"):
        client.reserve("sales.other", location=f"{warehouse}/sales/orders")
    with pytest.raises(TableNameError):
        client.reserve("sales.'orders'")


def test_a_dropped_table_is_gone_and_with_purge_its_files_too(client: EndpointClient, warehouse: Path) -> None:
    make_table(client, "sales.kept")
    make_table(client, "sales.purged")
    client.drop("sales.kept")
    client.drop("sales.purged", purge=True)
    assert client.names("sales") == []
    assert (warehouse / "sales/kept/_delta_log").exists()
    assert not (warehouse / "sales/purged").exists()
    with pytest.raises(TableNotFoundError):
        client.drop("sales.kept")


def test_a_renamed_table_keeps_its_place(client: EndpointClient) -> None:
    path = make_table(client, "sales.orders", "a.parquet")
    client.rename("sales.orders", "archive.orders_2025")
    assert client.name("archive.orders_2025").path == f"dldb://{path}"
    with pytest.raises(TableNotFoundError):
        client.rename("sales.orders", "sales.other")
    make_table(client, "sales.new")
    with pytest.raises(TableExistsError):
        client.rename("sales.new", "archive.orders_2025")


def test_a_new_table_under_the_old_name_of_a_renamed_one_gets_a_folder_of_its_own(client: EndpointClient) -> None:
    old = make_table(client, "sales.orders")
    client.rename("sales.orders", "sales.before")
    new = client.reserve("sales.orders").path.removeprefix("dldb://")
    assert new != old
    client.write_commit(new, 0, first_commit())
    assert client.name("sales.orders").path == f"dldb://{new}"
    assert client.name("sales.before").path == f"dldb://{old}"


def test_names_lists_the_tables_directly_in_a_namespace(client: EndpointClient) -> None:
    for name in ("sales.a", "sales.b", "sales.eu.c", "salesforce.d"):
        make_table(client, name)
    assert client.names("Sales") == ["sales.a", "sales.b"]
    assert client.names("sales.eu") == ["sales.eu.c"]
    assert client.names("nowhere") == []
    assert client.namespaces() == ["default", "sales", "sales.eu", "salesforce"]


def test_a_namespace_is_made_and_only_an_empty_one_removed(client: EndpointClient) -> None:
    client.create_namespace("eu.sales")
    client.create_namespace("eu.sales")
    assert "eu.sales" in client.namespaces()
    make_table(client, "eu.sales.orders")
    with pytest.raises(DeltaError, match="it holds the table orders"):
        client.drop_namespace("eu.sales")
    client.drop("eu.sales.orders", purge=True)
    client.drop_namespace("eu.sales")
    assert "eu.sales" not in client.namespaces()
    with pytest.raises(TableNotFoundError, match="no namespace"):
        client.drop_namespace("eu.sales")
    with pytest.raises(DeltaError, match="stays"):
        client.drop_namespace("default")


def test_a_name_tells_whether_it_is_at_a_location(client: EndpointClient, warehouse: Path) -> None:
    make_table(client, "sales.orders")
    at = (warehouse / "sales/orders").as_uri()
    assert client.name("sales.orders").location == at
    ask = partial(client._json, "GET", "/name")
    assert ask({"name": "sales.orders", "location": f"dldb:///file{warehouse}/sales/../sales/orders/"})["is_there"]
    assert not ask({"name": "sales.orders", "location": f"dldb:///file{warehouse}/sales/other"})["is_there"]


def test_a_namespace_is_removed_with_all_its_tables(client: EndpointClient) -> None:
    paths = [make_table(client, name) for name in ("eu.a", "eu.inner.b")]
    query = {"namespace": "eu", "cascade": "true"}
    dropped = client._json("DELETE", "/namespace", query, is_repeatable=False)["paths"]
    assert sorted(dropped) == sorted(f"dldb://{path}" for path in paths)
    assert (client.names("eu"), client.namespaces()) == ([], ["default"])
