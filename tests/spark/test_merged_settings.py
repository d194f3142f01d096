"""Jars and extensions of the user's, wherever they were named, stay beside those of the bridge."""

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import deltalakedb as dl
from deltalakedb.serve.server import LocalEndpoint
from deltalakedb.spark.jar import EXTENSIONS, JAR
from tests.fixtures.spark import submit_arguments

pytestmark = pytest.mark.spark

SCRIPT = """
import json, os, sys
import deltalakedb.spark as dls
from deltalakedb.exceptions import ConfigError
from pyspark.sql import SparkSession

own, endpoint = sys.argv[1:3]
builder = SparkSession.builder.config("spark.jars", own).config("spark.sql.extensions", "org.example.OfTheBuilder")
plain = builder.getOrCreate()
try:
    dls.session(endpoint=endpoint)
except ConfigError as error:
    refused = str(error)
plain.stop()

def start():
    spark = dls.configure(builder.appName("merged"), endpoint=endpoint).getOrCreate()
    spark.sql("create table if not exists a.t using delta as select 1L id")
    found = [spark.conf.get(key) for key in ("spark.jars", "spark.sql.extensions", "spark.hadoop.deltalakedb.endpoint")]
    assert spark.table("a.t").count() == 1
    spark.stop()
    return found

print(json.dumps({"refused": refused, "first": start(), "second": start(), "python": os.environ["PYSPARK_PYTHON"]}))
"""


def make_jar(path: Path) -> Path:
    with zipfile.ZipFile(path, "w") as packed:
        packed.writestr(f"{path.stem}.txt", "a resource")
    return path


@pytest.mark.slow
def test_jars_and_extensions_of_the_user_stay_whoever_named_them(tmp_path: Path) -> None:
    """By the builder, the command line and a file of settings, in a JVM that ran a plain session before."""
    of_builder, of_command = make_jar(tmp_path / "builder.jar"), make_jar(tmp_path / "command.jar")
    submit = submit_arguments(tmp_path, **{"spark.driver.memory": "1g"})["PYSPARK_SUBMIT_ARGS"]
    with dl.connect(tmp_path / "c.db", warehouse=str(tmp_path / "lake")) as catalog, LocalEndpoint(catalog) as served:
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("DL_", "PYSPARK"))}
        environment |= {
            "DL_TOKEN": served.token,
            "PYSPARK_SUBMIT_ARGS": f"--jars {of_command} --conf spark.sql.extensions=org.example.OfTheFile {submit}",
        }
        command = [sys.executable, "-c", SCRIPT, str(of_builder), served.url]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, done.stdout + done.stderr[-6000:]
        told = json.loads(done.stdout.splitlines()[-1])
        assert catalog.table("a.t").version() == 0
    assert "cannot be added to it" in told["refused"]
    assert told["python"] == sys.executable
    for jars, extensions, endpoint in (told["first"], told["second"]):
        names = [jar.rpartition("/")[2] for jar in jars.split(",")]
        for wanted in ("command.jar", "builder.jar", JAR.name, "io.delta_delta-storage-4.4.0.jar"):
            assert names.count(wanted) == 1, jars
        assert extensions.split(",")[:2] == list(EXTENSIONS)
        assert sorted(extensions.split(",")[2:]) == ["org.example.OfTheBuilder", "org.example.OfTheFile"]
        assert endpoint == served.url
