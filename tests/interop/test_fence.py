"""The fence in a table's protocol keeps every other writer out, and no reader."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import deltalake
import duckdb
import polars as pl
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import deltalakedb as dl
from deltalakedb.log.protocol.fence import FEATURE
from tests.fixtures.readers import DuckDB, Reader, Reading
from tests.interop.conftest import open_all
from tests.interop.maker import Maker, numbers

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def fenced(lake: tuple[Path, dl.Catalog]) -> Path:
    """A table of ours with three small files, one of them removed."""
    root, catalog = lake
    table = Maker(catalog, "fenced", root / "lake" / "fenced")
    table.create("id long, name string, amount double")
    table.append(numbers(0))
    table.append(numbers(1, 2, 3))
    table.overwrite(numbers(4))
    table.append(numbers(5))
    assert catalog.mirror.flush(30)  # from here on nobody of ours touches the files
    return table.path


@pytest.fixture
def files(fenced: Path) -> Iterator[set[str]]:
    """The names in the table's folder; afterwards the log is the same and no data file is gone.

    Spark and DuckDB write their data before they find out that they may not commit.
    """
    names = _names(fenced)
    yield names
    after = _names(fenced)
    assert names <= after
    assert not [name for name in after - names if name.startswith("_delta_log")]


def _names(path: Path) -> set[str]:
    return {str(file.relative_to(path)) for file in path.rglob("*") if file.suffix != ".crc"}


def merge(table: deltalake.DeltaTable) -> Any:
    return table.merge(numbers(9), "s.id = t.id", "s", "t").when_not_matched_insert_all().execute()


BY_DELTALAKE: dict[str, Callable[[deltalake.DeltaTable], Any]] = {
    "append": lambda t: deltalake.write_deltalake(t, numbers(9), mode="append"),
    "overwrite": lambda t: deltalake.write_deltalake(t, numbers(9), mode="overwrite"),
    "delete": lambda t: t.delete("id = 4"),
    "delete all": lambda t: t.delete(),
    "update": lambda t: t.update({"id": "id + 1"}),
    "merge": merge,
    "compact": lambda t: t.optimize.compact(),
    "z-order": lambda t: t.optimize.z_order(["id"]),
    "vacuum": lambda t: t.vacuum(0, dry_run=False, enforce_retention_duration=False),
    "set properties": lambda t: t.alter.set_table_properties({"delta.appendOnly": "true"}),
    "add columns": lambda t: t.alter.add_columns(deltalake.Field("x", deltalake.schema.PrimitiveType("long"))),
    "add a constraint": lambda t: t.alter.add_constraint({"c": "id > 0"}),
    "add a feature": lambda t: t.alter.add_feature(deltalake.TableFeatures.ChangeDataFeed, True),
    "restore": lambda t: t.restore(1),
}


@pytest.mark.usefixtures("files")
@pytest.mark.parametrize("operation", BY_DELTALAKE)
def test_deltalake_refuses_to(fenced: Path, operation: str) -> None:
    table = deltalake.DeltaTable(fenced)
    with pytest.raises(deltalake.exceptions.DeltaError, match=FEATURE):
        BY_DELTALAKE[operation](table)


BY_SPARK = {
    "append": "insert into {t} values (9, 'n', 1.0)",
    "overwrite": "insert overwrite {t} values (9, 'n', 1.0)",
    "delete": "delete from {t} where id = 4",
    "update": "update {t} set id = id + 1",
    "merge": "merge into {t} t using (select 9L id) s on t.id = s.id when matched then delete",
    "optimize": "optimize {t}",
    "vacuum": "vacuum {t}",
    "set properties": "alter table {t} set tblproperties ('a' = 'b')",
    "add columns": "alter table {t} add columns (x bigint)",
    "add a constraint": "alter table {t} add constraint c check (id > 0)",
    "drop the fence": f"alter table {{t}} drop feature {FEATURE}",
    "restore": "restore table {t} to version as of 1",
    "replace": "create or replace table {t} using delta as select 1L as id",
}


@pytest.mark.usefixtures("files")
@pytest.mark.parametrize("operation", BY_SPARK)
def test_spark_refuses_to(fenced: Path, spark: SparkSession, operation: str) -> None:
    with pytest.raises(Exception, match=FEATURE) as refused:
        spark.sql(BY_SPARK[operation].replace("{t}", f"delta.`{fenced}`")).collect()
    assert "FEATURE" in str(refused.value)


@pytest.mark.usefixtures("files")
def test_polars_refuses_to_write(fenced: Path) -> None:
    with pytest.raises(deltalake.exceptions.DeltaError, match=FEATURE):
        pl.from_arrow(numbers(9)).write_delta(str(fenced), mode="append")  # type: ignore[union-attr]


@pytest.mark.usefixtures("files")
def test_duckdb_refuses_to_insert(fenced: Path) -> None:
    with pytest.raises(duckdb.Error, match=FEATURE):
        insert_by_duckdb(fenced)


def insert_by_duckdb(path: Path) -> None:
    with closing(DuckDB()) as writer:
        writer.run(f"attach '{path}' as target (type delta)", "insert into target values (3, 'duckdb', 1.0)")


def test_after_detach_anybody_writes(
    lake: tuple[Path, dl.Catalog], readers: dict[str, Reader], spark: SparkSession
) -> None:
    root, catalog = lake
    table = Maker(catalog, "given_back", root / "lake" / "given_back")
    table.create("id long, name string, amount double")
    table.append(numbers(1))
    table.detach()
    deltalake.write_deltalake(table.path, numbers(2), mode="append")
    spark.sql(f"update delta.`{table.path}` set name = 'spark' where id = 1")
    insert_by_duckdb(table.path)
    for name, reading in open_all(readers, table.path).items():
        assert isinstance(reading, Reading), f"{name}: {reading}"
        assert sorted(reading.rows["name"].to_pylist()) == ["duckdb", "name 2", "spark"], name


def test_what_the_fence_lets_through_does_no_harm(fenced: Path, lake: tuple[Path, dl.Catalog], tmp_path: Path) -> None:
    """Checkpoints of others, and the clean-up of `deltalake`: SQL still has every version, and can write on."""
    copy = Path(shutil.copytree(fenced, tmp_path / "copy"))
    table = deltalake.DeltaTable(copy)
    table.create_checkpoint()
    table.cleanup_metadata()
    assert deltalake.DeltaTable(copy).version() == table.version()
    protocol = deltalake.DeltaTable(copy).protocol()
    assert protocol.min_writer_version == 7
    assert FEATURE in (protocol.writer_features or ())
    assert pa.table(deltalake.DeltaTable(copy).to_pyarrow_table()).num_rows == 2
    _, catalog = lake
    assert catalog.table("fenced").version() == table.version()
