"""What a transaction has seen and staged at one endpoint holds at the next one, whatever others do to its tables."""

from __future__ import annotations

import time
import uuid
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from deltalakedb.exceptions import CommitFailedError, GoneError
from deltalakedb.serve import LocalEndpoint
from deltalakedb.spark.endpoint import EndpointClient
from deltalakedb.store.open_transactions import StagedCall, record_calls
from tests.serve.conftest import StartEndpoint
from tests.serve.wire import append, ask, make_table, paths_in, versions


def client_of(endpoint: LocalEndpoint) -> EndpointClient:
    return EndpointClient(endpoint.url, endpoint.token, retry_seconds=2)


def txn_id_of(txn: str) -> str:
    return str(uuid.UUID(txn[1:]))


@pytest.mark.parametrize(("how", "purge"), [("later", True), ("list", True), ("touch", False), ("plan", False)])
def test_a_table_that_others_drop_stays_in_the_transaction_and_conflicts(
    start: StartEndpoint, how: str, purge: bool
) -> None:
    endpoint = start()
    left, right = client_of(endpoint), client_of(start())
    source, target = make_table(left, "sales.source", "a.parquet"), make_table(left, "sales.target")
    tx = left.begin().txn
    if how == "list":
        left.log(source, txn=tx)
    elif how == "touch":
        left.touch(f"{source}/a.parquet", tx)
    elif how == "plan":
        query, filters = {"path": source, "txn": tx, "version": 1}, b'{"filters": [{"k": "notnull", "c": ["id"]}]}'
        assert ask(endpoint.url, endpoint.token, "POST", "/plan", query, filters).status == 200
    left.drop("sales.source", purge)
    assert right.name("sales.source", txn=tx).path == f"dldb://{tx}{source}"
    assert versions(right, source, txn=tx) == [0, 1]
    assert paths_in(right.read_commit(source, 1, txn=tx)) == ["a.parquet"]
    right.write_commit(target, 1, append("sum.parquet"), txn=tx)
    with pytest.raises(CommitFailedError, match=r"sales\.source"):
        right.commit(tx)
    assert versions(left, target) == [0]


def test_a_transaction_that_cannot_be_repeated_is_aborted_by_any_endpoint(start: StartEndpoint) -> None:
    """By its client, and for its silence: here because a later release has recorded a call of it."""
    holder = start()
    left, right = client_of(holder), client_of(start())
    path = make_table(left)
    begun = [left.begin().txn for _ in range(2)]
    for number, tx in enumerate(begun):
        left.write_commit(path, 1, append(f"{number}.parquet"), txn=tx)
        with holder.catalog.store.write() as conn:
            assert record_calls(conn, txn_id_of(tx), 1, [StagedCall("of-a-later-release", ())])
    with pytest.raises(GoneError, match="cannot be continued by this endpoint"):
        right.log(path, txn=begun[0])
    assert right.abort(begun[0])
    start(serve_txn_timeout=0.5)
    deadline = time.monotonic() + 30
    while holder.catalog.sql("select * from dl_open_transactions where stage <> 'failed'").num_rows:
        assert time.monotonic() < deadline, "a silent transaction stays open"
        time.sleep(0.05)
    for client, tx in ((left, begun[0]), (right, begun[1])):
        with pytest.raises(GoneError, match="nothing of it was committed"):
            client.commit(tx)
    assert holder.catalog.sql("select * from dl_staged_calls").num_rows == 0
    assert versions(left, path) == [0]


@pytest.mark.parametrize("how", ["held", "renamed", "dropped"])
def test_a_transaction_that_has_lost_its_lock_goes_on(start: StartEndpoint, how: str) -> None:
    holder = start()
    left, right = client_of(holder), client_of(start())
    path, other = make_table(left), make_table(left, "sales.other")
    tx = left.begin(lock=["sales.orders"]).txn
    left.write_commit(other, 1, append("a.parquet"), txn=tx)
    with holder.catalog.store.write() as conn:  # as if it had expired
        conn.run("release_leases_of", holder=txn_id_of(tx))
    if how == "held":
        held = left.begin(lock=["sales.orders"]).txn
    elif how == "renamed":
        left.rename("sales.orders", "sales.renamed")
    else:
        left.drop("sales.orders")
    assert versions(right, path, txn=tx) == [0]
    assert right.abort(tx)
    if how == "held":
        assert holder.catalog.sql("select holder from dl_leases where lease like 'intent:%'").to_pylist() == [
            {"holder": txn_id_of(held)}
        ]


def test_a_sign_of_life_is_only_the_users_own(start: StartEndpoint) -> None:
    ours, theirs = start(actor="ada"), start(actor="eve")
    tx = client_of(ours).begin().txn
    seen = ours.catalog.sql("select seen_ms from dl_open_transactions").to_pylist()
    time.sleep(0.01)
    with pytest.raises(GoneError):
        client_of(theirs).alive(tx)
    assert ours.catalog.sql("select seen_ms from dl_open_transactions").to_pylist() == seen


@pytest.mark.parametrize("by", ["the transaction", "others"])
def test_a_table_that_becomes_managed_meanwhile_has_the_same_versions_at_any_endpoint(
    start: StartEndpoint, tmp_path: Path, by: str
) -> None:
    folder = tmp_path / "files"
    write_deltalake(folder, pa.table({"id": [1]}))
    left, right = client_of(start()), client_of(start())
    path = left.reserve("sales.files", location=str(folder), attach=True).path.removeprefix("dldb://")
    assert versions(left, path) == [0]
    tx = left.begin().txn
    assert versions(left, path, txn=tx) == [0]
    if by == "others":
        with pytest.raises(CommitFailedError):  # the fence is version 1
            left.write_commit(path, 1, append("others.parquet"))
        left.write_commit(path, 2, append("others.parquet"))
    assert versions(right, path, txn=tx) == [0]
    with pytest.raises(CommitFailedError):
        left.write_commit(path, 1, append("a.parquet"), txn=tx)
    pinned = versions(left, path, txn=tx)
    left.write_commit(path, len(pinned), append("a.parquet"), txn=tx)
    later = len(versions(right, path))
    right.write_commit(path, later, append("later.parquet"))
    assert versions(right, path, txn=tx) == [*pinned, len(pinned)]
    right.write_commit(path, len(pinned) + 1, append("b.parquet"), txn=tx)
    assert left.commit(tx).versions == {"sales.files": later + 2}
