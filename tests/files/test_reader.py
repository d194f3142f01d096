"""The reader on logs that are whole, cleaned up, hinted wrongly, broken or changing under its hands."""

import json
import os
import shutil
import threading
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from deltalakedb.exceptions import LogGapError, MalformedLogError, TableNotFoundError, VersionNotFoundError
from deltalakedb.files import FileTxnLogReader
from deltalakedb.files.log_folder import LogListing
from deltalakedb.log.protocol.actions import AddFile, CommitInfo
from tests.files.checkpoints import METADATA, PROTOCOL, V2_PROTOCOL, classic, multipart, v2
from tests.files.conftest import OpenLog
from tests.files.expected import files_of, replayed, without_data_change
from tests.fixtures.handmade import HandmadeTable, add, remove


def paths(reader: FileTxnLogReader, version: int | None = None) -> list[str]:
    return sorted(path for path, _ in files_of(reader.snapshot(version)))


def ten_versions(table: HandmadeTable) -> HandmadeTable:
    """Version 0 creates the table, version n adds the file `n`."""
    table.create()
    for number in range(1, 10):
        table.commit(add(str(number)))
    return table


def state_at(version: int) -> list[dict[str, object]]:
    return [PROTOCOL, METADATA, *(add(str(number)) for number in range(1, version + 1))]


def hint(table: HandmadeTable, content: str) -> None:
    (table.log / "_last_checkpoint").write_text(content)


def test_a_folder_without_a_log_is_not_a_table(tmp_path: Path, open_log: OpenLog) -> None:
    (tmp_path / "empty" / "_delta_log").mkdir(parents=True)
    for reader in (open_log(tmp_path / "empty"), open_log(tmp_path / "nowhere")):
        for ask in (
            reader.latest_version,
            reader.earliest_version,
            reader.snapshot,
            lambda r=reader: list(r.commits(0)),
        ):
            with pytest.raises(TableNotFoundError, match="no Delta table at"):
                ask()


def test_commits_come_in_order_with_their_sizes_and_file_times(handmade: HandmadeTable) -> None:
    ten_versions(handmade)
    for version in range(10):
        os.utime(handmade.commit_path(version), ns=(0, (1_700_000_000_000 + version) * 1_000_000 + 999_999))
    reader = FileTxnLogReader(handmade.path)
    commits = list(reader.commits(2, 5))
    assert [commit.version for commit in commits] == [2, 3, 4, 5]
    assert [commit.timestamp_ms for commit in commits] == [1_700_000_000_002 + n for n in range(4)]
    assert [commit.size_bytes for commit in commits] == [handmade.commit_path(n).stat().st_size for n in range(2, 6)]
    assert reader.snapshot(4).timestamp_ms == 1_700_000_000_004


def test_commits_end_where_the_log_ends(handmade: HandmadeTable, open_log: OpenLog) -> None:
    reader = open_log(ten_versions(handmade).path)
    assert [commit.version for commit in reader.commits(8)] == [8, 9]
    assert [commit.version for commit in reader.commits(8, 99)] == [8, 9]
    assert list(reader.commits(10)) == []
    assert list(reader.commits(500)) == []
    assert reader.has_commit(9)
    assert not reader.has_commit(10)


def test_one_commit_can_be_streamed(handmade: HandmadeTable, open_log: OpenLog) -> None:
    handmade.create().commit({"commitInfo": {"operation": "WRITE"}}, add("a"))
    actions = list(open_log(handmade.path).actions(1))
    assert isinstance(actions[0], CommitInfo)
    assert isinstance(actions[1], AddFile)


def test_a_missing_commit_is_named_before_anything_is_read(handmade: HandmadeTable, open_log: OpenLog) -> None:
    ten_versions(handmade).commit_path(4).unlink()
    reader = open_log(handmade.path)
    with pytest.raises(LogGapError) as caught:
        reader.commits(2)
    assert caught.value.missing_version == 4
    with pytest.raises(LogGapError, match="version 4 is missing"):
        reader.snapshot()
    assert paths(reader, 3) == ["1", "2", "3"]


def test_a_gap_below_a_checkpoint_does_not_hide_what_follows(handmade: HandmadeTable, open_log: OpenLog) -> None:
    ten_versions(handmade).commit_path(4).unlink()
    classic(handmade.log, 6, state_at(6))
    reader = open_log(handmade.path)
    assert reader.earliest_version() == 6
    assert len(paths(reader)) == 9
    with pytest.raises(LogGapError) as caught:
        reader.snapshot(5)
    assert caught.value.missing_version == 4


def test_a_cleaned_up_log_starts_at_its_checkpoint(handmade: HandmadeTable, open_log: OpenLog) -> None:
    ten_versions(handmade)
    classic(handmade.log, 6, state_at(6))
    for version in range(7):
        handmade.commit_path(version).unlink()
    reader = open_log(handmade.path)
    assert (reader.earliest_version(), reader.latest_version()) == (6, 9)
    assert [len(paths(reader, version)) for version in range(6, 10)] == [6, 7, 8, 9]
    assert reader.snapshot(6).timestamp_ms > 0
    with pytest.raises(VersionNotFoundError, match="starts at version 6"):
        reader.snapshot(5)
    with pytest.raises(LogGapError) as caught:
        reader.commits(6)
    assert caught.value.missing_version == 6


@pytest.mark.parametrize(
    "content",
    [
        '{"version":6,"size":8}',
        '{"version":3}',  # stale: there is a newer one
        '{"version":8}',  # names a checkpoint that is not there
        '{"version":4000}',
        '{"version":"6"}',
        '{"version":-1}',
        '{"version":true}',
        "[]",
        '{"vers',
        "",
        "\ud800 \0 not JSON",
    ],
)
def test_last_checkpoint_is_only_a_hint(content: str, handmade: HandmadeTable, open_log: OpenLog) -> None:
    ten_versions(handmade)
    classic(handmade.log, 3, state_at(3))
    classic(handmade.log, 6, state_at(6))
    (handmade.log / "_last_checkpoint").write_bytes(content.encode("utf-8", "surrogatepass"))
    reader = open_log(handmade.path)
    assert reader.latest_version() == 9
    assert [len(paths(reader, version)) for version in (0, 2, 3, 5, 6, 9)] == [0, 2, 3, 5, 6, 9]
    assert len(paths(reader)) == 9


def test_with_a_good_hint_only_the_end_of_the_log_is_read(handmade: HandmadeTable) -> None:
    """Everything below the checkpoint could be broken: it is not looked at."""
    ten_versions(handmade)
    classic(handmade.log, 6, state_at(6))
    hint(handmade, '{"version":6}')
    for version in range(7):
        handmade.commit_path(version).write_bytes(b"broken")
    assert len(paths(FileTxnLogReader(handmade.path))) == 9


CORRUPTIONS = {
    "empty": b"",
    "cut short": None,
    "not Parquet": b"PAR1 is how it starts, and how it ends: PAR1",
    "no footer": b"x" * 5000,
}


@pytest.mark.parametrize("how", CORRUPTIONS)
def test_a_corrupt_checkpoint_gives_way_to_an_older_one(how: str, handmade: HandmadeTable, open_log: OpenLog) -> None:
    ten_versions(handmade)
    classic(handmade.log, 3, state_at(3))
    _corrupt(classic(handmade.log, 6, state_at(6)), how)
    hint(handmade, '{"version":6}')
    for version in range(4):
        handmade.commit_path(version).unlink()
    reader = open_log(handmade.path)
    assert len(paths(reader)) == 9
    assert len(paths(reader, 6)) == 6


@pytest.mark.parametrize("how", CORRUPTIONS)
def test_a_corrupt_checkpoint_gives_way_to_a_whole_log(how: str, handmade: HandmadeTable, open_log: OpenLog) -> None:
    ten_versions(handmade)
    _corrupt(classic(handmade.log, 6, state_at(6)), how)
    assert len(paths(open_log(handmade.path))) == 9


@pytest.mark.parametrize("how", CORRUPTIONS)
def test_a_corrupt_checkpoint_that_nothing_can_replace_is_named(
    how: str, handmade: HandmadeTable, open_log: OpenLog
) -> None:
    ten_versions(handmade)
    _corrupt(classic(handmade.log, 6, state_at(6)), how)
    handmade.commit_path(2).unlink()
    with pytest.raises(MalformedLogError, match=r"00000000000000000006\.checkpoint\.parquet"):
        open_log(handmade.path).snapshot()


def _corrupt(path: Path, how: str) -> None:
    content = CORRUPTIONS[how]
    path.write_bytes(path.read_bytes()[:-500] if content is None else content)


def test_damage_in_the_middle_of_a_checkpoint_is_an_error_and_then_avoided(
    handmade: HandmadeTable, open_log: OpenLog
) -> None:
    ten_versions(handmade)
    path = classic(handmade.log, 6, state_at(6), compression="zstd")
    content = bytearray(path.read_bytes())
    # The last column chunks are `add` and `remove`; the footer stays whole.
    footer = int.from_bytes(content[-8:-4], "little") + 8
    start = len(content) - footer
    content[start // 2 : start] = b"\xff" * (start - start // 2)
    path.write_bytes(content)
    reader = open_log(handmade.path)
    snapshot = reader.snapshot()
    with pytest.raises(MalformedLogError, match=path.name):
        snapshot.files().read_all()
    assert len(paths(reader)) == 9


def test_an_incomplete_multi_part_checkpoint_is_not_used(handmade: HandmadeTable, open_log: OpenLog) -> None:
    ten_versions(handmade)
    multipart(handmade.log, 6, state_at(6), 3)[1].unlink()
    hint(handmade, '{"version":6,"parts":3}')
    assert len(paths(open_log(handmade.path))) == 9


def test_a_checkpoint_whose_sidecar_is_missing_is_not_used(handmade: HandmadeTable, open_log: OpenLog) -> None:
    ten_versions(handmade)
    v2(handmade.log, 6, [V2_PROTOCOL, *state_at(6)[1:]], sidecars=2)
    [sidecar, _] = sorted((handmade.log / "_sidecars").iterdir())
    sidecar.unlink()
    assert len(paths(open_log(handmade.path))) == 9
    handmade.commit_path(0).unlink()
    with pytest.raises(MalformedLogError, match=sidecar.name):
        open_log(handmade.path).snapshot()


def test_a_checkpoint_without_metadata_is_not_used(handmade: HandmadeTable, open_log: OpenLog) -> None:
    ten_versions(handmade)
    classic(handmade.log, 6, [PROTOCOL, add("nonsense")])
    assert len(paths(open_log(handmade.path))) == 9


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (add("../../outside.parquet"), "leaves the table's folder"),
        (add("x/%2e%2E/%2e./y.parquet"), "leaves the table's folder"),
        ({"add": {"path": "a", "partitionValues": {}, "modificationTime": 1, "dataChange": True}}, "size"),
    ],
)
def test_a_checkpoint_with_a_bad_file_is_refused(
    bad: dict[str, object], words: str, handmade: HandmadeTable, open_log: OpenLog
) -> None:
    path = classic(handmade.log, 0, [PROTOCOL, METADATA, add("ok"), bad])
    snapshot = open_log(handmade.path).snapshot()
    with pytest.raises(MalformedLogError, match=words) as caught:
        snapshot.files().read_all()
    assert path.name in str(caught.value)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b'{"add":{"path":"a","partitionValues":{},"si', "line 1"),
        (json.dumps(add("a")).encode() + b'\n{"add":{"path":"\xff\xfe"}}', "line 2: not UTF-8"),
        (b"", "is empty"),
        (b"\n \n", "is empty"),
        (json.dumps(METADATA).encode() + b"\n" + json.dumps(METADATA).encode(), "metaData"),
        (json.dumps(add("../x")).encode(), "leaves the table's folder"),
        (b"\0" * 100, "line 1"),
    ],
)
def test_a_broken_commit_is_named(content: bytes, words: str, handmade: HandmadeTable, open_log: OpenLog) -> None:
    handmade.create().commit_bytes(content)
    reader = open_log(handmade.path)
    for ask in (lambda: list(reader.commits(1)), reader.snapshot):
        with pytest.raises(MalformedLogError, match=words):
            ask()
    assert paths(reader, 0) == []


def test_log_compaction_files_are_used_and_replaceable(handmade: HandmadeTable, open_log: OpenLog) -> None:
    ten_versions(handmade).commit(remove("3"))
    summary = [add(str(number)) for number in (2, 4, 5, 6, 7)]
    compaction = handmade.log / f"{2:020d}.{7:020d}.compacted.json"
    compaction.write_text("\n".join(json.dumps(action) for action in [*summary, remove("3")]))
    for version in range(3, 6):
        handmade.commit_path(version).rename(handmade.log / f"aside-{version}")
    assert paths(open_log(handmade.path)) == ["1", "2", "4", "5", "6", "7", "8", "9"]
    for version in range(3, 6):
        (handmade.log / f"aside-{version}").rename(handmade.commit_path(version))
    compaction.write_text('{"add":')
    assert paths(open_log(handmade.path)) == ["1", "2", "4", "5", "6", "7", "8", "9"]


def test_a_table_keeps_its_history_through_checkpoint_compaction_and_cleanup(tmp_path: Path, open_log: OpenLog) -> None:
    path = tmp_path / "t"
    for number in range(12):
        write_deltalake(path, pa.table({"x": [number], "p": [number % 2]}), mode="append", partition_by=["p"])
        if number == 5:
            DeltaTable(path).create_checkpoint()
    DeltaTable(path).delete("x = 3")
    DeltaTable(path).compact_logs(6, 9)
    reader = open_log(path)
    assert LogListing.of(os.listdir(path / "_delta_log")).compacted == {6: (9,)}
    for version in range(13):
        assert files_of(reader.snapshot(version)) == without_data_change(replayed(path, version))


def test_in_commit_timestamps_are_used_from_their_enablement_on(handmade: HandmadeTable, open_log: OpenLog) -> None:
    handmade.create().commit({"commitInfo": {"inCommitTimestamp": 5}}, add("a"))
    configuration = {"delta.enableInCommitTimestamps": "true", "delta.inCommitTimestampEnablementVersion": "2"}
    enabled = {"metaData": METADATA["metaData"] | {"configuration": configuration}}
    handmade.commit({"commitInfo": {"inCommitTimestamp": 2_000}}, enabled)
    handmade.commit({"commitInfo": {"inCommitTimestamp": 3_000}}, add("b"))
    classic(handmade.log, 3, [PROTOCOL, enabled, add("a"), add("b")])
    handmade.commit({"commitInfo": {"inCommitTimestamp": 4_000}}, add("c"))
    reader = open_log(handmade.path)
    times = [commit.timestamp_ms for commit in reader.commits(0)]
    assert times[2:] == [2_000, 3_000, 4_000]
    assert min(times[:2]) > 1_000_000  # the file's time: the table did not keep them yet
    assert [reader.snapshot(version).timestamp_ms for version in (2, 3, 4)] == [2_000, 3_000, 4_000]
    assert reader.snapshot(1).timestamp_ms == times[1]
    # Read from the middle, the configuration before it decides.
    assert [commit.timestamp_ms for commit in reader.commits(4)] == [4_000]
    assert [commit.timestamp_ms for commit in reader.commits(1, 1)] == [times[1]]


def test_a_reader_sees_what_was_committed_since_it_was_opened(handmade: HandmadeTable) -> None:
    handmade.create()
    reader = FileTxnLogReader(handmade.path)
    assert reader.latest_version() == 0
    handmade.commit(add("a"))
    assert reader.latest_version() == 1
    assert paths(reader) == ["a"]


def test_a_folder_made_anew_with_fewer_versions_is_seen(handmade: HandmadeTable) -> None:
    reader = FileTxnLogReader(ten_versions(handmade).path)
    assert reader.latest_version() == 9
    shutil.rmtree(handmade.path)
    HandmadeTable(handmade.path).create()
    assert reader.latest_version() == 0


def test_a_commit_deleted_while_it_is_being_read_is_a_gap(handmade: HandmadeTable) -> None:
    reader = FileTxnLogReader(ten_versions(handmade).path)
    commits = reader.commits(0)
    next(commits)
    handmade.commit_path(1).unlink()
    with pytest.raises(LogGapError, match="deleted while") as caught:
        list(commits)
    assert caught.value.missing_version == 1


def test_snapshots_are_right_while_a_writer_commits_and_checkpoints(tmp_path: Path) -> None:
    path = tmp_path / "t"
    write_deltalake(path, pa.table({"x": [0]}))

    def write() -> None:
        for number in range(1, 25):
            write_deltalake(path, pa.table({"x": [number]}), mode="append")
            if number % 6 == 0:
                DeltaTable(path).create_checkpoint()

    writer = threading.Thread(target=write)
    writer.start()
    reader = FileTxnLogReader(path)
    while writer.is_alive():
        snapshot = reader.snapshot()
        assert snapshot.files().read_all().num_rows == snapshot.version + 1
    writer.join()
    assert reader.snapshot().version == 24
