"""The bridge below all names: paths, the file system `dldb:`, the log store, what Spark keeps beside the commits."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

import deltalakedb as dl
import deltalakedb.spark as dls
from deltalakedb.log.protocol.fence import FEATURE
from tests.serve.wire import add, append, first_commit, info
from tests.spark.hadoop import Hadoop


def folder(catalog: dl.Catalog, name: str) -> Path:
    namespace, _, table = name.partition(".")
    return Path(str(catalog.config.warehouse)) / namespace / table


def bridged(catalog: dl.Catalog, name: str, txn: str = "") -> str:
    return f"dldb://{txn}/file{folder(catalog, name)}"


def save(spark: SparkSession, path: str, start: int, end: int, **options: str) -> None:
    spark.range(start, end).coalesce(1).write.format("delta").options(**options).mode("append").save(path)


def ids(spark: SparkSession, path: str, **options: Any) -> list[int]:
    return sorted(row.id for row in spark.read.format("delta").options(**options).load(path).collect())


def make(catalog: dl.Catalog, name: str, *values: int) -> None:
    """A table made by Python, with one commit of rows."""
    with catalog.begin() as tx:
        tx.create_table(name, pa.schema([("id", pa.int64())]))
        tx.write(name, pa.table({"id": list(values)}), mode="append")


def protocol_of(text: str) -> dict[str, Any]:
    actions = (json.loads(line) for line in text.splitlines())
    return next(dict(action["protocol"]) for action in actions if "protocol" in action)


@pytest.fixture
def hadoop(spark: SparkSession) -> Hadoop:
    return Hadoop(spark)


def test_create_append_and_read_by_path_are_commits_in_sql(spark: SparkSession, bridge_catalog: dl.Catalog) -> None:
    path = bridged(bridge_catalog, "basics.first")
    save(spark, path, 0, 10)
    save(spark, path, 10, 15)
    assert ids(spark, path) == list(range(15))
    assert ids(spark, path, versionAsOf=0) == list(range(10))
    table = bridge_catalog.table("basics.first")
    assert table.version() == 1
    assert sorted(table.to_pyarrow_table().column("id").to_pylist()) == list(range(15))
    assert [entry["operation"] for entry in table.history()] == ["WRITE", "WRITE"]


def test_what_spark_keeps_beside_the_commits_never_reaches_the_mirror(
    spark: SparkSession, bridge_catalog: dl.Catalog
) -> None:
    name = "basics.beside"
    path, root = bridged(bridge_catalog, name), folder(bridge_catalog, name)
    for number in range(5):
        save(spark, path, number, number + 1, **{"delta.checkpointInterval": "3"} if number == 0 else {})
    bridge_catalog.mirror.flush(30)
    beside = {one.name for one in (root / "_dldb" / "log").iterdir()}
    assert {f"{3:020}.checkpoint.parquet", "_last_checkpoint", f"{4:020}.crc"} <= beside
    assert not [one for one in beside if one.startswith(".")], "no temporary files, and no checksums of Hadoop's"
    checksum = json.loads((root / "_dldb" / "log" / f"{4:020}.crc").read_text())
    assert FEATURE not in json.dumps(checksum["protocol"])
    first = (root / "_delta_log" / "00000000000000000000.json").read_text()
    assert FEATURE in protocol_of(first).get("writerFeatures", []), "the mirror has the fence"
    assert not bridge_catalog.validate(name).drift


def test_a_table_that_the_catalog_does_not_know_is_plain_delta(
    spark: SparkSession, bridge_catalog: dl.Catalog, tmp_path: Path
) -> None:
    path = f"dldb:///file{tmp_path}/elsewhere"
    save(spark, path, 0, 3)
    save(spark, path, 3, 5)
    assert ids(spark, path) == ids(spark, f"{tmp_path}/elsewhere") == [0, 1, 2, 3, 4]
    spark.sql(f"update delta.`{path}` set id = 9 where id = 0")
    assert ids(spark, f"{tmp_path}/elsewhere") == [1, 2, 3, 4, 9]
    log = tmp_path / "elsewhere" / "_delta_log"
    assert {one.name for one in log.glob("*.json")} == {f"{version:020}.json" for version in range(3)}
    assert not (tmp_path / "elsewhere" / "_dldb").exists()
    assert not [info for info in bridge_catalog.table_infos() if str(tmp_path) in info.location]


def test_inside_the_warehouse_a_table_has_a_namespace_and_a_name(
    spark: SparkSession, bridge_catalog: dl.Catalog
) -> None:
    with pytest.raises(AnalysisException, match="<warehouse>/<namespace>/<name>"):
        save(spark, f"dldb:///file{bridge_catalog.config.warehouse}/basics/too/deep", 0, 3)
    with pytest.raises(AnalysisException, match="is no path of the bridge"):
        save(spark, "dldb:///s3a", 0, 3)


def test_commits_are_served_from_sql_with_their_length_before_the_mirror_has_them(
    bridge_catalog: dl.Catalog, hadoop: Hadoop
) -> None:
    make(bridge_catalog, "basics.served", 1, 2)
    log = bridged(bridge_catalog, "basics.served") + "/_delta_log"
    text = hadoop.read(f"{log}/{1:020}.json")
    assert len(text) == hadoop.length(f"{log}/{1:020}.json")
    assert dict(hadoop.listed(f"{log}/{1:020}.json"))[f"{1:020}.json"] == len(text)
    assert any("add" in json.loads(line) for line in text.splitlines())
    assert FEATURE not in protocol_of(hadoop.read(f"{log}/{0:020}.json").decode()).get("writerFeatures", [])
    with pytest.raises(Py4JJavaError, match="FileNotFoundException"):
        hadoop.read(f"{log}/{2:020}.json")
    assert not hadoop.exists(f"{log}/{2:020}.json")
    assert hadoop.exists(log)
    assert not hadoop.exists(bridged(bridge_catalog, "basics.nothing") + "/_delta_log")


def test_a_checksum_is_served_for_commits_that_spark_did_not_make_and_spark_writes_its_own(
    spark: SparkSession, bridge_catalog: dl.Catalog, hadoop: Hadoop
) -> None:
    make(bridge_catalog, "basics.checksums", 1, 2)
    path = bridged(bridge_catalog, "basics.checksums")
    served = json.loads(hadoop.read(f"{path}/_delta_log/{1:020}.crc"))
    assert (served["numFiles"], served["tableSizeBytes"] > 0) == (1, True)
    assert not hadoop.exists(f"{path}/_delta_log/{1:020}.crc"), "else Spark would not write one"
    save(spark, path, 5, 6)
    own = folder(bridge_catalog, "basics.checksums") / "_dldb" / "log" / f"{2:020}.crc"
    assert json.loads(own.read_text())["numFiles"] == 2
    assert hadoop.read(f"{path}/_delta_log/{2:020}.crc") == own.read_bytes()


def test_nothing_that_deletes_files_reaches_a_table_of_the_catalog_or_its_mirror(
    spark: SparkSession, bridge_catalog: dl.Catalog, hadoop: Hadoop
) -> None:
    make(bridge_catalog, "guarded.kept", 1, 2)
    bridge_catalog.mirror.flush(30)
    path, root = bridged(bridge_catalog, "guarded.kept"), folder(bridge_catalog, "guarded.kept")
    mirror = sorted(one.name for one in (root / "_delta_log").iterdir())
    assert hadoop.delete(f"{path}/_delta_log/{0:020}.json", recursive=False) is False
    hadoop.delete(f"{path}/_delta_log")
    for holder in (path, path.removesuffix("/kept"), path.removesuffix("/guarded/kept")):
        with pytest.raises(AnalysisException, match="of the catalog lives there"):
            hadoop.delete(holder)
        with pytest.raises(AnalysisException, match="of the catalog lives there"):
            hadoop.rename(holder, f"{holder}.away")
    with pytest.raises(AnalysisException, match="only Delta's log store may write it"):
        hadoop.fs(path).create(hadoop.path(f"{path}/_delta_log/{2:020}.json"))
    assert sorted(one.name for one in (root / "_delta_log").iterdir()) == mirror
    assert ids(spark, path) == [1, 2]


def test_data_files_pass_through_whatever_their_names(
    spark: SparkSession, bridge_catalog: dl.Catalog, hadoop: Hadoop
) -> None:
    path, root = bridged(bridge_catalog, "basics.odd"), folder(bridge_catalog, "basics.odd")
    odd = ["a b", "50%", "x=y", "10:30", "é", "#?&", "a/b"]
    frame = spark.createDataFrame([(number, text) for number, text in enumerate(odd)], "id long, p string")
    frame.write.format("delta").partitionBy("p").save(path)
    assert {row.p for row in spark.read.format("delta").load(path).collect()} == set(odd)
    assert spark.read.format("delta").load(path).where("p = '10:30'").count() == 1
    assert len(hadoop.glob(f"{path}/p=*/*.parquet")) == len(odd) == len(list(root.glob("p=*/*.parquet")))
    assert spark.read.parquet(f"{path}/p=*/*.parquet").count() == len(odd)
    summary = hadoop.fs(path).getContentSummary(hadoop.path(path))
    assert int(summary.getFileCount()) >= len(odd)
    (root / "note.txt").write_text("x")
    assert hadoop.rename(f"{path}/note.txt", f"{path}/moved.txt")
    assert hadoop.delete(f"{path}/moved.txt", recursive=False)
    assert not (root / "moved.txt").exists()
    status = hadoop.fs(path).getFileStatus(hadoop.path(path))
    assert (status.isDirectory(), status.getOwner()) == (True, "")
    assert hadoop.fs(path).getFileStatus(hadoop.path("dldb:///")).isDirectory()


def test_a_commit_too_large_for_memory_goes_through_a_file_and_leaves_none(
    spark: SparkSession, bridge_catalog: dl.Catalog, hadoop: Hadoop
) -> None:
    path = bridged(bridge_catalog, "basics.large")
    hadoop.commit(f"{path}/_delta_log/{0:020}.json", first_commit())
    big = [add(f"f{number}.parquet", tags={"note": "x" * 200_000}) for number in range(60)]
    assert spark._jvm is not None
    temporary = Path(str(spark._jvm.java.lang.System.getProperty("java.io.tmpdir")))
    before = set(temporary.glob("deltalakedb-commit-*"))
    hadoop.commit(f"{path}/_delta_log/{1:020}.json", [info(), *big])
    assert set(temporary.glob("deltalakedb-commit-*")) <= before
    assert len(bridge_catalog.table("basics.large").file_uris()) == 60
    with pytest.raises(Py4JJavaError, match="FileAlreadyExistsException"):
        hadoop.commit(f"{path}/_delta_log/{1:020}.json", append("other.parquet"))
    with pytest.raises(Py4JJavaError, match="FileAlreadyExistsException"):
        hadoop.commit(f"{path}/_delta_log/{3:020}.json", append("other.parquet"))


def test_a_transaction_sees_no_checkpoint_and_no_checksum_that_is_younger_than_it(
    spark: SparkSession, bridge_catalog: dl.Catalog
) -> None:
    name = "basics.pinned"
    path = bridged(bridge_catalog, name)
    save(spark, path, 0, 1, **{"delta.checkpointInterval": "3"})
    endpoint = dls.bridge_of(spark, bridge_catalog)
    txn = endpoint.begin().txn
    inside = bridged(bridge_catalog, name, txn)
    for number in range(1, 5):  # Spark checkpoints version 3, in everybody's overlay
        save(spark, path, number, number + 1)
    assert (folder(bridge_catalog, name) / "_dldb" / "log" / f"{3:020}.checkpoint.parquet").exists()
    assert ids(spark, inside) == [0]
    for number in range(100, 104):  # and version 3 of the transaction, in its own
        save(spark, inside, number, number + 1)
    assert (folder(bridge_catalog, name) / "_dldb" / f"txn-{txn}" / f"{3:020}.checkpoint.parquet").exists()
    assert ids(spark, inside) == [0, *range(100, 104)]
    assert ids(spark, path) == list(range(5))
    listed = [one for one, _ in Hadoop(spark).listed(f"{inside}/_delta_log/{0:020}.json")]
    assert len([one for one in listed if one.endswith(".json")]) == 5
    endpoint.abort(txn)
    with pytest.raises(AnalysisException, match="transaction is over"):
        save(spark, inside, 0, 1)
    assert ids(spark, path) == list(range(5))


def test_a_table_outside_the_catalog_cannot_be_written_inside_a_transaction(
    spark: SparkSession, tmp_path: Path
) -> None:
    endpoint = dls.bridge_of(spark)
    txn = endpoint.begin().txn
    with pytest.raises(
        AnalysisException, match="is no table of the catalog, so it cannot be written inside a transaction"
    ):
        save(spark, f"dldb://{txn}/file{tmp_path}/loose", 0, 3)
    endpoint.abort(txn)
    assert not list(tmp_path.rglob("*.json"))
