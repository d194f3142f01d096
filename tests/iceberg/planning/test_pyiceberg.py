"""Tables written by PyIceberg, and PyIceberg as a client: it reads our answers, and plans the same deletes."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from datetime import date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.rest.scan_planning import PlanCompleted
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.expressions import BooleanExpression
from pyiceberg.expressions.parser import parse
from pyiceberg.io.pyarrow import ArrowScan
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import FileScanTask, StaticTable, Table
from pyiceberg.transforms import BucketTransform, DayTransform, IdentityTransform, TruncateTransform
from pyiceberg.types import DateType, DoubleType, LongType, NestedField, StringType, TimestampType

from deltalakedb.catalog.catalog import Catalog
from deltalakedb.exceptions import PredicateError
from deltalakedb.iceberg.planning.people import plan_files
from deltalakedb.iceberg.planning.service import PlanService
from deltalakedb.store.names import TableName
from tests.fixtures.sizes import sized
from tests.iceberg.planning.lake import Lake, dump
from tests.iceberg.planning.test_laws import History

NAME = TableName("lake", "t")
SCHEMA = Schema(
    NestedField(1, "id", LongType()),
    NestedField(2, "name", StringType()),
    NestedField(3, "at", TimestampType()),
    NestedField(4, "x", DoubleType()),
    NestedField(5, "day", DateType()),
)
SPEC = PartitionSpec(
    PartitionField(1, 1000, BucketTransform(3), "b"), PartitionField(5, 1001, IdentityTransform(), "d")
)
FILTERS = (
    "id = 17",
    "id in (1, 2, 40, 55)",
    "id > 30 and id <= 33",
    "not (id < 50)",
    "name is null",
    "name like 'n1%'",
    "name >= 'n5' or id = 3",
    "x > 4.5",
    "x is nan",
    "x is not null and x < 0",
    "at < '2024-01-02T05:00:00'",
    "at >= '2024-01-03T00:00:00' and day = '2024-01-03'",
    "day > '2024-01-02'",
    "name != 'n3'",
)


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SqlCatalog]:
    folder = tmp_path_factory.mktemp("pyiceberg")
    catalog = SqlCatalog("test", uri=f"sqlite:///{folder}/catalog.db", warehouse=folder.as_uri())
    catalog.create_namespace("lake")
    yield catalog
    catalog.close()


@pytest.fixture(scope="module")
def table(tables: SqlCatalog) -> Table:
    """A table that has grown a column, a name and a partition field, and has lost some rows."""
    made = tables.create_table("lake.t", SCHEMA, partition_spec=SPEC)
    for start in (0, 20):
        made.append(rows(start, 20, "name"))
    with made.update_schema() as update:
        update.rename_column("name", "label")
        update.add_column("extra", StringType())
    with made.update_spec() as spec:
        spec.add_field("label", TruncateTransform(2), "t")
        spec.add_field("at", DayTransform(), "at_day")
    made.append(rows(40, 20, "label", extra=True))
    made.delete("id = 7 or id = 44")
    return made


def rows(start: int, count: int, name: str, *, extra: bool = False) -> pa.Table:
    numbers = range(start, start + count)
    columns: dict[str, Any] = {
        "id": pa.array(numbers, pa.int64()),
        # Only values that partition the rows may not be null: PyIceberg does not read null partitions from a plan.
        name: [None if not extra and n % 7 == 0 else f"n{n}" for n in numbers],
        "at": pa.array([datetime(2024, 1, 1 + n % 4, n % 24) for n in numbers], pa.timestamp("us")),
        "x": [math.nan if n % 9 == 0 else None if n % 5 == 0 else n / 3 - 5 for n in numbers],
        "day": [date(2024, 1, 1 + n % 4) for n in numbers],
    }
    if extra:
        columns["extra"] = [f"e{n}" for n in numbers]
    return pa.table(columns)


def metadata_of(table: Table) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(table.metadata.model_dump_json())
    return loaded


def read(table: Table, answer: dict[str, Any], row_filter: BooleanExpression) -> set[int]:
    """The ids of the rows that PyIceberg reads by our answer."""
    plan = PlanCompleted.model_validate(json.loads(json.dumps(answer)))
    tasks = [FileScanTask.from_rest_response(task, plan.delete_files) for task in plan.file_scan_tasks]
    scan = ArrowScan(table.metadata, table.io, table.schema(), row_filter)
    return set(scan.to_table(tasks).column("id").to_pylist())


@pytest.mark.parametrize("condition", FILTERS)
def test_pyiceberg_reads_the_same_rows_by_our_plan_as_by_its_own(
    catalog: Catalog, table: Table, condition: str
) -> None:
    condition = condition.replace("name", "label")
    row_filter = parse(condition)
    request = {"filter": json.loads(row_filter.model_dump_json())}
    answer = PlanService(catalog).plan(NAME, 7, metadata_of(table), request)
    own = table.scan(row_filter=condition)
    expected = set(own.to_arrow().column("id").to_pylist())
    assert expected
    assert read(table, answer, row_filter) == expected
    kept = {task["data-file"]["file-path"] for task in answer["file-scan-tasks"]}
    theirs = {task.file.file_path for task in own.plan_files()}
    # PyIceberg counts no NaN, which may be above any number: there we keep more.
    assert kept <= theirs or "x >" in condition


def test_people_see_the_files_of_a_predicate_and_what_was_pruned(catalog: Catalog, table: Table) -> None:
    planned = plan_files(catalog.store, 7, metadata_of(table), "id = 17 and label like 'n1%'", explain=True)
    own = list(table.scan(row_filter="id = 17").plan_files())
    assert planned.files.column("path").to_pylist() == [task.file.file_path for task in own]
    total = len(list(table.scan().plan_files()))
    assert (planned.num_files, planned.num_pruned) == (1, total - 1)
    assert "finds the files by the bounds of" in planned.explain()
    everything = plan_files(catalog.store, 7, metadata_of(table))
    assert (everything.num_files, everything.num_pruned) == (total, 0)


def test_a_filter_of_a_time_travel_may_have_the_old_names_or_the_new_ones(catalog: Catalog, table: Table) -> None:
    service = PlanService(catalog)
    first = table.metadata.snapshots[0].snapshot_id
    for name in ("name", "label"):
        condition = {"type": "eq", "term": name, "value": "n3"}
        answer = service.plan(NAME, 7, metadata_of(table), {"snapshot-id": first, "filter": condition})
        assert 3 in read(table, answer, parse("id = 3"))
        assert 0 < len(answer["file-scan-tasks"]) < len(list(table.scan(snapshot_id=first).plan_files()))
    condition = {"type": "eq", "term": "label", "value": "n3"}
    request = {"snapshot-id": first, "filter": condition, "use-snapshot-schema": True}
    with pytest.raises(PredicateError, match="Cannot find field 'label'"):
        service.plan(NAME, 7, metadata_of(table), request)


@pytest.mark.parametrize("seed", range(sized(3, 60)))
def test_pyiceberg_attaches_the_same_position_deletes(catalog: Catalog, tmp_path: Path, seed: int) -> None:
    history = History(tmp_path / "t", seed, 2)
    changes = [history.append] * 2 + [history.partition, history.rewrite] + [history.delete_positions] * 3
    history.append()
    for _ in range(8):
        history.random.choice(changes)()
    answer = PlanService(catalog).plan(NAME, 7, history.lake.metadata(), {})
    ours = {
        task["data-file"]["file-path"]: {
            answer["delete-files"][place]["file-path"] for place in task.get("delete-file-references", ())
        }
        for task in answer["file-scan-tasks"]
    }
    assert ours == pyiceberg_deletes(history.lake, tmp_path / "v1.metadata.json")


def pyiceberg_deletes(lake: Lake, path: Path) -> dict[str, set[str]]:
    table = StaticTable.from_metadata(dump(lake.metadata(), path))
    return {task.file.file_path: {item.file_path for item in task.delete_files} for task in table.scan().plan_files()}
