"""read_table gives what `format("delta")` gives, at any version, and reads no file that cannot matter."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import deltalakedb as dl
import deltalakedb.spark as dls
from deltalakedb.exceptions import ConfigError, PredicateError
from deltalakedb.spark.places import metadata_path, reading_path
from tests.fixtures.sizes import every
from tests.golden.judges import EVERY_VERSION, SparkTable
from tests.spark.compare import rows_of, rows_of_all
from tests.spark.generated import Recipe, make, recipes

pytestmark = pytest.mark.spark


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[dl.Catalog]:
    with dl.connect(tmp_path / "catalog.db", warehouse=str(tmp_path / "lake")) as opened:
        yield opened


def delta(spark: SparkSession, path: Path | str, version: int | None = None) -> DataFrame:
    reader = spark.read.format("delta")
    return (reader if version is None else reader.option("versionAsOf", version)).load(str(path))


def versions_of(catalog: dl.Catalog, name: str) -> list[int]:
    return sorted(entry["version"] for entry in catalog.table(name).history())


def looking(spark: SparkSession) -> SparkSession:
    """A session in which Spark looks at each file itself, as it must where our jar is not."""
    session = spark.newSession()
    session.conf.set("spark.deltalakedb.plannedFiles", "false")
    return session


def same_at_versions(spark: SparkSession, catalog: dl.Catalog, path: Path, name: str) -> None:
    """Told of the files at the first, middle and last version, or at all in make soak; looking at them at the last."""
    every = versions_of(catalog, name)
    versions = every if EVERY_VERSION else sorted({every[0], every[len(every) // 2], every[-1]})
    ours = {v: dls.read_table(spark, name, version=v, catalog=catalog) for v in versions}
    theirs = {v: delta(spark, path, v) for v in versions}
    looked = dls.read_table(looking(spark), name, catalog=catalog)
    for v in versions:
        assert ours[v].schema.simpleString() == theirs[v].schema.simpleString()
    assert _seen(looked) == _seen(ours[versions[-1]])
    expected = rows_of_all(theirs)
    assert rows_of_all(ours) == expected
    assert rows_of(looked) == expected[versions[-1]]


def _seen(frame: DataFrame) -> list[tuple[str, Any, dict[str, Any]]]:
    """Columns without whether they may be null: that of a constant is known better than that of a file's column."""
    return [(field.name, field.dataType, field.metadata) for field in frame.schema.fields]


GOLDEN = [
    "partitioned", "deletion_vectors", "column_mapping", "column_mapping_by_id", "mapping_turned_on", "type_widening",
    "shallow_clone", "generated_columns", "variant", "row_tracking", "feature_dropped",
]  # fmt: skip


@pytest.mark.parametrize("name", every(4, GOLDEN))
def test_it_reads_what_delta_reads_at_versions_of_the_golden_tables(
    spark: SparkSession, catalog: dl.Catalog, tables_by_spark: Mapping[str, SparkTable], name: str
) -> None:
    table = tables_by_spark[name]
    catalog.attach_table(table.path, f"golden.{name}")
    same_at_versions(spark, catalog, table.path, f"golden.{name}")


EXAMPLES = 60 if EVERY_VERSION else 3
PREDICATES = [
    "id % 100 < 5", "id = 3 or t is null", "s.a > 0", "t = 'plain'", "`p0_é` is null", "`p0 %é` = 'a b' and id >= 100",
    "array_contains(transform(l, e -> e.x), 0) or size(m) = 0", 't <=> "a b"', "v > 1 or isnan(v)",
]  # fmt: skip


# A table takes seconds to make: few of them, and none again to find a smaller one.
@settings(max_examples=EXAMPLES, phases=[Phase.explicit, Phase.generate], suppress_health_check=list(HealthCheck))
@given(recipe=recipes)
def test_it_reads_what_delta_reads_of_generated_tables(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, recipe: Recipe
) -> None:
    folder = tmp_path_factory.mktemp("generated")
    make(spark, folder / "table", recipe)
    with dl.connect(folder / "catalog.db") as catalog:
        catalog.attach_table(folder / "table", "g.t")
        same_at_versions(spark, catalog, folder / "table", "g.t")
        theirs = delta(spark, folder / "table")
        known = [text for text in PREDICATES if _fits(theirs, text)]
        ours = {text: dls.read_table(spark, "g.t", where=text, catalog=catalog) for text in known}
        assert rows_of_all(ours) == rows_of_all({text: theirs.where(text) for text in known})


def _fits(frame: DataFrame, text: str) -> bool:
    """Whether the table has the columns, and they have the types, that a predicate speaks of."""
    types = dict(frame.dtypes)
    asked = {name for name in ("t", "v") if text.startswith(f"{name} ") or f" {name} " in text or f"({name})" in text}
    partition = {name for name in ("p0_é", "p0 %é") if name in text}
    comparable = " = " not in text or all(types.get(name) == "string" for name in partition)
    return comparable and asked | partition <= types.keys()


def test_odd_folders_and_partition_values_are_found(spark: SparkSession, catalog: dl.Catalog, tmp_path: Path) -> None:
    path = tmp_path / "a b%20#é{x}[y]*?+"
    make(spark, path, Recipe(7, ("string",), "none", True, ("insert", "delete")))
    catalog.attach_table(path, "odd.t")
    ours = {p: dls.read_table(spark, "odd.t", where=p, catalog=catalog) for p in ("`p0_é` = '%41'", "`p0_é` is null")}
    assert rows_of_all(ours) == rows_of_all({p: delta(spark, path).where(p) for p in ours})
    assert rows_of(dls.read_table(spark, path, catalog=catalog)) == rows_of(delta(spark, path))


def test_spark_spells_files_as_we_expect_it(spark: SparkSession, tmp_path: Path) -> None:
    names = [
        "plain", "sp ace", "per%cent", "per%20cent", "ha#sh", "q?m", "star*", "br[a]", "cu{r}ly", "é中", "plus+&=",
        "col:on",
        "qu'o\"te", "tab\tx", "back\\slash", "at@semi;com,", "~tilde!$()", "\u00a0nbsp", "p^r|<>`", "emoji😀",
        "\u2028line",
    ]  # fmt: skip
    files = {}
    for number, name in enumerate(names):
        (tmp_path / name).mkdir()
        pq.write_table(pa.table({"number": [number]}), tmp_path / name / "file.parquet")
        files[number] = f"file://{tmp_path}/{name}/file.parquet"
    found = spark.read.schema("number long").parquet(*map(reading_path, files.values()))
    spelled = {row[0]: row[1] for row in found.select("number", "_metadata.file_path").collect()}
    assert spelled == {number: metadata_path(file) for number, file in files.items()}


def test_timestamps_of_partitions_are_those_of_the_sessions_zone(
    spark: SparkSession, catalog: dl.Catalog, tables_by_spark: Mapping[str, SparkTable]
) -> None:
    abroad = spark.newSession()
    abroad.conf.set("spark.sql.session.timeZone", "America/New_York")
    path = tables_by_spark["partitioned"].path
    catalog.attach_table(path, "golden.partitioned")
    where = "at >= '1969-12-31 18:00:00'"
    ours = {p: dls.read_table(abroad, "golden.partitioned", where=p, catalog=catalog, version=2) for p in (where, None)}
    theirs = {p: delta(abroad, path, 2) if p is None else delta(abroad, path, 2).where(p) for p in ours}
    assert rows_of_all(ours) == rows_of_all(theirs)


@pytest.fixture
def many(spark: SparkSession, catalog: dl.Catalog, tmp_path: Path) -> Path:
    """40 partitions of one file each, ids in order."""
    rows = spark.range(0, 400, numPartitions=1).selectExpr("id", "cast(id div 10 as int) p", "concat('n', id) name")
    rows.write.format("delta").partitionBy("p").save(str(tmp_path / "many"))
    catalog.attach_table(tmp_path / "many", "a.many")
    return tmp_path / "many"


def test_only_planned_files_are_read_and_no_setting_stays_behind(
    spark: SparkSession, catalog: dl.Catalog, many: Path
) -> None:
    name = "spark.sql.sources.parallelPartitionDiscovery.threshold"
    expected = rows_of(delta(spark, many).select("p", "id"))
    for session in (spark, looking(spark)):
        before = session.conf.get(name)
        few = dls.read_table(session, "a.many", where="id between 55 and 64", columns=["name"], catalog=catalog)
        assert len(few.inputFiles()) == 2
        assert few.columns == ["name"]
        assert sorted(row.name for row in few.collect()) == [f"n{i}" for i in range(55, 65)]
        whole = dls.read_table(session, "a.many", columns=["p", "id"], catalog=catalog)
        assert len(whole.inputFiles()) == 40
        assert rows_of(whole) == expected
        assert dls.read_table(session, "a.many", columns=["p"], catalog=catalog).distinct().count() == 40
        assert session.conf.get(name) == before


def test_conditions_on_the_frame_itself_rule_out_partitions(
    spark: SparkSession, catalog: dl.Catalog, many: Path
) -> None:
    whole, theirs = dls.read_table(spark, "a.many", catalog=catalog), delta(spark, many)
    conditions = ["p = 3", "p in (1, 39) and id % 2 = 0", "p > 37 or id < 5", "p is null", "cast(p as string) = '7'"]
    found = rows_of_all({text: whole.where(text) for text in conditions})
    assert found == rows_of_all({text: theirs.where(text) for text in conditions})
    assert [found[text].total() for text in conditions] == [10, 10, 25, 0, 10]
    few = spark.createDataFrame([(8,), (9,)], "p int")
    assert whole.join(few, "p").count() == 20


def test_a_session_with_the_jar_looks_at_no_file_before_it_reads(
    spark: SparkSession, catalog: dl.Catalog, many: Path
) -> None:
    for file in many.glob("p=5/*.parquet"):
        file.unlink()
    told = dls.read_table(spark, "a.many", catalog=catalog)
    assert len(told.inputFiles()) == 40
    assert told.where("p <> 5").count() == 390
    with pytest.raises(Py4JJavaError, match="FILE_NOT_EXIST.*p=5"):
        told.collect()
    with pytest.raises(PySparkException, match="p=5"):
        dls.read_table(looking(spark), "a.many", catalog=catalog)


@pytest.mark.usefixtures("many")
def test_a_plan_is_three_calls_of_the_jvm(
    spark: SparkSession, catalog: dl.Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    def planned() -> list[str]:
        where, columns = "id between 55 and 64", ["id", "name"]
        return dls.read_table(spark, "a.many", where=where, columns=columns, catalog=catalog).inputFiles()

    assert len(planned()) == 2  # the first read of a session also looks for the jar
    gateway: Any = spark.sparkContext._gateway
    client, called = gateway._gateway_client, list[str]()
    send = client.send_command

    def note(command: str, *rest: Any, **options: Any) -> Any:
        called.extend(command.split("\n")[2:3] if command.startswith("c\n") else ())
        return send(command, *rest, **options)

    monkeypatch.setattr(client, "send_command", note)
    assert len(planned()) == 2
    assert called == ["scan", "filter", "inputFiles"]


@pytest.mark.usefixtures("many")
def test_filter_lists_mean_what_they_mean_to_deltalake(spark: SparkSession, catalog: dl.Catalog) -> None:
    filters: list[list[tuple[str, str, Any]]] = [[("p", "=", 3), ("id", ">", 35)], [("name", "in", ["n1"])]]
    lists = dls.read_table(spark, "a.many", where=filters, catalog=catalog)
    assert sorted(row.id for row in lists.collect()) == [1, 36, 37, 38, 39]


def test_no_surviving_file_gives_no_row_but_the_schema(spark: SparkSession, catalog: dl.Catalog, many: Path) -> None:
    none = dls.read_table(spark, "a.many", where="id > 1000", catalog=catalog)
    assert none.schema.simpleString() == delta(spark, many).schema.simpleString()
    assert none.count() == 0
    catalog.create_table("a.empty", "id long, s struct<a: int>, p string", partition_by="p")
    empty = dls.read_table(spark, "a.empty", catalog=catalog)
    assert empty.schema.simpleString() == "struct<id:bigint,s:struct<a:int>,p:string>"
    assert empty.collect() == []


def test_a_transaction_reads_its_own_writes_and_the_read_is_checked(spark: SparkSession, catalog: dl.Catalog) -> None:
    dls.write_table(spark.range(3), "a.t", catalog=catalog)
    tx = catalog.begin()
    tx.write("a.t", spark.range(3, 5), mode="append")
    assert sorted(row.id for row in dls.read_table(spark, tx.table("a.t")).collect()) == [0, 1, 2, 3, 4]
    dls.write_table(spark.range(9, 10), "a.t", catalog=catalog)
    with pytest.raises(dl.CommitFailedError):
        tx.commit()


@pytest.mark.usefixtures("many")
def test_it_says_what_is_wrong(spark: SparkSession, catalog: dl.Catalog) -> None:
    def read(**options: Any) -> DataFrame:
        return dls.read_table(spark, "a.many", catalog=catalog, **options)

    with pytest.raises(PredicateError, match="no column 'nme'"):
        read(columns=["nme"])
    with pytest.raises(PredicateError, match="No field named nme"):
        read(where="nme = 1")
    with pytest.raises(PredicateError, match="sql parser error"):
        read(where="id = = 1")
    with pytest.raises(PredicateError, match="where is a condition in SQL"):
        read(where=spark.range(1).id > 0)
    with pytest.raises(ConfigError, match="not at both"):
        read(version=0, timestamp="2026-01-01")
    with pytest.raises(dl.TableNotFoundError):
        dls.read_table(spark, "a.none", catalog=catalog)
    with pytest.raises(dl.VersionNotFoundError):
        read(version=7)
    assert read(version=0).count() == 400
