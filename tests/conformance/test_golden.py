"""The golden tables are what their names promise; otherwise the tests on them would say nothing."""

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from tests.fixtures.golden import SOME_BY_SPARK
from tests.golden import by_deltalake
from tests.golden.judges import SparkTable, versions_asked
from tests.golden.state import Json, commit_lines, commit_versions, states

Evidence = Callable[[Path], bool]


def actions(path: Path, kind: str) -> list[Json]:
    lines = [line for version in commit_versions(path) for line in commit_lines(path, version)]
    return [line[kind] for line in lines if kind in line]


def names(path: Path, pattern: str) -> list[Path]:
    return sorted((path / "_delta_log").glob(pattern))


def feature(name: str) -> Evidence:
    """A table feature that some version's protocol asks for."""
    return lambda path: any(name in protocol.get("writerFeatures", []) for protocol in actions(path, "protocol"))


def configured(name: str) -> Evidence:
    return lambda path: any(name in metadata["configuration"] for metadata in actions(path, "metaData"))


def vectors(path: Path) -> set[str]:
    return {add["deletionVector"]["storageType"] for add in actions(path, "add") if add.get("deletionVector")}


BY_SPARK: dict[str, list[Evidence]] = {
    "partitioned": [lambda p: any(None in add["partitionValues"].values() for add in actions(p, "add"))],
    "deletion_vectors": [feature("deletionVectors"), lambda p: "u" in vectors(p)],
    "column_mapping": [
        lambda p: len(actions(p, "metaData")) >= 5,
        lambda p: "physicalName" in str(actions(p, "metaData")),
    ],
    "column_mapping_by_id": [lambda p: actions(p, "metaData")[0]["configuration"]["delta.columnMapping.mode"] == "id"],
    "mapping_turned_on": [lambda p: len(actions(p, "protocol")) >= 2],
    "change_feed": [lambda p: bool(actions(p, "cdc"))],
    "v2_checkpoints_json": [
        lambda p: bool(names(p, "*.checkpoint.*.json")),
        lambda p: len(names(p, "_sidecars/*")) > 2,
    ],
    "v2_checkpoints_parquet": [
        lambda p: bool(names(p, "*.checkpoint.*-*.parquet")),
        lambda p: len(names(p, "_sidecars/*")) > 2,
    ],
    "multi_part_checkpoints": [lambda p: len(names(p, "*.checkpoint.0*.0*.parquet")) > 2],
    "stats_as_struct": [lambda p: bool(names(p, "*.checkpoint.parquet"))],
    "in_commit_timestamps": [lambda p: all("inCommitTimestamp" in info for info in actions(p, "commitInfo"))],
    "in_commit_timestamps_later": [configured("delta.inCommitTimestampEnablementVersion")],
    "row_tracking": [feature("rowTracking"), lambda p: any("baseRowId" in add for add in actions(p, "add"))],
    "type_widening": [feature("typeWidening"), lambda p: "delta.typeChanges" in str(actions(p, "metaData"))],
    "app_transactions": [lambda p: {txn["appId"] for txn in actions(p, "txn")} == {"app one", "app/two"}],
    "clustered": [feature("clustering"), lambda p: any(add.get("clusteringProvider") for add in actions(p, "add"))],
    "shallow_clone": [
        lambda p: any(add["path"].startswith("file:/") for add in actions(p, "add")),
        lambda p: {"p", "u"} <= vectors(p),
    ],
    "generated_columns": [feature("identityColumns"), feature("generatedColumns"), feature("allowColumnDefaults")],
    "variant": [feature("variantType")],
    "maintained": [lambda p: {"VACUUM START", "VACUUM END", "RESTORE"} <= operations(p)],
    "feature_dropped": [feature("checkpointProtection")],
    "streamed": [lambda p: len(actions(p, "txn")) == 2],
}

BY_DELTALAKE: dict[str, list[Evidence]] = {
    "appended": [lambda p: commit_versions(p) == [0, 1, 2, 3, 4]],
    "partitioned": [lambda p: any("%2520" in add["path"] for add in actions(p, "add"))],
    "overwritten": [lambda p: len(actions(p, "remove")) >= 3],
    "rewritten": [lambda p: {"MERGE", "OPTIMIZE", "RESTORE", "VACUUM END"} <= operations(p)],
    "checkpointed": [lambda p: len(names(p, "*.checkpoint.parquet")) == 2],
    "cleaned_up": [lambda p: commit_versions(p)[0] == 3],
    "change_feed": [lambda p: bool(actions(p, "cdc"))],
    "constrained": [configured("delta.constraints.id_positive")],
    "app_transactions": [lambda p: len(actions(p, "txn")) == 3],
    "every_type": [lambda p: "timestamp_ntz" in str(actions(p, "metaData"))],
    "nested": [lambda p: '\\"deep\\":7' in str(actions(p, "add")) or '"deep":7' in str(actions(p, "add"))],
    "evolved": [lambda p: len(actions(p, "metaData")) == 4],
    "compacted_log": [lambda p: bool(names(p, "*.compacted.json"))],
    "stats_as_struct": [lambda p: bool(names(p, "*.checkpoint.parquet"))],
    "column_mapped": [lambda p: "physicalName" in str(actions(p, "metaData"))],
    "empty": [lambda p: actions(p, "add") == []],
    "few_stats": [configured("delta.dataSkippingStatsColumns")],
}


def operations(path: Path) -> set[str]:
    return {info.get("operation", "") for info in actions(path, "commitInfo")}


@pytest.mark.spark
@pytest.mark.parametrize("name", SOME_BY_SPARK)
def test_a_table_by_spark_shows_what_it_is_for(tables_by_spark: Mapping[str, SparkTable], name: str) -> None:
    path = tables_by_spark[name].path
    assert all(evidence(path) for evidence in BY_SPARK[name])
    assert list(tables_by_spark[name].states) == versions_asked(path)
    assert set(states(path)) >= set(versions_asked(path))


@pytest.mark.parametrize("name", by_deltalake.TABLES)
def test_a_table_by_deltalake_shows_what_it_is_for(tables_by_deltalake: dict[str, Path], name: str) -> None:
    assert all(evidence(tables_by_deltalake[name]) for evidence in BY_DELTALAKE[name])
