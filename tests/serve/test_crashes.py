"""An endpoint that is killed at any step of a transaction over two tables, and what its client learns from the next."""

from __future__ import annotations

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
BEFORE = ["bridge.staged#2", "bridge.prepared", "commit.written"]
AFTER = ["commit.committed", "mirror.json_put", "bridge.committed"]


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


@pytest.mark.parametrize("dying", [*BEFORE, *AFTER], indirect=True)
def test_after_a_kill_both_tables_have_the_transaction_or_none_and_the_client_is_told_which(
    dying: Server, catalog_uri: str, warehouse: Path, request: pytest.FixtureRequest
) -> None:
    step = request.node.callspec.params["dying"]
    client = EndpointClient(dying.url, TOKEN, retry_seconds=0.2)
    tx = client.begin("a transfer").txn
    paths = [client.name(name).path.removeprefix("dldb://") for name in ("bank.left", "bank.right")]
    with pytest.raises(EndpointError, match="cannot be reached"):
        _transfer(client, tx, paths)
    assert dying.script.wait(60).returncode == -9
    with LocalEndpoint(catalog_uri, warehouse=str(warehouse)) as again:
        client = EndpointClient(again.url, again.token, retry_seconds=30)
        if step in AFTER:
            assert client.commit(tx).versions == {"bank.left": 2, "bank.right": 2}
        else:
            with pytest.raises(GoneError, match="nothing of it was committed"):
                client.commit(tx)
        seen = {tuple(versions(client, path)) for path in paths}
        assert seen == {(0, 1, 2) if step in AFTER else (0, 1)}
        for path in paths:  # and the next commit goes on from there
            head = versions(client, path)[-1]
            assert client.write_commit(path, head + 1, append("next.parquet")) == head + 1


def _transfer(client: EndpointClient, tx: str, paths: list[str]) -> None:
    for path in paths:
        client.log(path, txn=tx)
        client.write_commit(path, 2, append("moved.parquet"), txn=tx)
    client.commit(tx)
