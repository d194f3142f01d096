"""Namespaces: their properties and times, the location of their tables, and how they go with what is in them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import deltalake
import pytest

import deltalakedb as dl
from deltalakedb import Catalog
from deltalakedb.exceptions import (
    DropProtectedError,
    NamespaceNotEmptyError,
    NamespaceNotFoundError,
    TableExistsError,
)
from tests.conformance.transacting import open_catalog


@pytest.fixture
def catalog(target: str, tmp_path: Path) -> Iterator[Catalog]:
    with open_catalog(target, tmp_path) as opened:
        yield opened


def test_namespaces_have_properties_and_times_and_go_only_when_empty(catalog: Catalog) -> None:
    made = catalog.create_namespace("a.`b.c`", {"owner": "ann", "tier": 1})
    assert (made.namespace, made.properties) == ("a.`b.c`", {"owner": "ann", "tier": "1"})
    with pytest.raises(TableExistsError, match="exists already"):
        catalog.create_namespace("A.`B.C`")
    changed = catalog.set_namespace_properties("a.`b.c`", {"tier": None, "region": "eu"})
    assert changed.properties == {"owner": "ann", "region": "eu"}
    assert changed.created_at_ms == made.created_at_ms < changed.updated_at_ms
    with pytest.raises(dl.exceptions.DeltaError, match="storage_options") as refused:
        catalog.set_namespace_properties("a.`b.c`", {"db_password": "hunter2"})
    assert "hunter2" not in str(refused.value)
    assert catalog.namespaces("a") == ["a.`b.c`"]
    catalog.create_table("a.`b.c`.t", "id long")
    with pytest.raises(NamespaceNotEmptyError, match="the table t"):
        catalog.drop_namespace("a.`b.c`")
    catalog.drop_table("a.`b.c`.t")
    catalog.drop_namespace("a.`b.c`")
    with pytest.raises(NamespaceNotFoundError):
        catalog.namespace("a.`b.c`")
    with pytest.raises(dl.exceptions.DeltaError, match="stays"):
        catalog.drop_namespace("default")
    catalog.undrop_table("a.`b.c`.t")
    assert catalog.namespace("a.`b.c`").properties == {}, "a new one of the same name"


def test_a_namespace_is_not_dropped_under_a_table_that_is_being_created(catalog: Catalog) -> None:
    catalog.create_namespace("eu")
    with catalog.begin() as tx:
        tx.create_table("eu.t", "id long")
        catalog.drop_namespace("eu")
    assert (catalog.tables(), catalog.namespaces()) == (["eu.t"], ["default", "eu"])


def test_a_namespace_goes_with_all_that_is_in_it_or_stays_with_all_of_it(catalog: Catalog, tmp_path: Path) -> None:
    for name in ("eu.a", "eu.inner.b", "eu2.c"):
        catalog.create_table(name, "id long")
    catalog.create_table("eu.placed", "id long", location=str(tmp_path / "placed"))
    catalog.create_table("eu.kept", "id long", properties={"drop_protection": "true"})
    everything = catalog.tables()
    with pytest.raises(DropProtectedError, match="kept"):
        catalog.drop_namespace("eu", cascade=True)
    with pytest.raises(DropProtectedError, match="kept"):
        catalog.drop_namespace("eu", cascade=True, dry_run=True)
    catalog.set_properties("eu.kept", {"drop_protection": "false"})
    assert len(catalog.drop_namespace("eu", cascade=True, dry_run=True)) == 4
    assert (catalog.tables(), catalog.namespaces("eu")) == (everything, ["eu.inner"])
    places = {catalog.table_info(name).location for name in everything if name != "eu2.c"}
    assert set(catalog.drop_namespace("eu", cascade=True)) == places
    assert (catalog.tables(), catalog.namespaces()) == (["eu2.c"], ["default", "eu2"])
    assert sorted(catalog.tables(dropped=True)) == ["eu.a", "eu.inner.b", "eu.kept"]
    assert deltalake.DeltaTable(tmp_path / "placed").version() == 1, "its user's: detached"
    catalog.undrop_table("eu.inner.b")
    assert catalog.tables("eu") == ["eu.inner.b"]
    with pytest.raises(dl.exceptions.DeltaError, match="stays"):
        catalog.drop_namespace("default", cascade=True)
    with pytest.raises(NamespaceNotFoundError):
        catalog.drop_namespace("nosuch", cascade=True)


def test_tables_go_to_the_location_of_their_namespace(catalog: Catalog, tmp_path: Path) -> None:
    own = tmp_path / "of its own"
    catalog.create_namespace("eu", {"location": str(own)})
    assert catalog.namespace("eu").properties == {"location": own.as_uri()}
    catalog.create_table("eu.t", "id long")
    catalog.create_table("eu.inner.t", "id long")
    at = {name: catalog.table_info(name) for name in ("eu.t", "eu.inner.t")}
    assert (at["eu.t"].location, at["eu.t"].files_owner) == ((own / "t").as_uri(), "catalog")
    assert not at["eu.inner.t"].location.startswith(own.as_uri()), "the namespace around it has its own tables only"
    catalog.drop_table("eu.t")
    catalog.create_table("eu.t", "id long")
    assert catalog.table_info("eu.t").location.startswith(f"{own.as_uri()}/t-"), "the old one can still come back"
    catalog.set_namespace_properties("eu", {"location": None})
    catalog.create_table("eu.u", "id long")
    assert not catalog.table_info("eu.u").location.startswith(own.as_uri())
    for wrong in ("/", f"{tmp_path}/a%20b", f"{tmp_path}/a\nb"):
        with pytest.raises(dl.exceptions.ConfigError, match="cannot (go|be)"):
            catalog.set_namespace_properties("eu", {"location": wrong})
