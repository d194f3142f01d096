"""Schemas: parsing with all checks, looking up columns, comparing, and assigning fresh ids."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from deltalakedb.iceberg.metadata.defaults import canonical_default, check_default
from deltalakedb.iceberg.metadata.shapes import (
    bool_field,
    brief,
    check,
    int_field,
    int_list,
    objects_field,
    optional_int,
    optional_string,
    refuse,
    require_object,
    string_field,
)
from deltalakedb.iceberg.metadata.type_names import (
    FIRST_FORMAT_VERSION,
    NESTED,
    canonical_type_name,
    is_primitive,
    type_kind,
)

INITIAL_SCHEMA_ID = 0
_DEFAULTS = ("initial-default", "write-default")
_FIRST_VERSION_OF_DEFAULTS = 3
_MAX_NESTING = 64


@dataclass(frozen=True, slots=True)
class Column:
    """A field of a schema at any depth; its name is the path from the root."""

    field_id: int
    name: str
    required: bool
    type_json: Any
    parent_id: int | None
    has_initial_default: bool = False


@dataclass(frozen=True, slots=True)
class Schema:
    """A schema that has been checked."""

    json: dict[str, Any]
    """With canonical names of types; fields of JSON that Iceberg does not know are kept."""
    columns: Mapping[int, Column]
    ids_by_name: Mapping[str, int]
    """Full names, and short ones: without `element` and `value` before the fields of a struct."""

    @property
    def schema_id(self) -> int:
        return int(self.json["schema-id"])

    @property
    def identifier_ids(self) -> list[int]:
        return list(self.json.get("identifier-field-ids", ()))

    def highest_id(self) -> int:
        """The highest field id at any depth, or 0."""
        return max(self.columns, default=0)

    def find(self, name: str) -> Column | None:
        """The column of a full or short name."""
        field_id = self.ids_by_name.get(name)
        return None if field_id is None else self.columns[field_id]

    def parents(self, field_id: int) -> Iterator[Column]:
        """The columns that the column is nested in, from the inside out."""
        parent_id = self.columns[field_id].parent_id
        while parent_id is not None:
            yield self.columns[parent_id]
            parent_id = self.columns[parent_id].parent_id

    def with_id(self, schema_id: int) -> Schema:
        """The same schema under another id."""
        return Schema({**self.json, "schema-id": schema_id}, self.columns, self.ids_by_name)


def parse_schema(item: object, what: str = "schema") -> Schema:
    """Check a schema's JSON and index its columns."""
    source = require_object(item, what)
    check(source.get("type") == "struct", f"Cannot parse {what}: 'type' must be 'struct'")
    reader = _Reader(what)
    json = reader.read_struct(source, _Place())
    json["schema-id"] = optional_int(source, "schema-id", what) or INITIAL_SCHEMA_ID
    identifiers = [] if source.get("identifier-field-ids") is None else int_list(source, "identifier-field-ids", what)
    json.pop("identifier-field-ids", None)
    if identifiers:
        json["identifier-field-ids"] = list(dict.fromkeys(identifiers))
    schema = Schema(json, reader.columns, {**reader.short_names, **reader.full_names})
    for field_id in schema.identifier_ids:
        _check_identifier(schema, field_id)
    return schema


@dataclass(frozen=True, slots=True)
class _Place:
    """Where in the schema a type is read."""

    parent_id: int | None = None
    full: tuple[str, ...] = ()
    short: tuple[str, ...] = ()

    def below(self, field_id: int, name: str, *, shown: bool = True) -> _Place:
        return _Place(field_id, (*self.full, name), (*self.short, name) if shown else self.short)


@dataclass(slots=True)
class _Reader:
    """Reads a schema from the root, collecting its columns."""

    what: str
    columns: dict[int, Column] = field(default_factory=dict)
    full_names: dict[str, int] = field(default_factory=dict)
    short_names: dict[str, int] = field(default_factory=dict)

    def read_type(self, item: object, place: _Place) -> Any:
        """The type with canonical names."""
        if isinstance(item, str):
            return canonical_type_name(item)
        check(len(place.full) <= _MAX_NESTING, f"Cannot parse {self.what}: types are nested too deeply")
        nested = require_object(item, f"type of {self.what}")
        readers: dict[object, Callable[[Mapping[str, Any], _Place], dict[str, Any]]] = {
            "struct": self.read_struct,
            "list": self._read_list,
            "map": self._read_map,
        }
        kind = nested.get("type")
        read = readers.get(kind) if isinstance(kind, str) else None
        if read is None:
            refuse(f"Cannot parse type of {self.what}: {brief(kind)} is not a nested type")
        return read(nested, place)

    def read_struct(self, item: Mapping[str, Any], place: _Place) -> dict[str, Any]:
        what = f"struct of {self.what}"
        return {**item, "fields": [self._read_field(child, place) for child in objects_field(item, "fields", what)]}

    def _read_field(self, item: Mapping[str, Any], place: _Place) -> dict[str, Any]:
        what = f"field of {self.what}"
        field_id, name = int_field(item, "id", what), string_field(item, "name", what)
        what = f"field {brief(name)} of {self.what}"
        json = {**item, "required": bool_field(item, "required", what)}
        if optional_string(item, "doc", what) is None:
            json.pop("doc", None)
        json["type"] = type_json = self.read_type(_present(item, "type", what), place.below(field_id, name))
        for key in _DEFAULTS:
            if item.get(key) is None:
                json.pop(key, None)
            else:
                check_default(type_json, item[key], what)
                json[key] = canonical_default(type_json, item[key])
        self._add(field_id, name, json["required"], type_json, place, default="initial-default" in json)
        return json

    def _read_list(self, item: Mapping[str, Any], place: _Place) -> dict[str, Any]:
        what = f"list of {self.what}"
        element_id, required = int_field(item, "element-id", what), bool_field(item, "element-required", what)
        element = _present(item, "element", what)
        type_json = self.read_type(element, place.below(element_id, "element", shown=not _is_struct(element)))
        self._add(element_id, "element", required, type_json, place)
        return {**item, "element": type_json}

    def _read_map(self, item: Mapping[str, Any], place: _Place) -> dict[str, Any]:
        what = f"map of {self.what}"
        key_id, value_id = int_field(item, "key-id", what), int_field(item, "value-id", what)
        required = bool_field(item, "value-required", what)
        key_type = self.read_type(_present(item, "key", what), place.below(key_id, "key"))
        value = _present(item, "value", what)
        value_type = self.read_type(value, place.below(value_id, "value", shown=not _is_struct(value)))
        self._add(key_id, "key", True, key_type, place)
        self._add(value_id, "value", required, value_type, place)
        return {**item, "key": key_type, "value": value_type}

    def _add(
        self, field_id: int, name: str, required: bool, type_json: Any, place: _Place, *, default: bool = False
    ) -> None:
        full = ".".join((*place.full, name))
        check(field_id not in self.columns, f"Invalid {self.what}: multiple fields for id {field_id}")
        other = self.full_names.get(full)
        check(other is None, f"Invalid {self.what}: multiple fields for name {full}: {other} and {field_id}")
        check(not required or type_json != "unknown", f"Cannot create required field with unknown type: {full}")
        self.columns[field_id] = Column(field_id, full, required, type_json, place.parent_id, default)
        self.full_names[full] = field_id
        if place.short:
            self.short_names.setdefault(".".join((*place.short, name)), field_id)


def _present(item: Mapping[str, Any], name: str, what: str) -> Any:
    check(item.get(name) is not None, f"Cannot parse {what}: '{name}' is missing")
    return item[name]


def _is_struct(type_json: object) -> bool:
    return isinstance(type_json, Mapping) and type_json.get("type") == "struct"


def _check_identifier(schema: Schema, field_id: int) -> None:
    column = schema.columns.get(field_id)
    if column is None:
        refuse(f"Cannot add fieldId {field_id} as an identifier field: field does not exist")
    start = f"Cannot add field {column.name} as an identifier field"
    check(is_primitive(column.type_json), f"{start}: not a primitive type field")
    check(column.required, f"{start}: not a required field")
    check(column.type_json not in ("double", "float"), f"{start}: must not be float or double field")
    for parent in schema.parents(field_id):
        check(_is_struct(parent.type_json), f"{start}: must not be nested in {parent.name}")
        check(parent.required, f"{start}: must not be nested in an optional field {parent.name}")


def check_schema_version(schema: Schema, format_version: int) -> None:
    """Refuse types and defaults that the format version does not have."""
    problems = []
    for column in sorted(schema.columns.values(), key=lambda column: column.field_id):
        first = FIRST_FORMAT_VERSION.get(type_kind(column.type_json), 1)
        if format_version < first:
            problems.append(f"Invalid type for {column.name}: {column.type_json} is not supported until v{first}")
        elif column.has_initial_default and format_version < _FIRST_VERSION_OF_DEFAULTS:
            first = _FIRST_VERSION_OF_DEFAULTS
            problems.append(f"Invalid initial default for {column.name}: not supported until v{first}")
    check(not problems, f"Invalid schema for v{format_version}: {'; '.join(problems)}")


def same_schema(one: Schema, two: Schema) -> bool:
    """Whether both have the same columns and identifier fields, whatever their ids."""
    return (
        one.columns.keys() == two.columns.keys()
        and set(one.identifier_ids) == set(two.identifier_ids)
        and _comparable(one.json) == _comparable(two.json)
    )


def _comparable(type_json: Any) -> Any:
    """What makes a type the same as another one; unknown fields of JSON do not."""
    if isinstance(type_json, str):
        return type_json.lower() if type_kind(type_json) in ("geometry", "geography") else type_json
    if type_json["type"] == "list":
        return ["list", type_json["element-id"], type_json["element-required"], _comparable(type_json["element"])]
    if type_json["type"] == "map":
        key, value = _comparable(type_json["key"]), _comparable(type_json["value"])
        return ["map", type_json["key-id"], type_json["value-id"], type_json["value-required"], key, value]
    return [
        [item["id"], item["name"], item["required"], item.get("doc"), _comparable(item["type"])]
        + [(type(item.get(key)), item.get(key)) for key in _DEFAULTS]
        for item in type_json["fields"]
    ]


def with_fresh_ids(schema: Schema) -> tuple[Schema, int]:
    """The schema of a new table, whose fields are numbered from 1 in Java's order; and the last number."""
    numbering = _Numbering()
    source = {key: value for key, value in schema.json.items() if key != "identifier-field-ids"}
    json = {**numbering.renumber(source), "schema-id": INITIAL_SCHEMA_ID}
    fresh_ids = numbering.fresh_ids
    if schema.identifier_ids:
        json["identifier-field-ids"] = [fresh_ids[field_id] for field_id in schema.identifier_ids]
    return parse_schema(json), len(fresh_ids)


@dataclass(slots=True)
class _Numbering:
    """Numbers the fields of a struct before those nested in them."""

    fresh_ids: dict[int, int] = field(default_factory=dict)

    def _next(self, field_id: int) -> int:
        self.fresh_ids[field_id] = len(self.fresh_ids) + 1
        return self.fresh_ids[field_id]

    def renumber(self, type_json: Any) -> Any:
        kind = type_kind(type_json)
        if kind not in NESTED:
            return type_json
        if kind == "list":
            element_id = self._next(type_json["element-id"])
            return {**type_json, "element-id": element_id, "element": self.renumber(type_json["element"])}
        if kind == "map":
            ids = {"key-id": self._next(type_json["key-id"]), "value-id": self._next(type_json["value-id"])}
            types = {"key": self.renumber(type_json["key"]), "value": self.renumber(type_json["value"])}
            return {**type_json, **ids, **types}
        fields = [{**item, "id": self._next(item["id"])} for item in type_json["fields"]]
        return {**type_json, "fields": [{**item, "type": self.renumber(item["type"])} for item in fields]}
