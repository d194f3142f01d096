"""Z-order: sorts the rows of a partition by the interleaved bits of the ranks of their column values."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from deltalakedb.data.engine import own_column
from deltalakedb.exceptions import DeltaError
from deltalakedb.log.protocol.actions import AddFile
from deltalakedb.log.protocol.rows import adds_to_batch
from deltalakedb.log.schema.types import DecimalType, PrimitiveType, StructField, StructType
from deltalakedb.operations.expressions import quoted
from deltalakedb.operations.moving import read_moving
from deltalakedb.operations.target import Target, open_engine

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

_SAMPLE_ROWS: Final = 1 << 16
"""Ranks come from a sample of at most twice this size, which is finer than one file's share of a sorted table."""
_MAX_BITS: Final = 16
_KEY_BITS: Final = 64
_KEY: Final = own_column("z_order")


def check_columns(columns: Sequence[str], target: Target) -> None:
    """Raise DeltaError for columns that rows cannot be sorted by."""
    if not columns:
        raise DeltaError(f"Z-order requires at least one column: none is given for table {target.name}")
    partitioned = [name for name in columns if name in target.metadata.partition_columns]
    if partitioned:
        raise DeltaError(
            f"Z-order columns cannot be partition columns. Found: {json.dumps(partitioned, ensure_ascii=False)}: a "
            f"partition column of table {target.name} has one value in each file"
        )
    for name in columns:
        item = _field(target.schema, name)
        if item is None:
            names = ", ".join(other for other in target.schema.names if other not in target.metadata.partition_columns)
            raise DeltaError(
                f'Z-order column "{name}": field "{name}" not found in schema of table {target.name}, which has {names}'
            )


@contextmanager
def sorted_rows(
    target: Target,
    files: Sequence[AddFile],
    columns: Sequence[str],
    *,
    memory_bytes: int | None = None,
    max_temp_bytes: int | None = None,
) -> Iterator[pa.RecordBatchReader]:
    """Yield the rows of these files in Z-order, as a stream: sorted by DuckDB, which spills to disk if needed."""
    import pyarrow as pa

    rows = read_moving(target, files)
    columns = [name for name in columns if _has_order(target.schema, name)]
    if not columns:
        yield rows
        return
    roots = list(dict.fromkeys(name.partition(".")[0] if _is_nested(target.schema, name) else name for name in columns))
    ranks = _Ranks(columns, target.schema, target.read(adds_to_batch(files), roots))
    keyed = pa.RecordBatchReader.from_batches(
        rows.schema.append(pa.field(_KEY, pa.uint64())), (ranks.with_key(batch) for batch in rows)
    )
    memory = None if memory_bytes is None else max(memory_bytes, 1)
    with open_engine(target, memory_limit=memory, max_temp_size=max_temp_bytes) as engine:
        engine.register("rows", keyed)
        yield engine.reader(f"select * exclude ({quoted(_KEY)}) from rows order by {quoted(_KEY)}")


def interleave(ranks: Sequence[np.ndarray[Any, Any]], bits: int) -> np.ndarray[Any, Any]:
    """Return one key per row: the highest bits of all ranks first, then the next ones."""
    import numpy as np

    key = np.zeros(len(ranks[0]), np.uint64)
    for bit in range(bits - 1, -1, -1):
        for rank in ranks:
            key = (key << np.uint64(1)) | ((rank >> np.uint64(bit)) & np.uint64(1))
    return key


class _Ranks:
    """The rank of a value among the values of its column, by a sample; nulls come first."""

    def __init__(self, columns: Sequence[str], schema: StructType, sample: pa.RecordBatchReader) -> None:
        # A key has 64 bits: with more columns, only the first 64 count.
        self._columns = list(columns)[:_KEY_BITS]
        self._nested = {name: _is_nested(schema, name) for name in self._columns}
        self._bits = min(_MAX_BITS, _KEY_BITS // len(self._columns))
        samples: dict[str, list[np.ndarray[Any, Any]]] = {name: [] for name in self._columns}
        step, count, offset = 1, 0, 0
        for batch in sample:
            for name in self._columns:
                samples[name].append(_comparable(self._values(batch, name).take(_places(batch, step, offset)))[0])
            count += len(range(offset, batch.num_rows, step))
            offset = (offset - batch.num_rows) % step
            if count > 2 * _SAMPLE_ROWS:
                samples = {name: [_joined(parts)[::2]] for name, parts in samples.items()}
                step, count = step * 2, count // 2
        self._known = {name: _sorted(_joined(parts)) for name, parts in samples.items()}

    def with_key(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        import pyarrow as pa

        ranks = [self._rank(self._values(batch, name), name) for name in self._columns]
        key = pa.array(interleave(ranks, self._bits), pa.uint64())
        schema = batch.schema.append(pa.field(_KEY, pa.uint64()))
        return pa.RecordBatch.from_arrays([*batch.columns, key], schema=schema)

    def _rank(self, values: pa.Array, name: str) -> np.ndarray[Any, Any]:
        import numpy as np

        sample, top = self._known[name], (1 << self._bits) - 1
        places, valid = np.zeros(len(values), np.int64), values.is_valid().to_numpy(zero_copy_only=False)
        distinct = values.dictionary_encode() if sample.dtype == object else None
        if distinct is not None:
            texts = distinct.dictionary
            text_places = np.searchsorted(sample, _comparable(texts)[0]) if len(texts) else places[:0]
            indices = distinct.indices.fill_null(0).to_numpy(zero_copy_only=False)
            places = text_places[indices] if len(text_places) else places
        else:
            raw, _ = _comparable(values.drop_null())
            places[valid] = np.searchsorted(sample, raw)
        scaled = 1 + places * (top - 1) // max(len(sample), 1)
        return np.where(valid, scaled, 0).astype(np.uint64)

    def _values(self, batch: pa.RecordBatch, name: str) -> pa.Array:
        import pyarrow.compute as pc

        if not self._nested[name]:
            return batch.column(name)
        root, *rest = name.split(".")
        return pc.struct_field(batch.column(root), rest)


def _places(batch: pa.RecordBatch, step: int, offset: int) -> pa.Array:
    import numpy as np
    import pyarrow as pa

    return pa.array(np.arange(offset, batch.num_rows, step))


def _comparable(values: pa.Array) -> tuple[np.ndarray[Any, Any], bool]:
    """Return the values without nulls as numbers or as comparable objects, and whether they are objects."""
    import pyarrow as pa
    import pyarrow.types as kinds

    values, kind = values.drop_null(), values.type
    if kinds.is_boolean(kind) or kinds.is_integer(kind):
        return values.cast(pa.int64()).to_numpy(zero_copy_only=False), False
    if kinds.is_floating(kind) or kinds.is_decimal(kind):
        return values.cast(pa.float64()).to_numpy(zero_copy_only=False), False
    if kinds.is_date32(kind):
        return values.cast(pa.int32()).cast(pa.int64()).to_numpy(zero_copy_only=False), False
    if kinds.is_timestamp(kind):
        return values.cast(pa.int64()).to_numpy(zero_copy_only=False), False
    return values.to_numpy(zero_copy_only=False).astype(object), True


def _joined(parts: Sequence[np.ndarray[Any, Any]]) -> np.ndarray[Any, Any]:
    import numpy as np

    return np.concatenate(parts) if parts else np.zeros(0, np.int64)


def _sorted(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    import numpy as np

    return np.sort(values)


def _field(schema: StructType, name: str) -> StructField | None:
    """Return a column by its exact name, or a field in a struct by its dotted path."""
    for item in schema.fields:
        if item.name == name:
            return item
    root, dot, rest = name.partition(".")
    if dot:
        for item in schema.fields:
            if item.name == root and isinstance(item.type, StructType):
                return _field(item.type, rest)
    return None


def _has_order(schema: StructType, name: str) -> bool:
    """Return whether rows can be sorted by a column; structs, arrays and maps are ignored, as in `deltalake`."""
    item = _field(schema, name)
    return item is not None and isinstance(item.type, PrimitiveType | DecimalType)


def _is_nested(schema: StructType, name: str) -> bool:
    return name not in schema.names
