"""Comments and tags are set on tables and columns, kept in the log, and found by one query."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import deltalake
import pytest

from deltalakedb import Catalog
from deltalakedb.exceptions import ConfigError, NotWritableError, SchemaMismatchError
from deltalakedb.store.search import SearchHit
from tests.conformance.transacting import numbers, open_catalog, operations

NESTED = (
    "id long, customer struct<name: string, address: struct<city: string>>, "
    "lines array<struct<sku: string>>, extra map<string, struct<note: string>>, `a.b` string"
)


@pytest.fixture
def catalog(target: str, tmp_path: Path) -> Iterator[Catalog]:
    with open_catalog(target, tmp_path) as opened:
        yield opened


@pytest.fixture
def shop(catalog: Catalog) -> Catalog:
    """Four tables, described in different places."""
    catalog.create_table("shop.orders", "id long, email string, note string", description="What was ordered")
    catalog.create_table("shop.archive.orders_2024", "id long, EMAIL string")
    catalog.create_table("shopping.carts", "id long, bestellung string")
    catalog.create_table("hr.people", "id long, name string")
    with catalog.begin() as tx:
        tx.set_comment("shop.orders", "where the Invoice goes", column="email")
        tx.set_tags("shop.orders", {"owner": "Ann", "tier": 1})
        tx.set_tags("shop.orders", {"pii": "yes"}, column="email")
        tx.set_comment("shopping.carts", "Körbe, die noch offen sind")
        tx.set_tags("hr.people", {"pii": "no", "Classification": "Secret"})
    return catalog


def fields_of(catalog: Catalog, name: str) -> list[dict[str, Any]]:
    fields: list[dict[str, Any]] = json.loads(catalog.table(name).schema().to_json())["fields"]
    return fields


def tables(hits: list[SearchHit]) -> list[str]:
    return [hit.table for hit in hits]


def test_a_comment_on_a_table_is_its_description_and_can_be_removed(catalog: Catalog, tmp_path: Path) -> None:
    catalog.create_table("s.t", "id long")
    catalog.set_comment("s.t", "Ältere Aufträge")
    assert catalog.table("s.t").metadata().description == "Ältere Aufträge"
    assert deltalake.DeltaTable(tmp_path / "lake/s/t").metadata().description == "Ältere Aufträge"
    catalog.set_comment("s.t", None)
    assert catalog.table("s.t").metadata().description is None
    assert operations(catalog, "s.t") == ["CREATE TABLE", "COMMENT ON TABLE", "COMMENT ON TABLE"]


def test_a_comment_on_a_column_is_in_its_field_wherever_it_is_nested(catalog: Catalog, tmp_path: Path) -> None:
    catalog.create_table("s.t", NESTED)
    paths = ["id", "customer.address.city", "lines.element.sku", "extra.value.note", "`a.b`"]
    with catalog.begin() as tx:
        for path in paths:
            tx.set_comment("s.t", f"about {path}", column=path)
    text = json.dumps(fields_of(catalog, "s.t"))
    assert [text.count(f'"comment": "about {path}"') for path in paths] == [1] * len(paths)
    theirs = deltalake.DeltaTable(tmp_path / "lake/s/t").schema().fields
    assert [field.metadata for field in theirs if field.name == "id"] == [{"comment": "about id"}]
    catalog.set_comment("s.t", None, column="CUSTOMER.address.City")
    assert json.dumps(fields_of(catalog, "s.t")).count('"comment"') == len(paths) - 1
    (hit,) = catalog.search("about")
    assert [one.column for one in hit.columns] == ["id", "lines.element.sku", "extra.value.note", "a.b"]


def test_tags_are_properties_of_the_table_and_entries_of_the_field(catalog: Catalog) -> None:
    catalog.create_table("s.t", "id long", properties={"owner": "ann"})
    catalog.set_tags("s.t", {"pii": "yes", "tier": 1, "hot": True})
    catalog.set_tags("s.t", {"unit": "euro"}, column="id")
    catalog.set_tags("s.t", {"tier": None, "pii": "no"})
    assert catalog.table("s.t").metadata().configuration == {"owner": "ann", "tag.pii": "no", "tag.hot": "true"}
    assert fields_of(catalog, "s.t")[0]["metadata"] == {"tag.unit": "euro"}
    catalog.set_tags("s.t", {"unit": None}, column="id")
    assert fields_of(catalog, "s.t")[0]["metadata"] == {}
    assert operations(catalog, "s.t") == ["CREATE TABLE", *["SET TAGS"] * 4]


def test_a_column_keeps_the_rest_of_its_metadata(catalog: Catalog) -> None:
    catalog.create_table("s.t", "id long, note string", properties={"delta.columnMapping.mode": "name"})
    before = fields_of(catalog, "s.t")
    catalog.set_comment("s.t", "free text", column="note")
    after = fields_of(catalog, "s.t")
    assert after[0] == before[0]
    assert after[1]["metadata"] == {**before[1]["metadata"], "comment": "free text"}


def test_what_is_already_so_makes_no_version(catalog: Catalog) -> None:
    catalog.create_table("s.t", "id long", description="d")
    for _ in range(2):
        catalog.set_comment("s.t", "d")
        catalog.set_comment("s.t", None, column="id")
        catalog.set_tags("s.t", {"pii": None})
    assert catalog.table("s.t").version() == 0


@pytest.mark.in_turn
def test_what_cannot_be_described_says_why(catalog: Catalog, tmp_path: Path) -> None:
    catalog.create_table("s.t", "id long, a struct<b: string>, `a.b` string")
    with pytest.raises(SchemaMismatchError, match=r"has no column nope; it has id, a, a\.b"):
        catalog.set_comment("s.t", "x", column="nope")
    with pytest.raises(SchemaMismatchError, match="backticks"):
        catalog.set_comment("s.t", "x", column="A.B")
    with pytest.raises(ConfigError, match="4000"):
        catalog.set_comment("s.t", "x" * 4001)
    wrong: list[dict[str, Any]] = [{}, {"": "x"}, {"a=b": "x"}, {"a\n": "x"}, {"a": ["x"]}]
    for tags in wrong:
        with pytest.raises(ConfigError, match="tag"):
            catalog.set_tags("s.t", tags)
    with pytest.raises(ConfigError, match="storage_options"):
        catalog.set_tags("s.t", {"password": "hunter2-hunter2"})
    with pytest.raises(ConfigError, match="storage_options"):
        catalog.set_comment("s.t", "AKIAIOSFODNN7EXAMPLE", column="id")
    deltalake.write_deltalake(tmp_path / "theirs", numbers(1))
    catalog.attach_table(str(tmp_path / "theirs"), "s.theirs")
    with pytest.raises(NotWritableError, match="follower"):
        catalog.set_comment("s.theirs", "x")
    assert catalog.table("s.t").version() == 0


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("orders", ["shop.archive.orders_2024", "shop.orders"]),
        ("ORDERS ordered", ["shop.orders"]),
        ("invoice", ["shop.orders"]),
        ("email", ["shop.archive.orders_2024", "shop.orders"]),
        ("hr.people", ["hr.people"]),
        ("ann", ["shop.orders"]),
        ("tier=1", ["shop.orders"]),
        ("classification secret", ["hr.people"]),
        ("KÖRBE", ["shopping.carts"]),
        ("ö", ["shopping.carts"]),
        ("carts nothing", []),
        ("100%", []),
        ("_", ["shop.archive.orders_2024"]),
        ("schemastring", []),
        ("", ["hr.people", "shop.archive.orders_2024", "shop.orders", "shopping.carts"]),
        (None, ["hr.people", "shop.archive.orders_2024", "shop.orders", "shopping.carts"]),
    ],
)
@pytest.mark.in_turn
def test_words_are_found_in_names_comments_columns_and_tags(shop: Catalog, text: str | None, found: list[str]) -> None:
    assert sorted(tables(shop.search(text))) == found


@pytest.mark.parametrize(
    ("tag", "found"),
    [
        ("pii", ["hr.people", "shop.orders"]),
        ("PII=YES", ["shop.orders"]),
        ("pii=no", ["hr.people"]),
        ("pii=", []),
        ("classification=secret", ["hr.people"]),
        ("tier=1", ["shop.orders"]),
        ("tie", []),
        ("comment", []),
    ],
)
@pytest.mark.in_turn
def test_a_tag_is_found_by_its_name_and_value(shop: Catalog, tag: str, found: list[str]) -> None:
    assert tables(shop.search(tag=tag)) == found


def test_a_hit_says_where_it_is(shop: Catalog) -> None:
    (hit,) = shop.search("email invoice", tag="pii=yes")
    assert (hit.table, hit.comment, hit.tags) == ("shop.orders", "What was ordered", {"owner": "Ann", "tier": "1"})
    assert hit.found_in == ("column email", "comment on email", "tag pii on email")
    (column,) = hit.columns
    assert (column.column, column.comment, column.tags) == ("email", "where the Invoice goes", {"pii": "yes"})


def test_a_namespace_limits_the_search_to_what_is_inside_of_it(shop: Catalog) -> None:
    assert tables(shop.search("id", namespace="Shop")) == ["shop.orders", "shop.archive.orders_2024"]
    assert tables(shop.search(namespace="shop.archive")) == ["shop.archive.orders_2024"]
    assert tables(shop.search("orders", namespace="hr")) == []


def test_a_search_sees_the_newest_description_and_no_dropped_table(shop: Catalog) -> None:
    shop.set_comment("hr.people", "staff")
    shop.set_comment("hr.people", "employees")
    assert (tables(shop.search("staff")), tables(shop.search("employees"))) == ([], ["hr.people"])
    shop.rename_table("hr.people", "hr.persons")
    assert tables(shop.search("employees")) == ["hr.persons"]
    shop.drop_table("hr.persons")
    assert shop.search("employees") == []


def test_a_search_is_one_query_per_format_however_many_tables_there_are(
    shop: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    with shop.store.read() as conn:
        kind = type(conn)
    original = kind.all

    def counted(self: Any, query: str, **parameters: Any) -> Any:
        asked.append(query)
        return original(self, query, **parameters)

    monkeypatch.setattr(kind, "all", counted)
    assert len(shop.search()) == 4
    assert asked == ["select_described_tables", "select_described_iceberg"]


def test_descriptions_survive_a_rebuild_from_the_files(shop: Catalog, tmp_path: Path) -> None:
    shop.mirror.flush()
    with open_catalog(str(tmp_path / "again.db"), tmp_path) as rebuilt:
        rebuilt.rebuild(str(tmp_path / "lake"))
        (hit,) = rebuilt.search("invoice", tag="pii=yes")
    assert (hit.table, hit.tags) == ("shop.orders", {"owner": "Ann", "tier": "1"})
