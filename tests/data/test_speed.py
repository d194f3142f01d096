"""How long a small write takes, printed for whoever looks: a machine under load proves nothing."""

import time
from pathlib import Path

import pyarrow as pa
import pytest

from tests.data.tables import new_table


def test_a_small_write_says_what_it_costs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = pa.table(
        {
            "id": range(100),
            "name": [f"name {n}" for n in range(100)],
            "value": [n * 1.5 for n in range(100)],
            "at": pa.array(range(100), pa.timestamp("us", "UTC")),
        }
    )
    table = new_table(tmp_path / "t", data)
    cpu, wall = time.process_time(), time.perf_counter()
    for _ in range(50):
        table.append(data)
    cpu, wall = (time.process_time() - cpu) / 50 * 1000, (time.perf_counter() - wall) / 50 * 1000
    with capsys.disabled():
        print(f"\na file of 100 rows and its commit: {cpu:.2f} ms of CPU, {wall:.2f} ms in all")
    start = time.perf_counter()
    rows = table.read().num_rows
    with capsys.disabled():
        print(f"reading its {len(table.adds)} files: {(time.perf_counter() - start) * 1000:.1f} ms")
    assert rows == 51 * 100
