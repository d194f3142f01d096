"""Tables with an old history, and what a run of garbage collection must leave as it was."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from deltalakedb.log.predicates.predicate import parse_predicate
from deltalakedb.log.protocol.actions import Action
from deltalakedb.log.protocol.commit import Commit
from deltalakedb.log.protocol.rows import metadata_from_row
from deltalakedb.log.schema.types import parse_schema
from deltalakedb.store import Store
from deltalakedb.store import registry as reg
from deltalakedb.store.gc import Retention
from deltalakedb.store.loader import Loader
from deltalakedb.store.planning import plan
from deltalakedb.store.reader import SqlTxnLogReader
from tests.conformance.histories import METADATA, PROTOCOL, add, info, register, remove

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
        metadata = metadata_from_row(row) if row else None
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
