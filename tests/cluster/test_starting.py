"""Each documented way to start a job on a cluster: `spark-submit`, a builder, Spark Connect's server, a notebook."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

import deltalakedb as dl
from deltalakedb.spark.jar import DELTA_SPARK, JAR
from tests.cluster.serving import TOKEN, ServedCatalog
from tests.fixtures.cluster import HOME, Cluster, free_port
from tests.fixtures.keeper import Kept
from tests.spark.over_s3 import s3a_conf
from tests.spark.test_merged_settings import make_jar

pytestmark = [pytest.mark.spark, pytest.mark.cluster]

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "cluster.md").read_text(encoding="utf-8")
SUBMIT = str(HOME / "bin" / "spark-submit")
WANTED = [["new", 20], ["old", 30]]


def settings_of_the_page(served: ServedCatalog) -> dict[str, str]:
    """The settings that docs/cluster.md names, with the address and the jar of this machine."""
    lines = re.findall(r"^(spark\.\S+) +(\S+)$", PAGE.partition("## The settings")[2].partition("\n|")[0], re.MULTILINE)
    ours = {"spark.jars": str(JAR), "spark.hadoop.deltalakedb.endpoint": served.url}
    return {**dict(lines), **ours}


@pytest.fixture
def environment(served: ServedCatalog) -> dict[str, str]:
    """The token is here, and nowhere else."""
    mine = {
        "DL_TOKEN": TOKEN,
        "LAKE_ENDPOINT": served.url,
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    return {
        **os.environ,
        **mine,
        "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]),
    }


def write_properties(path: Path, settings: Mapping[str, str]) -> Path:
    path.write_text("".join(f"{key} {value}\n" for key, value in settings.items()))
    return path


def run(command: list[str], environment: Mapping[str, str]) -> dict[str, Any]:
    """What a job prints as its last line."""
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr[-6000:]
    assert TOKEN not in done.stdout + done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_a_script_that_is_submitted_with_packages_keeps_them_beside_the_bridge(
    cluster: Cluster,
    catalog: dl.Catalog,
    environment: dict[str, str],
    s3_endpoint: str,
    tmp_path: Path,
) -> None:
    """Delta, S3A and a jar of the job's own come from the command line, the bridge from `dls.configure`."""
    conf = cluster.conf(tmp_path, **s3a_conf(s3_endpoint))
    packages = f"{DELTA_SPARK},{conf.pop('spark.jars.packages')}"
    own = make_jar(tmp_path / "own.jar")
    properties = write_properties(tmp_path / "small.conf", conf)
    command = [SUBMIT, "--properties-file", str(properties), "--packages", packages, "--jars", str(own)]
    told = run([*command, str(ROOT / "tests/cluster/job.py"), "submitted.orders", "--bridged"], environment)
    assert told["rows"] == WANTED
    assert told["master"] == cluster.master
    jars = told["jars"]
    for wanted in ("own.jar", JAR.name, "org.apache.hadoop_hadoop-aws-3.4.2.jar", "io.delta_delta-storage-4.4.0.jar"):
        assert jars.count(wanted) == 1, jars
    assert catalog.table("submitted.orders").version() == 2


def test_a_script_that_knows_nothing_of_us_runs_with_the_settings_of_the_page(
    cluster: Cluster,
    served: ServedCatalog,
    catalog: dl.Catalog,
    environment: dict[str, str],
    s3_endpoint: str,
    tmp_path: Path,
) -> None:
    s3a, page = s3a_conf(s3_endpoint), settings_of_the_page(served)
    assert "spark.hadoop.deltalakedb.token" not in page
    packages = f"{page['spark.jars.packages']},{s3a['spark.jars.packages']}"
    conf = cluster.conf(tmp_path, **{**s3a, **page, "spark.jars.packages": packages})
    command = [SUBMIT, "--properties-file", str(write_properties(tmp_path / "bridge.conf", conf))]
    told = run([*command, str(ROOT / "tests/cluster/job.py"), "plain.orders"], environment)
    assert told["rows"] == WANTED
    assert told["master"] == cluster.master
    assert catalog.table("plain.orders").version() == 2
    assert served.dl("validate", "plain.orders")[0] == 0


NOTEBOOK = """
import json, os, sys
import deltalakedb.spark as dls
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()  # runs before the first cell; its settings are those of the page
same = dls.session(endpoint=os.environ["LAKE_ENDPOINT"])
assert same.sparkContext is spark.sparkContext
with dls.begin(same) as tx:
    tx.sql("create table {notebook.orders} using delta as select id from range(0, 30, 1, 4)")
checks = {check.name: [check.status, check.found, check.advice] for check in dls.doctor(same)}
print(json.dumps({"rows": same.table("notebook.orders").count(), "checks": checks}))
"""


def test_a_session_that_runs_already_is_used_and_checked(
    cluster: Cluster, served: ServedCatalog, environment: dict[str, str], s3_endpoint: str, tmp_path: Path
) -> None:
    s3a, page = s3a_conf(s3_endpoint), settings_of_the_page(served)
    packages = f"{page['spark.jars.packages']},{s3a['spark.jars.packages']}"
    conf = cluster.conf(tmp_path, **{**s3a, **page, "spark.jars.packages": packages})
    properties = write_properties(tmp_path / "spark.conf", conf)
    submit = {"PYSPARK_SUBMIT_ARGS": f"--properties-file {properties} pyspark-shell"}
    told = run([sys.executable, "-c", NOTEBOOK], {**environment, **submit})
    assert told["rows"] == 30
    checks = told["checks"]
    assert {name: check for name, check in checks.items() if check[0] != "ok"} == {}
    for name in ("versions", "Delta's jar", "the bridge's jar", "endpoint", "warehouse", "shared storage"):
        assert f"{name}: executors (2)" in checks, checks
    assert checks["endpoint from Python"][1] == f"{served.url} serves {dl.connect(served.uri).uri}"


@pytest.fixture
def connect_server(
    cluster: Cluster, served: ServedCatalog, environment: dict[str, str], s3_endpoint: str, tmp_path: Path
) -> Iterator[str]:
    """Spark Connect's server on the cluster, started as docs/cluster.md says; its URL."""
    s3a, page, port = s3a_conf(s3_endpoint), settings_of_the_page(served), free_port()
    packages = f"{page['spark.jars.packages']},{s3a['spark.jars.packages']}"
    conf = cluster.conf(tmp_path, **{**s3a, **page, "spark.jars.packages": packages})
    conf["spark.connect.grpc.binding.port"] = str(port)
    properties = write_properties(tmp_path / "bridge.conf", conf)
    name = "org.apache.spark.sql.connect.service.SparkConnectServer"
    assert f"spark-submit --class {name}" in PAGE
    server = Kept(
        [SUBMIT, "--class", name, "--properties-file", str(properties), "spark-internal"],
        tmp_path / "connect.log",
        environment,
    )
    try:
        yield f"sc://127.0.0.1:{port}"
    finally:
        server.kill()


CLIENT = """
import json, sys
import deltalakedb.spark as dls
from pyspark.sql import SparkSession

spark = SparkSession.builder.remote(sys.argv[1]).getOrCreate()
spark.sql("create table connected.orders (id long, name string) using delta")
old = spark.range(0, 40, 1, 4).selectExpr("id", "'old' name")
old.write.format("delta").mode("append").saveAsTable("connected.orders")
spark.sql("merge into connected.orders t using (select id from range(30, 50, 1, 4)) s on t.id = s.id "
          "when matched then update set name = 'new' when not matched then insert (id, name) values (s.id, 'new')")
rows = spark.sql("select name, count(*) from connected.orders group by name order by name").collect()
with dls.begin(spark) as tx:
    tx.sql("delete from {connected.orders} where name = 'old'")
    tx.sql("create table {connected.new} using delta as select * from {connected.orders}")
(check,) = dls.doctor(spark)
left = spark.table("connected.new").count()
print(json.dumps({"rows": [list(row) for row in rows], "left": left, "doctor": check.status}))
"""


def test_clients_of_spark_connect_need_nothing_but_the_address_of_the_server(
    connect_server: str, catalog: dl.Catalog, environment: dict[str, str]
) -> None:
    told = run([sys.executable, "-c", CLIENT, connect_server], environment)
    assert told == {"rows": WANTED, "left": 20, "doctor": "failed"}
    assert catalog.table("connected.orders").version() == 3


def doctor(*arguments: str, environment: Mapping[str, str]) -> tuple[int, dict[str, dict[str, str]]]:
    """The exit code of `dl doctor --spark`, and its checks by name."""
    command = [sys.executable, "-c", "from deltalakedb.cli import main; main()", "doctor", "--spark", "--json"]
    done = subprocess.run([*command, *arguments], env=environment, capture_output=True, text=True, timeout=300)
    assert TOKEN not in done.stdout + done.stderr
    rows = json.loads(done.stdout[done.stdout.index("[") :])
    return done.returncode, {row["name"]: row for row in rows}


def as_options(conf: Mapping[str, str]) -> list[str]:
    return [word for key, value in conf.items() if key != "spark.master" for word in ("--conf", f"{key}={value}")]


def test_doctor_checks_driver_and_executors_of_a_cluster(
    cluster: Cluster, served: ServedCatalog, environment: dict[str, str], s3_endpoint: str, tmp_path: Path
) -> None:
    where = ("--master", cluster.master, "--endpoint", served.url, "--catalog", served.uri)
    conf = cluster.conf(tmp_path, **s3a_conf(s3_endpoint))
    code, checks = doctor(*where, *as_options(conf), environment=environment)
    assert {name: row for name, row in checks.items() if row["status"] == "failed"} == {}
    assert code == 0
    assert checks["warehouse: executors (2)"]["found"] == "written, read and deleted"
    assert "io.delta_delta-spark_4.1_2.13-4.4.0.jar" in checks["Delta's jar: executors (2)"]["found"]


LACKING = """
import json, sys
import deltalakedb.spark as dls
from pyspark.sql import SparkSession

spark = SparkSession.builder.config("spark.jars", sys.argv[1]).getOrCreate()
print(json.dumps({check.name: [check.status, check.found, check.advice] for check in dls.doctor(spark)}))
"""


def test_doctor_says_what_executors_lack(
    cluster: Cluster, served: ServedCatalog, environment: dict[str, str], tmp_path: Path
) -> None:
    """A builder has replaced the jars that executors are sent, and nobody has the client of S3 for the warehouse."""
    conf = cluster.conf(tmp_path, **settings_of_the_page(served))
    jar = conf.pop("spark.jars")
    properties = write_properties(tmp_path / "spark.conf", conf)
    submit = {"PYSPARK_SUBMIT_ARGS": f"--jars {jar} --properties-file {properties} pyspark-shell"}
    checks = run([sys.executable, "-c", LACKING, str(make_jar(tmp_path / "own.jar"))], {**environment, **submit})
    failed = {name: check for name, check in checks.items() if check[0] != "ok"}
    assert set(failed) == {"warehouse: the driver", "jars on executors"}, failed
    assert "S3AFileSystem" in failed["warehouse: the driver"][1]
    assert failed["jars on executors"][1] == "executors lack jars that the driver has"
    assert str(JAR) in failed["jars on executors"][2]
