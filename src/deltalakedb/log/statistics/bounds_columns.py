"""Chooses the columns that have statistics, and those with bounds, by their types and the table's properties."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from deltalakedb.log.protocol.codec import to_json
from deltalakedb.log.schema.types import DataType, DecimalType, Leaf, PrimitiveType, StructType, leaf_columns

Kind: TypeAlias = Literal["number", "date", "timestamp", "text"]

MAX_COLUMNS: Final = 32
_NUMBERS: Final = frozenset({"byte", "short", "integer", "long", "float", "double", "boolean"})


@dataclass(frozen=True, slots=True)
class BoundsColumn:
    """A column that has bounds; `column_path` is the JSON array of its physical path."""

    column_path: str
    kind: Kind
    type: DataType
    is_partition: bool
    is_float: bool
    was_float32: bool = False

    @property
    def physical_path(self) -> tuple[str, ...]:
        return tuple(json.loads(self.column_path))


def kind_of(data_type: DataType) -> Kind | None:
    """The kind of bounds that a type has; None for types whose order is not used."""
    if isinstance(data_type, DecimalType):
        return "number"
    if not isinstance(data_type, PrimitiveType):
        return None
    if data_type.name in _NUMBERS:
        return "number"
    if data_type.name in ("timestamp", "timestamp_ntz"):
        return "timestamp"
    if data_type.name == "date":
        return "date"
    return "text" if data_type.name == "string" else None


def bounds_columns(
    schema: StructType, partition_columns: Sequence[str], configuration: Mapping[str, str | None]
) -> list[BoundsColumn]:
    """The columns with bounds: every partition column, and at most 32 columns that writers gather statistics of."""
    partitions: list[BoundsColumn] = []
    data: list[BoundsColumn] = []
    selects = _wanted(configuration)
    for position, leaf in enumerate(_data_leaves_first(schema, partition_columns)):
        is_partition = len(leaf.path) == 1 and leaf.path[0] in partition_columns
        kind = kind_of(leaf.type)
        if kind is None or (kind == "text" and leaf.field.has_collation):
            continue
        column = _column(leaf, kind, is_partition)
        if is_partition:
            partitions.append(column)
        elif len(data) < MAX_COLUMNS and selects(leaf.path, position):
            data.append(column)
    return [*partitions, *data]


def stats_leaves(
    schema: StructType, partition_columns: Sequence[str], configuration: Mapping[str, str | None]
) -> list[Leaf]:
    """The data columns that a writer gathers statistics of, in the schema's order, including those without an order.

    As in `deltalake`, a struct counts as one column, whatever it contains.
    """
    selects = _wanted(configuration)
    data = [leaf for leaf in leaf_columns(schema) if len(leaf.path) > 1 or leaf.path[0] not in partition_columns]
    places = {name: place for place, name in enumerate(dict.fromkeys(leaf.path[0] for leaf in data))}
    return [leaf for leaf in data if selects(leaf.path, places[leaf.path[0]])]


def _data_leaves_first(schema: StructType, partition_columns: Sequence[str]) -> list[Leaf]:
    """Data columns first, with the positions that writers count; partition columns have no statistics."""
    return sorted(leaf_columns(schema), key=lambda leaf: len(leaf.path) == 1 and leaf.path[0] in partition_columns)


def _column(leaf: Leaf, kind: Kind, is_partition: bool) -> BoundsColumn:
    name = leaf.type.name if isinstance(leaf.type, PrimitiveType) else ""
    was_float32 = name == "float" or any(change.from_type == "float" for change in leaf.field.type_changes)
    path = to_json(list(leaf.physical_path))
    return BoundsColumn(path, kind, leaf.type, is_partition, name in ("float", "double"), was_float32)


def _wanted(configuration: Mapping[str, str | None]) -> Any:
    """Returns a test for leaves with statistics, by delta.dataSkippingStatsColumns or
    delta.dataSkippingNumIndexedCols."""
    listed = configuration.get("delta.dataSkippingStatsColumns")
    if listed:
        chosen = [_split_name(name) for name in re.findall(r"(?:`(?:[^`]|``)*`|[^,`])+", listed)]
        return lambda path, _: any(_folded(path[: len(name)]) == _folded(name) for name in chosen if name)
    try:
        limit = int(configuration.get("delta.dataSkippingNumIndexedCols") or MAX_COLUMNS)
    except ValueError:
        limit = MAX_COLUMNS
    return lambda _, position: limit < 0 or position < limit


def _split_name(name: str) -> tuple[str, ...]:
    parts = re.findall(r"`((?:[^`]|``)*)`|([^.`]+)", name.strip())
    return tuple(quoted.replace("``", "`") if quoted else plain.strip() for quoted, plain in parts)


def _folded(path: Sequence[str]) -> tuple[str, ...]:
    return tuple(part.casefold() for part in path)
