"""`dl iceberg mirror`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import deltalakedb
from deltalakedb import Catalog
from tests.cli.conftest import Dl, _no_settings_from_outside, dl  # noqa: F401  (fixtures)
from tests.conformance.transacting import numbers
from tests.fixtures.catalogs import NewCatalog
from tests.iceberg.lake import create
from tests.iceberg.mirror.judging import READERS, folder_of


@pytest.fixture
def catalog(tmp_path: Path, new_catalog: NewCatalog) -> str:
    """The address of a catalog, which `dl` takes too."""
    new_catalog("sqlite", tmp_path / "catalog.db")
    return f"deltasql://sqlite/{tmp_path}/catalog.db?warehouse={tmp_path}/lake"


@pytest.fixture
def opened(catalog: str) -> Iterator[Catalog]:
    with deltalakedb.connect(catalog) as opened:
        opened.create_namespace("shop")
        yield opened


def test_a_table_is_mirrored_and_brought_up(dl: Dl, opened: Catalog) -> None:  # noqa: F811
    table = create(opened, "shop.t", 1)
    first = dl("iceberg", "mirror", "shop.t")
    assert first.exit_code == 0
    assert first.stdout.startswith(f"shop.t version 1 is version 1 of the Delta table at file://{folder_of(opened)}")
    assert "(2 commits added)" in first.stdout
    assert "(nothing to add)" in dl("iceberg", "mirror", "shop.t").stdout
    table.append(numbers(2))
    value = json.loads(dl("iceberg", "mirror", "shop.t", "--json").stdout)
    assert (value["table"], value["version"], value["delta_version"], value["commits"]) == ("shop.t", 2, 2, [2])
    assert sorted(READERS["polars"].latest(folder_of(opened)).rows["id"].to_pylist()) == [1, 2]


def test_a_mirror_is_left_out_of_what_is_imported(dl: Dl, opened: Catalog) -> None:  # noqa: F811
    create(opened, "shop.t", 1)
    dl("iceberg", "mirror", "shop.t")
    result = dl("import", "--recursive", str(folder_of(opened).parent))
    assert (result.exit_code, "is left out" in result.stderr) == (0, True)
    assert [info.full_name for info in opened.table_infos()] == ["shop.t"]


def test_a_table_that_cannot_be_mirrored_is_an_error_of_one_line(dl: Dl, opened: Catalog) -> None:  # noqa: F811
    create(opened, "shop.t", 1, **{"format-version": "1"})
    result = dl("iceberg", "mirror", "shop.t")
    assert result.exit_code == 1
    assert "version 1 of the format" in result.stderr
    assert result.stderr.strip().count("\n") == 0
