"""Gives the columns of a Delta table the field ids that Iceberg clients know them by; an id never changes.

A column with column mapping has its own id. Without it a column is its name: the id of a name is stored for ever, also
of one that was dropped and came back. Elements of lists, and keys and values of maps, are numbered apart, from
FIRST_PART_ID, where no column mapping comes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
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


def path_text(path: Path) -> str:
    """A path as the database stores it."""
    return to_json(list(path))


def path_from_text(text: str) -> Path:
    return tuple(json.loads(text))


def changed_ids(stored: Mapping[Path, int], history: Sequence[Metadata]) -> list[str]:
    """The columns that column mapping gives another id than the one they are known by; files may have that one."""
    ids = assign_ids(stored, history)
    names = {path: ".".join(map(str, path)) for path in stored}
    return [
        f"the column {names[path]} was field {number}, and is field {ids[path]} since column mapping was enabled"
        for path, number in stored.items()
        if ids[path] != number
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
    columns = count(1 + max((number for number in ids.values() if number < FIRST_PART_ID), default=0))
    parts = count(1 + max((number for number in ids.values() if number >= FIRST_PART_ID), default=FIRST_PART_ID - 1))
    for path in paths:
        if path not in ids:
            # A column that lost its number to a mapped one gets one that no column mapping will take.
            ids[path] = next(parts if isinstance(path[-1], int) or path in stored else columns)
    return ids


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

    Files of a table with row tracking also have the columns of the ids and versions of rows that were moved.
    """
    root: dict[str, object] = {}
    hidden = {configuration.get(key): number for key, number in _HIDDEN_COLUMNS.items()}
    ids = {**ids, **{(name,): number for name, number in hidden.items() if name}}
    for path, number in sorted(ids.items(), key=lambda item: item[1]):
        node = root
        for part in path:
            children = node.setdefault("fields", {})
            assert isinstance(children, dict)
            node = children.setdefault(PART_NAMES[part] if isinstance(part, int) else part, {})
        node["field-id"] = number
    return to_json(_mapped_fields(root))


def _mapped_fields(node: Mapping[str, object]) -> list[dict[str, object]]:
    children = node.get("fields", {})
    assert isinstance(children, dict)
    return [
        {"field-id": child["field-id"], "names": [name]}
        | ({"fields": _mapped_fields(child)} if "fields" in child else {})
        for name, child in children.items()
        if "field-id" in child
    ]
