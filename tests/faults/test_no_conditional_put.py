"""A warehouse on a store that does not refuse to overwrite: found out at `connect`, and many processes write safely."""

from __future__ import annotations

import logging
import socket
import textwrap
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from deltalake import DeltaTable as UnmodifiedTable

import deltalakedb as dl
from deltalakedb.exceptions import ConfigError
from deltalakedb.mirror.reconciler import Reconciler
from deltalakedb.storage.conditional_put import PROBE_PREFIX
from tests.conformance.transacting import numbers
from tests.faults.conftest import Place
from tests.faults.s3_proxy import Conditions, FaultyS3, faulty_s3
from tests.fixtures.forked import start_script
from tests.fixtures.s3 import S3, SECRET_ACCESS_KEY

WITHOUT: tuple[Conditions, ...] = ("ignored", "501")
WRITERS, COMMITS = 3, 4


@pytest.fixture
def proxy(s3: S3, monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultyS3]:
    """The endpoint and the keys come from the environment, as a warehouse's do."""
    with faulty_s3(s3.endpoint_url) as made:
        for key, value in {**s3.storage_options, "AWS_ENDPOINT_URL": made.endpoint_url}.items():
            monkeypatch.setenv(key, value)
        yield made


def probes(proxy: FaultyS3) -> int:
    return sum(PROBE_PREFIX in put.key for put in proxy.puts)


def log_keys(s3: S3) -> list[str]:
    return [key.rpartition("/")[2] for key in s3.list_keys() if key.endswith(".json")]


def test_connect_proves_once_that_the_store_refuses_and_leaves_nothing_behind(
    s3: S3, proxy: FaultyS3, tmp_path: Path
) -> None:
    for number in range(3):
        with dl.connect(tmp_path / f"{number}.db", warehouse=s3.uri("lake")) as catalog:
            assert catalog.tables() == []
    assert probes(proxy) == 2
    assert s3.list_keys() == []


@pytest.mark.parametrize("conditions", WITHOUT)
def test_connect_is_refused_with_endpoint_and_reason_where_the_store_must_refuse(
    s3: S3, proxy: FaultyS3, tmp_path: Path, conditions: Conditions
) -> None:
    proxy.conditions = conditions
    for _ in range(2):
        with pytest.raises(ConfigError, match=r"warehouse s3://.*put-if-absent.*mirror\.conditional_put") as raised:
            dl.connect(tmp_path / "c.db", warehouse=s3.uri("lake"), mirror_conditional_put="required")
        assert proxy.endpoint_url in str(raised.value)
        assert SECRET_ACCESS_KEY not in str(raised.value)
    assert not (tmp_path / "c.db").exists()
    assert s3.list_keys() == []


@pytest.mark.parametrize("settings", [{"mirror_mode": "off"}, {"mirror_conditional_put": "lock"}], ids=str)
def test_a_store_that_is_not_written_to_or_locked_anyway_is_not_asked(
    s3: S3, proxy: FaultyS3, tmp_path: Path, settings: dict[str, str]
) -> None:
    with dl.connect(tmp_path / "c.db", warehouse=s3.uri("lake"), **settings):
        pass
    assert proxy.puts == []


def test_credentials_that_may_only_read_do_not_stop_connect_and_the_first_write_says_so(
    s3: S3, proxy: FaultyS3, tmp_path: Path
) -> None:
    proxy.read_only = True
    config = {"mirror_conditional_put": "required", "mirror_retry_backoff": 60.0}
    with dl.connect(tmp_path / "c.db", warehouse=s3.uri("lake"), **config) as catalog:
        catalog.create_table("s.t", "id long")
        (lag,) = catalog.sql("select versions_behind, error from vw_mirror_lag").to_pylist()
        assert lag["versions_behind"] == 1
        assert "refuses to overwrite objects cannot be found out" in lag["error"]
        assert "403" in lag["error"]


def test_an_endpoint_that_never_answers_delays_connect_by_no_more_than_its_time(
    s3: S3, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        nobody = f"http://127.0.0.1:{silent.getsockname()[1]}"
        for key, value in {**s3.storage_options, "AWS_ENDPOINT_URL": nobody}.items():
            monkeypatch.setenv(key, value)
        started = time.monotonic()
        with dl.connect(tmp_path / "c.db", warehouse=s3.uri("lake"), mirror_inline_timeout=0.5) as catalog:
            assert catalog.tables() == []
        assert time.monotonic() - started < 3


@pytest.mark.parametrize("conditions", WITHOUT)
def test_the_lock_row_is_used_and_warned_of_once(
    s3: S3, proxy: FaultyS3, tmp_path: Path, conditions: Conditions, caplog: pytest.LogCaptureFixture
) -> None:
    proxy.conditions = conditions
    with dl.connect(tmp_path / "c.db", warehouse=s3.uri("lake")) as catalog:
        for number in range(3):
            with catalog.begin() as tx:
                tx.write("s.t", numbers(number), mode="append")
        catalog.mirror.flush()
    warnings = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    (said,) = [text for text in warnings if "put-if-absent" in text]
    assert proxy.endpoint_url in said
    assert log_keys(s3) == [f"{version:020}.json" for version in range(3)]
    assert UnmodifiedTable(s3.uri("lake/s/t"), storage_options=s3.storage_options).version() == 2


@pytest.mark.parametrize("conditions", WITHOUT)
def test_processes_that_write_one_table_overwrite_no_commit(
    place: Place, s3: S3, proxy: FaultyS3, conditions: Conditions
) -> None:
    """Every commit is in the files once, as SQL has it; the store would have let them overwrite each other."""
    proxy.conditions = conditions
    script = textwrap.dedent(
        """
        import sys
        import deltalakedb as dl
        from tests.conformance.transacting import numbers

        catalog_uri, warehouse, number, commits = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
        with dl.connect(catalog_uri, warehouse=warehouse, mirror_inline_timeout=60.0) as catalog:
            for commit in range(commits):
                with catalog.begin(tables=["s.t"]) as tx:
                    tx.write("s.t", numbers(number * 100 + commit), mode="append")
            catalog.mirror.flush()
        """
    )
    with dl.connect(place.catalog, warehouse=s3.uri("lake")) as catalog:
        catalog.create_table("s.t", "id long")
        catalog.mirror.flush()
    running = [
        start_script(script, place.catalog, s3.uri("lake"), str(number), str(COMMITS)) for number in range(WRITERS)
    ]
    for one in running:
        ended = one.wait()
        assert ended.returncode == 0, ended.stderr[-3000:]
    last = WRITERS * COMMITS
    with dl.connect(place.catalog, warehouse=s3.uri("lake")) as catalog:
        with Reconciler(catalog.store, config=catalog.config, options_of=lambda _: None) as reconciler:
            assert [result.error for result in reconciler.once() if result.error] == []
        report = catalog.validate("s.t")
        assert (report.drifts, report.lag, report.num_commits_compared) == ((), 0, last + 1)
        assert catalog.sql("select count(*) as n from dl_leases where lease like 'put:%'").column("n")[0].as_py() == 0
    done = Counter(put.key.rpartition("/")[2] for put in proxy.puts if put.status == 200 and put.key.endswith(".json"))
    assert done == {f"{version:020}.json": 1 for version in range(last + 1)}
    table = UnmodifiedTable(s3.uri("lake/s/t"), storage_options=s3.storage_options)
    expected = sorted(number * 100 + commit for number in range(WRITERS) for commit in range(COMMITS))
    assert sorted(table.to_pyarrow_table().column("id").to_pylist()) == expected
