"""Grants in the catalog: given, taken, inherited and listed, on every engine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import deltalakedb
from deltalakedb import Catalog
from deltalakedb.exceptions import ConfigError, NamespaceNotFoundError, NotPermittedError, TableNotFoundError
from deltalakedb.rights import Right, Rights, SecuredObject, acting_with
from deltalakedb.runtime.caller import Caller
from deltalakedb.store.gc import Retention, collect_garbage
from deltalakedb.store.names import parse_table_name
from deltalakedb.store.registry import TableRow, resolve_table

ANN = Caller("ann", frozenset({"analysts"}))
ODD = '`it\'s`.`a.b "c"; drop table dl_grants`'


@pytest.fixture
def catalog(target: str, tmp_path: Path) -> Iterator[Catalog]:
    with deltalakedb.connect(target, actor="root", warehouse=str(tmp_path / "lake"), mirror_mode="off") as opened:
        yield opened


def row_of(catalog: Catalog, name: str) -> TableRow:
    parsed = parse_table_name(name)
    with catalog.store.read() as conn:
        row = resolve_table(conn, parsed.namespace, parsed.name)
    assert row is not None
    return row


def rights_on(catalog: Catalog, name: str, rights: Rights | None = None, caller: Caller = ANN) -> set[str]:
    access = (rights or Rights(catalog.store)).access_of(caller)
    on = SecuredObject.of_table(row_of(catalog, name))
    return {right.value for right in Right if access.allows(right, on)}


def test_a_right_is_granted_listed_and_revoked(catalog: Catalog) -> None:
    catalog.create_table("sales.orders", "id long")
    assert catalog.who_can("sales.orders") == []
    assert catalog.grant("read", on="sales.orders", to="group:analysts")
    assert not catalog.grant("read", on="SALES.Orders", to="group:analysts")
    assert rights_on(catalog, "sales.orders") == {"discover", "read"}
    assert rights_on(catalog, "sales.orders", caller=Caller("bob")) == set()
    [row] = catalog.who_can("sales.orders")
    assert (row.right, row.to, row.on, row.granted_by) == ("read", "group:analysts", "table:sales.orders", "root")
    assert catalog.revoke("read", on="sales.orders", to="group:analysts")
    assert not catalog.revoke("read", on="sales.orders", to="group:analysts")
    assert rights_on(catalog, "sales.orders") == set()
    assert [(entry["action"], entry["details"]["to"]) for entry in catalog.audit(table="sales.orders", limit=2)] == [
        ("revoke", "group:analysts"),
        ("grant", "group:analysts"),
    ]


def test_a_right_on_a_namespace_or_the_catalog_holds_inside(catalog: Catalog) -> None:
    catalog.create_table("sales.eu.orders", "id long")
    catalog.create_table("hr.people", "id long")
    catalog.grant("write", on="sales", to="user:ann")
    catalog.grant("discover", on="catalog", to="user:ann")
    assert rights_on(catalog, "sales.eu.orders") == {"discover", "read", "write"}
    assert rights_on(catalog, "hr.people") == {"discover"}
    listed = [(row.right, row.on) for row in catalog.who_can("sales.eu.orders")]
    assert listed == [("discover", "catalog"), ("write", "namespace:sales")]
    assert [row.right for row in catalog.who_can("sales.eu.orders", "read")] == ["write"]
    assert [row.on for row in catalog.who_can("catalog")] == ["catalog"]


def test_a_table_keeps_its_grants_when_it_is_renamed_dropped_and_undropped(catalog: Catalog) -> None:
    catalog.create_table("sales.orders", "id long")
    catalog.grant("read", on="sales.orders", to="user:ann")
    catalog.rename_table("sales.orders", "archive.old")
    assert rights_on(catalog, "archive.old") == {"discover", "read"}
    catalog.create_table("sales.orders", "id long")
    assert rights_on(catalog, "sales.orders") == set(), "another table of the same name"
    catalog.drop_table("archive.old")
    catalog.undrop_table("archive.old", "archive.back")
    assert rights_on(catalog, "archive.back") == {"discover", "read"}


def test_a_namespace_of_the_same_name_begins_without_grants(catalog: Catalog) -> None:
    catalog.create_namespace("temp")
    catalog.grant("manage", on="temp", to="user:ann")
    catalog.drop_namespace("temp")
    catalog.create_table("temp.t", "id long")
    assert rights_on(catalog, "temp.t") == set()


def test_names_may_have_any_character_and_case(catalog: Catalog) -> None:
    catalog.create_table(ODD, "id long")
    catalog.create_table("`it's`.other", "id long")
    catalog.grant("read", on=ODD.upper(), to="user:ann")
    catalog.grant("read", on=f"table:{ODD}", to="group:'; delete from dl_grants; --")
    assert rights_on(catalog, ODD) == {"discover", "read"}
    assert rights_on(catalog, "`it's`.other") == set()
    assert rights_on(catalog, ODD, caller=Caller("x", frozenset({"'; delete from dl_grants; --"}))) != set()
    assert rights_on(catalog, ODD, caller=Caller("ann' or '1'='1", frozenset({"a') or 1=1 --"}))) == set()
    catalog.grant("write", on="namespace:`IT'S`", to="user:ann")
    assert rights_on(catalog, "`it's`.other") == {"discover", "read", "write"}


def test_a_table_and_a_namespace_of_one_name_are_told_apart(catalog: Catalog) -> None:
    catalog.create_table("a.b", "id long")
    catalog.create_table("a.b.c", "id long")
    with pytest.raises(ConfigError, match="is a table and a namespace; write table:a.b"):
        catalog.grant("read", on="a.b", to="user:ann")
    catalog.grant("read", on="table:a.b", to="user:ann")
    assert (rights_on(catalog, "a.b"), rights_on(catalog, "a.b.c")) == ({"discover", "read"}, set())
    catalog.grant("write", on="namespace:a.b", to="user:ann")
    assert rights_on(catalog, "a.b.c") == {"discover", "read", "write"}


def test_what_does_not_exist_gets_no_grants(catalog: Catalog) -> None:
    catalog.create_table("a.t", "id long")
    with pytest.raises(TableNotFoundError, match="did you mean a.t"):
        catalog.grant("read", on="a.tt", to="user:ann")
    with pytest.raises(NamespaceNotFoundError):
        catalog.grant("read", on="namespace:x", to="user:ann")
    with pytest.raises(ConfigError, match="create is a right on a namespace"):
        catalog.grant("create", on="a.t", to="user:ann")
    with pytest.raises(ConfigError, match="no grantee"):
        catalog.grant("read", on="a.t", to="ann")


def test_a_cache_of_grants_sees_every_change_at_once(catalog: Catalog) -> None:
    catalog.create_table("a.t", "id long")
    rights = Rights(catalog.store)
    assert rights_on(catalog, "a.t", rights) == set()
    catalog.grant("read", on="a.t", to="user:ann")
    assert rights_on(catalog, "a.t", rights) == {"discover", "read"}
    catalog.revoke("read", on="a.t", to="user:ann")
    assert rights_on(catalog, "a.t", rights) == set()
    catalog.grant("manage", on="a", to="user:ann")
    assert rights_on(catalog, "a.t", rights) == {"discover", "read", "write", "create", "manage"}


def test_only_who_may_manage_an_object_grants_rights_on_it(catalog: Catalog) -> None:
    catalog.create_table("a.t", "id long")
    catalog.create_table("a.u", "id long")
    catalog.grant("write", on="a.t", to="user:ann")
    rights = Rights(catalog.store)
    with acting_with(rights.access_of(ANN)):
        with pytest.raises(NotPermittedError, match="ann may not manage table:a.t"):
            catalog.grant("read", on="a.t", to="user:bob")
        with pytest.raises(NotPermittedError):
            catalog.who_can("a.t")
        with pytest.raises(TableNotFoundError):
            catalog.grant("read", on="a.u", to="user:bob")
    catalog.grant("manage", on="a.t", to="user:ann")
    with acting_with(rights.access_of(ANN)):
        assert catalog.grant("read", on="a.t", to="user:bob")
        assert len(catalog.who_can("a.t")) == 3


def test_the_grants_of_a_dropped_table_are_collected_with_it(catalog: Catalog) -> None:
    catalog.create_table("a.t", "id long")
    catalog.grant("read", on="a.t", to="user:ann")
    catalog.drop_table("a.t", purge=True)
    collect_garbage(catalog.store, Retention(0, 0))
    assert catalog.sql("select count(*) as n from dl_grants").to_pylist() == [{"n": 0}]
