"""Cases of what people write: predicates, schemas, names, addresses, locations, configuration files."""

from __future__ import annotations

import json
from functools import cache
from random import Random

from deltalakedb import Schema
from deltalakedb.catalog.uri import parse_catalog_uri
from deltalakedb.cdc.rule_parsing import parse_patterns, parse_rules
from deltalakedb.data.filtering import to_duckdb
from deltalakedb.log.predicates.predicate import parse_predicate
from deltalakedb.log.protocol.paths import check_path, resolve
from deltalakedb.log.schema.ddl import parse_ddl
from deltalakedb.log.schema.types import StructType, parse_schema
from deltalakedb.runtime.config import load_config
from deltalakedb.storage.location import parse_location
from deltalakedb.store.names import parse_namespace, parse_table_name
from tests.fuzz.cases import parser
from tests.fuzz.mutations import damage_json, damage_text, damaged_json_text
from tests.fuzz.of_logs import SCHEMA, table_folder

PREDICATES = (
    "id > 5 and name = 'x' or place.city is null", "price between 1.50 and 2 and day >= '2026-01-01'",
    "at < timestamp '2026-01-01 00:00:00' and not (name like 'a%')", "name in ('a', 'b', null) and id != -3",
    "cast(id as string) = '5' or ratio = 1e400", "starts_with(name, 'x') and `id` <=> 5",
    "id = 99999999999999999999999",
)  # fmt: skip


@cache
def schema() -> StructType:
    return parse_schema(json.dumps(SCHEMA))


@parser("predicates", cases=40)
def read_predicate(random: Random) -> object:
    text = damage_text(random, random.choice(PREDICATES))
    match random.randrange(20):
        case 0:
            text = "(" * 3000 + text + ")" * 3000
        case 1:
            text = "not " * 2000 + "id = 1"
        case 2:
            text = " or ".join(["id = 1"] * 3000)
        case 3:
            text = f"id = 1e{random.choice((999999999, -999999999))} or price = {'9' * 5000}"
    parse_predicate(text, schema(), ["day"])
    return to_duckdb(text)


@parser("filters", also=(TypeError, ValueError), cases=60)
def read_filters(random: Random) -> object:
    filters = [("id", ">", 5), ("name", "in", ["a", "b"]), ("day", "=", "2026-01-01")]
    return parse_predicate(damage_json(random, [list(item) for item in filters]), schema(), ["day"])


@parser("schemas as JSON", also=(ValueError,), cases=80)
def read_schema(random: Random) -> object:
    parsed = Schema.from_json(damaged_json_text(random, SCHEMA).decode("utf-8", "replace"))
    return [parsed.to_json(), str(parsed)]


@parser("schemas as text", cases=80)
def read_ddl(random: Random) -> object:
    text = "id long not null, `a b` array<struct<x: int, y: map<string, decimal(10,2)>>>, day date comment 'x'"
    if random.random() < 0.05:
        text = "x " + "array<" * 3000 + "int" + ">" * 3000
    return parse_ddl(damage_text(random, text))


@parser("names", cases=80)
def read_names(random: Random) -> object:
    text = damage_text(random, random.choice(("shop.orders", "`a.b`.`c``d`", "a.b.c.d", "orders")))
    return [parse_table_name(text), parse_namespace(text)]


@parser("addresses of catalogs", cases=80)
def read_address(random: Random) -> object:
    text = random.choice(("deltasql://sqlite//data/c.db?table=a.b", "deltasql://postgres/u:p@h:5432/db?schema=x&sslmode=require",
                          "postgresql://u:p@h/db", "/data/catalog.db"))  # fmt: skip
    return parse_catalog_uri(damage_text(random, text))


@parser("locations", cases=80)
def read_location(random: Random) -> object:
    text = random.choice(
        ("s3://bucket/a/b%20c", "file:///data/x", "abfss://c@a.dfs.core.windows.net/x", "/data/t", "gs://b/x")
    )
    return parse_location(damage_text(random, text)).uri


@parser("paths of files", cases=80)
def read_path(random: Random) -> object:
    """A relative path never leaves the folder, however it is written."""
    path = damage_text(
        random, random.choice(("a/b%20c.parquet", "day=1/x.parquet", "%2e%2e/x", "a/..%2fx", "x/.%2e/y"))
    )
    check_path(path)
    for folder in ("file:///lake/t", "s3://bucket/t"):
        location = resolve(folder, path)
        if not path.startswith("/") and ":/" not in path:
            assert location.startswith(f"{folder}/")
            assert ".." not in location.replace("%2E", ".").replace("%2e", ".").split("/")
    return None


CONFIG = """
catalog = "deltasql://sqlite//data/c.db"
[mirror]
mode = "inline"
retry_backoff = 1.5
[serve]
threads = 16
iceberg_locations = ["s3://a", "s3://b"]
[cdc]
batch_size = "64MB"
[[cdc.rules]]
tables = "public.orders_*"
namespace = "shop"
"""


@parser("configuration files", cases=80)
def read_config(random: Random) -> object:
    with table_folder() as folder:
        file = folder / "deltalakedb.toml"
        file.write_bytes(damage_text(random, CONFIG).encode("utf-8", "surrogatepass"))
        return load_config(file=file, environ={})


@parser("rules of a capture", cases=80)
def read_rules(random: Random) -> object:
    rule = {"tables": ["public.orders_*"], "namespace": "{schema}", "name": "{1}", "exclude_columns": ["a*"],
            "buckets": 4, "mask": {"email": "hash"}}  # fmt: skip
    value = json.loads(json.dumps(damage_json(random, [rule]), default=str).replace("NaN", "0"))
    parse_patterns([damage_text(random, "public.orders_*")])
    return parse_rules(value)
