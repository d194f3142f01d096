"""Scans of files that Spark need not list: the bridge's jar, if the session has it, takes them from the log."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

KnownFile: TypeAlias = tuple[str | int | None, ...]
"""A path in Hadoop's spelling, length, modification time in milliseconds, and the text of each partition value."""
_CLASS: Final = "PlannedFiles"
_found: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()


def scan_known_files(
    spark: SparkSession, schema: StructType, partitions: StructType, files: Sequence[KnownFile], *, by_id: bool
) -> DataFrame | None:
    """Scan these files; partition values are the last columns.

    None without the jar, over Spark Connect, or if `spark.deltalakedb.plannedFiles` is false.
    """
    scan = _scan_of(spark)
    if scan is None:
        return None
    from pyspark.sql.classic.dataframe import DataFrame

    frame = scan(spark._jsparkSession, schema.json(), partitions.json(), json.dumps(files), by_id)
    return None if frame is None else DataFrame(frame, spark)


def _scan_of(spark: SparkSession) -> Any:
    """The jar's function, or None. Cached, because the lookup takes five JVM calls."""
    jvm = getattr(spark, "_jvm", None) if hasattr(spark, "_jsparkSession") else None
    if jvm is None:
        return None
    if jvm not in _found:
        from py4j.java_gateway import JavaClass

        java_class = getattr(jvm.io.deltalakedb, _CLASS)
        _found[jvm] = java_class.scan if isinstance(java_class, JavaClass) else None
    return _found[jvm]
