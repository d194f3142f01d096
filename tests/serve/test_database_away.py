"""A database that goes away under the endpoint: nothing is lost, nothing is told that is not true."""

from __future__ import annotations

import threading
import uuid
from pathlib import Path

import psycopg
import pytest

from deltalakedb.exceptions import OutcomeUnknownError
from deltalakedb.serve import LocalEndpoint
from deltalakedb.spark.endpoint import EndpointClient
from tests.faults.cutting_proxy import CuttingProxy
from tests.fixtures.postgres import PostgresCluster
from tests.serve.wire import append, ask, make_table, versions


@pytest.fixture
def catalog_uri(postgres_dsn: str) -> str:
    return postgres_dsn


def _end_backends(dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity "
            "where datname = current_database() and pid <> pg_backend_pid()"
        )


def test_requests_go_on_when_all_connections_were_ended(client: EndpointClient, postgres_dsn: str) -> None:
    path, tx = make_table(client), client.begin().txn
    client.write_commit(path, 1, append("a.parquet"), txn=tx)
    _end_backends(postgres_dsn)
    assert client.commit(tx).versions == {"sales.orders": 1}
    _end_backends(postgres_dsn)
    assert client.write_commit(path, 2, append("b.parquet")) == 2
    assert versions(client, path) == [0, 1, 2]


def test_many_clients_commit_exactly_once_while_connections_are_ended(
    client: EndpointClient, endpoint: LocalEndpoint, postgres_dsn: str
) -> None:
    paths = [make_table(client, f"sales.t{number}") for number in range(4)]
    errors: list[BaseException] = []

    def work(path: str) -> None:
        with EndpointClient(endpoint.url, endpoint.token, retry_seconds=60) as mine:
            try:
                for version in range(1, 9):
                    assert mine.write_commit(path, version, append(f"{version}.parquet")) == version
            except BaseException as error:
                errors.append(error)

    threads = [threading.Thread(target=work, args=(path,)) for path in paths]
    for thread in threads:
        thread.start()
    pause_seconds = 0.15
    while any(thread.is_alive() for thread in threads):
        _end_backends(postgres_dsn)
        threads[0].join(pause_seconds)
        pause_seconds *= 1.1  # on a busy machine a commit may need longer than the first pauses
    assert errors == []
    assert [versions(client, path) for path in paths] == [list(range(9))] * 4


def test_a_transaction_whose_commit_was_cut_off_tells_its_outcome_to_who_asks_again(
    postgres_cluster: PostgresCluster, postgres_dsn: str, tmp_path: Path
) -> None:
    LocalEndpoint(postgres_dsn).close()  # the schema is there before the proxy is
    server_socket = f"{postgres_cluster.socket_folder}/.s.PGSQL.{postgres_cluster.port}"
    # More cuts than the writer has tries: the endpoint cannot know what became of the commit.
    proxy = CuttingProxy(server_socket, cuts=3, wait_for_answer=True, commits_by=b"dl_transactions")
    database = postgres_dsn.rpartition("dbname=")[2]
    through = f"host=127.0.0.1 port={proxy.port} user={postgres_cluster.user} dbname={database}"
    try:
        with LocalEndpoint(through, warehouse=str(tmp_path / "lake"), concurrency_retries=0) as endpoint:
            with LocalEndpoint(postgres_dsn, warehouse=str(tmp_path / "lake")) as direct:
                path = make_table(EndpointClient(direct.url, direct.token))
            client = EndpointClient(endpoint.url, endpoint.token, retry_seconds=0)
            tx = client.begin().txn
            client.write_commit(path, 1, append("a.parquet"), txn=tx)
            with pytest.raises(OutcomeUnknownError, match="may or may not be committed"):
                client.commit(tx)
            assert ask(endpoint.url, endpoint.token, "POST", f"/txn/{tx}/alive").status == 200
            patient = EndpointClient(endpoint.url, endpoint.token, retry_seconds=30)
            assert patient.commit(tx).versions == {"sales.orders": 1}
            assert versions(patient, path) == [0, 1]
    finally:
        proxy.close()
    assert proxy.num_cut == 3


def test_a_database_that_is_not_there_is_a_503_until_it_is(tmp_path: Path) -> None:
    uri = str(tmp_path / "catalog.db")
    with LocalEndpoint(uri, warehouse=str(tmp_path / "lake")) as endpoint:
        client = EndpointClient(endpoint.url, endpoint.token, retry_seconds=0)
        path = make_table(client)
        endpoint.catalog.store.close()
        query = {"path": path, "version": 1, "id": str(uuid.uuid4())}
        answer = ask(endpoint.url, endpoint.token, "POST", "/commit", query, "\n".join(append("a.parquet")).encode())
        assert (answer.status, answer.json["error"], answer.headers["retry-after"]) == (503, "StoreClosedError", "1")
