"""The Spark of a capture that was given none: a small one of its own, in this process."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files
from typing import TYPE_CHECKING, Final

from deltalakedb.exceptions import ConfigError, MissingExtraError
from deltalakedb.spark.session import check_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_CONF: Final = {
    "spark.master": "local[*]",
    "spark.app.name": "deltalakedb-cdc",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.streaming.numRecentProgressUpdates": "4",
}


@contextmanager
def opened_session(spark: SparkSession | None, ended: threading.Event | None = None) -> Iterator[SparkSession]:
    """The given session, or one of the Spark that runs here, or one of our own that ends with the block.

    The start of one takes no interruption. Where it fails and `ended` is set, whoever ended us has ended Java, too, and
    that is a KeyboardInterrupt.
    """
    try:
        from pyspark import SparkContext
        from pyspark.sql import SparkSession
    except ModuleNotFoundError:
        raise MissingExtraError("deltalakedb.cdc", "cdc") from None
    found = spark or SparkSession.getActiveSession()
    if found is None and SparkContext._active_spark_context is not None:
        found = SparkSession.builder.getOrCreate()  # another thread has started it: it is not ours to end
    if found is not None:
        if not hasattr(found, "_jsparkSession"):
            raise ConfigError(
                "a capture runs in the driver's process, and this session is one of Spark Connect: leave spark= out"
            )
        yield found
        return
    check_java()
    # The workers must run this interpreter, not whatever `python3` is first in PATH.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder
    quiet = f"-Dlog4j2.configurationFile={files('deltalakedb.cdc').joinpath('log4j2.properties')}"
    for key, value in {**_CONF, "spark.driver.extraJavaOptions": quiet}.items():
        builder = builder.config(key, value)
    try:
        session = builder.getOrCreate()
    except Exception as error:  # a Java that died by the same signal shows in many ways
        if ended is not None and ended.is_set():
            raise KeyboardInterrupt from error
        raise
    try:
        yield session
    finally:
        session.stop()
