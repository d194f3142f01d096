"""Spark sessions with the bridge: configured, checked, connected to the endpoint of a catalog, and their settings."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from deltalakedb.exceptions import ConfigError, MissingExtraError
from deltalakedb.spark.endpoint import RETRY_SECONDS as ENDPOINT_RETRY_SECONDS
from deltalakedb.spark.endpoint import EndpointClient
from deltalakedb.spark.jar import (
    ABSTRACT_FILE_SYSTEM,
    CATALOG,
    ENDPOINT,
    FILE_SYSTEM,
    LOG_STORE,
    TOKEN,
    check_spark_version,
    find_jar,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from deltalakedb.catalog.catalog import Catalog

    CatalogLike = str | os.PathLike[str] | Catalog | None

RETRY_SECONDS = "deltalakedb.retry.seconds"
TLS_CA = "deltalakedb.tls.ca"
VACUUM_COMMITS = "spark.databricks.delta.vacuum.logging.enabled"
BRIDGE_SETTINGS = {
    "spark.sql.catalog.spark_catalog": CATALOG,
    "spark.hadoop.fs.dldb.impl": FILE_SYSTEM,
    "spark.hadoop.fs.AbstractFileSystem.dldb.impl": ABSTRACT_FILE_SYSTEM,
    # Otherwise one object per transaction would stay in Hadoop's cache as long as the JVM lives.
    "spark.hadoop.fs.dldb.impl.disable.cache": "true",
    "spark.delta.logStore.dldb.impl": LOG_STORE,
    # By default Delta writes these commits only on some file systems. The catalog learns from them what VACUUM deletes.
    VACUUM_COMMITS: "true",
}
"""The settings of a session beside the jars, the extensions, the endpoint and the token."""
_HEALTH_SECONDS = 5.0
_FALLBACK = "fallback."


def session(
    catalog: CatalogLike = None, *, endpoint: str | None = None, token: str | None = None, **conf: Any
) -> SparkSession:
    """A Spark session whose `namespace.table` names and `format("delta")` commits go through the catalog.

    Without `endpoint` this process serves the catalog itself, on the loopback interface. Further keywords are Spark
    settings: `**{"spark.driver.memory": "4g"}`. If Spark already runs in this process with the bridge, the session is
    one of that Spark.
    """
    builder = _builder()
    for key, value in conf.items():
        builder = builder.config(key, value)
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
    """Add the bridge to a builder of your own; use the builder that is returned. `ca`: the endpoint's CA (PEM).

    Jars, packages and extensions are added to those of the builder, of `spark-submit` and of `spark-defaults.conf`.
    """
    _builder()  # without pyspark this says what to install
    from pyspark import __version__

    from deltalakedb.spark.builder import BridgedBuilder

    jar = find_jar()
    check_spark_version(__version__)
    check_java()
    url, secret = _endpoint(catalog, endpoint, token, ca)
    options: dict[str, Any] = getattr(builder, "_options", {})
    bridge = {**BRIDGE_SETTINGS, f"spark.hadoop.{ENDPOINT}": url, f"spark.hadoop.{TOKEN}": secret}
    bridge[VACUUM_COMMITS] = str(options.get(VACUUM_COMMITS, bridge[VACUUM_COMMITS]))
    if ca is not None:
        bridge[f"spark.hadoop.{TLS_CA}"] = os.fspath(ca)
    return BridgedBuilder(builder, jar, bridge)


def bridge_of(
    spark: SparkSession, catalog: CatalogLike = None, *, retry_seconds: float = ENDPOINT_RETRY_SECONDS
) -> EndpointClient:
    """The endpoint of a bridged session. `catalog` only checks which catalog it serves: another one is an error."""
    url, token, ca = (_bridge_setting(spark, key) for key in (ENDPOINT, TOKEN, TLS_CA))
    if url is None:
        raise ConfigError(
            "this Spark session has no bridge to a catalog: start it with deltalakedb.spark.session(), or pass its "
            "builder through deltalakedb.spark.configure()"
        )
    client = EndpointClient(url, token or os.environ.get("DL_TOKEN", ""), ca, retry_seconds=retry_seconds)
    if catalog is not None:
        _check_same(client, catalog)
    return client


@dataclass(frozen=True, slots=True)
class PlannedScans:
    """Who planned the scans of this driver."""

    planned: int
    """Scans planned by the database."""
    remembered: int
    """Scans answered from the memory of the driver: the same question about the same version."""
    fallbacks: Mapping[str, int]
    """Scans that Delta planned, by the reason."""


def planned_scans(spark: SparkSession) -> PlannedScans:
    """How many scans of tables of the catalog the database has planned since the driver started, and how many not."""
    jvm = getattr(spark, "_jvm", None) if hasattr(spark, "_jsparkSession") else None
    if jvm is None:
        raise ConfigError("planned scans are counted in the driver's JVM, which Spark Connect does not show")
    counts = {str(name): int(count) for name, count in jvm.io.deltalakedb.Planning.counts().items()}
    fallbacks = {name.removeprefix(_FALLBACK): count for name, count in counts.items() if name.startswith(_FALLBACK)}
    return PlannedScans(counts.get("planned", 0), counts.get("remembered", 0), fallbacks)


def _check_same(client: EndpointClient, catalog: CatalogLike) -> None:
    from deltalakedb.catalog.catalog import Catalog, locate_catalog

    expected = catalog.uri if isinstance(catalog, Catalog) else locate_catalog(catalog)[0]
    served = client.health().get("catalog")
    if served != str(expected):
        raise ConfigError(
            f"this Spark session is bound to another catalog ({client.url} serves {served}): leave the argument out, "
            "or start a session for the catalog that you mean"
        )


def _endpoint(
    catalog: CatalogLike, endpoint: str | None, token: str | None, ca: str | os.PathLike[str] | None
) -> tuple[str, str]:
    """The URL and the token of the endpoint, after a check that it answers."""
    if endpoint is None:
        # The serving layer is above this one, so it is imported by name, and only without an endpoint.
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


def check_java() -> None:
    """ConfigError if there is no Java, with what to install."""
    home = os.environ.get("JAVA_HOME")
    if shutil.which("java") is None and (home is None or shutil.which("java", path=f"{home}/bin") is None):
        raise ConfigError("Spark needs Java 17: install it (`apt install openjdk-17-jre-headless`), or set JAVA_HOME")


def _bridge_setting(spark: SparkSession, key: str) -> str | None:
    """A setting of the session, or the one with the prefix `spark.hadoop.` that it was started with."""
    value = spark.conf.get(key, None) or spark.conf.get(f"spark.hadoop.{key}", None)
    return None if value is None else str(value)


_lock = threading.Lock()
_overrides: dict[tuple[str, str], _Override] = {}


@dataclass(slots=True)
class _Override:
    before: str | None
    users: int = 0


@contextmanager
def setting(spark: SparkSession, name: str, value: str) -> Iterator[None]:
    """Apply a setting for the duration of the block. Concurrent threads share it; the last one restores it."""
    key = (_session_of(spark), name)
    with _lock:
        override = _overrides.get(key)
        if override is None:
            override = _overrides[key] = _Override(spark.conf.get(name, None))
            spark.conf.set(name, value)
        override.users += 1
    try:
        yield
    finally:
        with _lock:
            override.users -= 1
            if not override.users:
                del _overrides[key]
                if override.before is None:
                    spark.conf.unset(name)
                else:
                    spark.conf.set(name, override.before)


def _session_of(spark: SparkSession) -> str:
    """The session's id: several Python objects may stand for one session of the JVM."""
    of_jvm = getattr(spark, "_jsparkSession", None)
    return f"python {id(spark)}" if of_jvm is None else str(of_jvm.sessionUUID())
