"""Every version of every kind of table that `deltalake` writes, read from every place."""

import datetime as dt
import json
from typing import Any
from urllib.parse import unquote

import pytest
from deltalake import DeltaTable

from deltalakedb.log.protocol.txnlog import LogSnapshot, TxnLogReader
from tests.files.conftest import Golden, OpenLog
from tests.files.expected import deltalake_paths, files_of, replayed, without_data_change
from tests.golden.by_deltalake import TABLES

COMPLETE = sorted(set(TABLES) - {"cleaned_up", "stats_as_struct"})


@pytest.mark.parametrize("name", sorted(TABLES))
def test_the_snapshot_at_every_version_holds_the_files_that_deltalake_sees(
    name: str, golden: Golden, open_log: OpenLog
) -> None:
    path = golden(name)
    reader = open_log(path)
    assert isinstance(reader, TxnLogReader)
    latest = DeltaTable(path).version()
    assert reader.latest_version() == latest
    for version in range(reader.earliest_version(), latest + 1):
        snapshot = reader.snapshot(version)
        assert isinstance(snapshot, LogSnapshot)
        assert snapshot.version == version
        # get_add_actions shows paths decoded
        found = sorted(unquote(path) for path, _ in files_of(snapshot))
        assert found == [unquote(path) for path in deltalake_paths(path, version)]


@pytest.mark.parametrize("name", COMPLETE)
def test_the_snapshot_at_every_version_equals_the_replay_of_all_commits(
    name: str, golden: Golden, open_log: OpenLog
) -> None:
    path = golden(name)
    reader = open_log(path)
    for version in range(reader.latest_version() + 1):
        assert files_of(reader.snapshot(version)) == without_data_change(replayed(path, version))


@pytest.mark.parametrize("name", sorted(TABLES))
def test_protocol_and_metadata_are_those_of_deltalake(name: str, golden: Golden, open_log: OpenLog) -> None:
    path = golden(name)
    reader = open_log(path)
    for version in range(reader.earliest_version(), reader.latest_version() + 1):
        snapshot, table = reader.snapshot(version), DeltaTable(path, version=version)
        metadata, protocol = table.metadata(), table.protocol()
        assert snapshot.metadata.id == str(metadata.id)
        assert snapshot.metadata.name == metadata.name
        assert snapshot.metadata.description == metadata.description
        assert list(snapshot.metadata.partition_columns) == metadata.partition_columns
        assert snapshot.metadata.configuration == metadata.configuration
        assert snapshot.protocol.min_reader_version == protocol.min_reader_version
        assert snapshot.protocol.min_writer_version == protocol.min_writer_version
        assert set(snapshot.protocol.reader_features or ()) == set(protocol.reader_features or ())
        assert set(snapshot.protocol.writer_features or ()) == set(protocol.writer_features or ())


def test_statistics_kept_only_as_a_struct_are_given_as_json(golden: Golden, open_log: OpenLog) -> None:
    path = golden("stats_as_struct")
    reader = open_log(path)
    for version in range(reader.latest_version() + 1):
        found = {key: _statistics(add["stats"]) for key, add in files_of(reader.snapshot(version)).items()}
        assert found == {key: _statistics(add["stats"]) for key, add in replayed(path, version).items()}


def _statistics(text: str) -> dict[str, Any]:
    """Times as times: their spellings differ in trailing zeros."""
    statistics: dict[str, Any] = json.loads(text)
    for bounds in (statistics["minValues"], statistics["maxValues"]):
        bounds["at"] = dt.datetime.fromisoformat(bounds["at"])
    return statistics
