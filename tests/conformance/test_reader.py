"""Reading a log from SQL: what was loaded comes back, at every version, whatever the history looked like."""

import itertools
import sys
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deltalakedb.exceptions import TableNotFoundError, VersionNotFoundError
from deltalakedb.log.protocol.actions import (
    Action,
    AddCDCFile,
    AddFile,
    AppTransaction,
    CommitInfo,
    DeletionVector,
    DomainMetadata,
    Format,
    Metadata,
    Protocol,
    RemoveFile,
    UnknownAction,
)
from deltalakedb.log.protocol.codec import to_sql_text
from deltalakedb.log.protocol.rows import add_from_row, remove_from_row
from deltalakedb.log.protocol.snapshot import SnapshotState
from deltalakedb.log.protocol.txnlog import FILES_SCHEMA, TOMBSTONES_SCHEMA, LogSnapshot, TxnLogReader
from deltalakedb.store import Store, reader
from deltalakedb.store import registry as reg
from deltalakedb.store import snapshot as snapshots
from deltalakedb.store.loader import BaseState
from deltalakedb.store.reader import SqlTxnLogReader
from deltalakedb.store.snapshot import SqlSnapshot
from tests.conformance.histories import METADATA, PROTOCOL, add, info, load, register, remove
from tests.fixtures.sizes import sized

EVERYTHING: list[Action] = [
    CommitInfo('{"operation":"WRITE","x":1.50,"userName":"ann"}'),
    Protocol(3, 7, ("deletionVectors",), ("deletionVectors", "appendOnly"), '{"unknown":[1.0]}'),
    Metadata(
        "id\0\udc80",
        Format("parquet", {"a": None}, '{"f":1}'),
        METADATA.schema_string,
        (),
        {"k": "v"},
        "n\\",
        "d",
        7,
        '{"e":null}',
    ),
    AppTransaction("app\0'\"", 2**62, 5, '{"t":1}'),
    DomainMetadata("dom\udfffain", '{"x": "\\u0000"}', False, '{"d":true}'),
    AddFile(
        "päth with\n\\odd\"'%s:x\udc00.parquet",
        {"a": None, "b": "ü"},
        2**60,
        -1,
        False,
        "not json \0 \ud800",
        {"t": None},
        DeletionVector("u", "ab^-aqEH.-t@S}K{vb[*k^", 40, 6, 4, '{"z":1}'),
        3,
        4,
        "liquid",
        '{"big":12345678901234567890.10}',
    ),
    RemoveFile("r", False, None, True, {"a": "1"}, 5, "{}", {}, DeletionVector("i", "x", 1, 1), 1, 2, '{"size":null}'),
    AddCDCFile("_change_data/c", {"a": "1"}, 9, False, {"x": "y"}, '{"c":{}}'),
    UnknownAction("future\\kind", '{"a": [1, 2.0]}'),
    CommitInfo('{"second":true}'),
]


def files_of(snapshot: SqlSnapshot) -> dict[Any, AddFile]:
    return {action.key: action for action in map(add_from_row, snapshot.files().read_all().to_pylist())}


def tombstones_of(snapshot: SqlSnapshot) -> dict[Any, RemoveFile]:
    return {action.key: action for action in map(remove_from_row, snapshot.tombstones().read_all().to_pylist())}


def test_every_field_of_every_action_comes_back(store: Store) -> None:
    table = register(store)
    made = load(store, table, [EVERYTHING, [add("x")]])
    log = SqlTxnLogReader(store, table)
    assert list(log.commits(0)) == made
    snapshot = log.snapshot(0)
    assert snapshot.protocol == EVERYTHING[1]
    assert snapshot.metadata == EVERYTHING[2]
    assert list(snapshot.app_transactions().values()) == [EVERYTHING[3]]
    assert snapshot.app_transaction("app\0'\"") == EVERYTHING[3]
    assert snapshot.app_transaction("other") is None
    assert list(snapshot.domain_metadata().values()) == [EVERYTHING[4]]
    assert list(files_of(snapshot).values()) == [EVERYTHING[5]]
    assert list(tombstones_of(snapshot).values()) == [EVERYTHING[6]]
    assert isinstance(log, TxnLogReader)
    assert isinstance(snapshot, LogSnapshot)


def test_arrow_has_the_shape_the_interface_promises(store: Store) -> None:
    table = register(store)
    load(store, table, [[PROTOCOL, METADATA, add("a"), add("b")], [remove("a")]])
    for version in (None, 0, 1):
        snapshot = SqlTxnLogReader(store, table).snapshot(version)
        assert snapshot.files().schema.equals(FILES_SCHEMA)
        assert snapshot.tombstones().schema.equals(TOMBSTONES_SCHEMA)
        some = snapshot.files(["size", "path"]).read_all()
        assert some.schema.names == ["size", "path"]
        assert some.num_rows == (2 if version == 0 else 1)
    with pytest.raises(KeyError):
        SqlTxnLogReader(store, table).snapshot().files(["path; drop table dl_tables"])


def test_an_opened_table_answers_from_what_opening_read(store: Store) -> None:
    table = register(store)
    load(store, table, [[PROTOCOL, METADATA, add("a")], [add("b")]])
    with store.read(single=True) as conn:
        opened = reg.open_table(conn, "SALES", "Orders")
        assert reg.open_table(conn, "sales", "none") is None
    assert opened is not None
    snapshot = SqlSnapshot.of_open_table(store, opened)
    load(store, table, [[remove("a")]], start=2)
    assert (snapshot.version, snapshot.timestamp_ms) == (1, 2000)
    assert (snapshot.protocol, snapshot.metadata) == (PROTOCOL, METADATA)
    assert {path for path, _ in files_of(snapshot)} == {"a", "b"}, "a later commit does not change an opened snapshot"
    assert snapshot.totals().num_files == 2
    assert SqlTxnLogReader(store, table).snapshot().totals().num_files == 1


def test_a_table_without_versions_says_so(store: Store) -> None:
    log = SqlTxnLogReader(store, register(store))
    for ask in (log.latest_version, log.earliest_version, log.snapshot, lambda: list(log.commits(0)), log.lineage):
        with pytest.raises(TableNotFoundError, match=r"sales\.orders has no versions"):
            ask()
    with pytest.raises(TableNotFoundError):
        log.version_at(5)
    assert log.history() == []
    with store.read(single=True) as conn:
        assert reg.open_table(conn, "sales", "orders") is None


def base_state(version: int, *paths: str) -> BaseState:
    rows = [
        {
            "path": to_sql_text(path),
            "partition_values": '{"day":"mon"}',
            "size": 100,
            "modification_time": 1,
            "data_change": True,
            "extra": "",
        }
        for path in paths
    ]
    batches = pa.Table.from_pylist(rows, schema=FILES_SCHEMA).to_batches()
    return BaseState(version, 1000 + version * 1000, PROTOCOL, METADATA, [], [], batches, [])


def test_a_history_that_starts_at_a_checkpoint_says_what_is_missing(store: Store) -> None:
    table = register(store)
    load(store, table, [[add("n")]], start=8, base=base_state(7, "a", "b"))
    log = SqlTxnLogReader(store, table)
    assert (log.earliest_version(), log.latest_version(), list(log.versions())) == (7, 8, [7, 8])
    assert {path for path, _ in files_of(log.snapshot(7))} == {"a", "b"}
    assert (log.has_commit(7), log.has_commit(8), log.has_commit(9)) == (False, True, False)
    with pytest.raises(
        VersionNotFoundError, match="version 3 lies before the history in the database, which starts at 7"
    ):
        log.snapshot(3)
    with pytest.raises(VersionNotFoundError, match="lies before"):
        log.snapshot(-1)
    with pytest.raises(VersionNotFoundError, match="version 9 was not committed yet, the newest is 8"):
        log.snapshot(9)
    with pytest.raises(VersionNotFoundError, match="7 was taken from a checkpoint.*commits follow from version 8"):
        list(log.commits(7))
    with pytest.raises(VersionNotFoundError, match="before"):
        list(log.commits(2, 8))
    with pytest.raises(VersionNotFoundError, match="not committed yet"):
        list(log.commits(8, 9))
    with pytest.raises(VersionNotFoundError, match="first kept version is 7, committed at 8000 ms"):
        log.version_at(7999)
    assert [commit.version for commit in log.commits(8)] == [8]
    assert list(log.commits(9)) == []


def test_a_gap_in_the_history_says_what_is_around_it(store: Store) -> None:
    table = register(store)
    load(store, table, [[PROTOCOL, METADATA, add("a")], [add("b")]])
    load(store, table, [[add("d")]], start=6, base=base_state(5, "b", "c"))
    log = SqlTxnLogReader(store, table)
    assert list(log.versions()) == [0, 1, 5, 6]
    found = {version: {path for path, _ in files_of(log.snapshot(version))} for version in log.versions()}
    assert found == {0: {"a"}, 1: {"a", "b"}, 5: {"b", "c"}, 6: {"b", "c", "d"}}
    with pytest.raises(VersionNotFoundError, match="versions 2 to 4 were cleaned up.*nearest kept ones are 1 and 5"):
        log.snapshot(3)
    with pytest.raises(VersionNotFoundError, match="3"):
        log.diff(3, 6)
    with pytest.raises(VersionNotFoundError, match="between 1 and 5.*up to 2000 or from 6000"):
        log.version_at(3000)
    assert [log.version_at(at_ms) for at_ms in (1000, 2000, 6000, 9000)] == [0, 1, 5, 6]
    difference = log.diff(1, 6)
    assert (sorted(difference.added["path"].to_pylist()), difference.removed["path"].to_pylist()) == (["c", "d"], ["a"])


def test_differences_go_both_ways_and_tell_of_metadata_and_protocol(store: Store) -> None:
    table = register(store)
    changed = Metadata("id-1", Format(), METADATA.schema_string, ("day",), {"delta.appendOnly": "true"})
    load(store, table, [[PROTOCOL, METADATA, add("a")], [add("b"), remove("a"), changed], [Protocol(1, 3)]])
    log = SqlTxnLogReader(store, table)
    forth, back = log.diff(0, 1), log.diff(1, 0)
    assert (forth.added["path"].to_pylist(), forth.removed["path"].to_pylist()) == (["b"], ["a"])
    assert (back.added["path"].to_pylist(), back.removed["path"].to_pylist()) == (["a"], ["b"])
    assert (forth.metadata_changed, forth.protocol_changed) == (True, False)
    assert (log.diff(1, 2).metadata_changed, log.diff(1, 2).protocol_changed) == (False, True)
    assert log.diff(0, 0).added.num_rows == 0


def test_history_and_lineage_are_newest_first(store: Store) -> None:
    table = register(store)
    load(store, table, [[PROTOCOL, METADATA, info("CREATE")], [add("a"), info("WRITE")], [add("b")]])
    log = SqlTxnLogReader(store, table)
    assert [(entry.version, entry.operation) for entry in log.history()] == [(2, None), (1, "WRITE"), (0, "CREATE")]
    assert [entry.version for entry in log.history(2)] == [2, 1]
    assert [entry.version for entry in log.history(since_ms=2000, until_ms=2999)] == [1]
    entry = log.history()[1]
    assert entry.operation_parameters == {"mode": "x"}
    assert (entry.num_added_files, entry.num_removed_files, entry.timestamp_ms) == (1, 0, 2000)
    assert entry.commit_info == info("WRITE")
    assert [(line.version, line.num_files, line.size_bytes) for line in log.lineage()] == [
        (2, 1, 100),
        (1, 1, 100),
        (0, 0, 0),
    ]
    assert [line.version for line in log.lineage(0)] == [0]


def test_an_older_version_is_read_from_the_side_with_fewer_rows(store: Store) -> None:
    table = register(store)
    rewrites: list[list[Action]] = [
        [*(remove(f"f{version - 1}-{n}") for n in range(4)), *(add(f"f{version}-{n}") for n in range(4))]
        for version in range(1, 9)
    ]
    load(store, table, [[PROTOCOL, METADATA, *(add(f"f0-{n}") for n in range(4))], *rewrites])
    log = SqlTxnLogReader(store, table)
    sides = []
    for version in range(9):
        snapshot = log.snapshot(version)
        with store.read() as conn:
            sides.append(snapshot._files_query(conn)[0])
        assert {path for path, _ in files_of(snapshot)} == {f"f{version}-{n}" for n in range(4)}
    early, late, head = "select_files_added_up_to", "select_files_removed_after", "select_live_files"
    assert sides == [early] * 5 + [late] * 3 + [head]


@pytest.mark.parametrize("has_driver", [True, False])
def test_large_listings_are_pinned_to_their_version(
    store: Store, monkeypatch: pytest.MonkeyPatch, has_driver: bool
) -> None:
    monkeypatch.setattr(snapshots, "LARGE_RESULT", 2)
    if not has_driver:
        monkeypatch.setitem(sys.modules, "adbc_driver_postgresql", None)
    table = register(store)
    load(store, table, [EVERYTHING, [add("a"), add("b")]])
    log = SqlTxnLogReader(store, table)
    head = log.snapshot()
    before = files_of(head)
    assert {path for path, _ in before} >= {"a", "b"}
    load(store, table, [[remove("a"), add("c")]], start=2)
    assert files_of(head) == before
    assert {path for path, _ in files_of(log.snapshot())} == {path for path, _ in before} - {"a"} | {"c"}
    assert head.files().schema.equals(FILES_SCHEMA)


def test_many_commits_are_read_in_chunks(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "CHUNK_ACTIONS", 7)
    table = register(store)
    commits: list[list[Action]] = [
        [add(f"f{version}-{number}") for number in range(version % 4)] for version in range(20)
    ]
    commits[0] = [PROTOCOL, METADATA]
    commits[9] = []
    made = load(store, table, commits)
    log = SqlTxnLogReader(store, table)
    assert list(log.commits(0)) == made
    assert list(log.commits(5, 12)) == made[5:13]


NAMES = st.sampled_from(["a", "b", "c", "d", "e"])
VECTORS = st.sampled_from([None, DeletionVector("u", "x", 1, 1), DeletionVector("u", "y", 1, 2)])
CHANGES = st.one_of(
    st.builds(lambda name, vector, low: add(name, low=low, deletion_vector=vector), NAMES, VECTORS, st.integers(0, 3)),
    st.builds(lambda name, vector: remove(name, deletion_vector=vector), NAMES, VECTORS),
    st.builds(AppTransaction, NAMES, st.integers(0, 5)),
    st.builds(DomainMetadata, NAMES, st.just("{}"), st.booleans()),
)
HISTORIES = st.lists(
    st.lists(CHANGES, max_size=5, unique_by=lambda action: getattr(action, "key", repr(action)[:20])), max_size=8
)
_numbers = itertools.count()


@settings(max_examples=sized(8, 200))
@given(history=HISTORIES, cut=st.integers(0, 8))
def test_the_snapshot_at_every_version_is_the_replay_up_to_it(
    store: Store, history: list[list[Action]], cut: int
) -> None:
    table = register(store, f"t{next(_numbers)}")
    commits: list[list[Action]] = [[PROTOCOL, METADATA], *history]
    made = load(store, table, commits[:cut] or commits[:1])
    made += load(store, table, commits[len(made) :], start=len(made))
    log = SqlTxnLogReader(store, table)
    assert list(log.commits(0)) == made
    state = SnapshotState()
    for commit in made:
        for action in commit.actions:
            state.apply(action)
        snapshot = log.snapshot(commit.version)
        assert files_of(snapshot) == state.files
        assert tombstones_of(snapshot) == state.tombstones
        assert snapshot.app_transactions() == state.app_transactions
        assert snapshot.domain_metadata() == state.domain_metadata
        totals = snapshot.totals()
        assert (totals.num_files, totals.size_bytes) == (len(state.files), 100 * len(state.files))
    with store.read() as conn:
        counted = conn.one("count_live_files", table_id=table.table_id)
        head = reg.read_head(conn, table.table_id)
    assert counted is not None
    assert head is not None
    for name, value in counted.items():
        assert int(value or 0) == getattr(head, name), name
