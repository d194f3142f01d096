"""`read_table` is a sound door to the rows of a table, as those of tests/data/test_doors.py are.

The judge is Spark itself over the same rows in memory: it knows nothing of files, statistics or partitions.
"""

from collections.abc import Iterator
from contextlib import suppress

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import lit

import deltalakedb as dl
import deltalakedb.spark as dls
from deltalakedb.exceptions import PredicateError
from tests.fixtures.predicates import sql_predicates
from tests.fixtures.sizes import sized
from tests.fixtures.stored import stored_tables

pytestmark = pytest.mark.spark

TABLES = sized(2, 1000)
PREDICATES = 10
"""Of each table, asked in two ways."""


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dl.Catalog]:
    with dl.connect(tmp_path_factory.mktemp("doors") / "catalog.db") as opened:
        yield opened


@settings(
    max_examples=TABLES,
    deadline=None,  # on a busy machine Spark takes as long as it takes
    phases=[Phase.explicit, Phase.generate],  # a smaller table takes Spark minutes to find
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(data=st.data())
def test_read_table_gives_the_rows_for_which_spark_says_true(
    spark: SparkSession, catalog: dl.Catalog, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    stored = data.draw(stored_tables())
    assume(stored.rows().num_rows)  # PySpark makes no frame of structs without rows
    folder = tmp_path_factory.mktemp("door") / "t"
    stored.put(folder)
    name = f"doors.t{len(catalog.tables())}"
    catalog.attach_table(folder, name)
    in_memory = _in_memory(spark, stored.rows()).coalesce(1).cache()
    texts = [data.draw(sql_predicates(stored.table)) for _ in range(PREDICATES)]
    try:
        judged = _judge(in_memory, texts)
        found = {text: _read(spark, catalog, name, text) for text in judged}
        by_where = {text: frame for text, frame in found.items() if frame is not None}
        pushed = {text: dls.read_table(spark, name, catalog=catalog).where(text) for text in judged}
        assert _ids(by_where) == {text: judged[text] for text in by_where}
        assert _ids(pushed) == judged
    finally:
        in_memory.unpersist()


def _in_memory(spark: SparkSession, rows: pa.Table) -> DataFrame:
    """The rows as a frame whose timestamps without a zone have none; by default Spark takes them for zoned ones.

    What Spark itself gets wrong stays out of the comparison: its statistics of a cached frame lose rows with NaN, and
    its filters of row groups in any Parquet file lose 0.0 for `c = -0.0`.
    """
    spark.conf.set("spark.sql.inMemoryColumnarStorage.partitionPruning", "false")
    spark.conf.set("spark.sql.parquet.filterPushdown", "false")
    spark.conf.set("spark.sql.timestampType", "TIMESTAMP_NTZ")
    try:
        return spark.createDataFrame(rows)
    finally:
        spark.conf.unset("spark.sql.timestampType")


def _read(spark: SparkSession, catalog: dl.Catalog, name: str, text: str) -> DataFrame | None:
    """None where we say that we do not take the predicate, which is no wrong row."""
    try:
        return dls.read_table(spark, name, where=text, catalog=catalog)
    except PredicateError:
        return None


def _judge(frame: DataFrame, texts: list[str]) -> dict[str, list[int]]:
    """The ids for which each predicate is true, where Spark takes it and can work it out for every row."""
    frames: dict[str, DataFrame] = {}
    for text in texts:
        with suppress(PySparkException):
            frames[text] = frame.where(text)
    try:
        return _ids(frames)
    except PySparkException:
        judged: dict[str, list[int]] = {}
        for text, one in frames.items():
            with suppress(PySparkException):
                judged |= _ids({text: one})
        return judged


def _ids(frames: dict[str, DataFrame]) -> dict[str, list[int]]:
    """The ids that each frame gives, in one job."""
    if not frames:
        return {}
    numbered = [frame.select(lit(number), "id") for number, frame in enumerate(frames.values())]
    union = numbered[0]
    for frame in numbered[1:]:
        union = union.union(frame)
    found: dict[str, list[int]] = {text: [] for text in frames}
    texts = list(frames)
    for number, row_id in union.collect():
        found[texts[number]].append(row_id)
    return {text: sorted(ids) for text, ids in found.items()}
