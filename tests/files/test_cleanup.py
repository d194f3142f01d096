"""Log clean-up keeps every version since the cut-off readable, and nothing that is not needed for it."""

import os
import random
from pathlib import Path

import pytest
from deltalake import DeltaTable

from deltalakedb.exceptions import VersionNotFoundError
from deltalakedb.files import FileTxnLogReader, FileTxnLogWriter
from deltalakedb.files.cleanup import DAY_MS, find_expired, protected_before
from deltalakedb.files.log_folder import LogFile
from deltalakedb.log.protocol.actions import Format, Metadata, Protocol
from tests.files.checkpoints import METADATA, V2_PROTOCOL, v2
from tests.files.expected import files_of
from tests.fixtures.handmade import HandmadeTable, add
from tests.fixtures.s3 import S3

DAY = 1_000 * DAY_MS  # midnight of some day


def commit(version: int) -> str:
    return f"{version:020d}.json"


def checkpoint(version: int) -> str:
    return f"{version:020d}.checkpoint.parquet"


def log(commits: dict[int, int], *others: str) -> list[LogFile]:
    """Commits with their times in days since DAY, and other files."""
    files = [LogFile(commit(version), DAY + days * DAY_MS, 1) for version, days in commits.items()]
    return [*files, *(LogFile(name, DAY, 1) for name in others)]


def test_the_newest_checkpoint_not_after_the_cut_off_stays_with_its_commit() -> None:
    files = log({v: v for v in range(8)}, checkpoint(2), checkpoint(4), checkpoint(6), f"{3:020d}.crc", f"{4:020d}.crc")
    expired = find_expired(files, cutoff_ms=DAY + 5 * DAY_MS)
    assert expired.names == (*map(commit, range(4)), f"{3:020d}.crc", checkpoint(2))
    assert expired.first_version == 4


@pytest.mark.parametrize(
    ("cutoff_ms", "first"),
    [
        (DAY + 4 * DAY_MS - 1, 2),  # a moment before midnight belongs to the midnight before
        (DAY + 4 * DAY_MS, 4),  # a commit exactly at the cut-off is one
        (DAY + 5 * DAY_MS - 1, 4),
        (DAY + 6 * DAY_MS + 12 * 3_600_000, 6),
        (DAY + DAY_MS, 0),  # no checkpoint so early
        (DAY - 1, 0),
    ],
)
def test_the_cut_off_is_taken_at_midnight(cutoff_ms: int, first: int) -> None:
    files = log({v: v for v in range(8)}, checkpoint(2), checkpoint(4), checkpoint(6))
    expired = find_expired(files, cutoff_ms=cutoff_ms)
    assert expired.first_version == first
    assert set(expired.names) == {commit(v) for v in range(first)} | {checkpoint(v) for v in (2, 4, 6) if v < first}


def test_without_a_checkpoint_nothing_goes() -> None:
    assert find_expired(log({v: v for v in range(8)}), cutoff_ms=DAY + 90 * DAY_MS).names == ()
    assert find_expired([], cutoff_ms=DAY).names == ()


def test_times_that_step_back_do_not_make_a_commit_older_than_the_one_before() -> None:
    files = log({0: 0, 1: 1, 2: 9, 3: 2, 4: 2}, checkpoint(1), checkpoint(4))
    assert find_expired(files, cutoff_ms=DAY + 5 * DAY_MS).first_version == 1


def test_everything_from_a_version_on_can_be_held_back() -> None:
    files = log({v: v for v in range(8)}, checkpoint(2), checkpoint(4), checkpoint(6))
    assert find_expired(files, cutoff_ms=DAY + 7 * DAY_MS, keep_from_version=5).first_version == 4
    assert find_expired(files, cutoff_ms=DAY + 7 * DAY_MS, keep_from_version=1).names == ()


def test_other_kinds_of_files_go_with_the_versions_they_are_about() -> None:
    part = f"{2:020d}.checkpoint.{1:010d}.{2:010d}.parquet"  # its second part never came
    v2 = f"{3:020d}.checkpoint.11111111-2222-3333-4444-555555555555.json"
    begins_before, begins_after = (f"{v:020d}.{v + 2:020d}.compacted.json" for v in (4, 5))
    kept = ["_last_checkpoint", "_commits", "readme.txt", f"{4:020d}.crc", begins_after, checkpoint(5)]
    files = log({v: v for v in range(8)}, part, v2, begins_before, checkpoint(4), *kept)
    expired = find_expired(files, cutoff_ms=DAY + 4 * DAY_MS)
    assert expired.names == (*map(commit, range(4)), begins_before, part, v2)


def test_commits_go_before_the_checkpoints_that_stand_for_them() -> None:
    files = log({v: v for v in range(8)}, checkpoint(0), checkpoint(3), checkpoint(6))
    random.Random(1).shuffle(files)
    names = find_expired(files, cutoff_ms=DAY + 7 * DAY_MS).names
    assert names == (*map(commit, range(6)), checkpoint(0), checkpoint(3))


def test_protected_checkpoints_go_with_all_history_before_them_or_not_at_all() -> None:
    files = log({v: v for v in range(8)}, checkpoint(2), checkpoint(4), checkpoint(6))
    assert find_expired(files, cutoff_ms=DAY + 5 * DAY_MS, protected_before=5).names == ()
    assert find_expired(files, cutoff_ms=DAY + 6 * DAY_MS, protected_before=5).first_version == 6


def test_protection_needs_the_feature_and_its_setting() -> None:
    def metadata(**configuration: str) -> Metadata:
        return Metadata("i", Format(), "{}", (), configuration)

    setting = {"delta.requireCheckpointProtectionBeforeVersion": "7"}
    feature = Protocol(1, 7, None, ("checkpointProtection",))
    assert protected_before(feature, metadata(**setting)) == 7
    assert protected_before(feature, metadata()) == 0
    assert protected_before(Protocol(1, 2), metadata(**setting)) == 0


def old_table(handmade: HandmadeTable, *, versions: int = 10) -> FileTxnLogWriter:
    """A commit a day, a checkpoint at versions 3 and 6."""
    handmade.create()
    for version in range(1, versions):
        handmade.commit(add(f"{version}"))
    for version in range(versions):
        os.utime(handmade.commit_path(version), ns=(0, (DAY + version * DAY_MS) * 1_000_000))
    writer = FileTxnLogWriter(handmade.path, table="t")
    for version in (3, 6):
        snapshot = FileTxnLogReader(handmade.path).snapshot(version)
        written = writer.write_checkpoint(snapshot, protocol=snapshot.protocol, tombstone_cutoff_ms=0)
        writer.write_last_checkpoint(written)
    return writer


def test_versions_since_the_cut_off_can_be_read_after_clean_up(handmade: HandmadeTable) -> None:
    writer = old_table(handmade)
    reader = FileTxnLogReader(handmade.path)
    before = {version: files_of(reader.snapshot(version)) for version in range(3, 10)}
    (handmade.log / f".{commit(1)}.crc").write_bytes(b"Hadoop's")
    cleaned = writer.clean_up(cutoff_ms=DAY + 5 * DAY_MS)
    assert cleaned.first_version == 3
    assert cleaned.removed == (commit(0), commit(1), commit(2))
    assert sorted(file.name for file in handmade.log.iterdir()) == sorted(
        ["_last_checkpoint", checkpoint(3), checkpoint(6), *map(commit, range(3, 10))]
    )
    reader = FileTxnLogReader(handmade.path)
    for version, files in before.items():
        assert files_of(reader.snapshot(version)) == files
        assert len(DeltaTable(handmade.path, version=version).file_uris()) == version
    with pytest.raises(VersionNotFoundError):
        reader.snapshot(2)
    assert writer.clean_up(cutoff_ms=DAY + 5 * DAY_MS).removed == ()


def test_a_log_in_an_object_store_is_cleaned_up(handmade: HandmadeTable, s3: S3) -> None:
    old_table(handmade)
    # An object's time is when it was put, so the cut-off is in the future here.
    writer = FileTxnLogWriter(s3.upload(handmade.path, "t"), s3.storage_options, table="t")
    assert writer.clean_up(cutoff_ms=DAY + 9 * DAY_MS).removed == ()
    cleaned = writer.clean_up(cutoff_ms=2**61)
    assert cleaned.first_version == 6
    names = {key.rpartition("/")[2] for key in s3.list_keys()}
    assert names == {"_last_checkpoint", checkpoint(6), *map(commit, range(6, 10))}
    assert DeltaTable(s3.uri("t"), storage_options=s3.storage_options).version() == 9


def test_temporary_files_of_dead_processes_are_swept(handmade: HandmadeTable, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = old_table(handmade)
    left = handmade.log / f".{commit(9)}.123.0.abcd.deltalakedb.tmp"
    left.write_bytes(b"half of")
    os.utime(left, ns=(0, 0))  # a commit's own time, however long ago, does not make its file old
    foreign = handmade.log / ".somebody-elses.tmp"
    foreign.write_bytes(b"")
    assert writer.clean_up(cutoff_ms=DAY).removed == ()
    now = os.stat(left).st_ctime_ns
    monkeypatch.setattr("time.time_ns", lambda: now + 3_601_000_000_000)
    assert writer.clean_up(cutoff_ms=DAY).removed == (left.name,)
    assert not left.exists()
    assert foreign.exists()


def test_sidecars_that_no_checkpoint_needs_are_deleted_after_a_day(handmade: HandmadeTable) -> None:
    writer = old_table(handmade)
    folder = handmade.log / "_sidecars"
    v2(handmade.log, 8, [V2_PROTOCOL, METADATA, add("in-sidecar")], sidecars=1)
    [needed] = folder.iterdir()
    unused, young = folder / "unused.parquet", folder / "young.parquet"
    for file in (unused, young):
        file.write_bytes(b"x")
    for file in folder.iterdir():
        if file != young:
            os.utime(file, ns=(0, 0))
    assert writer.clean_up(cutoff_ms=DAY + 5 * DAY_MS).removed[-1] == "_sidecars/unused.parquet"
    assert sorted(file.name for file in folder.iterdir()) == sorted([needed.name, young.name])


def test_no_sidecar_is_deleted_while_a_checkpoint_cannot_be_read(handmade: HandmadeTable) -> None:
    writer = old_table(handmade)
    unused = handmade.log / "_sidecars" / "unused.parquet"
    unused.parent.mkdir()
    unused.write_bytes(b"x")
    os.utime(unused, ns=(0, 0))
    (handmade.log / checkpoint(8)).write_bytes(b"broken")
    assert len(writer.clean_up(cutoff_ms=DAY + 5 * DAY_MS).removed) == 3
    assert unused.exists()


def test_clean_up_of_a_table_that_is_not_there_does_nothing(tmp_path: Path) -> None:
    cleaned = FileTxnLogWriter(tmp_path / "nowhere", table="t").clean_up(cutoff_ms=2**61)
    assert (cleaned.removed, cleaned.first_version) == ((), 0)
