"""The columns of an Iceberg table as Delta has them: types, physical names, and the column mapping mode.

Many Delta readers find columns by their physical names only, also in mode `id`. So a column is mapped by its id only if
its data files do not agree on its name.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Final, Literal

from deltalakedb.exceptions import CannotMirrorError
from deltalakedb.iceberg.mirror.layouts import TOP, Layout
from deltalakedb.log.schema.types import (
    ArrayType,
    DataType,
    DecimalType,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
    TypeChange,
)

MappingMode = Literal["none", "name", "id"]

_DELTA_NAMES: Final = {
    "boolean": "boolean",
    "int": "integer",
    "long": "long",
    "float": "float",
    "double": "double",
    "date": "date",
    "timestamp": "timestamp_ntz",
    "timestamptz": "timestamp",
    "string": "string",
    "binary": "binary",
}
_DECIMAL: Final = re.compile(r"decimal\(\s*(\d+)\s*,\s*(\d+)\s*\)")
_WIDENED: Final = {("int", "long"), ("float", "double")}
_ONLY_WITH_MAPPING: Final = frozenset(" ,;{}()\n\t=")


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the table."""

    field_id: int
    name: str
    physical_name: str
    type: str | None
    """Iceberg's name of a primitive type."""


@dataclass(frozen=True, slots=True)
class DeltaColumns:
    """The schema for Delta, and the features that a reader needs for it."""

    schema: StructType
    mode: MappingMode
    columns: tuple[Column, ...]
    has_timestamps_without_zone: bool
    has_widened_types: bool


def delta_columns(schema: Mapping[str, Any], layouts: Iterable[Layout]) -> DeltaColumns:
    """Return the columns of an Iceberg schema for Delta. `layouts` are those of all live files."""
    walk = _Walk(list(layouts))
    struct = walk.struct(schema, TOP, "")
    if walk.contradiction is not None and not all(layout.has_ids for layout in walk.layouts):
        raise CannotMirrorError(
            f"the column {walk.contradiction} does not have the same name in all data files, and some of them have no "
            "field ids by which readers could find it: rewrite the data files"
        )
    mode: MappingMode = "id" if walk.contradiction is not None else "name" if walk.is_mapped else "none"
    columns = tuple(
        Column(field["id"], item.name, item.physical_name, field["type"] if isinstance(field["type"], str) else None)
        for field, item in zip(schema["fields"], struct.fields, strict=True)
    )
    return DeltaColumns(
        _without_mapping(struct) if mode == "none" else struct, mode, columns, walk.has_ntz, walk.has_widened
    )


class _Walk:
    """One walk over a schema: what data files say of each field, and what was found on the way."""

    def __init__(self, layouts: list[Layout]) -> None:
        self.layouts = list(dict.fromkeys(layouts))
        self.contradiction: str | None = None
        """A column that some files have under another name, or whose name is another column's in some files."""
        self.is_mapped = False
        self.has_ntz = False
        self.has_widened = False
        self._names: defaultdict[int, set[str]] = defaultdict(set)
        self._types: defaultdict[int, set[str]] = defaultdict(set)
        self._ids: defaultdict[tuple[int, str], set[int]] = defaultdict(set)
        for layout in self.layouts:
            for item in layout.fields:
                self._names[item.field_id].add(item.name)
                self._types[item.field_id].add(item.type)
                self._ids[item.parent_id, item.name.lower()].add(item.field_id)

    def struct(self, struct: Mapping[str, Any], parent_id: int, above: str) -> StructType:
        taken: set[str] = set()
        names = {field["name"].lower() for field in struct["fields"]}
        if len(names) < len(struct["fields"]):
            where = f" in {above[:-1]}" if above else ""
            raise CannotMirrorError(f"two columns{where} differ only in the case of their names, which Delta ignores")
        return StructType(tuple(self._field(field, parent_id, above, names, taken) for field in struct["fields"]))

    def _field(
        self, field: Mapping[str, Any], parent_id: int, above: str, names: set[str], taken: set[str]
    ) -> StructField:
        name, field_id = str(field["name"]), int(field["id"])
        path = above + name
        self._check_default(field, path)
        physical_name = self._physical_name(name, field_id, parent_id, path, names, taken)
        taken.add(physical_name.lower())
        if physical_name != name or not _ONLY_WITH_MAPPING.isdisjoint(name):
            self.is_mapped = True
        changes: list[TypeChange] = []
        kind = self._type(field["type"], field_id, path, "", changes)
        metadata: dict[str, Any] = {
            "delta.columnMapping.id": field_id,
            "delta.columnMapping.physicalName": physical_name,
        }
        if field.get("doc"):
            metadata["comment"] = str(field["doc"])
        if changes:
            self.has_widened = True
            metadata["delta.typeChanges"] = [_change_json(change) for change in changes]
        # Iceberg does not check that required columns hold no null, so readers are not told to rely on it.
        return StructField(name, kind, True, metadata)

    def _check_default(self, field: Mapping[str, Any], path: str) -> None:
        if field.get("initial-default") is not None and any(field["id"] not in item.ids for item in self.layouts):
            raise CannotMirrorError(
                f"the column {path} has a default for rows that are older than it, which Delta readers would read as "
                "null: rewrite the data files"
            )

    def _physical_name(
        self, name: str, field_id: int, parent_id: int, path: str, names: set[str], taken: set[str]
    ) -> str:
        in_files = self._names[field_id]
        candidate = next(iter(in_files), name)
        others = self._ids[parent_id, candidate.lower()] - {field_id}
        if len(in_files) > 1 or (in_files and others):
            self.contradiction = self.contradiction or path
        if len(in_files) < 2 and not others and candidate.lower() not in taken:
            return candidate
        unique = f"{name}_{field_id}"
        while unique.lower() in names | taken or self._ids[parent_id, unique.lower()]:
            unique += "_"
        return unique

    # -- types

    def _type(self, kind: Any, field_id: int, path: str, inside: str, changes: list[TypeChange]) -> DataType:
        if isinstance(kind, str):
            return self._primitive(kind, field_id, path, inside, changes)
        self._check_types(field_id, {kind["type"]}, path, str(kind["type"]))
        if kind["type"] == "struct":
            return self.struct(kind, field_id, f"{path}.")
        parts = {
            part: self._type(kind[part], int(kind[f"{part}-id"]), f"{path}.{part}", f"{inside}.{part}", changes)
            for part in ("element", "key", "value")
            if part in kind
        }
        if kind["type"] == "list":
            return ArrayType(parts["element"])
        return MapType(parts["key"], parts["value"])

    def _primitive(self, kind: str, field_id: int, path: str, inside: str, changes: list[TypeChange]) -> DataType:
        delta_type = _delta_type(kind)
        if delta_type is None:
            raise CannotMirrorError(f"the column {path} has the type {kind}, which Delta does not have")
        self.has_ntz = self.has_ntz or kind == "timestamp"
        narrower = sorted((other for other in self._types[field_id] if is_widened(other, kind)), key=_width)
        self._check_types(field_id, {_spelled(kind), *narrower}, path, kind)
        steps = [str(_delta_type(other)) for other in narrower] + [str(delta_type)]
        changes += [TypeChange(*step, inside.lstrip(".")) for step in pairwise(steps)]
        return delta_type

    def _check_types(self, field_id: int, allowed: set[str], path: str, kind: str) -> None:
        wrong = sorted(self._types[field_id] - allowed)
        if wrong:
            raise CannotMirrorError(
                f"the column {path} is a {kind}, and {wrong[0]} in some data files, which Delta readers do not convert"
            )


def _delta_type(kind: str) -> DataType | None:
    if match := _DECIMAL.fullmatch(kind):
        return DecimalType(int(match[1]), int(match[2]))
    return PrimitiveType(_DELTA_NAMES[kind]) if kind in _DELTA_NAMES else None


def _spelled(kind: str) -> str:
    match = _DECIMAL.fullmatch(kind)
    return f"decimal({int(match[1])}, {int(match[2])})" if match else kind


def is_widened(before: str, now: str) -> bool:
    """Return whether a type was promoted to another."""
    old, new = _DECIMAL.fullmatch(before), _DECIMAL.fullmatch(now)
    if old and new:
        return int(old[1]) < int(new[1]) and int(old[2]) == int(new[2])
    return (before, now) in _WIDENED


def _width(kind: str) -> int:
    match = _DECIMAL.fullmatch(kind)
    return int(match[1]) if match else 0


def _change_json(change: TypeChange) -> dict[str, str]:
    value = {"fromType": change.from_type, "toType": change.to_type}
    return {**value, "fieldPath": change.field_path} if change.field_path else value


def _without_mapping(struct: StructType) -> StructType:
    """The schema for readers that refuse ids and physical names where no column is mapped."""
    return StructType(tuple(_plain_field(item) for item in struct.fields))


def _plain_field(item: StructField) -> StructField:
    metadata = {key: value for key, value in item.metadata.items() if not key.startswith("delta.columnMapping.")}
    return replace(item, type=_plain_type(item.type), metadata=metadata)


def _plain_type(kind: DataType) -> DataType:
    match kind:
        case StructType():
            return _without_mapping(kind)
        case ArrayType():
            return replace(kind, element_type=_plain_type(kind.element_type))
        case MapType():
            return replace(kind, key_type=_plain_type(kind.key_type), value_type=_plain_type(kind.value_type))
        case _:
            return kind
