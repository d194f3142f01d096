"""Spark sessions with the bridge: configured, checked, and connected with the endpoint of a catalog."""

from __future__ import annotations

import os
import shutil
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

from deltalakedb.exceptions import ConfigError, MissingExtraError
from deltalakedb.spark.endpoint import EndpointClient
from deltalakedb.spark.jar import CATALOG, DELTA_SPARK, EXTENSION, FILE_SYSTEM, LOG_STORE, check_spark_version, find_jar

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from deltalakedb.catalog import Catalog

    CatalogLike = str | os.PathLike[str] | Catalog | None

ENDPOINT = "deltalakedb.endpoint"
TOKEN = "deltalakedb.token"
RETRY_SECONDS = "deltalakedb.retry.seconds"
TLS_CA = "deltalakedb.tls.ca"
_HEALTH_SECONDS = 5.0
_LISTS = {"spark.jars": ",", "spark.jars.packages": ",", "spark.sql.extensions": ","}
"""Settings that hold several values: ours is added to what is there."""


def session(
    catalog: CatalogLike = None, *, endpoint: str | None = None, token: str | None = None, **conf: Any
) -> SparkSession:
    """A Spark session whose `namespace.table` names and `format("delta")` commits go through the catalog.

    Without `endpoint` this process serves the catalog itself, on the loopback interface. Further keywords are Spark
    settings: `**{"spark.driver.memory": "4g"}`. A session that already runs is used, if it has the bridge.
    """
    builder = _builder()
    for key, value in conf.items():
        builder = builder.config(key, value)
    active = _active()
    if active is not None:
        return _connect_active(active, catalog, endpoint, token, conf)
    ca = conf.get(f"spark.hadoop.{TLS_CA}")
    return configure(builder, catalog, endpoint=endpoint, token=token, ca=ca).getOrCreate()


def configure(
    builder: SparkSession.Builder,
    catalog: CatalogLike = None,
    *,
    endpoint: str | None = None,
    token: str | None = None,
    ca: str | os.PathLike[str] | None = None,
) -> SparkSession.Builder:
    """The same for a builder of your own: call `getOrCreate()` on it afterwards. `ca`: the endpoint's CA, a PEM file."""
    jar = find_jar()
    check_spark_version(_spark_version())
    _check_java()
    url, secret = _endpoint(catalog, endpoint, token, ca)
    # The workers must run this interpreter, not whatever `python3` is first in PATH.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    ours = {
        "spark.jars": str(jar),
        "spark.jars.packages": DELTA_SPARK,
        "spark.sql.extensions": EXTENSION,
        "spark.sql.catalog.spark_catalog": CATALOG,
        "spark.hadoop.fs.dldb.impl": FILE_SYSTEM,
        # One object per transaction would stay in Hadoop's cache for as long as the JVM lives.
        "spark.hadoop.fs.dldb.impl.disable.cache": "true",
        "spark.delta.logStore.dldb.impl": LOG_STORE,
        f"spark.hadoop.{ENDPOINT}": url,
        f"spark.hadoop.{TOKEN}": secret,
    }
    if ca is not None:
        ours[f"spark.hadoop.{TLS_CA}"] = os.fspath(ca)
    given: dict[str, Any] = getattr(builder, "_options", {})
    for key, value in ours.items():
        builder = builder.config(key, _joined(key, given.get(key), value))
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
    from deltalakedb.catalog import Catalog, connect

    meant = catalog.catalog_id if isinstance(catalog, Catalog) else None
    if meant is None:
        with connect(catalog) as opened:  # type: ignore[arg-type]
            meant = opened.catalog_id
    served = client.health().get("catalog")
    if served != str(meant):
        raise ConfigError(
            f"this Spark session is bound to another catalog ({client.url} serves {served}): leave the argument out, "
            "or start a session for the catalog that you mean"
        )


def _connect_active(
    spark: SparkSession, catalog: CatalogLike, endpoint: str | None, token: str | None, conf: dict[str, Any]
) -> SparkSession:
    """Let the session that runs speak with this endpoint: its own settings win over how it was started."""
    check_spark_version(spark.version)
    if spark.conf.get("spark.sql.catalog.spark_catalog", "") != CATALOG:
        raise ConfigError(
            "a Spark session without the bridge runs in this process, and the jar cannot be added to it: stop it "
            "(`spark.stop()`) before deltalakedb.spark.session(), or pass its builder through configure()"
        )
    url, secret = _endpoint(catalog, endpoint, token, conf.get(f"spark.hadoop.{TLS_CA}"))
    spark.conf.set(ENDPOINT, url)
    spark.conf.set(TOKEN, secret)
    for key, value in conf.items():
        spark.conf.set(key, value)
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


def _active() -> SparkSession | None:
    from pyspark.sql import SparkSession

    return SparkSession.getActiveSession()


def _spark_version() -> str:
    try:
        from pyspark import __version__
    except ModuleNotFoundError:
        raise MissingExtraError("deltalakedb.spark", "spark") from None
    return str(__version__)


def _check_java() -> None:
    home = os.environ.get("JAVA_HOME")
    if shutil.which("java") is None and (home is None or shutil.which("java", path=f"{home}/bin") is None):
        raise ConfigError("Spark needs Java 17: install it (`apt install openjdk-17-jre-headless`), or set JAVA_HOME")


def _joined(key: str, given: Any, ours: str) -> str:
    separator = _LISTS.get(key)
    if separator is None or not given:
        return ours
    parts = [part.strip() for part in str(given).split(separator) if part.strip()]
    return separator.join(parts if ours in parts else [*parts, ours])


def _setting(spark: SparkSession, key: str) -> str | None:
    """A setting of the session, or how it was started."""
    found = spark.conf.get(key, None) or spark.conf.get(f"spark.hadoop.{key}", None)
    return None if found is None else str(found)
