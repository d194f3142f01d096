"""Helpers for a table's life: rows by `deltalake`, a catalog on the test's database, and a process killed at a step."""

import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import deltalake
import pyarrow as pa

from deltalakedb.store import registry
from deltalakedb.store.connection import Store
from deltalakedb.store.registry import Head, TableRow

KILLED_AT = """
import os, signal, sys
import deltalakedb as dl
from deltalakedb import steps

def kill(step):
    if step == sys.argv[1]:
        os.kill(os.getpid(), signal.SIGKILL)

steps.observe(kill)
cat = dl.connect(sys.argv[2])
"""


def write_rows(where: Path | str, *values: int, options: Mapping[str, str] | None = None) -> None:
    """One version more, by `deltalake`."""
    rows = pa.table({"id": pa.array(values, pa.int64())})
    deltalake.write_deltalake(where, rows, mode="append", storage_options=dict(options) if options else None)


def read_ids(where: Path | str, *, version: int | None = None, options: Mapping[str, str] | None = None) -> list[int]:
    """What `deltalake` reads, sorted."""
    table = deltalake.DeltaTable(where, version=version, storage_options=dict(options) if options else None)
    return sorted(table.to_pyarrow_table().column("id").to_pylist())


def kill_at(step: str, target: str, statement: str, *arguments: str) -> None:
    """Run a statement on `cat` in a process of its own that dies when it reaches the step; it must reach it."""
    script = KILLED_AT + statement
    done = subprocess.run(
        [sys.executable, "-c", script, step, target, *arguments], capture_output=True, check=False, text=True
    )
    assert done.returncode == -signal.SIGKILL, (step, done.returncode, done.stderr)


def row_of(store: Store, name: str = "t", namespace: str = "default") -> TableRow:
    with store.read() as conn:
        row = registry.resolve_table(conn, namespace, name)
    assert row is not None
    return row


def head_of(store: Store, table: TableRow) -> Head:
    with store.read() as conn:
        head = registry.read_head(conn, table.table_id)
    assert head is not None
    return head


def audited(store: Store) -> list[str]:
    """What was done, oldest first."""
    with store.read() as conn:
        return [entry.action for entry in reversed(registry.read_audit(conn))]


def log_bytes(path: Path) -> dict[str, bytes]:
    """Every commit of a log on disk, to see that none is ever overwritten."""
    return {file.name: file.read_bytes() for file in (path / "_delta_log").glob("*.json")}
