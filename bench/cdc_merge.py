"""One merge of changed keys into a large table, as a capture makes it: how much of it runs in several threads."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import deltalakedb as dl
from bench.lab import Lab, say
from bench.report import Row

FILES = 10
ROUNDS = 3
NOTE = (
    "merge: random keys of the whole table, in 10 files with deletion vectors, without Spark and a source; the files "
    "are searched by several threads"
)


def merge_rows(lab: Lab) -> list[Row]:
    """The best of some rounds: what else the machine does is no part of it."""
    count, changed = lab.sizes.cdc_table_rows, lab.sizes.cdc_updates
    uri = lab.empty_catalog("sqlite", "merge").uri
    with dl.connect(uri, warehouse=str(lab.folder / "lakes" / "merge")) as catalog:
        say(f"filling {count:,} rows", lambda: _fill(catalog, count))
        found = [say("merging", partial(_merge, catalog, count, changed, seed)) for seed in range(ROUNDS)]
    wall, cpu = min(found)
    what = f"{changed:,} keys merged into {count:,} rows"
    return [Row(what, "sqlite", f"{wall:.2f} s", f"{cpu:.2f} CPU s", cpu / wall, " cores at once", None, NOTE)]


def _fill(catalog: dl.Catalog, count: int) -> None:
    for first, last in _parts(count):
        ids = np.arange(first, last)
        name, properties = "bench.orders", {"delta.enableDeletionVectors": "true"}
        if name not in catalog.tables():
            catalog.create_table(name, dl.Schema.from_arrow(_orders(ids[:1], "new").schema), properties=properties)
        dl.write_deltalake(catalog.table(name), _orders(ids, "new"), mode="append")


def _parts(count: int) -> Iterator[tuple[int, int]]:
    for place in range(FILES):
        yield count * place // FILES, count * (place + 1) // FILES


def _orders(ids: Any, status: str) -> pa.Table:
    return pa.table(
        {
            "id": ids,
            "customer": (ids % 100_000).astype("int32"),
            "amount": pa.array((ids % 10_000).astype("int32")).cast(pa.decimal128(12, 2)),
            "status": pa.repeat(status, len(ids)),
            "placed_at": pa.array(ids * 1_000_000, pa.timestamp("us", tz="UTC")),
            "note": pc.binary_join_element_wise("order number", pa.array(ids).cast(pa.string()), " "),
        }
    )


def _merge(catalog: dl.Catalog, count: int, changed: int, seed: int) -> tuple[float, float]:
    """Seconds, and CPU seconds of all threads."""
    keys = np.random.default_rng(seed).choice(count, changed, replace=False)
    rows, table = _orders(keys, "changed"), catalog.table("bench.orders")
    wall, cpu = time.perf_counter(), time.process_time()
    merge = table.merge(rows, "target.id = source.id", source_alias="source", target_alias="target")
    done = merge.when_matched_update_all().when_not_matched_insert_all().execute()
    spent = time.perf_counter() - wall, time.process_time() - cpu
    assert done["num_target_rows_updated"] == changed, done
    return spent
