"""The mirror on an object store: put-if-absent, foreign objects, checkpoints others read, endpoints that are gone."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator

import pytest
from deltalake import DeltaTable

from deltalakedb.mirror.engine import MirrorEngine
from deltalakedb.store import Store
from deltalakedb.store.reader import SqlTxnLogReader
from tests.conformance.mirrored import Managed, adds
from tests.fixtures.s3 import S3, SECRET_ACCESS_KEY

FOREIGN = b'{"commitInfo":{"operation":"WRITE","engineInfo":"somebody else"}}\n'


@pytest.fixture
def table(store: Store, s3: S3) -> Managed:
    return Managed.create(
        store,
        s3.uri("lake/orders"),
        configuration={"delta.checkpointInterval": "3"},
        options=s3.storage_options,
    )[0]


@pytest.fixture
def mirror(table: Managed) -> Iterator[MirrorEngine]:
    with table.engine(mirror_retry_backoff=0.05) as engine:
        engine.mirror_table(table.row)
        yield engine


def commits(s3: S3) -> dict[str, bytes]:
    keys = [key for key in s3.list_keys() if key.endswith(".json")]
    return {key.rpartition("/")[2]: s3.client.get_object(Bucket=s3.bucket, Key=key)["Body"].read() for key in keys}


def rendered(table: Managed) -> dict[str, bytes]:
    return {f"{c.version:020d}.json": c.data for c in SqlTxnLogReader(table.store, table.row).mirror_commits(0)}


def test_commits_are_put_in_line_and_the_checkpoint_behind_them(table: Managed, mirror: MirrorEngine, s3: S3) -> None:
    for outcome in table.append(4):
        mirror.after_commit(outcome)
    assert commits(s3) == rendered(table)
    assert mirror.flush()
    assert "lake/orders/_delta_log/00000000000000000003.checkpoint.parquet" in s3.list_keys()
    for version in range(4):
        s3.delete(f"lake/orders/_delta_log/{version:020d}.json")
    opened = DeltaTable(s3.uri("lake/orders"), storage_options=s3.storage_options)
    assert opened.version() == 4
    assert sorted(opened.get_add_actions().column("path").to_pylist()) == [f"f-0-{n}.parquet" for n in range(1, 5)]


def test_a_foreign_object_is_kept_and_the_table_frozen(table: Managed, mirror: MirrorEngine, s3: S3) -> None:
    s3.put("lake/orders/_delta_log/00000000000000000001.json", FOREIGN)
    mirror.after_commit(table.append(1)[0])
    assert commits(s3)["00000000000000000001.json"] == FOREIGN
    assert table.registered.state == "frozen"


def test_mirroring_again_puts_nothing(table: Managed, mirror: MirrorEngine, s3: S3) -> None:
    for outcome in table.append(2):
        mirror.after_commit(outcome)
    mirror.flush()
    before = s3.client.list_objects_v2(Bucket=s3.bucket)["Contents"]
    with table.store.write() as conn:
        conn.sql("update dl_table_heads set mirrored_version = -1 where table_id = 1 returning table_id")
    with table.engine() as other:
        assert other.mirror_table(table.row).num_written == 0
    assert s3.client.list_objects_v2(Bucket=s3.bucket)["Contents"] == before


def test_an_endpoint_that_is_gone_fails_the_mirror_in_bounded_time_and_is_tried_again(
    store: Store, s3: S3, caplog: pytest.LogCaptureFixture
) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        nobody = f"http://127.0.0.1:{free.getsockname()[1]}"
    table, outcome = Managed.create(
        store, s3.uri("lake/orders"), options={**s3.storage_options, "AWS_ENDPOINT_URL": nobody}
    )
    with table.engine(mirror_inline_timeout=1.0, mirror_retry_backoff=60.0) as engine:
        started = time.monotonic()
        engine.after_commit(outcome)
        assert time.monotonic() - started < 10
        started = time.monotonic()
        engine.after_commit(table.commit(adds("a")))
        assert time.monotonic() - started < 10
        (failure,) = table.failures()
        assert failure["version"] == 0
        assert 1 <= failure["attempts"] <= 2  # once by the commit that did not wait any longer, once by the request
    assert SECRET_ACCESS_KEY not in json.dumps(table.failures()) + caplog.text
    table.options = s3.storage_options
    with table.engine() as engine:
        assert engine.mirror_table(table.row).to_version == 1
    assert commits(s3) == rendered(table)
    assert table.failures() == []


def test_an_endpoint_that_never_answers_costs_a_commit_no_more_than_its_time(store: Store, s3: S3) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        nobody = f"http://127.0.0.1:{silent.getsockname()[1]}"
        options = {**s3.storage_options, "AWS_ENDPOINT_URL": nobody, "timeout": "3s"}
        table, outcome = Managed.create(store, s3.uri("lake/orders"), options=options)
        with table.engine(mirror_inline_timeout=0.5, mirror_retry_backoff=60.0) as engine:
            for attempt in (outcome, table.commit(adds("a")), table.commit(adds("b"))):
                started = time.monotonic()
                engine.after_commit(attempt)
                assert time.monotonic() - started < 2.5
            started = time.monotonic()
            engine.probe(table.row)
            assert time.monotonic() - started < 2.5
            assert [row["version"] for row in table.failures()] == [0]
            started = time.monotonic()
        assert time.monotonic() - started < 8
    assert table.registered.state == "live"
