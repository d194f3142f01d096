"""Synthetic Delta tables of any size: real `_delta_log` folders whose data files need not exist."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

ROWS_PER_FILE = 1000
BATCH = 50_000
BASE_VERSION = 10
EPOCH_MS = 1_704_067_200_000  # 2024-01-01; fixed, so that a table of a given size is always the same
SPAN_DAYS = 730
COLUMNS = {"id": "long", "qty": "integer", "price": "double", "name": "string", "day": "date", "ts": "timestamp"}
REGIONS = 16
TABLE_ID = "5f0c1d9a-6f0b-4f52-9d0e-0d5b8f4a7c11"

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Spec:
    """What a generated table looks like; `generation` changes every path and no statistics."""

    num_files: int
    partitioned: bool = False
    generation: int = 0

    def point_predicate(self) -> str:
        """Keeps one file, in the middle of the domain."""
        return f"id = {self.num_files // 2 * ROWS_PER_FILE + 7}"

    def range_predicate(self, keep: int = 100) -> str:
        """Keeps `keep` files, in the middle of the domain."""
        first = max(self.num_files // 2 - keep // 2, 0) * ROWS_PER_FILE
        return f"id >= {first} and id < {first + keep * ROWS_PER_FILE}"


def schema_string(partitioned: bool) -> str:
    names = COLUMNS | ({"region": "string"} if partitioned else {})
    fields = [{"name": n, "type": t, "nullable": True, "metadata": {}} for n, t in names.items()]
    return json.dumps({"type": "struct", "fields": fields}, separators=(",", ":"))


def file_batches(spec: Spec, batch: int = BATCH) -> Iterator[pa.RecordBatch]:
    """The files of the table in order: path, size, modification_time, partition_values, stats, and typed min/max."""
    for start in range(0, spec.num_files, batch):
        yield _file_batch(spec, start, min(start + batch, spec.num_files))


def _file_batch(spec: Spec, start: int, stop: int) -> pa.RecordBatch:
    index: Ints = np.arange(start, stop, dtype=np.int64)
    rng = np.random.default_rng([spec.generation, start])
    bounds = _bounds(spec, index, rng)
    columns: dict[str, Any] = {
        "path": _paths(spec, index, rng),
        "size": rng.integers(8 << 20, 128 << 20, index.size),
        "modification_time": EPOCH_MS + index,
        "region": _region(index) if spec.partitioned else pa.nulls(index.size, pa.string()),
        "stats": _stats(bounds),
    }
    for name, (low, high) in bounds.items():
        columns[f"min_{name}"], columns[f"max_{name}"] = low, high
    return pa.RecordBatch.from_pydict(columns)


def _bounds(spec: Spec, index: Ints, rng: np.random.Generator) -> dict[str, tuple[pa.Array, pa.Array]]:
    """`id`, `day` and `ts` follow the order of writing, `id` without overlap; the others spread over the domain."""
    n = index.size
    qty, price = rng.integers(0, 50, n), rng.integers(0, 5_000, n)
    first, last = rng.integers(0, 400_000, n), rng.integers(600_000, 1_000_000, n)
    step_ms = SPAN_DAYS * 86_400_000 / spec.num_files
    begin = EPOCH_MS + (index * step_ms).astype(np.int64)
    end = EPOCH_MS + ((index + 1) * step_ms).astype(np.int64) + 5_000
    return {
        "id": (pa.array(index * ROWS_PER_FILE), pa.array(index * ROWS_PER_FILE + ROWS_PER_FILE - 1)),
        "qty": (pa.array(qty, pa.int32()), pa.array(qty + rng.integers(1, 950, n), pa.int32())),
        "price": (pa.array(price / 100), pa.array((price + rng.integers(1, 10_000_000, n)) / 100)),
        "name": (_join("customer-", _digits(first, 6)), _join("customer-", _digits(last, 6))),
        "day": (_days(begin), _days(end)),
        "ts": (pa.array(begin, pa.timestamp("ms", "UTC")), pa.array(end, pa.timestamp("ms", "UTC"))),
    }


def _days(epoch_ms: Ints) -> pa.Array:
    return pa.array((epoch_ms // 86_400_000).astype(np.int32)).cast(pa.date32())


def _paths(spec: Spec, index: Ints, rng: np.random.Generator) -> pa.Array:
    tail = rng.bytes(16 * index.size).hex()
    offsets = pa.array(np.arange(0, 32 * index.size + 1, 32, dtype=np.int32))
    unique = pa.StringArray.from_buffers(index.size, offsets.buffers()[1], pa.py_buffer(tail.encode()))
    name = _join("part-", _digits(index % 100_000, 5), "-", unique, "-c000.snappy.parquet")
    return _join("region=", _region(index), "/", name) if spec.partitioned else name


def _region(index: Ints) -> pa.Array:
    return _join("r", _digits(index % REGIONS, 2))


def _stats(bounds: dict[str, tuple[pa.Array, pa.Array]]) -> pa.Array:
    """The JSON text that `deltalake` writes, joined column by column instead of file by file."""
    parts: list[Any] = [f'{{"numRecords":{ROWS_PER_FILE},"minValues":{{']
    for side, label in ((0, '},"maxValues":{'), (1, '},"nullCount":{')):
        for position, (name, pair) in enumerate(bounds.items()):
            parts += [f'{"," if position else ""}"{name}":', _json_value(pair[side])]
        parts.append(label)
    nulls = ",".join(f'"{name}":{0 if name == "id" else 3}' for name in bounds)
    parts.append(f"{nulls}}}}}")
    return _join(*parts)


def _json_value(values: pa.Array) -> pa.Array:
    if pa.types.is_timestamp(values.type):
        text = pc.binary_replace_slice(values.cast(pa.string()).cast(pa.binary()), 10, 11, b"T").cast(pa.string())
        return _join('"', text, '"')
    if pa.types.is_string(values.type) or pa.types.is_date(values.type):
        return _join('"', values.cast(pa.string()), '"')
    return values.cast(pa.string())


def _digits(values: Ints, width: int) -> pa.Array:
    return pc.utf8_lpad(pa.array(values).cast(pa.string()), width, "0")


def _join(*parts: Any) -> pa.Array:
    return pc.binary_join_element_wise(*(pa.scalar(p) if isinstance(p, str) else p for p in parts), pa.scalar(""))


# --- the log -------------------------------------------------------------------------------------------------------

_STRINGS = pa.map_(pa.string(), pa.string())
_CHECKPOINT = pa.schema(
    {
        "txn": pa.struct({"appId": pa.string(), "version": pa.int64(), "lastUpdated": pa.int64()}),
        "add": pa.struct(
            {
                "path": pa.string(),
                "partitionValues": _STRINGS,
                "size": pa.int64(),
                "modificationTime": pa.int64(),
                "dataChange": pa.bool_(),
                "stats": pa.string(),
                "tags": _STRINGS,
            }
        ),
        "remove": pa.struct({"path": pa.string(), "deletionTimestamp": pa.int64(), "dataChange": pa.bool_()}),
        "metaData": pa.struct(
            {
                "id": pa.string(),
                "name": pa.string(),
                "description": pa.string(),
                "format": pa.struct({"provider": pa.string(), "options": _STRINGS}),
                "schemaString": pa.string(),
                "partitionColumns": pa.list_(pa.string()),
                "configuration": _STRINGS,
                "createdTime": pa.int64(),
            }
        ),
        "protocol": pa.struct({"minReaderVersion": pa.int32(), "minWriterVersion": pa.int32()}),
    }
)


def metadata_action(partitioned: bool = False) -> dict[str, Any]:
    return {
        "id": TABLE_ID,
        "format": {"provider": "parquet", "options": {}},
        "schemaString": schema_string(partitioned),
        "partitionColumns": ["region"] if partitioned else [],
        "configuration": {},
        "createdTime": EPOCH_MS,
    }


PROTOCOL_ACTION = {"minReaderVersion": 1, "minWriterVersion": 2}


def write_checkpoint_table(root: Path, spec: Spec) -> Path:
    """A table whose log was cleaned up to one classic checkpoint at version 10; memory stays at one batch of files."""
    log = _fresh_log(root)
    checkpoint = log / f"{BASE_VERSION:020}.checkpoint.parquet"
    head = [{"protocol": PROTOCOL_ACTION}, {"metaData": metadata_action(spec.partitioned)}]
    with pq.ParquetWriter(checkpoint, _CHECKPOINT, compression="snappy") as writer:
        writer.write_table(pa.Table.from_pylist(head, schema=_CHECKPOINT))
        for batch in file_batches(spec):
            writer.write_batch(_checkpoint_batch(batch))
            last = batch
    commit = [_commit_info("WRITE"), *_add_lines(last.slice(last.num_rows - 1)).to_pylist()]
    _write_commit(log, BASE_VERSION, commit)
    hint = {"version": BASE_VERSION, "size": spec.num_files + 2, "sizeInBytes": checkpoint.stat().st_size}
    (log / "_last_checkpoint").write_text(json.dumps(hint | {"numOfAddFiles": spec.num_files}))
    return root


def write_kept_files(root: Path, spec: Spec, keep: int) -> None:
    """The data files that `range_predicate(keep)` keeps: real Parquet, as long as the log says they are."""
    first, seen = max(spec.num_files // 2 - keep // 2, 0), 0
    for batch in file_batches(spec):
        for at in range(max(first - seen, 0), min(first + keep - seen, batch.num_rows)):
            _write_data_file(root / batch["path"][at].as_py(), batch["size"][at].as_py(), batch["min_id"][at].as_py())
        seen += batch.num_rows


def _write_data_file(path: Path, size: int, first_id: int) -> None:
    """Rows with ids in order, and a hole before the footer that makes the file as long as it should be."""
    rows = pa.table({"id": pa.array(range(first_id, first_id + ROWS_PER_FILE), pa.int64())})
    sink = pa.BufferOutputStream()
    pq.write_table(rows, sink)
    data = sink.getvalue().to_pybytes()
    footer = int.from_bytes(data[-8:-4], "little") + 8
    with path.open("wb") as out:
        out.write(data[:-footer])
        out.seek(size - footer)
        out.write(data[-footer:])


def write_many_commits_table(root: Path, commits: int) -> Path:
    """One commit a file, no checkpoint: what a streaming writer leaves behind that never checkpoints."""
    log = _fresh_log(root)
    version = 0
    for batch in file_batches(Spec(commits)):
        for line in _add_lines(batch).to_pylist():
            head = [_protocol_line(), _metadata_line()] if version == 0 else []
            _write_commit(log, version, [_commit_info("WRITE"), *head, line])
            version += 1
    return root


def write_rewritten_table(root: Path, spec: Spec, rewrites: int = 10) -> Path:
    """Version 0 adds every file; each later version removes every file and adds as many new ones."""
    log = _fresh_log(root)
    for version in range(rewrites + 1):
        with (log / f"{version:020}.json").open("wb") as out:
            head = [_protocol_line(), _metadata_line(spec.partitioned)] if version == 0 else []
            out.write("\n".join([_commit_info("OVERWRITE"), *head, ""]).encode())
            new = file_batches(Spec(spec.num_files, spec.partitioned, version))
            for batch in new:
                out.write(_lines(_add_lines(batch)))
            if version:
                for batch in file_batches(Spec(spec.num_files, spec.partitioned, version - 1)):
                    out.write(_lines(_remove_lines(batch)))
    return root


def append_commit(root: Path, spec: Spec) -> int:
    """What another writer would do: one more file in the next version, which is returned."""
    log = root / "_delta_log"
    version = max(int(p.stem) for p in log.glob("*.json")) + 1
    (line,) = _add_lines(_file_batch(Spec(spec.num_files, spec.partitioned, 1_000_000 + version), 0, 1)).to_pylist()
    _write_commit(log, version, [_commit_info("WRITE"), line])
    return version


def _checkpoint_batch(batch: pa.RecordBatch) -> pa.RecordBatch:
    n = batch.num_rows
    fields = list(_CHECKPOINT.field("add").type)
    values = {
        "path": batch["path"],
        "partitionValues": _partition_values(batch["region"]),
        "size": batch["size"],
        "modificationTime": batch["modification_time"],
        "dataChange": pa.repeat(True, n),
        "stats": batch["stats"],
        "tags": pa.nulls(n, _STRINGS),
    }
    add = pa.StructArray.from_arrays([values[f.name] for f in fields], fields=fields)
    columns = [add if field.name == "add" else pa.nulls(n, field.type) for field in _CHECKPOINT]
    return pa.RecordBatch.from_arrays(columns, schema=_CHECKPOINT)


def _partition_values(region: pa.Array) -> pa.Array:
    present = region.is_valid()
    offsets = pa.array(np.concatenate([[0], np.cumsum(present.to_numpy(zero_copy_only=False))]), pa.int32())
    values = region.filter(present)
    keys = pa.repeat("region", len(values))
    return pa.MapArray.from_arrays(offsets, keys, values)


def _add_lines(batch: pa.RecordBatch) -> pa.Array:
    stats = pc.replace_substring(batch["stats"], '"', '\\"')
    return _join(
        '{"add":{"path":"', batch["path"], '","partitionValues":', _partition_json(batch["region"]),
        ',"size":', batch["size"].cast(pa.string()), ',"modificationTime":',
        batch["modification_time"].cast(pa.string()), ',"dataChange":true,"stats":"', stats, '"}}',
    )  # fmt: skip


def _remove_lines(batch: pa.RecordBatch) -> pa.Array:
    return _join(
        '{"remove":{"path":"', batch["path"], f'","deletionTimestamp":{EPOCH_MS},"dataChange":true,',
        '"extendedFileMetadata":true,"partitionValues":', _partition_json(batch["region"]),
        ',"size":', batch["size"].cast(pa.string()), "}}",
    )  # fmt: skip


def _partition_json(region: pa.Array) -> pa.Array:
    return pc.fill_null(_join('{"region":"', region, '"}'), "{}")


def _lines(lines: pa.Array) -> bytes:
    text = _join(lines, "\n")
    return b"".join(text.cast(pa.binary()).to_pylist())


def _commit_info(operation: str) -> str:
    info = {"timestamp": EPOCH_MS, "operation": operation, "operationParameters": {}, "engineInfo": "bench"}
    return json.dumps({"commitInfo": info}, separators=(",", ":"))


def _protocol_line() -> str:
    return json.dumps({"protocol": PROTOCOL_ACTION}, separators=(",", ":"))


def _metadata_line(partitioned: bool = False) -> str:
    return json.dumps({"metaData": metadata_action(partitioned)}, separators=(",", ":"))


def _write_commit(log: Path, version: int, lines: list[str]) -> None:
    (log / f"{version:020}.json").write_text("\n".join([*lines, ""]))


def _fresh_log(root: Path) -> Path:
    shutil.rmtree(root, ignore_errors=True)
    log = root / "_delta_log"
    log.mkdir(parents=True)
    return log
