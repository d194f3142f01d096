"""Statistics and partition values in typed form, which a checkpoint may have beside their text."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal, InvalidOperation
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from deltalakedb.log.protocol.actions import Metadata
from deltalakedb.log.schema.partitions import parse_partition_value
from deltalakedb.log.schema.types import DataType, Leaf, parse_schema, to_arrow_type
from deltalakedb.log.statistics.bounds_columns import kind_of, stats_leaves
from deltalakedb.log.statistics.moments import Zone, parse_dates, parse_timestamps
from deltalakedb.log.statistics.stats import count_or_none, load_stats, typed_value, value_at

_NUM_RECORDS, _TIGHT_BOUNDS = "numRecords", "tightBounds"
_MIN, _MAX, _NULLS = "minValues", "maxValues", "nullCount"


class ParsedStats:
    """The `stats_parsed` column of one table: physical names, of the columns that have statistics."""

    def __init__(self, metadata: Metadata) -> None:
        schema = parse_schema(metadata.schema_string)
        self._leaves = stats_leaves(schema, metadata.partition_columns, metadata.configuration)
        self._bounded = [leaf for leaf in self._leaves if kind_of(leaf.type) is not None]
        self.type = self._struct(to_arrow_type)
        self._reading = pa.schema(list(self._struct(_reading_type)))

    def parse(self, texts: pa.Array) -> pa.StructArray:
        """The statistics of each file; null if there are none or they are unreadable."""
        present = pc.and_(texts.is_valid(), pc.greater(pc.binary_length(texts), 0)).fill_null(False)
        values = texts.filter(present)
        if not len(values):
            return pa.nulls(len(texts), self.type)
        try:
            parsed = self._parse_all(values)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            # NaN and Infinity are strings among numbers, and other writers' text may be anything: parse row by row.
            parsed = pa.array([self._parse_one(text) for text in values.to_pylist()], self.type)
        positions = pc.subtract(pc.cumulative_sum(present.cast(pa.int32())), 1)
        return parsed.take(pc.if_else(present, positions, None))

    def _struct(self, type_of: Callable[[DataType], pa.DataType]) -> pa.StructType:
        """Only members that are not empty: Parquet has no empty structs."""
        members = [pa.field(_NUM_RECORDS, pa.int64())]
        if self._bounded:
            members += [pa.field(name, _tree(self._bounded, type_of)) for name in (_MIN, _MAX)]
        if self._leaves:
            members.append(pa.field(_NULLS, _tree(self._leaves, lambda _: pa.int64())))
        return pa.struct([*members, pa.field(_TIGHT_BOUNDS, pa.bool_())])

    def _parse_all(self, values: pa.Array) -> pa.StructArray:
        lines = b"\n".join(text.encode() for text in values.to_pylist())
        if lines.count(b"\n") != len(values) - 1:
            raise pa.ArrowInvalid("line breaks in statistics")
        options = pyarrow.json.ParseOptions(explicit_schema=self._reading, unexpected_field_behavior="ignore")
        blocks = pyarrow.json.ReadOptions(block_size=len(lines) + 1)
        table = pyarrow.json.read_json(pa.BufferReader(lines), parse_options=options, read_options=blocks)
        if table.num_rows != len(values):
            raise pa.ArrowInvalid("not one object a line")
        rows = table.select(self._reading.names).combine_chunks().to_batches()[0]
        return _convert(rows.to_struct_array(), self.type)

    def _parse_one(self, text: str) -> dict[str, Any] | None:
        stats = load_stats(text, exact=True)
        if stats is None:
            return None
        value: dict[str, Any] = {_NUM_RECORDS: count_or_none(stats.get(_NUM_RECORDS))}
        tight = stats.get(_TIGHT_BOUNDS)
        value[_TIGHT_BOUNDS] = tight if isinstance(tight, bool) else None
        for name, rounding in ((_MIN, ROUND_FLOOR), (_MAX, ROUND_CEILING)):
            bounds = stats.get(name)
            if isinstance(bounds, dict):
                value[name] = _nest(self._bounded, lambda leaf: _bound(bounds, leaf, rounding))  # noqa: B023 used at once
        counts = stats.get(_NULLS)
        if isinstance(counts, dict):
            value[_NULLS] = _nest(self._leaves, lambda leaf: count_or_none(value_at(counts, leaf.physical_path)))
        return value


class ParsedPartitionValues:
    """The `partitionValues_parsed` column of one table."""

    def __init__(self, metadata: Metadata) -> None:
        schema = parse_schema(metadata.schema_string)
        fields = [field for name in metadata.partition_columns if (field := schema.field(name)) is not None]
        self._fields = fields
        self.type = pa.struct([pa.field(field.physical_name, to_arrow_type(field.type)) for field in fields])

    def parse(self, texts: pa.Array) -> pa.StructArray:
        """The typed values; MalformedLogError for text that is not a value of its column's type."""
        encoded = texts.dictionary_encode()
        values = [orjson.loads(text) for text in encoded.dictionary.to_pylist()]
        columns = []
        for field, arrow in zip(self._fields, self.type, strict=True):
            typed = [parse_partition_value(value.get(field.physical_name), field.type) for value in values]
            columns.append(pa.array(typed, arrow.type).take(encoded.indices))
        return pa.StructArray.from_arrays(columns, fields=list(self.type))


def _tree(leaves: Sequence[Leaf], type_of: Callable[[DataType], pa.DataType]) -> pa.StructType:
    fields: dict[str, Any] = {}
    for leaf in leaves:
        parent = fields
        for name in leaf.physical_path[:-1]:
            parent = parent.setdefault(name, {})
        parent[leaf.physical_path[-1]] = type_of(leaf.type)
    return _to_struct(fields)


def _to_struct(fields: Mapping[str, Any]) -> pa.StructType:
    return pa.struct(
        [pa.field(name, _to_struct(kind) if isinstance(kind, dict) else kind) for name, kind in fields.items()]
    )


def _nest(leaves: Sequence[Leaf], value_of: Callable[[Leaf], Any]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for leaf in leaves:
        parent = values
        for name in leaf.physical_path[:-1]:
            parent = parent.setdefault(name, {})
        parent[leaf.physical_path[-1]] = value_of(leaf)
    return values


def _reading_type(data_type: DataType) -> pa.DataType:
    """The type with which Arrow's JSON reader reads a bound without loss."""
    kind = to_arrow_type(data_type)
    if pa.types.is_integer(kind):
        return pa.int64()
    return pa.string() if pa.types.is_date(kind) or pa.types.is_timestamp(kind) else kind


def _convert(column: pa.Array, kind: pa.DataType) -> pa.Array:
    if pa.types.is_struct(kind):
        members = [_convert(child, field.type) for child, field in zip(column.flatten(), kind, strict=True)]
        return pa.StructArray.from_arrays(members, fields=list(kind), mask=column.is_null())
    if column.type == kind:
        return column
    if pa.types.is_date(kind):
        days, readable = parse_dates(column.to_pylist())
        return pa.array(days.astype(np.int32), mask=~readable).cast(kind)
    if pa.types.is_timestamp(kind):
        moments = parse_timestamps(column.to_pylist())
        unreadable = moments.zone == Zone.UNREADABLE
        if kind.tz is None:
            unreadable |= moments.zone == Zone.OFFSET
        return pa.array(moments.micros, mask=unreadable).cast(kind)
    return column.cast(kind)


def _bound(bounds: Mapping[str, Any], leaf: Leaf, rounding: str) -> Any:
    """A bound in the column's type; None if there is none, or it is out of the type's range."""
    value = typed_value(value_at(bounds, leaf.physical_path), leaf.type)
    kind = to_arrow_type(leaf.type)
    if isinstance(value, Decimal) and pa.types.is_decimal(kind):
        try:
            value = value.quantize(Decimal(1).scaleb(-kind.scale), rounding=rounding)
        except InvalidOperation:
            return None
    try:
        return None if value is None else pa.scalar(value, kind).as_py()
    except (pa.ArrowException, OverflowError, ValueError):
        return None
