"""Helpers for a table's life: rows by `deltalake`, a catalog on the test's database, and a process killed at a step."""

import json
import shutil
import signal
import uuid
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import unquote

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq

from deltalakedb.log.protocol.actions import Action, AddFile, RemoveFile
from deltalakedb.log.protocol.proposal import ProposedCommit
from deltalakedb.mirror.detach import open_registered
from deltalakedb.mirror.engine import MirrorEngine
from deltalakedb.runtime.config import load_config
from deltalakedb.store import registry
from deltalakedb.store.audit import read_audit
from deltalakedb.store.connection import Store
from deltalakedb.store.proposals import Outcome, Proposal, TableProposal
from deltalakedb.store.queries import spell, table_columns
from deltalakedb.store.reader import SqlTxnLogReader
from deltalakedb.store.registry import Head, TableRow
from deltalakedb.store.rows import row_schema
from deltalakedb.store.writer import SqlTxnLogWriter
from tests.fixtures.forked import run_script

KILLED_AT = """
import os, signal, sys
import deltalakedb as dl
from deltalakedb.runtime import steps

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
    done = run_script(KILLED_AT + statement, step, target, *arguments)
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
        return [entry.action for entry in reversed(read_audit(conn))]


def log_bytes(path: Path) -> dict[str, bytes]:
    """Every commit of a log on disk, to see that none is ever overwritten."""
    return {file.name: file.read_bytes() for file in (path / "_delta_log").glob("*.json")}


# -- commits of ours, made in SQL and not mirrored


def append(store: Store, table: TableRow, folder: Path, *ids: int, message: str | None = None) -> Outcome:
    """A blind append of a real Parquet file, decided in SQL; the files do not know of it."""
    return commit(store, table, write_file(folder, *ids), message=message)


def write_file(folder: Path, *ids: int) -> AddFile:
    path = f"ours-{uuid.uuid4()}.parquet"
    pq.write_table(pa.table({"id": pa.array(ids, pa.int64())}), folder / path)
    stats = {
        "numRecords": len(ids),
        "minValues": {"id": min(ids)},
        "maxValues": {"id": max(ids)},
        "nullCount": {"id": 0},
    }
    return AddFile(path, {}, (folder / path).stat().st_size, 1_700_000_000_000, True, stats=json.dumps(stats))


def delete_whole_files(store: Store, table: TableRow, *paths: str) -> Outcome:
    removes = [RemoveFile(path, data_change=True, deletion_timestamp=1_700_000_000_000) for path in paths]
    return commit(store, table, *removes, operation="DELETE")


def commit(
    store: Store, table: TableRow, *actions: Action, operation: str = "WRITE", message: str | None = None
) -> Outcome:
    opened = open_registered(store, table)
    proposed = TableProposal(
        opened.table,
        opened.head.current_version,
        commits=(ProposedCommit(actions, operation=operation),),
        protocol=opened.protocol,
        metadata=opened.metadata,
    )
    txn_id = str(uuid.uuid4())
    return SqlTxnLogWriter(store).commit(Proposal((proposed,), txn_id, txn_id, actor="ann", message=message))


def mirror(store: Store, table: TableRow, options: Mapping[str, str] | None = None) -> None:
    """The files level with SQL, and SQL knows it."""
    with MirrorEngine(store, config=load_config(), options_of=lambda _: options, mode="off") as engine:
        result = engine.mirror_table(table)
    assert result.error is None


def live_files(store: Store, table: TableRow) -> dict[str, int]:
    """Path to size of what SQL holds live."""
    files = SqlTxnLogReader(store, table).snapshot().files().read_all()
    return dict(zip(files.column("path").to_pylist(), files.column("size").to_pylist(), strict=True))


def dump(store: Store) -> dict[str, pa.Table]:
    """A backup of the whole database."""
    with store.read() as conn:
        return {name: conn.sql_arrow(f"select * from {name}") for name in table_columns() if name != MIGRATIONS}


def put_back(store: Store, backup: Mapping[str, pa.Table]) -> None:
    """The database as it was when the backup was made; the files stay as they are."""
    with store.write() as conn:
        conn.script([spell(f"delete from {name}", store.dialect).text for name in backup])
    with store.write() as conn:  # DuckDB takes a key again only when its deletion is committed
        for name, rows in backup.items():
            if rows.num_rows:
                conn.insert(name, rows.cast(row_schema(name)))


MIGRATIONS = "dl_schema_migrations"


# -- a writer that goes round the fence


def foreign_append(folder: Path, scratch: Path, *ids: int, version: int | None = None) -> int:
    """`deltalake` appends to a copy without a fence, and its commit and files are put where they must not be."""
    shutil.rmtree(scratch, ignore_errors=True)
    write_rows(scratch, -1)
    write_rows(scratch, *ids)
    lines = (scratch / "_delta_log" / f"{1:020d}.json").read_text().splitlines()
    for line in lines:
        add = json.loads(line).get("add")
        if add is not None:
            shutil.copy(scratch / unquote(add["path"]), folder / unquote(add["path"]))
    return foreign_commit(folder, *lines, version=version)


def foreign_commit(folder: Path, *lines: str, version: int | None = None) -> int:
    """A commit of somebody else as the next version of the files, or as one of them that is still free."""
    names = sorted(log_bytes(folder))
    at = int(names[-1].removesuffix(".json")) + 1 if version is None else version
    with open(folder / "_delta_log" / f"{at:020d}.json", "x") as file:
        file.write("\n".join(lines) + "\n")
    return at


def foreign_delete(folder: Path, *paths: str) -> int:
    lines = [json.dumps({"commitInfo": {"operation": "DELETE", "engineInfo": "somebody else"}})]
    lines += [
        json.dumps({"remove": {"path": path, "deletionTimestamp": 1_700_000_000_000, "dataChange": True}})
        for path in paths
    ]
    return foreign_commit(folder, *lines)
