"""Column mapping: gives every column an id and a physical name for the data files."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import count
from typing import TypeAlias

from deltalakedb.exceptions import ConfigError
from deltalakedb.log.protocol.features import COLUMN_MAPPING_MODE, every_field
from deltalakedb.log.schema.types import ArrayType, DataType, MapType, StructField, StructType

_MAX_ID = "delta.columnMapping.maxColumnId"
_ID = "delta.columnMapping.id"
_PHYSICAL_NAME = "delta.columnMapping.physicalName"

NewName: TypeAlias = Callable[[], str]
"""Returns a physical name that no column has had before."""


def mapping_mode(configuration: Mapping[str, str | None]) -> str:
    """The column mapping mode: `none`, `name` or `id`."""
    mode = (configuration.get(COLUMN_MAPPING_MODE) or "none").lower()
    if mode not in ("none", "name", "id"):
        raise ConfigError(f"{COLUMN_MAPPING_MODE} is none, name or id, not {mode!r}")
    return mode


def map_columns(
    schema: StructType, configuration: Mapping[str, str | None], *, new_name: NewName | None
) -> tuple[StructType, dict[str, str | None]]:
    """Give an id and a physical name to each column, including nested ones, that has none yet.

    Without `new_name` physical names are the columns' own: those of existing data files.
    """
    used_ids = [number for _, item in every_field(schema) if (number := item.id) is not None]
    highest = max([0, *used_ids, int(configuration.get(_MAX_ID) or 0)])
    ids = count(highest + 1)
    mapped = _map_struct(schema, ids, new_name)
    assigned_ids = [item.id or 0 for _, item in every_field(mapped)]
    return mapped, {**configuration, _MAX_ID: str(max(highest, *assigned_ids))}


def _map_struct(struct: StructType, ids: Iterator[int], new_name: NewName | None) -> StructType:
    return StructType(tuple(_map_field(item, ids, new_name) for item in struct.fields))


def _map_field(item: StructField, ids: Iterator[int], new_name: NewName | None) -> StructField:
    metadata = dict(item.metadata)
    if _ID not in metadata:
        metadata[_ID] = next(ids)
    if _PHYSICAL_NAME not in metadata:
        metadata[_PHYSICAL_NAME] = item.name if new_name is None else new_name()
    return replace(item, type=_map_type(item.type, ids, new_name), metadata=metadata)


def _map_type(kind: DataType, ids: Iterator[int], new_name: NewName | None) -> DataType:
    match kind:
        case StructType():
            return _map_struct(kind, ids, new_name)
        case ArrayType():
            return replace(kind, element_type=_map_type(kind.element_type, ids, new_name))
        case MapType():
            key, value = (_map_type(part, ids, new_name) for part in (kind.key_type, kind.value_type))
            return replace(kind, key_type=key, value_type=value)
        case _:
            return kind
