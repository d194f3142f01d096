"""Owns the filters that choose files, `(column, operator, value)`: values are texts, read by the type of the column.

Filters on partition columns choose exactly, those on other columns as far as statistics tell. As in `deltalake`, an
empty text stands for null, and no other null can be given.
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
from deltalakedb.log import dnf
from deltalakedb.log.atoms import FALSE, Dnf, Predicate
from deltalakedb.log.partitions import parse_partition_value
from deltalakedb.log.predicate import null_test, parse_predicate, resolve_column
from deltalakedb.log.types import DataType, DecimalType, PrimitiveType, StructField, StructType

EncodedFilter: TypeAlias = tuple[str, str, str | list[str]]
Conjunction: TypeAlias = list[EncodedFilter]

_ONE: Final[dict[str, Callable[[Any, Any], bool]]] = {"=": eq, "!=": ne, "<": lt, "<=": le, ">": gt, ">=": ge}
_MANY: Final = ("in", "not in")
_INTEGER: Final = re.compile(r"[+-]?\d{1,19}", re.ASCII)
_BITS: Final = {"byte": 8, "short": 16, "integer": 32, "long": 64}
_DATE: Final = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)


# -- texts


def encode_filters(filters: Any) -> list[Conjunction]:
    """One list of filters that must all hold, or several that are alternatives, with their values as texts.

    ValueError for what is no filter, and for values that have no text.
    """
    if all(isinstance(item, list) for item in filters):
        groups = filters
    elif all(isinstance(item, tuple) for item in filters):
        groups = [filters]
    else:
        raise ValueError("filters are tuples in one list, or lists of tuples that are alternatives; not both at once")
    if any(not group for group in groups):
        raise ValueError("an empty list of filters among several; pass no filter to match all files")
    return [encode_conjunction(group) for group in groups]


def encode_conjunction(filters: Any) -> Conjunction:
    """Filters that must all hold."""
    encoded: Conjunction = []
    for item in filters:
        if not isinstance(item, list | tuple) or len(item) != 3:
            raise ValueError(f"a filter is (column, operator, value); this is none: {item!r}")
        column, operator, value = item
        many = isinstance(value, list | tuple)
        encoded.append((column, operator, [_encode(one) for one in value] if many else _encode(value)))
    return encoded


def _encode(value: Any) -> str:
    """A value as the protocol writes it in a partition."""
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
    raise ValueError(f"a partition value of type {type(value).__name__} has no text: {value!r}")


def check_encoded(filters: Any) -> list[Conjunction] | None:
    """Filters whose values are texts already, in one list; TypeError for anything else. None chooses all files."""
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
    """Of the column's type; None is null."""

    def is_true(self, value: Any) -> bool:
        """Whether a partition with this value is chosen; null only by `= ''`."""
        if self.operator in ("=", "!=") and self.values == (None,):
            return (value is None) == (self.operator == "=")
        if self.operator == "not in":
            return value is not None and all(one is not None and _key(one) != _key(value) for one in self.values)
        compare: Callable[[Any, Any], bool] = eq if self.operator == "in" else _ONE[self.operator]
        return value is not None and any(one is not None and compare(_key(value), _key(one)) for one in self.values)


def _key(value: Any) -> Any:
    """NaN equals itself and is above everything else."""
    return (isnan(value), 0.0 if isnan(value) else value) if isinstance(value, float) else value


@dataclass(frozen=True, slots=True)
class FileFilters:
    """Which files of a table are chosen."""

    predicate: Predicate
    """What a plan finds them by; it may find more."""
    _groups: tuple[tuple[_Filter, ...], ...]

    def choose(self, files: pa.Table) -> pa.Table:
        """The files (with `partition_values`) whose partition values are really asked for."""
        texts = files.column("partition_values").to_pylist()
        chosen = {text: self._chooses(json.loads(text or "{}")) for text in set(texts)}
        return files if all(chosen.values()) else files.filter(pa.array([chosen[text] for text in texts], pa.bool_()))

    def _chooses(self, values: Mapping[str, str | None]) -> bool:
        return any(all(one.is_true(_value_of(one.field, values)) for one in group) for group in self._groups)


def _value_of(field: StructField, values: Mapping[str, str | None]) -> Any:
    try:
        return parse_partition_value(values.get(field.physical_name), field.type)
    except MalformedLogError:
        return None


def read_file_filters(
    groups: Sequence[Conjunction], schema: StructType, partition_columns: Sequence[str]
) -> FileFilters:
    """Filters on columns of a table; PredicateError for a column that is not there, or a text that is no value."""
    typed = [[_typed(item, schema) for item in group] for group in groups]
    parts = [dnf.all_of(_to_dnf(one, schema, partition_columns) for one in group) for group in typed]
    text = " or ".join(" and ".join(f"{name} {op} {value!r}" for name, op, value in group) for group in groups)
    on_partitions = (tuple(one for one in group if one.field.name in partition_columns) for group in typed)
    return FileFilters(Predicate(text, dnf.any_of(parts)), tuple(on_partitions))


def _typed(item: EncodedFilter, schema: StructType) -> _Filter:
    name, operator, value = item
    if not name or operator not in (_MANY if isinstance(value, list) else _ONE):
        raise PredicateError(
            f"no filter on files: {item!r}; operators are {', '.join(_ONE)}, and with lists in, not in"
        )
    field = next((one for one in schema.fields if one.name == name), None)
    if field is None:
        raise PredicateError(f"no column {name!r} in the table; its columns are: {', '.join(schema.names)}")
    texts = value if isinstance(value, list) else [value]
    return _Filter(field, operator, tuple(_read(text, field) for text in texts))


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
        raise PredicateError(f"the filter's value {text!r} is no {field.type}, which is the type of {field.name!r}")
    return value


def _is_strict(text: str, value: Any, data_type: DataType) -> bool:
    """Whether a text is one that the type's values are written as; a value that is close to one chooses nothing."""
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
    """What the plan is made of."""
    if one.operator in ("=", "!=") and one.values == (None,):
        column = resolve_column(schema, (one.field.name,), {name.casefold() for name in partition_columns})
        return null_test(column, is_null=one.operator == "=")
    values = [value for value in one.values if value is not None]
    if not values or (one.operator == "not in" and len(values) < len(one.values)):
        return FALSE if one.values or one.operator == "in" else dnf.unknown("not in nothing")
    value: Any = values if one.operator in _MANY else values[0]
    return parse_predicate([(one.field.name, one.operator, value)], schema, partition_columns).disjuncts
