"""Binds expressions to a schema: makes the predicate whose atoms the planning index can decide.

An atom on a column implies one on each partition field made of the column, so the predicate has both: bounds and
partition values of a file, whichever spec it was written with, prune together.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import inf
from typing import Final

from deltalakedb.exceptions import PredicateError
from deltalakedb.iceberg.planning.bounds import column_key, partition_field_key
from deltalakedb.iceberg.planning.expressions import And, Constant, Expression, Not, Or, Term, Test, Undecided
from deltalakedb.iceberg.planning.literals import AmbiguousLiteralError, to_value
from deltalakedb.iceberg.planning.schema import Field, PartitionField, TableSchema, TableShape
from deltalakedb.iceberg.planning.transforms import parse_transform
from deltalakedb.iceberg.planning.types import Primitive, Value, is_decimal
from deltalakedb.log.predicates import dnf
from deltalakedb.log.predicates.atoms import FALSE, TRUE, Atom, Column, Conjunct, Dnf, IsNotNull, IsNull, Within
from deltalakedb.log.predicates.literals import compare, not_starts_with, starts_with
from deltalakedb.log.predicates.ranges import NumberRange, unite_numbers

_NEGATED: Final = {
    "is-null": "not-null", "is-nan": "not-nan", "lt": "gt-eq", "gt": "lt-eq", "eq": "not-eq", "in": "not-in",
    "starts-with": "not-starts-with",
}  # fmt: skip
_NEGATIONS: Final = _NEGATED | {negated: op for op, negated in _NEGATED.items()}
_OPERATORS: Final = {"lt": "<", "lt-eq": "<=", "gt": ">", "gt-eq": ">=", "eq": "=", "in": "="}
_NAN: Final = NumberRange(inf, inf)
"""Where the index has NaN: above all numbers."""


class Binder:
    """Binds expressions to one schema of a table."""

    def __init__(
        self, shape: TableShape, schema: TableSchema, *, case_sensitive: bool = True, nan_has_bounds: bool = True
    ) -> None:
        """`nan_has_bounds`: whether the index has NaN as above all numbers, as that of native tables does."""
        self._schema = schema
        self._case_sensitive = case_sensitive
        self._nan_has_bounds = nan_has_bounds
        self._parts: dict[str, list[PartitionField]] = {}
        for part in shape.partition_fields():
            if part.source_type is not None and part.type is not None and part.transform.name != "void":
                self._parts.setdefault(column_key(part.source_id, part.source_type), []).append(part)

    def bind(self, expression: Expression) -> Dnf:
        """The predicate of an expression; PredicateError if it names a field that does not exist."""
        predicate = self._bind(expression, negate=False)
        return self.with_partitions(without_nan(predicate) if self._nan_has_bounds else predicate)

    def _bind(self, item: Expression, *, negate: bool) -> Dnf:
        match item:
            case Constant(value):
                return TRUE if value != negate else FALSE
            case Not(child):
                return self._bind(child, negate=not negate)
            case And(parts):
                bound = [self._bind(part, negate=negate) for part in parts]
                return dnf.any_of(bound) if negate else dnf.all_of(bound)
            case Or(parts):
                bound = [self._bind(part, negate=negate) for part in parts]
                return dnf.all_of(bound) if negate else dnf.any_of(bound)
            case Undecided(reason, terms):
                for term in terms:
                    self._field(term)
                return dnf.unknown(reason)
            case Test():
                return self._bind_test(item, _negation(item.op) if negate else item.op)

    def _field(self, term: Term) -> Field:
        if term.field_id is not None:
            return self._schema.find_id(term.field_id)
        return self._schema.find(term.name, case_sensitive=self._case_sensitive)

    def _bind_test(self, test: Test, op: str) -> Dnf:
        field = self._field(test.term)
        transform = parse_transform(test.term.transform)
        type_ = transform.result_type(field.type)
        if type_ is None or field.type is None or not field.has_bounds:
            return dnf.unknown(f"{field.name} has no bounds")
        column = column_of_field(field, field.type)
        if transform.name != "identity":
            part = PartitionField(0, field.field_id, transform, field.type, type_)
            column = column_of_part(part, f"{transform}({field.name})")
        try:
            values = [to_value(literal, type_) for literal in test.literals]
        except AmbiguousLiteralError:
            return dnf.unknown(f"a literal that clients read differently, compared with {field.name}")
        return atoms_of(op, column, type_, values)

    # -- partition fields

    def with_partitions(self, predicate: Dnf) -> Dnf:
        """Adds to each atom on a column what it implies for the partition fields made of the column."""
        if not self._parts:
            return predicate
        conjuncts = [self._implied(conjunct) for conjunct in predicate]
        return tuple(conjunct for conjunct in conjuncts if conjunct is not None)

    def _implied(self, conjunct: Conjunct) -> Conjunct | None:
        """None if no partition can hold a row that satisfies it: a bucket beyond the last one."""
        atoms: list[Atom] = list(conjunct)
        for atom in conjunct:
            if not isinstance(atom, Within | IsNull | IsNotNull):
                continue
            for part in self._parts.get(atom.column.physical_path[0], ()):
                implied = _project(atom, part)
                if implied is not None:
                    atoms.append(implied)
        return tuple(dict.fromkeys(atoms))


def _project(atom: Within | IsNull | IsNotNull, part: PartitionField) -> Atom | None:
    column = column_of_part(part, f"{part.transform}({atom.column.name})")
    if isinstance(atom, IsNull):
        return IsNull(column)
    if isinstance(atom, IsNotNull):
        return IsNotNull(column)
    assert part.source_type is not None
    ranges = part.transform.project(part.source_type, atom.ranges)
    return None if ranges is None else Within(column, ranges, exact=False)


def _negation(op: str) -> str:
    return _NEGATIONS[op]


def column_of_field(field: Field, type_: Primitive) -> Column:
    """The column of an atom on a field: its path is the key of its bounds."""
    return _column(field.name, column_key(field.field_id, type_), type_, is_partition=False)


def column_of_part(part: PartitionField, name: str) -> Column:
    assert part.type is not None
    return _column(name, partition_field_key(part), part.type, is_partition=True)


def _column(name: str, key: str, type_: Primitive, *, is_partition: bool) -> Column:
    if type_.is_text:
        return Column((name,), (key,), "string", "text", is_partition)
    names = {"float": type_.name}
    type_name = type_.name.replace(" ", "") if is_decimal(type_) else names.get(type_.family, "long")
    return Column((name,), (key,), type_name, "number", is_partition, fuzzy_float=type_name == "float")


# ---- atoms


def atoms_of(op: str, column: Column, type_: Primitive, values: Sequence[Value]) -> Dnf:
    """The predicate of one test. Comparisons with null are true where Iceberg's readers keep such rows."""
    if op == "is-null":
        return dnf.atom(IsNull(column))
    if op == "not-null":
        return dnf.atom(IsNotNull(column))
    if op in ("is-nan", "not-nan"):
        if type_.family != "float":
            raise PredicateError(f"{op} cannot be used with {column.name}, which is no floating-point column")
        return dnf.atom(Within(column, (), nan=True)) if op == "is-nan" else dnf.unknown("not-nan")
    if op in ("starts-with", "not-starts-with"):
        return _prefix_atom(op, column, type_, values[0])
    comparable = [value.hex() if isinstance(value, bytes) else value for value in values]
    if type_.family == "float" and 0 in comparable:
        # Java's readers order -0.0 below 0.0, others take them as equal; the index does not tell them apart.
        op = {"lt": "lt-eq", "gt": "gt-eq"}.get(op, op)
        if op in ("not-eq", "not-in"):
            return dnf.unknown(f"{column.name} is not zero")
    if op in ("not-eq", "not-in"):
        return dnf.any_of([compare(column, "!=", *comparable), dnf.atom(IsNull(column))])
    if not comparable:
        return FALSE
    return compare(column, _OPERATORS[op], *comparable)


def _prefix_atom(op: str, column: Column, type_: Primitive, value: Value) -> Dnf:
    if type_.family != "text" or not isinstance(value, str):
        raise PredicateError(f"{op} cannot be used with {column.name}, which is no string column")
    if op == "starts-with":
        return dnf.atom(starts_with(column, value, rest_matters=False))
    return dnf.any_of([dnf.atom(not_starts_with(column, value)), dnf.atom(IsNull(column))])


def _above_numbers(atom: Atom) -> Atom:
    """NaN as a range: the index has it at infinity."""
    if not isinstance(atom, Within) or not atom.nan:
        return atom
    numbers = [item for item in atom.ranges if isinstance(item, NumberRange)]
    return Within(atom.column, unite_numbers([*numbers, _NAN]), exact=atom.exact)


def without_nan(predicate: Dnf) -> Dnf:
    """A predicate with NaN where the index of native Iceberg tables has it."""
    return tuple(tuple(_above_numbers(atom) for atom in conjunct) for conjunct in predicate)


def used_keys(predicate: Iterable[Conjunct]) -> set[str]:
    """The keys of the columns that a predicate has atoms on."""
    atoms = (atom for conjunct in predicate for atom in conjunct)
    return {atom.column.physical_path[0] for atom in atoms if isinstance(atom, Within | IsNull | IsNotNull)}
