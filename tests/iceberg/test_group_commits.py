"""Requests that are committed together: each has its own versions, transaction, files and outcome."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

import pytest

from deltalakedb import Catalog
from deltalakedb.exceptions import DropProtectedError, OutcomeUnknownError, RequirementFailedError
from deltalakedb.iceberg.catalog import IcebergCatalog
from deltalakedb.iceberg.group_commits import ChangeRequest, commit_together
from deltalakedb.iceberg.statements import TableChange
from deltalakedb.iceberg.turns import Turns, Waiter
from deltalakedb.runtime import steps
from deltalakedb.runtime.caller import Caller, acting_for
from deltalakedb.store.connection import ConnectionLostError
from deltalakedb.store.iceberg import VersionCache
from deltalakedb.store.names import TableName
from deltalakedb.transactions.drafts import IcebergFiles
from tests.conformance.transacting import StopAt
from tests.iceberg.lake import files_below

LEFT, RIGHT = TableName("shop", "left"), TableName("shop", "right")
SCHEMA = {"type": "struct", "fields": [{"id": 1, "name": "id", "type": "long", "required": False}]}
MAIN_IS_EMPTY = {"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": None}
MAIN_IS_ELSEWHERE = {"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": 12}
VERSIONS = """
select t.name, v.version, v.committed_at_ms, v.txn_id, x.client_token, x.committed_at_ms as at_ms,
       i.metadata_location, i.metadata
from dl_table_versions v join dl_transactions x on x.txn_id = v.txn_id join dl_tables t on t.table_id = v.table_id
join dl_iceberg_versions i on i.table_id = v.table_id and i.version = v.version
where v.version > 0 order by t.name, v.version
"""


@pytest.fixture
def iceberg(catalog: Catalog) -> IcebergCatalog:
    service = IcebergCatalog(catalog)
    for name in (LEFT, RIGHT):
        service.create_table(name, {"schema": SCHEMA})
    return service


def together(catalog: Catalog, *requests: ChangeRequest) -> None:
    commit_together(catalog, IcebergFiles(None, None, VersionCache()), requests)


def marking(mark: str, *requirements: dict[str, Any], names: tuple[TableName, ...] = (LEFT, RIGHT)) -> ChangeRequest:
    """A request that sets a property of its own; the requirements are those of its last table."""
    updates = [{"action": "set-properties", "updates": {mark: "x"}}]
    changes = [TableChange(name, requirements if name == names[-1] else (), updates) for name in names]
    return ChangeRequest(changes, f"token-{mark}")


def adding(snapshot_id: int) -> list[dict[str, Any]]:
    """The updates that add a snapshot to an empty table."""
    snapshot = {
        "snapshot-id": snapshot_id,
        "sequence-number": 1,
        "timestamp-ms": time.time_ns() // 1_000_000,
        "manifest-list": f"file:///nowhere/snap-{snapshot_id}.avro",
        "summary": {"operation": "append"},
        "schema-id": 0,
    }
    head = {"action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "snapshot-id": snapshot_id}
    return [{"action": "add-snapshot", "snapshot": snapshot}, head]


def versions_of(catalog: Catalog) -> list[dict[str, Any]]:
    return list(catalog.store.select(VERSIONS).to_pylist())


def marks_of(catalog: Catalog, name: TableName) -> set[str]:
    metadata = IcebergCatalog(catalog).load_table(name).metadata
    return {key for key in metadata["properties"] if not key.startswith("write.")}


def metadata_files(tmp_path: Path) -> set[str]:
    return {file for file in files_below(tmp_path / "lake") if file.endswith(".metadata.json")}


def at_step(step: str, act: Callable[[], None]) -> None:
    """Act when a step is reached next."""
    acts = [act]

    def observe(reached: str) -> None:
        if reached == step and acts:
            acts.pop()()

    steps.observe(observe)


def test_requests_together_have_a_transaction_a_version_and_a_file_each(
    catalog: Catalog, iceberg: IcebergCatalog
) -> None:
    commits: list[str] = []
    steps.observe(lambda step: commits.append(step) if step == "commit.committed" else None)
    requests = [marking("a"), marking("b", names=(RIGHT,)), marking("c", names=(RIGHT, LEFT))]
    together(catalog, *requests)
    assert commits == ["commit.committed"]
    rows = versions_of(catalog)
    assert [(row["name"], row["version"], row["client_token"]) for row in rows] == [
        ("left", 1, "token-a"),
        ("left", 2, "token-c"),
        ("right", 1, "token-a"),
        ("right", 2, "token-b"),
        ("right", 3, "token-c"),
    ]
    times = {row["client_token"]: row["at_ms"] for row in rows}
    assert times["token-a"] < times["token-b"] < times["token-c"]
    assert len({row["txn_id"] for row in rows}) == 3
    for row in rows:
        assert row["committed_at_ms"] >= row["at_ms"]
        assert json.loads(Path(unquote(urlparse(row["metadata_location"]).path)).read_bytes()) == json.loads(
            row["metadata"]
        )
    told = [[(table.version, sorted(table.metadata["properties"])) for table in one.tables or ()] for one in requests]
    plain = sorted(iceberg.load_table(LEFT).metadata["properties"].keys() - {"a", "c"})
    assert told == [
        [(1, ["a", *plain]), (1, ["a", *plain])],
        [(2, ["a", "b", *plain])],
        [(3, ["a", "b", "c", *plain]), (2, ["a", "c", *plain])],
    ]
    assert iceberg.load_table(RIGHT).metadata["properties"].keys() >= {"a", "b", "c"}


def test_a_request_that_fails_leaves_nothing_and_takes_no_other_down(
    catalog: Catalog, iceberg: IcebergCatalog, tmp_path: Path
) -> None:
    wrong = {"type": "assert-table-uuid", "uuid": "00000000-0000-0000-0000-000000000000"}
    requests = [marking("a"), marking("b", wrong), marking("c")]
    together(catalog, *requests)
    assert [type(one.error) for one in requests] == [type(None), RequirementFailedError, type(None)]
    assert marks_of(catalog, LEFT) == marks_of(catalog, RIGHT) == {"a", "c"}
    assert {row["client_token"] for row in versions_of(catalog)} == {"token-a", "token-c"}
    assert len(metadata_files(tmp_path)) == 2 * 3
    assert iceberg.load_table(LEFT).version == 2


def test_requirements_are_checked_on_what_the_requests_before_have_made(
    catalog: Catalog, iceberg: IcebergCatalog
) -> None:
    is_seven = {**MAIN_IS_EMPTY, "snapshot-id": 7}
    first = ChangeRequest([TableChange(RIGHT, [MAIN_IS_EMPTY], adding(7))], None)
    late, third = marking("late", MAIN_IS_EMPTY), marking("third", is_seven)
    removing = ChangeRequest([TableChange(RIGHT, [], [{"action": "remove-snapshots", "snapshot-ids": [7]}])], None)
    together(catalog, marking("both"), first, late, third, removing)
    assert isinstance(late.error, RequirementFailedError)
    assert [first.error, third.error, removing.error] == [None] * 3
    assert marks_of(catalog, RIGHT) == {"both", "third"}
    table = IcebergCatalog(catalog).load_table(RIGHT)
    assert table.metadata["snapshots"] == []
    assert table.metadata == (removing.tables or [])[0].metadata
    assert iceberg.load_table(RIGHT).metadata == table.metadata


@pytest.mark.usefixtures("iceberg")
def test_two_requests_with_one_token_are_not_committed_together(catalog: Catalog, tmp_path: Path) -> None:
    requests = [marking("a"), marking("b"), ChangeRequest(marking("c").changes, "token-a")]
    together(catalog, *requests)
    assert [(one.tables, one.error) for one in requests] == [(None, None)] * 3  # each must be run by itself
    assert versions_of(catalog) == []
    assert len(metadata_files(tmp_path)) == 2
    for one in requests:
        IcebergCatalog(catalog).commit(one.changes, token=one.token)
    assert [(row["version"], row["client_token"]) for row in versions_of(catalog)] == [
        (1, "token-a"),
        (2, "token-b"),
    ] * 2


def test_requests_that_lose_a_race_are_decided_again_on_the_newer_state(
    catalog: Catalog, iceberg: IcebergCatalog, tmp_path: Path
) -> None:
    requests = [marking("a", MAIN_IS_EMPTY), marking("b")]

    def commit_elsewhere() -> None:
        iceberg.commit([TableChange(RIGHT, [], adding(5))])

    at_step("iceberg.metadata_written", commit_elsewhere)
    together(catalog, *requests)
    assert [type(one.error) for one in requests] == [RequirementFailedError, type(None)]
    assert marks_of(catalog, LEFT) == marks_of(catalog, RIGHT) == {"b"}
    assert [table.version for table in requests[1].tables or ()] == [1, 2]
    assert len(metadata_files(tmp_path)) == 2 + 3


@pytest.mark.usefixtures("iceberg")
def test_a_commit_that_fails_as_a_whole_is_left_to_each_request(catalog: Catalog, tmp_path: Path) -> None:
    requests = [marking("a"), marking("b")]
    with StopAt("commit.checked", DropProtectedError("of one of them")):
        together(catalog, *requests)
    assert [(one.tables, one.error) for one in requests] == [(None, None)] * 2
    assert versions_of(catalog) == []
    assert len(metadata_files(tmp_path)) == 2


@pytest.mark.usefixtures("iceberg")
def test_a_thread_that_dies_with_the_commit_of_others_acknowledges_none(catalog: Catalog) -> None:
    requests = [marking("a"), marking("b")]
    with StopAt("commit.written", SystemExit()), pytest.raises(SystemExit):
        together(catalog, *requests)
    assert [(one.tables, one.error) for one in requests] == [(None, None)] * 2
    assert versions_of(catalog) == []


def test_an_unknown_outcome_is_told_to_all_and_found_by_their_tokens(catalog: Catalog, iceberg: IcebergCatalog) -> None:
    requests = [marking("a"), marking("b")]
    with StopAt("commit.committed", OutcomeUnknownError("the database is away")):
        together(catalog, *requests)
    assert [type(one.error) for one in requests] == [OutcomeUnknownError] * 2
    for one in requests:
        tables = iceberg.commit(one.changes, token=one.token)
        assert [table.version for table in tables] == [2, 2]
    assert len(versions_of(catalog)) == 4


@pytest.mark.usefixtures("iceberg")
def test_a_commit_whose_answer_was_lost_is_known_by_its_transaction(catalog: Catalog) -> None:
    requests = [marking("a"), marking("b")]
    with StopAt("commit.committed", ConnectionLostError("the answer to the commit")):
        together(catalog, *requests)
    assert [one.error for one in requests] == [None, None]
    assert [[table.version for table in one.tables or ()] for one in requests] == [[1, 1], [2, 2]]
    assert len(versions_of(catalog)) == 4
    assert marks_of(catalog, LEFT) == marks_of(catalog, RIGHT) == {"a", "b"}


def test_what_was_decided_beside_a_repeat_is_decided_again(catalog: Catalog, iceberg: IcebergCatalog) -> None:
    iceberg.commit(marking("a").changes, token="token-a")
    undone = [TableChange(name, [], [{"action": "remove-properties", "removals": ["a"]}]) for name in (LEFT, RIGHT)]
    iceberg.commit(undone)
    repeat, same_change = marking("a"), ChangeRequest(marking("a").changes, None)
    refused = marking("b", {"type": "assert-table-uuid", "uuid": "another"})
    together(catalog, repeat, same_change, refused)
    assert [(one.tables, one.error) for one in (repeat, same_change, refused)] == [(None, None)] * 3
    assert marks_of(catalog, LEFT) == set()
    assert [table.version for table in iceberg.commit(same_change.changes, token=same_change.token)] == [3, 3]


def test_a_request_that_moves_a_table_goes_alone(catalog: Catalog, iceberg: IcebergCatalog, tmp_path: Path) -> None:
    place = (tmp_path / "lake" / "elsewhere").as_uri()
    moving = ChangeRequest([TableChange(LEFT, [], [{"action": "set-location", "location": place}])], None)
    requests = [marking("a"), moving, marking("c")]
    together(catalog, *requests)
    assert (moving.tables, moving.error) == (None, None)
    assert marks_of(catalog, LEFT) == {"a", "c"}
    (moved,) = iceberg.commit(moving.changes)
    assert moved.metadata["location"] == place
    assert moved.metadata["properties"].keys() >= {"a", "c"}


@pytest.mark.usefixtures("iceberg")
def test_a_request_without_an_effect_makes_no_version(catalog: Catalog) -> None:
    nothing = ChangeRequest([TableChange(LEFT, [], []), TableChange(RIGHT, [], [])], None)
    together(catalog, marking("a"), nothing, marking("b"))
    assert nothing.error is None
    assert [table.version for table in nothing.tables or ()] == [1, 1]
    assert [row["client_token"] for row in versions_of(catalog)] == ["token-a", "token-b"] * 2


# -- who is decided together


class Request(Waiter):
    """A request that only waits."""


def groups_of(turns: Turns[Request], *requests: Request) -> list[list[Request]]:
    """Let requests wait in this order while somebody else has all turns; returns the groups that they become."""
    groups: list[list[Request]] = []
    threads = []

    def lead(request: Request) -> None:
        with turns.lead(request) as group:
            if group:
                groups.append(list(group))

    with turns.take({("", name) for name in "abc"}):
        for request in requests:
            threads.append(threading.Thread(target=lead, args=(request,)))
            threads[-1].start()
            while request not in turns.waiting:
                threading.Event().wait(0.001)
    for thread in threads:
        thread.join()
    return groups


def request_of(names: str) -> Request:
    return Request(("", name) for name in names)


def test_requests_for_the_same_tables_are_decided_together_and_none_is_overtaken() -> None:
    both, left, other, again, last = map(request_of, ("ab", "a", "bc", "ba", "c"))
    assert groups_of(Turns(), both, left, other, again, last) == [[both, left, again], [other, last]]


def test_a_request_that_has_waited_for_too_long_goes_on_without_a_turn() -> None:
    turns: Turns[Request] = Turns()
    request = request_of("a")
    with turns.take({("", "a")}), turns.lead(request, seconds=0.01) as group:
        assert group == [request]
    with turns.lead(request_of("a"), seconds=0.01) as group:
        assert len(group) == 1


def test_requests_together_keep_their_own_callers(catalog: Catalog, iceberg: IcebergCatalog) -> None:
    del iceberg
    requests = []
    for mark, name in [("fails", "eve"), ("a", "ada"), ("b", "bob"), ("c", None)]:
        with acting_for(None if name is None else Caller(name, request_id=f"request-{mark}")):
            requests.append(marking(mark, *([MAIN_IS_ELSEWHERE] if mark == "fails" else [])))
    with acting_for(Caller("the leader", request_id="of the leader")):
        together(catalog, *requests)
    assert isinstance(requests[0].error, RequirementFailedError)
    rows = catalog.store.select(
        "select x.client_token, x.actor, r.request_id from dl_transactions x "
        "left join dl_requests r on r.txn_id = x.txn_id where x.client_token like 'token-%' order by x.committed_at_ms"
    ).to_pylist()
    assert [(row["client_token"], row["actor"], row["request_id"]) for row in rows] == [
        ("token-a", "ada", "request-a"),
        ("token-b", "bob", "request-b"),
        ("token-c", catalog.actor, None),
    ]
