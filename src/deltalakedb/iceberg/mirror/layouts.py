"""What data files hold, from their Parquet footers: the fields with the ids, names and types that they have there."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.types as pt

from deltalakedb.exceptions import CannotMirrorError, MissingFileError, StorageError, redact
from deltalakedb.iceberg.locations import open_file
from deltalakedb.log.protocol.codec import to_json

TOP: Final = 0
"""The parent of the columns of a table; Iceberg's ids begin with 1."""

NO_ID: Final = -1
_MAX_READS: Final = 8
_FIELD_ID: Final = b"PARQUET:field_id"
NAME_MAPPING: Final = "schema.name-mapping.default"

NameMapping = Mapping[str, tuple[int, "NameMapping"]]
"""The id of each field of files without ids, by the names that it may have there, and the same of its parts."""


@dataclass(frozen=True, slots=True)
class FileField:
    """A field of a data file. `type` is Iceberg's name of a primitive type, or `struct`, `list` or `map`."""

    parent_id: int
    field_id: int
    name: str
    type: str


@dataclass(frozen=True, slots=True)
class Layout:
    """The fields of a data file, nested ones too. Without ids in the file they are those of the name mapping."""

    has_ids: bool
    fields: tuple[FileField, ...]

    @property
    def ids(self) -> frozenset[int]:
        return _ids_of(self)

    def to_text(self) -> str:
        """Return it as the text of a tag; the inverse of `parse_layout`."""
        rows = [[item.parent_id, item.field_id, item.name, item.type] for item in self.fields]
        return to_json({"ids": self.has_ids, "fields": rows})


@lru_cache(maxsize=4096)
def parse_layout(text: str) -> Layout:
    """Return the layout in a tag; most files of a table share one."""
    value = json.loads(text)
    return Layout(value["ids"], tuple(FileField(*row) for row in value["fields"]))


@lru_cache(maxsize=4096)
def _ids_of(layout: Layout) -> frozenset[int]:
    return frozenset(item.field_id for item in layout.fields)


def read_layouts(
    paths: Sequence[str], options: Mapping[str, str] | None, mapping: NameMapping | None
) -> dict[str, Layout]:
    """Read the footers of data files, several at a time."""

    def read(path: str) -> Layout:
        return _layout(path, _read_schema(path, options), mapping)

    with ThreadPoolExecutor(_MAX_READS, thread_name_prefix="deltalakedb-footers") as executor:
        return dict(zip(paths, executor.map(read, paths), strict=True))


def _read_schema(path: str, options: Mapping[str, str] | None) -> pa.Schema:
    storage, name = open_file(path, options)
    try:
        with storage.open(name) as file:
            return pq.ParquetFile(file).schema_arrow
    except FileNotFoundError:
        raise missing_file(path) from None
    except (pa.ArrowException, OSError) as error:
        if isinstance(error, StorageError):
            raise
        raise CannotMirrorError(f"the file {redact(path)} cannot be read as Parquet: {error}") from error


def missing_file(path: str) -> MissingFileError:
    """Return the error for a file that a snapshot names and that is not there."""
    return MissingFileError(
        f"the table's metadata names the file {redact(path)}, which does not exist",
        path=path,
        advice="put it back, or commit a snapshot without it",
    )


def _layout(path: str, schema: pa.Schema, mapping: NameMapping | None) -> Layout:
    has_ids = any(_id_in(item) != NO_ID for item in schema)
    if not has_ids and mapping is None:
        raise CannotMirrorError(f"the file {redact(path)} has no field ids, and the table has no {NAME_MAPPING}")
    fields = tuple(_fields(schema, TOP, None if has_ids else mapping))
    containers = {item.field_id: item.name for item in fields if item.type in ("list", "map")}
    for item in fields:
        if item.field_id == NO_ID and item.parent_id in containers:
            name = containers[item.parent_id]
            raise CannotMirrorError(f"the file {redact(path)} has no field ids within its column {name}")
    return Layout(has_ids, fields)


def _fields(fields: Iterable[pa.Field], parent_id: int, mapping: NameMapping | None) -> Iterator[FileField]:
    for item in fields:
        field_id, inner = _id_in(item), None
        if mapping is not None:
            field_id, inner = mapping.get(item.name, (NO_ID, {}))
        yield FileField(parent_id, field_id, item.name, type_name(item.type))
        if field_id != NO_ID:  # what Iceberg does not know has no parts either
            yield from _fields(_parts(item.type), field_id, inner)


def _id_in(item: pa.Field) -> int:
    text = (item.metadata or {}).get(_FIELD_ID, b"-1")
    return int(text)


def _parts(kind: pa.DataType) -> list[pa.Field]:
    """The parts of a nested type, under the names that name mappings have for them."""
    if pt.is_struct(kind):
        return list(kind)
    if pt.is_map(kind):
        return [kind.key_field.with_name("key"), kind.item_field.with_name("value")]
    if pt.is_list(kind) or pt.is_large_list(kind):
        return [kind.value_field.with_name("element")]
    return []


_NAMES: Final = (
    (pt.is_boolean, "boolean"),
    (pt.is_int8, "int"),
    (pt.is_int16, "int"),
    (pt.is_int32, "int"),
    (pt.is_int64, "long"),
    (pt.is_float32, "float"),
    (pt.is_float64, "double"),
    (pt.is_date32, "date"),
    (pt.is_string, "string"),
    (pt.is_large_string, "string"),
    (pt.is_string_view, "string"),
    (pt.is_binary, "binary"),
    (pt.is_large_binary, "binary"),
    (pt.is_binary_view, "binary"),
    (pt.is_struct, "struct"),
    (pt.is_map, "map"),
    (pt.is_list, "list"),
    (pt.is_large_list, "list"),
)


def type_name(kind: pa.DataType) -> str:
    """Return Iceberg's name of the type of a file's column; of a type that it does not have, Arrow's."""
    if pt.is_dictionary(kind):
        return type_name(kind.value_type)
    if pt.is_decimal(kind):
        return f"decimal({kind.precision}, {kind.scale})"
    if pt.is_timestamp(kind) and kind.unit in ("ms", "us"):
        return "timestamp" if kind.tz is None else "timestamptz"
    return next((name for test, name in _NAMES if test(kind)), str(kind))


def parse_name_mapping(text: str | None) -> NameMapping | None:
    """Return the table's name mapping; None if it has none, or one that cannot be read."""
    try:
        return None if text is None else _mapping(json.loads(text))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def _mapping(items: Sequence[Mapping[str, Any]]) -> NameMapping:
    return {
        name: (int(item["field-id"]), _mapping(item.get("fields") or ()))
        for item in items
        if "field-id" in item
        for name in item["names"]
    }
