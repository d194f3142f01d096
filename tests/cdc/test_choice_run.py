"""A capture with masks and names of its own from end to end: on Spark, while it runs, and through `dl cdc apply`."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from deltalakedb.cdc.run.choice_changes import apply_choice
from deltalakedb.exceptions import ConfigError
from tests.cdc.capturing import Capturing, capture_once, wait_until
from tests.cdc.choosing import KEY, check_hidden, masked, rows, settings_from
from tests.cdc.conftest import Lake, Source

RULES: list[dict[str, Any]] = [
    {"mask": {"email": "hash"}, "exclude_columns": ["phone"]},
    {"tables": "orders", "namespace": "sales", "partition_by": ["country"], "layers": "current"},
    {"tables": "events", "layers": "changes"},
]
APPLIED_RULES = [{**RULES[0], "mask": {"email": "hash", "name": "null"}}, *RULES[1:]]
APPLIED = """
namespace = "shop"
[[cdc.rules]]
mask = { email = "hash", name = "null" }
exclude_columns = ["phone"]
[[cdc.rules]]
tables = "orders"
namespace = "sales"
partition_by = ["country"]
layers = "current"
[[cdc.rules]]
tables = "events"
layers = "changes"
"""


def names(lake: Lake) -> set[str]:
    return set(lake.catalog.tables())


def emails(lake: Lake) -> set[str | None]:
    return {row["email"] for row in rows(lake, "shop.users")} if "shop.users" in names(lake) else set()


SHOP = (
    "create table users (id int primary key, email text, phone text, name text)",
    "create table orders (id int primary key, country text, email text)",
    "create table events (id int primary key, email text)",
    "insert into users values (1, 'mail-1', 'call-1', 'name-1')",
    "insert into orders select n, 'c' || n % 2, 'mail-' || n from generate_series(1, 10) n",
    "insert into events values (1, 'mail-e')",
    "create publication shop for all tables",
)


def test_what_is_copied_and_read_by_spark_is_masked_and_routed_and_an_apply_is_done_by_the_next_start(
    lake: Lake, source: Source, spark: SparkSession, tmp_path: Path
) -> None:
    source.run(*SHOP)
    report = capture_once(lake, source, spark, rules=RULES, mask_key=KEY)
    assert sorted(report.copied) == ["public.events", "public.orders", "public.users"]
    source.run(
        "insert into users values (2, 'mail-2', 'call-2', 'name-2')",
        "update orders set country = 'c9', email = 'mail-9' where id = 1",
        "insert into events values (2, 'mail-f')",
    )
    assert capture_once(lake, source, spark, rules=RULES, mask_key=KEY).rows == 3
    assert emails(lake) == {masked("mail-1"), masked("mail-2")}
    assert names(lake) == {
        "shop.cdc_dl_shop", "sales.orders", "shop.users", "shop.users_changes", "shop.events_changes",
    }  # fmt: skip
    found = {row["id"]: (row["country"], row["email"]) for row in rows(lake, "sales.orders")}
    assert (found[1], found[2]) == (("c9", masked("mail-9")), ("c0", masked("mail-2")))
    assert [row["after"]["email"] for row in rows(lake, "shop.events_changes")] == [masked("mail-f")]
    check_hidden(lake, {"mail-": "an email", "call-": "a phone"})
    with pytest.raises(ConfigError, match="dl cdc apply"):
        capture_once(lake, source, spark, rules=RULES[:1], mask_key=KEY)
    plan, is_running = apply_choice(lake.catalog, settings_from(APPLIED, source, tmp_path))
    assert [(step.source, step.action) for step in plan.steps] == [("public.users", "copy")]
    assert not is_running
    source.run("insert into users values (3, 'mail-3', 'call-3', 'secret-3')")
    report = capture_once(lake, source, spark, rules=APPLIED_RULES, mask_key=KEY)
    assert report.copied == ("public.users",)
    assert {row["id"]: row["name"] for row in rows(lake, "shop.users")} == {1: None, 2: None, 3: None}
    check_hidden(lake, {"mail-": "an email", "call-": "a phone", "secret-3": "a name"})


def test_a_running_capture_takes_new_masks_in(lake: Lake, source: Source, spark: SparkSession, tmp_path: Path) -> None:
    source.run(*SHOP)
    with Capturing(lake, source, spark, rules=RULES, mask_key=KEY, batch_window="300ms") as capturing:
        wait_until(lambda: emails(lake) == {masked("mail-1")}, capturing)
        plan, is_running = apply_choice(lake.catalog, settings_from(APPLIED, source, tmp_path))
        assert is_running
        assert [(step.source, step.action) for step in plan.steps] == [("public.users", "copy")]
        wait_until(lambda: not any(row["name"] for row in rows(lake, "shop.users")), capturing)
        source.run("insert into users values (4, 'mail-4', 'call-4', 'secret-4')")
        wait_until(lambda: masked("mail-4") in emails(lake), capturing)
    check_hidden(lake, {"mail-": "an email", "call-": "a phone", "secret-4": "a name"})
