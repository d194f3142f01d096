"""The builder of a bridged session: adds the bridge to what `spark-submit` has merged, and replaces none of it.

A setting of a builder is passed to Spark twice: to `spark-submit`, which adds the jars of `--packages` to `spark.jars`,
and then to the SparkContext, where it replaces that list. The driver has its class path by then. Executors get the
jars of the SparkContext, so on a cluster they would have no Delta.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from deltalakedb.exceptions import ConfigError
from deltalakedb.spark.jar import CATALOG, DELTA_SPARK, ENDPOINT, EXTENSIONS, TOKEN, check_spark_version

if TYPE_CHECKING:
    from pathlib import Path

JARS = "spark.jars"
SQL_EXTENSIONS = "spark.sql.extensions"


class BridgedBuilder(SparkSession.Builder):
    """A session's builder with the bridge; it shares its options with the builder that it was made from."""

    def __init__(self, builder: SparkSession.Builder, jar: Path, bridge: Mapping[str, str]) -> None:
        super().__init__()
        self._options: dict[str, Any] = builder._options
        self._jar = jar
        self._bridge = dict(bridge)

    def getOrCreate(self) -> SparkSession:  # noqa: N802  (Spark's own name)
        """Spark's own method, with the bridge; if Spark runs in this process already, a session of that Spark."""
        if SparkContext._active_spark_context is not None:
            return _join(SparkSession.builder.getOrCreate(), self._bridge, self._options)
        if "spark.remote" in self._options or "SPARK_REMOTE" in os.environ:
            raise ConfigError(
                "a client of Spark Connect has no jars: the bridge is set up where its server starts (docs/cluster.md)"
            )
        builder = SparkSession.builder
        for key, value in {**self._options, **self._bridge, **self._merge()}.items():
            builder = builder.config(key, value)
        return builder.getOrCreate()

    def _merge(self) -> dict[str, str]:
        """Start the JVM; returns the settings with several values: those in force there, and the bridge's."""
        jvm = _start_jvm(self._options)
        conf = SparkConf(_jvm=jvm)
        master = self._options.get("spark.master") or conf.get("spark.master", "local")
        if str(master).startswith("local"):
            # The workers must run this interpreter, not whatever `python3` is first in PATH.
            os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        jars_in_force = _split(conf.get(JARS, ""))
        jars = {_place(jar): jar for jar in _split(self._options.get(JARS), *jars_in_force)}
        if all(os.path.basename(place) != self._jar.name for place in jars):
            jars[str(self._jar)] = str(self._jar)
        jars |= {_place(jar): jar for jar in _delta_jars(jvm)}
        _add_to_class_path(jvm, [jar for jar in jars.values() if jar not in jars_in_force])
        # As spark-submit does: a later SparkContext of this JVM needs them too.
        jvm.java.lang.System.setProperty(JARS, ",".join(jars.values()))
        extensions = _split(",".join(EXTENSIONS), conf.get(SQL_EXTENSIONS, ""), self._options.get(SQL_EXTENSIONS))
        return {JARS: ",".join(jars.values()), SQL_EXTENSIONS: ",".join(extensions)}


def _start_jvm(options: Mapping[str, Any]) -> Any:
    """The JVM that `spark-submit` starts with these options, or the existing one of this process.

    The token is not on its command line, which others on this machine can read. Extensions are not needed yet, and
    would replace those of `spark-defaults.conf`.
    """
    conf = SparkConf()
    for key, value in options.items():
        if key not in (f"spark.hadoop.{TOKEN}", SQL_EXTENSIONS):
            conf.set(key, str(value))
    SparkContext._ensure_initialized(conf=conf)
    return SparkContext._jvm


def _delta_jars(jvm: Any) -> list[str]:
    """Delta's jars, from Maven; none if Delta is in the class path already."""
    from py4j.protocol import Py4JJavaError

    if _has_class(jvm, EXTENSIONS[-1]):
        return []
    try:
        resolved = jvm.org.apache.spark.util.DependencyUtils.resolveMavenDependencies(
            jvm.java.net.URI(f"ivy://{DELTA_SPARK}")
        )
    except Py4JJavaError as error:
        raise ConfigError(
            f"Spark cannot load {DELTA_SPARK} from Maven ({error.java_exception.getMessage()}): give its jars with "
            "spark.jars, or name a repository that is reached with spark.jars.repositories or spark.jars.ivySettings"
        ) from error
    return [str(resolved.apply(index)) for index in range(resolved.size())]


def _has_class(jvm: Any, name: str) -> bool:
    from py4j.protocol import Py4JJavaError

    try:
        jvm.java.lang.Class.forName(name, False, _class_loader(jvm))
    except Py4JJavaError:
        return False
    return True


def _class_loader(jvm: Any) -> Any:
    return jvm.java.lang.Thread.currentThread().getContextClassLoader()


def _add_to_class_path(jvm: Any, jars: Iterable[str]) -> None:
    """Add jars to the driver's class path that `spark-submit` did not have."""
    from py4j.protocol import Py4JError

    try:
        jvm.org.apache.spark.util.DependencyUtils.addJarsToClassPath(",".join(jars), _class_loader(jvm))
    except Py4JError as error:
        raise ConfigError(
            f"the class path of this driver cannot be added to ({type(error).__name__}): start Spark with "
            f"spark.jars={','.join(jars)}"
        ) from error


def _join(running: SparkSession, bridge: Mapping[str, str], options: Mapping[str, Any]) -> SparkSession:
    """A session of the running Spark bound to this endpoint: the present one if it is bound to it, or a new one."""
    check_spark_version(running.version)
    if running.conf.get("spark.sql.catalog.spark_catalog", "") != CATALOG:
        raise ConfigError(
            "Spark runs in this process without the bridge, and the bridge cannot be added to it: stop it "
            "(`spark.stop()`) before deltalakedb.spark.session(), pass its builder through configure(), or start it "
            "with the settings in docs/cluster.md"
        )
    url = bridge[f"spark.hadoop.{ENDPOINT}"]
    bound = running.conf.get(ENDPOINT, None) or running.conf.get(f"spark.hadoop.{ENDPOINT}", None)
    spark = running if bound == url else running.newSession()
    endpoint = {ENDPOINT: url, TOKEN: bridge[f"spark.hadoop.{TOKEN}"]}
    for key, value in {**endpoint, **options}.items():
        name = key.removeprefix("spark.hadoop.")
        if not name.startswith("spark.") or spark.conf.isModifiable(name):  # the others were fixed when Spark started
            spark.conf.set(name, value)
    return spark


def _place(jar: str) -> str:
    """The normalised path of a jar, because spark-submit turns paths into URLs."""
    scheme, colon, path = jar.partition(":")
    if not colon:
        return os.path.abspath(jar)
    return f"/{path.lstrip('/')}" if scheme == "file" else jar


def _split(*lists: str | None) -> list[str]:
    """The values of comma-separated settings, each once, in order."""
    values = [part.strip() for text in lists for part in str(text or "").split(",")]
    return list(dict.fromkeys(filter(None, values)))
