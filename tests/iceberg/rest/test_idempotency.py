"""Requests with an idempotency key take effect once, whoever repeats them, and however the first try ended."""

from __future__ import annotations

import threading
import time
import uuid
from pathlib import Path

import pytest

from deltalakedb import connect
from deltalakedb.iceberg.catalog import IcebergCatalog
from deltalakedb.iceberg.statements import TableChange
from deltalakedb.runtime import steps
from deltalakedb.serve.server import Endpoint
from deltalakedb.store.idempotency import Claim, claim_key, delete_expired_keys
from deltalakedb.store.names import TableName
from tests.fixtures.catalogs import NewCatalog
from tests.iceberg.rest.wire import (
    SCHEMA,
    VIEW,
    Answer,
    Client,
    add_snapshot,
    change_of,
    create_table,
    set_properties,
    table_path,
)

ORDERS = table_path("orders")
UNPROCESSABLE = (422, "UnprocessableEntityException")


def key() -> dict[str, str]:
    return {"Idempotency-Key": str(uuid.uuid4())}


def rows(endpoint: Endpoint) -> list[dict[str, object]]:
    return list(endpoint.catalog.sql("select answer_status, answer from dl_idempotency_keys").to_pylist())


def test_a_repeated_commit_answers_the_state_and_commits_nothing(shop: Client) -> None:
    created = create_table(shop)
    headers, body = key(), add_snapshot(created, 7)
    first = shop.post(ORDERS, body, headers=headers)
    again = shop.post(ORDERS, body, headers=headers)
    assert (first.status, again.status) == (200, 200)
    assert again.json["metadata"] == first.json["metadata"]
    assert again.headers["etag"] == first.headers["etag"]
    assert shop.post(ORDERS, body, headers=key()).error == (409, "CommitFailedException")


def test_a_repeat_tells_the_newest_state(shop: Client) -> None:
    created = create_table(shop)
    headers, body = key(), add_snapshot(created, 7)
    first = shop.post(ORDERS, body, headers=headers)
    newer = shop.post(ORDERS, add_snapshot(first.json, 8))
    assert shop.post(ORDERS, body, headers=headers).json["metadata"] == newer.json["metadata"]


def test_the_state_of_a_table_is_not_stored_with_the_key(shop: Client, endpoint: Endpoint) -> None:
    created = create_table(shop)
    shop.post(ORDERS, add_snapshot(created, 7), headers=key())
    assert rows(endpoint) == [{"answer_status": 200, "answer": '{"loads": ["shop", "orders"]}'}]


def test_refusals_that_would_come_again_are_repeated_too(shop: Client) -> None:
    headers, body = key(), {"name": "orders", "schema": SCHEMA}
    create_table(shop)
    taken = shop.post("/v1/namespaces/shop/tables", body, headers=headers)
    assert taken.error == (409, "AlreadyExistsException")
    assert shop.delete(ORDERS).status == 204
    assert shop.post("/v1/namespaces/shop/tables", body, headers=headers).json == taken.json
    assert shop.head(ORDERS).status == 404


def test_a_repeated_drop_and_creation_take_effect_once(shop: Client) -> None:
    create_headers, body = key(), {"name": "orders", "schema": SCHEMA}
    created = shop.post("/v1/namespaces/shop/tables", body, headers=create_headers)
    repeated = shop.post("/v1/namespaces/shop/tables", body, headers=create_headers)
    assert repeated.json == created.json
    drop_headers = key()
    assert shop.delete(ORDERS, headers=drop_headers).status == 204
    create_table(shop)
    assert shop.delete(ORDERS, headers=drop_headers).status == 204
    assert shop.head(ORDERS).status == 204


def test_every_change_takes_a_key(shop: Client) -> None:
    create_table(shop)
    location = shop.get(ORDERS).json["metadata-location"]
    changes = [
        ("/v1/namespaces", {"namespace": ["new"]}),
        ("/v1/namespaces/new/properties", {"updates": {"a": "1"}}),
        ("/v1/namespaces/shop/views", VIEW),
        (
            "/v1/tables/rename",
            {
                "source": {"namespace": ["shop"], "name": "orders"},
                "destination": {"namespace": ["new"], "name": "moved"},
            },
        ),
        (f"{table_path('moved', 'new')}/unregister", {}),
        ("/v1/namespaces/new/register", {"name": "again", "metadata-location": location}),
        (
            "/v1/transactions/commit",
            {"table-changes": [change_of("again", {"requirements": [], "updates": []}, "new")]},
        ),
    ]
    for path, body in changes:
        headers = key()
        first = shop.post(path, body, headers=headers)
        assert first.status in (200, 204), (path, first.body)
        again = shop.post(path, body, headers=headers)
        assert (again.status, again.body) == (first.status, first.body), path


def test_a_key_of_another_request_is_refused(shop: Client) -> None:
    created = create_table(shop)
    headers = key()
    assert shop.post(ORDERS, set_properties(created, a="1"), headers=headers).status == 200
    other_body = shop.post(ORDERS, set_properties(created, a="2"), headers=headers)
    other_path = shop.post("/v1/namespaces", {"namespace": ["new"]}, headers=headers)
    other_method = shop.delete(ORDERS, headers=headers)
    assert other_body.error == other_path.error == other_method.error == UNPROCESSABLE
    assert shop.get(ORDERS).json["metadata"]["properties"]["a"] == "1"
    assert shop.head("/v1/namespaces/new").status == 404


def test_a_key_is_a_uuid_of_any_version_and_case(shop: Client) -> None:
    for number, good in enumerate([str(uuid.uuid4()), "017F22E2-79B0-7CC3-98C4-DC0C0C07398F"]):
        body = {"namespace": [f"n{number}"]}
        assert shop.post("/v1/namespaces", body, headers={"Idempotency-Key": good}).status == 200
        assert shop.post("/v1/namespaces", body, headers={"Idempotency-Key": good.lower()}).status == 200
    for bad in ("x", "1" * 36, str(uuid.uuid4())[:-1]):
        refused = shop.post("/v1/namespaces", {"namespace": ["x"]}, headers={"Idempotency-Key": bad})
        assert refused.error == (400, "BadRequestException")


def test_a_reading_request_ignores_its_key(shop: Client, endpoint: Endpoint) -> None:
    create_table(shop)
    headers = key()
    assert shop.get(ORDERS, headers=headers).status == 200
    assert shop.post(f"{ORDERS}/metrics", {"report-type": "scan-report"}, headers=headers).status == 204
    assert rows(endpoint) == []


def test_a_body_that_is_malformed_leaves_the_key_free(shop: Client, endpoint: Endpoint) -> None:
    headers = key()
    assert shop.post("/v1/namespaces", b"{", headers=headers).error == (400, "BadRequestException")
    assert rows(endpoint) == []
    assert shop.post("/v1/namespaces", {"namespace": ["new"]}, headers=headers).status == 200


def test_the_same_request_sent_many_times_at_once_takes_effect_once(shop: Client) -> None:
    created = create_table(shop)
    headers, body = key(), add_snapshot(created, 7)
    answers: list[Answer] = []

    def send() -> None:
        answers.append(shop.post(ORDERS, body, headers=headers))

    senders = [threading.Thread(target=send) for _ in range(8)]
    for sender in senders:
        sender.start()
    for sender in senders:
        sender.join()
    assert [answer.status for answer in answers] == [200] * 8
    assert len(shop.get(ORDERS).json["metadata"]["snapshots"]) == 1


def test_a_repeat_that_finds_its_own_commit_on_the_table_succeeds(shop: Client, endpoint: Endpoint) -> None:
    """It begins before the first try commits, and sees the table only after that: its requirement fails then."""
    created = create_table(shop)
    body, answers = add_snapshot(created, 7), []
    waiting, may_commit = threading.Event(), threading.Event()
    stopped: list[str] = []

    def pause(step: str) -> None:
        if step == "commit.begun" and not stopped:
            stopped.append(step)
            waiting.set()
            may_commit.wait(20)

    def commit(token: str) -> None:
        change = TableChange(TableName("shop", "orders"), body["requirements"], body["updates"])
        answers.append(service.commit([change], token=token)[0].metadata["current-snapshot-id"])

    service = IcebergCatalog(endpoint.catalog)
    tries = [threading.Thread(target=commit, args=("one request",)) for _ in range(2)]
    steps.observe(pause)
    tries[0].start()
    assert waiting.wait(20)
    tries[1].start()
    time.sleep(0.3)
    may_commit.set()
    for one in tries:
        one.join()
    assert answers == [7, 7]
    assert shop.get(ORDERS).json["metadata"]["snapshots"][0]["snapshot-id"] == 7
    assert endpoint.catalog.sql("select count(*) as n from dl_table_versions").to_pylist() == [{"n": 2}]


def test_another_endpoint_of_the_same_catalog_repeats_the_answer(shop: Client, tmp_path: Path, warehouse: Path) -> None:
    created = create_table(shop)
    headers, body = key(), add_snapshot(created, 7)
    first = shop.post(ORDERS, body, headers=headers)
    with Endpoint(tmp_path / "catalog.db", token=None, bridge=False, iceberg=True, warehouse=str(warehouse)) as other:
        assert Client(other.url).post(ORDERS, body, headers=headers).json["metadata"] == first.json["metadata"]


def claim_like(endpoint: Endpoint, headers: dict[str, str], *, age_ms: int) -> None:
    """Leave the key as a process does that died `age_ms` ago while it answered the request."""
    with endpoint.catalog.store.write() as conn:
        conn.sql(
            "update dl_idempotency_keys set answer_status = null, answer = null, created_at_ms = created_at_ms - :age "
            "where idempotency_key = :key returning idempotency_key",
            age=age_ms,
            key=headers["Idempotency-Key"],
        )


def test_a_commit_whose_first_try_died_after_it_is_found_and_not_repeated(shop: Client, endpoint: Endpoint) -> None:
    created = create_table(shop)
    headers, body = key(), add_snapshot(created, 7)
    first = shop.post(ORDERS, body, headers=headers)
    claim_like(endpoint, headers, age_ms=5_000)
    again = shop.post(ORDERS, body, headers=headers)
    assert again.status == 200, again.body
    assert again.json["metadata"] == first.json["metadata"]
    assert rows(endpoint)[0]["answer_status"] == 200


def test_a_creation_whose_first_try_died_is_told_as_unknown(shop: Client, endpoint: Endpoint) -> None:
    headers, body = key(), {"name": "orders", "schema": SCHEMA}
    assert shop.post("/v1/namespaces/shop/tables", body, headers=headers).status == 200
    claim_like(endpoint, headers, age_ms=120_000)
    unknown = shop.post("/v1/namespaces/shop/tables", body, headers=headers)
    assert unknown.error == (500, "CommitStateUnknownException")
    assert "look before you repeat it" in unknown.message
    assert shop.head(ORDERS).status == 204


def test_a_creation_whose_first_try_died_before_it_is_done_by_the_repeat(shop: Client, endpoint: Endpoint) -> None:
    headers, body = key(), {"name": "orders", "schema": SCHEMA}
    assert shop.post("/v1/namespaces/shop/tables", body, headers=headers).status == 200
    assert shop.delete(ORDERS).status == 204
    claim_like(endpoint, headers, age_ms=120_000)
    assert shop.post("/v1/namespaces/shop/tables", body, headers=headers).status == 200
    assert shop.head(ORDERS).status == 204


def test_a_repeat_waits_for_a_first_try_that_still_runs(shop: Client, endpoint: Endpoint) -> None:
    headers, body = key(), {"namespace": ["new"]}
    assert shop.post("/v1/namespaces", body, headers=headers).status == 200
    claim_like(endpoint, headers, age_ms=0)
    done = threading.Event()

    def finish() -> None:
        if not done.wait(0.5):
            with endpoint.catalog.store.write() as conn:
                conn.run(
                    "answer_idempotency_key",
                    idempotency_key=headers["Idempotency-Key"],
                    created_at_ms=conn.all("select_idempotency_key", idempotency_key=headers["Idempotency-Key"])[0][
                        "created_at_ms"
                    ],
                    answer_status=200,
                    answer='{"body": {"namespace": ["new"], "properties": {"answered": "by the first"}}}',
                )

    first = threading.Thread(target=finish)
    first.start()
    again = shop.post("/v1/namespaces", body, headers=headers)
    done.set()
    first.join()
    assert again.json["properties"] == {"answered": "by the first"}


@pytest.mark.parametrize("engine", ["sqlite", "duckdb", "postgres"])
def test_an_expired_key_may_be_used_again_and_is_swept(
    engine: str, tmp_path: Path, new_catalog: NewCatalog, request: pytest.FixtureRequest
) -> None:
    target = tmp_path / f"catalog.{engine}"
    if engine == "postgres":
        uri = str(request.getfixturevalue("postgres_catalog"))
    else:
        new_catalog(engine, target)
        uri = str(target)
    with connect(uri) as catalog:
        with catalog.store.write() as conn:
            assert isinstance(claim_key(conn, "k", "one", lifetime_ms=-1), Claim)
        with catalog.store.write() as conn:
            assert isinstance(claim_key(conn, "k", "two", lifetime_ms=60_000), Claim)
        with catalog.store.write() as conn:
            assert not isinstance(claim_key(conn, "k", "two", lifetime_ms=60_000), Claim)
            assert isinstance(claim_key(conn, "old", "three", lifetime_ms=-1), Claim)
        with catalog.store.write() as conn:
            assert delete_expired_keys(conn) == 1
        assert catalog.sql("select idempotency_key from dl_idempotency_keys").to_pylist() == [{"idempotency_key": "k"}]
