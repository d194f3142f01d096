"""Starting a session with the bridge: what is set, what is checked before, and the jar that it needs."""

import importlib.util
import os
import shutil
import subprocess
import sys
import textwrap
import time
import zipfile
from pathlib import Path
from types import ModuleType

import pytest
from pyspark.sql import SparkSession

import deltalakedb as dl
import deltalakedb.spark as dls
from deltalakedb.exceptions import ConfigError, EndpointError
from deltalakedb.serve.server import LocalEndpoint
from deltalakedb.spark import jar

ROOT = Path(__file__).parents[2]


def build_script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("bridge_build", ROOT / "bridge" / "build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run_python(script: str, folder: Path) -> str:
    """Run in a process of its own; what it printed."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("DL_", "PYSPARK"))}
    environment["PYTHONPATH"] = str(ROOT)
    command = [sys.executable, "-c", textwrap.dedent(script)]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_names_of_the_package_are_functions_whatever_was_imported_before(tmp_path: Path) -> None:
    script = """
        import deltalakedb.spark.session
        from deltalakedb.spark.session import bridge_of
        import deltalakedb.spark as dls
        print(callable(dls.session), callable(dls.configure), dls.bridge_of is bridge_of)
    """
    assert run_python(script, tmp_path).split() == ["True", "True", "True"]


def test_a_missing_jar_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(jar, "JAR", tmp_path / "gone.jar")
    with pytest.raises(ConfigError, match="gone.jar.*make setup.*reinstall"):
        dls.configure(SparkSession.builder, tmp_path / "catalog.db")


@pytest.mark.parametrize("version", ["3.5.1", "4.0.0", "4.2.0", "41.4"])
def test_another_spark_is_refused(version: str) -> None:
    with pytest.raises(ConfigError, match=f"made for Spark 4.1.x.*this is Spark {version}"):
        jar.check_spark_version(version)


def test_the_spark_that_the_extra_installs_is_accepted() -> None:
    jar.check_spark_version("4.1.4")
    assert jar.find_jar() == jar.JAR


def test_a_machine_without_java_is_told_to_install_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(ConfigError, match="needs Java 17"):
        dls.configure(SparkSession.builder, tmp_path / "catalog.db")


def test_a_missing_pyspark_names_the_extra(tmp_path: Path) -> None:
    script = """
        import sys
        from deltalakedb.exceptions import DeltaError
        sys.modules["pyspark"] = sys.modules["pyspark.sql"] = None
        import deltalakedb.spark as dls
        try:
            dls.session("catalog.db")
        except DeltaError as error:
            print(type(error).__name__, error)
    """
    assert "MissingExtraError" in (said := run_python(script, tmp_path))
    assert "pip install 'deltalakedb[spark]'" in said


def test_an_endpoint_that_is_down_is_told_before_spark_starts() -> None:
    started = time.monotonic()
    with pytest.raises(EndpointError, match="http://127.0.0.1:9 cannot be reached"):
        dls.configure(SparkSession.builder, endpoint="http://127.0.0.1:9", token="some-token")
    assert time.monotonic() - started < 15


def test_a_wrong_token_is_told_before_spark_starts(tmp_path: Path) -> None:
    with (
        dl.connect(tmp_path / "catalog.db") as catalog,
        LocalEndpoint(catalog) as endpoint,
        pytest.raises(EndpointError, match="does not accept the token") as refused,
    ):
        dls.configure(SparkSession.builder, endpoint=endpoint.url, token="not-the-right-token")
    assert "not-the-right-token" not in str(refused.value)


def test_an_endpoint_needs_a_token_and_no_catalog(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("DL_TOKEN", raising=False)
    with pytest.raises(ConfigError, match="wants a token"):
        dls.configure(SparkSession.builder, endpoint="http://127.0.0.1:9")
    with pytest.raises(ConfigError, match="either a catalog.*or the endpoint"):
        dls.configure(SparkSession.builder, tmp_path / "c.db", endpoint="http://127.0.0.1:9", token="some-token")


def test_a_second_session_is_one_of_the_spark_that_runs(
    spark: SparkSession, bridge_catalog: dl.Catalog, tmp_path: Path
) -> None:
    same = dls.session(bridge_catalog, **{"spark.driver.memory": "7g", "spark.sql.shuffle.partitions": "2"})
    assert same.sparkContext is spark.sparkContext
    assert dls.bridge_of(same).url == dls.bridge_of(spark).url
    with dl.connect(tmp_path / "other.db", warehouse=str(tmp_path / "lake")) as other:
        second = dls.session(other)
        assert second.sparkContext is spark.sparkContext
        assert dls.bridge_of(second, other).url != dls.bridge_of(spark, bridge_catalog).url
        with pytest.raises(ConfigError, match="bound to another catalog"):
            dls.bridge_of(spark, other)
        LocalEndpoint.of(other).close()


def test_the_jar_is_the_one_of_these_sources_byte_for_byte(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    script = build_script()
    assert script.is_current()
    monkeypatch.setattr(script, "JAR", tmp_path / "again" / "bridge.jar")
    monkeypatch.setattr(script, "HERE", tmp_path / "again" / "bridge")
    assert not script.is_current()
    script.main()
    assert script.JAR.read_bytes() == jar.JAR.read_bytes()


def test_a_machine_without_javac_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(SystemExit, match="no javac.*install a JDK 17.*make setup"):
        build_script().find_javac()


def test_the_wheel_has_the_jar_or_is_not_built(tmp_path: Path) -> None:
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tmp_path / name)
    shutil.copytree(ROOT / "bridge", tmp_path / "bridge")
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__"))
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(tmp_path / "dist")]
    subprocess.run(build, cwd=tmp_path, check=True, capture_output=True, timeout=120)
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    with zipfile.ZipFile(wheel) as packed:
        assert packed.read("deltalakedb/spark/jars/deltalakedb-bridge.jar") == jar.JAR.read_bytes()
    shutil.rmtree(tmp_path / "src" / "deltalakedb" / "spark" / "jars")
    refused = subprocess.run(build, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert refused.returncode != 0
    assert "run `make setup`" in refused.stderr + refused.stdout


@pytest.mark.slow
def test_scans_are_planned_by_the_database_again_after_spark_was_stopped_and_started(tmp_path: Path) -> None:
    script = """
        import deltalakedb as dl
        import deltalakedb.spark as dls

        catalog = dl.connect("catalog.db", warehouse="lake")
        for number in (1, 2):
            spark = dls.session(catalog, **{"spark.master": "local[2]", "spark.ui.enabled": "false"})
            spark.sql("create table if not exists s.t (id long) using delta")
            spark.sql(f"insert into s.t values ({number})")
            before = dls.planned_scans(spark)
            frame = spark.sql("select * from s.t where id >= 1")
            print("rows", frame.count(), "PlannedByDatabase" in frame._jdf.queryExecution().executedPlan().toString())
            after = dls.planned_scans(spark)
            print("scans", after.planned > before.planned, after.fallbacks == before.fallbacks)
            spark.stop()
        catalog.close()
    """
    lines = run_python(script, tmp_path).splitlines()
    found = [line for line in lines if line.startswith(("rows ", "scans "))]
    assert found == ["rows 1 True", "scans True True", "rows 2 True", "scans True True"]
