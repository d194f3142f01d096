"""Owns the filters that select files, `(column, operator, value)`: values are texts, parsed by the column's type.

Filters on partition columns select exactly, those on other columns as far as statistics allow. As in `deltalake`, an
empty text stands for null, and there is no other way to write null.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from math import isnan
from operator import eq, ge, gt, le, lt, ne
from typing import Any, Final, TypeAlias

import pyarrow as pa

from deltalakedb.exceptions import MalformedLogError, PredicateError
from deltalakedb.log.predicates import dnf
from deltalakedb.log.predicates.atoms import FALSE, Dnf, Predicate
from deltalakedb.log.predicates.predicate import null_test, parse_predicate, resolve_column
from deltalakedb.log.schema.partitions import parse_partition_value
from deltalakedb.log.schema.types import DataType, DecimalType, PrimitiveType, StructField, StructType

EncodedFilter: TypeAlias = tuple[str, str, str | list[str]]
Conjunction: TypeAlias = list[EncodedFilter]

_ONE: Final[dict[str, Callable[[Any, Any], bool]]] = {"=": eq, "!=": ne, "<": lt, "<=": le, ">": gt, ">=": ge}
_MANY: Final = ("in", "not in")
_INTEGER: Final = re.compile(r"[+-]?\d{1,19}", re.ASCII)
_BITS: Final = {"byte": 8, "short": 16, "integer": 32, "long": 64}
_DATE: Final = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)


# -- encoding values as texts


def encode_filters(filters: Any) -> list[Conjunction]:
    """Encodes one list of filters that must all hold, or several lists that are alternatives, with values as texts.

    Raises ValueError for malformed filters, and for values that have no text.
    """
    if all(isinstance(item, list) for item in filters):
        groups = filters
    elif all(isinstance(item, tuple) for item in filters):
        groups = [filters]
    else:
        raise ValueError(
            "filters must be a list of (column, op, value) tuples (a conjunction), or a list of such lists "
            "(an OR across conjunctions), not a mix of both"
        )
    if any(not group for group in groups):
        raise ValueError("empty conjunction in filters; pass no filter to match all files")
    return [encode_conjunction(group) for group in groups]


def encode_conjunction(filters: Any) -> Conjunction:
    """Encodes filters that must all hold."""
    encoded: Conjunction = []
    for item in filters:
        if not isinstance(item, list | tuple) or len(item) != 3:
            raise ValueError(_wrong_length(item))
        column, operator, value = item
        many = isinstance(value, list | tuple)
        encoded.append((column, operator, [_encode(element) for element in value] if many else _encode(value)))
    return encoded


def _wrong_length(item: Any) -> str:
    """The message for a filter that does not have three parts."""
    parts = len(item) if isinstance(item, list | tuple | str) else 0
    problem = (
        f"not enough values to unpack (expected 3, got {parts})"
        if parts < 3
        else "too many values to unpack (expected 3)"
    )
    return f"{problem}: a filter is (column, operator, value), not {item!r}"


def _encode(value: Any) -> str:
    """Encodes a value as the protocol writes partition values."""
    match value:
        case bool():
            return str(value).lower()
        case str():
            return value
        case int() | float():
            return str(value)
        case datetime():
            return value.isoformat(sep=" ")
        case date():
            return value.isoformat()
        case bytes():
            return value.decode("unicode_escape", "backslashreplace")
    raise ValueError(f"Could not encode partition value for type: {value}")


def check_encoded(filters: Any) -> list[Conjunction] | None:
    """Checks filters in one list whose values are texts already; raises TypeError otherwise. None selects all files."""
    if filters is None:
        return None
    if isinstance(filters, str) or not isinstance(filters, Sequence):
        raise TypeError(f"partition_filters is a list of (column, operator, text), not {type(filters).__name__}")
    encoded: Conjunction = []
    for item in filters:
        if not isinstance(item, tuple):
            raise TypeError(f"a partition filter is a tuple (column, operator, text), not {item!r}")
        if len(item) != 3 or not all(isinstance(part, str) for part in item[:2]):
            raise TypeError(f"a partition filter is (column, operator, text); this is none: {item!r}")
        column, operator, value = item
        texts = list(value) if isinstance(value, list | tuple) else [value]
        if not all(isinstance(text, str) for text in texts):
            raise TypeError(f"the value of a partition filter is a text, or a list of texts; {column!r} has {value!r}")
        encoded.append((column, operator, texts if isinstance(value, list | tuple) else value))
    return [encoded] if encoded else None


# -- values of the columns' types


@dataclass(frozen=True, slots=True)
class _Filter:
    field: StructField
    operator: str
    values: tuple[Any, ...]
    """Values of the column's type; None is null."""

    def is_true(self, value: Any) -> bool:
        """Whether a partition with this value is selected; null only by `= ''`."""
        if self.operator in ("=", "!=") and self.values == (None,):
            return (value is None) == (self.operator == "=")
        if self.operator == "not in":
            return value is not None and all(one is not None and _key(one) != _key(value) for one in self.values)
        compare: Callable[[Any, Any], bool] = eq if self.operator == "in" else _ONE[self.operator]
        return value is not None and any(one is not None and compare(_key(value), _key(one)) for one in self.values)


def _key(value: Any) -> Any:
    """A sort key by which NaN equals itself and is above everything else."""
    return (isnan(value), 0.0 if isnan(value) else value) if isinstance(value, float) else value


@dataclass(frozen=True, slots=True)
class FileFilters:
    """Selects files of a table."""

    predicate: Predicate
    """The predicate for the plan, which may return more files."""
    _groups: tuple[tuple[_Filter, ...], ...]

    def choose(self, files: pa.Table) -> pa.Table:
        """The files (with `partition_values`) whose partition values satisfy the filters."""
        texts = files.column("partition_values").to_pylist()
        is_selected = {text: self._chooses(json.loads(text or "{}")) for text in set(texts)}
        return (
            files
            if all(is_selected.values())
            else files.filter(pa.array([is_selected[text] for text in texts], pa.bool_()))
        )

    def _chooses(self, values: Mapping[str, str | None]) -> bool:
        return any(all(item.is_true(_value_of(item.field, values)) for item in group) for group in self._groups)


def _value_of(field: StructField, values: Mapping[str, str | None]) -> Any:
    try:
        return parse_partition_value(values.get(field.physical_name), field.type)
    except MalformedLogError:
        return None


def read_file_filters(
    groups: Sequence[Conjunction], schema: StructType, partition_columns: Sequence[str]
) -> FileFilters:
    """Parses filters on a table's columns; raises PredicateError for an unknown column or a text that is no value."""
    typed_groups = [[_typed(item, schema) for item in group] for group in groups]
    parts = [dnf.all_of(_to_dnf(condition, schema, partition_columns) for condition in group) for group in typed_groups]
    text = " or ".join(" and ".join(f"{name} {op} {value!r}" for name, op, value in group) for group in groups)
    on_partitions = (
        tuple(condition for condition in group if condition.field.name in partition_columns) for group in typed_groups
    )
    return FileFilters(Predicate(text, dnf.any_of(parts)), tuple(on_partitions))


def _typed(item: EncodedFilter, schema: StructType) -> _Filter:
    name, operator, value = item
    if not name or operator not in (_MANY if isinstance(value, list) else _ONE):
        raise PredicateError(
            f"Invalid partition filter found: ({', '.join(map(_shown, item))}). Operators are {', '.join(_ONE)}, and "
            "with lists in, not in"
        )
    field = next((candidate for candidate in schema.fields if candidate.name == name), None)
    if field is None:
        raise PredicateError(
            "Data does not match the schema or partitions of the table: Field "
            f"{name!r} is not a root table field. It has {', '.join(schema.names)}"
        )
    texts = value if isinstance(value, list) else [value]
    return _Filter(field, operator, tuple(_read(text, field) for text in texts))


def _shown(part: str | list[str]) -> str:
    """A part of a filter as shown in messages."""
    return json.dumps(part, ensure_ascii=False)


def _read(text: str, field: StructField) -> Any:
    if not isinstance(field.type, PrimitiveType | DecimalType):
        raise PredicateError(f"column {field.name!r} is no plain value, so files are not chosen by it: {field.type}")
    if text == "":
        return None
    try:
        value = parse_partition_value(text, field.type)
    except MalformedLogError:
        value = None
    if value is None or not _is_strict(text, value, field.type):
        raise PredicateError(f"Failed to parse value {text!r} as '{field.type}', which is the type of {field.name!r}")
    return value


def _is_strict(text: str, value: Any, data_type: DataType) -> bool:
    """Whether the text is in the form that the type's values are written in; other spellings are not accepted."""
    if isinstance(data_type, DecimalType):
        exponent = value.as_tuple().exponent
        return isinstance(value, Decimal) and -exponent == data_type.scale and value.adjusted() < data_type.precision
    name = data_type.name if isinstance(data_type, PrimitiveType) else ""
    if name in _BITS:
        return _INTEGER.fullmatch(text) is not None and -(2 ** (_BITS[name] - 1)) <= value < 2 ** (_BITS[name] - 1)
    if name == "date":
        return _DATE.fullmatch(text) is not None
    return not (name in ("timestamp", "timestamp_ntz") and _DATE.fullmatch(text))


def _to_dnf(one: _Filter, schema: StructType, partition_columns: Sequence[str]) -> Dnf:
    """The filter's part of the plan's predicate."""
    if one.operator in ("=", "!=") and one.values == (None,):
        column = resolve_column(schema, (one.field.name,), {name.casefold() for name in partition_columns})
        return null_test(column, is_null=one.operator == "=")
    values = [value for value in one.values if value is not None]
    if not values or (one.operator == "not in" and len(values) < len(one.values)):
        return FALSE if one.values or one.operator == "in" else dnf.unknown("not in nothing")
    value: Any = values if one.operator in _MANY else values[0]
    return parse_predicate([(one.field.name, one.operator, value)], schema, partition_columns).disjuncts
