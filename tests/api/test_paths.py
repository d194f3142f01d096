"""Plain paths: the same folder is written and read by both libraries in turn, without a catalog."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest

import deltalakedb as dl
from deltalakedb.exceptions import (
    CommitFailedError,
    ConcurrentTransactionError,
    MetadataChangedError,
    NotWritableError,
    TableExistsError,
    TableNotFoundError,
    UnsupportedFeatureError,
    VersionNotFoundError,
)
from deltalakedb.files.log_folder import Segment
from deltalakedb.files.reader import FileTxnLogReader
from deltalakedb.files.snapshot import FileSnapshot
from deltalakedb.log.protocol.actions import DomainMetadata
from deltalakedb.transaction import CommitProperties, PostCommitHookProperties, Transaction
from tests.api.plain import (
    append,
    begin,
    commit_info,
    commit_lines,
    data_files,
    noting,
    our_ids,
    remove_where,
    rows,
    run,
    their_ids,
)
from tests.fixtures.s3 import S3


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "lake" / "t"


def test_the_two_libraries_take_turns_on_one_folder_and_read_each_other(place: Path) -> None:
    begin(place, rows(0, 1), partition_by=("day",))
    expected = [0, 1]
    for number in range(2, 12):
        if number % 2:
            run(place, append(rows(number, day=f"d{number}")))
        else:
            deltalake.write_deltalake(place, rows(number, day=f"d{number}"), mode="append")
        expected.append(number)
        assert our_ids(place) == their_ids(place) == expected
    assert deltalake.DeltaTable(place).version() == dl.DeltaTable(place).version() == 10
    run(place, remove_where("day = 'd5'"))
    deltalake.DeltaTable(place).delete("day = 'd6'")
    assert our_ids(place) == their_ids(place) == [0, 1, 2, 3, 4, 7, 8, 9, 10, 11]


def test_a_table_on_s3_is_written_by_both_in_turn(s3: S3) -> None:
    uri, options = s3.uri("lake/t"), s3.storage_options
    begin(uri, rows(0), options)
    deltalake.write_deltalake(uri, rows(1), mode="append", storage_options=options)
    run(uri, append(rows(2)), options)
    assert our_ids(uri, options) == their_ids(uri, options) == [0, 1, 2]
    table = dl.DeltaTable(uri, storage_options=options)
    assert (table.version(), [entry["version"] for entry in table.history()]) == (2, [2, 1, 0])
    table.load_as_version(1)
    assert [entry["version"] for entry in table.history()] == [1, 0]


@pytest.mark.parametrize("spelled", [str, Path, lambda path: path.as_uri(), lambda path: f"{path}/"])
def test_a_path_may_be_spelled_in_every_way_that_deltalake_takes(place: Path, spelled: Any) -> None:
    deltalake.write_deltalake(place, rows(1))
    table, theirs = dl.DeltaTable(spelled(place)), deltalake.DeltaTable(spelled(place))
    assert (table.table_uri, table.version()) == (theirs.table_uri, theirs.version())
    assert (table.mode, dl.DeltaTable.is_deltatable(str(place))) == ("files", True)


def test_a_relative_path_is_taken_from_the_working_directory(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deltalake.write_deltalake(place, rows(1))
    monkeypatch.chdir(place.parent)
    assert our_ids("t") == [1]
    assert dl.DeltaTable("t").table_uri == deltalake.DeltaTable("t").table_uri


def test_where_there_is_no_table_both_say_so_and_make_no_folder(place: Path) -> None:
    assert not dl.DeltaTable.is_deltatable(str(place))
    with pytest.raises(TableNotFoundError, match="there is no Delta table at file://"):
        dl.DeltaTable(place)
    with pytest.raises(deltalake.exceptions.TableNotFoundError):
        deltalake.DeltaTable(place)
    assert not place.exists()


def test_a_name_without_a_catalog_says_what_is_missing() -> None:
    with pytest.raises(TableNotFoundError, match="DL_CATALOG"):
        dl.DeltaTable("sales.orders")


def test_versions_and_times_are_travelled_as_deltalake_does(place: Path) -> None:
    for number in range(4):
        deltalake.write_deltalake(place, rows(number), mode="append")
        # Files are copied, and clocks are coarse: a second apart leaves no doubt.
        log = place / "_delta_log" / f"{number:020d}.json"
        stamp = 1_700_000_000 + number
        os.utime(log, (stamp, stamp))
    ours, theirs = dl.DeltaTable(place), deltalake.DeltaTable(place)
    moments = [datetime.fromtimestamp(1_700_000_000 + offset, UTC) for offset in (-5, 0, 0.5, 2, 3, 99)]
    for moment in moments:
        ours.load_as_version(moment)
        theirs.load_as_version(moment)
        assert ours.version() == theirs.version(), moment
    ours.load_as_version(2)
    assert [entry["version"] for entry in ours.history(2)] == [2, 1]
    with pytest.raises(VersionNotFoundError, match="no version 9"):
        ours.load_as_version(9)
    ours.update_incremental()
    assert ours.version() == 3
    assert dl.DeltaTable(place, version=1).to_pyarrow_table().num_rows == 2


def test_files_counts_plans_and_partitions_are_those_of_the_log(place: Path) -> None:
    deltalake.write_deltalake(place, rows(1, 2), partition_by=["day"])
    deltalake.write_deltalake(place, rows(7, 8, day="d2"), mode="append")
    table, theirs = dl.DeltaTable(place), deltalake.DeltaTable(place)
    assert sorted(table.file_uris()) == sorted(theirs.file_uris())
    assert (table.count(), table.count("day = 'd2'"), table.totals().num_files) == (4, 2, 2)
    plan = table.plan("id > 5")
    assert (plan.num_files, plan.num_pruned) == (1, 1)
    assert "statistics" in plan.explain()
    assert table.plan("id > 5 and id < 3").num_files == 0
    by_day = sorted(table.partitions(), key=str)
    assert by_day == sorted(theirs.partitions(), key=str)
    assert table.to_pyarrow_table(filters=[("id", ">", 7)]).column("id").to_pylist() == [8]
    with pytest.raises(dl.exceptions.DeltaError, match="no table of a catalog"):
        table.lineage()


def test_a_commit_says_what_deltalakes_would(place: Path) -> None:
    deltalake.write_deltalake(place, rows(1))
    noted = CommitProperties(custom_metadata={"who": "me"}, app_transactions=[Transaction("app", 7)])
    assert run(place, append(rows(2)), properties=noted)["num_added_files"] == 1
    info = commit_info(place, 1)
    theirs = commit_info(place, 0)
    assert theirs.keys() - {"readVersion"} <= info.keys()
    assert (info["operation"], info["operationParameters"], info["who"]) == ("WRITE", {"mode": "Append"}, "me")
    assert info["operationMetrics"] == {"num_added_files": 1, "num_retries": 0}
    assert dl.DeltaTable(place).transaction_version("app") == 7
    assert deltalake.DeltaTable(place).transaction_version("app") == 7
    assert dl.DeltaTable(place).history(1)[0]["who"] == "me"
    with pytest.raises(ConcurrentTransactionError, match="is at version 7 already"):
        run(place, append(rows(3)), properties=noted)
    assert (our_ids(place), len(data_files(place))) == ([1, 2], 2)


def test_a_table_is_created_once(place: Path) -> None:
    begin(place, rows(1))
    before = data_files(place)
    with pytest.raises(TableExistsError, match="there is a table at"):
        begin(place, rows(2))
    assert (our_ids(place), data_files(place)) == ([1], before)


def test_checkpoints_come_every_interval_and_both_read_them(place: Path) -> None:
    begin(place, rows(0), properties={"delta.checkpointInterval": "3"})
    for number in range(1, 8):
        run(place, append(rows(number)))
    names = {path.name for path in (place / "_delta_log").glob("*.checkpoint.parquet")}
    assert names == {f"{version:020d}.checkpoint.parquet" for version in (2, 5)}
    assert json.loads((place / "_delta_log" / "_last_checkpoint").read_text())["version"] == 5
    for version in range(5):  # only the checkpoint knows what is in there
        (place / "_delta_log" / f"{version:020d}.json").unlink()
    assert our_ids(place) == their_ids(place) == list(range(8))


def test_a_caller_may_leave_the_checkpoint_out(place: Path) -> None:
    begin(place, rows(0), properties={"delta.checkpointInterval": "1"})
    run(place, append(rows(1)), hooks=PostCommitHookProperties(create_checkpoint=False))
    names = {path.name for path in (place / "_delta_log").glob("*.checkpoint.parquet")}
    assert names == {f"{0:020d}.checkpoint.parquet"}


def test_expired_commits_go_with_a_checkpoint_unless_the_caller_or_the_table_keeps_them(place: Path) -> None:
    begin(
        place,
        rows(0),
        properties={"delta.checkpointInterval": "2", "delta.logRetentionDuration": "interval 1 days"},
    )
    run(place, append(rows(1)))
    for path in (place / "_delta_log").iterdir():
        os.utime(path, (1_700_000_000, 1_700_000_000))
    run(place, append(rows(2)))
    run(place, append(rows(3)), hooks=PostCommitHookProperties(cleanup_expired_logs=False))
    assert (place / "_delta_log" / f"{0:020d}.json").exists()
    run(place, append(rows(4)))
    run(place, append(rows(5)))
    assert not (place / "_delta_log" / f"{0:020d}.json").exists()
    assert (place / "_delta_log" / f"{1:020d}.json").exists()  # the commit of the checkpoint that others start from
    assert our_ids(place) == their_ids(place) == list(range(6))


def test_in_commit_timestamps_and_row_ids_are_kept_where_the_table_has_them(place: Path) -> None:
    begin(place, rows(0, 1), properties={"delta.enableInCommitTimestamps": "true", "delta.enableRowTracking": "true"})
    run(place, append(rows(2, 3)))
    stamps = [commit_info(place, version)["inCommitTimestamp"] for version in (0, 1)]
    assert stamps[0] < stamps[1]
    assert next(iter(commit_lines(place, 1)[0]["commitInfo"])) == "inCommitTimestamp"
    first_ids = [
        line["add"]["baseRowId"] for version in (0, 1) for line in commit_lines(place, version) if "add" in line
    ]
    assert first_ids == [0, 2]
    marks = [line["domainMetadata"] for line in commit_lines(place, 1) if "domainMetadata" in line]
    assert json.loads(marks[0]["configuration"]) == {"rowIdHighWaterMark": 3}
    table = dl.DeltaTable(place)
    assert table.committed_at_ms() == stamps[1]
    table.load_as_version(datetime.fromtimestamp(stamps[0] / 1000, UTC))
    assert table.version() == 0


def test_a_fenced_table_is_read_by_its_path_and_written_through_its_catalog_only(tmp_path: Path, place: Path) -> None:
    deltalake.write_deltalake(place, rows(1))
    with dl.connect(tmp_path / "catalog.db") as catalog:
        catalog.import_table(place, "sales.orders")
    assert our_ids(place) == [1]
    before = sorted(path.name for path in place.rglob("*"))
    with pytest.raises(NotWritableError, match=r"through a catalog, as the table sales\.orders.*table=sales\.orders"):
        run(place, append(rows(2)))
    assert sorted(path.name for path in place.rglob("*")) == before


def test_a_table_that_asks_for_more_than_we_know_is_refused_by_name(place: Path) -> None:
    deltalake.write_deltalake(place, rows(1))
    commit = place / "_delta_log" / f"{0:020d}.json"
    protocol = {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": ["teleport"],
        "writerFeatures": ["teleport"],
    }
    lines = [line for line in commit.read_text().splitlines() if '"protocol"' not in line]
    commit.write_text("\n".join([*lines, json.dumps({"protocol": protocol})]) + "\n")
    with pytest.raises(UnsupportedFeatureError, match="teleport"):
        dl.DeltaTable(place)


def test_a_write_that_the_features_do_not_allow_is_a_failed_commit(place: Path) -> None:
    deltalake.write_deltalake(place, rows(1))
    commit = place / "_delta_log" / f"{0:020d}.json"
    protocol = {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["teleport"]}
    lines = [line for line in commit.read_text().splitlines() if '"protocol"' not in line]
    commit.write_text("\n".join([*lines, json.dumps({"protocol": protocol})]) + "\n")
    with pytest.raises(CommitFailedError, match="teleport") as raised:
        dl.write_deltalake(place, rows(1), mode="append")
    assert isinstance(raised.value, UnsupportedFeatureError)
    assert raised.value.table == str(place.as_uri())


def test_a_table_that_begins_before_it_has_columns_can_be_opened(place: Path) -> None:
    deltalake.write_deltalake(place, rows(1))
    log = place / "_delta_log"
    lines = (log / f"{0:020d}.json").read_text().splitlines()
    actions = [json.loads(line) for line in lines]
    (log / f"{1:020d}.json").write_text("\n".join(line for line in lines if '"protocol"' not in line) + "\n")
    for action in actions:
        action.get("metaData", {}).pop("schemaString", None)
    first = [json.dumps(action) for action in actions if "add" not in action]
    (log / f"{0:020d}.json").write_text("\n".join(first) + "\n")
    table = dl.DeltaTable(place)
    assert table.to_pyarrow_table().num_rows == 1
    assert [entry["version"] for entry in table.history()] == [1, 0]
    assert table.version() == 1


def test_a_commit_against_the_rules_of_the_protocol_is_not_made(place: Path) -> None:
    begin(place, rows(1))
    with pytest.raises(dl.exceptions.InvalidCommitError, match="domain"):
        run(place, noting(DomainMetadata("mine", "{}", removed=False)))
    assert dl.DeltaTable(place).version() == 0


def test_a_verb_that_fails_leaves_no_files(place: Path) -> None:
    begin(place, rows(1))
    before = data_files(place)

    def fails(target: Any) -> Any:
        append(rows(2))(target)
        assert len(data_files(place)) == 2
        raise RuntimeError("no")

    with pytest.raises(RuntimeError, match="no"):
        run(place, fails)
    assert (data_files(place), dl.DeltaTable(place).version()) == (before, 0)


def test_a_broken_checkpoint_is_gone_round(place: Path) -> None:
    for number in range(3):
        deltalake.write_deltalake(place, rows(number), mode="append")
    deltalake.DeltaTable(place).create_checkpoint()
    (place / "_delta_log" / f"{2:020d}.checkpoint.parquet").write_bytes(b"PAR1 not really PAR1")
    assert our_ids(place) == [0, 1, 2]


def test_empty_tables_have_a_schema_and_no_rows(place: Path) -> None:
    begin(place, rows())
    table = dl.DeltaTable(place)
    assert (table.count(), table.to_pyarrow_table().num_rows, table.totals().num_files) == (0, 0, 0)
    assert [field.name for field in table.schema().fields] == ["id", "day"]
    assert deltalake.DeltaTable(place).to_pyarrow_table().schema.names == ["id", "day"]
    assert isinstance(table.to_pyarrow_table(), pa.Table)


def test_an_object_that_is_kept_reads_only_what_came_after_it(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begin(place, rows(0), properties={"delta.checkpointInterval": "4"})
    table = dl.DeltaTable(place)
    loads: list[int] = []
    load = FileTxnLogReader._load

    def counted(reader: FileTxnLogReader, segment: Segment) -> FileSnapshot:
        loads.append(1)
        return load(reader, segment)

    monkeypatch.setattr(FileTxnLogReader, "_load", counted)
    for number in range(1, 3):
        deltalake.write_deltalake(place, rows(number), mode="append")
        table.update_incremental()
        assert (table.version(), table.count(), loads) == (number, number + 1, [])
    for number in range(3, 6):
        deltalake.write_deltalake(place, rows(number), mode="append")
    table.update_incremental()  # there is a checkpoint by now
    assert (table.version(), table.count(), loads) == (5, 6, [1])
    assert sorted(table.to_pyarrow_table().column("id").to_pylist()) == list(range(6))
    deltalake.DeltaTable(place).delete("id < 3")
    table.update_incremental()
    assert sorted(table.to_pyarrow_table().column("id").to_pylist()) == [3, 4, 5]


def test_writers_that_begin_one_table_at_the_same_time_all_get_their_rows_in(place: Path) -> None:
    ready = threading.Barrier(4)

    def write(number: int) -> None:
        ready.wait()
        dl.write_deltalake(place, rows(number), mode="append")

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, range(4)))
    assert our_ids(place) == their_ids(place) == [0, 1, 2, 3]
    assert dl.DeltaTable(place).version() == 3


def test_rows_for_a_table_that_is_created_while_its_data_is_opened_are_appended(place: Path) -> None:
    class Data:
        def __arrow_c_stream__(self, requested_schema: object = None) -> object:
            deltalake.write_deltalake(place, rows(0))
            return rows(1).__arrow_c_stream__(requested_schema)

    dl.write_deltalake(place, Data(), mode="append")
    assert our_ids(place) == their_ids(place) == [0, 1]
    assert dl.DeltaTable(place).version() == 1


def test_rows_for_a_table_that_another_begins_otherwise_are_refused_and_gone(place: Path) -> None:
    def data() -> Iterator[pa.RecordBatch]:
        deltalake.write_deltalake(place, pa.table({"id": ["text"]}))
        yield from rows(1).to_batches()

    with pytest.raises(MetadataChangedError, match="created the table first"):
        dl.write_deltalake(place, pa.RecordBatchReader.from_batches(rows().schema, data()), mode="append")
    assert (deltalake.DeltaTable(place).version(), len(data_files(place))) == (0, 1)
