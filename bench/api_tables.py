"""Real tables for the rows of the API: made once by pyarrow, with a log that neither side has an advantage from."""

from __future__ import annotations

import json
from pathlib import Path

import deltalake
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake.transaction import AddAction, create_table_with_add_actions

EPOCH_US = 1_767_225_600_000_000


def wide_rows(count: int, first: int = 0) -> pa.Table:
    """Rows of eight columns, each by its id."""
    ids = np.arange(first, first + count, dtype=np.int64)
    return pa.table(
        {
            "id": ids,
            "qty": (ids % 1000).astype(np.int32),
            "price": ids * 0.25,
            "name": pa.array(np.char.add("customer-", (ids % 100_000).astype("U6")).tolist(), pa.string()),
            "day": pa.array((ids % 365 + 20_454).astype(np.int32), pa.int32()).cast(pa.date32()),
            "ts": pa.array(ids * 1000 + EPOCH_US, pa.timestamp("us", "UTC")),
            "even": ids % 2 == 0,
            "ratio": (ids % 977) / 977,
        }
    )


def source_rows(count: int, wanted: int) -> pa.Table:
    """Half of them in a table of `count` rows, spread over it, and half behind its end."""
    there = np.linspace(0, count - 1, wanted // 2, dtype=np.int64)
    rows = pa.concat_tables([wide_rows(count).take(pa.array(there)), wide_rows(wanted - wanted // 2, count)])
    return rows.set_column(1, "qty", pa.array(np.full(rows.num_rows, -1, dtype=np.int32)))


def write_table(root: Path, rows: int, files: int) -> Path:
    """One version, each file with a range of ids of its own."""
    root.mkdir(parents=True)
    each = rows // files
    adds = [_write_file(root, place, wide_rows(each, place * each)) for place in range(files)]
    schema = deltalake.Schema.from_arrow(wide_rows(1).schema)
    create_table_with_add_actions(str(root), schema, adds, mode="error")
    return root


def _write_file(root: Path, place: int, rows: pa.Table) -> AddAction:
    path = root / f"part-{place:05d}.parquet"
    pq.write_table(rows, path, compression="snappy")
    ids = rows.column("id")
    bounds = {"minValues": {"id": ids[0].as_py()}, "maxValues": {"id": ids[-1].as_py()}, "nullCount": {"id": 0}}
    stats = json.dumps({"numRecords": rows.num_rows, **bounds})
    return AddAction(path.name, path.stat().st_size, {}, 1_767_225_600_000, True, stats)
