"""One transaction at several endpoints: each of them goes on with it, and exactly one end of it holds."""

from __future__ import annotations

import threading
import uuid
from concurrent.futures import ThreadPoolExecutor

import pytest

from deltalakedb.exceptions import CommitFailedError, GoneError
from deltalakedb.spark.endpoint import EndpointClient
from tests.serve.conftest import StartEndpoint
from tests.serve.wire import append, ask, first_commit, make_table, paths_in, versions


def test_what_another_endpoint_has_aborted_cannot_be_committed_by_the_one_that_began_it(start: StartEndpoint) -> None:
    holder, other = (EndpointClient(one.url, one.token) for one in (start(), start()))
    path = make_table(holder)
    tx = holder.begin().txn
    holder.write_commit(path, 1, append("a.parquet"), txn=tx)
    assert other.abort(tx)
    for client in (holder, other):
        with pytest.raises(GoneError, match="nothing of it was committed"):
            client.commit(tx)
        with pytest.raises(GoneError):
            client.write_commit(path, 2, append("b.parquet"), txn=tx)
    assert versions(holder, path) == [0]


def test_a_transaction_goes_on_at_any_endpoint(start: StartEndpoint) -> None:
    """Each call goes to the other one of two endpoints, while a third writer commits."""
    clients = [EndpointClient(one.url, one.token) for one in (start(), start())]
    left, right = clients
    orders, lines = make_table(left, "sales.orders", "a.parquet"), make_table(right, "sales.lines", "b.parquet")
    request = str(uuid.uuid4())
    tx = left.begin(token=request).txn
    assert right.begin(token=request).txn == tx
    left.write_commit(orders, 2, append("by-others.parquet"))
    for turn in range(4):
        client = clients[turn % 2]
        assert versions(client, orders, txn=tx) == [*range(turn + 2)]
        assert client.write_commit(orders, turn + 2, append(f"{turn}.parquet"), txn=tx) == turn + 2
        assert paths_in(clients[(turn + 1) % 2].read_commit(orders, turn + 2, txn=tx)) == [f"{turn}.parquet"]
    new = left.reserve("sales.new", txn=tx).path.removeprefix(f"dldb://{tx}")
    right.write_commit(new, 0, first_commit(), txn=tx)
    assert left.name("sales.new", txn=tx).path == f"dldb://{tx}{new}"
    assert versions(right, lines, txn=tx) == [0, 1]
    assert right.commit(tx).versions == {"sales.orders": 6, "sales.new": 0}
    assert left.commit(tx).versions == {"sales.orders": 6, "sales.new": 0}
    assert versions(left, orders) == [*range(7)]


@pytest.mark.parametrize("how", ["list", "touch", "plan"])
def test_what_was_read_at_one_endpoint_conflicts_at_another(start: StartEndpoint, how: str) -> None:
    endpoint = start()
    left, right = (EndpointClient(one.url, one.token) for one in (endpoint, start()))
    source, target = make_table(left, "sales.source", "a.parquet"), make_table(left, "sales.target")
    tx = left.begin().txn
    if how == "list":
        left.log(source, txn=tx)
    elif how == "touch":
        left.touch(f"{source}/a.parquet", tx)
    else:
        query, filters = {"path": source, "txn": tx, "version": 1}, b'{"filters": [{"k": "notnull", "c": ["id"]}]}'
        assert ask(endpoint.url, endpoint.token, "POST", "/plan", query, filters).status == 200
    right.write_commit(target, 1, append("sum.parquet"), txn=tx)
    right.write_commit(source, 2, append("b.parquet"))
    with pytest.raises(CommitFailedError, match=r"sales\.source"):
        right.commit(tx)
    with pytest.raises(CommitFailedError, match=r"sales\.source"):
        left.commit(tx)
    assert versions(left, target) == [0]


def test_of_two_endpoints_that_commit_one_transaction_both_tell_its_versions(start: StartEndpoint) -> None:
    clients = [EndpointClient(one.url, one.token) for one in (start(), start())]
    holder = clients[0]
    path = make_table(holder)

    def commit(client: EndpointClient, tx: str, barrier: threading.Barrier) -> dict[str, int]:
        barrier.wait()
        return client.commit(tx).versions

    with ThreadPoolExecutor(2) as pool:
        for number in range(1, 8):
            tx = holder.begin().txn
            holder.write_commit(path, number, append(f"{number}.parquet"), txn=tx)
            told = list(pool.map(commit, clients, [tx] * 2, [threading.Barrier(2)] * 2))
            assert told == [{"sales.orders": number}] * 2
            assert versions(holder, path)[-1] == number


def test_of_a_commit_and_an_abort_at_two_endpoints_exactly_one_holds(start: StartEndpoint) -> None:
    clients = [EndpointClient(one.url, one.token) for one in (start(), start())]
    path = make_table(clients[0])

    def end(client: EndpointClient, tx: str, barrier: threading.Barrier) -> bool:
        """Whether the transaction is committed, as this client is told."""
        barrier.wait()
        if client is clients[1]:
            return not client.abort(tx)
        try:
            return bool(client.commit(tx).versions)
        except GoneError:
            return False

    with ThreadPoolExecutor(2) as pool:
        for number in range(1, 9):
            head = versions(clients[0], path)[-1]
            tx = clients[number % 2].begin().txn
            clients[0].write_commit(path, head + 1, append(f"{number}.parquet"), txn=tx)
            told = list(pool.map(end, clients, [tx] * 2, [threading.Barrier(2)] * 2))
            committed = versions(clients[0], path)[-1] == head + 1
            assert told == [committed] * 2


def test_a_transaction_is_only_its_own_users(start: StartEndpoint) -> None:
    ours, theirs = start(actor="ada"), start(actor="eve")
    client, other = EndpointClient(ours.url, ours.token), EndpointClient(theirs.url, theirs.token)
    path = make_table(client)
    tx = client.begin().txn
    client.write_commit(path, 1, append("a.parquet"), txn=tx)
    for attempt in (other.commit, other.abort, other.alive):
        with pytest.raises(GoneError, match="it was never begun, or it is over"):
            attempt(tx)
    with pytest.raises(GoneError):
        other.write_commit(path, 2, append("b.parquet"), txn=tx)
    assert client.commit(tx).versions == {"sales.orders": 1}
