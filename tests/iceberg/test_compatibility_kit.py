"""Iceberg's own REST Compatibility Kit against its reference server, and against `dl serve` on each engine."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fixtures.catalogs import NewCatalog
from tests.fixtures.served import serving
from tests.fixtures.sizes import sized
from tests.iceberg.kit import run_kit

pytestmark = [pytest.mark.slow, pytest.mark.spark]

PASSED_BY_REFERENCE = 144
LEFT_OUT = {  # what the kit leaves out for every server, each for a reason of its own
    "createAndDropEmptyNamespace",
    "createTableInUniqueLocation",
    "listNamespacesWithEmptyNamespace",
    "listTablesInEmptyNamespace",
    "listViewsInEmptyNamespace",
    "namespacePropertiesOnEmptyNamespace",
    "tableCreationWithoutNamespace",
    "testDropNamespaceWithNestedNamespace",
    "testListNestedNamespaces",
    "testNamespaceWithSlash",
    "testTableNameWithSlash",
}
# The kit puts some of its tables here, whatever the warehouse is.
SHARED_FOLDERS = [Path("/tmp/ns"), Path("/tmp/newdb")]
SWITCHES = {"requires-namespace-create": "true", "supports-names-with-dot": "true", "supports-variant": "true"}


@pytest.fixture(autouse=True)
def shared_folders() -> Iterator[None]:
    """Removes what the kit leaves outside of the test's own folder."""
    before = {folder for folder in SHARED_FOLDERS if folder.exists()}
    yield
    for folder in SHARED_FOLDERS:
        if folder not in before:
            shutil.rmtree(folder, ignore_errors=True)


def test_the_reference_server_passes_all_of_the_kit(tmp_path: Path) -> None:
    result = run_kit(tmp_path, {"rck.local": "true"})
    assert not result.failed, result.output
    assert len(result.passed) == PASSED_BY_REFERENCE


@pytest.mark.parametrize(
    ("engine", "sign_in"), [("sqlite", "token"), ("postgres", "credential"), *sized([], [("duckdb", "token")])]
)
def test_dl_serve_passes_all_of_the_kit(
    engine: str, sign_in: str, tmp_path: Path, new_catalog: NewCatalog, request: pytest.FixtureRequest
) -> None:
    """Also what the reference server does not pass: names with dots and variants."""
    catalog = str(tmp_path / f"kit.{engine}")
    if engine == "postgres":
        catalog = str(request.getfixturevalue("postgres_catalog"))
    else:
        new_catalog(engine, Path(catalog))
    (tmp_path / "lake").mkdir()
    allowed = ",".join([str(tmp_path), *map(str, SHARED_FOLDERS)])
    environment = {"DL_SERVE_ICEBERG_LOCATIONS": allowed}
    with serving(tmp_path, catalog, tmp_path / "lake", "--iceberg", environment=environment) as served:
        uri = f"{served.url}/iceberg"
        properties = {"rck.local": "false", "uri": uri, "rck.uri": uri, "warehouse": str(tmp_path / "lake")}
        properties[sign_in] = served.token if sign_in == "token" else f"tests:{served.token}"
        properties |= {f"rck.{switch}": value for switch, value in SWITCHES.items()}
        result = run_kit(tmp_path, properties)
    assert not result.failed, "\n".join(f"{name}: {message}" for name, message in result.failed.items())
    assert len(result.passed) > PASSED_BY_REFERENCE
    assert {name.rpartition(".")[2] for name in result.skipped} <= LEFT_OUT
