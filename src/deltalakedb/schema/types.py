"""The public schema classes, with the interface of `deltalake`; each wraps one of the log's types."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterable, Mapping
from typing import Any, Literal, TypeAlias, TypeVar, Union

import arro3.core
import pyarrow as pa

from deltalakedb.log.protocol.codec import to_json
from deltalakedb.log.schema import types as log
from deltalakedb.runtime.arguments import check_flag, check_sequence, check_text, wrong_type
from deltalakedb.schema import forms

_T = TypeVar("_T")


class _Comparable:
    """Supports `==` and `!=` but no order, with `deltalake`'s error."""

    __slots__ = ("_value",)

    _value: Any

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Comparable) and _unordered(self._value) == _unordered(other._value)

    __hash__ = None  # type: ignore[assignment]  # fields hold dictionaries

    def __lt__(self, other: object) -> bool:
        if isinstance(other, _Comparable):
            raise NotImplementedError("Only == and != are supported.")
        return NotImplemented

    __le__ = __gt__ = __ge__ = __lt__


class _Part(_Comparable):
    """Base of all types: wraps one of the log's types."""

    __slots__ = ()

    _value: log.DataType

    def to_json(self) -> str:
        """Return the type as the protocol's JSON."""
        return to_json(log.type_to_value(self._value))

    def to_arrow(self) -> arro3.core.DataType:
        """Return the type as an Arrow type."""
        return arro3.core.DataType.from_arrow(forms.arrow_type(self._value, large=False))

    def __arrow_c_schema__(self) -> object:
        return self.to_arrow().__arrow_c_schema__()


class PrimitiveType(_Part):
    """A type that is not nested: "long", "string", "decimal(10,2)", ..."""

    __slots__ = ()

    def __init__(self, data_type: str) -> None:
        self._value = forms.primitive_type(data_type)

    def __repr__(self) -> str:
        return f'PrimitiveType("{self.type}")'

    @property
    def type(self) -> str:
        """The name of the type."""
        return str(self._value)

    @staticmethod
    def from_json(type_json: str) -> PrimitiveType:
        return _expect(forms.type_from_json(type_json), PrimitiveType, "Type is not primitive")

    @staticmethod
    def from_arrow(data_type: Any) -> PrimitiveType:
        return _expect(forms.type_from_arrow(data_type), PrimitiveType, "Type is not primitive")


class VariantType(_Part):
    """A value of any type, stored in the encoding of Delta's `variant`."""

    __slots__ = ()

    def __init__(self) -> None:
        self._value = log.VariantType()

    def __repr__(self) -> str:
        return "VariantType()"

    @property
    def type(self) -> Literal["variant"]:
        return "variant"

    @staticmethod
    def from_json(type_json: str) -> VariantType:
        return _expect(forms.type_from_json(type_json), VariantType, "Type is not variant")

    @staticmethod
    def from_arrow(data_type: Any) -> VariantType:
        # No Arrow type is certain to be a variant: a struct of two binaries may be just that.
        return _expect(forms.type_from_arrow(data_type), VariantType, "Type is not variant")


class ArrayType(_Part):
    """A list of values of one type."""

    __slots__ = ()

    _value: log.ArrayType

    def __init__(self, element_type: DataType | str, contains_null: bool = True) -> None:
        check_flag(contains_null)
        self._value = log.ArrayType(_value_of(element_type), contains_null)

    def __repr__(self) -> str:
        return f"ArrayType({self.element_type!r}, contains_null={self.contains_null})"

    @property
    def type(self) -> Literal["array"]:
        return "array"

    @property
    def element_type(self) -> DataType:
        return _public(self._value.element_type)

    @property
    def contains_null(self) -> bool:
        return self._value.contains_null

    @staticmethod
    def from_json(type_json: str) -> ArrayType:
        return _expect(forms.type_from_json(type_json), ArrayType, "Type is not an array")

    @staticmethod
    def from_arrow(data_type: Any) -> ArrayType:
        return _expect(forms.type_from_arrow(data_type), ArrayType, "Type is not an array")


class MapType(_Part):
    """A map from keys of one type to values of another."""

    __slots__ = ()

    _value: log.MapType

    def __init__(self, key_type: DataType | str, value_type: DataType | str, value_contains_null: bool = True) -> None:
        check_flag(value_contains_null)
        self._value = log.MapType(_value_of(key_type), _value_of(value_type), value_contains_null)

    def __repr__(self) -> str:
        return f"MapType({self.key_type!r}, {self.value_type!r}, value_contains_null={self.value_contains_null})"

    @property
    def type(self) -> Literal["map"]:
        return "map"

    @property
    def key_type(self) -> DataType:
        return _public(self._value.key_type)

    @property
    def value_type(self) -> DataType:
        return _public(self._value.value_type)

    @property
    def value_contains_null(self) -> bool:
        return self._value.value_contains_null

    @staticmethod
    def from_json(type_json: str) -> MapType:
        return _expect(forms.type_from_json(type_json), MapType, "Type is not a map")

    @staticmethod
    def from_arrow(data_type: Any) -> MapType:
        return _expect(forms.type_from_arrow(data_type), MapType, "Type is not a map")


class Field(_Comparable):
    """A column of a table, or a field of a struct."""

    __slots__ = ()

    _value: log.StructField

    def __init__(
        self,
        name: str,
        type: DataType | str,  # noqa: A002  the name `deltalake` gives it
        nullable: bool = True,
        metadata: Mapping[str, Any] | None = None,
    ) -> None:
        """Strings and integers in `metadata` are stored unchanged; any other value is stored as its JSON text."""
        check_text(name, required=True)
        check_flag(nullable)
        if metadata is not None and not isinstance(metadata, Mapping):
            raise ValueError(f"invalid type: {forms.shown_kind(metadata)}, expected a map")
        values = {str(key): forms.metadata_value(value) for key, value in (metadata or {}).items()}
        self._value = log.StructField(name, _value_of(type), nullable, values)

    def __repr__(self) -> str:
        metadata = f", metadata={self.metadata!r}" if self._value.metadata else ""
        return f"Field({self.name}, {self.type!r}, nullable={self.nullable}{metadata})"

    @property
    def name(self) -> str:
        return self._value.name

    @property
    def type(self) -> DataType:
        return _public(self._value.type)

    @property
    def nullable(self) -> bool:
        return self._value.nullable

    @property
    def metadata(self) -> dict[str, Any]:
        return dict(self._value.metadata)

    def to_json(self) -> str:
        """Return the field as the protocol's JSON."""
        (value,) = log.type_to_value(log.StructType((self._value,)))["fields"]
        return to_json(value)

    @staticmethod
    def from_json(field_json: str) -> Field:
        return _public_field(forms.field_from_json(field_json))

    def to_arrow(self) -> arro3.core.Field:
        """Return the field as an Arrow field; metadata values become text."""
        return arro3.core.Field.from_arrow(forms.arrow_field(self._value, large=False))

    @staticmethod
    def from_arrow(field: Any) -> Field:
        return _public_field(forms.field_from_arrow(field))

    def __arrow_c_schema__(self) -> object:
        return self.to_arrow().__arrow_c_schema__()


class StructType(_Part):
    """Fields, each with a name and a type."""

    __slots__ = ()

    _value: log.StructType

    def __init__(self, fields: Iterable[Field]) -> None:
        check_sequence(fields)
        field_list = list(fields)
        for item in field_list:
            if not isinstance(item, Field):
                raise wrong_type(item, "Field")
        self._value = log.StructType(tuple(item._value for item in field_list))
        from deltalakedb.data.arrow_types import refuse_twins  # slow to import

        refuse_twins(item.name for item in self._value.fields)

    def __repr__(self) -> str:
        return f"{type(self).__name__}([{', '.join(map(repr, self.fields))}])"

    @property
    def type(self) -> Literal["struct"]:
        return "struct"

    @property
    def fields(self) -> list[Field]:
        return [_public_field(item) for item in self._value.fields]

    @staticmethod
    def from_json(type_json: str) -> StructType:
        return _expect(forms.type_from_json(type_json), StructType, "Type is not a struct")

    @staticmethod
    def from_arrow(data_type: Any) -> StructType:
        return _expect(forms.type_from_arrow(data_type), StructType, "Type is not a struct")


class Schema(StructType):
    """The columns of a table."""

    __slots__ = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns; not in `deltalake`, where only the fields have them."""
        return self._value.names

    @property
    def invariants(self) -> list[tuple[str, str]]:
        """The invariants of the columns: the column's path, and an SQL expression that must be true of every row."""
        return list(forms.invariants(self._value, ()))

    def json(self) -> dict[str, Any]:
        """Return the schema as parsed JSON; deprecated in `deltalake`."""
        warnings.warn(
            "Schema.json() is deprecated. Use json.loads(Schema.to_json()) instead.", DeprecationWarning, stacklevel=2
        )
        value: dict[str, Any] = json.loads(self.to_json())
        return value

    @staticmethod
    def from_json(schema_json: str) -> Schema:
        return to_public(_expect(forms.type_from_json(schema_json), StructType, "Type is not a struct")._value)

    def to_arrow(self, as_large_types: bool = False) -> arro3.core.Schema:  # type: ignore[override]  # as in `deltalake`
        """Return the schema as an Arrow schema; `as_large_types` gives strings, binaries and lists 64-bit offsets."""
        check_flag(as_large_types)
        fields = [forms.arrow_field(item, large=as_large_types) for item in self._value.fields]
        return arro3.core.Schema.from_arrow(pa.schema(fields))

    @staticmethod
    def from_arrow(data_type: Any) -> Schema:
        return to_public(forms.struct_from_arrow(data_type))


DataType: TypeAlias = Union["PrimitiveType", "MapType", "StructType", "ArrayType", "VariantType"]
"""A Union, as in `deltalake`, so that its repr is the same."""


# -- conversion between the public classes and the log's types


def to_public(struct: log.StructType) -> Schema:
    """Return the log's struct as a Schema."""
    schema = Schema.__new__(Schema)
    schema._value = struct
    return schema


def to_struct(schema: Any) -> log.StructType:
    """Return the log's struct of a Schema (ours or `deltalake`'s), or of an object with an Arrow schema."""
    if isinstance(schema, log.StructType):
        return schema
    if isinstance(schema, StructType):
        return schema._value
    text = getattr(schema, "to_json", None)
    return forms.read_struct(json.loads(text())) if callable(text) else forms.struct_from_arrow(schema)


def to_struct_field(field: Any) -> log.StructField:
    """Return the log's field of a Field (ours or `deltalake`'s), or of an Arrow field."""
    if isinstance(field, log.StructField):
        return field
    if isinstance(field, Field):
        return field._value
    text = getattr(field, "to_json", None)
    return (Field.from_json(text()) if callable(text) else Field.from_arrow(field))._value


def _unordered(value: log.DataType | log.StructField) -> Any:
    """Return a value to compare by: the fields of a struct by name, in any order."""
    match value:
        case log.StructType():
            return {item.name: _unordered(item) for item in value.fields}
        case log.StructField():
            return (value.name, _unordered(value.type), value.nullable, dict(value.metadata))
        case log.ArrayType():
            return (value.contains_null, _unordered(value.element_type))
        case log.MapType():
            return (value.value_contains_null, _unordered(value.key_type), _unordered(value.value_type))
        case _:
            return value


def _public(data_type: log.DataType) -> DataType:
    kinds: dict[type, type[DataType]] = {
        log.VariantType: VariantType,
        log.ArrayType: ArrayType,
        log.MapType: MapType,
        log.StructType: StructType,
    }
    kind = kinds.get(type(data_type), PrimitiveType)
    public = kind.__new__(kind)
    public._value = data_type
    return public


def _public_field(item: log.StructField) -> Field:
    field = Field.__new__(Field)
    field._value = item
    return field


def _value_of(data_type: DataType | str) -> log.DataType:
    if isinstance(data_type, str):
        return forms.primitive_type(data_type)
    if not isinstance(data_type, _Part):
        raise ValueError(f"Invalid data type: {data_type!r}")
    return data_type._value


def _expect(found: log.DataType, kind: type[_T], message: str) -> _T:
    public = _public(found)
    if not isinstance(public, kind):
        raise TypeError(message)
    return public
