"""The data files of a Delta table as Iceberg describes them: paths, typed partition values, row ids, statistics."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date, datetime
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal, InvalidOperation
from functools import lru_cache, partial
from typing import Any, Final, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

from deltalakedb.iceberg.delta.delta_schema import iceberg_spec, simple_type
from deltalakedb.iceberg.delta.delta_snapshots import sequence_number
from deltalakedb.iceberg.delta.field_ids import Path
from deltalakedb.iceberg.delta.manifest_schemas import decimal_precision
from deltalakedb.iceberg.locations import client_path, to_iceberg
from deltalakedb.iceberg.planning.column_stats import ColumnStats
from deltalakedb.iceberg.planning.types import Primitive, Value, is_decimal, parse_type, unscaled_of
from deltalakedb.log.protocol.actions import DeletionVector, Metadata
from deltalakedb.log.protocol.codec import deletion_vector_from_json, from_sql_text, key_hash
from deltalakedb.log.schema.partitions import parse_partition_value
from deltalakedb.log.schema.types import DataType, DecimalType, PrimitiveType, leaf_columns, parse_schema
from deltalakedb.log.statistics.bounds import CUT_SLACK_US
from deltalakedb.log.statistics.intervals import lower_text_bound, upper_text_bound
from deltalakedb.log.statistics.moments import Zone, parse_date, parse_timestamp
from deltalakedb.log.statistics.stats import parse_stats, to_decimal, value_at
from deltalakedb.storage.location import open_logged, open_storage

COLUMNS: Final = (
    "path", "size", "num_records", "partition_values", "stats", "deletion_vector", "base_row_id",
    "default_row_commit_version", "version", "file_id",
)  # fmt: skip
"""The columns of dl_add_files that a file is made of."""

_EPOCH_DAY: Final = date(1970, 1, 1).toordinal()
_INTEGER_FORMATS: Final = {"int": "<i", "long": "<q"}
_DATE: Final = struct.Struct("<i")
_MICROS: Final = struct.Struct("<q")
_FLOAT: Final = struct.Struct("<f")
_DOUBLE: Final = struct.Struct("<d")
_ZONES: Final = {
    "timestamptz": frozenset((Zone.UTC, Zone.OFFSET)),
    "timestamp": frozenset((Zone.NONE, Zone.UTC)),
}
"""The zones that texts of a type may have: a time in an unknown zone is no bound."""

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
        options: Mapping[str, str] | None = None,
    ) -> None:
        """`location` is the table's own."""
        self.location = location
        self.client_location = to_iceberg(location)
        self.spec = iceberg_spec(metadata, ids)
        self.spec_id = int(self.spec["spec-id"])
        self._options = options
        schema = parse_schema(metadata.schema_string)
        columns = [schema.field(name) for name in metadata.partition_columns]
        self.partition_columns = [(item.physical_name, item.type) for item in columns if item is not None]
        self.partition_types = [_primitive(kind) for _, kind in self.partition_columns]
        leaves = [leaf for leaf in leaf_columns(schema) if isinstance(leaf.type, PrimitiveType | DecimalType)]
        self.types = {ids[leaf.physical_path]: _primitive(leaf.type) for leaf in leaves}
        """The type of each field that has values of its own."""
        self._columns = [
            (number, path[0], path if len(path) > 1 else None, _bounds_of(self.types[number]))
            for path, number in ((leaf.physical_path, ids[leaf.physical_path]) for leaf in leaves)
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
            path=client_path(self.location, from_sql_text(path)),
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

    def _count_rows(self, path: str) -> int:
        """The rows of a file without statistics, by its footer."""
        with open_logged(open_storage(self.location, self._options), from_sql_text(path)) as file:
            return int(pq.ParquetFile(file).metadata.num_rows)

    def _partition(self, text: str) -> Iterator[Value | None]:
        values = json.loads(text)
        for (name, kind), type_ in zip(self.partition_columns, self.partition_types, strict=True):
            yield _plain(parse_partition_value(values.get(name), kind), type_)

    def column_stats(self, file: DeltaFile) -> ColumnStats:
        """Statistics of the columns by field id; bounds contain all values, also where Delta's are cut."""
        value_counts: dict[int, int] = {}
        null_counts: dict[int, int] = {}
        lower_bounds: dict[int, bytes] = {}
        upper_bounds: dict[int, bytes] = {}
        stats = parse_stats(None if file.stats is None else from_sql_text(file.stats))
        if stats is not None:
            records, lows, highs, nulls = stats.num_records, stats.min_values, stats.max_values, stats.null_count
            for number, name, path, bounds in self._columns:
                if path is None:
                    null_count, low, high = nulls.get(name), lows.get(name), highs.get(name)
                else:
                    null_count, low, high = value_at(nulls, path), value_at(lows, path), value_at(highs, path)
                # If bounds are not tight, null counts are those of all rows, also of deleted ones.
                if (
                    type(null_count) is int
                    and records is not None
                    and 0 <= null_count <= records
                    and (stats.tight_bounds or null_count in (0, records))
                ):
                    value_counts[number], null_counts[number] = records, null_count
                if low is None and high is None:
                    continue
                lower, upper = bounds(low, high)
                if lower is not None:
                    lower_bounds[number] = lower
                if upper is not None:
                    upper_bounds[number] = upper
        return ColumnStats(value_counts, null_counts, {}, lower_bounds, upper_bounds)

    def describes_like(self, other: FileShape) -> bool:
        """Whether files that the other shape described need no other description."""
        kinds = {number: type_.name for number, type_ in other.types.items()}
        return self.spec_id == other.spec_id and all(
            kinds.get(number, type_.name) == type_.name for number, type_ in self.types.items()
        )


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
    plain: Value | None = value
    return plain


# ---- statistics

Bounds: TypeAlias = Callable[[Any, Any], tuple[bytes | None, bytes | None]]
"""Both ends of a column in Iceberg's binary form, from those in Delta's statistics; None: nothing sound can be said."""


def _bounds_of(type_: Primitive) -> Bounds:
    if type_.family == "text":
        return _text_bounds
    if type_.name == "double":
        return _double_bounds
    if type_.name == "float":
        return _float_bounds
    if is_decimal(type_):
        return partial(_decimal_bounds, type_)
    if type_.family == "integer":
        return partial(_integer_bounds, struct.Struct(_INTEGER_FORMATS[type_.name]))
    if type_.family == "days":
        return _date_bounds
    if type_.family == "micros":
        return partial(_timestamp_bounds, _ZONES[type_.name])
    return _no_bounds


def _no_bounds(low: Any, high: Any) -> tuple[None, None]:  # noqa: ARG001  the signature of Bounds
    return None, None


def _text_bounds(low: Any, high: Any) -> tuple[bytes | None, bytes | None]:
    lower = lower_text_bound(low).encode() if type(low) is str else None
    upper = upper_text_bound(high) if type(high) is str else None
    return lower, None if upper is None else upper.encode()


# Floats have no upper bound: a NaN is above all numbers, and statistics leave it out.


def _double_bounds(low: Any, high: Any) -> tuple[bytes | None, None]:  # noqa: ARG001  the signature of Bounds
    value = _to_float(low)
    return None if value is None else _DOUBLE.pack(-0.0 if value == 0 else value), None


def _float_bounds(low: Any, high: Any) -> tuple[bytes | None, None]:  # noqa: ARG001  the signature of Bounds
    value = _to_float(low)
    if value is None:
        return None, None
    try:
        single = _FLOAT.unpack(_FLOAT.pack(value))[0]
        # Statistics may be rounded to fewer digits: a step below is sound.
        step = abs(single) * 2.0**-20 + 1e-40
        return _FLOAT.pack(-0.0 if value == 0 else single - step), None
    except OverflowError:
        return None, None


def _to_float(raw: Any) -> float | None:
    if type(raw) is not float and type(raw) is not int:
        return None
    try:
        value = float(raw)
    except OverflowError:
        return None
    return None if math.isnan(value) else value


def _decimal_bounds(type_: Primitive, low: Any, high: Any) -> tuple[bytes | None, bytes | None]:
    return _decimal_bound(type_, low, ROUND_FLOOR), _decimal_bound(type_, high, ROUND_CEILING)


def _decimal_bound(type_: Primitive, raw: Any, rounding: str) -> bytes | None:
    value = to_decimal(raw) if not isinstance(raw, bool | None) else None
    if value is None or decimal_precision(type_) > _EXACT_DIGITS:
        return None
    try:
        unscaled = unscaled_of(type_, value.quantize(Decimal(1).scaleb(-type_.scale), rounding))
    except InvalidOperation:  # more digits than a decimal has
        return None
    return unscaled.to_bytes((unscaled.bit_length() // 8) + 1, "big", signed=True)


def _integer_bounds(form: struct.Struct, low: Any, high: Any) -> tuple[bytes | None, bytes | None]:
    try:
        return form.pack(low) if type(low) is int else None, form.pack(high) if type(high) is int else None
    except struct.error:
        return None, None


def _date_bounds(low: Any, high: Any) -> tuple[bytes | None, bytes | None]:
    return _date(low), _date(high)


@lru_cache(maxsize=16_384)
def _date(raw: Any) -> bytes | None:
    days = parse_date(raw) if isinstance(raw, str) else None
    return None if days is None else _DATE.pack(days)


def _timestamp_bounds(zones: frozenset[Zone], low: Any, high: Any) -> tuple[bytes | None, bytes | None]:
    lower = upper = None
    if type(low) is str:
        moment = parse_timestamp(low)
        if moment is not None and moment.zone in zones:
            lower = _MICROS.pack(moment.micros - (CUT_SLACK_US if moment.micros < 0 else 0))
    if type(high) is str:
        moment = parse_timestamp(high)
        if moment is not None and moment.zone in zones:
            upper = _MICROS.pack(moment.micros + CUT_SLACK_US)
    return lower, upper
