"""On a store that does not refuse to overwrite, a row in SQL keeps the writers of a table apart."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from deltalake import DeltaTable, write_deltalake

from deltalakedb.exceptions import ExternalWriterError, MirrorError
from deltalakedb.mirror import bookkeeping
from deltalakedb.mirror.put_lock import LeasePutLock
from deltalakedb.mirror.table_mirror import open_log_writer
from deltalakedb.store import Store
from tests.conformance.conftest import OpenStore
from tests.conformance.mirrored import Managed, adds
from tests.conformance.transacting import ids_in, numbers, open_catalog
from tests.faults.s3_proxy import Conditions, FaultyS3, faulty_s3
from tests.fixtures.s3 import S3

WITHOUT: tuple[Conditions, ...] = ("ignored", "501", "400")
FOREIGN = b'{"commitInfo":{"operation":"WRITE","engineInfo":"somebody else"}}\n'


@pytest.fixture(params=WITHOUT)
def proxy(request: pytest.FixtureRequest, s3: S3) -> Iterator[FaultyS3]:
    with faulty_s3(s3.endpoint_url, conditions=request.param) as proxy:
        yield proxy


@pytest.fixture
def options(s3: S3, proxy: FaultyS3) -> dict[str, str]:
    return {**s3.storage_options, "AWS_ENDPOINT_URL": proxy.endpoint_url}


def stored(s3: S3) -> dict[str, bytes]:
    keys = [key for key in s3.list_keys() if key.endswith(".json")]
    return {key.rpartition("/")[2]: s3.client.get_object(Bucket=s3.bucket, Key=key)["Body"].read() for key in keys}


def leases(store: Store) -> list[str]:
    return [row["lease"] for row in store.select("select lease from dl_leases where lease like 'put:%'").to_pylist()]


@pytest.mark.in_turn
def test_the_mirror_of_such_a_store_is_whole_and_no_commit_is_put_twice(
    store: Store, s3: S3, proxy: FaultyS3, options: dict[str, str]
) -> None:
    table, outcome = Managed.create(store, s3.uri("lake/orders"), options=options)
    with table.engine(mirror_inline_timeout=30.0) as engine:
        engine.after_commit(outcome)
        for made in table.append(3):
            engine.after_commit(made)
        assert engine.mirror_table(table.row).to_version == 3
    assert table.failures() == []
    names = [put.key.rpartition("/")[2] for put in proxy.puts if put.status == 200]
    assert [name for name in names if name.endswith(".json")] == [f"{version:020}.json" for version in range(4)]
    assert leases(store) == []
    assert DeltaTable(s3.uri("lake/orders"), storage_options=s3.storage_options).version() == 3


@pytest.mark.in_turn
def test_the_commit_of_somebody_else_is_not_overwritten(store: Store, s3: S3, options: dict[str, str]) -> None:
    table, outcome = Managed.create(store, s3.uri("lake/orders"), options=options)
    with table.engine(mirror_inline_timeout=30.0) as engine:
        engine.after_commit(outcome)
        engine.mirror_table(table.row)
        s3.put(f"lake/orders/_delta_log/{1:020}.json", FOREIGN)
        table.commit(adds("a"))
        with pytest.raises(ExternalWriterError, match="somebody else"):
            engine.mirror_table(table.row)
    assert stored(s3)[f"{1:020}.json"] == FOREIGN
    assert table.registered.state == "frozen"


@pytest.mark.in_turn
def test_a_store_that_must_refuse_fails_the_mirror_with_the_reason_and_no_commit(
    store: Store, s3: S3, proxy: FaultyS3, options: dict[str, str]
) -> None:
    table, outcome = Managed.create(store, s3.uri("lake/orders"), options=options)
    with table.engine(mirror_conditional_put="required", mirror_retry_backoff=60.0) as engine:
        engine.after_commit(outcome)
        error = engine.mirror_table(table.row).error
    assert error is not None
    assert proxy.endpoint_url in error
    assert "mirror.conditional_put" in error
    assert stored(s3) == {}


def test_the_lock_is_used_without_asking_the_store_when_the_setting_says_so(store: Store, s3: S3) -> None:
    with faulty_s3(s3.endpoint_url) as proxy:
        options = {**s3.storage_options, "AWS_ENDPOINT_URL": proxy.endpoint_url}
        table, _ = Managed.create(store, s3.uri("lake/orders"), options=options)
        with table.engine(mirror_conditional_put="lock") as engine:
            assert engine.mirror_table(table.row).to_version == 0
        assert next(put.key.rpartition("/")[2] for put in proxy.puts) == f"{0:020}.json"
    assert leases(store) == []


def test_of_racing_writers_one_wins_each_version_and_nothing_is_overwritten(
    s3: S3, open_again: OpenStore, proxy: FaultyS3, options: dict[str, str]
) -> None:
    """Each brings bytes of its own, as two promotions would; each has a connection of its own to the database."""
    stores = [open_again() for _ in range(4)]
    table, _ = Managed.create(stores[0], s3.uri("lake/orders"), options=options)
    writers = [open_log_writer(store, table.row, options, "auto") for store in stores]
    start = threading.Barrier(len(writers))

    def race(number: int) -> list[str]:
        start.wait()
        return [
            writers[number].put_commit(version, b"%d\n" % number * 100, modified_ms=1, timeout_seconds=120)
            for version in range(6)
        ]

    with ThreadPoolExecutor(len(writers)) as pool:
        answers = list(pool.map(race, range(len(writers))))
    found = stored(s3)
    for version in range(6):
        results = [answer[version] for answer in answers]
        assert sorted(results) == ["exists", "exists", "exists", "written"]
        assert found[f"{version:020}.json"] == b"%d\n" % results.index("written") * 100
    done = [put.key.rpartition("/")[2] for put in proxy.puts if put.status == 200 and put.key.endswith(".json")]
    assert sorted(done) == [f"{version:020}.json" for version in range(6)]
    assert leases(stores[0]) == []


def test_whoever_waits_too_long_for_the_lock_is_told_who_has_it(store: Store, s3: S3) -> None:
    table, _ = Managed.create(store, s3.uri("lake/orders"))
    lock = LeasePutLock(store, table.row)
    started = time.monotonic()
    with lock.hold(5), pytest.raises(MirrorError, match="another process is putting a commit"), lock.hold(0.3):
        raise AssertionError("two are inside")
    assert time.monotonic() - started < 5
    with lock.hold(5):
        assert leases(store) == [f"put:{table.row.table_id}"]


def test_the_lock_of_a_process_that_died_runs_out(store: Store, s3: S3, monkeypatch: pytest.MonkeyPatch) -> None:
    table, _ = Managed.create(store, s3.uri("lake/orders"))
    monkeypatch.setattr(bookkeeping, "LEASE_SECONDS", 0.3)
    with store.write() as conn:
        assert bookkeeping.take_lease(conn, f"put:{table.row.table_id}", "a process that is no more")
    with LeasePutLock(store, table.row).hold(30):
        assert leases(store) == [f"put:{table.row.table_id}"]
    assert leases(store) == []


@pytest.mark.in_turn
def test_a_promotion_puts_its_fence_under_the_lock_and_over_nobody(
    target: str, tmp_path: Path, s3: S3, proxy: FaultyS3, options: dict[str, str]
) -> None:
    write_deltalake(s3.uri("theirs"), numbers(1), storage_options=s3.storage_options)
    before = stored(s3)
    with open_catalog(target, tmp_path) as catalog:
        catalog.attach_table(s3.uri("theirs"), "s.theirs", storage_options=options)
        write_deltalake(s3.uri("theirs"), numbers(2), mode="append", storage_options=s3.storage_options)
        catalog.promote_table("s.theirs", storage_options=options)
        with catalog.begin() as tx:
            tx.write("s.theirs", numbers(3), mode="append", storage_options=options)
        catalog.mirror.flush()
        assert ids_in(catalog, "s.theirs") == [1, 2, 3]
    found = stored(s3)
    assert list(found) == [f"{version:020}.json" for version in range(4)]
    assert {name: found[name] for name in before} == before
    assert b'"PROMOTE"' in found[f"{2:020}.json"]
    theirs = DeltaTable(s3.uri("theirs"), storage_options=s3.storage_options)
    assert sorted(theirs.to_pyarrow_table().column("id").to_pylist()) == [1, 2, 3]
    assert not [put for put in proxy.puts if put.status == 412]


def test_a_promotion_where_the_store_must_refuse_says_why_and_changes_nothing(
    target: str, tmp_path: Path, s3: S3
) -> None:
    write_deltalake(s3.uri("theirs"), numbers(1), storage_options=s3.storage_options)
    with faulty_s3(s3.endpoint_url, conditions="ignored") as proxy:
        options = {**s3.storage_options, "AWS_ENDPOINT_URL": proxy.endpoint_url}
        with open_catalog(target, tmp_path, mirror_conditional_put="required") as catalog:
            catalog.attach_table(s3.uri("theirs"), "s.theirs", storage_options=options)
            with pytest.raises(MirrorError, match=r"put-if-absent.*mirror\.conditional_put"):
                catalog.promote_table("s.theirs", storage_options=options)
            assert catalog.table("s.theirs").mode == "follower"
    assert list(stored(s3)) == [f"{0:020}.json"]
