"""Tables of Spark and `deltalake`, with everything they know, have for us the rows they have for them."""

from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from deltalakedb.data import read_files
from deltalakedb.files import FileTxnLogReader
from deltalakedb.log.schema.types import VariantType, parse_schema
from deltalakedb.storage.location import open_storage
from tests.fixtures.golden import SOME_BY_SPARK
from tests.fixtures.readers import read_versions
from tests.fixtures.sizes import every
from tests.golden.judges import SparkTable

pytestmark = pytest.mark.spark


def our_rows(path: Path, version: int | None = None, **options: Any) -> pa.Table:
    snapshot = FileTxnLogReader(path).snapshot(version)
    metadata = snapshot.metadata
    table = read_files(
        snapshot.files(),
        storage=open_storage(str(path)),
        schema=parse_schema(metadata.schema_string),
        partition_columns=metadata.partition_columns,
        configuration=metadata.configuration,
        **options,
    ).read_all()
    table.validate(full=True)
    return table


def counted(table: pa.Table) -> Counter[str]:
    return Counter(repr(plain(row)) for row in table.to_pylist())


def plain(value: Any) -> Any:
    """A value whose text is the same whoever made it: zones have many names."""
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat() if value.tzinfo else value.isoformat()
    if isinstance(value, dict):
        return {name: plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value


@pytest.mark.parametrize("name", SOME_BY_SPARK)
def test_rows_of_a_table_by_spark(spark: SparkSession, tables_by_spark: Mapping[str, SparkTable], name: str) -> None:
    table = tables_by_spark[name]
    last = max(table.states)
    ours = our_rows(table.path)
    assert ours.num_rows == table.num_rows
    schema = parse_schema(FileTxnLogReader(table.path).snapshot().metadata.schema_string)
    if not ours.num_rows or any(isinstance(item.type, VariantType) for item in schema.fields):
        return
    theirs = spark.read.format("delta").option("versionAsOf", last).load(str(table.path)).toArrow()
    assert counted(ours) == counted(theirs)


@pytest.mark.parametrize("name", every(4, ["deletion_vectors", "shallow_clone", "type_widening", "column_mapping"]))
def test_older_versions_too(spark: SparkSession, tables_by_spark: Mapping[str, SparkTable], name: str) -> None:
    table = tables_by_spark[name]
    versions = sorted(table.states)[1:]
    theirs = read_versions(spark, str(table.path), versions)
    for version in versions:
        assert counted(our_rows(table.path, version)) == counted(theirs[version]), version


def test_rows_of_tables_by_deltalake(tables_by_deltalake: dict[str, Path]) -> None:
    compared = 0
    for path in tables_by_deltalake.values():
        if not (path / "_delta_log").exists():
            continue
        theirs = pa.table(DeltaTable(path).scan())
        ours = our_rows(path)
        assert counted(ours) == counted(theirs.select(ours.column_names))
        compared += 1
    assert compared
