"""Random conditions on random tables keep the rows that plain delta-spark finds, and no file with one is left out."""

import json
import re
from collections.abc import Sequence
from typing import Final

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyspark.errors import PySparkException

import deltalakedb.spark as dls
from tests.fixtures.sizes import sized
from tests.spark.compare import rows_of, rows_of_all
from tests.spark.planning.conditions import conditions
from tests.spark.planning.recipes import Recipe, make_table, recipes
from tests.spark.planning.twins import Twins, new_twins, setting
from tests.spark.shop import Shop

pytestmark = pytest.mark.spark

EXAMPLES: Final = sized(2, 300)
CONDITIONS: Final = sized(25, 60)
_LOOSE: Final = re.compile(r"\b(f32|f64|n5|n20|n38|bin|st|l)\b")
"""Columns whose bounds are wider in SQL than Delta takes them for, or that have none: docs/spark.md says why."""


# A table takes seconds to make: few of them, and none again to find a smaller one.
@settings(max_examples=EXAMPLES, phases=[Phase.explicit, Phase.generate], suppress_health_check=list(HealthCheck))
@given(recipe=recipes, asked=st.lists(conditions, min_size=CONDITIONS, max_size=CONDITIONS, unique=True))
def test_random_tables_are_read_as_plain_delta_reads_them(
    shop: Shop, tmp_path_factory: pytest.TempPathFactory, recipe: Recipe, asked: list[str]
) -> None:
    with setting(shop.spark, spark_sql_session_timeZone=recipe.zone, spark_sql_ansi_enabled="false"):
        folder = tmp_path_factory.mktemp("random")
        twins = new_twins(shop, folder, lambda spark, path: make_table(spark, path, recipe), folder.name)
        known = [condition for condition in asked if _is_understood(twins, condition)]
        assert len(known) > CONDITIONS // 4
        _check_rows_and_files(twins, known)
        _check_others(shop, twins, recipe, [condition for condition in known if "{t}" not in condition][:8])


def _is_understood(twins: Twins, condition: str) -> bool:
    """Whether the table has the columns: some have been renamed or dropped, or are of another type."""
    try:
        twins.spark.sql(f"select * from {{t}} where {condition}".replace("{t}", twins.tables[0]))
    except PySparkException:
        return False
    return True


def _check_rows_and_files(twins: Twins, asked: Sequence[str]) -> None:
    """The same rows of the same files; and no file is read that Delta leaves out, but where bounds say less."""
    with_files = "select *, _metadata.file_name as in_file from {t} where "
    rows = twins.check_rows(with_files + condition for condition in ["true", *asked])
    assert rows[with_files + "true"].total()
    more = {}
    for condition in asked:
        matching = {json.loads(row)["in_file"] for row in rows[with_files + condition]}
        theirs, ours = twins.planned(condition)
        assert matching <= theirs, condition
        assert matching <= ours, condition
        if ours - theirs and not _LOOSE.search(condition):
            more[condition] = (len(ours), len(theirs))
    assert more == {}


def _check_others(shop: Shop, twins: Twins, recipe: Recipe, asked: Sequence[str]) -> None:
    """The same conditions at an older version, inside a transaction, and the change feed."""
    newest, _ = twins.versions()
    twins.check_rows(f"select * from {{t}} version as of {newest // 2} where {condition}" for condition in asked)
    query = "select * from {t} where "
    theirs = rows_of_all({text: twins.ask(query + text)[0] for text in asked})
    with dls.begin(shop.spark) as tx:
        ours = rows_of_all({text: tx.sql(f"select * from {{{twins.name}}} where {text}") for text in asked})
    assert ours == theirs
    if recipe.change_feed:
        feeds = twins.read(readChangeFeed="true", startingVersion="1", endingVersion=str(newest))
        plain, twin = (rows_of(feed.drop("_commit_timestamp")) for feed in feeds)
        assert twin == plain
