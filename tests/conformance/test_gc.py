"""Garbage collection removes what no retention promises, and nothing else: every kept version is as it was."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from deltalakedb.exceptions import CommitFailedError, StoreError, VersionNotFoundError
from deltalakedb.log.actions import Action
from deltalakedb.log.commit import Commit
from deltalakedb.log.predicate import parse_predicate
from deltalakedb.log.types import parse_schema
from deltalakedb.store import Store, gc
from deltalakedb.store import registry as reg
from deltalakedb.store import snapshot as snapshot_module
from deltalakedb.store.action_values import to_metadata
from deltalakedb.store.gc import GcReport, Retention, collect_garbage
from deltalakedb.store.loader import Loader
from deltalakedb.store.planning import plan
from deltalakedb.store.reader import SqlTxnLogReader
from tests.conformance.conftest import OpenStore
from tests.conformance.histories import METADATA, PROTOCOL, add, info, load, register, remove
from tests.conformance.transacting import ids_in, ids_of, numbers, open_catalog
from tests.fixtures.random_log import RandomLog, seeds

DAY = 86_400_000
KEPT = Retention(log_ms=30 * DAY, deleted_file_ms=7 * DAY)
EVERYTHING = Retention(log_ms=0, deleted_file_ms=0)
PREDICATE = "id between -20 and 30 and day = 'mon'"
Portrait = dict[str, Any]


def now_ms(store: Store) -> int:
    with store.read() as conn:
        return conn.now_ms()


def append(store: Store, table: reg.TableRow, commits: Sequence[Sequence[Action]], first_ms: int, step_ms: int) -> None:
    """Load commits after the head, so many milliseconds apart."""
    with store.write() as conn:
        head = reg.lock_head(conn, table.table_id)
        row = conn.one("select_metadata", table_id=table.table_id, version=head.metadata_version) if head else None
        metadata = to_metadata(row) if row else None
        loader = Loader(conn, table.table_id, table=table.full_name, head=head, metadata=metadata)
        start = loader.current_version + 1
        for version, actions in enumerate(commits, start=start):
            loader.append(Commit(version, first_ms + version * step_ms, (*actions, info("WRITE")), None))
        loader.finish()


def portrait(store: Store, table: reg.TableRow, version: int, tombstones_since_ms: int) -> Portrait:
    """Everything a version says of itself, except where its history starts."""
    reader = SqlTxnLogReader(store, table)
    snapshot = reader.snapshot(version)
    files = snapshot.files_table().sort_by([("path", "ascending"), ("deletion_vector", "ascending")]).to_pylist()
    tombstones = snapshot.tombstones().read_all().to_pylist()
    schema = parse_schema(snapshot.metadata.schema_string)
    with store.read() as conn:
        opened = reg.open_table(conn, table.namespace, table.name)
        assert opened is not None
        planned = plan(conn, opened, parse_predicate(PREDICATE, schema, ["day"]), version=version)
    return {
        "files": files,
        "totals": snapshot.totals(),
        "protocol": snapshot.protocol,
        "metadata": snapshot.metadata,
        "apps": snapshot.app_transactions(),
        "domains": snapshot.domain_metadata(),
        "tombstones": sorted(
            (row for row in tombstones if row["deletion_timestamp"] >= tombstones_since_ms),
            key=lambda row: (row["path"], row["deletion_vector"] or ""),
        ),
        "timestamp": snapshot.timestamp_ms,
        "planned": (planned.num_files, planned.num_pruned, sorted(planned.files["path"].to_pylist())),
        "lineage": sum(entry.num_files for entry in reader.lineage(version)),
        "history": [replace(entry, is_base=False) for entry in reader.history() if entry.version == version],
    }


def row_counts(store: Store, table: reg.TableRow) -> dict[str, int]:
    with store.read() as conn:
        return {name: int(count) for name, count in (conn.one("count_dropped", table_id=table.table_id) or {}).items()}


def head_of(store: Store, table: reg.TableRow) -> reg.Head:
    with store.read() as conn:
        head = reg.read_head(conn, table.table_id)
    assert head is not None
    return head


@pytest.fixture
def old_table(store: Store) -> reg.TableRow:
    """Versions 0 to 9, a day apart, the newest two days old."""
    table = register(store)
    start = now_ms(store) - 11 * DAY
    commits: list[list[Action]] = [[PROTOCOL, METADATA, add("f0")]]
    commits += [[add(f"f{number}"), remove(f"f{number - 1}")] for number in range(1, 10)]
    append(store, table, commits, start, DAY)
    return table


def keep_days(days: float, **values: int) -> Retention:
    return Retention(**{"log_ms": int(days * DAY), "deleted_file_ms": 0, **values})


# -- the law


@pytest.mark.parametrize("seed", seeds(4))
def test_every_kept_version_is_as_it_was(store: Store, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    batch = (10_000, 3, 10_000, 7)[seed % 4]
    monkeypatch.setattr(gc, "BATCH_ROWS", batch)
    monkeypatch.setattr(gc, "BATCH_VERSIONS", batch)
    count, cut = 24, 6 + seed % 4 * 5
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
        reg.change_table(conn, replace(old_table, mode="managed"), at_ms=conn.now_ms())
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
    with pytest.raises(StoreError, match="version 2 (is no longer in|was removed by)"):
        batches.read_all()
    with pytest.raises(StoreError, match="version 2 is no longer in the database"):
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


# -- dropped tables, transactions, leases, audit


def drop(store: Store, table: reg.TableRow, days_ago: float) -> None:
    with store.write() as conn:
        reg.unregister_table(conn, table.table_id, at_ms=conn.now_ms())
        at_ms = conn.now_ms() - int(days_ago * DAY)
        conn.sql(
            "update dl_tables set from_ms = :at - 1, until_ms = :at where table_id = :id returning table_id",
            at=at_ms, id=table.table_id,
        )  # fmt: skip


def test_of_a_dropped_table_everything_goes_after_the_retention(store: Store, old_table: reg.TableRow) -> None:
    kept = register(store, "kept")
    load(store, kept, [[PROTOCOL, METADATA, add("a")]])
    drop(store, old_table, days_ago=31)
    expected = collect_garbage(store, KEPT, dry_run=True)
    assert row_counts(store, old_table)["versions"] == 10
    report = collect_garbage(store, KEPT)
    assert expected.tables == report.tables
    gone = next(done for done in report.tables if done.dropped)
    assert (gone.base_version, gone.versions_removed) == (None, 10)
    assert set(row_counts(store, old_table).values()) == {0}
    assert row_counts(store, kept)["files"] == 1


def test_a_table_dropped_within_the_retention_is_still_in_the_catalog_as_it_was(
    store: Store, old_table: reg.TableRow
) -> None:
    drop(store, old_table, days_ago=29)
    (done,) = collect_garbage(store, KEPT).tables
    assert (done.dropped, done.kept_because, done.rows_removed) == (True, "dropped within the retention", 0)
    assert row_counts(store, old_table)["versions"] == 10


def test_a_dropped_table_waits_for_its_mirror(store: Store, old_table: reg.TableRow) -> None:
    with store.write() as conn:
        reg.change_table(conn, replace(old_table, mode="managed"), at_ms=conn.now_ms())
        conn.run("mark_mirrored", table_id=old_table.table_id, version=7)
        conn.sql("delete from dl_tables where until_ms < 9223372036854775807 returning table_id")
    drop(store, old_table, days_ago=99)
    (done,) = collect_garbage(store, KEPT).tables
    assert "`_delta_log` has only version 7 of 9" in str(done.kept_because)
    assert row_counts(store, old_table)["versions"] == 10


def add_transaction(store: Store, name: str, days_ago: float) -> None:
    with store.write() as conn:
        values = {"client_token": f"token of {name}", "actor": None, "message": None}
        at_ms = conn.now_ms() - int(days_ago * DAY)
        conn.run("restore_transaction", txn_id=name, committed_at_ms=at_ms, **values)


def transactions(store: Store) -> set[str]:
    return set(store.select("select txn_id from dl_transactions")["txn_id"].to_pylist())


@pytest.mark.usefixtures("old_table")
def test_transactions_without_versions_go_and_the_others_stay(store: Store) -> None:
    for name, days_ago in {"gone": 99, "of version 9": 98, "recent": 0.5}.items():
        add_transaction(store, name, days_ago)
    with store.write() as conn:
        conn.sql("update dl_table_versions set txn_id = 'of version 9' where version = 9 returning version")
        conn.sql("update dl_table_versions set txn_id = 'gone' where version = 2 returning version")
    assert collect_garbage(store, EVERYTHING, dry_run=True).transactions_removed == 0  # version 2 is still there
    assert collect_garbage(store, EVERYTHING).transactions_removed == 1
    assert transactions(store) == {"of version 9", "recent"}


def test_the_newest_transaction_stays_because_time_is_counted_from_it(store: Store) -> None:
    add_transaction(store, "older", 99)
    add_transaction(store, "newest", 98)
    assert collect_garbage(store, EVERYTHING).transactions_removed == 1
    assert transactions(store) == {"newest"}


def test_the_audit_trail_is_kept_unless_somebody_says_otherwise(store: Store, old_table: reg.TableRow) -> None:
    with store.write() as conn:
        reg.write_audit(conn, action="attach", at_ms=conn.now_ms() - 99 * DAY, table=old_table)
    assert collect_garbage(store, EVERYTHING).audit_rows_removed == 0
    kept = replace(EVERYTHING, audit_ms=50 * DAY)
    assert collect_garbage(store, kept, dry_run=True).audit_rows_removed == 1
    assert collect_garbage(store, kept).audit_rows_removed == 1
    with store.read() as conn:
        (left,) = reg.read_audit(conn)
    assert (left.action, left.table_name) == ("gc", "sales.orders")
    assert left.details is not None
    assert (left.details["from"], left.details["base"]) == (0, 8)


def test_claims_of_the_dead_are_forgotten(store: Store) -> None:
    with store.write() as conn:
        now = conn.now_ms()
        for name, until_ms in {"dead": now - DAY, "alive": now + DAY, "just over": now - 1000}.items():
            conn.run("take_lease", lease=name, holder="x", until_ms=until_ms, now_ms=now)
    assert collect_garbage(store, KEPT, dry_run=True).leases_removed == 1
    assert collect_garbage(store, KEPT).leases_removed == 1
    assert store.select("select lease from dl_leases order by lease")["lease"].to_pylist() == ["alive", "just over"]


def test_one_table_can_be_collected_alone(store: Store, old_table: reg.TableRow) -> None:
    other = register(store, "other")
    load(store, other, [[PROTOCOL, METADATA], [add("a")], [add("b")]])
    report: GcReport = collect_garbage(store, EVERYTHING, table=other)
    assert [done.table.name for done in report.tables] == ["other"]
    assert row_counts(store, old_table)["versions"] == 10


def test_a_dry_run_changes_nothing(store: Store, old_table: reg.TableRow) -> None:
    counts = row_counts(store, old_table)
    report = collect_garbage(store, EVERYTHING, dry_run=True)
    assert report.dry_run
    assert report.rows_removed > 0
    assert row_counts(store, old_table) == counts
    with store.read() as conn:
        assert reg.read_audit(conn) == []
