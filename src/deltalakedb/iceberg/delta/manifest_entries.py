"""Encodes the files of a Delta table as entries of manifests: data files, and the vectors that delete rows in them."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

from deltalakedb.iceberg.delta.avro_writer import NULL, PRESENT, avro_bytes, avro_long, avro_optional, avro_text
from deltalakedb.iceberg.delta.delta_files import DeltaFile, FileShape
from deltalakedb.iceberg.delta.delta_snapshots import sequence_number
from deltalakedb.iceberg.delta.manifest_schemas import decimal_precision, decimal_size
from deltalakedb.iceberg.planning.types import Primitive, Value, unscaled_of
from deltalakedb.store.iceberg_delta import VectorCopy

EXISTING: Final = avro_long(0)
ADDED: Final = avro_long(1)
"""The status of an entry, with which it begins."""

_DATA: Final = avro_long(0)
_DELETES: Final = avro_long(1)
_PARQUET: Final = avro_text("PARQUET")
_PUFFIN: Final = avro_text("PUFFIN")
_NOTHING_ELSE: Final = NULL * 4
"""Key metadata, split offsets, equality ids and sort order."""
_NO_STATS: Final = NULL * 6
_FORMATS: Final = {
    "int": "<i",
    "long": "<q",
    "date": "<i",
    "timestamp": "<q",
    "timestamptz": "<q",
    "float": "<f",
    "double": "<d",
    "boolean": "<?",
}


@dataclass(frozen=True, slots=True)
class FileEntry:
    """A file as an entry without its status, and what its manifest's row in a manifest list is made of."""

    file_id: int
    added_version: int
    encoded: bytes
    num_rows: int
    sequence_number: int
    partition: tuple[Value | None, ...]
    first_row_id: int | None = None


class EntryEncoder:
    """Encodes the files of one shape."""

    def __init__(
        self, shape: FileShape, format_version: int, snapshot_ids: Mapping[int, int], *, has_row_ids: bool
    ) -> None:
        """`snapshot_ids` are those of all versions that files were added in."""
        self._shape = shape
        self._format_version = format_version
        self._snapshot_ids = snapshot_ids
        self._has_row_ids = has_row_ids
        self._partitions: dict[tuple[Value | None, ...], bytes] = {}
        # -0.0 equals 0.0, but is another partition.
        self._has_floats = any(type_.family == "float" for type_ in shape.partition_types)
        self._keys = {number: avro_long(number) for number in shape.types}

    def data_entry(self, file: DeltaFile) -> FileEntry:
        """The entry of a data file."""
        parts = [
            self._version_numbers(file.added_version, file.sequence_number),
            _DATA,
            avro_text(file.path),
            _PARQUET,
            self._partition(file.partition),
            avro_long(file.num_records),
            avro_long(file.size),
            self._stats(file),
            _NOTHING_ELSE,
        ]
        first_row_id = file.first_row_id if self._has_row_ids else None
        if self._format_version > 2:
            parts += (avro_optional(None if first_row_id is None else avro_long(first_row_id)), NULL * 3)
        return FileEntry(
            file.file_id,
            file.added_version,
            b"".join(parts),
            file.num_records,
            file.sequence_number,
            file.partition,
            first_row_id,
        )

    def vector_entry(self, file: DeltaFile, copy: VectorCopy) -> FileEntry:
        """The entry of a file's deletion vector; the table is of format version 3."""
        assert file.vector is not None
        number = sequence_number(file.added_version)
        parts = [
            self._version_numbers(file.added_version, number),
            _DELETES,
            avro_text(copy.puffin_path),
            _PUFFIN,
            self._partition(file.partition),
            avro_long(file.vector.cardinality),
            avro_long(copy.puffin_size),
            _NO_STATS,
            _NOTHING_ELSE,
            NULL,
            PRESENT + avro_text(file.path),
            PRESENT + avro_long(copy.content_offset),
            PRESENT + avro_long(copy.content_size),
        ]
        num_rows = file.vector.cardinality
        return FileEntry(file.file_id, file.added_version, b"".join(parts), num_rows, number, file.partition)

    def _version_numbers(self, added_version: int, data_sequence_number: int) -> bytes:
        """The snapshot that added the file, and the sequence numbers of its data and of the file."""
        return (
            PRESENT
            + avro_long(self._snapshot_ids[added_version])
            + PRESENT
            + avro_long(data_sequence_number)
            + PRESENT
            + avro_long(sequence_number(added_version))
        )

    def _partition(self, values: tuple[Value | None, ...]) -> bytes:
        encoded = None if self._has_floats else self._partitions.get(values)
        if encoded is None:
            pairs = zip(self._shape.partition_types, values, strict=True)
            encoded = b"".join(
                avro_optional(None if value is None else _partition_value(type_, value)) for type_, value in pairs
            )
            self._partitions[values] = encoded
        return encoded

    def _stats(self, file: DeltaFile) -> bytes:
        """Column sizes (none), counts of values, nulls and NaNs (none), lower and upper bounds."""
        stats = self._shape.column_stats(file)
        keys = self._keys
        return b"".join(
            (
                NULL,
                _map([keys[number] + avro_long(count) for number, count in stats.value_counts.items()]),
                _map([keys[number] + avro_long(count) for number, count in stats.null_counts.items()]),
                NULL,
                _map([keys[number] + avro_bytes(value) for number, value in stats.lower_bounds.items()]),
                _map([keys[number] + avro_bytes(value) for number, value in stats.upper_bounds.items()]),
            )
        )


def _map(pairs: Sequence[bytes]) -> bytes:
    return b"".join((PRESENT, avro_long(len(pairs)), *pairs, b"\0")) if pairs else NULL


def _partition_value(type_: Primitive, value: Value) -> bytes:
    """A partition value in Avro."""
    if isinstance(value, Decimal):
        size = decimal_size(decimal_precision(type_))
        return unscaled_of(type_, value).to_bytes(size, "big", signed=True)
    if isinstance(value, str):
        return avro_text(value)
    if isinstance(value, bytes):
        return avro_bytes(value)
    if type_.family in ("boolean", "float"):
        return struct.pack(_FORMATS[type_.name], value)
    assert isinstance(value, int)
    return avro_long(value)


def partition_summaries(types: Sequence[Primitive], entries: Sequence[FileEntry]) -> bytes | None:
    """The encoded summaries of partition fields in a manifest list; None if there are none, or one cannot be made."""
    if not types or any(type_.family == "float" for type_ in types):
        return None  # whether a partition is NaN would have to be said
    summaries = [avro_long(len(types))]
    distinct = {entry.partition for entry in entries}
    for place, type_ in enumerate(types):
        values = [partition[place] for partition in distinct]
        present = [value for value in values if value is not None]
        ends = [_single_value(type_, end(present)) for end in (min, max)] if present else [None, None]
        summaries += [
            b"\1" if len(present) < len(values) else b"\0",
            NULL,
            *(avro_optional(None if raw is None else avro_bytes(raw)) for raw in ends),
        ]
    return b"".join([*summaries, b"\0"])


def _single_value(type_: Primitive, value: Value) -> bytes:
    """A value in Iceberg's binary form."""
    if isinstance(value, Decimal):
        unscaled = unscaled_of(type_, value)
        return unscaled.to_bytes((unscaled.bit_length() // 8) + 1, "big", signed=True)
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, bytes):
        return value
    return struct.pack(_FORMATS[type_.name], value)
