"""The Spark session of a capture that was passed none, and Spark's errors as one line without stack traces."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.resources import files
from typing import TYPE_CHECKING, Final

from deltalakedb.exceptions import CaptureError, ConfigError, MissingExtraError, SparkDiedError, redact
from deltalakedb.spark.session import check_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

try:
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException
except ModuleNotFoundError:
    raise MissingExtraError("deltalakedb.cdc", "cdc") from None


_DEATH_SECONDS: Final = 5.0
_PROGRESS: Final = "spark.ui.showConsoleProgress"
_DEFAULTS: Final = {
    "spark.ui.enabled": "false",
    _PROGRESS: "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.streaming.numRecentProgressUpdates": "4",
}
"""Settings of our own Spark, unless `spark-submit`, PYSPARK_SUBMIT_ARGS or spark-defaults.conf set them."""
_LOCAL_DEFAULTS: Final = {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}
"""Only for a local Spark: executors on other machines could not reach this address."""
_APP_NAME: Final = "deltalakedb-cdc"
_UNNAMED: Final = "pyspark-shell"
"""Spark's name for an application without one."""


@contextmanager
def opened_session(spark: SparkSession | None, ended: threading.Event | None = None) -> Iterator[SparkSession]:
    """The given session, or one of the Spark that runs here, or a new one that ends with the block.

    The start of a session cannot be interrupted. If it fails and `ended` is set, the signal has ended Java too, and
    KeyboardInterrupt is raised. SparkDiedError if Java ends while it starts.
    """
    try:
        from pyspark import SparkContext
        from pyspark.sql import SparkSession
    except ModuleNotFoundError:
        raise MissingExtraError("deltalakedb.cdc", "cdc") from None
    existing = spark or SparkSession.getActiveSession()
    if existing is None and SparkContext._active_spark_context is not None:
        existing = SparkSession.builder.getOrCreate()  # another thread has started it, so it is not ours to end
    if existing is not None:
        if not hasattr(existing, "_jsparkSession"):
            raise ConfigError(
                "a capture runs in the driver's process, and this session is one of Spark Connect: leave spark= out"
            )
        yield existing
        return
    check_java()
    try:
        session = _start_session()
    except Exception as error:  # the death of Java by the same signal shows in many ways
        if ended is not None and ended.is_set():
            raise KeyboardInterrupt from error
        died = how_start_ended(error)
        if died is None:
            raise
        _forget_java()
        raise SparkDiedError(died) from error
    try:
        yield session
    except (Py4JError, ConnectionError) as error:
        died = how_java_ended(error)
        if died is None:
            raise
        if ended is not None and ended.is_set():
            raise KeyboardInterrupt from error
        raise SparkDiedError(died) from error
    finally:
        _end(session)


def _start_session() -> SparkSession:
    """Start a session on the configured master, or in this process if none is configured."""
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    launch = SparkConf()
    if "PYSPARK_SUBMIT_ARGS" not in os.environ:  # otherwise they decide what is shown and logged
        launch.set(_PROGRESS, "false")  # Spark would switch it on for a Python without a script
        quiet = f"-Dlog4j2.configurationFile={files('deltalakedb.cdc').joinpath('log4j2.properties')}"
        launch.set("spark.driver.extraJavaOptions", quiet)
    SparkContext._ensure_initialized(conf=launch)
    conf = SparkConf(_jvm=SparkContext._jvm)
    defaults = dict(_DEFAULTS)
    if conf.get("spark.master", "local").startswith("local"):
        defaults |= _LOCAL_DEFAULTS
        # The workers must run this interpreter, not whatever `python3` is first in PATH.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder
    if conf.get("spark.app.name", _UNNAMED) == _UNNAMED:
        builder = builder.appName(_APP_NAME)
    for key, value in defaults.items():
        if not conf.contains(key):
            builder = builder.config(key, value)
    return builder.getOrCreate()


def has_spark(spark: SparkSession | None) -> bool:
    """Whether `opened_session` would use an existing Spark, which we must not end or restart."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    return (
        spark is not None
        or SparkSession.getActiveSession() is not None
        or SparkContext._active_spark_context is not None
    )


def how_java_ended(error: BaseException) -> str | None:
    """How the Java process of our Spark ended, if that caused the error; None if it is still running."""
    from pyspark import SparkContext

    process = getattr(SparkContext._gateway, "proc", None)
    if process is None or not _is_lost_connection(error):
        return None
    with suppress(subprocess.TimeoutExpired):  # its connections end a moment before the process
        code = process.wait(_DEATH_SECONDS)
        how = f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"
        return f"the Java process of Spark ({process.pid}) {how}"
    return None


def how_start_ended(error: Exception) -> str | None:
    """How Java ended, if that made the start of a session fail."""
    from pyspark import SparkContext
    from pyspark.errors import PySparkException

    has_exited = isinstance(error, PySparkException) and error.getCondition() == "JAVA_GATEWAY_EXITED"
    # PySpark has told its port, and nobody answers there: it ended before PySpark keeps its process.
    if has_exited or (SparkContext._gateway is None and isinstance(error, Py4JError | ConnectionError)):
        return "the Java process of Spark ended before it had started"
    return how_java_ended(error)


def _is_lost_connection(error: BaseException | None) -> bool:
    """Whether an error is, or was caused by, a lost connection to Java."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        if isinstance(error, Py4JError | ConnectionError):
            return True
        error = error.__cause__ or error.__context__
    return False


def _end(session: SparkSession) -> None:
    """End a session and its Java process, which may have died."""
    from pyspark import SparkContext

    process = getattr(SparkContext._gateway, "proc", None)
    try:
        session.stop()
    except Exception:  # every call to a dead Java process fails
        if process is None or process.poll() is None:
            raise
    if process is not None and process.poll() is not None:
        _forget_java()


def _forget_java() -> None:
    """Reset PySpark, so that it starts another Java process."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    SparkContext._active_spark_context = SparkContext._gateway = SparkContext._jvm = None
    SparkSession._instantiatedSession = SparkSession._activeSession = None


_ADVICE: Final = {
    "No module named 'deltalakedb": "install deltalakedb[cdc] in the Python of the executors, and name that Python in "
    "PYSPARK_PYTHON (docs/cdc.md, On a cluster)",
    "PYTHON_VERSION_MISMATCH": "let PYSPARK_PYTHON name a Python of the driver's version on every machine",
}
_STACK: Final = ("at ", "Caused by:", "...", "File ", "Traceback")
"""How lines of Java's and Python's stack traces begin."""


@contextmanager
def spark_errors() -> Iterator[None]:
    """Translate Spark's exceptions to a CaptureError with one line."""
    try:
        yield
    except (PySparkException, Py4JError) as error:
        raise CaptureError(f"Spark failed: {describe_error(str(error))}") from error


def copy_failed(source: str, error: Exception) -> CaptureError:
    return CaptureError(f"the copy of {source} failed in Spark: {describe_error(str(error))}")


def describe_error(text: str) -> str:
    """The message of the Python task within Java's text, with advice if there is any."""
    # Java's text begins with ": ".
    lines = [line.strip().removeprefix(": ") for line in text.splitlines() if line.strip()]
    messages = [line for line in lines if not line.startswith(_STACK)]
    errors = [line for line in messages if "Error: " in line or "Exception: " in line]
    line = redact((errors or messages or ["no reason was given"])[-1])
    return ". ".join([line, *(f"To mend it, {advice}" for sign, advice in _ADVICE.items() if sign in line)])
