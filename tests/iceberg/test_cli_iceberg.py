"""`dl` on Iceberg tables and views."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType

import deltalakedb
from deltalakedb import Catalog
from tests.cli.conftest import Dl, _no_settings_from_outside, dl  # noqa: F401  (fixtures)
from tests.conformance.transacting import days, numbers
from tests.fixtures.catalogs import NewCatalog
from tests.iceberg.lake import SCHEMA, create, ids_of, view_version


@pytest.fixture
def catalog(tmp_path: Path, new_catalog: NewCatalog) -> str:
    """The address of a catalog with a table of each format and a view."""
    path = tmp_path / "catalog.db"
    new_catalog("sqlite", path)
    address = f"deltasql://sqlite/{path}?warehouse={tmp_path}/lake"
    with deltalakedb.connect(address) as opened:
        opened.create_namespace("shop")
        create(opened, "shop.ice", 1, 2)
        opened.iceberg("shop.ice").append(numbers(3))
        opened.iceberg().create_view("shop.recent", SCHEMA, view_version("select 7"))
        with opened.begin() as tx:
            tx.write("shop.delta", numbers(1))
    return address


@pytest.fixture
def opened(catalog: str) -> Iterator[Catalog]:
    with deltalakedb.connect(catalog) as opened:
        yield opened


def test_tables_shows_the_formats(dl: Dl) -> None:  # noqa: F811
    rows = [line.split("\t")[:2] for line in dl("tables").stdout.splitlines()]
    assert rows[1:] == [["shop.delta", "delta"], ["shop.ice", "iceberg"], ["shop.recent", "view"]]
    assert {entry["format"] for entry in json.loads(dl("tables", "--json").stdout)} == {"delta", "iceberg", "view"}


def test_show_describes_a_table_and_a_view(dl: Dl) -> None:  # noqa: F811
    text = dl("show", "shop.ice").stdout
    assert "id\tlong" in text
    value = json.loads(dl("show", "shop.ice", "--json").stdout)
    assert (value["version"], value["num_records"], value["num_files"], value["format"]) == (2, 3, 2, "iceberg")
    assert json.loads(dl("show", "shop.ice", "--version", "0", "--json").stdout)["snapshot_id"] is None
    assert json.loads(dl("show", "shop.recent", "--json").stdout)["sql"] == {"spark": "select 7"}
    assert "select 7" in dl("show", "shop.recent").stdout


def test_history_lists_the_versions(dl: Dl, opened: Catalog) -> None:  # noqa: F811
    entries = json.loads(dl("history", "shop.ice", "--json").stdout)
    assert [(entry["version"], entry["operation"]) for entry in entries] == [
        (2, "APPEND"),
        (1, "APPEND"),
        (0, "CREATE TABLE"),
    ]
    assert opened.history("shop.ice", limit=1) == entries[:1]
    assert json.loads(dl("history", "shop.recent", "--json").stdout)[0]["operation"] == "CREATE VIEW"


def test_files_and_rows_of_each_version_are_printed(dl: Dl) -> None:  # noqa: F811
    assert len(json.loads(dl("files", "shop.ice", "--json").stdout)) == 2
    assert len(json.loads(dl("files", "shop.ice", "--version", "1", "--json").stdout)) == 1
    kept = json.loads(dl("files", "shop.ice", "--where", "id = 3", "--json").stdout)
    assert [(row["num_records"], row["content"], row["delete_files"]) for row in kept] == [(1, "data", [])]
    assert sorted(row["id"] for row in json.loads(dl("read", "shop.ice", "--json").stdout)) == [1, 2, 3]
    assert json.loads(dl("read", "shop.ice", "--version", "0", "--json").stdout) == []
    assert dl("read", "shop.ice", "--where", "id > 2", "--columns", "ID", "--csv").stdout == "id\n3\n"
    assert len(json.loads(dl("read", "shop.ice", "--limit", "2", "--json").stdout)) == 2


def test_a_plan_says_what_is_kept_and_pruned(dl: Dl) -> None:  # noqa: F811
    assert "kept 1 of 2 files, pruned 1" in dl("plan", "shop.ice", "--where", "id = 3 or id > 7").stdout
    value = json.loads(dl("plan", "shop.ice", "--where", "id < 0", "--version", "1", "--json").stdout)
    assert (value["version"], value["num_files"], value["num_pruned"]) == (1, 0, 1)
    assert "alone it keeps 0, prunes 1" in dl("plan", "shop.ice", "--where", "id = 3", "--version", "1").stdout


def test_files_have_their_partition(dl: Dl, opened: Catalog) -> None:  # noqa: F811
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "day", StringType()))
    spec = PartitionSpec(PartitionField(source_id=2, field_id=1000, transform=IdentityTransform(), name="day"))
    table = opened.iceberg().create_table("shop.days", schema, partition_spec=spec)
    table.append(days((1, "mon"), (2, "tue")))
    expected = [{"day": "mon"}, {"day": "tue"}]
    rows = json.loads(dl("files", "shop.days", "--json").stdout)
    assert sorted((row["partition"] for row in rows), key=str) == expected
    planned = json.loads(dl("files", "shop.days", "--where", "day = 'tue'", "--json").stdout)
    assert [row["partition"] for row in planned] == expected[1:]
    assert "partitioned by" in dl("show", "shop.days").stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("read", "shop.ice", "--columns", "nope"), "nope"),
        (("read", "shop.ice", "--where", "id ="), "no predicate"),
        (("files", "shop.ice", "--where", "nope = 1"), "nope"),
        (("read", "shop.recent"), "is a view"),
        (("show", "shop.ice", "--version", "9"), "has no version 9"),
        (("plan", "shop.ice", "--where", "nope = 1"), "nope"),
        (("plan", "shop.recent", "--where", "id = 1"), "is a view"),
        (("vacuum", "shop.ice"), "an Iceberg table"),
        (("optimize", "shop.ice"), "an Iceberg table"),
        (("restore", "shop.ice", "--to", "0"), "an Iceberg table"),
        (("diff", "shop.ice", "0", "1"), "an Iceberg table"),
        (("comment", "shop.ice", "text"), "an Iceberg table"),
        (("promote", "shop.ice"), "an Iceberg table"),
        (("detach", "shop.ice"), "an Iceberg table"),
        (("follow", "shop.ice"), "an Iceberg table"),
        (("mirror", "resolve", "shop.ice", "--adopt"), "an Iceberg table"),
        (("validate", "--repair", "shop.ice"), "an Iceberg table"),
        (("optimize", "shop.recent"), "a view of Iceberg"),
        (("iceberg", "metadata", "shop.delta", "--version", "0"), "a Delta table"),
        (("iceberg", "metadata", "shop.ice", "--check"), "for Delta tables"),
        (("iceberg", "export", "shop.none"), "there is no table"),
        (("iceberg", "register", "/nowhere/v1.metadata.json", "--as", "shop.x"), "no metadata file"),
    ],
)
def test_what_does_not_fit_fails_in_one_line(dl: Dl, arguments: tuple[str, ...], message: str) -> None:  # noqa: F811
    result = dl(*arguments)
    assert result.exit_code != 0
    (line,) = result.stderr.strip().splitlines()
    assert line.startswith("error: ")
    assert message in line
    assert "bug" not in line


def test_a_table_is_exported_dropped_and_registered_again(dl: Dl, opened: Catalog, tmp_path: Path) -> None:  # noqa: F811
    place = dl("iceberg", "export", "shop.ice").stdout.strip()
    assert json.loads(dl("iceberg", "metadata", "shop.ice").stdout) == json.loads(
        Path(place.removeprefix("file://")).read_text()
    )
    assert dl("drop", "shop.ice", "--dry-run").stderr.startswith("would drop shop.ice (iceberg, version 2)")
    assert "stay" in dl("drop", "shop.ice").stderr
    assert dl("iceberg", "register", place, "--as", "new.ice").exit_code == 0
    assert ids_of(opened, "new.ice") == [1, 2, 3]
    assert dl("rename", "new.ice", "shop.again").exit_code == 0
    assert dl("drop", "shop.again", "--purge").exit_code == 0
    assert not (tmp_path / "lake" / "shop" / "ice").exists()


def test_a_table_given_to_another_catalog_is_registered_there(
    dl: Dl,  # noqa: F811
    tmp_path: Path,
) -> None:
    place = dl("iceberg", "export", "shop.ice", "--to", str(tmp_path / "handed"), "--json").stdout
    location = json.loads(place)["metadata_location"]
    view = dl("iceberg", "export", "shop.recent").stdout.strip()
    other = str(tmp_path / "other.db")
    assert dl("iceberg", "register", location, "--as", "theirs.ice", "--catalog", other).exit_code == 0
    assert dl("iceberg", "register", view, "--as", "theirs.view", "--catalog", other).exit_code == 0
    with deltalakedb.connect(other) as catalog:
        assert ids_of(catalog, "theirs.ice") == [1, 2, 3]
        assert catalog.iceberg().view_exists("theirs.view")


def test_a_registered_table_gets_newer_metadata(dl: Dl, opened: Catalog, tmp_path: Path) -> None:  # noqa: F811
    other = str(tmp_path / "other.db")
    first = dl("iceberg", "export", "shop.ice").stdout.strip()
    dl("iceberg", "register", first, "--as", "theirs.ice", "--catalog", other)
    opened.iceberg("shop.ice").append(numbers(4))
    second = dl("iceberg", "export", "shop.ice").stdout.strip()
    assert dl("iceberg", "register", second, "--as", "theirs.ice", "--catalog", other).exit_code == 1
    assert dl("iceberg", "register", second, "--as", "theirs.ice", "--overwrite", "--catalog", other).exit_code == 0
    with deltalakedb.connect(other) as catalog:
        assert ids_of(catalog, "theirs.ice") == [1, 2, 3, 4]


def test_views_for_people_have_iceberg_versions_and_snapshots(dl: Dl) -> None:  # noqa: F811
    text = "select name, version, operation from vw_table_history where name = 'ice' order by version"
    assert [row["operation"] for row in json.loads(dl("sql", text, "--json").stdout)] == [
        "CREATE TABLE",
        "APPEND",
        "APPEND",
    ]
    snapshots = json.loads(dl("sql", "select name, added_version from vw_iceberg_snapshots", "--json").stdout)
    assert sorted(row["added_version"] for row in snapshots) == [1, 2]
