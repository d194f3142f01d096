"""Buckets: partitions of a table of current rows by a hash of the key, so that a batch touches few files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import pyarrow as pa

from deltalakedb.cdc.captured_table import CapturedTable
from deltalakedb.data.engine import Engine
from deltalakedb.log.schema.types import DataType, DecimalType, PrimitiveType, StructField, StructType

BUCKET: Final = "_bucket"
COUNT_PROPERTY: Final = "deltalakedb.cdc.apply.buckets"
"""The table property with the number of buckets, which cannot change while the table has rows."""

# The text of a key's value that is hashed: the same in every version of the engine, under all settings.
_TEXTS: Final = {
    "short": "{}::varchar",
    "integer": "{}::varchar",
    "long": "{}::varchar",
    "boolean": "{}::varchar",
    "string": "{}",
    "binary": "hex({})",
    "date": "datediff('day', date '1970-01-01', {})::varchar",
    "timestamp": "epoch_us({})::varchar",
    "timestamp_ntz": "epoch_us({})::varchar",
}


def buckets_for(table: CapturedTable, asked: int) -> int:
    """The number of buckets of a new table of current rows; 0 if its key cannot be hashed, or `_bucket` is taken."""
    types = [column.type for column in table.columns if column.name in table.key]
    is_taken = any(column.name.casefold() == BUCKET for column in table.columns)
    if not table.is_keyed or is_taken or not all(map(_can_hash, types)):
        return 0
    return asked


def buckets_of(configuration: Mapping[str, str | None]) -> int:
    """The number of buckets of a table."""
    return int(configuration.get(COUNT_PROPERTY) or 0)


def with_bucket(schema: StructType) -> StructType:
    """The schema with the bucket column."""
    return StructType((*schema.fields, StructField(BUCKET, PrimitiveType("integer"), True)))


def bucket_sql(keys: Sequence[tuple[str, DataType]], count: int) -> str:
    """The SQL expression of a row's bucket, for key columns given as SQL expressions and types."""
    # An infinite date or timestamp has no number.
    texts = [f"coalesce({_text(sql, data_type)}, '')" for sql, data_type in keys]
    whole = texts[0] if len(texts) == 1 else f"concat_ws(chr(31), {', '.join(texts)})"
    return f"(md5_number_lower({whole}) % {count})::integer"


def add_buckets(rows: pa.RecordBatchReader, table: CapturedTable, count: int) -> pa.RecordBatchReader:
    """Add the bucket column to rows of the table."""
    schema = rows.schema.append(pa.field(BUCKET, pa.int32()))
    types = {column.name: column.type for column in table.columns}
    sql = bucket_sql([(f"k{place}", types[name]) for place, name in enumerate(table.key)], count)

    def batches() -> Iterator[pa.RecordBatch]:
        with Engine() as engine:
            for batch in rows:
                keys = [batch.column(name) for name in table.key]
                engine.register("given", pa.table(keys, names=[f"k{place}" for place in range(len(keys))]))
                numbers = engine.table(f"select {sql} as b from given").column(0).combine_chunks()
                yield pa.RecordBatch.from_arrays([*batch.columns, numbers], schema=schema)

    return pa.RecordBatchReader.from_batches(schema, batches())


def _can_hash(data_type: DataType) -> bool:
    return isinstance(data_type, DecimalType) or str(data_type) in _TEXTS


def _text(sql: str, data_type: DataType) -> str:
    return f"{sql}::varchar" if isinstance(data_type, DecimalType) else _TEXTS[str(data_type)].format(sql)
