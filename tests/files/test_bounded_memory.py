"""Large logs are read in memory that does not grow with them."""

import subprocess
import sys
import textwrap
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tests.files.checkpoints import ADD, METADATA, PROTOCOL, checkpoint_schema, classic
from tests.fixtures.handmade import HandmadeTable, add

MEGABYTE = 1024 * 1024


def peak_megabytes(script: str, *arguments: str) -> int:
    """How far a fresh process's memory rises while it runs `work`, after its imports."""
    prelude = """
        import resource, sys
        from deltalakedb.files import FileTxnLogReader, FileTxnLogWriter
        reader = FileTxnLogReader(sys.argv[1])
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    """
    closing = "print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)"
    code = "\n".join(textwrap.dedent(part) for part in (prelude, script, closing))
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True)
    return int(done.stdout)


def test_a_commit_line_of_100_mb_is_read_in_a_few_times_its_size(handmade: HandmadeTable) -> None:
    handmade.create()
    handmade.commit(add("a"), add("big", tags={"blob": "x" * (100 * MEGABYTE)}), add("b"))
    script = """
        actions = list(reader.actions(1))
        assert [action.path for action in actions] == ["a", "big", "b"]
        assert len(actions[1].tags["blob"]) == 100 * 1024 * 1024
    """
    assert peak_megabytes(script, str(handmade.path)) < 600


def test_a_commit_of_many_lines_is_streamed(handmade: HandmadeTable) -> None:
    handmade.create()
    filler = "x" * 10_000
    handmade.commit(*(add(f"{number}", tags={"blob": filler}) for number in range(10_000)))
    assert handmade.commit_path(1).stat().st_size > 100_000_000
    script = "assert sum(1 for action in reader.actions(1)) == 10_000"
    assert peak_megabytes(script, str(handmade.path)) < 60


def write_large_checkpoint(table: HandmadeTable, row_groups: int) -> None:
    """Row groups of 40,000 adds each."""
    path = classic(table.log, 0, [PROTOCOL, METADATA])
    schema = checkpoint_schema()
    [first] = pq.ParquetFile(path).iter_batches()
    rows = 40_000
    stats = add("x")["add"]["stats"]
    with pq.ParquetWriter(path, schema) as writer:
        writer.write_batch(first)
        for group in range(row_groups):
            paths = [f"part-{group:04d}-{number:08d}.parquet" for number in range(rows)]
            known = {"path": paths, "size": [1] * rows, "stats": [stats] * rows, "partitionValues": [[]] * rows}
            children = [pa.array(known.get(name, [None] * rows), kind) for name, kind in ADD.items()]
            adds = pa.StructArray.from_arrays(children, list(ADD))
            columns = [adds if field.name == "add" else pa.nulls(rows, field.type) for field in schema]
            writer.write_batch(pa.record_batch(columns, schema=schema))


def test_a_large_checkpoint_is_streamed_in_batches(tmp_path: Path) -> None:
    small, large = HandmadeTable(tmp_path / "small"), HandmadeTable(tmp_path / "large")
    write_large_checkpoint(small, 1)
    write_large_checkpoint(large, 8)
    script = "assert sum(batch.num_rows for batch in reader.snapshot().files()) % 40_000 == 0"
    assert peak_megabytes(script, str(large.path)) < peak_megabytes(script, str(small.path)) + 60


def test_a_large_checkpoint_is_written_in_batches(tmp_path: Path) -> None:
    small, large = HandmadeTable(tmp_path / "small"), HandmadeTable(tmp_path / "large")
    write_large_checkpoint(small, 2)
    write_large_checkpoint(large, 10)
    script = """
        snapshot = reader.snapshot()
        writer = FileTxnLogWriter(sys.argv[1] + "-copy", table="t")
        written = writer.write_checkpoint(snapshot, protocol=snapshot.protocol, tombstone_cutoff_ms=0)
        assert written.num_add_files % 40_000 == 0
    """
    assert peak_megabytes(script, str(large.path)) < peak_megabytes(script, str(small.path)) + 60
