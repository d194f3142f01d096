"""Garbage collection: removes expired history from SQL, in small transactions.

A table's history is cut at a base: the newest version that is older than the retention. Its state is kept, so every
version since the cut-off can still be opened. The versions before the base are removed, with the rows that no kept
version uses. The version rows are removed first, in the transaction that moves `base_version`: from then on the removed
versions cannot be opened, and a writer that read an older version knows that not all of its winners are kept. Later
steps only remove rows that cannot be reached, so an interrupted run loses nothing, and the next run finishes it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from deltalakedb.log.checks.properties import cleans_up, deleted_file_retention_ms, log_retention_ms
from deltalakedb.store import registry
from deltalakedb.store.audit import write_audit
from deltalakedb.store.connection import LIVE, Connection, Row, Store
from deltalakedb.store.iceberg_files import list_key, remove_snapshots
from deltalakedb.store.locations import DROPPED, PURGING
from deltalakedb.store.registry import TableRow, to_table_row

BATCH_ROWS = 10_000
"""Rows removed in one transaction: the longest that writers wait for."""

BATCH_VERSIONS = 1_000
"""Versions retired in one transaction, under the lock of the table's head."""

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
TOKENS_KEPT_MS = DAY_MS
"""How long a commit can be repeated with its token, whatever the retention."""

# Batched: each removes at most :max_rows rows. The base of a dropped table is above every version.
_OLD_ROWS = (
    "delete_dead_files",
    "delete_old_cdc_files",
    "delete_old_other_actions",
    "delete_old_txn_actions",
    "delete_old_domains",
    "delete_old_iceberg_versions",
    "delete_old_iceberg_snapshots",
)
_OLD_STATES = ("delete_old_metadata", "delete_old_protocols")
_DROPPED_MANY = ("delete_dropped_bounds", "delete_dropped_iceberg_files", "delete_dropped_iceberg_lists")
_DROPPED_ROWS = (
    "delete_dropped_metadata",
    "delete_dropped_protocols",
    "delete_dropped_txn_actions",
    "delete_dropped_domains",
    "delete_dropped_bounds_columns",
    "delete_dropped_mirror_status",
    "delete_dropped_checkpoint",
    "delete_dropped_iceberg_manifests",
    "delete_dropped_scan_plans",
    "delete_dropped_field_ids",
    "delete_dropped_formats",
    "delete_dropped_vectors",
    "delete_dropped_delta_lists",
    "delete_dropped_delta_manifests",
    "delete_dropped_grants",
    "delete_dropped_names",
    "delete_dropped_location",
)

Progress = Callable[[int], None]
"""Called with the number of rows just removed."""


@dataclass(frozen=True, slots=True)
class Retention:
    """How long history is kept if a table does not say; `audit_ms` None keeps the audit trail for ever."""

    log_ms: int
    deleted_file_ms: int
    audit_ms: int | None = None


@dataclass(frozen=True, slots=True)
class CollectedTable:
    """What a run removed, or would remove, of one table's history."""

    table: TableRow
    first_version: int | None
    """The first version before the run."""
    base_version: int | None
    """The first version after the run; None for a dropped table that was removed."""
    versions_removed: int
    rows_removed: int
    kept_because: str | None = None
    """Why nothing was removed, or less than the retention allows."""
    dropped: bool = False


@dataclass(frozen=True, slots=True)
class GcReport:
    """What a run removed, or would remove."""

    dry_run: bool
    tables: tuple[CollectedTable, ...]
    transactions_removed: int = 0
    leases_removed: int = 0
    audit_rows_removed: int = 0

    @property
    def rows_removed(self) -> int:
        """The number of rows removed, of all tables."""
        others = self.transactions_removed + self.leases_removed + self.audit_rows_removed
        return sum(table.rows_removed for table in self.tables) + others


@dataclass(frozen=True, slots=True)
class _Plan:
    """Where a table's history will start."""

    table: TableRow
    first_version: int | None
    base: int | None
    tombstone_cutoff_ms: int = 0
    cutoff_ms: int = 0
    kept_because: str | None = None
    dropped: bool = False


@dataclass(slots=True)
class _Run:
    store: Store
    progress: Progress | None
    dry_run: bool
    who: Mapping[str, str | None]

    def remove(self, query: str, **parameters: int) -> int:
        """Runs a batched removal until no rows are left; each batch is its own transaction."""
        total = 0
        while True:
            with self.store.write() as conn:
                count = conn.run(query, **parameters, max_rows=BATCH_ROWS)
            self.tell(count)
            total += count
            if count < BATCH_ROWS:
                return total

    def remove_at_once(self, queries: Sequence[str], **parameters: int) -> int:
        """Runs removals of few rows in one transaction."""
        with self.store.write() as conn:
            count = sum(conn.run(query, **parameters) for query in queries)
        self.tell(count)
        return count

    def tell(self, count: int) -> None:
        if self.progress and count:
            self.progress(count)


def collect_garbage(
    store: Store,
    retention: Retention,
    *,
    table: TableRow | None = None,
    dry_run: bool = False,
    progress: Progress | None = None,
    actor: str | None = None,
    origin: str | None = None,
) -> GcReport:
    """Cuts the history of one table, or of all and then the rows of no table. Safe beside readers and writers."""
    with store.read() as conn:
        now_ms = conn.now_ms()
        rows = conn.all("select_gc_tables", table_id=None if table is None else table.table_id)
        plans = [_plan(conn, row, retention, now_ms) for row in rows]
    run = _Run(store, progress, dry_run, {"actor": actor, "origin": origin})
    tables = tuple(_collect(run, plan) for plan in plans)
    if table is not None:
        return GcReport(dry_run, tables)
    return replace(_collect_shared(run, retention, now_ms), tables=tables)


# -- where the history will start


def _plan(conn: Connection, row: Row, retention: Retention, now_ms: int) -> _Plan:
    table, first, head = to_table_row(row), row["first_version"], row["current_version"]
    if row["until_ms"] != LIVE:
        return _plan_dropped(table, row, retention, now_ms)
    nothing = _Plan(table, first, base=None)
    if head is None or first is None:
        return nothing
    configuration = json.loads(row["configuration"] or "{}")
    if not cleans_up(configuration):
        return replace(nothing, kept_because="delta.enableExpiredLogCleanup is false")
    try:
        cutoff_ms = now_ms - log_retention_ms(configuration, retention.log_ms)
        tombstone_cutoff_ms = now_ms - deleted_file_retention_ms(configuration, retention.deleted_file_ms)
    except ValueError as error:  # an unreadable retention keeps everything, which is safe
        return replace(nothing, kept_because=str(error))
    base, because = _base(conn, row, cutoff_ms)
    # If the history already starts there, only the rest of an interrupted run may remain to be removed.
    if base is None or base < first or (base == first and not row["is_base"]):
        return replace(nothing, kept_because=because)
    return _Plan(table, first, base, tombstone_cutoff_ms, cutoff_ms, because)


def _base(conn: Connection, row: Row, cutoff_ms: int) -> tuple[int | None, str | None]:
    """The version to start from, and why it is not a later one."""
    version_row = conn.one("select_version_at", table_id=row["table_id"], at_ms=cutoff_ms)
    if version_row is None:
        return None, None
    # The newest commit is kept as a commit: a follower compares it with the files.
    last, because = min(int(version_row["version"]), row["current_version"] - 1), None
    if row["mode"] == "managed" and row["mirrored_version"] < last:
        last = row["mirrored_version"]
        because = f"`_delta_log` has only version {last} of {row['current_version']}: what it lacks stays"
    neighbours = conn.one("select_neighbours", table_id=row["table_id"], version=last)
    return (neighbours["before"] if neighbours else None), because


def _plan_dropped(table: TableRow, row: Row, retention: Retention, now_ms: int) -> _Plan:
    plan = _Plan(table, row["first_version"], LIVE, LIVE, dropped=True)
    if row["location_state"] in (DROPPED, PURGING):
        return replace(plan, base=None, kept_because="dropped, and its files are not deleted yet")
    if row["until_ms"] > now_ms - retention.log_ms:
        return replace(plan, base=None, kept_because="dropped within the retention")
    if table.mode == "managed" and row["current_version"] is not None and _is_behind(row):
        because = f"dropped, but `_delta_log` has only version {row['mirrored_version']} of {row['current_version']}"
        return replace(plan, base=None, kept_because=because)
    return plan


def _is_behind(row: Row) -> bool:
    return bool(row["mirrored_version"] < row["current_version"])


# -- removing


def _collect(run: _Run, plan: _Plan) -> CollectedTable:
    nothing = CollectedTable(
        plan.table, plan.first_version, plan.first_version, 0, 0, plan.kept_because, dropped=plan.dropped
    )
    if plan.base is None:
        return nothing
    if run.dry_run:
        versions, rows = _count_rows(run, plan, plan.base)
    elif plan.dropped:
        versions, rows = _remove_dropped(run, plan)
    else:
        versions = _retire_versions(run, plan, plan.base)
        rows = versions + _remove_old_rows(run, plan, plan.base)
    base = None if plan.dropped else plan.base
    return replace(nothing, base_version=base, versions_removed=versions, rows_removed=rows)


def _count_rows(run: _Run, plan: _Plan, base: int) -> tuple[int, int]:
    with run.store.read(single=True) as conn:
        if plan.dropped:
            row = conn.one("count_dropped", table_id=plan.table.table_id)
        else:
            limits = {"base": base, "tombstone_cutoff_ms": plan.tombstone_cutoff_ms}
            row = conn.one("count_garbage", table_id=plan.table.table_id, **limits)
    counts = {name: int(value) for name, value in (row or {}).items()}
    return counts["versions"], sum(counts.values())


def _retire_versions(run: _Run, plan: _Plan, base: int) -> int:
    """Moves the base up in steps; after each step the history is complete from its base on."""
    ids = {"table_id": plan.table.table_id}
    removed, first = 0, plan.first_version or 0
    while first < base:
        with run.store.write() as conn:
            head = registry.lock_head(conn, plan.table.table_id)
            # The version may be in a gap of the history; then the next existing version is used.
            version_row = conn.one("select_version_after", **ids, version=min(base, first + BATCH_VERSIONS) - 1)
            if head is None or version_row is None:  # dropped and collected by another run meanwhile
                break
            first = int(version_row["version"])
            conn.run("advance_base", **ids, version=first)
            conn.run("mark_base", **ids, version=first)
            count = conn.run("delete_versions_before", **ids, version=first)
            if first >= base:
                details = {"from": plan.first_version, "base": first, "older_than_ms": plan.cutoff_ms}
                now_ms = conn.now_ms()
                write_audit(conn, action="gc", at_ms=now_ms, table=plan.table, details=details, **run.who)
        run.tell(count)
        removed += count
    return removed


def _remove_old_rows(run: _Run, plan: _Plan, base: int) -> int:
    limits = {"table_id": plan.table.table_id, "base": base}
    removed = run.remove("delete_old_tombstones", **limits, tombstone_cutoff_ms=plan.tombstone_cutoff_ms)
    removed += sum(run.remove(query, **limits) for query in _OLD_ROWS)
    if plan.dropped:
        return removed
    _remove_from_index(run, plan.table)
    return removed + run.remove_at_once(_OLD_STATES, **limits)


def _remove_from_index(run: _Run, table: TableRow) -> None:
    """Removes files of an Iceberg table that are in no snapshot of a kept version; they are there for plans alone."""
    if table.mode != registry.ICEBERG:
        return
    with run.store.write() as conn:
        rows = conn.all("select_all_iceberg_snapshots", table_id=table.table_id)
        remove_snapshots(conn, table.table_id, {list_key(json.loads(row["snapshot"])) for row in rows})


def _remove_dropped(run: _Run, plan: _Plan) -> tuple[int, int]:
    """Removes everything of a dropped table; head and versions first, so that the rest cannot be opened."""
    ids = {"table_id": plan.table.table_id}
    with run.store.write() as conn:
        heads = conn.run("delete_head", **ids)
        versions = conn.run("delete_versions_before", **ids, version=LIVE)
        details = {"dropped": True, "location": plan.table.location}
        write_audit(conn, action="gc", at_ms=conn.now_ms(), table=plan.table, details=details, **run.who)
    rows = heads + versions + _remove_old_rows(run, plan, LIVE)
    rows += sum(run.remove(query, **ids) for query in _DROPPED_MANY)
    return versions, rows + run.remove_at_once(_DROPPED_ROWS, **ids)


# -- rows of no table


def _collect_shared(run: _Run, retention: Retention, now_ms: int) -> GcReport:
    old_ms = now_ms - max(retention.log_ms, TOKENS_KEPT_MS)
    if run.dry_run:
        with run.store.read() as conn:
            audit_ms = 0 if retention.audit_ms is None else now_ms - retention.audit_ms
            return GcReport(
                True,
                (),
                _count(conn, "count_old_transactions", old_ms),
                _count(conn, "count_expired_leases", now_ms - HOUR_MS),
                _count(conn, "count_old_audit", audit_ms),
            )
    transactions = run.remove("delete_old_transactions", before_ms=old_ms)
    run.remove_at_once(("delete_old_requests",))
    leases = run.remove_at_once(("delete_expired_leases",), before_ms=now_ms - HOUR_MS)
    audit = 0
    if retention.audit_ms is not None:
        audit = run.remove("delete_old_audit", before_ms=now_ms - retention.audit_ms)
    return GcReport(False, (), transactions, leases, audit)


def _count(conn: Connection, query: str, before_ms: int) -> int:
    row = conn.one(query, before_ms=before_ms)
    return int(row["num_rows"]) if row else 0
