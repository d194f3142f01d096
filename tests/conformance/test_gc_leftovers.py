"""Garbage collection beside versions: dropped tables, transactions, leases, the audit trail."""

from __future__ import annotations

from dataclasses import replace

import pytest

from deltalakedb.store import Store
from deltalakedb.store import registry as reg
from deltalakedb.store.audit import read_audit, write_audit
from deltalakedb.store.gc import GcReport, collect_garbage
from tests.conformance.collecting import DAY, EVERYTHING, KEPT, row_counts
from tests.conformance.histories import METADATA, PROTOCOL, add, load, register
from tests.conformance.proposing import drop as drop_row


def drop(store: Store, table: reg.TableRow, days_ago: float) -> None:
    with store.write() as conn:
        drop_row(conn, table, at_ms=conn.now_ms())
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
        reg.change_table(conn, old_table.table_id, at_ms=conn.now_ms(), mode="managed")
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
        write_audit(conn, action="attach", at_ms=conn.now_ms() - 99 * DAY, table=old_table)
    assert collect_garbage(store, EVERYTHING).audit_rows_removed == 0
    kept = replace(EVERYTHING, audit_ms=50 * DAY)
    assert collect_garbage(store, kept, dry_run=True).audit_rows_removed == 1
    assert collect_garbage(store, kept).audit_rows_removed == 1
    with store.read() as conn:
        (left,) = read_audit(conn)
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
        assert read_audit(conn) == []
