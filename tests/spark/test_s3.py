"""Tables over s3a, through the bridge and without it, in a process with the jars of Hadoop's S3 client."""

from collections.abc import Iterator
from pathlib import Path

import deltalake
import pytest

import deltalakedb as dl
from deltalakedb.log.protocol.fence import FEATURE
from tests.fixtures.s3 import S3
from tests.fixtures.spark import PLAIN
from tests.spark.judging import OURS
from tests.spark.over_s3 import peer_over_s3
from tests.spark.peer import Peer

pytestmark = pytest.mark.spark


PIPELINE = """
import deltalakedb as dl, deltalakedb.spark as dls
from pyspark.errors import PySparkException
spark = bridged.newSession()
spark.conf.set("spark.sql.catalog.spark_catalog", {plain!r})
with dl.connect({uri!r}, warehouse={warehouse!r}) as catalog:
    rows = spark.range(40).selectExpr("id", "concat('p #', id % 10) p")
    versions = [dls.write_table(rows, "a.t", partition_by="p", catalog=catalog)]
    versions.append(dls.write_table(rows.where("id = 3"), "a.t", "overwrite", replace_where="id = 3", catalog=catalog))
    try:
        dls.write_table(rows.selectExpr("if(id = 30, raise_error('boom'), id) id"), "a.t", catalog=catalog)
    except PySparkException as error:
        versions.append("boom" in str(error))
    found = dls.read_table(spark, "a.t", where="p = 'p #3' or id > 37", catalog=catalog)
    answer = [versions, sorted(row.id for row in found.collect())]
"""
"""In a session of that process without the bridge's catalog: all that is plain about it but the jars."""


@pytest.fixture(scope="module")
def peer(s3_endpoint: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Peer]:
    with peer_over_s3(s3_endpoint, tmp_path_factory.mktemp("peer")) as other:
        yield other


@pytest.mark.slow
def test_tables_on_s3_are_created_written_and_read(
    s3: S3, peer: Peer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for key, value in s3.storage_options.items():
        monkeypatch.setenv(key, value)
    uri, warehouse = str(tmp_path / "catalog.db"), s3.uri("lake")
    peer.ask(f"spark = sessions.bridged({uri!r}, {warehouse!r})")
    peer.sql(
        "create table sales.orders using delta partitioned by (day) as select * from values "
        "(1L, '2026-01-01', 1.0D), (2L, '2026-01-02', 2.0D), (3L, '2026-01-02', 3.0D) as v(id, day, amount)",
        "update sales.orders set amount = 20 where id = 2",
        "merge into sales.orders t using (select 3L as id) s on t.id = s.id when matched then delete",
    )
    path = f"dldb:///s3a/{s3.bucket}/lake/sales/orders"
    peer.ask(
        f"spark.createDataFrame([(4, 'a b/c', 4.0)], 'id long, day string, amount double')"
        f".write.format('delta').mode('append').save({path!r})"
    )
    wanted = [[1, "2026-01-01", 1.0], [2, "2026-01-02", 20.0], [4, "a b/c", 4.0]]
    assert sorted(peer.sql("select * from sales.orders")) == wanted
    assert peer.sql("select count(*) from sales.orders version as of 0") == [[3]]
    with dl.connect(uri, warehouse=warehouse) as catalog:
        table = catalog.table("sales.orders")
        assert table.table_uri == f"{warehouse}/sales/orders/"
        assert table.version() == 3
        assert sorted(list(row.values()) for row in table.to_pyarrow_table().to_pylist()) == wanted
        report = catalog.validate("sales.orders", s3.storage_options)
        assert (report.drifts, report.lag) == ((), 0)
    mirrored = deltalake.DeltaTable(f"{warehouse}/sales/orders", storage_options=s3.storage_options)
    assert sorted(list(row.values()) for row in mirrored.to_pyarrow_table().to_pylist()) == wanted
    assert FEATURE in (mirrored.protocol().writer_features or ())
    log = [key for key in s3.list_keys() if "/_delta_log/" in key]
    assert [key for key in log if not OURS.fullmatch(key.rpartition("/")[2])] == []
    checksums = [key for key in log if key.endswith(".crc")]
    texts = [s3.client.get_object(Bucket=s3.bucket, Key=key)["Body"].read().decode() for key in checksums]
    assert all(FEATURE in text for text in texts), "these are the mirror's; Spark's are in the overlay"


def test_tables_on_s3_are_written_and_read_without_the_bridge(
    s3: S3, peer: Peer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for key, value in s3.storage_options.items():
        monkeypatch.setenv(key, value)
    uri, warehouse = str(tmp_path / "catalog.db"), s3.uri("lake")
    peer.ask(f"bridged = sessions.bridged({str(tmp_path / 'other.db')!r}, {warehouse!r})")
    answer = peer.ask(PIPELINE.format(uri=uri, warehouse=warehouse, plain=PLAIN["spark.sql.catalog.spark_catalog"]))
    assert answer == [[0, 1, True], [3, 13, 23, 33, 38, 39]]
    with dl.connect(uri, warehouse=warehouse) as catalog:
        paths = catalog.table("a.t").files(["path"]).column("path").to_pylist()
        assert sorted(catalog.table("a.t").to_pyarrow_table().column("id").to_pylist()) == list(range(40))
    mirrored = deltalake.DeltaTable(f"{warehouse}/a/t", storage_options=s3.storage_options)
    assert sorted(mirrored.to_pyarrow_table().column("id").to_pylist()) == list(range(40))
    # Of the job that failed nothing is left but what S3A puts where a folder would be: an empty object.
    left = {key for key in s3.list_keys() if "/w-" in key and not any(key.endswith(path) for path in paths)}
    replaced = {key for key in left if key.endswith(".parquet")}
    assert {key for key in left - replaced if not key.endswith("/")} == set()
    jobs = {path.partition("/")[0] for path in paths}
    assert len(jobs) == 2
    assert {key.partition("/w-")[2].partition("/")[0] for key in replaced} <= {job.removeprefix("w-") for job in jobs}
    assert all(path.startswith("w-") for path in paths)
