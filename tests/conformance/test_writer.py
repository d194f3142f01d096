"""SqlTxnLogWriter: what it commits is in SQL exactly once, in order, and says what the mirror will write."""

import json
from dataclasses import replace

import pytest

from deltalakedb.exceptions import (
    ConcurrentAppendError,
    ConcurrentDeleteDeleteError,
    ConcurrentDeleteReadError,
    ConcurrentTransactionError,
    DeltaProtocolError,
    InvalidCommitError,
    MetadataChangedError,
    NameChangedError,
    NotWritableError,
    TableExistsError,
    TableLockedError,
    TableNotFoundError,
)
from deltalakedb.log.protocol.actions import AppTransaction, CommitInfo, DeletionVector, Metadata, Protocol
from deltalakedb.log.protocol.completion import parse_mark
from deltalakedb.log.protocol.fence import FEATURE
from deltalakedb.log.protocol.proposal import WHOLE_TABLE, ProposedCommit, ReadSet
from deltalakedb.store import Store
from deltalakedb.store import registry as reg
from deltalakedb.store.proposals import TableProposal
from deltalakedb.store.reader import SqlTxnLogReader
from tests.conformance.histories import METADATA, add, remove
from tests.conformance.proposing import change, commit, create, new_table, proposal, set_state


def live_paths(store: Store, table: reg.TableRow) -> list[str]:
    return sorted(SqlTxnLogReader(store, table).snapshot().files_table(["path"])["path"].to_pylist())


def test_a_commit_becomes_the_next_version_with_our_mark(store: Store) -> None:
    table = create(store)
    outcome = commit(store, proposal(change(store, table, add("a")), actor="ada", message="first load"))
    assert outcome.versions == {"sales.orders": 1}
    (made,) = SqlTxnLogReader(store, table).commits(1)
    info = made.actions[0]
    assert isinstance(info, CommitInfo)
    mark = parse_mark(info)
    assert mark is not None
    assert (mark.table, mark.table_uuid, mark.txn_id) == ("sales.orders", table.table_uuid, outcome.txn_id)
    assert (mark.actor, mark.message, mark.committed_at_ms) == ("ada", "first load", outcome.committed_at_ms)
    assert [(one.table_id, one.version) for one in mark.participants] == [(table.table_id, 1)]
    assert (info.value["isBlindAppend"], info.value["readVersion"]) == (True, 0)
    (entry,) = SqlTxnLogReader(store, table).history(1)
    assert (entry.actor, entry.message, entry.txn_id) == ("ada", "first load", outcome.txn_id)


def test_what_the_writer_hands_to_the_mirror_is_what_sql_renders(store: Store) -> None:
    made = [commit(store, proposal(new_table(more=(add("a"),))))]
    table = made[0].commits[0].table
    made.append(commit(store, proposal(change(store, table, add("ä b\x00", day="mon"), AppTransaction("app", 1, 5)))))
    made.append(commit(store, proposal(change(store, table, remove("a"), read=ReadSet(files=frozenset({("a", "")}))))))
    rendered = [one.data for one in SqlTxnLogReader(store, table).mirror_commits(0)]
    assert [outcome.commits[0].data for outcome in made] == rendered
    assert FEATURE in (rendered[0] or b"").decode()
    lengths = [one.size_bytes for one in SqlTxnLogReader(store, table).commits(1)]
    assert lengths == [len(data) for data in rendered[1:]]


def test_the_fence_is_in_the_mirror_and_not_in_the_logical_protocol(store: Store) -> None:
    table = create(store)
    snapshot = SqlTxnLogReader(store, table).snapshot()
    assert (snapshot.protocol, snapshot.fenced) == (Protocol(1, 2), True)


def test_a_token_used_before_answers_with_what_it_committed(store: Store) -> None:
    table = create(store)
    made = proposal(change(store, table, add("a")))
    first = commit(store, made)
    again = commit(store, made)
    assert again.repeated
    assert (again.txn_id, again.committed_at_ms, again.versions) == (
        first.txn_id,
        first.committed_at_ms,
        {"sales.orders": 1},
    )
    assert live_paths(store, table) == ["a"]


def test_a_repeated_creation_answers_with_the_table_it_made(store: Store) -> None:
    made = proposal(new_table())
    first = commit(store, made)
    again = commit(store, made)
    assert again.repeated
    assert again.tables["sales.orders"] == first.tables["sales.orders"]


def test_a_blind_append_is_rebased_onto_what_others_appended(store: Store) -> None:
    table = create(store)
    mine = proposal(change(store, table, add("mine"), at=0))
    commit(store, proposal(change(store, table, add("theirs"))))
    commit(store, proposal(change(store, table, remove("theirs"), read=ReadSet(files=frozenset({("theirs", "")})))))
    assert commit(store, mine).versions == {"sales.orders": 3}
    assert live_paths(store, table) == ["mine"]


def test_each_clash_is_named(store: Store) -> None:
    table = create(store)
    commit(store, proposal(change(store, table, add("a"), add("b"))))
    commit(store, proposal(change(store, table, remove("a"), add("c"), read=ReadSet(files=frozenset({("a", "")})))))
    with pytest.raises(ConcurrentAppendError, match=r"sales\.orders.*version 2.*c"):
        commit(store, proposal(change(store, table, add("d"), read=WHOLE_TABLE, at=1)))
    with pytest.raises(ConcurrentDeleteReadError, match=r"version 2.*a"):
        commit(store, proposal(change(store, table, add("d"), read=ReadSet(files=frozenset({("a", "")})), at=1)))
    with pytest.raises((ConcurrentDeleteDeleteError, ConcurrentDeleteReadError)):
        commit(store, proposal(change(store, table, remove("a"), read=ReadSet(files=frozenset({("a", "")})), at=1)))
    commit(store, proposal(change(store, table, replace(METADATA, description="new"))))
    with pytest.raises(MetadataChangedError, match="version 3"):
        commit(store, proposal(change(store, table, add("d"), at=2)))
    assert live_paths(store, table) == ["b", "c"]
    assert SqlTxnLogReader(store, table).latest_version() == 3


def test_all_tables_of_a_transaction_move_or_none(store: Store) -> None:
    orders, rates = create(store), create(store, "rates")
    commit(store, proposal(change(store, rates, add("r1"))))
    with pytest.raises(ConcurrentAppendError, match=r"sales\.rates"):
        commit(
            store,
            proposal(change(store, orders, add("o1")), change(store, rates, add("r2"), read=WHOLE_TABLE, at=0)),
        )
    assert live_paths(store, orders) == []
    outcome = commit(store, proposal(change(store, orders, add("o1")), change(store, rates, add("r2"))))
    assert outcome.versions == {"sales.orders": 1, "sales.rates": 2}
    marks = [
        parse_mark(next(action for action in one.actions if isinstance(action, CommitInfo)))
        for table, version in ((orders, 1), (rates, 2))
        for one in SqlTxnLogReader(store, table).commits(version)
    ]
    assert [mark.participants if mark else None for mark in marks] == [marks[0].participants if marks[0] else ()] * 2


def test_a_table_that_is_only_read_is_checked_too(store: Store) -> None:
    orders, rates = create(store), create(store, "rates")
    reading = replace(change(store, rates, add("never")), commits=(), also_read=WHOLE_TABLE)
    commit(store, proposal(change(store, rates, add("r1"))))
    with pytest.raises(ConcurrentAppendError, match=r"sales\.rates"):
        commit(store, proposal(change(store, orders, add("o1")), reading))


def test_several_statements_on_one_table_are_several_versions(store: Store) -> None:
    table = create(store)
    proposed = change(store, table, add("a"))
    both = replace(proposed, commits=(*proposed.commits, ProposedCommit((remove("a"), add("b")), "DELETE")))
    outcome = commit(store, proposal(both))
    assert [one.version for one in outcome.commits] == [1, 2]
    reader = SqlTxnLogReader(store, table)
    assert reader.snapshot(1).files_table(["path"])["path"].to_pylist() == ["a"]
    assert live_paths(store, table) == ["b"]
    times = [one.timestamp_ms for one in reader.commits(1)]
    assert times[1] > times[0] >= outcome.committed_at_ms


def test_transaction_times_never_step_back_and_a_table_in_the_future_drags_nobody(store: Store) -> None:
    orders, rates = create(store), create(store, "rates")
    with store.write() as conn:
        conn.sql(
            "update dl_table_heads set last_commit_ms = 99999999999999 where table_id = :id returning table_id",
            id=orders.table_id,
        )
    ahead = commit(store, proposal(change(store, orders, add("a"))))
    assert ahead.commits[0].timestamp_ms == 100000000000000
    assert ahead.committed_at_ms < 99999999999999
    after = commit(store, proposal(change(store, rates, add("b"))))
    assert ahead.committed_at_ms < after.committed_at_ms == after.commits[0].timestamp_ms < 99999999999999


def test_an_application_that_was_there_before_is_told(store: Store) -> None:
    table = create(store)
    commit(store, proposal(change(store, table, add("a"), AppTransaction("stream", 7))))
    with pytest.raises(ConcurrentTransactionError, match="stream.*7"):
        commit(store, proposal(change(store, table, add("b"), AppTransaction("stream", 7))))
    commit(store, proposal(change(store, table, add("b"), AppTransaction("stream", 8))))
    assert live_paths(store, table) == ["a", "b"]


def test_a_removed_file_must_be_live(store: Store) -> None:
    table = create(store)
    with pytest.raises(InvalidCommitError, match="never-there"):
        commit(store, proposal(change(store, table, remove("never-there"))))
    many = [add(f"f{number}") for number in range(300)]
    commit(store, proposal(change(store, table, *many)))
    with pytest.raises(InvalidCommitError, match="never-there"):
        commit(store, proposal(change(store, table, *(remove(f.path) for f in many), remove("never-there"))))
    assert len(live_paths(store, table)) == 300


def test_a_second_add_of_a_live_file_replaces_its_statistics(store: Store) -> None:
    table = create(store)
    commit(store, proposal(change(store, table, add("a", low=0, high=9))))
    commit(store, proposal(change(store, table, add("a", low=5, high=6))))
    with store.read() as conn:
        head = reg.read_head(conn, table.table_id)
    assert head is not None
    assert (head.num_files, head.num_records) == (1, 10)


def test_files_with_a_new_deletion_vector_are_other_files(store: Store) -> None:
    protocol = Protocol(3, 7, ("deletionVectors",), ("deletionVectors",))
    table = create(store, protocol=protocol)
    commit(store, proposal(change(store, table, add("a"))))
    vector = DeletionVector("u", "ab^-aqEH.-t@S}K{vb[*k^", 36, 4, 1)
    files = ReadSet(files=frozenset({("a", "")}))
    commit(store, proposal(change(store, table, remove("a"), add("a", deletion_vector=vector), read=files)))
    with store.read() as conn:
        head = reg.read_head(conn, table.table_id)
    assert head is not None
    assert (head.num_files, head.num_records) == (1, 6)


@pytest.mark.parametrize("state", ["frozen", "detaching"])
def test_a_table_that_is_not_live_takes_no_commit(store: Store, state: str) -> None:
    table = create(store)
    made = proposal(change(store, table, add("a")))
    set_state(store, table, state=state)
    with pytest.raises(NotWritableError, match=state):
        commit(store, made)


@pytest.mark.parametrize("mode", ["follower", "detached"])
def test_a_table_of_others_takes_no_commit(store: Store, mode: str) -> None:
    table = create(store)
    made = proposal(change(store, table, add("a")))
    set_state(store, table, mode=mode)
    with pytest.raises(NotWritableError, match=f"{mode}.*dl promote"):
        commit(store, made)
    assert live_paths(store, table) == []


def test_a_dropped_table_takes_no_commit(store: Store) -> None:
    table = create(store)
    made = proposal(change(store, table, add("a")))
    commit(store, proposal(replace(change(store, table), commits=(), drop=True)))
    with pytest.raises(NameChangedError, match="dropped"):
        commit(store, made)
    with pytest.raises(TableNotFoundError):
        commit(store, proposal(replace(made.tables[0], table=replace(table, table_id=999))))


def test_a_name_is_created_once(store: Store) -> None:
    create(store)
    with pytest.raises(TableExistsError, match=r"sales\.orders"):
        commit(store, proposal(new_table()))


def test_create_and_write_and_rename_happen_in_one_transaction(store: Store) -> None:
    rates = create(store, "rates")
    moved = replace(change(store, rates, operation="RENAME TABLE"), changes={"name": "old_rates"})
    made = new_table("rates", more=(add("a"),))
    outcome = commit(store, proposal(moved, made))
    assert outcome.versions == {"sales.old_rates": 1, "sales.rates": 0}
    with store.read() as conn:
        assert {row.name for row in reg.list_tables(conn)} == {"old_rates", "rates"}


def test_an_intent_lock_makes_rewriters_wait_and_lets_appends_pass(store: Store) -> None:
    table = create(store)
    commit(store, proposal(change(store, table, add("a"))))
    with store.write() as conn:
        now_ms = conn.now_ms()
        lease = {"lease": f"intent:{table.table_id}", "holder": "long rewrite", "now_ms": now_ms}
        assert conn.run("take_lease", **lease, until_ms=now_ms + 60_000) == 1
        assert conn.run("take_lease", **{**lease, "holder": "another"}, until_ms=now_ms + 60_000) == 0
    commit(store, proposal(change(store, table, add("b"))))
    rewrite = change(store, table, remove("a"), read=ReadSet(files=frozenset({("a", "")})))
    with pytest.raises(TableLockedError, match="long rewrite"):
        commit(store, proposal(rewrite))
    commit(store, proposal(rewrite, txn_id="long rewrite"))
    assert live_paths(store, table) == ["b"]


def test_row_ids_are_handed_out_under_the_lock(store: Store) -> None:
    protocol = Protocol(1, 7, None, ("rowTracking", "domainMetadata"))
    metadata = replace(METADATA, configuration={"delta.enableRowTracking": "true"})
    table = create(store, protocol=protocol, metadata=metadata)
    first = proposal(change(store, table, add("a"), add("b")))
    second = proposal(change(store, table, add("c")))
    commit(store, second)
    commit(store, first)
    files = SqlTxnLogReader(store, table).snapshot().files_table(["path", "base_row_id", "default_row_commit_version"])
    assert sorted(files.to_pylist(), key=lambda row: row["path"]) == [
        {"path": "a", "base_row_id": 10, "default_row_commit_version": 2},
        {"path": "b", "base_row_id": 20, "default_row_commit_version": 2},
        {"path": "c", "base_row_id": 0, "default_row_commit_version": 1},
    ]
    domain = SqlTxnLogReader(store, table).snapshot().domain_metadata()["delta.rowTracking"]
    assert json.loads(domain.configuration) == {"rowIdHighWaterMark": 29}


def test_in_commit_timestamps_stand_first_and_say_since_when(store: Store) -> None:
    table = create(store)
    protocol = Protocol(1, 7, None, ("appendOnly", "invariants", "inCommitTimestamp"))
    enabled = replace(METADATA, configuration={"delta.enableInCommitTimestamps": "true"})
    outcome = commit(store, proposal(change(store, table, protocol, enabled, operation="SET TBLPROPERTIES")))
    (made,) = outcome.commits
    first_line = (made.data or b"").splitlines()[0]
    assert next(iter(json.loads(first_line)["commitInfo"].items())) == ("inCommitTimestamp", made.timestamp_ms)
    metadata = SqlTxnLogReader(store, table).snapshot().metadata
    assert metadata.configuration["delta.inCommitTimestampEnablementVersion"] == "1"
    assert metadata.configuration["delta.inCommitTimestampEnablementTimestamp"] == str(made.timestamp_ms)


@pytest.mark.in_turn
@pytest.mark.parametrize(
    "actions",
    [
        (add("a"), add("a")),
        (add("../outside"),),
        (replace(add("a"), partition_values={"wrong": "mon"}),),
        (replace(METADATA, configuration={"delta.enableDeletionVectors": "true"}),),
        (Metadata("id-1", METADATA.format, "not json", (), {}),),
    ],
)
def test_actions_that_break_the_protocol_change_nothing(store: Store, actions: tuple[object, ...]) -> None:
    table = create(store)
    with pytest.raises(DeltaProtocolError):
        commit(store, proposal(change(store, table, *actions)))  # type: ignore[arg-type]  # what users may hand in
    assert SqlTxnLogReader(store, table).latest_version() == 0
    with store.read() as conn:
        assert len(conn.sql("select txn_id from dl_transactions")) == 1


def test_a_large_commit_is_the_same_as_a_small_one(store: Store) -> None:
    table = create(store)
    files = [add(f"f{number:05}", low=number, high=number + 3) for number in range(2_500)]
    outcome = commit(store, proposal(change(store, table, *files)))
    assert outcome.commits[0].data is None
    (mirrored,) = SqlTxnLogReader(store, table).mirror_commits(1)
    assert mirrored.data.count(b"\n") == 2_501
    assert outcome.commits[0].num_files == 2_500


def test_a_proposal_without_commits_for_a_table_keeps_its_head(store: Store) -> None:
    table = create(store)
    outcome = commit(store, proposal(TableProposal(table, 0, protocol=Protocol(1, 2), metadata=METADATA)))
    assert outcome.commits == ()
    assert SqlTxnLogReader(store, table).latest_version() == 0
