"""An object store that fails in every way it can: the mirror converges, and no log file is ever overwritten."""

import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import get_args

import pytest
from deltalake import DeltaTable as UnmodifiedTable

import deltalakedb as dl
from deltalakedb.mirror.reconciler import Reconciler
from tests.faults.s3_proxy import Fault, FaultyS3, faulty_s3
from tests.faults.worker import rows
from tests.fixtures.s3 import S3
from tests.fixtures.sizes import sized

TABLE = "busy.events"
COMMITS = sized(8, 40)
MOST_ROUNDS = 40
CONFIG = {"mirror_inline_timeout": 3.0, "mirror_retry_backoff": 0.01, "mirror_checkpoint_interval": 4}


def on_log_puts(fault: Fault, times: int) -> Callable[[str, str], Fault | None]:
    """The first puts of each commit file meet the fault."""
    met: Counter[str] = Counter()

    def choose(method: str, key: str) -> Fault | None:
        if method != "PUT" or "_delta_log" not in key or not key.endswith(".json"):
            return None
        met[key] += 1
        return fault if met[key] <= times else None

    return choose


def at_random(seed: int, share: float) -> Callable[[str, str], Fault | None]:
    choices = random.Random(seed)

    def choose(_: str, key: str) -> Fault | None:
        if "_delta_log" not in key or choices.random() > share:
            return None
        return choices.choice([fault for fault in get_args(Fault) if fault != "lost answer" or choices.random() < 0.2])

    return choose


def options(s3: S3, proxy: FaultyS3) -> dict[str, str]:
    return {**s3.storage_options, "AWS_ENDPOINT_URL": proxy.endpoint_url, "timeout": "1s"}


def write_and_converge(s3: S3, proxy: FaultyS3, catalog_path: Path) -> int:
    """Commit, then reconcile until the files are level; the newest version."""
    storage = options(s3, proxy)
    with dl.connect(str(catalog_path), warehouse=s3.uri("lake"), **CONFIG) as catalog:
        for number in range(COMMITS):
            with catalog.begin() as tx:
                tx.write(TABLE, rows("w", number), mode="append", storage_options=storage)
        version = catalog.table(TABLE).version()
        with Reconciler(catalog.store, config=catalog.config, options_of=lambda _: storage) as reconciler:
            for _ in range(MOST_ROUNDS):
                results = reconciler.once()
                if all(result.error is None for result in results):
                    break
        (lag,) = catalog.sql("select versions_behind from vw_mirror_lag").to_pylist()
        assert lag["versions_behind"] == 0
    return version


def check_nothing_was_overwritten(s3: S3, proxy: FaultyS3) -> None:
    """Of each log file one put succeeded, and what lies there is what that one sent."""
    for key in s3.list_keys():
        name = key.rpartition("/")[2]
        if "/_delta_log/" not in key or not name.endswith((".json", ".crc")):
            continue
        done = [put for put in proxy.puts if put.key.endswith(f"/{key}") and put.status == 200]
        assert len(done) == 1, f"{key} was written {len(done)} times"
        assert s3.client.get_object(Bucket=s3.bucket, Key=key)["Body"].read() == done[0].body


def check_readable(s3: S3, version: int) -> None:
    table = UnmodifiedTable(s3.uri("lake/busy/events"), storage_options=s3.storage_options)
    assert table.version() == version == COMMITS - 1
    found = table.to_pyarrow_table().to_pylist()
    assert sorted({row["number"] for row in found}) == list(range(COMMITS))
    assert len(found) == 3 * COMMITS


@pytest.mark.parametrize("fault", get_args(Fault))
def test_puts_that_fail_once_are_put_again_and_never_twice(
    s3: S3, s3_endpoint: str, tmp_path: Path, fault: Fault
) -> None:
    with faulty_s3(s3_endpoint, on_log_puts(fault, 1)) as proxy:
        version = write_and_converge(s3, proxy, tmp_path / "catalog.db")
        assert {met for _, _, met in proxy.faults} == {fault}
        assert len(proxy.faults) >= COMMITS
        check_nothing_was_overwritten(s3, proxy)
    check_readable(s3, version)


def test_a_store_that_fails_at_random_converges(s3: S3, s3_endpoint: str, tmp_path: Path) -> None:
    with faulty_s3(s3_endpoint, at_random(20261115, 0.25)) as proxy:
        version = write_and_converge(s3, proxy, tmp_path / "catalog.db")
        assert len(proxy.faults) >= COMMITS / 2
        check_nothing_was_overwritten(s3, proxy)
    check_readable(s3, version)


def test_a_store_that_is_down_fails_no_commit(s3: S3, s3_endpoint: str, tmp_path: Path) -> None:
    down = [True]

    def choose(method: str, key: str) -> Fault | None:
        return "503" if down[0] and method == "PUT" and "_delta_log" in key else None

    with faulty_s3(s3_endpoint, choose) as proxy:
        storage = options(s3, proxy)
        with dl.connect(str(tmp_path / "catalog.db"), warehouse=s3.uri("lake"), mirror_inline_timeout=0.5) as catalog:
            with catalog.begin() as tx:
                tx.write(TABLE, rows("w", 0), mode="append", storage_options=storage)
            assert tx.result == {TABLE: 0}
            (lag,) = catalog.sql("select versions_behind, error from vw_mirror_lag").to_pylist()
            assert lag["versions_behind"] == 1
            down[0] = False
            with Reconciler(catalog.store, config=catalog.config, options_of=lambda _: storage) as reconciler:
                assert [result.error for result in reconciler.once()] == [None]
        check_nothing_was_overwritten(s3, proxy)
    assert UnmodifiedTable(s3.uri("lake/busy/events"), storage_options=s3.storage_options).version() == 0
