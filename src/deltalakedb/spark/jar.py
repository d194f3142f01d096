"""The bridge's jar inside this package, and the versions of Spark and Delta that it was compiled against."""

from __future__ import annotations

from pathlib import Path

from deltalakedb.exceptions import ConfigError

JAR = Path(__file__).parent / "jars" / "deltalakedb-bridge.jar"
SPARK_LINE = "4.1"
DELTA_SPARK = "io.delta:delta-spark_4.1_2.13:4.4.0"

FILE_SYSTEM = "io.deltalakedb.SqlLogFileSystem"
ABSTRACT_FILE_SYSTEM = "io.deltalakedb.SqlLogFs"
LOG_STORE = "io.deltalakedb.SqlLogStore"
CATALOG = "io.deltalakedb.SqlCatalog"
ENDPOINT = "deltalakedb.endpoint"
TOKEN = "deltalakedb.token"
# Ours comes first: it tells Delta's where new tables go.
EXTENSIONS = ("io.deltalakedb.SqlExtension", "io.delta.sql.DeltaSparkSessionExtension")


def find_jar() -> Path:
    """The path of the jar; ConfigError says how to get it."""
    if not JAR.is_file():
        raise ConfigError(
            f"the jar of the Spark bridge is missing ({JAR}): in a checkout run `make setup` (it needs a JDK 17); "
            "an installed package that lacks it was not built whole: reinstall deltalakedb"
        )
    return JAR


def check_spark_version(version: str) -> None:
    """ConfigError if the catalog and file system interfaces of this Spark are not those that the jar implements."""
    if version.split(".")[:2] != SPARK_LINE.split("."):
        raise ConfigError(
            f"the Spark bridge is made for Spark {SPARK_LINE}.x with {DELTA_SPARK}, and this is Spark {version}: "
            "pip install 'deltalakedb[spark]' installs the right one"
        )
