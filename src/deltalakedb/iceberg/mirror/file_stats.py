"""The statistics of a data file for Delta, from the bounds in Iceberg's manifests.

Every bound is one that holds: strings may be cut, so upper ones are rounded up; timestamps are rounded outwards to the
millisecond; floats that may be NaN have no bounds.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Final

from deltalakedb.iceberg.mirror.columns import Column
from deltalakedb.iceberg.planning.column_stats import ColumnStats
from deltalakedb.iceberg.planning.manifests import Entry
from deltalakedb.iceberg.planning.types import Primitive, Value, from_bytes, is_decimal, parse_type
from deltalakedb.log.protocol.codec import to_json

_LONGEST_TEXT: Final = 64
_EPOCH_DAY: Final = date(1970, 1, 1)
_EPOCH: Final = datetime(1970, 1, 1)  # noqa: DTZ001  the zone is in the column's type


def stats_json(entry: Entry, columns: Iterable[Column], ids_in_file: Collection[int], *, has_vector: bool) -> str:
    """Return the statistics string of a data file, by physical names."""
    lows, highs, nulls = [], [], []
    for column in columns:
        kind = None if column.type is None else parse_type(column.type)
        if kind is None or column.field_id not in ids_in_file:
            continue
        key, field_id = to_json(column.physical_name), column.field_id
        null_count = entry.stats.null_counts.get(field_id)
        if null_count is not None:
            nulls.append(f"{key}:{null_count}")
        low = _bound(entry.stats.lower_bounds.get(field_id), kind, entry.stats, field_id, is_upper=False)
        high = _bound(entry.stats.upper_bounds.get(field_id), kind, entry.stats, field_id, is_upper=True)
        lows += [] if low is None else [f"{key}:{low}"]
        highs += [] if high is None else [f"{key}:{high}"]
    members = [f'"numRecords":{entry.num_records}', f'"tightBounds":{"false" if has_vector else "true"}']
    for name, parts in (("minValues", lows), ("maxValues", highs), ("nullCount", nulls)):
        members.append(f'"{name}":{{{",".join(parts)}}}')
    return f"{{{','.join(members)}}}"


def _bound(raw: bytes | None, kind: Primitive, stats: ColumnStats, field_id: int, *, is_upper: bool) -> str | None:
    """The JSON of a bound; None if there is none that is sure to hold for Delta readers."""
    value = None if raw is None else from_bytes(kind, raw)
    if value is None or (kind.family == "float" and stats.nan_counts.get(field_id) != 0):
        return None
    return _bound_json(value, kind, is_upper=is_upper)


def _bound_json(value: Value, kind: Primitive, *, is_upper: bool) -> str | None:
    if isinstance(value, str):
        if len(value) > _LONGEST_TEXT:
            return None if is_upper else to_json(value[:_LONGEST_TEXT])
        return to_json(value)
    if isinstance(value, Decimal):
        return format(value, "f") if is_decimal(kind) else None
    if isinstance(value, float):
        return repr(value) if math.isfinite(value) else None
    if isinstance(value, int) and kind.family == "integer":
        return str(value)
    try:
        if kind.family == "days":
            return to_json((_EPOCH_DAY + timedelta(days=int(value))).isoformat())
        if kind.family == "micros":
            milliseconds = -(-int(value) // 1000) if is_upper else int(value) // 1000
            text = (_EPOCH + timedelta(milliseconds=milliseconds)).isoformat(timespec="milliseconds")
            return to_json(text + ("Z" if kind.name == "timestamptz" else ""))
    except (OverflowError, ValueError):  # outside of the years that readers know
        return None
    return None
