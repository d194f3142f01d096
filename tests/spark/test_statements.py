"""Every kind of statement runs through the bridge, on SQLite and Postgres, and SQL, mirror and Spark agree after it."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import deltalakedb as dl
import deltalakedb.spark as dls
from tests.spark.judging import EVERY_VERSION, assert_rows, commit_text
from tests.spark.lake import Lake, new_catalog_uri, new_lake
from tests.spark.stage import Kind, play
from tests.spark.statements import KINDS, LISTED

OF_THE_STORE = {"replace", "delete_with_vectors", "clustering", "row_tracking", "drop_feature", "streaming_sink"}
"""The kinds whose actions fill columns and tables of the store that the others leave empty."""
CASES = [("sqlite", kind) for kind in KINDS] + [
    ("postgres", kind) for kind in KINDS if EVERY_VERSION or kind.name in OF_THE_STORE
]
"""On Postgres, which differs below the bridge alone, all kinds in `make soak`; before that those of the store."""


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def lake(
    request: pytest.FixtureRequest, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Lake]:
    assert spark.version
    folder = tmp_path_factory.mktemp(f"statements_{request.param}")
    uri = new_catalog_uri(str(request.param), folder, request)
    with dl.connect(uri, warehouse=str(folder / "lake")) as catalog:
        yield new_lake(catalog, "kinds")


def test_every_listed_kind_is_here() -> None:
    assert {kind.listed for kind in KINDS} == set(LISTED)
    assert len({kind.name for kind in KINDS}) == len(KINDS)
    assert {kind.name for engine, kind in CASES if engine == "postgres"} >= OF_THE_STORE


@pytest.mark.parametrize(
    ("lake", "kind"),
    [
        pytest.param(engine, kind, id=f"{engine}-{kind.name}", marks=() if number % 4 == 0 else pytest.mark.slow)
        for number, (engine, kind) in enumerate(CASES)
    ],
    indirect=["lake"],
)
def test_sql_mirror_and_spark_agree_after(lake: Lake, kind: Kind, tmp_path: Path) -> None:
    """On Postgres Spark is not asked again for the versions before the statements, which most kinds have in common."""
    stage, name = lake.stage(kind.name, tmp_path), lake.name(kind.name)
    play(stage, kind.before)
    on_postgres = lake.catalog.uri.engine == "postgres"
    known = lake.catalog.table(name).version() if on_postgres and name in lake.catalog.tables() else 0
    play(stage, kind.statements)
    versions = lake.judge.check(name, stage, read_from=kind.read_from, seen_from=known)
    assert versions == list(range(lake.catalog.table(name).version() + 1))
    assert_rows(lake.spark.table(stage.table).toArrow(), kind.rows)
    text = commit_text(lake.root(kind.name))
    assert [words for words in kind.leaves if words not in text] == []
    assert [words for words in kind.lacks if words in text] == []
    if kind.name == "v2_checkpoints":
        # They and their sidecars are Spark's own; the mirror has classic ones.
        overlay = {path.name for path in (lake.root(kind.name) / "_dldb" / "log").rglob("*")}
        assert any(".checkpoint." in name and not name.endswith("checkpoint.parquet") for name in overlay), overlay


def test_the_session_is_the_one_of_the_catalog(lake: Lake) -> None:
    dls.bridge_of(lake.spark, lake.catalog)
    lake.spark.sql(f"create table {lake.namespace}.shown (id long) using delta")
    shown = lake.spark.sql(f"show tables in {lake.namespace}").collect()
    names = sorted(f"{row.namespace}.{row.tableName}" for row in shown if not row.isTemporary)
    assert f"{lake.namespace}.shown" in names
    assert names == sorted(lake.catalog.tables(lake.namespace))
