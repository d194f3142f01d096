"""Races on one `_delta_log` without a catalog: the same meanings clash, by the same names, as in SQL."""

from __future__ import annotations

import errno
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import deltalake
import pytest

import deltalakedb as dl
from deltalakedb import exceptions
from deltalakedb.files.committing import FileCommitter
from deltalakedb.files.log_folder import LogFolder
from deltalakedb.log.protocol.actions import AppTransaction, Metadata, Protocol
from deltalakedb.log.protocol.proposal import WHOLE_TABLE, ProposedCommit
from deltalakedb.operations.definition import new_table, to_schema
from deltalakedb.operations.target import Done, Target, Verb
from deltalakedb.storage.local import LocalStorage
from deltalakedb.tables.file_backing import FileBacking, create_at
from deltalakedb.transaction import CommitProperties
from tests.api.plain import (
    append,
    begin,
    commit_info,
    data_files,
    our_ids,
    racing,
    remove_where,
    rows,
    run,
    their_ids,
)
from tests.fixtures.s3 import S3


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Two days, a file each."""
    at = tmp_path / "t"
    begin(at, rows(1, 2, day="d1"), partition_by=("day",))
    run(at, append(rows(3, 4, day="d2")))
    return at


def _changed(target: Target, **configuration: str) -> Metadata:
    return replace(target.metadata, configuration={**target.metadata.configuration, **configuration})


def _set(key: str, value: str) -> Verb:
    return lambda target: Done(ProposedCommit((_changed(target, **{key: value}),), "SET TBLPROPERTIES"))


def _raise_protocol(_: Target) -> Done:
    protocol = Protocol(1, 7, None, ("appendOnly", "invariants", "domainMetadata"))
    return Done(ProposedCommit((protocol,), "ADD FEATURE"))


def _copy_all(target: Target) -> Done:
    """Reads everything and adds a row that depends on it."""
    done = append(rows(target.snapshot.files_table().num_rows, day="d9"))(target)
    assert done.commit is not None
    return Done(replace(done.commit, read=WHOLE_TABLE))


def _note(app_id: str, version: int) -> Verb:
    return lambda _: Done(ProposedCommit((AppTransaction(app_id, version),), "STREAMING UPDATE"))


CLASHES: list[tuple[str, Verb, Verb, type[exceptions.CommitFailedError]]] = [
    ("append under a delete", remove_where("day = 'd1'"), append(rows(9, day="d1")), exceptions.ConcurrentAppendError),
    ("append under a read", _copy_all, append(rows(9, day="d7")), exceptions.ConcurrentAppendError),
    ("delete of what was read", _copy_all, remove_where("day = 'd2'"), exceptions.ConcurrentDeleteReadError),
    (
        "delete of the same",
        remove_where("day = 'd1'"),
        remove_where("day = 'd1'"),
        exceptions.ConcurrentDeleteReadError,
    ),
    (
        "new properties under an append",
        append(rows(9)),
        _set("delta.appendOnly", "false"),
        exceptions.MetadataChangedError,
    ),
    ("new protocol under an append", append(rows(9)), _raise_protocol, exceptions.ProtocolChangedError),
    ("an application twice", _note("app", 2), _note("app", 1), exceptions.ConcurrentTransactionError),
]


@pytest.mark.parametrize(("mine", "theirs", "error"), [c[1:] for c in CLASHES], ids=[c[0] for c in CLASHES])
def test_a_clash_has_its_name_and_leaves_nothing(
    place: Path, mine: Verb, theirs: Verb, error: type[exceptions.CommitFailedError]
) -> None:
    def other() -> None:
        run(place, theirs)
        after.append((dl.DeltaTable(place).version(), our_ids(place)))

    after: list[tuple[int, list[int]]] = []
    with pytest.raises(error) as caught:
        run(place, racing(mine, other))
    assert caught.value.version == 2
    assert str(place) in str(caught.value)
    assert "Nothing was committed" in str(caught.value)
    assert (dl.DeltaTable(place).version(), our_ids(place)) == after[0]
    assert their_ids(place) == after[0][1]
    live = {os.path.basename(uri) for uri in dl.DeltaTable(place).file_uris()}
    assert data_files(place) - live <= _ended(place)


def _ended(place: Path) -> set[str]:
    """Files that some version had; those of commits that were not made are not among them."""
    found: set[str] = set()
    for version in range(dl.DeltaTable(place).version() + 1):
        found |= {os.path.basename(uri) for uri in dl.DeltaTable(place, version=version).file_uris()}
    return found


HARMLESS: list[tuple[str, Verb, Verb, list[int]]] = [
    ("two appends", append(rows(9)), append(rows(8)), [1, 2, 3, 4, 8, 9]),
    ("an append elsewhere", remove_where("day = 'd1'"), append(rows(9, day="d2")), [3, 4, 9]),
    ("deletes of different days", remove_where("day = 'd1'"), remove_where("day = 'd2'"), []),
    ("an append after a delete", append(rows(9)), remove_where("day = 'd1'"), [3, 4, 9]),
    ("a delete by statistics", remove_where("id <= 2"), append(rows(9, day="d1")), [3, 4, 9]),
    ("two applications", _note("a", 1), _note("b", 1), [1, 2, 3, 4]),
]


@pytest.mark.parametrize(("mine", "theirs", "left"), [c[1:] for c in HARMLESS], ids=[c[0] for c in HARMLESS])
def test_what_does_not_clash_follows_the_winner(place: Path, mine: Verb, theirs: Verb, left: list[int]) -> None:
    run(place, racing(mine, lambda: run(place, theirs)))
    assert dl.DeltaTable(place).version() == 3
    assert our_ids(place) == their_ids(place) == left


def test_deltalake_may_be_the_one_who_comes_first(place: Path) -> None:
    table = deltalake.DeltaTable(place)
    with pytest.raises(exceptions.ConcurrentAppendError):  # what is left of the file that it rewrote
        run(place, racing(remove_where("day = 'd1'"), lambda: table.delete("id = 1")))
    run(place, racing(append(rows(9)), lambda: deltalake.write_deltalake(place, rows(8), mode="append")))
    assert our_ids(place) == their_ids(place) == [2, 3, 4, 8, 9]
    assert commit_info(place, 4)["operationMetrics"]["num_retries"] == 1


def test_deltalake_sees_our_commits_when_it_comes_second(place: Path) -> None:
    stale = deltalake.DeltaTable(place)
    run(place, remove_where("day = 'd1'"))
    with pytest.raises(deltalake.exceptions.CommitFailedError):
        stale.delete("id = 1")
    stale.update_incremental()
    stale.delete("id = 3")
    assert our_ids(place) == their_ids(place) == [4]


def test_row_ids_are_handed_out_anew_after_a_lost_race(tmp_path: Path) -> None:
    place = tmp_path / "t"
    begin(place, rows(1, 2), properties={"delta.enableRowTracking": "true"})
    run(place, racing(append(rows(3)), lambda: run(place, append(rows(4, 5, 6)))))
    files = dl.DeltaTable(place).files(["base_row_id", "default_row_commit_version"]).to_pylist()
    assert sorted((f["base_row_id"], f["default_row_commit_version"]) for f in files) == [(0, 0), (2, 1), (5, 2)]


def test_in_commit_timestamps_grow_though_clocks_step_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "t"
    begin(place, rows(1), properties={"delta.enableInCommitTimestamps": "true"})
    first = commit_info(place, 0)["inCommitTimestamp"]
    monkeypatch.setattr("deltalakedb.files.committing.time.time_ns", lambda: (first - 60_000) * 1_000_000)
    run(place, append(rows(2)))
    assert commit_info(place, 1)["inCommitTimestamp"] == first + 1


def test_retries_are_bounded_by_what_the_caller_says(place: Path) -> None:
    def always_first() -> None:
        taken.append(1)
        run(place, append(rows(100 + len(taken))))

    taken: list[int] = []
    with pytest.raises(exceptions.CommitFailedError, match="max_commit_retries") as caught:
        run(
            place,
            racing(append(rows(9)), always_first),
            properties=CommitProperties(max_commit_retries=0),
        )
    assert type(caught.value) is exceptions.CommitFailedError
    assert our_ids(place) == [1, 2, 3, 4, 101]
    assert len(data_files(place)) == 3
    run(place, racing(append(rows(9)), always_first), properties=CommitProperties(max_commit_retries=1))
    assert our_ids(place) == [1, 2, 3, 4, 9, 101, 102]


def test_whoever_creates_a_table_second_is_told_and_leaves_no_files(tmp_path: Path) -> None:
    place = tmp_path / "t"
    seen: list[tuple[Protocol, Metadata]] = []

    def first_of(target: Target) -> Done:
        seen.append((target.protocol, target.metadata))
        return append(rows(1))(target)

    first = new_table(
        to_schema(rows(1).schema), (), {}, table="t", name="", description=None, created_ms=1_700_000_000_000
    )
    with pytest.raises(exceptions.TableExistsError, match="created it first"):
        create_at(place, first, racing(first_of, lambda: begin(place, rows(2))))
    assert (our_ids(place), len(data_files(place)), len(seen)) == ([2], 1, 1)


# -- storage that fails


def test_a_full_disk_commits_nothing_and_says_so(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any, **__: Any) -> str:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(LocalStorage, "_write_temporary", full)
    with pytest.raises(exceptions.CommitFailedError, match="nothing was committed: .*make room on the disk"):
        run(place, append(rows(9)))
    monkeypatch.undo()
    assert (our_ids(place), len(data_files(place))) == ([1, 2, 3, 4], 2)


def test_a_commit_whose_answer_was_lost_is_found_in_the_log(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put = LogFolder.put

    def lost(self: LogFolder, name: str, data: bytes, **how: Any) -> Any:
        put(self, name, data, **how)
        error = exceptions.MirrorError("the connection was lost")
        error.uncertain = True
        raise error

    monkeypatch.setattr(LogFolder, "put", lost)
    run(place, append(rows(9)))
    monkeypatch.undo()
    assert (our_ids(place), dl.DeltaTable(place).version()) == ([1, 2, 3, 4, 9], 2)


def test_a_commit_that_may_arrive_later_keeps_its_files(s3: S3, monkeypatch: pytest.MonkeyPatch) -> None:
    uri, options = s3.uri("t"), s3.storage_options
    begin(uri, rows(1), options)
    late: list[tuple[str, bytes]] = []

    def swallowed(_: LogFolder, name: str, data: bytes, **__: Any) -> Any:
        late.append((name, data))
        error = exceptions.MirrorError("the request timed out")
        error.uncertain = True
        raise error

    monkeypatch.setattr(LogFolder, "put", swallowed)
    with pytest.raises(exceptions.OutcomeUnknownError, match="look for txnId"):
        run(uri, append(rows(2)), options)
    monkeypatch.undo()
    assert our_ids(uri, options) == [1]
    name, data = late[0]
    s3.put(f"t/_delta_log/{name}", data)
    assert our_ids(uri, options) == their_ids(uri, options) == [1, 2]


def test_our_own_commit_is_known_by_its_id_however_it_got_there(place: Path) -> None:
    """The put says "exists", and what exists is ours: an earlier request, believed lost, has arrived."""
    backing = FileBacking(place)
    snapshot = backing.newest()
    committer = FileCommitter(backing.reader, backing.writer, snapshot, txn_id="mine")
    again = FileCommitter(backing.reader, backing.writer, snapshot, txn_id="mine")
    commit = ProposedCommit((AppTransaction("app", 1),), "STREAMING UPDATE")
    assert committer.commit(commit).version == 2
    assert again.commit(commit).version == 2
    assert dl.DeltaTable(place).version() == 2
