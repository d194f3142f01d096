"""Parses predicates, SQL text or `deltalake`'s DNF filters, into atoms that can be compared with bounds of files."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from datetime import date, datetime
from decimal import Decimal
from functools import partial
from typing import Any, Final

from deltalakedb.exceptions import PredicateError
from deltalakedb.log.predicates import dnf
from deltalakedb.log.predicates.atoms import (
    ALWAYS,
    FALSE,
    TRUE,
    Atom,
    Column,
    Dnf,
    IsNotNull,
    IsNull,
    Kind,
    Predicate,
    Unknown,
    Within,
)
from deltalakedb.log.predicates.literals import Value, compare, instant_of
from deltalakedb.log.schema.types import StructField, StructType

__all__ = [
    "ALWAYS",
    "Atom",
    "Column",
    "Filters",
    "IsNotNull",
    "IsNull",
    "Predicate",
    "Unknown",
    "Within",
    "no_such_column",
    "parse_predicate",
    "resolve_column",
]

Filter = tuple[str, str, Any]
Filters = Sequence[Filter] | Sequence[Sequence[Filter]]

_PLAIN_NAME: Final = re.compile(r"[a-z_][a-z0-9_.]*")
_KINDS: Final[dict[str, Kind]] = {
    **dict.fromkeys(("byte", "short", "integer", "long", "float", "double", "boolean"), "number"),
    "date": "date",
    "timestamp": "timestamp",
    "timestamp_ntz": "timestamp",
    "string": "text",
}
_MOST_NAMES: Final = 100
_SHOWN_CHARS: Final = 500
_CHAR_TYPE: Final = "__CHAR_VARCHAR_TYPE_STRING"
_OPERATORS: Final = {
    "=": "=", "==": "=", "!=": "!=", "<>": "!=", "<": "<", "<=": "<=", ">": ">", ">=": ">=",
    "in": "in", "not in": "not in",
}  # fmt: skip


def parse_predicate(
    source: str | Filters | Predicate | None,
    schema: StructType,
    partition_columns: Iterable[str] = (),
    *,
    exact: bool = False,
) -> Predicate:
    """Parses SQL text, or filters as `deltalake` takes them; None and [] mean every row.

    Raises PredicateError for syntax errors and for columns that the schema does not have. Parts that bounds cannot
    decide become Unknown and never prune. With `exact`, names are case-sensitive.
    """
    if isinstance(source, Predicate):
        return source
    if source is None or (not isinstance(source, str) and len(source) == 0):
        return ALWAYS
    partitions = frozenset(name.casefold() for name in partition_columns)

    resolve = partial(resolve_column, schema, partition_columns=partitions, exact=exact)
    if isinstance(source, str):
        # sqlglot takes a third of a second to import, so it is imported only for predicates in SQL.
        from deltalakedb.log.predicates.predicate_sql import read_sql

        return Predicate(source, read_sql(source, resolve))
    disjuncts = _read_filters(source, resolve)
    return Predicate(_show_filters(source), disjuncts)


def resolve_column(
    schema: StructType, path: Sequence[str], partition_columns: Iterable[str] = (), *, exact: bool = False
) -> Column:
    """Finds the column of a (possibly nested) name, ignoring case as Spark does, unless `exact`."""
    fields: list[StructField] = []
    struct: StructType | None = schema
    for part in path:
        child = struct.field(part) if struct is not None else None
        if child is None or (exact and child.name != part):
            raise no_such_column(".".join(path), schema.names)
        fields.append(child)
        struct = child.type if isinstance(child.type, StructType) else None
    last = fields[-1]
    type_name = str(last.type)
    widened = any(change.from_type == "float" for change in last.type_changes)
    is_partition = len(fields) == 1 and last.name.casefold() in partition_columns
    return Column(
        path=tuple(field.name for field in fields),
        physical_path=tuple(field.physical_name for field in fields),
        type_name=type_name,
        kind="number" if type_name.startswith("decimal(") else _KINDS.get(type_name),
        is_partition=is_partition,
        fuzzy_float=type_name == "float" or widened,
        unprunable=_unprunable(last, is_partition),
    )


def _unprunable(field: StructField, is_partition: bool) -> str:
    if str(field.type) == "boolean" and not is_partition:
        return f"{field.name} is a boolean, and some writers get the bounds of those wrong"
    if field.has_collation:
        return f"{field.name} has a collation"
    if str(field.metadata.get(_CHAR_TYPE, "")).lower().startswith("char"):
        return f"{field.name} is padded (char)"
    return ""


def no_such_column(name: str, names: Sequence[str]) -> PredicateError:
    """The error for an unknown column, worded as in `deltalake`."""
    last = name.rpartition(".")[2].casefold()
    similar = next((candidate for candidate in names if candidate.rpartition(".")[2].casefold() == last), None)
    hint = f" Did you mean '{_quoted(similar)}'? Column names are case sensitive." if similar is not None else ""
    valid_names = ", ".join(map(_quoted, names[:_MOST_NAMES]))
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return PredicateError(f"Schema error: No field named {_quoted(name)}.{hint} Valid fields are {valid_names}{more}.")


def _quoted(name: str) -> str:
    return name if _PLAIN_NAME.fullmatch(name) else f'"{name}"'


# ---- filters: [("a", "=", 1), ...] or [[...], [...]]


def _read_filters(filters: Filters, resolve: Callable[[Sequence[str]], Column]) -> Dnf:
    return dnf.any_of(dnf.all_of(_read_filter(item, resolve) for item in group) for group in _groups(filters))


def _groups(filters: Any) -> list[Any]:
    """All filters of at least one group must hold; a flat list is one group."""
    if all(isinstance(item, tuple) for item in filters):
        return [filters]
    for group in filters:
        if not isinstance(group, list | tuple):
            raise PredicateError(
                f"filters are tuples (column, operator, value), or lists of them; this is neither: {_show(group)}"
            )
    return list(filters)


def _read_filter(item: Any, resolve: Callable[[Sequence[str]], Column]) -> Dnf:
    if not isinstance(item, tuple | list) or len(item) != 3 or not isinstance(item[0], str):
        raise PredicateError(f"a filter is (column, operator, value); this is none: {_show(item)}")
    name, operator, value = item
    op = _OPERATORS.get(" ".join(operator.lower().split())) if isinstance(operator, str) else None
    if op is None:
        raise PredicateError(f"unknown operator {_show(operator)} in a filter; these exist: {', '.join(_OPERATORS)}")
    column = _filter_column(name, resolve)
    if op not in ("in", "not in"):
        return _compare_filter(column, op, value)
    if isinstance(value, str | bytes) or not isinstance(value, Iterable):
        raise PredicateError(f"the operator {op!r} takes a list of values, not {_show(value)}")
    return _list_filter(column, op, list(value))


def _filter_column(name: str, resolve: Callable[[Sequence[str]], Column]) -> Column:
    try:
        return resolve((name,))
    except PredicateError:
        if "." not in name:
            raise
        return resolve(name.split("."))


def _compare_filter(column: Column, op: str, raw: Any) -> Dnf:
    """Compares a column with a value; `deltalake` writes a null partition as None or ''."""
    if raw is None:
        return _null_filter(column, op)
    value = _value(raw)
    if value is None:
        return dnf.unknown(f"a value of type {type(raw).__name__} compared with {column.name}")
    if not (column.is_partition and value == "" and op == "="):
        return compare(column, op, value)
    null = _null_filter(column, "=")
    return dnf.any_of([compare(column, op, value), null]) if column.kind == "text" else null


def _null_filter(column: Column, op: str) -> Dnf:
    if op in ("=", "!="):
        return null_test(column, is_null=op == "=")
    return FALSE


def null_test(column: Column, *, is_null: bool) -> Dnf:
    if column.kind is None:
        return dnf.unknown(f"null test on {column.name} ({column.type_name})")
    return dnf.atom(IsNull(column) if is_null else IsNotNull(column))


def _list_filter(column: Column, op: str, raws: list[Any]) -> Dnf:
    values = [_value(raw) for raw in raws if raw is not None]
    literals = [value for value in values if value is not None]
    if len(literals) < len(values):
        return dnf.unknown(f"a value of an unusual type compared with {column.name}")
    has_null = len(values) < len(raws) or (column.is_partition and "" in literals)
    if op == "not in":
        if not literals:
            return TRUE
        outside = compare(column, "!=", *literals)
        return outside if has_null else dnf.any_of([outside, null_test(column, is_null=True)])
    inside = compare(column, "=", *literals) if literals else FALSE
    return dnf.any_of([inside, null_test(column, is_null=True)]) if has_null else inside


def _value(raw: Any) -> Value | None:
    """Converts a Python value to a literal; None if its type is never compared."""
    if hasattr(raw, "item") and not isinstance(raw, int | float):
        raw = raw.item()  # a numpy scalar
    if isinstance(raw, datetime):
        return instant_of(raw)
    if isinstance(raw, Decimal) and not raw.is_finite():
        return None
    return raw if isinstance(raw, bool | int | float | Decimal | str | date) else None


def _show(value: Any) -> str:
    """A value as an error shows it."""
    text = repr(value)
    return text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}..."


def _show_filters(filters: Any) -> str:
    groups = [" and ".join(" ".join(map(str, item)) for item in group) for group in _groups(filters)]
    return groups[0] if len(groups) == 1 else " or ".join(f"({group})" for group in groups)
