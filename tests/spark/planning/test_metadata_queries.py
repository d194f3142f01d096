"""LIMIT, counts, bounds, subqueries, views and joins answer as plain delta-spark answers."""

from pathlib import Path
from typing import Final

import pytest

from tests.spark.planning.test_statements import TABLES
from tests.spark.planning.twins import Twins, new_twins, setting, written
from tests.spark.shop import Shop

pytestmark = pytest.mark.spark

ALONE: Final = (
    "select count(*) from {t}",
    "select count(*) from {t} where p = 'p1'",
    "select count(*) from {t} where id > 50",
    "select count(*), count(1) from {t}",
    "select count(v), count(id) from {t}",
    "select min(id), max(id) from {t}",
    "select min(id), max(id), count(*) from {t}",
    "select min(d), max(d), min(n), max(n) from {t}",
    "select min(v), max(v) from {t}",
    "select min(p), max(p) from {t}",
    "select min(s.a) from {t}",
    "select max(id) from {t} where p = 'p2'",
    "select count(distinct p) from {t}",
    "select distinct p from {t}",
    "select id from {t} order by id limit 3",
    "select id from {t} order by v desc nulls last, id limit 5",
    "select count(*) from (select * from {t} limit 7)",
    "select count(*) from (select * from {t} where p = 'p1' limit 5)",
    "select count(*) from (select * from {t} where id > 80 limit 50)",
    "select count(*) from (select * from {t} limit 0)",
    "select count(*) from (select id from {t} limit 1000)",
    "select count(*) from {t} version as of 1",
    "select max(id) from {t} version as of 1",
)
ROWS: Final = (
    "select * from {t} where id = (select max(id) from {t})",
    "select * from {t} where id in (select id + 1 from {t} where v > 20)",
    "select * from {t} where id not in (select id from {t} where p = 'p0')",
    "select * from {t} a where exists (select 1 from {t} b where b.id = a.id + 1 and b.p = 'p2')",
    "select a.id, b.id other from {t} a join {t} b on a.id = b.id + 30 where a.p = 'p1'",
    "select * from {t} join dims using (p) where dims.label = 'one'",
    "select t.* from {t} t join dims on t.p = dims.p and dims.label like 't%' where t.id < 50",
    "select * from {t} left semi join (select * from dims where label <> 'zero') using (p)",
    "select * from {t} left anti join (select * from dims where label = 'two') using (p)",
    "with few as (select * from {t} where id < 10) select * from few union all select * from few where p = 'p1'",
    "select p, count(*), sum(n), max(v) from {t} where d > '2026-01-10' group by p",
    "select id, row_number() over (partition by p order by id) from {t} where id between 20 and 40",
    "select * from {t} version as of 1 where id < 5",
    "select * from (select * from {t} where id > 10) where id < 20",
    "select id from {t} where id > 80 except select id from {t} where p = 'p0'",
)


@pytest.mark.parametrize("kind", TABLES)
def test_counts_bounds_and_limits_are_the_same(shop: Shop, tmp_path: Path, kind: str) -> None:
    twins = new_twins(shop, tmp_path, written(*TABLES[kind]))
    for query in ALONE:
        twins.check_answer(query)
    for condition in ("true", "p = 'p1'", "id < 30"):
        for limit in (1, 20, 40):
            ask = f"select * from {{t}} where {condition} limit {limit}"
            theirs, ours = (frame.count() for frame in twins.ask(ask))
            assert ours == theirs, ask


def test_counts_of_an_empty_table_and_of_one_with_nulls_only_are_the_same(shop: Shop, tmp_path: Path) -> None:
    empty = "create table {t} (id bigint, p string, v double) using delta partitioned by (p)"
    queries = ("select count(*) from {t}", "select min(id), max(p), count(v) from {t}", "select * from {t} limit 3")
    for name, statements in {"empty": (empty,), "nulls": (empty, "insert into {t} values (null, null, null)")}.items():
        twins = new_twins(shop, tmp_path, written(*statements), name)
        for query in queries:
            twins.check_answer(query)


@pytest.mark.parametrize("kind", TABLES)
def test_subqueries_joins_and_views_give_the_same_rows(shop: Shop, tmp_path: Path, kind: str) -> None:
    twins = new_twins(shop, tmp_path, written(*TABLES[kind]))
    dims = shop.spark.createDataFrame([("p0", "zero"), ("p1", "one"), ("p2", "two")], "p string, label string")
    dims.createOrReplaceTempView("dims")
    try:
        twins.check_rows(ROWS)
        _check_views(shop, twins)
    finally:
        shop.spark.catalog.dropTempView("dims")


def _check_views(shop: Shop, twins: Twins) -> None:
    found = []
    for table in twins.tables:
        shop.spark.sql(f"create or replace temp view seen as select *, id * 2 twice from {table} where id >= 30")
        found.append(sorted(map(repr, shop.spark.sql("select * from seen where twice < 80 and p = 'p1'").collect())))
        shop.spark.catalog.dropTempView("seen")
    assert found[0] == found[1]
    assert found[0]


def test_a_join_with_a_filtered_dimension_reads_few_partitions(shop: Shop, tmp_path: Path) -> None:
    """Dynamic pruning gives the condition when the query runs: the files that were read are counted."""
    twins = new_twins(shop, tmp_path, written(*TABLES["partitions and vectors"]))
    shop.spark.createDataFrame([("p1", 1)], "p string, size int").createOrReplaceTempView("chosen")
    try:
        settings = {
            "spark_sql_optimizer_dynamicPartitionPruning_reuseBroadcastOnly": "false",
            "spark_sql_optimizer_dynamicPartitionPruning_fallbackFilterRatio": "10",
        }
        with setting(shop.spark, **settings):
            frames = twins.ask("select t.id from {t} t join chosen on t.p = chosen.p where chosen.size = 1")
            plans = [frame._jdf.queryExecution().executedPlan().toString() for frame in frames]
            assert ["dynamicpruning" in plan for plan in plans] == [True, True]
            plain, ours = (sorted(row.id for row in frame.collect()) for frame in frames)
        assert ours == plain
        assert ours
    finally:
        shop.spark.catalog.dropTempView("chosen")
