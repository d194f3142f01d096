"""Scans of files that Spark need not look for: the bridge's jar, in a session that has it, takes them from the log."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

KnownFile: TypeAlias = tuple[str | int | None, ...]
"""A path as Hadoop spells it, length, time of modification in milliseconds, and the text of each partition value."""
_CLASS: Final = "PlannedFiles"
_found: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()


def scan_known_files(
    spark: SparkSession, schema: StructType, partitions: StructType, files: Sequence[KnownFile], *, by_id: bool
) -> DataFrame | None:
    """The rows of these files, their partition values behind.

    None without the jar, over Spark Connect, or where `spark.deltalakedb.plannedFiles` is false.
    """
    scan = _scan_of(spark)
    if scan is None:
        return None
    from pyspark.sql.classic.dataframe import DataFrame

    found = scan(spark._jsparkSession, schema.json(), partitions.json(), json.dumps(files), by_id)
    return None if found is None else DataFrame(found, spark)


def _scan_of(spark: SparkSession) -> Any:
    """The jar's function, or None. To ask for it takes five calls of the JVM, so it is asked for once."""
    jvm = getattr(spark, "_jvm", None) if hasattr(spark, "_jsparkSession") else None
    if jvm is None:
        return None
    if jvm not in _found:
        from py4j.java_gateway import JavaClass

        found = getattr(jvm.io.deltalakedb, _CLASS)
        _found[jvm] = found.scan if isinstance(found, JavaClass) else None
    return _found[jvm]
