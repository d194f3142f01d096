"""An endpoint that is killed at any step of a transaction over two tables: its client goes on at the next one."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from deltalakedb.exceptions import EndpointError, GoneError
from deltalakedb.serve import LocalEndpoint
from deltalakedb.spark.endpoint import EndpointClient
from tests.fixtures.forked import start_script
from tests.serve.wire import append, make_table, versions

TOKEN = "a-token-of-the-tests"
SERVER = """
import sys, threading
from deltalakedb.serve import Endpoint
from tests.faults.worker import kill_at
if sys.argv[3]:
    kill_at(sys.argv[3])
endpoint = Endpoint(sys.argv[1], token=sys.argv[4], warehouse=sys.argv[2])
print(endpoint.url, flush=True)
threading.Event().wait()
"""
STEPS = [
    "bridge.begun", "bridge.staged", "bridge.recorded#3", "bridge.staged#2", "bridge.recorded#4", "bridge.prepared",
    "commit.written", "commit.committed", "mirror.json_put", "bridge.committed",
]  # fmt: skip


class Server:
    """An endpoint in a process of its own, which dies at a step."""

    def __init__(self, catalog: str, warehouse: Path, step: str) -> None:
        self.script = start_script(SERVER, catalog, str(warehouse), step, TOKEN)
        self.url = self.script.wait_for("\n").strip()


@pytest.fixture
def dying(catalog_uri: str, warehouse: Path, request: pytest.FixtureRequest) -> Iterator[Server]:
    with LocalEndpoint(catalog_uri, warehouse=str(warehouse)) as endpoint:
        client = EndpointClient(endpoint.url, endpoint.token)
        for name in ("bank.left", "bank.right"):
            make_table(client, name, "first.parquet")
    server = Server(catalog_uri, warehouse, request.param)
    yield server
    server.script.end()


@pytest.mark.parametrize("dying", STEPS, indirect=True)
def test_after_a_kill_the_client_goes_on_at_another_endpoint_and_both_tables_have_the_transaction_once(
    dying: Server, catalog_uri: str, warehouse: Path
) -> None:
    request, tokens = str(uuid.uuid4()), [str(uuid.uuid4()) for _ in range(2)]
    client = EndpointClient(dying.url, TOKEN, retry_seconds=0.2)
    paths = [client.name(name).path.removeprefix("dldb://") for name in ("bank.left", "bank.right")]
    with pytest.raises(EndpointError, match="cannot be reached"):
        _transfer(client, request, paths, tokens)
    assert dying.script.wait(60).returncode == -9
    with LocalEndpoint(catalog_uri, warehouse=str(warehouse)) as again:
        client = EndpointClient(again.url, again.token, retry_seconds=30)
        assert _transfer(client, request, paths, tokens) == {"bank.left": 2, "bank.right": 2}
        for path in paths:
            assert versions(client, path) == [0, 1, 2]
            assert client.write_commit(path, 3, append("next.parquet")) == 3
        assert again.catalog.sql("select * from dl_open_transactions").num_rows == 0
        assert again.catalog.sql("select * from dl_staged_calls").num_rows == 0


def _transfer(client: EndpointClient, request: str, paths: list[str], tokens: list[str]) -> dict[str, int]:
    """Each call may be a repetition of one whose answer was lost."""
    tx = client.begin("a transfer", token=request).txn
    for path, token in zip(paths, tokens, strict=True):
        try:
            client.log(path, txn=tx)
            client.write_commit(path, 2, append("moved.parquet"), txn=tx, token=token)
        except GoneError:  # it is being committed, or is committed
            break
    return client.commit(tx).versions
