"""Owns the schemas and partition specs of a table's metadata, as planning needs them: fields by name and by id."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from deltalakedb.exceptions import MalformedLogError, PredicateError
from deltalakedb.iceberg.planning.transforms import Transform, parse_transform
from deltalakedb.iceberg.planning.types import Primitive, parse_type

MAX_NAMES_IN_ERROR = 50
_MAX_DEPTH = 200


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a schema; `type` is None if it is nested or its values are not compared."""

    field_id: int
    name: str
    type: Primitive | None
    has_bounds: bool
    """Whether each row has one value: not within a list or a map."""
    required: bool = False


class TableSchema:
    """The fields of one schema, nested ones by names with dots."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self.fields = list(_fields_of(schema, "", in_rows=True, depth=0))
        self._by_name: dict[str, Field] = {}
        for field in self.fields:
            self._by_name.setdefault(field.name, field)
        self._by_lower_name: dict[str, list[Field]] = {}
        for field in self.fields:
            self._by_lower_name.setdefault(field.name.lower(), []).append(field)
        self.by_id = {field.field_id: field for field in self.fields}

    def find(self, name: str, *, case_sensitive: bool = True) -> Field:
        """The field of a name; PredicateError if there is none, or several."""
        fields = self._by_lower_name.get(name.lower(), []) if not case_sensitive else []
        if case_sensitive and name in self._by_name:
            fields = [self._by_name[name]]
        if len(fields) == 1:
            return fields[0]
        if fields:
            raise PredicateError(f"the field name {name!r} is ambiguous: {', '.join(field.name for field in fields)}")
        names = ", ".join(field.name for field in self.fields[:MAX_NAMES_IN_ERROR])
        raise PredicateError(f"Cannot find field {name!r} in the schema; its fields are {names}")

    def find_id(self, field_id: int) -> Field:
        if field_id not in self.by_id:
            raise PredicateError(f"Cannot find field id {field_id} in the schema")
        return self.by_id[field_id]


def _fields_of(struct: Any, prefix: str, *, in_rows: bool, depth: int) -> Iterator[Field]:
    if depth > _MAX_DEPTH:
        raise MalformedLogError("a schema is nested too deep")
    for item in struct.get("fields", ()):
        yield from _field(item["id"], prefix + item["name"], item["type"], in_rows, depth, bool(item.get("required")))


def _field(field_id: int, name: str, type_: Any, in_rows: bool, depth: int, required: bool = False) -> Iterator[Field]:
    if isinstance(type_, str):
        yield Field(field_id, name, parse_type(type_), in_rows, required)
        return
    yield Field(field_id, name, None, False)
    if type_.get("type") == "struct":
        yield from _fields_of(type_, f"{name}.", in_rows=in_rows, depth=depth + 1)
    elif type_.get("type") == "list":
        yield from _field(type_["element-id"], f"{name}.element", type_["element"], False, depth + 1)
    elif type_.get("type") == "map":
        yield from _field(type_["key-id"], f"{name}.key", type_["key"], False, depth + 1)
        yield from _field(type_["value-id"], f"{name}.value", type_["value"], False, depth + 1)


@dataclass(frozen=True, slots=True)
class PartitionField:
    """A field of a partition spec; `type` is that of its values, None if they cannot be compared."""

    field_id: int
    source_id: int
    transform: Transform
    source_type: Primitive | None
    type: Primitive | None


@dataclass(frozen=True, slots=True)
class PartitionSpec:
    spec_id: int
    fields: tuple[PartitionField, ...]

    @property
    def is_partitioned(self) -> bool:
        """Whether it divides the rows: void transforms do not."""
        return any(field.transform.name != "void" for field in self.fields)


class TableShape:
    """A table's schemas and specs: what its manifests are read by, and its plans made with."""

    def __init__(self, metadata: Mapping[str, Any]) -> None:
        try:
            self._read(metadata)
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise MalformedLogError(f"the table's metadata cannot be read: {type(error).__name__}: {error}") from error

    def _read(self, metadata: Mapping[str, Any]) -> None:
        schemas = metadata.get("schemas") or [metadata["schema"]]
        self.schemas = {int(schema.get("schema-id", 0)): schema for schema in schemas}
        self.current_schema_id = int(metadata.get("current-schema-id", next(iter(self.schemas))))
        self.schema = TableSchema(self.schemas[self.current_schema_id])
        types = _types_by_id(self.schemas.values(), self.schema)
        raw_specs = metadata.get("partition-specs") or [{"spec-id": 0, "fields": metadata.get("partition-spec", [])}]
        self.specs = {int(raw["spec-id"]): _spec(raw, types) for raw in raw_specs}

    def schema_of(self, schema_id: int | None) -> TableSchema:
        if schema_id is None or schema_id == self.current_schema_id or schema_id not in self.schemas:
            return self.schema
        return TableSchema(self.schemas[schema_id])

    def partition_fields(self) -> Iterable[PartitionField]:
        """The fields of all specs, each transform of a column once."""
        fields = (field for spec in self.specs.values() for field in spec.fields)
        return {(field.source_id, str(field.transform)): field for field in fields}.values()


def _types_by_id(schemas: Iterable[Any], current: TableSchema) -> dict[int, Primitive | None]:
    """The type of each field that ever was; of a promoted field the current one."""
    types = {field.field_id: field.type for schema in schemas for field in TableSchema(schema).fields}
    return types | {field.field_id: field.type for field in current.fields}


def _spec(raw: Mapping[str, Any], types: Mapping[int, Primitive | None]) -> PartitionSpec:
    fields = []
    for number, item in enumerate(raw["fields"]):
        sources: Sequence[int] = item.get("source-ids") or [item["source-id"]]
        transform = parse_transform(str(item["transform"])) if len(sources) == 1 else Transform("unknown")
        source_type = types.get(sources[0])
        field_id = int(item.get("field-id", 1000 + number))
        result = transform.result_type(source_type)
        fields.append(PartitionField(field_id, sources[0], transform, source_type, result))
    return PartitionSpec(int(raw["spec-id"]), tuple(fields))
