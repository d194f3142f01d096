"""read_table and write_table over s3a, in a process of its own: Hadoop's S3 client comes with jars of its own."""

from collections.abc import Iterator
from pathlib import Path

import deltalake
import pytest

import deltalakedb as dl
from tests.fixtures.s3 import S3
from tests.fixtures.spark import DELTA_SPARK
from tests.spark.over_s3 import peer_over_s3
from tests.spark.peer import Peer

pytestmark = pytest.mark.spark

PIPELINE = """
import deltalakedb as dl, deltalakedb.spark as dls
from pyspark.errors import PySparkException
spark = sessions.plain()
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


@pytest.fixture
def peer(s3: S3, tmp_path: Path) -> Iterator[Peer]:
    with peer_over_s3(s3, tmp_path / "peer", DELTA_SPARK) as other:
        yield other


def test_tables_on_s3_are_written_and_read_without_the_bridge(
    s3: S3, peer: Peer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for key, value in s3.storage_options.items():
        monkeypatch.setenv(key, value)
    uri, warehouse = str(tmp_path / "catalog.db"), s3.uri("lake")
    answer = peer.ask(PIPELINE.format(uri=uri, warehouse=warehouse))
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
