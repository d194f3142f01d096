"""Garbage collection removes what no retention promises, and nothing else: every kept version is as it was."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from deltalakedb.exceptions import CommitFailedError, VersionNotFoundError
from deltalakedb.log.protocol.actions import Action
from deltalakedb.store import Store, gc
from deltalakedb.store import registry as reg
from deltalakedb.store import snapshot as snapshot_module
from deltalakedb.store.gc import Retention, collect_garbage
from deltalakedb.store.reader import SqlTxnLogReader
from tests.conformance.collecting import DAY, EVERYTHING, KEPT, append, head_of, keep_days, now_ms, portrait, row_counts
from tests.conformance.conftest import OpenStore
from tests.conformance.histories import METADATA, PROTOCOL, add, load, register, remove
from tests.conformance.transacting import ids_in, ids_of, numbers, open_catalog
from tests.fixtures.random_log import RandomLog
from tests.fixtures.sizes import sized

# -- the law


@pytest.mark.in_turn
@pytest.mark.parametrize("seed", range(sized(3, 100)))
def test_every_kept_version_is_as_it_was(store: Store, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    batch = (10_000, 3, 10_000, 7)[seed % 4]
    monkeypatch.setattr(gc, "BATCH_ROWS", batch)
    monkeypatch.setattr(gc, "BATCH_VERSIONS", batch)
    count = sized(16, 24)
    cut = count // 4 + seed % 4 * (count // 5)
    start = now_ms(store) - (count + 1) * DAY
    log, table = RandomLog(seed, start_ms=start, step_ms=DAY), register(store)
    append(store, table, log.commits(count), start, DAY)
    retention = keep_days(count + 1 - cut - 0.5, deleted_file_ms=(count + 1 - cut + 3) * DAY)
    expired_ms = now_ms(store) - retention.deleted_file_ms + 60_000
    reader = SqlTxnLogReader(store, table)
    before = {version: portrait(store, table, version, expired_ms) for version in range(cut, count + 1)}
    commits = list(reader.commits(cut + 1))
    head = head_of(store, table)
    expected = collect_garbage(store, retention, dry_run=True)

    report = collect_garbage(store, retention)

    (done,) = report.tables
    assert (done.first_version, done.base_version, done.versions_removed) == (0, cut, cut)
    assert (expected.tables, expected.rows_removed) == (report.tables, report.rows_removed)
    assert list(reader.versions()) == list(range(cut, count + 1))
    assert {version: portrait(store, table, version, expired_ms) for version in before} == before
    assert list(reader.commits(cut + 1)) == commits
    assert head_of(store, table) == replace(head, base_version=cut)
    # Nothing is left over, and life goes on.
    assert collect_garbage(store, retention).rows_removed == 0
    append(store, table, [log.next() for _ in range(6)], start, DAY)
    for version in range(cut, count + 7):
        totals = reader.snapshot(version).totals()
        counted = (totals.num_files, totals.size_bytes, totals.num_records, totals.files_without_records)
        assert counted == log.states[version].counters


# -- where the history starts


def test_the_newest_version_before_the_cut_off_becomes_the_base(store: Store, old_table: reg.TableRow) -> None:
    (done,) = collect_garbage(store, keep_days(5.5)).tables
    assert (done.base_version, done.versions_removed) == (5, 5)
    reader = SqlTxnLogReader(store, old_table)
    assert (reader.earliest_version(), reader.has_commit(5), reader.has_commit(6)) == (5, False, True)
    # Every instant since the cut-off can still be asked for.
    assert reader.version_at(now_ms(store) - int(5.5 * DAY)) == 5
    counts = row_counts(store, old_table)
    assert (counts["versions"], counts["files"], counts["tombstones"]) == (5, 5, 4)


def test_a_version_that_is_gone_says_why_and_what_there_is(store: Store, old_table: reg.TableRow) -> None:
    collect_garbage(store, keep_days(5.5))
    reader = SqlTxnLogReader(store, old_table)
    with pytest.raises(VersionNotFoundError, match="version 3 .* starts at 5 because `dl gc` removed what was older"):
        reader.snapshot(3)
    with pytest.raises(VersionNotFoundError, match="first kept version is 5.*because `dl gc` removed"):
        reader.version_at(now_ms(store) - 8 * DAY)
    with pytest.raises(VersionNotFoundError, match="left as a base by `dl gc`.*commits follow from version 6"):
        list(reader.commits(5))


def test_the_newest_commit_stays_a_commit(store: Store, old_table: reg.TableRow) -> None:
    (done,) = collect_garbage(store, EVERYTHING).tables
    reader = SqlTxnLogReader(store, old_table)
    assert (done.base_version, list(reader.versions()), reader.has_commit(9)) == (8, [8, 9], True)


def test_the_tables_own_retention_goes_before_the_setting(store: Store) -> None:
    table = register(store)
    settings = {
        "delta.logRetentionDuration": "interval 3 days",
        "delta.deletedFileRetentionDuration": "interval 9 days",
    }
    start = now_ms(store) - 11 * DAY
    append(store, table, [[PROTOCOL, replace(METADATA, configuration=settings)]], start, DAY)
    append(store, table, [[add(f"f{number}")] for number in range(9)], start, DAY)
    (done,) = collect_garbage(store, KEPT).tables
    assert done.base_version == 8


@pytest.mark.parametrize(
    ("setting", "value", "because"),
    [
        ("delta.enableExpiredLogCleanup", "false", "delta.enableExpiredLogCleanup is false"),
        ("delta.logRetentionDuration", "a while", "'a while' is not an interval"),
    ],
)
def test_a_table_that_wants_to_keep_everything_keeps_everything(
    store: Store, setting: str, value: str, because: str
) -> None:
    table = register(store)
    append(store, table, [[PROTOCOL, replace(METADATA, configuration={setting: value})], [add("a")]], 1000, 1000)
    counts = row_counts(store, table)
    (done,) = collect_garbage(store, EVERYTHING).tables
    assert because in str(done.kept_because)
    assert (done.rows_removed, row_counts(store, table)) == (0, counts)


def test_what_is_not_mirrored_yet_stays(store: Store, old_table: reg.TableRow) -> None:
    with store.write() as conn:
        reg.change_table(conn, old_table.table_id, at_ms=conn.now_ms(), mode="managed")
        conn.run("mark_mirrored", table_id=old_table.table_id, version=3)
    (done,) = collect_garbage(store, EVERYTHING).tables
    assert done.base_version == 3
    assert "`_delta_log` has only version 3 of 9" in str(done.kept_because)
    assert [commit.version for commit in SqlTxnLogReader(store, old_table).commits(4)] == [4, 5, 6, 7, 8, 9]


def test_of_a_single_old_version_nothing_is_removed(store: Store) -> None:
    table = register(store)
    load(store, table, [[PROTOCOL, METADATA, add("a")]])
    assert collect_garbage(store, EVERYTHING).rows_removed == 0
    assert SqlTxnLogReader(store, table).has_commit(0)


def test_a_gap_in_the_history_is_no_place_to_start(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.conformance.test_reader import base_state

    monkeypatch.setattr(gc, "BATCH_VERSIONS", 2)
    table = register(store)
    load(store, table, [[PROTOCOL, METADATA, add("a")], [add("b")], [add("c")], [add("d")]])
    load(store, table, [[add("x")]], start=10, base=base_state(version=9))
    (done,) = collect_garbage(store, EVERYTHING).tables
    assert done.base_version == 9
    assert list(SqlTxnLogReader(store, table).versions()) == [9, 10]


def test_tombstones_stay_as_long_as_checkpoints_list_them(store: Store, old_table: reg.TableRow) -> None:
    before = {row["path"] for row in SqlTxnLogReader(store, old_table).snapshot().tombstones().read_all().to_pylist()}
    collect_garbage(store, Retention(0, deleted_file_ms=now_ms(store)))  # older than the deletions of `remove`
    after = {row["path"] for row in SqlTxnLogReader(store, old_table).snapshot().tombstones().read_all().to_pylist()}
    assert after == before == {f"f{number}" for number in range(9)}


def test_checkpoints_still_list_removals_that_are_older_than_the_history(store: Store) -> None:
    table, start = register(store), now_ms(store) - 11 * DAY
    commits: list[list[Action]] = [[PROTOCOL, METADATA, *(add(f"f{number}") for number in range(9))]]
    commits += [[replace(remove(f"f{number}"), deletion_timestamp=start + (number + 1) * DAY)] for number in range(9)]
    append(store, table, commits, start, DAY)
    snapshot = SqlTxnLogReader(store, table).snapshot()

    def listed() -> list[str]:
        since_ms = now_ms(store) - int(6.5 * DAY)
        return sorted(snapshot.tombstones(since_ms).read_all()["path"].to_pylist())

    before = listed()
    collect_garbage(store, keep_days(2.5, deleted_file_ms=7 * DAY))
    assert SqlTxnLogReader(store, table).earliest_version() == 8
    assert listed() == before == ["f4", "f5", "f6", "f7", "f8"]


def test_a_version_that_goes_while_its_files_are_read_is_not_read_half(
    store: Store, old_table: reg.TableRow, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshot_module, "LARGE_RESULT", 1)
    old = SqlTxnLogReader(store, old_table).snapshot(2)
    assert old.files_table()["path"].to_pylist() == ["f2"]
    batches = old.files()
    collect_garbage(store, EVERYTHING)
    with pytest.raises(VersionNotFoundError, match="version 2 .* because `dl gc` removed"):
        batches.read_all()
    with pytest.raises(VersionNotFoundError, match="version 2 .* because `dl gc` removed"):
        old.files_table()


# -- beside others


def test_an_interrupted_run_loses_nothing_and_the_next_one_finishes_it(
    store: Store, old_table: reg.TableRow, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gc, "BATCH_ROWS", 1)
    monkeypatch.setattr(gc, "BATCH_VERSIONS", 2)
    retention = keep_days(5.5)
    before = {version: portrait(store, old_table, version, 0) for version in range(5, 10)}
    for steps in (1, 3, 5):
        with pytest.raises(InterruptedError):
            collect_garbage(store, retention, progress=Interrupt(steps))
        after = {version: portrait(store, old_table, version, 0) for version in range(5, 10)}
        assert {version: shown | {"tombstones": 0} for version, shown in after.items()} == {
            version: shown | {"tombstones": 0} for version, shown in before.items()
        }
    collect_garbage(store, retention)
    assert row_counts(store, old_table)["files"] == 5
    assert collect_garbage(store, retention).rows_removed == 0


class Interrupt:
    """A progress bar that stops the run after so many steps."""

    def __init__(self, steps: int) -> None:
        self._left = steps

    def __call__(self, _count: int) -> None:
        self._left -= 1
        if self._left < 0:
            raise InterruptedError


def test_writers_go_on_meanwhile(
    store: Store, old_table: reg.TableRow, open_again: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gc, "BATCH_ROWS", 1)
    monkeypatch.setattr(gc, "BATCH_VERSIONS", 1)
    writer = open_again()
    failures: list[BaseException] = []

    def write() -> None:
        try:
            for number in range(8):
                append(
                    writer,
                    old_table,
                    [[add(f"new{number}"), remove("f9" if number == 0 else f"new{number - 1}")]],
                    now_ms(writer),
                    1,
                )
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=write)
    thread.start()
    (done,) = collect_garbage(store, keep_days(5.5)).tables
    thread.join()
    assert failures == []
    assert done.base_version == 5
    reader = SqlTxnLogReader(store, old_table)
    assert list(reader.versions()) == list(range(5, 18))
    assert [reader.snapshot(version).files_table()["path"].to_pylist() for version in (5, 9, 17)] == [
        ["f5"],
        ["f9"],
        ["new7"],
    ]
    assert (head_of(store, old_table).current_version, head_of(store, old_table).base_version) == (17, 5)


def test_a_transaction_whose_winners_are_gone_is_refused_and_a_blind_append_is_not(target: str, tmp_path: Path) -> None:
    with open_catalog(target, tmp_path) as catalog:
        catalog.create_table("s.t", "id long")
        reads, appends = catalog.begin(), catalog.begin()
        assert reads.table("s.t").to_pyarrow_table().num_rows == 0
        reads.write("s.t", numbers(1), mode="append")
        appends.write("s.t", numbers(2), mode="append")
        for number in (3, 4, 5):
            with catalog.begin() as tx:
                tx.write("s.t", numbers(number), mode="append")
        catalog.mirror.flush()
        (done,) = collect_garbage(catalog.store, EVERYTHING).tables
        assert done.base_version == 2
        with pytest.raises(CommitFailedError, match="read version 0, and `dl gc` has removed the commits up to 2"):
            reads.commit()
        appends.commit()
        assert ids_in(catalog, "s.t") == [2, 3, 4, 5]


def test_the_catalog_at_every_instant_of_the_retention_is_as_it_was(target: str, tmp_path: Path) -> None:
    with open_catalog(target, tmp_path) as catalog:
        for name in ("s.a", "s.b"):
            catalog.create_table(name, "id long")
        instants: list[int | str] = []
        for number in range(4):
            with catalog.begin() as tx:
                tx.write("s.a", numbers(number), mode="append")
                if number % 2:
                    tx.write("s.b", numbers(number), mode="append")
            instants.append(tx.txn_id)
            time.sleep(0.4)
            instants.append(now_ms(catalog.store) - 200)
        catalog.mirror.flush()

        def shown(instant: int | str) -> list[list[int]]:
            return [ids_of(catalog.at(instant).table(name)) for name in ("s.a", "s.b")]

        before = {instant: shown(instant) for instant in instants[3:]}
        cutoff_ms = instants[3]
        assert isinstance(cutoff_ms, int)
        collect_garbage(catalog.store, Retention(now_ms(catalog.store) - cutoff_ms, 0))
        assert SqlTxnLogReader(catalog.store, catalog.table("s.a")._sql().row).earliest_version() == 2
        assert {instant: shown(instant) for instant in instants[3:]} == before
        with pytest.raises(VersionNotFoundError, match="because `dl gc` removed"):
            shown(instants[1])
