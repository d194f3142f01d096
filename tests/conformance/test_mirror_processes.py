"""Processes that commit to the same tables at once, each with its own mirror: nothing missing, nothing twice."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from deltalake import DeltaTable

from deltalakedb.store import Store
from deltalakedb.store.reader import SqlTxnLogReader
from tests.conformance.mirrored import Managed
from tests.fixtures.forked import start_script
from tests.fixtures.sizes import sized

ROOT = Path(__file__).parents[2]
PROCESSES = sized(3, 4)
COMMITS = sized(5, 8)

WRITE = """
import sys
from deltalakedb.store import open_store
from tests.conformance.mirrored import Managed, adds

engine, target, table_id, name, mode, number = sys.argv[1:]
with open_store(engine, target) as store:
    table = Managed.open(store, int(table_id))
    with table.engine(mode=mode, mirror_checkpoint_interval=5) as mirror:
        mirror.probe(table.row)
        for step in range(int(number)):
            mirror.after_commit(table.commit(adds(f"{name}-{step}")))
    assert table.failures() == [], table.failures()
"""


@pytest.mark.parametrize("mode", ["inline", "background"])
def test_processes_that_append_to_one_table_leave_it_level_with_its_files(
    engine: str, target: str, store: Store, tmp_path: Path, mode: str
) -> None:
    table, outcome = Managed.create(store, tmp_path / "lake" / "orders")
    with table.engine() as mirror:
        mirror.after_commit(outcome)
    writers = [
        start_script(WRITE, engine, target, str(table.row.table_id), f"p{number}", mode, str(COMMITS))
        for number in range(PROCESSES)
    ]
    ended = [writer.wait() for writer in writers]
    assert [one.returncode for one in ended] == [0] * PROCESSES, [one.stderr for one in ended]
    last = PROCESSES * COMMITS
    expected = {f"{c.version:020d}.json": c.data for c in SqlTxnLogReader(store, table.row).mirror_commits(0)}
    assert len(expected) == last + 1
    assert table.commits_on_disk() == expected
    assert table.head.mirrored_version == last
    opened = DeltaTable(table.folder.parent)
    assert opened.version() == last
    assert len(opened.get_add_actions().column("path").to_pylist()) == last
    assert not list(table.folder.glob(".*.json.*"))
    with table.engine(mirror_checkpoint_interval=5) as mirror:  # processes on a busy machine leave it to the next one
        mirror.maintain_table(table.row)
    assert json.loads((table.folder / "_last_checkpoint").read_bytes())["version"] == last // 5 * 5


LEFT = """
import sys
from deltalakedb.store import open_store
from tests.conformance.mirrored import Managed, adds

engine, target, table_id = sys.argv[1:]
store = open_store(engine, target)
table = Managed.open(store, int(table_id))
mirror = table.engine(mode="background")
for step in range(20):
    mirror.after_commit(table.commit(adds(f"k-{step}")))
"""


def test_a_process_that_ends_without_closing_still_finishes_its_mirror(
    engine: str, target: str, store: Store, tmp_path: Path
) -> None:
    table, _ = Managed.create(store, tmp_path / "lake" / "orders")
    command = [sys.executable, "-c", LEFT, engine, target, str(table.row.table_id)]
    done = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=300, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert len(table.commits_on_disk()) == 21
    assert table.head.mirrored_version == 20
