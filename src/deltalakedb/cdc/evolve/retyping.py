"""Which changes of a column's type can be followed: existing rows of the lake must keep their meaning."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from deltalakedb.cdc.source.source_catalog import TypeFacts
from deltalakedb.log.schema.types import ArrayType, DataType, DecimalType, PrimitiveType, TypeChange

_WIDER: Final[dict[str, frozenset[str]]] = {
    "byte": frozenset({"short", "integer", "long", "double"}),
    "short": frozenset({"integer", "long", "double"}),
    "integer": frozenset({"long", "double"}),
    "float": frozenset({"double"}),
}
"""Delta's type widening (PROTOCOL.md, "Type Widening"), without date to timestamp_ntz, which has no infinity."""
_DIGITS: Final = {"byte": 10, "short": 10, "integer": 10, "long": 20}
"""Digits before the point that a decimal needs to hold the integers of a type."""

_PRINTED_ALIKE: Final = frozenset({"text", "varchar", "name", "uuid", "json", "jsonb", "enum", "numeric", "xml"})
"""Types whose cast to text gives the text they are printed as. A char(n) loses its blanks."""
_PRECISE: Final = frozenset({"time", "timetz", "timestamp", "timestamptz", "varbit"})
"""Types whose modifier is a limit, so that a larger one changes no value."""
_HEADER: Final = 4
"""What Postgres adds to the modifier of varchar, char and numeric."""
_UNLIMITED: Final = -1


def widening_steps(old: DataType, new: DataType) -> tuple[TypeChange, ...] | None:
    """The type changes that Delta records when a column of type `old` becomes `new`; None if that is no widening."""
    match old, new:
        case ArrayType(), ArrayType():
            inside = widening_steps(old.element_type, new.element_type)
            if inside is None:
                return None
            return tuple(
                replace(step, field_path=".".join(filter(None, ("element", step.field_path)))) for step in inside
            )
        case _ if old == new:
            return ()
        case _ if _is_wider(old, new):
            return (TypeChange(str(old), str(new)),)
        case _:
            return None


def _is_wider(old: DataType, new: DataType) -> bool:
    match old, new:
        case PrimitiveType(), PrimitiveType():
            return new.name in _WIDER.get(old.name, ())
        case DecimalType(), DecimalType():
            return new.scale >= old.scale and new.precision - new.scale >= old.precision - old.scale
        case PrimitiveType(), DecimalType():
            return old.name in _DIGITS and new.precision - new.scale >= _DIGITS[old.name]
        case _:
            return False


def keeps_values(old: TypeFacts, new: TypeFacts) -> bool:
    """Whether existing rows keep their values in the lake's type after ALTER TABLE ... TYPE.

    An ALTER with a USING that computes something else cannot be recognised.
    """
    if old.is_array != new.is_array:
        return False
    if old.name == new.name:
        return old.modifier == new.modifier or _holds_more(old, new)
    if old.name in _PRINTED_ALIKE:
        as_text = new.name in ("text", "varchar") and new.modifier == _UNLIMITED
        return (
            as_text
            or (old.name in ("text", "varchar") and new.name in ("enum", "json"))
            or ((old.name, new.name) == ("jsonb", "json"))
        )
    return False


def _holds_more(old: TypeFacts, new: TypeFacts) -> bool:
    """Whether the same type with another modifier holds all values that it held before, unchanged."""
    if old.name == "enum":
        return True
    if old.name == "numeric":
        return _numeric_holds_more(old.modifier, new.modifier)
    if new.modifier == _UNLIMITED:
        return old.name != "bpchar"
    return old.name in (*_PRECISE, "varchar") and _UNLIMITED < old.modifier <= new.modifier


def _numeric_holds_more(old: int, new: int) -> bool:
    if old == _UNLIMITED or new == _UNLIMITED:
        return new == _UNLIMITED
    (old_precision, old_scale), (new_precision, new_scale) = _digits(old), _digits(new)
    # A larger scale prints more digits; as decimals they are equal, and then the types decide.
    return new_scale == old_scale and new_precision >= old_precision


def _digits(modifier: int) -> tuple[int, int]:
    return (modifier - _HEADER) >> 16 & 0xFFFF, (((modifier - _HEADER) & 0x7FF) ^ 0x400) - 0x400
