"""Writes one Parquet file: its row groups, its statistics, and its add action."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pyarrow.types as pt

from deltalakedb.data.stats import TEXT_BYTES, StatsPlan
from deltalakedb.exceptions import DeltaError, StorageError
from deltalakedb.log.protocol.actions import AddFile
from deltalakedb.log.protocol.paths import encode_path
from deltalakedb.storage.interface import Storage

_SAMPLE_ROWS: Final = 20_000


_SUFFIXES: Final = {"none": "", "gzip": ".gz", "brotli": ".br"}
"""The suffix for a compression in a file's name, if it is not the codec's name."""


@dataclass(frozen=True, slots=True)
class ParquetOptions:
    """How files are written; the defaults are those of Spark and `deltalake`."""

    compression: str = "snappy"
    compression_level: int | None = None
    row_group_bytes: int = 64 * 1024 * 1024
    """Size in memory of the data that is collected before it is written."""
    row_group_rows: int = 1024 * 1024
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Further arguments of pyarrow's ParquetWriter."""
    silent: frozenset[str] = frozenset()
    """Columns, by their physical paths, without statistics in the log."""
    text_bytes: int = TEXT_BYTES
    """How many bytes of a text its bounds in the log keep."""

    @property
    def suffix(self) -> str:
        codec = self.compression.lower()
        return f"c000{_SUFFIXES.get(codec, f'.{codec}')}.parquet"

    def open(self, sink: pa.NativeFile, schema: pa.Schema, first: pa.Table | None = None) -> pq.ParquetWriter:
        """A writer; `first` are rows that show which columns are worth a dictionary."""
        return pq.ParquetWriter(
            sink,
            schema,
            compression=self.compression,
            compression_level=self.compression_level,
            store_schema=False,  # Delta's schema is used instead
            store_decimal_as_integer=True,  # as Spark does: smaller, and faster to read for Spark
            **{"use_dictionary": _repetitive(first), **self.extra},
        )


def _repetitive(rows: pa.Table | None) -> bool | list[str]:
    """The columns with repeated values; building useless dictionaries for the others takes a tenth of the time."""
    if rows is None or rows.num_rows < _SAMPLE_ROWS or any(map(pt.is_nested, rows.schema.types)):
        return True  # pyarrow's default: for all, until a dictionary is too large
    sample = rows.slice(0, _SAMPLE_ROWS)
    return [name for name in sample.column_names if pc.count_distinct(sample[name]).as_py() <= _SAMPLE_ROWS * 4 // 5]


class DataFile:
    """A data file that is being written; `finish` returns its add action."""

    def __init__(
        self, storage: Storage, path: str, schema: pa.Schema, stats: StatsPlan, options: ParquetOptions
    ) -> None:
        self.path = path
        self._storage = storage
        self._schema = schema
        self._stats = stats.start(options.silent, options.text_bytes)
        self._options = options
        self._file = storage.create(path)
        self._writer: pq.ParquetWriter | None = None

    @property
    def size(self) -> int:
        """Bytes written so far."""
        return int(self._file.sink.tell())

    def write(self, columns: pa.Table) -> None:
        """Add a row group."""
        try:
            if self._writer is None:
                self._writer = self._options.open(self._file.sink, self._schema, columns)
            self._writer.write_table(columns, row_group_size=max(1, columns.num_rows))
        except StorageError:  # an OSError that says enough
            raise
        except OSError as error:
            raise self._failure(error) from error
        for batch in columns.to_batches():
            self._stats.add(batch.columns, batch.num_rows)

    def finish(self, partition_values: Mapping[str, str | None], *, data_change: bool) -> AddFile:
        writer = self._writer or self._options.open(self._file.sink, self._schema)
        try:
            writer.close()
            result = self._file.finish()
        except OSError as error:
            writer.is_open = False
            if isinstance(error, StorageError):
                raise
            raise self._failure(error) from error
        return AddFile(
            path=encode_path(self.path),
            partition_values=partition_values,
            size=result.size,
            modification_time=result.modified_ms,
            data_change=data_change,
            stats=self._stats.to_json(),
        )

    def abandon(self) -> None:
        if self._writer is not None:
            self._writer.is_open = False  # otherwise it would write its footer when it is garbage-collected
        self._file.abandon()

    def _failure(self, error: OSError) -> DeltaError:
        return DeltaError(f"cannot write {self._storage.location}/{self.path}: {error.strerror or error}")
