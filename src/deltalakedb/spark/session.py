"""Spark sessions with the bridge: configured, checked, and connected with the endpoint of a catalog."""

from __future__ import annotations

import os
import shutil
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

from deltalakedb.exceptions import ConfigError, MissingExtraError
from deltalakedb.spark.endpoint import EndpointClient
from deltalakedb.spark.jar import (
    ABSTRACT_FILE_SYSTEM,
    CATALOG,
    DELTA_SPARK,
    EXTENSIONS,
    FILE_SYSTEM,
    LOG_STORE,
    check_spark_version,
    find_jar,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from deltalakedb.catalog import Catalog

    CatalogLike = str | os.PathLike[str] | Catalog | None

ENDPOINT = "deltalakedb.endpoint"
TOKEN = "deltalakedb.token"
RETRY_SECONDS = "deltalakedb.retry.seconds"
TLS_CA = "deltalakedb.tls.ca"
VACUUM_COMMITS = "spark.databricks.delta.vacuum.logging.enabled"
_HEALTH_SECONDS = 5.0


def session(
    catalog: CatalogLike = None, *, endpoint: str | None = None, token: str | None = None, **conf: Any
) -> SparkSession:
    """A Spark session whose `namespace.table` names and `format("delta")` commits go through the catalog.

    Without `endpoint` this process serves the catalog itself, on the loopback interface. Further keywords are Spark
    settings: `**{"spark.driver.memory": "4g"}`. When Spark runs in this process already, with the bridge, the session
    is one of that Spark.
    """
    builder, ca = _builder(), conf.get(f"spark.hadoop.{TLS_CA}")
    if _is_running():
        return _join(builder.getOrCreate(), _endpoint(catalog, endpoint, token, ca), conf)
    for key, value in conf.items():
        builder = builder.config(key, value)
    return configure(builder, catalog, endpoint=endpoint, token=token, ca=ca).getOrCreate()


def configure(
    builder: SparkSession.Builder,
    catalog: CatalogLike = None,
    *,
    endpoint: str | None = None,
    token: str | None = None,
    ca: str | os.PathLike[str] | None = None,
) -> SparkSession.Builder:
    """The same for a builder of your own; `getOrCreate()` comes next. `ca`: the endpoint's CA, a PEM file."""
    jar = find_jar()
    check_spark_version(_spark_version())
    check_java()
    url, secret = _endpoint(catalog, endpoint, token, ca)
    # The workers must run this interpreter, not whatever `python3` is first in PATH.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    given: dict[str, Any] = getattr(builder, "_options", {})
    ours = {
        "spark.jars": _joined(given.get("spark.jars"), (str(jar),)),
        "spark.jars.packages": _joined(given.get("spark.jars.packages"), (DELTA_SPARK,)),
        "spark.sql.extensions": _joined(given.get("spark.sql.extensions"), EXTENSIONS),
        "spark.sql.catalog.spark_catalog": CATALOG,
        "spark.hadoop.fs.dldb.impl": FILE_SYSTEM,
        "spark.hadoop.fs.AbstractFileSystem.dldb.impl": ABSTRACT_FILE_SYSTEM,
        # One object per transaction would stay in Hadoop's cache for as long as the JVM lives.
        "spark.hadoop.fs.dldb.impl.disable.cache": "true",
        "spark.delta.logStore.dldb.impl": LOG_STORE,
        f"spark.hadoop.{ENDPOINT}": url,
        f"spark.hadoop.{TOKEN}": secret,
    }
    # Delta writes these commits on file systems that it knows. The catalog learns from them what VACUUM deletes.
    ours[VACUUM_COMMITS] = str(given.get(VACUUM_COMMITS, "true"))
    if ca is not None:
        ours[f"spark.hadoop.{TLS_CA}"] = os.fspath(ca)
    for key, value in ours.items():
        builder = builder.config(key, value)
    return builder


def bridge_of(spark: SparkSession, catalog: CatalogLike = None) -> EndpointClient:
    """The endpoint of a bridged session. `catalog` only says which one is meant: another one is an error."""
    url, token, ca = (_setting(spark, key) for key in (ENDPOINT, TOKEN, TLS_CA))
    if url is None:
        raise ConfigError(
            "this Spark session has no bridge to a catalog: start it with deltalakedb.spark.session(), or pass its "
            "builder through deltalakedb.spark.configure()"
        )
    client = EndpointClient(url, token or "", ca)
    if catalog is not None:
        _check_same(client, catalog)
    return client


def _check_same(client: EndpointClient, catalog: CatalogLike) -> None:
    from deltalakedb.catalog import Catalog, locate_catalog

    meant = catalog.uri if isinstance(catalog, Catalog) else locate_catalog(catalog)[0]
    served = client.health().get("catalog")
    if served != str(meant):
        raise ConfigError(
            f"this Spark session is bound to another catalog ({client.url} serves {served}): leave the argument out, "
            "or start a session for the catalog that you mean"
        )


def _join(running: SparkSession, served: tuple[str, str], conf: dict[str, Any]) -> SparkSession:
    """A session of the Spark that runs, bound to this endpoint; the one that is there, if it is bound to it."""
    check_spark_version(running.version)
    if running.conf.get("spark.sql.catalog.spark_catalog", "") != CATALOG:
        raise ConfigError(
            "Spark runs in this process without the bridge, and the jar cannot be added to it: stop it "
            "(`spark.stop()`) before deltalakedb.spark.session(), or pass its builder through configure()"
        )
    spark = running if _setting(running, ENDPOINT) == served[0] else running.newSession()
    for key, value in {ENDPOINT: served[0], TOKEN: served[1], **conf}.items():
        name = key.removeprefix("spark.hadoop.")
        if not name.startswith("spark.") or spark.conf.isModifiable(name):  # the rest was settled when Spark started
            spark.conf.set(name, value)
    return spark


def _endpoint(
    catalog: CatalogLike, endpoint: str | None, token: str | None, ca: str | os.PathLike[str] | None
) -> tuple[str, str]:
    """Where the catalog is served, and the token, after one look whether it answers."""
    if endpoint is None:
        # The serving layer stands above this one; only who has no endpoint needs it, and it is found by its name.
        served = import_module("deltalakedb.serve.server").LocalEndpoint.of(catalog)
        return served.url, served.token
    if catalog is not None:
        raise ConfigError("give either a catalog, which this process then serves, or the endpoint that serves it")
    secret = token or os.environ.get("DL_TOKEN", "")
    if not secret:
        raise ConfigError(f"the endpoint {endpoint} wants a token: pass token=..., or set DL_TOKEN")
    with EndpointClient(endpoint, secret, ca, retry_seconds=_HEALTH_SECONDS) as client:
        client.health()
        return client.url, secret


def _builder() -> SparkSession.Builder:
    try:
        from pyspark.sql import SparkSession
    except ModuleNotFoundError:
        raise MissingExtraError("deltalakedb.spark", "spark") from None
    return SparkSession.builder


def _is_running() -> bool:
    from pyspark import SparkContext

    return SparkContext._active_spark_context is not None


def _spark_version() -> str:
    try:
        from pyspark import __version__
    except ModuleNotFoundError:
        raise MissingExtraError("deltalakedb.spark", "spark") from None
    return str(__version__)


def check_java() -> None:
    """Refuse to start Spark where there is no Java, and say what to install."""
    home = os.environ.get("JAVA_HOME")
    if shutil.which("java") is None and (home is None or shutil.which("java", path=f"{home}/bin") is None):
        raise ConfigError("Spark needs Java 17: install it (`apt install openjdk-17-jre-headless`), or set JAVA_HOME")


def _joined(given: Any, ours: tuple[str, ...]) -> str:
    """Values of a setting that holds several: ours, then what else was asked for."""
    others = [part.strip() for part in str(given or "").split(",")]
    return ",".join([*ours, *(part for part in others if part and part not in ours)])


def _setting(spark: SparkSession, key: str) -> str | None:
    """A setting of the session, or how it was started."""
    found = spark.conf.get(key, None) or spark.conf.get(f"spark.hadoop.{key}", None)
    return None if found is None else str(found)
