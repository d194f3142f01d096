"""A capture on the cluster: catalog in Postgres, tables on S3, submitted, killed and submitted again."""

import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import deltalake
import psycopg
import pytest
from psycopg.conninfo import make_conninfo

import deltalakedb as dl
from deltalakedb.cdc.control import Capture, load_capture
from deltalakedb.cdc.run.presence import request_stop
from tests.cdc import judging
from tests.cdc.capturing import NAMESPACE, SLOT, money, settings_of
from tests.cdc.conftest import Source
from tests.cdc.load import OTHERS, TOTAL, Load, Loads, create_tables, fill
from tests.cluster.serving import ServedCatalog
from tests.cluster.test_starting import ROOT, SUBMIT, write_properties
from tests.fixtures.cluster import Cluster
from tests.fixtures.keeper import Kept
from tests.fixtures.s3 import S3

pytestmark = [pytest.mark.spark, pytest.mark.cluster]

SECONDS = 120.0
MASK_KEY = "a-key-that-nothing-shows"
PASSWORD = "a-password-that-nothing-shows"
MASKED = "public.documents"
CAPTURE = f"""
import sys
import deltalakedb as dl
from deltalakedb import cdc

with dl.connect(sys.argv[1], warehouse=sys.argv[2]) as lake:
    print(cdc.run(
        lake, publication="shop", namespace="{NAMESPACE}", slot="{SLOT}", batch_window="500ms", deletion_vectors=False,
        copy_beside="40KB", copy_chunk="32KB", rules=[{{"tables": ["documents"], "mask": {{"title": "hash"}}}}],
    ))
"""


class Submitted:
    """The capture as `spark-submit` starts it on the cluster: its script starts no Spark itself."""

    def __init__(self, cluster: Cluster, served: ServedCatalog, source: Source, bucket: S3, scratch: Path) -> None:
        scratch.mkdir()
        self.events, self._log, script = scratch / "events", scratch / "capture.log", scratch / "capture.py"
        self.events.mkdir()
        script.write_text(CAPTURE)
        conf = cluster.conf(scratch) | {
            f"spark.executorEnv.{key}": value for key, value in bucket.storage_options.items()
        }
        conf |= {
            "spark.eventLog.enabled": "true",
            "spark.eventLog.compress": "false",
            "spark.eventLog.dir": self.events.as_uri(),
        }
        command = [SUBMIT, "--properties-file", str(write_properties(scratch / "spark.conf", conf)), str(script)]
        environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
        environment |= {"DL_CDC_MASK_KEY": MASK_KEY, "DL_CDC_SOURCE": make_conninfo(source.dsn, password=PASSWORD)}
        environment["PYTHONPATH"] = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
        self.process = Kept([*command, served.uri, served.warehouse], self._log, environment)

    def wait_until(self, is_so: Callable[[], bool]) -> None:
        deadline = time.monotonic() + SECONDS
        while not is_so():
            assert self.process.is_running(), self.said()[-6000:]
            assert time.monotonic() < deadline, self.said()[-6000:]
            time.sleep(0.1)

    def said(self) -> str:
        return self._log.read_text(errors="replace")

    def shown(self) -> str:
        """All that Spark shows of the application in its UI and keeps of it."""
        return "".join(one.read_text(errors="replace") for one in self.events.rglob("*") if one.is_file())


@contextmanager
def writing(source: Source) -> Iterator[Loads]:
    """Transactions over several tables, as long as the block lasts."""
    with Loads([Load(source, seed, truncates=seed == 2, pause_seconds=0.2) for seed in (1, 2)]) as loads:
        yield loads


def test_a_capture_on_a_cluster_fills_tables_on_s3_and_goes_on_after_a_kill(
    cluster: Cluster,
    served: ServedCatalog,
    catalog: dl.Catalog,
    bucket: S3,
    source: Source,
    tmp_path: Path,
) -> None:
    create_tables(source)
    fill(source, 500)
    with writing(source) as loads:
        first = Submitted(cluster, served, source, bucket, tmp_path / "first")
        try:
            first.wait_until(lambda: is_streaming(catalog, source))
            assert cores_in_use(cluster) == [2]
            lsn = progress(catalog, source)
            loads.wait_for(5)
            first.wait_until(lambda: progress(catalog, source) > lsn)
        finally:
            first.process.kill()
        assert money(catalog) == TOTAL
        loads.wait_for(5)
    second = Submitted(cluster, served, source, bucket, tmp_path / "second")
    try:
        with source.connect() as connection:
            end = written_lsn(connection)
            second.wait_until(lambda: progress(catalog, source) >= end)
            assert request_stop(connection, SLOT, 60) is not None
        assert second.process.wait(SECONDS) == 0, second.said()[-6000:]
    finally:
        second.process.kill()
    assert f"{SLOT} is at " in second.said()
    check_rows(catalog, source, bucket)
    for one in (first, second):
        for secret in (MASK_KEY, PASSWORD):
            assert secret not in one.said()
            assert secret not in one.shown()
        assert "SparkListenerJobStart" in one.shown()


def check_rows(catalog: dl.Catalog, source: Source, bucket: S3) -> None:
    """The tables equal the source, for us and for `deltalake` on the bucket."""
    capture = judging.captured(catalog, settings_of(source))
    assert all(
        catalog.table(table.current).table_uri.startswith(bucket.uri("lake")) for table in capture.tables.values()
    )
    plain = replace(capture, tables={name: one for name, one in capture.tables.items() if name != MASKED})
    judging.check_current(catalog, source, plain)
    judging.check_replayed(catalog, source, plain)
    ids = Counter(source.run("select id from documents"))
    assert (
        Counter((row,) for row in catalog.table(f"{NAMESPACE}.documents").to_pyarrow_table()["id"].to_pylist()) == ids
    )
    judging.bring_level(catalog)
    for table in capture.tables.values():
        ours = catalog.table(table.current)
        theirs = deltalake.DeltaTable(ours.table_uri, storage_options=bucket.storage_options)
        assert theirs.version() == ours.version()
        judging.check_equal(
            Counter(judging.rows_of(theirs.to_pyarrow_table(), table)),
            Counter(judging.rows_of(ours.to_pyarrow_table(), table)),
            f"{table.current} by deltalake",
        )


def is_streaming(catalog: dl.Catalog, source: Source) -> bool:
    capture = capture_of(catalog, source)
    tables = () if capture is None else capture.tables.values()
    return len(tables) == len(OTHERS) + 2 and all(table.stage == "streaming" for table in tables)


def progress(catalog: dl.Catalog, source: Source) -> int:
    capture = capture_of(catalog, source)
    return 0 if capture is None else capture.lsn


def capture_of(catalog: dl.Catalog, source: Source) -> Capture | None:
    return load_capture(catalog, settings_of(source))


def written_lsn(connection: psycopg.Connection) -> int:
    row = connection.execute("select pg_current_wal_lsn() - '0/0'").fetchone()
    assert row is not None
    return int(row[0])


def cores_in_use(cluster: Cluster) -> list[int]:
    """Of the applications that run, as the master knows them."""
    return [application["cores"] for application in cluster.status()["activeapps"]]
