"""An endpoint for Iceberg clients that is killed: a commit of two tables is whole or not there, and told truly."""

from __future__ import annotations

import json
import random
import socket
import threading
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

import pytest

import deltalakedb as dl
from deltalakedb.iceberg.catalog import IcebergCatalog
from deltalakedb.store.names import TableName
from tests.fixtures.forked import Script, start_script
from tests.fixtures.sizes import sized

pytestmark = pytest.mark.in_turn

SERVER = """
import sys, threading, time
from deltalakedb.exceptions import EndpointError
from deltalakedb.serve import Endpoint
from tests.faults.worker import kill_at
catalog, warehouse, port, step = sys.argv[1:5]
if step:
    kill_at(step)
while True:
    try:
        endpoint = Endpoint(catalog, token=None, bridge=False, iceberg=True, port=int(port), warehouse=warehouse)
        break
    except EndpointError:  # the port of one that was killed is free a moment later
        time.sleep(0.1)
print(endpoint.url, flush=True)
threading.Event().wait()
"""
LEFT, RIGHT = TableName("bank", "left"), TableName("bank", "right")
SCHEMA = {"type": "struct", "fields": [{"id": 1, "name": "id", "type": "long", "required": False}]}
STEPS = ["iceberg.metadata_written#2", "commit.begun", "commit.locked", "commit.written", "commit.committed"]


class Bank:
    """A catalog with two tables, served at one address by a process that can be killed and replaced."""

    def __init__(self, target: str, warehouse: Path) -> None:
        self._target, self._warehouse = target, warehouse
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self._port = int(probe.getsockname()[1])
        self._script: Script | None = None
        with self.open() as catalog:
            catalog.create_namespace("bank")
            for name in (LEFT, RIGHT):
                IcebergCatalog(catalog).create_table(name, {"schema": SCHEMA})

    def open(self) -> dl.Catalog:
        return dl.connect(self._target, warehouse=str(self._warehouse))

    def serve(self, step: str = "") -> None:
        self._script = start_script(SERVER, self._target, str(self._warehouse), str(self._port), step)
        self._script.wait_for("\n")

    def kill(self) -> None:
        assert self._script is not None
        self._script.end()

    def wait_until_dead(self) -> int:
        assert self._script is not None
        return self._script.wait(60).returncode

    def transfer(self, mark: str, key: str) -> int:
        """Mark both tables in one commit; the status of the answer."""
        updates = [{"action": "set-properties", "updates": {mark: "x"}}]
        changes = [
            {"identifier": {"namespace": ["bank"], "name": name.name}, "requirements": [], "updates": updates}
            for name in (LEFT, RIGHT)
        ]
        request = urllib.request.Request(
            f"http://127.0.0.1:{self._port}/iceberg/v1/transactions/commit",
            data=json.dumps({"table-changes": changes}).encode(),
            headers={"Content-Type": "application/json", "Idempotency-Key": key},
        )
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code

    def transfer_until_told(self, mark: str, key: str) -> int:
        """Repeat a transfer with its key until an answer says what became of it."""
        end = time.monotonic() + 240
        while time.monotonic() < end:
            try:
                status = self.transfer(mark, key)
            except OSError:
                time.sleep(0.05)
                continue
            if status < 500:
                return status
            time.sleep(0.05)
        raise AssertionError(f"no answer said what became of {mark}")

    def marks(self) -> list[dict[str, Any]]:
        """The marks of each table, of which SQL and the metadata file know the same."""
        tables = []
        with self.open() as catalog:
            for name in (LEFT, RIGHT):
                table = IcebergCatalog(catalog).load_table(name)
                written = json.loads(Path(unquote(urlparse(table.metadata_location).path)).read_bytes())
                assert written == table.metadata
                marks = {key for key in table.metadata["properties"] if key.startswith("mark")}
                tables.append({"marks": marks, "version": table.version})
        return tables


@pytest.fixture
def bank(target: str, tmp_path: Path) -> Iterator[Bank]:
    bank = Bank(target, tmp_path / "lake")
    yield bank
    bank.kill()


@pytest.mark.parametrize("step", STEPS)
def test_a_commit_whose_server_died_is_repeated_with_its_key_and_is_there_once(bank: Bank, step: str) -> None:
    bank.serve(step)
    key = str(uuid.uuid4())
    with pytest.raises(OSError, match=r"closed|reset|refused|Remote"):
        bank.transfer("mark", key)
    assert bank.wait_until_dead() == -9
    assert [table["marks"] for table in bank.marks()] == [{"mark"} if step == "commit.committed" else set()] * 2
    bank.serve()
    assert bank.transfer_until_told("mark", key) == 204
    assert bank.transfer_until_told("mark", key) == 204
    assert bank.marks() == [{"marks": {"mark"}, "version": 1}] * 2


def test_clients_of_a_server_that_is_killed_at_random_lose_and_double_no_commit(bank: Bank) -> None:
    clients, each, kills = 4, sized(5, 50), sized(3, 40)
    answers: dict[str, int] = {}

    def client(number: int) -> None:
        for count in range(each):
            mark = f"mark-{number}-{count}"
            answers[mark] = bank.transfer_until_told(mark, str(uuid.uuid4()))

    bank.serve()
    threads = [threading.Thread(target=client, args=(number,)) for number in range(clients)]
    for thread in threads:
        thread.start()
    moments = random.Random(5)
    for _ in range(kills):
        time.sleep(moments.uniform(0.05, 0.6))
        bank.kill()
        bank.serve()
    for thread in threads:
        thread.join()
    assert len(answers) == clients * each
    assert set(answers.values()) == {204}
    assert bank.marks() == [{"marks": answers.keys(), "version": clients * each}] * 2
