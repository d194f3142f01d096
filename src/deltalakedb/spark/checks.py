"""Checks a Spark session with the bridge: jars, versions, endpoint and storage, on the driver and on executors."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from deltalakedb.exceptions import DeltaError, redact
from deltalakedb.spark.jar import DELTA_SPARK, EXTENSIONS, JAR, SPARK_LINE
from deltalakedb.spark.session import BRIDGE_SETTINGS, bridge_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_TASKS_PER_EXECUTOR = 4
_PATIENCE_SECONDS = 5.0
_LONGEST = 300
# How Spark reports that a task's class is not in an executor's class path; for a lambda it is the second one.
_MISSING_CLASSES = ("ClassNotFoundException", "ClassCastException", "NoClassDefFoundError")
_ENDPOINT_ADVICE = (
    "start `dl serve --bridge` at an address that {who} can reach, and name it in spark.hadoop.deltalakedb.endpoint; "
    "the token is DL_TOKEN in the driver's environment"
)
_STORAGE_ADVICE = "give {who} the right to write, read and delete there (S3: spark.hadoop.fs.s3a.*, docs/cluster.md)"
_SHARED_ADVICE = "put the warehouse on storage that all machines share: an object store, or the same mount everywhere"


@dataclass(frozen=True, slots=True)
class SparkCheck:
    """One check: `ok` or `failed`, what was found, and what to do."""

    name: str
    status: str
    found: str
    advice: str = ""


def doctor(spark: SparkSession) -> list[SparkCheck]:
    """Check a running session: its settings, and what its driver and its executors have and can reach."""
    if not hasattr(spark, "_jsparkSession"):
        advice = "run `dl doctor --spark` with the settings of its server"
        return [SparkCheck("session", "failed", "a client of Spark Connect, which has no driver of its own", advice)]
    settings = _settings(spark)
    if settings.status != "ok":
        return [_session(spark), settings]
    warehouse = ""
    try:
        with bridge_of(spark, retry_seconds=_PATIENCE_SECONDS) as client:
            health = client.health()
            warehouse = health.get("warehouse", "")
            served = SparkCheck("endpoint from Python", "ok", f"{client.url} serves {health.get('catalog')}")
    except DeltaError as error:
        served = _failed("endpoint from Python", str(error), _ENDPOINT_ADVICE.format(who="the driver"))
    driver = list(_driver(spark, warehouse))
    executors = _executors(spark, warehouse) if len(driver) > 1 else ()
    return [_session(spark), settings, served, *driver, *executors]


def _session(spark: SparkSession) -> SparkCheck:
    master = spark.sparkContext.master
    if spark.version.split(".")[:2] != SPARK_LINE.split("."):
        advice = f"use Spark {SPARK_LINE}: pip install 'deltalakedb[spark]' installs the right one"
        return SparkCheck("session", "failed", f"Spark {spark.version} at {master}", advice)
    return SparkCheck("session", "ok", f"Spark {spark.version} at {master}")


def _settings(spark: SparkSession) -> SparkCheck:
    """Check the bridge's settings; lists those that are missing or different."""
    wrong = [f"{key}={value}" for key, value in BRIDGE_SETTINGS.items() if spark.conf.get(key, "") != value]
    extensions = str(spark.conf.get("spark.sql.extensions", "") or "").split(",")
    if [name for name in extensions if name in EXTENSIONS] != list(EXTENSIONS):
        wrong.append(f"spark.sql.extensions={','.join(EXTENSIONS)}")
    if not (spark.conf.get("deltalakedb.endpoint", None) or spark.conf.get("spark.hadoop.deltalakedb.endpoint", None)):
        wrong.append("spark.hadoop.deltalakedb.endpoint=URL")
    if wrong:
        advice = f"start Spark with deltalakedb.spark.session() or configure(), or set {', '.join(wrong)}"
        return SparkCheck("settings", "failed", f"{len(wrong)} missing or different", advice)
    return SparkCheck("settings", "ok", f"{len(BRIDGE_SETTINGS) + 2} as they must be")


def _driver(spark: SparkSession, warehouse: str) -> Iterator[SparkCheck]:
    from py4j.protocol import Py4JError

    jvm: Any = spark._jvm
    try:
        answer = json.loads(jvm.io.deltalakedb.ClusterProbe.driver(spark._jsparkSession, warehouse))
    except TypeError:  # to py4j a missing class is a package, and cannot be called
        yield _failed("jars on the driver", "the bridge's jar is not in the class path", f"add {JAR} to spark.jars")
        return
    except Py4JError as error:
        yield _failed("jars on the driver", _first_line(error), f"add {JAR} and Delta's jars to spark.jars")
        return
    yield from _checks("the driver", [answer])


def _executors(spark: SparkSession, warehouse: str) -> Iterator[SparkCheck]:
    from py4j.protocol import Py4JError

    context = spark.sparkContext
    master = str(context.master)
    if master.startswith("local") and not master.startswith("local-cluster"):
        return  # the driver is the executor
    jvm: Any = spark._jvm
    running = max(context._jsc.sc().getExecutorMemoryStatus().size() - 1, 1)
    tasks = max(_TASKS_PER_EXECUTOR * running, context.defaultParallelism)
    try:
        texts = jvm.io.deltalakedb.ClusterProbe.executors(spark._jsparkSession, warehouse, tasks)
    except Py4JError as error:
        message = _first_line(error)
        if any(kind in message for kind in _MISSING_CLASSES):
            message = "executors lack jars that the driver has"
        advice = (
            f"see that spark.jars of the SparkContext names {JAR} and Delta's jars: spark.jars of a builder replaces "
            "those of --packages, unless it goes through deltalakedb.spark.configure()"
        )
        yield _failed("jars on executors", message, advice)
        return
    answers = {answer["executor"]: answer for answer in map(json.loads, texts)}
    yield from _checks(f"executors ({len(answers)})", list(answers.values()))


def _checks(who: str, answers: Sequence[dict[str, str]]) -> Iterator[SparkCheck]:
    """The checks of the answers of a driver or of executors, one per subject."""
    delta = DELTA_SPARK.rpartition(":")[2]

    def check(name: str, is_right: Callable[[dict[str, str]], bool], key: str, found: str, advice: str) -> SparkCheck:
        wrong = [answer for answer in answers if not is_right(answer)]
        if not wrong:
            return SparkCheck(f"{name}: {who}", "ok", found)
        first = wrong[0]
        message = f"{first['host']}: {first.get(key) or 'missing'}"
        return _failed(f"{name}: {who}", message, advice)

    first = answers[0]
    versions = f"Spark {first['spark']}, Scala {first['scala']}, Java {first['java']}, Delta {first['delta']}"
    yield check(
        "versions", lambda a: a["spark"].startswith(f"{SPARK_LINE}.") and int(a["java"].split(".")[0]) >= 17, "java",
        versions, f"run Spark {SPARK_LINE} on Java 17 on every machine",
    )  # fmt: skip
    advice = f"start Spark with spark.jars.packages={DELTA_SPARK}, or with deltalakedb.spark.session()"
    yield check("Delta's jar", lambda a: a["delta"] == delta, "delta", first.get("delta_jar", ""), advice)
    yield check("the bridge's jar", lambda a: bool(a["bridge"]), "bridge", first["bridge"], f"add {JAR} to spark.jars")
    who_can = "every executor" if len(answers) > 1 or who != "the driver" else who
    advice = _ENDPOINT_ADVICE.format(who=who_can)
    yield check("endpoint", lambda a: a["endpoint"] == "ok", "endpoint", "answers", advice)
    if "storage" in first:
        advice = _STORAGE_ADVICE.format(who=who_can)
        yield check("warehouse", lambda a: a["storage"] == "ok", "storage", "written, read and deleted", advice)
    if "shared" in first:
        found = "executors see the driver's files"
        yield check("shared storage", lambda a: a["shared"] == "ok", "shared", found, _SHARED_ADVICE)


def _failed(name: str, message: str, advice: str) -> SparkCheck:
    return SparkCheck(name, "failed", redact(" ".join(message.split()))[:_LONGEST], advice)


def _first_line(error: BaseException) -> str:
    """The first line of a JVM's error, without its trace."""
    of_java = getattr(error, "java_exception", None)
    text = str(error) if of_java is None else str(of_java)
    return next((line for line in text.splitlines() if line.strip()), type(error).__name__)
