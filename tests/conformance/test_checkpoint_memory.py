"""A checkpoint is made from SQL in memory that does not grow with the table."""

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from deltalakedb.log.protocol.actions import AddFile
from deltalakedb.store import Store
from tests.conformance.histories import METADATA, PROTOCOL, load, register

STATS = (
    '{"numRecords":10,"minValues":{"id":%d,"name":"' + "x" * 2_000 + '"},"maxValues":{"id":%d},"nullCount":{"id":0}}'
)
SCRIPT = """
    import sys
    from pathlib import Path
    from deltalakedb.files import FileTxnLogWriter
    from deltalakedb.store import open_store
    from deltalakedb.store import registry
    from deltalakedb.store.reader import SqlTxnLogReader
    engine, target, location = sys.argv[1:]
    Path("/proc/self/clear_refs").write_text("5")  # what the parent process had counts no more

    def peak_megabytes():
        [line] = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM")]
        return int(line.split()[1]) // 1024

    with open_store(engine, target) as store:
        with store.read() as conn:
            tables = {name: registry.resolve_table(conn, "sales", name) for name in ("small", "large")}
        for name in ("small", "large"):
            snapshot = SqlTxnLogReader(store, tables[name]).snapshot()
            writer = FileTxnLogWriter(f"{location}/{name}", table=name)
            written = writer.write_checkpoint(snapshot, protocol=snapshot.protocol, tombstone_cutoff_ms=0)
            print(written.num_add_files, peak_megabytes())
"""


@pytest.mark.in_turn
@pytest.mark.parametrize("engine", ["sqlite", "duckdb"])
def test_four_times_the_files_need_no_more_memory(engine: str, store: Store, target: str, tmp_path: Path) -> None:
    for name, num_files in (("small", 20_000), ("large", 80_000)):
        adds = [
            AddFile(f"part-{n:08d}.parquet", {"day": "mon"}, n, 1_700_000_000_000, True, STATS % (n, n))
            for n in range(num_files)
        ]
        load(store, register(store, name), [[PROTOCOL, METADATA, *adds]])
    store.close()
    command = [sys.executable, "-c", textwrap.dedent(SCRIPT), engine, target, str(tmp_path)]
    answer = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    files_small, peak_small, files_large, peak_large = map(int, answer)
    assert (files_small, files_large) == (20_000, 80_000)
    assert peak_large < peak_small + 200  # held whole, the rows of 60,000 files more take twice as much
    assert peak_large < 500, (peak_small, peak_large)
