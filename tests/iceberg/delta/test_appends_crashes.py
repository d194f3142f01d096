"""An endpoint that is killed while an Iceberg client appends to Delta tables: its rows are there once, or not."""

from __future__ import annotations

import http.client
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from deltalakedb import Catalog
from deltalakedb.mirror.reconciler import Reconciler
from tests.conformance.transacting import ids_in, numbers
from tests.fixtures.forked import Script, start_script
from tests.iceberg.delta.appending import Append, Lake, data_files
from tests.iceberg.delta.judges import check_readers
from tests.iceberg.rest.wire import change_of
from tests.iceberg.test_crashes import SERVER

pytestmark = pytest.mark.in_turn

STEPS = {"commit.begun": [1], "commit.locked": [1], "commit.written": [1], "commit.committed": [1, 2]}
"""Where the endpoint dies, and the ids that the tables then have."""


class Server:
    """A process that serves the catalog at one address, and can be killed and replaced."""

    def __init__(self, target: str, warehouse: Path) -> None:
        self._target, self._warehouse = target, warehouse
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self._port = int(probe.getsockname()[1])
        self.script: Script | None = None

    def start(self, step: str = "") -> Lake:
        self.script = start_script(SERVER, self._target, str(self._warehouse), str(self._port), step)
        self.script.wait_for("\n")
        return Lake(f"http://127.0.0.1:{self._port}")

    def stop(self) -> None:
        assert self.script is not None
        self.script.end()


@pytest.fixture
def server(target: str, catalog: Catalog, tmp_path: Path) -> Iterator[Server]:  # noqa: ARG001  its namespace
    server = Server(target, tmp_path / "lake")
    yield server
    server.stop()


def post(lake: Lake, body: dict[str, Any]) -> int | None:
    """The status of the answer to a transaction; None if the endpoint died."""
    try:
        return lake.wire.post("/v1/transactions/commit", body).status
    except (OSError, http.client.HTTPException):
        return None


@pytest.mark.parametrize("step", STEPS)
def test_a_killed_append_is_whole_and_its_repeat_is_done_once(catalog: Catalog, server: Server, step: str) -> None:
    for name in ("t", "u"):
        with catalog.begin() as tx:
            tx.write(f"shop.{name}", numbers(1))
    lake = server.start()
    changes = []
    for name in ("t", "u"):
        table = lake.load(name)
        changes.append(change_of(name, Append(table, data_files(table, numbers(2))).body()))
    body = {"table-changes": changes}
    server.stop()
    lake = server.start(step)
    assert post(lake, body) is None
    assert server.script is not None
    server.script.wait(60)
    assert [ids_in(catalog, f"shop.{name}") for name in ("t", "u")] == [STEPS[step]] * 2
    lake = server.start()
    end = time.monotonic() + 60
    while post(lake, body) != 204:
        assert time.monotonic() < end, "the repeat is never answered"
        time.sleep(0.05)
    with Reconciler(catalog.store, config=catalog.config, options_of=catalog.storage_options_of) as reconciler:
        list(reconciler.once())  # the process that was killed may not have mirrored its commit
    for name in ("t", "u"):
        assert catalog.table(f"shop.{name}").version() == 1
        check_readers(catalog, lake, numbers(1, 2), name)
