"""Clients whose commits of two tables cross: every acknowledged one is in both tables, and no other in either."""

from __future__ import annotations

import json
import threading
from collections import Counter
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

import pytest

from tests.fixtures.served import serving
from tests.iceberg.rest.wire import Client, add_snapshot, change_of, create_table, set_properties, table_path

CLIENTS, EACH = 8, 50
TABLES = ("left", "right")
TRANSACTION = "/v1/transactions/commit"

pytestmark = pytest.mark.parametrize("engine", ["sqlite", "postgres"])


def load(client: Client, name: str) -> dict[str, Any]:
    answer = client.get(table_path(name))
    assert answer.status == 200, answer.body
    return dict(answer.json)


def test_crossing_commits_of_many_clients_are_whole(target: str, tmp_path: Path) -> None:
    """Clients that name the tables in both orders, and whose commits hold only on the state that they have read."""
    asked: Counter[int] = Counter()
    acknowledged: set[str] = set()

    def one_client(client: Client, number: int) -> None:
        for count in range(EACH):
            mark = f"mark-{number}-{count}"
            blind = count % 2 == 0  # without a requirement that another client's commit breaks
            while True:
                changes = []
                for name in TABLES if number % 2 else TABLES[::-1]:
                    table = load(client, name)
                    change = set_properties(table, **{mark: "x"})
                    if not blind:
                        added = add_snapshot(table, number * 1_000 + count + 1)
                        change = {key: change[key] + added[key] for key in change}
                    changes.append(change_of(name, change))
                status = client.post(TRANSACTION, {"table-changes": changes}).status
                asked[status] += 1
                assert status in (204, 409), status
                if status == 204:
                    acknowledged.add(mark)
                if blind or status == 204 or asked[409] > 40 * CLIENTS * EACH:
                    break

    with serving(tmp_path, target, tmp_path / "lake", "--iceberg") as served:
        headers = {"Authorization": f"Bearer {served.token}"}
        client = Client(served.url, headers)
        client.post("/v1/namespaces", {"namespace": ["shop"]})
        for name in TABLES:
            create_table(client, name)
        threads = [
            threading.Thread(target=one_client, args=(Client(served.url, headers), number)) for number in range(CLIENTS)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        tables = [load(client, name) for name in TABLES]

    assert asked[204] == len(acknowledged)
    assert sum(mark.endswith(("1", "3", "5", "7", "9")) for mark in acknowledged) == CLIENTS * EACH // 2
    for table in tables:
        metadata = table["metadata"]
        assert {key for key in metadata["properties"] if key.startswith("mark-")} == acknowledged
        assert len(metadata["snapshots"]) == CLIENTS * EACH // 2
        assert json.loads(Path(unquote(urlparse(table["metadata-location"]).path)).read_bytes()) == metadata
    left, right = ({one["snapshot-id"] for one in table["metadata"]["snapshots"]} for table in tables)
    assert left == right
