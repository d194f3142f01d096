"""What settings choose: patterns, masks, names and options, as a file says them, and what is written wrongly."""

import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from deltalakedb.cdc.captured_table import CapturedTable, Mask, SourceColumn, TableOptions, fingerprint
from deltalakedb.cdc.rule_parsing import parse_rules
from deltalakedb.cdc.run.configured import load_settings
from deltalakedb.cdc.settings import CaptureSettings
from deltalakedb.cdc.table_rules import TableRule, find_unmatched, match_table, matches
from deltalakedb.exceptions import ConfigError
from deltalakedb.log.schema.types import PrimitiveType

KEY = "0123456789abcdef"


def settings(*rules: dict[str, Any], **given: Any) -> CaptureSettings:
    return CaptureSettings("", "shop", rules=parse_rules(rules), **given)


@pytest.mark.parametrize(
    ("pattern", "source", "found"),
    [
        ("sales.*", "sales.orders", ("orders",)),
        ("sales.*", "sales2.orders", None),
        ("orders", "public.orders", ()),
        ("orders", "sales.orders", None),
        ("*.order_?", "eu.order_1", ("eu", "1")),
        ("*.order_?", "eu.order_12", None),
        ("*.t[ab]", "x.tb", ("x", "b")),
        ("*.t[!ab]", "x.tb", None),
        ("public.`a.b*`", "public.`a.b c`", (" c",)),
        ("public.a+b", "public.`a+b`", ()),
        ("Public.T", "public.t", None),
    ],
)
def test_a_pattern_matches_schema_and_name(pattern: str, source: str, found: tuple[str, ...] | None) -> None:
    assert match_table(pattern, source) == found


def test_a_column_is_matched_as_postgres_spells_it() -> None:
    assert matches("*mail", "e-mail")
    assert not matches("*mail", "E-Mail")
    assert matches("a.b", "a.b")
    assert not matches("a.b", "axb")


def test_included_tables_without_excluded_ones_are_asked_for() -> None:
    chosen = settings(include=("sales.*", "users"), exclude=("*.tmp_*",), tables=("hr.staff",))
    wanted = ["sales.orders", "sales.tmp_1", "public.users", "public.items", "hr.staff", "hr.other"]
    assert [source for source in wanted if chosen.wants(source)] == ["sales.orders", "public.users", "hr.staff"]
    assert all(map(settings().wants, wanted))
    assert not settings(exclude=("hr.*",)).wants("hr.staff")
    with pytest.raises(ConfigError, match=r"hr.\* of exclude leaves it out"):
        settings(tables=("hr.staff",), exclude=("hr.*",))


def test_of_several_rules_the_last_one_counts_and_masks_and_exclusions_add_up() -> None:
    choice = settings(
        {"exclude_columns": ["*password*"], "mask": {"e*": "hash", "phone": "null"}, "layers": "changes"},
        {"tables": "sales.*", "mask": {"email": {"constant": "x"}}, "exclude_columns": "note", "layers": "both"},
        mask_key=KEY,
    ).choose("sales.users")
    assert [choice.keeps(name) for name in ("id", "password2", "note")] == [True, False, False]
    assert choice.mask_of("email") == Mask("constant", "x")
    assert choice.mask_of("extra") == Mask("hash", None, fingerprint(KEY))
    assert choice.mask_of("phone") == Mask("null")
    assert choice.mask_of("id") is None
    assert choice.options.layers == "both"
    listed = settings({"include_columns": ["id", "a*"], "exclude_columns": "ab"}).choose("public.t")
    assert [name for name in ("id", "a", "ab", "b") if listed.keeps(name)] == ["id", "a"]


@pytest.mark.parametrize(
    ("rule", "current", "changes"),
    [
        ({}, "lake.orders_eu", "lake.orders_eu_changes"),
        ({"namespace": "crm"}, "crm.orders_eu", "crm.orders_eu_changes"),
        ({"namespace": "crm.{schema}", "name": "all"}, "crm.sales.all", "crm.sales.all_changes"),
        ({"name": "{schema}_{table}"}, "lake.sales_orders_eu", "lake.sales_orders_eu_changes"),
        ({"tables": "sales.*_*", "name": "{2}-{1}"}, "lake.`eu-orders`", "lake.`eu-orders_changes`"),
        ({"changes_name": "{table}_log"}, "lake.orders_eu", "lake.orders_eu_log"),
    ],
)
def test_names_are_made_by_pattern(rule: dict[str, str], current: str, changes: str) -> None:
    choice = settings(rule, namespace="lake").choose("sales.orders_eu")
    assert (choice.current, choice.changes) == (current, changes)


def test_a_table_has_partitions_or_buckets_whichever_was_said_last() -> None:
    by_day = {"partition_by": ["day"]}
    assert settings(by_day, buckets=4).choose("public.t").options == TableOptions(partition_by=("day",))
    later = settings(by_day, {"buckets": 8}).choose("public.t").options
    assert (later.partition_by, later.buckets) == ((), 8)
    assert settings(by_day, {"partition_by": []}).choose("public.t").options.partition_by == ()


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        ({"tabels": "x"}, "there is no 'tabels'; did you mean tables"),
        ({"tables": "a.b.c"}, "no pattern of tables"),
        ({"tables": []}, "must be a text or a list of texts"),
        ({"tables": "a.*", "name": "{2}"}, "{2} stands for nothing"),
        ({"name": "{tabel}"}, "{tabel} stands for nothing"),
        ({"namespace": "a..b"}, "a part of it is empty"),
        ({"mask": {"email": "hsh"}}, 'email is masked by "hash", "null" or { constant'),
        ({"mask": "hash"}, "for each column how it is masked"),
        ({"layers": "one"}, "must be one of both, changes, current"),
        ({"composites": "xml"}, "must be one of text, json, struct"),
        ({"deletion_vectors": "no"}, "must be true or false"),
        ({"buckets": -1}, "zero or more"),
        ({"buckets": 2, "partition_by": "day"}, "and not both"),
        ({"partition_by": ["day", "DAY"]}, "a column twice"),
    ],
)
def test_a_rule_that_is_written_wrongly_is_named(rule: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        settings({}, rule)
    assert "rule 2: " in str(refused.value)
    assert said in str(refused.value)


def test_a_hash_needs_a_key_that_is_long_enough_and_shown_nowhere() -> None:
    rule = {"mask": {"email": "hash"}}
    with pytest.raises(ConfigError, match="DL_CDC_MASK_KEY"):
        settings(rule).check_key()
    with pytest.raises(ConfigError, match="at least 16 characters") as refused:
        settings(rule, mask_key="short")
    assert "short" not in str(refused.value)
    made = settings(rule, mask_key=KEY)
    made.check_key()
    assert KEY not in repr(made) + repr(made.choice_value())


def test_what_is_chosen_is_kept_and_read_again() -> None:
    made = settings(
        {"tables": ["a.*", "b"], "mask": {"x": "hash", "y": {"constant": 0}, "z": {"constant": True}}},
        {"partition_by": [], "cluster_by": ["day"], "deletion_vectors": False, "composites": "json"},
        include=("a.*",),
        exclude=("c.*",),
        composites="struct",
        mask_key=KEY,
    )
    assert settings(mask_key=KEY).with_choice(made.choice_value()) == made
    assert settings().choice_value() == {}
    with pytest.raises(ConfigError, match="another key"):
        settings(mask_key=KEY + "x").with_choice(made.choice_value())


def test_a_table_is_kept_with_its_masks_and_options_and_one_of_an_older_release_is_read() -> None:
    column = SourceColumn("email", 25, -1, PrimitiveType("string"), 2, mask=Mask("hash", None, "id"))
    hidden = SourceColumn("note", 25, -1, PrimitiveType("string"), 1)
    options = TableOptions("changes", ("day",), ("a", "b"), 0, False)
    table = CapturedTable("public.t", 1, (column,), (), "a.t", "a.t_changes", left_out=(hidden,), options=options)
    assert CapturedTable.from_value(table.to_value()) == table
    assert table.sent == (hidden, column)
    assert (table.keeps_changes, table.keeps_current) == (True, False)
    old = {key: value for key, value in table.to_value().items() if key not in ("leftOut", "options")}
    assert CapturedTable.from_value(old).options is None


def test_what_matches_nothing_is_told_and_a_plain_name_is_a_slip() -> None:
    rules = parse_rules(
        [{"mask": {"emial": "null", "tel*": "null"}}, {"tables": ["hr.*"], "layers": "changes"}, {"tables": "hr.x"}]
    )
    found = list(find_unmatched(rules, ("public.*", "public.user"), {"public.users": ["id", "email"]}))
    assert found == [
        ("no published table matches public.user of include", True),
        ("rule 1: no column matches emial of mask", True),
        ("rule 1: no column matches tel* of mask", False),
        ("rule 2 matches no table (hr.*)", False),
        ("rule 3 matches no table (hr.x)", True),
    ]


def test_a_file_and_variables_say_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "capture.toml"
    file.write_text(
        f'''
[cdc]
source = "dbname=shop"
publication = "shop"
include = ["sales.*"]
mask_key = "{KEY}"

[[cdc.rules]]
tables = "sales.*"
mask = {{ email = "hash", salary = {{ constant = 0 }} }}
'''
    )
    monkeypatch.setenv("DL_CONFIG", str(file))
    of_file = load_settings({})
    monkeypatch.delenv("DL_CONFIG")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DL_CDC_INCLUDE", "sales.*")
    monkeypatch.setenv("DL_CDC_MASK_KEY", KEY)
    rules = '[{"tables": "sales.*", "mask": {"email": "hash", "salary": {"constant": 0}}}]'
    monkeypatch.setenv("DL_CDC_RULES", rules)
    assert load_settings({"source": "dbname=shop", "publication": "shop"}) == of_file
    monkeypatch.setenv("DL_CDC_RULES", "{")
    with pytest.raises(ConfigError, match="must be a list of tables, or JSON of one"):
        load_settings({})
    monkeypatch.delenv("DL_CDC_RULES")
    with pytest.raises(ConfigError, match="at least 16") as refused:
        load_settings({"source": "dbname=shop", "publication": "shop", "mask_key": "geheim"})
    assert "geheim" not in str(refused.value)


def test_the_example_of_the_docs_is_a_valid_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (Path(__file__).parents[2] / "docs" / "cdc.md").read_text(encoding="utf-8")
    examples = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    assert len(examples) == 2
    for example in examples:
        file = tmp_path / "capture.toml"
        file.write_text(example)
        monkeypatch.setenv("DL_CONFIG", str(file))
        found = load_settings({})
        if found.rules:
            assert found.choose("sales.order_eu").current == "orders.sales_eu"
            assert not found.wants("public.tmp_1")


def test_every_key_of_a_rule_is_in_the_docs() -> None:
    page = (Path(__file__).parents[2] / "docs" / "cdc.md").read_text(encoding="utf-8")
    table = page.partition("| key of a rule |")[2].partition("\n\n")[0]
    assert all(f"`{one.name}`" in table for one in fields(TableRule))
