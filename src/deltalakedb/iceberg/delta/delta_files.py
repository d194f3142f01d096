"""The data files of a Delta table as Iceberg describes them: paths, typed partition values, row ids, statistics."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date, datetime
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from deltalakedb.iceberg.delta.delta_schema import simple_type
from deltalakedb.iceberg.delta.delta_snapshots import sequence_number
from deltalakedb.iceberg.delta.field_ids import Path
from deltalakedb.iceberg.locations import to_iceberg
from deltalakedb.iceberg.planning.manifests import ColumnStats
from deltalakedb.iceberg.planning.types import Primitive, Value, is_decimal, parse_type, unscaled_of
from deltalakedb.log.protocol.actions import DeletionVector, Metadata
from deltalakedb.log.protocol.codec import deletion_vector_from_json, from_sql_text, key_hash
from deltalakedb.log.protocol.paths import decode_path, is_absolute, resolve
from deltalakedb.log.schema.partitions import parse_partition_value
from deltalakedb.log.schema.types import DataType, DecimalType, Leaf, PrimitiveType, leaf_columns, parse_schema
from deltalakedb.log.statistics.bounds import CUT_SLACK_US
from deltalakedb.log.statistics.intervals import lower_text_bound, upper_text_bound
from deltalakedb.log.statistics.moments import Zone, parse_date, parse_timestamp
from deltalakedb.log.statistics.stats import FileStats, parse_stats, to_decimal, value_at
from deltalakedb.storage.opening import open_storage

COLUMNS: Final = (
    "path", "size", "num_records", "partition_values", "stats", "deletion_vector", "base_row_id",
    "default_row_commit_version", "version", "file_id",
)  # fmt: skip
"""The columns of dl_add_files that a file is made of."""

_EPOCH_DAY: Final = date(1970, 1, 1).toordinal()
_INTEGER_FORMATS: Final = {"int": "<i", "long": "<q", "date": "<i", "timestamp": "<q", "timestamptz": "<q"}
_EXACT_DIGITS: Final = 15
"""Some writers put decimals into statistics as doubles, which hold so many digits."""


@dataclass(frozen=True, slots=True)
class DeltaFile:
    """A live data file of a version."""

    file_id: int
    path: str
    size: int
    num_records: int
    """All rows, also those that the vector deletes."""
    partition: tuple[Value | None, ...]
    sequence_number: int
    added_version: int
    first_row_id: int | None
    vector: DeletionVector | None
    vector_key: str
    stats: str | None


class FileShape:
    """How the files of a version are described: by the schema and the partitioning that it has."""

    def __init__(
        self,
        location: str,
        metadata: Metadata,
        ids: Mapping[Path, int],
        *,
        spec_id: int,
        options: Mapping[str, str] | None = None,
    ) -> None:
        """`location` is the table's own."""
        self.location = location
        self.client_location = to_iceberg(location)
        self.spec_id = spec_id
        self._options = options
        schema = parse_schema(metadata.schema_string)
        columns = [schema.field(name) for name in metadata.partition_columns]
        self.partition_columns = [(item.physical_name, item.type) for item in columns if item is not None]
        self.partition_types = [_primitive(kind) for _, kind in self.partition_columns]
        self._leaves = [
            (leaf, ids[leaf.physical_path], _primitive(leaf.type))
            for leaf in leaf_columns(schema)
            if isinstance(leaf.type, PrimitiveType | DecimalType)
        ]

    def files(self, rows: pa.Table) -> list[DeltaFile]:
        """The files of rows with COLUMNS."""
        partitions: dict[str, tuple[Value | None, ...]] = {}
        return [self._file(row, partitions) for row in rows.select(COLUMNS).to_pylist()]

    def _file(self, row: Mapping[str, Any], partitions: dict[str, tuple[Value | None, ...]]) -> DeltaFile:
        path, partition_values = row["path"], row["partition_values"]
        vector, num_records = None, row["num_records"]
        if row["deletion_vector"] is not None:
            vector = deletion_vector_from_json(from_sql_text(row["deletion_vector"]))
        if num_records is None:
            num_records = self._count_rows(path)
        elif vector is not None:
            num_records += vector.cardinality
        if partition_values not in partitions:
            partitions[partition_values] = tuple(self._partition(partition_values))
        written_in = row["version"] if row["default_row_commit_version"] is None else row["default_row_commit_version"]
        return DeltaFile(
            file_id=row["file_id"],
            path=self.client_path(path),
            size=row["size"],
            num_records=num_records,
            partition=partitions[partition_values],
            sequence_number=sequence_number(min(written_in, row["version"])),
            added_version=row["version"],
            first_row_id=row["base_row_id"],
            vector=vector,
            vector_key="" if vector is None else key_hash(path, vector.unique_id).hex(),
            stats=row["stats"],
        )

    def client_path(self, path: str) -> str:
        """The path of a file as Iceberg clients read it, who do not decode it."""
        plain = from_sql_text(path)
        if is_absolute(plain):
            return to_iceberg(resolve(self.location, plain))
        return f"{self.client_location}/{decode_path(plain)}"

    def _count_rows(self, path: str) -> int:
        """The rows of a file without statistics, by its footer."""
        with open_storage(self.location, self._options).open(decode_path(from_sql_text(path))) as file:
            return int(pq.ParquetFile(file).metadata.num_rows)

    def _partition(self, text: str) -> Iterator[Value | None]:
        values = json.loads(text)
        for (name, kind), type_ in zip(self.partition_columns, self.partition_types, strict=True):
            yield _plain(parse_partition_value(values.get(name), kind), type_)

    def column_stats(self, file: DeltaFile) -> ColumnStats:
        """Statistics of the columns by field id; bounds contain all values, also where Delta's are cut."""
        stats = parse_stats(None if file.stats is None else from_sql_text(file.stats), exact=True)
        result = ColumnStats({}, {}, {}, {}, {})
        if stats is not None:
            for leaf, number, type_ in self._leaves:
                _add_column(result, stats, leaf, number, type_)
        return result


def _primitive(kind: DataType) -> Primitive:
    """The Iceberg type of a column that has values of its own."""
    type_ = parse_type(simple_type(kind))
    assert type_ is not None, "every simple type of Delta has one in Iceberg"
    return type_


def _plain(value: Any, type_: Primitive) -> Value | None:
    """A value as Iceberg compares it: days and microseconds are numbers."""
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, datetime):
        delta = value.replace(tzinfo=None) - datetime(1970, 1, 1)  # noqa: DTZ001  both are in UTC, or have no zone
        return (delta.days * 86_400 + delta.seconds) * 1_000_000 + delta.microseconds
    if isinstance(value, date):
        return value.toordinal() - _EPOCH_DAY
    if isinstance(value, int) and type_.family == "float":
        return float(value)
    return value  # type: ignore[no-any-return]


# ---- statistics


def _add_column(result: ColumnStats, stats: FileStats, leaf: Leaf, number: int, type_: Primitive) -> None:
    null_count = value_at(stats.null_count, leaf.physical_path)
    if type(null_count) is int and stats.num_records is not None and 0 <= null_count <= stats.num_records:
        is_exact = stats.tight_bounds or null_count in (0, stats.num_records)
        if is_exact:
            _set(result.value_counts, number, stats.num_records)
            _set(result.null_counts, number, null_count)
    low = value_at(stats.min_values, leaf.physical_path)
    high = value_at(stats.max_values, leaf.physical_path)
    lower, upper = _bounds(type_, low, high)
    if lower is not None:
        _set(result.lower_bounds, number, lower)
    if upper is not None:
        _set(result.upper_bounds, number, upper)


def _set(values: Mapping[int, Any], number: int, value: Any) -> None:
    assert isinstance(values, dict)
    values[number] = value


def _bounds(type_: Primitive, low: Any, high: Any) -> tuple[bytes | None, bytes | None]:
    """Both ends in Iceberg's binary form, None where nothing sound can be said."""
    if type_.family == "text":
        return _text_bounds(low, high)
    if type_.family == "float":
        # Not above: a NaN is above all numbers, and statistics leave it out.
        return _float_bound(type_, low), None
    if is_decimal(type_):
        return _decimal_bound(type_, low, ROUND_FLOOR), _decimal_bound(type_, high, ROUND_CEILING)
    if type_.family in ("integer", "days", "micros"):
        lower, upper = _whole(type_, low, below=True), _whole(type_, high, below=False)
        return _pack(type_, lower), _pack(type_, upper)
    return None, None


def _text_bounds(low: Any, high: Any) -> tuple[bytes | None, bytes | None]:
    lower = lower_text_bound(low).encode() if isinstance(low, str) else None
    upper = upper_text_bound(high) if isinstance(high, str) else None
    return lower, None if upper is None else upper.encode()


def _float_bound(type_: Primitive, low: Any) -> bytes | None:
    if isinstance(low, bool) or not isinstance(low, int | float | Decimal):
        return None
    value = float(low)
    if type_.name == "double":
        return struct.pack("<d", -0.0 if value == 0 else value)
    try:
        single = struct.unpack("<f", struct.pack("<f", value))[0]
    except OverflowError:
        return None
    # Statistics may be rounded to fewer digits: a step below is sound.
    step = abs(single) * 2.0**-20 + 1e-40
    try:
        return struct.pack("<f", -0.0 if value == 0 else single - step)
    except OverflowError:
        return None


def _decimal_bound(type_: Primitive, raw: Any, rounding: str) -> bytes | None:
    value = to_decimal(raw) if not isinstance(raw, bool | None) else None
    digits = int(type_.name[len("decimal(") :].partition(",")[0])
    if value is None or digits > _EXACT_DIGITS:
        return None
    unscaled = unscaled_of(type_, value.quantize(Decimal(1).scaleb(-type_.scale), rounding))
    return unscaled.to_bytes((unscaled.bit_length() // 8) + 1, "big", signed=True)


def _whole(type_: Primitive, raw: Any, *, below: bool) -> int | None:
    if type_.family == "integer":
        return raw if type(raw) is int else None
    if not isinstance(raw, str):
        return None
    if type_.family == "days":
        return parse_date(raw)
    moment = parse_timestamp(raw)
    expected = (Zone.UTC, Zone.OFFSET) if type_.name == "timestamptz" else (Zone.NONE, Zone.UTC)
    if moment is None or moment.zone not in expected:
        return None
    if below:
        return moment.micros - (CUT_SLACK_US if moment.micros < 0 else 0)
    return moment.micros + CUT_SLACK_US


def _pack(type_: Primitive, value: int | None) -> bytes | None:
    if value is None:
        return None
    try:
        return struct.pack(_INTEGER_FORMATS[type_.name], value)
    except struct.error:
        return None
