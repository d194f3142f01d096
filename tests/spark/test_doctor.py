"""`dls.doctor`: what it says of a session that works, and of what is wrong with others, in one line each."""

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import deltalakedb as dl
import deltalakedb.spark as dls
from deltalakedb.serve.server import LocalEndpoint
from deltalakedb.spark import checks

Bridge = Callable[[dl.Catalog], SparkSession]


def failures(spark: SparkSession) -> dict[str, dls.SparkCheck]:
    return {check.name: check for check in dls.doctor(spark) if check.status != "ok"}


def test_a_session_that_works_has_nothing_to_mend(spark: SparkSession, bridge_catalog: dl.Catalog) -> None:
    found = {check.name: check for check in dls.doctor(spark)}
    assert {check.status for check in found.values()} == {"ok"}
    assert {check.advice for check in found.values()} == {""}
    assert "Delta 4.4.0" in found["versions: the driver"].found
    assert found["the bridge's jar: the driver"].found.endswith("deltalakedb-bridge.jar")
    assert str(bridge_catalog.uri) in found["endpoint from Python"].found
    assert "warehouse: the driver" in found
    assert [path.name for path in Path(str(bridge_catalog.config.warehouse)).glob("_dldb-doctor*")] == []


def test_settings_that_are_missing_are_named_with_their_values(spark: SparkSession) -> None:
    other = spark.newSession()
    other.conf.set("spark.databricks.delta.vacuum.logging.enabled", "false")
    (check,) = failures(other).values()
    assert check.name == "settings"
    assert "spark.databricks.delta.vacuum.logging.enabled=true" in check.advice


def test_an_endpoint_that_is_gone_is_told_for_python_and_for_the_driver(
    bridge: Bridge, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checks, "_PATIENCE_SECONDS", 0.1)
    with dl.connect(tmp_path / "catalog.db", warehouse=str(tmp_path / "lake")) as catalog:
        session = bridge(catalog)
        LocalEndpoint.of(catalog).close()
    found = failures(session)
    assert set(found) == {"endpoint from Python", "endpoint: the driver"}
    assert all("dl serve --bridge" in check.advice for check in found.values())
    assert "did not answer" in found["endpoint: the driver"].found


def test_a_warehouse_that_cannot_be_written_to_is_told(bridge: Bridge, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    with dl.connect(tmp_path / "catalog.db", warehouse=str(tmp_path / "file" / "lake")) as catalog:
        found = failures(bridge(catalog))
        LocalEndpoint.of(catalog).close()
    assert set(found) == {"warehouse: the driver"}
    assert "cannot write" in found["warehouse: the driver"].found
    assert "right to write, read and delete" in found["warehouse: the driver"].advice
