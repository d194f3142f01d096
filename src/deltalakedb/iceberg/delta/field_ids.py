"""Gives the columns of a Delta table the field ids that Iceberg clients know them by; an id never changes.

A column with column mapping has its own id. Without it a column is its name: the id of a name is stored for ever, also
of one that was dropped and came back. Names that differ only in case share an id, because DuckDB finds the columns of
files by names without case; a Delta table has one of them at a time. Elements of lists, and keys and values of maps,
are numbered apart, from FIRST_PART_ID, where no column mapping comes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from dataclasses import field as dataclass_field
from itertools import count
from typing import Final, TypeAlias

from deltalakedb.log.protocol.actions import Metadata
from deltalakedb.log.protocol.codec import to_json
from deltalakedb.log.schema.types import ArrayType, DataType, MapType, StructField, StructType, parse_schema

ELEMENT, KEY, VALUE = 0, 1, 2
PART_NAMES: Final = {ELEMENT: "element", KEY: "key", VALUE: "value"}
FIRST_PART_ID: Final = 1_000_000_000

Path: TypeAlias = tuple[str | int, ...]
"""The physical names that lead to a field; a number is the element of a list, or the key or value of a map."""

_NESTED_IDS: Final = "delta.columnMapping.nested.ids"
# The first is Iceberg's `_row_id`; the other is not its `_last_updated_sequence_number`, which is one more.
_HIDDEN_COLUMNS: Final = {
    "delta.rowTracking.materializedRowIdColumnName": 2_147_483_540,
    "delta.rowTracking.materializedRowCommitVersionColumnName": 1_999_999_999,
}
_CHANGE_COLUMNS: Final[Mapping[Path, int]] = {("_change_type",): 1_999_999_998, ("__is_cdc",): 1_999_999_997}
"""Columns that Spark writes into the data files of tables with a change data feed, and that are none of the table's."""


def path_text(path: Path) -> str:
    """A path as the database stores it."""
    return to_json(list(path))


def path_from_text(text: str) -> Path:
    return tuple(json.loads(text))


def without_case(path: Path) -> Path:
    """A path by which names that differ only in case are the same."""
    return tuple(part.casefold() if isinstance(part, str) else part for part in path)


def dotted(path: Path) -> str:
    """A path as errors name it."""
    return ".".join(PART_NAMES[part] if isinstance(part, int) else part for part in path)


def stored_form(ids: Mapping[Path, int]) -> dict[str, int]:
    """Ids as the database stores them: each with one path, in the spelling that was first."""
    paths: dict[int, Path] = {}
    for path, number in ids.items():
        paths.setdefault(number, path)
    return {path_text(path): number for number, path in paths.items()}


def changed_ids(stored: Mapping[Path, int], history: Sequence[Metadata]) -> list[str]:
    """The columns that column mapping gives another id than the one they are known by; files may have that one."""
    known = {without_case(path): number for path, number in stored.items()} | {**stored}
    return [
        f"the column {dotted(path)} was field {before}, and is field {number} since column mapping was enabled"
        for path, number in assign_ids(stored, history).items()
        if (before := known.get(path, known.get(without_case(path)))) is not None and before != number
    ]


def assign_ids(stored: Mapping[Path, int], history: Sequence[Metadata]) -> dict[Path, int]:
    """The ids of all fields that a table has or had: those stored, and new ones.

    `history` is the metadata of all kept versions, oldest first. Ids of column mapping win; a table whose ids change
    by that is refused (`changed_ids`).
    """
    mapped: dict[Path, int] = {}
    paths: dict[Path, None] = dict.fromkeys(stored)
    for metadata in history:
        for path, own_id in fields_of(parse_schema(metadata.schema_string)):
            paths[path] = None
            if own_id is not None:
                mapped[path] = own_id
    taken = set(mapped.values())
    ids = {path: number for path, number in stored.items() if path not in mapped and number not in taken} | mapped
    by_name = {without_case(path): number for path, number in ids.items()}
    columns = count(1 + max((number for number in ids.values() if number < FIRST_PART_ID), default=0))
    parts = count(1 + max((number for number in ids.values() if number >= FIRST_PART_ID), default=FIRST_PART_ID - 1))
    for path in paths:
        if path in ids:
            continue
        name = without_case(path)
        if name not in by_name:
            # A column that lost its number to a mapped one gets one that no column mapping will take.
            by_name[name] = next(parts if isinstance(path[-1], int) or path in stored else columns)
        ids[path] = by_name[name]
    return ids


def column_with_parts_without_ids(history: Sequence[Metadata]) -> str | None:
    """A column with a list or map whose parts have no ids in files in which all columns have some; None without one.

    Column mapping gives ids to columns alone, unless the table is written for Iceberg's sake.
    """
    for metadata in history:
        if metadata.configuration.get("delta.columnMapping.mode", "none") == "none":
            continue
        for item in parse_schema(metadata.schema_string).fields:
            if any(isinstance(path[-1], int) and own_id is None for path, own_id in fields_of(StructType((item,)))):
                return item.name
    return None


def fields_of(schema: StructType) -> Iterator[tuple[Path, int | None]]:
    """All fields with their paths and the ids that column mapping gives them, parents first."""
    yield from _struct_fields(schema, ())


def _struct_fields(struct: StructType, above: Path) -> Iterator[tuple[Path, int | None]]:
    for item in struct.fields:
        path = (*above, item.physical_name)
        yield path, item.id
        yield from _parts(item.type, path, item, item.physical_name)


def _parts(kind: DataType, path: Path, field: StructField, name: str) -> Iterator[tuple[Path, int | None]]:
    """The fields within a type; `name` is what Delta calls them in the ids of the nearest column."""
    match kind:
        case StructType():
            yield from _struct_fields(kind, path)
        case ArrayType():
            yield from _part(kind.element_type, (*path, ELEMENT), field, f"{name}.element")
        case MapType():
            yield from _part(kind.key_type, (*path, KEY), field, f"{name}.key")
            yield from _part(kind.value_type, (*path, VALUE), field, f"{name}.value")


def _part(kind: DataType, path: Path, field: StructField, name: str) -> Iterator[tuple[Path, int | None]]:
    nested = field.metadata.get(_NESTED_IDS)
    own_id = nested.get(name) if isinstance(nested, dict) else None
    yield path, own_id if isinstance(own_id, int) else None
    yield from _parts(kind, path, field, name)


def name_mapping(ids: Mapping[Path, int], configuration: Mapping[str, str | None]) -> str:
    """The property by which clients find columns in files without field ids: every name that a table ever had.

    Files of a table with row tracking also have the columns of the ids and versions of rows that were moved. Beside a
    column that is not in the mapping PyIceberg fails, and DuckDB has null for partition values.
    """
    hidden = {configuration.get(key): number for key, number in _HIDDEN_COLUMNS.items()}
    ids = {**_CHANGE_COLUMNS, **ids, **{(name,): number for name, number in hidden.items() if name}}
    by_name = {without_case(path): number for path, number in ids.items()}
    root: dict[int, _MappedField] = {}
    for path, _ in sorted(ids.items(), key=lambda item: item[1]):
        level = root
        for length, part in enumerate(path, 1):
            # The database has one spelling of each name: that of a parent may be another than here.
            number = ids.get(path[:length]) or by_name[without_case(path[:length])]
            field = level.setdefault(number, _MappedField(number))
            field.names[PART_NAMES[part] if isinstance(part, int) else part] = None
            level = field.fields
    return to_json([field.to_json() for field in root.values()])


@dataclass(slots=True)
class _MappedField:
    """A field of a name mapping, with its names in all spellings."""

    number: int
    names: dict[str, None] = dataclass_field(default_factory=dict)
    fields: dict[int, _MappedField] = dataclass_field(default_factory=dict)

    def to_json(self) -> dict[str, object]:
        inner = {"fields": [field.to_json() for field in self.fields.values()]} if self.fields else {}
        return {"field-id": self.number, "names": list(self.names)} | inner
