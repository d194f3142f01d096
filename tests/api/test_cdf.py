"""The change data feed: what `deltalake` tells of a statement we tell too, and delta-spark reads it from our files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import count
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from tests.api.both import Both, Library
from tests.api.judging import check_same_rows, to_plain
from tests.api.sequences import STEPS, Life, Step
from tests.fixtures.sizes import sized

NAMES = count()
EXAMPLES = sized(4, 200)
FEED = {"delta.enableChangeDataFeed": "true"}
CHANGING = [kind for kind in STEPS if kind != "travel"]
SAME_SCHEMA = ("append", "delete", "update", "merge", "overwrite", "update with values", "overwrite where", "restore")

steps = st.lists(st.builds(Step, st.sampled_from(CHANGING), st.integers(0, 10**6)), min_size=3, max_size=8)


def changes(lib: Library, first: int, last: int) -> pa.Table:
    """What happened in some versions; when is each library's own."""
    rows = to_plain(lib.table().load_cdf(starting_version=first, ending_version=last))
    return rows.drop_columns(["_commit_timestamp"])


def without_idle_updates(rows: pa.Table) -> pa.Table:
    """Without the rows that an update left as they were: `deltalake` does not tell of those, delta-spark and we do."""
    kinds = rows.column("_change_type").to_pylist()
    told = [repr(row) for row in rows.drop_columns(["_change_type"]).to_pylist()]
    before, after = (
        Counter(text for text, kind in zip(told, kinds, strict=True) if kind == wanted)
        for wanted in ("update_preimage", "update_postimage")
    )
    idle = {"update_preimage": before & after, "update_postimage": before & after}
    kept = []
    for place, (text, kind) in enumerate(zip(told, kinds, strict=True)):
        if idle.get(kind, Counter())[text] > 0:
            idle[kind][text] -= 1
        else:
            kept.append(place)
    told_rows = rows.to_pylist()
    return pa.Table.from_pylist([told_rows[place] for place in kept], rows.schema)


@settings(max_examples=EXAMPLES)
@given(partition_by=st.sampled_from([[], ["day"]]), chosen=steps)
def test_every_statement_tells_the_same_changes(both: Both, partition_by: list[str], chosen: list[Step]) -> None:
    pair = both.other(f"c{next(NAMES)}")
    life = Life(pair, partition_by)
    life.begin(FEED, {})
    for step in chosen:
        before = pair.same_version()
        life.run(step)
        after = pair.same_version()
        if after > before:
            theirs, ours = (changes(library, before + 1, after) for library in pair.libraries)
            check_same_rows(theirs, without_idle_updates(ours), f"the changes of {step}", ordered=False)
    pair.close()


def test_the_feed_of_all_versions_is_the_same(both: Both) -> None:
    life = Life(both)
    life.begin(FEED, {})
    for seed, kind in enumerate(SAME_SCHEMA):
        life.run(Step(kind, seed))
    last = both.same_version()
    theirs, ours = (changes(library, 1, last) for library in both.libraries)
    check_same_rows(theirs, without_idle_updates(ours), "the changes since version 1")


def merge(lib: Library, rows: dict[str, list[Any]]) -> Any:
    return lib.table().merge(pa.table(rows), "t.id = s.id", source_alias="s", target_alias="t")


STATEMENTS: dict[str, Callable[[Library], object]] = {
    "overwrite": lambda lib: lib.write({"id": [9], "p": ["q"]}, mode="overwrite"),
    "overwrite some": lambda lib: lib.write({"id": [2], "p": ["a"]}, mode="overwrite", predicate="id = 2"),
    "overwrite a partition": lambda lib: lib.write({"id": [7], "p": ["a"]}, mode="overwrite", predicate="p = 'a'"),
    "overwrite nothing": lambda lib: lib.write({"id": [70], "p": ["a"]}, mode="overwrite", predicate="id = 70"),
    "insert": lambda lib: merge(lib, {"id": [3, 4], "p": ["z", "y"]}).when_not_matched_insert_all().execute(),
    "insert nothing": lambda lib: merge(lib, {"id": [1], "p": ["a"]}).when_not_matched_insert_all().execute(),
    "upsert": lambda lib: (
        merge(lib, {"id": [3, 4], "p": ["z", "y"]}).when_matched_update_all().when_not_matched_insert_all().execute()
    ),
    "delete": lambda lib: lib.table().delete("id = 1"),
    "delete a partition": lambda lib: lib.table().delete("p = 'a'"),
    "update": lambda lib: lib.table().update({"p": "'c'"}, predicate="id = 1"),
}


@pytest.mark.parametrize("partition_by", [[], ["p"]], ids=["flat", "partitioned"])
def test_the_same_statements_write_change_data(anywhere: Both, partition_by: list[str]) -> None:
    """As many files below `_change_data`, and the same rows in the feed."""
    for number, (name, statement) in enumerate(STATEMENTS.items()):
        pair = anywhere.other(f"s{number}")
        pair.write({"id": [1, 2, 3], "p": ["a", "a", "b"]}, configuration=FEED, partition_by=partition_by or None)
        pair.same(statement)
        files = [len(list((lib.folder / "_change_data").rglob("*.parquet"))) for lib in pair.libraries]
        assert files[1] == files[0], name
        last = pair.same_version()
        check_same_rows(changes(pair.theirs, 0, last), changes(pair.ours, 0, last), name, ordered=False)


def test_delta_spark_reads_our_feed(both: Both, spark: SparkSession) -> None:
    life = Life(both, ["day"])
    life.begin(FEED, {})
    for seed, kind in enumerate(SAME_SCHEMA):
        life.run(Step(kind, seed))
    last = both.ours.table().version()
    found = spark.sql(f"select * from table_changes_by_path('{both.ours.folder}', 1, {last})").toArrow()
    ours = changes(both.ours, 1, last)
    place = ours.column_names.index("_commit_version")  # unsigned, as `deltalake` has it
    ours = ours.set_column(place, "_commit_version", ours.column(place).cast(pa.int64()))
    check_same_rows(ours, found.select(ours.column_names), "our feed, read by delta-spark")
