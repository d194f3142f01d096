"""Commits under other versions: what depended on their place is made anew, everything else stays."""

import json
from typing import Any

from deltalakedb.log.protocol.actions import (
    Action,
    AddFile,
    CommitInfo,
    DomainMetadata,
    Format,
    Metadata,
    Protocol,
    RemoveFile,
)
from deltalakedb.log.protocol.commit import Commit
from deltalakedb.log.protocol.completion import ENABLEMENT_TIMESTAMP, ENABLEMENT_VERSION, MARK, ROW_TRACKING
from deltalakedb.log.protocol.proposal import NOTHING_READ, WHOLE_TABLE
from deltalakedb.mirror.own_commits import OwnCommit, Rebaser, as_proposed

METADATA = Metadata("id", Format(), '{"type":"struct","fields":[]}', (), {})


def info(**fields: Any) -> CommitInfo:
    return CommitInfo(json.dumps({"timestamp": 50, "operation": "WRITE", "txnId": "t", **fields}))


def add(
    path: str, *, records: int = 1, row_id: int | None = None, since: int | None = None, change: bool = True
) -> AddFile:
    stats = json.dumps({"numRecords": records})
    return AddFile(path, {}, 1, 1, change, stats=stats, base_row_id=row_id, default_row_commit_version=since)


def remove(path: str, *, row_id: int | None = None, since: int | None = None, change: bool = True) -> RemoveFile:
    return RemoveFile(path, change, base_row_id=row_id, default_row_commit_version=since)


def own(version: int, *actions: Action, at_ms: int = 50, fenced: bool = True) -> OwnCommit:
    return OwnCommit(Commit(version, at_ms, actions, 1), fenced)


def rebased(*commits: OwnCommit, first: int, marks: tuple[int, int] = (-1, -1), last_ms: int = 10) -> list[Commit]:
    rebaser = Rebaser.of(7, commits, first, marks=marks, last_ms=last_ms)
    return [rebaser.rebase(one) for one in commits]


def mark_of_rows(value: int) -> DomainMetadata:
    return DomainMetadata(ROW_TRACKING, json.dumps({"rowIdHighWaterMark": value}), removed=False)


def files_of(commit: Commit) -> list[tuple[str, int | None, int | None]]:
    return [
        (action.path, action.base_row_id, action.default_row_commit_version)
        for action in commit.actions
        if isinstance(action, AddFile | RemoveFile)
    ]


def test_versions_times_and_participants_follow_the_place_and_the_transaction_stays() -> None:
    others = {"tableId": 8, "tableUuid": "v", "version": 5}
    told = {"catalogId": "c", "participants": [{"tableId": 7, "tableUuid": "u", "version": 6}, others]}
    first = own(5, info(readVersion=4, **{MARK: told}), add("a"))
    second = own(6, info(readVersion=5, inCommitTimestamp=50, **{MARK: told}), add("b"))
    one, two = rebased(first, second, first=9, last_ms=70)
    assert [one.version, two.version, one.timestamp_ms, two.timestamp_ms] == [9, 10, 71, 72]
    values = [commit.commit_info.value for commit in (one, two) if commit.commit_info]
    assert [value["readVersion"] for value in values] == [8, 9]
    assert [value["timestamp"] for value in values] == [71, 72]
    assert ["inCommitTimestamp" in value for value in values] == [False, True]
    assert values[1]["inCommitTimestamp"] == 72
    assert values[0][MARK]["participants"] == [{"tableId": 7, "tableUuid": "u", "version": 10}, others]
    assert [value["txnId"] for value in values] == ["t", "t"]


def test_a_time_that_is_later_already_stays() -> None:
    (commit,) = rebased(own(5, info(), add("a"), at_ms=500), first=6, last_ms=70)
    assert commit.timestamp_ms == 500


def test_row_ids_that_another_writer_handed_out_meanwhile_are_not_used_twice() -> None:
    """Made on a table whose newest row id was 9; another writer took 10 to 14 before."""
    first = own(
        5, info(), add("a", records=3, row_id=10, since=5), add("b", records=2, row_id=13, since=5), mark_of_rows(14)
    )
    second = own(6, info(), remove("a", row_id=10, since=5), add("a", records=3, row_id=10, since=5, change=False))
    one, two = rebased(first, second, first=6, marks=(9, 14))
    assert files_of(one) == [("a", 15, 6), ("b", 18, 6)]
    assert mark_of_rows(19) in [
        DomainMetadata(action.domain, json.dumps(json.loads(action.configuration)), removed=False)
        for action in one.actions
        if isinstance(action, DomainMetadata)
    ]
    assert files_of(two) == [("a", 15, 6), ("a", 15, 6)], "the same file keeps the id it was given here"


def test_files_from_before_keep_their_row_ids() -> None:
    (commit,) = rebased(own(5, info(), add("old", records=3, row_id=4, since=2)), first=6, marks=(9, 14))
    assert files_of(commit) == [("old", 4, 2)]


def test_in_commit_timestamps_turned_on_by_a_commit_hold_from_its_new_version() -> None:
    told = {ENABLEMENT_VERSION: "5", ENABLEMENT_TIMESTAMP: "50", "delta.enableInCommitTimestamps": "true"}
    metadata = Metadata("id", Format(), METADATA.schema_string, (), told)
    first = own(5, info(inCommitTimestamp=50), metadata)
    second = own(6, info(inCommitTimestamp=51), metadata)
    for commit in rebased(first, second, first=8, last_ms=90):
        (found,) = [action for action in commit.actions if isinstance(action, Metadata)]
        assert (found.configuration[ENABLEMENT_VERSION], found.configuration[ENABLEMENT_TIMESTAMP]) == ("8", "91")


def test_what_was_turned_on_before_stays_as_it_was() -> None:
    metadata = Metadata(
        "id", Format(), METADATA.schema_string, (), {ENABLEMENT_VERSION: "2", ENABLEMENT_TIMESTAMP: "1"}
    )
    (commit,) = rebased(own(5, info(), metadata), first=8)
    assert metadata in commit.actions


def test_a_rendered_length_is_that_of_the_new_bytes_and_unknown_behind_the_fence() -> None:
    plain, fenced = rebased(own(5, info(), add("a")), own(6, info(), Protocol(1, 2)), first=100)
    assert plain.size_bytes is not None
    assert fenced.size_bytes is None


def test_only_a_blind_append_or_a_commit_that_changes_no_row_has_read_nothing() -> None:
    blind = as_proposed(own(5, info(isBlindAppend=True), add("a"), mark_of_rows(3)))
    assert (blind.read, blind.is_blind_append, len(blind.actions)) == (NOTHING_READ, True, 1)
    assert as_proposed(own(5, info(isBlindAppend=False), add("a"))).read == WHOLE_TABLE
    assert as_proposed(own(5, info(), remove("a"))).read == WHOLE_TABLE
    assert as_proposed(own(5, info(), remove("a", change=False), add("b", change=False))).read == NOTHING_READ
    assert as_proposed(own(5, info(operation="SET TBLPROPERTIES"), METADATA)).read == NOTHING_READ
