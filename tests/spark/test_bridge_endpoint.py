"""The bridge when its endpoint is dead, refuses it, loses answers, or is one of several."""

import signal
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

import deltalakedb as dl
import deltalakedb.spark as dls
from tests.faults.cutting_proxy import cutting
from tests.fixtures.served import Served
from tests.serve.conftest import serve_process, warehouse  # noqa: F401  (fixtures)

Bridge = Callable[[dl.Catalog], SparkSession]
RETRY_SECONDS = 3


def bound(spark: SparkSession, url: str, token: str) -> SparkSession:
    """A session of the shared Spark at this endpoint, with little patience."""
    session = spark.newSession()
    session.conf.set("deltalakedb.endpoint", url)
    session.conf.set("deltalakedb.token", token)
    session.conf.set("deltalakedb.retry.seconds", str(RETRY_SECONDS))
    return session


def test_a_killed_endpoint_is_a_clear_error_in_bounded_time_and_nothing_bypasses_it(
    spark: SparkSession,
    serve_process: Callable[..., Served],  # noqa: F811
    tmp_path: Path,
) -> None:
    catalog_uri = f"deltasql://sqlite/{tmp_path}/catalog.db"
    served = serve_process(catalog_uri)
    session = bound(spark, served.url, served.token)
    session.sql("create table dead.orders (id bigint) using delta")
    session.sql("insert into dead.orders values (1)")
    path = str(session.sql("describe detail dead.orders").collect()[0].location)
    files = sorted(one for one in tmp_path.rglob("*.json") if "_delta_log" in str(one))
    served.process.send_signal(signal.SIGKILL)
    served.process.wait(30)
    statements: list[Callable[[], object]] = [
        lambda: session.sql("insert into dead.orders values (2)").collect(),
        lambda: session.range(1).write.format("delta").mode("append").save(path),
        lambda: session.range(1).write.format("delta").save(path + "2"),
        lambda: session.sql("select * from dead.orders").collect(),
    ]
    for statement in statements:
        started = time.monotonic()
        with pytest.raises(AnalysisException, match=f"{served.url} did not answer.*start it again") as dead:
            statement()
        assert time.monotonic() - started < RETRY_SECONDS + 25
        assert served.token not in str(dead.value)
    assert sorted(one for one in tmp_path.rglob("*.json") if "_delta_log" in str(one)) == files
    again = serve_process(catalog_uri, "--port", str(urlsplit(served.url).port))
    assert again.url == served.url
    session.sql("insert into dead.orders values (3)")
    assert sorted(row.id for row in session.sql("select * from dead.orders").collect()) == [1, 3]


def test_a_wrong_token_is_said_to_be_wrong_and_never_shown(spark: SparkSession) -> None:
    client = dls.bridge_of(spark)
    session = bound(spark, client.url, "a-token-that-is-wrong")
    for statement in ("select * from refused.orders", "create table refused.orders (id bigint) using delta"):
        with pytest.raises(AnalysisException, match="refuses this session's token") as refused:
            session.sql(statement)
        assert "a-token-that-is-wrong" not in str(refused.value)
    shown = [row for row in session.sql("set").collect() if "token" in row.key]
    assert shown
    assert "a-token-that-is-wrong" not in str(shown)


def test_a_commit_whose_answer_was_lost_is_sent_again_and_made_once(
    spark: SparkSession, bridge_catalog: dl.Catalog
) -> None:
    client = dls.bridge_of(spark, bridge_catalog)
    token = str(spark.conf.get("spark.hadoop.deltalakedb.token"))
    address = urlsplit(client.url)
    assert address.hostname is not None
    assert address.port is not None
    with cutting((address.hostname, address.port), cuts=2, commits_by=b"POST /bridge/v1/commit?") as lossy:
        session = bound(spark, f"http://127.0.0.1:{lossy.port}", token)
        session.range(5).coalesce(1).write.format("delta").saveAsTable("lossy.orders")
        session.range(5, 7).coalesce(1).write.format("delta").mode("append").saveAsTable("lossy.orders")
        assert lossy.num_cut == 2
    table = bridge_catalog.table("lossy.orders")
    assert table.version() == 1
    assert sorted(table.to_pyarrow_table().column("id").to_pylist()) == list(range(7))


def test_two_catalogs_in_one_spark_keep_their_names_apart(bridge: Bridge, tmp_path: Path) -> None:
    with (
        dl.connect(tmp_path / "one.db", warehouse=str(tmp_path / "one")) as one,
        dl.connect(tmp_path / "two.db", warehouse=str(tmp_path / "two")) as two,
    ):
        first, second = bridge(one), bridge(two)
        first.sql("create table apart.t using delta as select 1 as v")
        second.sql("create table apart.t using delta as select 2 as v")
        assert [row.v for row in first.sql("select v from apart.t").collect()] == [1]
        assert [row.v for row in second.sql("select v from apart.t").collect()] == [2]
        first.sql("drop table apart.t purge")
        assert not first.catalog.tableExists("apart.t")
        assert [row.v for row in second.sql("select v from apart.t").collect()] == [2]
        assert (one.tables(), [str(name) for name in two.tables()]) == ([], ["apart.t"])
