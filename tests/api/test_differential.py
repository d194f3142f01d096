"""Random sequences of statements on both libraries: the same rows after each step, and for each reader of our files."""

from __future__ import annotations

from itertools import count

from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from tests.api.both import Both
from tests.api.judging import check_same_rows
from tests.api.sequences import OFTEN, STEPS, Life, Step
from tests.fixtures.readers import Spark
from tests.fixtures.sizes import sized

NAMES = count()
EXAMPLES = sized(10, 400)
STEPS_EACH = sized(10, 40)

LAYOUTS: dict[str, tuple[list[str], dict[str, str], dict[str, str]]] = {
    "plain": ([], {}, {}),
    "partitioned": (["part"], {}, {}),
    "deletion vectors": ([], {}, {"delta.enableDeletionVectors": "true"}),
    "column mapping": ([], {}, {"delta.columnMapping.mode": "name"}),  # DuckDB takes mapped partitions for null
    "change data feed": ([], {"delta.enableChangeDataFeed": "true"}, {}),
}
"""How the files lie: partitions, properties of both tables, properties of ours alone."""

steps = st.lists(
    st.builds(Step, st.sampled_from([*STEPS, *OFTEN]), st.integers(0, 10**6)),
    min_size=STEPS_EACH // 2,
    max_size=STEPS_EACH,
)


def live(both: Both, layout: str, chosen: list[Step]) -> Life:
    partition_by, configuration, ours_only = LAYOUTS[layout]
    life = Life(both, list(partition_by))
    life.begin(dict(configuration), dict(ours_only))
    for step in chosen:
        life.run(step)
    return life


@settings(max_examples=EXAMPLES)
@given(layout=st.sampled_from([*LAYOUTS]), chosen=steps)
def test_any_sequence_of_statements_leaves_the_same_rows(both: Both, layout: str, chosen: list[Step]) -> None:
    pair = both.other(f"t{next(NAMES)}")
    live(pair, layout, chosen)
    pair.mirror_agrees()
    pair.close()


@settings(max_examples=sized(3, EXAMPLES // 5))
@given(layout=st.sampled_from(["plain", "partitioned", "change data feed"]), chosen=steps)
def test_at_a_path_too(on_paths: Both, layout: str, chosen: list[Step]) -> None:
    pair = on_paths.other(f"t{next(NAMES)}")
    live(pair, layout, chosen)
    pair.mirror_agrees()
    pair.close()


def test_every_kind_of_statement_on_every_engine(everywhere: Both) -> None:
    live(everywhere, "partitioned", [Step(kind, 100 + seed) for seed, kind in enumerate(STEPS)])
    everywhere.mirror_agrees()


def test_delta_spark_reads_the_same_rows_from_our_files(both: Both, spark: SparkSession) -> None:
    chosen = [Step(kind, seed) for seed, kind in enumerate(STEPS)]
    for layout in ("partitioned", "deletion vectors"):
        pair = both.other(layout.replace(" ", "_"))
        live(pair, layout, chosen)
        expected = pair.ours.rows()
        found = Spark(spark).latest(pair.ours.folder)
        assert found.version == pair.ours.table().version()
        check_same_rows(expected, found.rows.select(expected.column_names), f"{layout}, read by delta-spark")
