"""Transactions over HTTP: pinned, staged, committed at once, aborted, timed out, and settled after a restart."""

from __future__ import annotations

import logging
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from deltalakedb.exceptions import (
    CommitFailedError,
    ConcurrentAppendError,
    ConcurrentTransactionError,
    ConfigError,
    DeltaError,
    GoneError,
    TableNotFoundError,
    VersionTakenError,
)
from deltalakedb.serve import LocalEndpoint
from deltalakedb.spark.endpoint import EndpointClient
from tests.serve.conftest import StartEndpoint
from tests.serve.wire import append, ask, delete, first_commit, make_table, paths_in, versions


def test_a_transaction_sees_its_own_commits_and_nobody_else_does(client: EndpointClient) -> None:
    orders, lines = make_table(client, "sales.orders"), make_table(client, "sales.lines")
    tx = client.begin("both at once").txn
    assert client.name("sales.orders", txn=tx).path == f"dldb://{tx}{orders}"
    for path in (orders, lines):
        assert client.write_commit(path, 1, append("a.parquet"), txn=tx) == 1
        assert client.write_commit(path, 2, append("b.parquet"), txn=tx) == 2
        assert versions(client, path, txn=tx) == [0, 1, 2]
        assert paths_in(client.read_commit(path, 2, txn=tx)) == ["b.parquet"]
        assert versions(client, path) == [0]
    done = client.commit(tx)
    assert done.versions == {"sales.orders": 2, "sales.lines": 2}
    assert versions(client, orders) == versions(client, lines) == [0, 1, 2]


def test_the_event_of_staged_commits_counts_their_files_and_bytes(
    client: EndpointClient, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="deltalakedb.events")
    path = make_table(client, "sales.orders", "a.parquet", "b.parquet")
    tx = client.begin().txn
    client.write_commit(path, 2, delete("a.parquet"), txn=tx)
    client.write_commit(path, 3, append("c.parquet"), txn=tx)
    client.commit(tx)
    events = [record.__dict__["event"] for record in caplog.records if "event" in record.__dict__]
    _, appended, transaction = [event for event in events if event["event"] == "commit"]
    assert (appended["num_added_files"], appended["added_bytes"]) == (2, 200)
    assert (transaction["num_added_files"], transaction["added_bytes"]) == (1, 100)
    # Spark does not have to say how large a file was that it removes.
    removed = [transaction[name] for name in ("num_removed_files", "removed_bytes", "num_removed_without_size")]
    assert removed == [1, 0, 1]
    assert [one["num_removed_files"] for one in transaction["versions"]] == [1, 0]


def test_staged_commits_are_listed_in_the_length_in_which_they_are_served(client: EndpointClient) -> None:
    path, tx = make_table(client, "sales.orders", "a.parquet"), client.begin().txn
    client.write_commit(path, 2, append("b.parquet"), txn=tx)
    listed = {entry.version: entry.size for entry in client.log(path, txn=tx)}
    assert listed == {version: len(client.read_commit(path, version, txn=tx)) for version in (0, 1, 2)}


def test_heads_are_pinned_when_the_transaction_begins(client: EndpointClient) -> None:
    path = make_table(client)
    tx = client.begin().txn
    client.write_commit(path, 1, append("later.parquet"))
    assert versions(client, path, txn=tx) == [0]


def test_a_blind_append_is_rebased_and_a_change_of_what_was_read_is_a_conflict(client: EndpointClient) -> None:
    path = make_table(client, "sales.orders", "a.parquet")
    blind, reader = client.begin().txn, client.begin().txn
    client.write_commit(path, 2, append("blind.parquet"), txn=blind)
    client.write_commit(path, 2, delete("a.parquet"), txn=reader)
    client.write_commit(path, 2, append("winner.parquet"))
    assert client.commit(blind).versions == {"sales.orders": 3}
    with pytest.raises(ConcurrentAppendError, match=r"sales\.orders"):
        client.commit(reader)
    with pytest.raises(ConcurrentAppendError, match=r"sales\.orders"):
        client.commit(reader)
    with pytest.raises(GoneError, match="has failed"):
        client.alive(reader)


def test_a_data_file_that_was_opened_makes_its_table_read(client: EndpointClient) -> None:
    source, target = make_table(client, "sales.source", "a.parquet"), make_table(client, "sales.target")
    tx = client.begin().txn
    assert client.touch(f"{source}/part=1/a.parquet", tx) == source
    with pytest.raises(TableNotFoundError, match="no table of this catalog"):
        client.touch("/file/somewhere/else.parquet", tx)
    client.write_commit(target, 1, append("sum.parquet"), txn=tx)
    client.write_commit(source, 2, append("b.parquet"))
    with pytest.raises(ConcurrentAppendError, match=r"sales\.source"):
        client.commit(tx)


def test_a_table_that_was_only_listed_counts_as_read(client: EndpointClient) -> None:
    source, target = make_table(client, "sales.source", "a.parquet"), make_table(client, "sales.target")
    tx = client.begin().txn
    client.log(source, txn=tx)
    client.write_commit(target, 1, append("sum.parquet"), txn=tx)
    client.write_commit(source, 2, append("b.parquet"))
    with pytest.raises(CommitFailedError, match=r"sales\.source"):
        client.commit(tx)


def test_a_table_is_created_inside_a_transaction(client: EndpointClient, warehouse: Path) -> None:
    tx = client.begin().txn
    with pytest.raises(TableNotFoundError):
        client.name("sales.new", txn=tx)
    path = client.reserve("sales.new", txn=tx).path.removeprefix(f"dldb://{tx}")
    assert client.log(path, txn=tx) == []
    client.write_commit(path, 0, first_commit(), txn=tx)
    client.write_commit(path, 1, append("a.parquet"), txn=tx)
    assert client.name("sales.new", txn=tx).path == f"dldb://{tx}{path}"
    with pytest.raises(TableNotFoundError):
        client.name("sales.new")
    assert not (warehouse / "sales/new/_delta_log").exists()
    assert client.commit(tx).versions == {"sales.new": 1}
    assert client.name("sales.new").path == f"dldb://{path}"


def test_a_staged_version_that_exists_is_taken_and_a_repeat_is_not(client: EndpointClient) -> None:
    path, tx, token = make_table(client), client.begin().txn, str(uuid.uuid4())
    lines = append("a.parquet")
    assert [client.write_commit(path, 1, lines, txn=tx, token=token) for _ in range(2)] == [1, 1]
    with pytest.raises(VersionTakenError):
        client.write_commit(path, 1, append("b.parquet"), txn=tx)
    assert client.commit(tx).versions == {"sales.orders": 1}


def test_commit_and_abort_can_be_repeated(client: EndpointClient) -> None:
    path = make_table(client)
    committed, aborted = client.begin(), client.begin().txn
    for tx in (committed.txn, aborted):
        client.write_commit(path, 1, append(f"{tx}.parquet"), txn=tx)
    assert [client.commit(committed.txn) for _ in range(3)] == [client.commit(committed.txn)] * 3
    assert client.commit(committed.txn).txn_id == committed.txn_id
    assert not client.abort(committed.txn), "it is too late"
    assert client.abort(aborted)
    assert client.abort(aborted)
    with pytest.raises(GoneError, match="was aborted"):
        client.commit(aborted)
    assert versions(client, path) == [0, 1]


def test_a_transaction_that_is_over_answers_410_to_everything(client: EndpointClient, endpoint: LocalEndpoint) -> None:
    path = make_table(client)
    over = client.begin().txn
    client.abort(over)
    for method, route in [("GET", "/log"), ("GET", "/commit"), ("POST", "/commit"), ("GET", "/crc"), ("POST", "/read")]:
        query = {"path": path, "txn": over, "version": 0, "id": "x"}
        answer = ask(endpoint.url, endpoint.token, method, route, query)
        assert (route, answer.status, answer.json["error"]) == (route, 410, "GoneError")
    for txn in ("nonsense", "t" + "x" * 32, "t" + uuid.uuid4().hex):
        with pytest.raises(GoneError):
            client.alive(txn)
        with pytest.raises(GoneError):
            client.commit(txn)
    assert client.abort("t" + uuid.uuid4().hex)


def test_threads_of_one_transaction_take_turns(client: EndpointClient) -> None:
    paths = [make_table(client, f"sales.t{number}") for number in range(8)]
    tx = client.begin().txn

    def work(path: str) -> list[int]:
        for version in range(1, 6):
            client.write_commit(path, version, append(f"{version}.parquet"), txn=tx)
            client.log(path, txn=tx)
        return versions(client, path, txn=tx)

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(work, paths)) == [[0, 1, 2, 3, 4, 5]] * 8
    assert set(client.commit(tx).versions.values()) == {5}


def test_two_commits_of_one_transaction_at_once_tell_the_same(client: EndpointClient) -> None:
    path, tx = make_table(client), client.begin().txn
    client.write_commit(path, 1, append("a.parquet"), txn=tx)
    with ThreadPoolExecutor(4) as pool:
        done = list(pool.map(lambda _: client.commit(tx).versions, range(4)))
    assert done == [{"sales.orders": 1}] * 4
    assert versions(client, path) == [0, 1]


def test_a_transaction_for_some_tables_knows_no_others(client: EndpointClient) -> None:
    make_table(client, "sales.orders")
    make_table(client, "sales.lines")
    tx = client.begin(tables=["sales.orders"]).txn
    assert client.name("sales.orders", txn=tx).name == "sales.orders"
    with pytest.raises(DeltaError, match=r"begun for sales\.orders only"):
        client.name("sales.lines", txn=tx)


def test_a_begin_that_is_sent_again_is_the_same_transaction(client: EndpointClient, endpoint: LocalEndpoint) -> None:
    make_table(client)
    body = b'{"lock": ["sales.orders"]}'
    begun = [ask(endpoint.url, endpoint.token, "POST", "/txn", {"id": "one"}, body).json for _ in range(2)]
    assert begun[0] == begun[1], "else the second would wait for the lock of the first"
    client.abort(begun[0]["txn"])
    assert ask(endpoint.url, endpoint.token, "POST", "/txn", {"id": "one"}, body).json != begun[0]


def test_a_locked_table_keeps_rewrites_away_until_the_transaction_ends(start: StartEndpoint) -> None:
    endpoint = start(concurrency_lock_timeout=0.5)
    client = EndpointClient(endpoint.url, endpoint.token)
    path = make_table(client, "sales.orders", "a.parquet")
    tx = client.begin(lock=["sales.orders"]).txn
    with pytest.raises(CommitFailedError, match="is locked by"):
        client.write_commit(path, 2, delete("a.parquet"))
    client.abort(tx)
    assert client.write_commit(path, 2, delete("a.parquet")) == 2


def test_progress_of_an_application_is_noted_in_the_last_version_of_each_table(client: EndpointClient) -> None:
    orders, lines = make_table(client, "sales.orders"), make_table(client, "sales.lines")
    tx = client.begin().txn
    assert client.app_version("sales.orders", "query-1", tx) is None
    assert client.app_version("sales.missing", "query-1", tx) is None
    client.write_commit(orders, 1, append("a.parquet"), txn=tx)
    done = client.commit(tx, {"sales.orders": ("query-1", 7), "sales.lines": ("query-1", 7)})
    assert done.versions == {"sales.orders": 1, "sales.lines": 1}
    again = client.begin().txn
    assert client.app_version("sales.orders", "query-1", again) == 7
    assert client.app_version("sales.lines", "query-1", again) == 7
    assert b'"txn":{"appId":"query-1","version":7' in client.read_commit(lines, 1)
    with pytest.raises(TableNotFoundError, match=r"sales\.missing"):
        client.commit(again, {"sales.missing": ("query-1", 8)})
    with pytest.raises(TableNotFoundError, match=r"sales\.missing"):
        client.commit(again)
    with pytest.raises(GoneError, match="has failed"):
        client.alive(again)


def test_of_two_runs_of_one_batch_only_one_commits(client: EndpointClient) -> None:
    path = make_table(client)
    first, second = client.begin().txn, client.begin().txn
    for tx in (first, second):
        client.write_commit(path, 1, append(f"{tx}.parquet"), txn=tx)
    client.commit(first, {"sales.orders": ("query-1", 0)})
    with pytest.raises(ConcurrentTransactionError):
        client.commit(second, {"sales.orders": ("query-1", 0)})


def test_bodies_that_are_no_json_are_refused(endpoint: LocalEndpoint, client: EndpointClient) -> None:
    for body in (b"[]", b"{", b'{"lock": "sales.orders"}', b'{"tables": [1]}'):
        answer = ask(endpoint.url, endpoint.token, "POST", "/txn", {}, body)
        assert (body, answer.status) == (body, 422)
    tx = client.begin().txn
    for body in (b'{"app_versions": [1]}', b'{"app_versions": {"a.b": [1, 2]}}'):
        assert ask(endpoint.url, endpoint.token, "POST", f"/txn/{tx}/commit", {}, body).status == 422
    with pytest.raises(ConfigError):
        client.begin(lock=["sales.orders"] * 100_000)
    assert client.commit(tx).versions == {}


# -- time passing


def test_without_a_sign_of_life_a_transaction_is_aborted(start: StartEndpoint) -> None:
    endpoint = start(serve_txn_timeout=0.8)
    client = EndpointClient(endpoint.url, endpoint.token)
    path = make_table(client)
    silent, lively = client.begin().txn, client.begin().txn
    client.write_commit(path, 1, append("a.parquet"), txn=silent)
    for _ in range(20):
        client.alive(lively)
        time.sleep(0.1)
    with pytest.raises(GoneError, match=r"no sign of life for 0\.8 seconds"):
        client.commit(silent)
    assert client.commit(lively).versions == {}
    assert versions(client, path) == [0]


# -- the endpoint ends


def test_a_transaction_that_was_committed_before_a_restart_is_still_told_so(start: StartEndpoint) -> None:
    endpoint = start()
    client = EndpointClient(endpoint.url, endpoint.token)
    orders, lines = make_table(client, "sales.orders"), make_table(client, "sales.lines")
    tx = client.begin().txn
    for path in (orders, lines):
        client.write_commit(path, 1, append("a.parquet"), txn=tx)
    done = client.commit(tx)
    endpoint.close()
    endpoint = start()
    client = EndpointClient(endpoint.url, endpoint.token)
    assert client.commit(tx) == done
    assert not client.abort(tx)
    with pytest.raises(GoneError, match="takes no more statements"):
        client.alive(tx)


def test_a_transaction_that_was_open_when_its_endpoint_ended_is_gone_for_good(start: StartEndpoint) -> None:
    endpoint = start()
    client = EndpointClient(endpoint.url, endpoint.token)
    path = make_table(client)
    tx = client.begin().txn
    client.write_commit(path, 1, append("a.parquet"), txn=tx)
    endpoint.close()
    endpoint = start()
    client = EndpointClient(endpoint.url, endpoint.token)
    for _ in range(2):
        with pytest.raises(GoneError, match="nothing of it was committed"):
            client.commit(tx)
    assert versions(client, path) == [0]


def test_many_transactions_at_once_are_in_both_tables_or_in_none(
    client: EndpointClient, endpoint: LocalEndpoint
) -> None:
    paths = [make_table(client, name) for name in ("bank.left", "bank.right")]

    def work(number: int) -> list[str]:
        kept = []
        with EndpointClient(endpoint.url, endpoint.token, retry_seconds=60) as mine:
            for turn in range(4):
                tx = mine.begin(f"{number}/{turn}").txn
                for path in paths:
                    head = versions(mine, path, txn=tx)[-1]
                    mine.write_commit(path, head + 1, append(f"{number}-{turn}.parquet"), txn=tx)
                if (number + turn) % 3 == 0:
                    assert mine.abort(tx)
                else:
                    assert set(mine.commit(tx).versions) == {"bank.left", "bank.right"}
                    kept.append(f"{number}-{turn}.parquet")
        return kept

    with ThreadPoolExecutor(12) as pool:
        kept = sorted(name for names in pool.map(work, range(12)) for name in names)
    for path in paths:
        seen = versions(client, path)
        assert seen == list(range(len(kept) + 1))
        assert sorted(name for version in seen for name in paths_in(client.read_commit(path, version))) == kept
