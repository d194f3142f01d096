"""Real tables of every feature are in SQL what they are in their files, version by version, on every engine."""

import json
import re
from collections.abc import Mapping
from copy import deepcopy
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from deltalake import DeltaTable

from deltalakedb.log.protocol.actions import Action
from deltalakedb.log.protocol.codec import from_sql_text
from deltalakedb.log.protocol.commit import render_action
from deltalakedb.log.protocol.txnlog import LogSnapshot
from deltalakedb.mirror.follow import History, attach
from deltalakedb.mirror.validate import validate
from deltalakedb.store.connection import Store
from deltalakedb.store.reader import SqlTxnLogReader
from tests.fixtures.golden import SOME_BY_SPARK
from tests.golden import by_deltalake
from tests.golden.judges import SparkTable, ask_deltalake
from tests.golden.state import Json, State, commit_lines, commit_versions, file_key, parse_line, states, tidy_file


def attached(store: Store, path: Path, history: History = "full") -> SqlTxnLogReader:
    return SqlTxnLogReader(store, attach(store, str(path), namespace="golden", name="t", history=history).table)


def as_json(action: Action) -> Json:
    return parse_line(render_action(action))


def state_in_sql(snapshot: LogSnapshot) -> State:
    """Our snapshot in the form of the judges: metadata through the renderer, files from the Arrow columns."""
    few: list[Action] = [
        snapshot.protocol,
        snapshot.metadata,
        *snapshot.app_transactions().values(),
        *snapshot.domain_metadata().values(),
    ]
    state = State().apply(as_json(action) for action in few)
    for row in snapshot.files().read_all().to_pylist():
        add = file_of(row)
        state.files[file_key(add)] = tidy_file(add)
    return state


def file_of(row: Json) -> Json:
    """A row of FILES_SCHEMA as the `add` object of the protocol."""
    text = {
        name: from_sql_text(row[name]) for name in ("path", "stats", "clustering_provider") if row[name] is not None
    }
    parsed = {
        name: parse_line(row[name]) for name in ("partition_values", "tags", "deletion_vector", "extra") if row[name]
    }
    return {
        "path": text["path"],
        "partitionValues": parsed["partition_values"],
        "size": row["size"],
        "modificationTime": row["modification_time"],
        "stats": text.get("stats"),
        "tags": parsed.get("tags"),
        "deletionVector": parsed.get("deletion_vector"),
        "baseRowId": row["base_row_id"],
        "defaultRowCommitVersion": row["default_row_commit_version"],
        "clusteringProvider": text.get("clustering_provider"),
    } | parsed.get("extra", {})


def assert_renders_alike(reader: SqlTxnLogReader, path: Path) -> None:
    """Every version's actions equal the lines of its file as parsed JSON, in their order."""
    kept = [version for version in commit_versions(path) if reader.has_commit(version)]
    assert kept[-1] == reader.latest_version()
    for commit in reader.commits(kept[0]):
        assert [as_json(action) for action in commit.actions] == commit_lines(path, commit.version), commit.version
        assert commit.size_bytes is None or commit.size_bytes > 0


def assert_same_state(ours: State, theirs: State, where: str) -> None:
    """Part by part, so that a failure names what differs."""
    assert ours.protocol == theirs.protocol, where
    assert ours.metadata == theirs.metadata, where
    assert ours.app_transactions == theirs.app_transactions, where
    assert ours.domain_metadata == theirs.domain_metadata, where
    assert ours.files.keys() == theirs.files.keys(), where
    for key, file in theirs.files.items():
        assert ours.files[key] == file, f"{where}: {key}"


def assert_deltalake_agrees(state: State, path: Path, version: int) -> None:
    theirs = ask_deltalake(path, version)
    assert {place_of(path, name) for name, _ in state.files} == {without_scheme(uri) for uri in theirs.uris}
    assert {name: file["size"] for (name, _), file in state.files.items()} == theirs.sizes
    assert json.loads(state.metadata["schemaString"]) == theirs.schema
    assert state.metadata["configuration"] == theirs.configuration
    assert state.metadata["id"] == theirs.table_id
    assert state.metadata["partitionColumns"] == theirs.partition_columns
    assert state.protocol["minReaderVersion"] == theirs.reader_version
    assert state.protocol["minWriterVersion"] == theirs.writer_version


def place_of(table: Path, path: str) -> str:
    """Where a file is on disk: paths of the log are URI-encoded, relative to the table or absolute."""
    return str(table / without_scheme(unquote(path)))


def without_scheme(uri: str) -> str:
    """deltalake puts the table's folder before an absolute `file:/...` path; what follows the scheme is the place."""
    return uri[uri.rindex("file:") + 5 :] if "file:" in uri else uri


def assert_operations_agree(reader: SqlTxnLogReader, path: Path) -> None:
    """The operation of every version that deltalake's history lists."""
    theirs = {entry["version"]: entry.get("operation") for entry in DeltaTable(path).history()}
    ours = {entry.version: entry.operation for entry in reader.history()}
    assert {version: theirs[version] for version in ours if version in theirs} == {
        version: operation for version, operation in ours.items() if version in theirs
    }


def num_rows(state: State) -> int:
    """What statistics and deletion vectors add up to."""
    return sum(
        json.loads(file["stats"])["numRecords"] - file.get("deletionVector", {}).get("cardinality", 0)
        for file in state.files.values()
    )


def compare_stats_by_value(state: State) -> State:
    """For checkpoints that keep statistics as structs: the text is made anew, so only what it says can be equal."""
    for file in state.files.values():
        if "stats" in file:
            file["stats"] = plain_values(json.loads(file["stats"]))
    return state


def plain_values(value: Any) -> Any:
    """Statistics without nulls, times in one spelling."""
    if isinstance(value, dict):
        return {name: plain_values(item) for name, item in value.items() if item is not None and item != {}}
    if isinstance(value, str) and re.fullmatch(r"\d{4}-\d\d-\d\d[ T][\d:.]+(Z|[+-]\d\d:\d\d)?", value):
        return datetime.fromisoformat(value)
    return value


@pytest.mark.in_turn
@pytest.mark.parametrize("name", by_deltalake.TABLES)
def test_a_table_by_deltalake_is_in_sql_what_it_is_in_its_files(
    store: Store, tables_by_deltalake: dict[str, Path], name: str
) -> None:
    path = tables_by_deltalake[name]
    reader = attached(store, path)
    assert_renders_alike(reader, path)
    replayed = states(path)
    assert list(reader.versions()) == list(replayed)
    for version, theirs in replayed.items():
        ours = state_in_sql(reader.snapshot(version))
        assert_same_state(ours, theirs, f"{name} at {version}")
        assert_deltalake_agrees(ours, path, version)
    assert_operations_agree(reader, path)


@pytest.mark.spark
@pytest.mark.in_turn
@pytest.mark.parametrize("name", SOME_BY_SPARK)
def test_a_table_by_spark_is_in_sql_what_it_is_in_its_files(
    store: Store, tables_by_spark: Mapping[str, SparkTable], name: str
) -> None:
    table = tables_by_spark[name]
    reader = attached(store, table.path)
    assert_renders_alike(reader, table.path)
    replayed = states(table.path)
    assert list(reader.versions()) == list(replayed)
    assert set(table.states) <= set(replayed)
    for version, theirs in replayed.items():
        snapshot = reader.snapshot(version)
        ours = state_in_sql(snapshot)
        assert_same_state(ours, theirs, f"{name} at {version}, replayed")
        if version in table.states:
            assert_same_state(ours, table.states[version], f"{name} at {version}, by Spark")
        assert snapshot.totals().num_records == num_rows(theirs), version
        assert snapshot.timestamp_ms == table.timestamps_ms[version], version
        assert_deltalake_agrees(ours, table.path, version)
    assert reader.snapshot().totals().num_records == table.num_rows


@pytest.mark.spark
@pytest.mark.in_turn
@pytest.mark.parametrize("name", SOME_BY_SPARK)
def test_a_table_by_spark_taken_from_its_newest_checkpoint_is_the_same_from_there_on(
    store: Store, tables_by_spark: Mapping[str, SparkTable], name: str
) -> None:
    table = tables_by_spark[name]
    reader, expected = attached(store, table.path, "latest"), states(table.path) | table.states
    for version in reader.versions():
        ours = state_in_sql(reader.snapshot(version))
        theirs = deepcopy(expected[version])
        if name == "stats_as_struct":
            ours, theirs = compare_stats_by_value(ours), compare_stats_by_value(theirs)
        assert_same_state(ours, theirs, f"{name} at {version}, from {reader.earliest_version()}")


@pytest.mark.in_turn
@pytest.mark.parametrize("name", by_deltalake.TABLES)
def test_a_table_by_deltalake_taken_from_its_newest_checkpoint_is_the_same_from_there_on(
    store: Store, tables_by_deltalake: dict[str, Path], name: str
) -> None:
    path = tables_by_deltalake[name]
    reader, replayed = attached(store, path, "latest"), states(path)
    for version in reader.versions():
        ours, theirs = state_in_sql(reader.snapshot(version)), deepcopy(replayed[version])
        if name == "stats_as_struct":
            ours, theirs = compare_stats_by_value(ours), compare_stats_by_value(theirs)
        assert_same_state(ours, theirs, f"{name} at {version}, from {reader.earliest_version()}")


@pytest.mark.in_turn
@pytest.mark.parametrize("history", ["full", "latest"])
def test_validate_finds_no_drift_in_any_golden_table_by_deltalake(
    store: Store, tables_by_deltalake: dict[str, Path], history: History
) -> None:
    for name, path in tables_by_deltalake.items():
        table = attach(store, str(path), namespace="golden", name=name, history=history).table
        assert validate(store, table).drift is None, name


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.in_turn
@pytest.mark.parametrize("history", ["full", "latest"])
def test_validate_finds_no_drift_in_any_golden_table_by_spark(
    store: Store, tables_by_spark: Mapping[str, SparkTable], history: History
) -> None:
    for name, golden in tables_by_spark.items():
        table = attach(store, str(golden.path), namespace="golden", name=name, history=history).table
        assert validate(store, table).drift is None, name
