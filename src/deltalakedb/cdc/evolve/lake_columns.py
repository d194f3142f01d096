"""Schema changes of the lake's tables: new columns in both tables, and types that can be followed."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import Final

import pyarrow as pa

from deltalakedb.cdc.captured_table import SourceColumn
from deltalakedb.cdc.layers import AFTER, BEFORE
from deltalakedb.cdc.source.source_catalog import TypeFacts
from deltalakedb.exceptions import SchemaMismatchError
from deltalakedb.log.protocol.actions import Metadata
from deltalakedb.log.protocol.codec import to_json
from deltalakedb.log.protocol.proposal import ProposedCommit
from deltalakedb.log.schema.column_mapping import mapping_mode
from deltalakedb.log.schema.types import (
    ArrayType,
    DataType,
    DecimalType,
    PrimitiveType,
    StructField,
    StructType,
    TypeChange,
)
from deltalakedb.operations.change_data import ChangeWriter, feeds_changes
from deltalakedb.operations.definition import with_schema
from deltalakedb.operations.find import find_rows
from deltalakedb.operations.rewriting import replace_rows
from deltalakedb.operations.target import Done, Target

_TYPE_CHANGES = "delta.typeChanges"
_TYPE_WIDENING = "delta.enableTypeWidening"


@dataclass(frozen=True, slots=True)
class ColumnChange:
    """The changes of a source table's columns."""

    added: tuple[SourceColumn, ...] = ()
    dropped: tuple[SourceColumn, ...] = ()
    renamed: Mapping[str, str] = field(default_factory=dict)
    """New names by old name."""
    widened: Mapping[str, tuple[SourceColumn, tuple[TypeChange, ...]]] = field(default_factory=dict)
    """The new column, and the type changes that Delta records, by old name."""


def is_mapped(metadata: Metadata) -> bool:
    """Whether columns of a table can be renamed and dropped, because it has column mapping."""
    return mapping_mode(metadata.configuration) != "none"


def change_columns(target: Target, change: ColumnChange, *, nested: bool) -> Done:
    """Change the columns of a lake table; `nested`: those of `before` and `after`, in a table of changes.

    If columns cannot be dropped, a dropped one stays, and is null in new rows.
    """
    metadata, schema = target.metadata, target.schema
    mapped = is_mapped(metadata)
    if nested:
        rows = {
            item.name: replace(item, type=_change_row(item.type, change, mapped))
            for item in schema.fields
            if item.name in (BEFORE, AFTER) and isinstance(item.type, StructType)
        }
        changed_schema = StructType(tuple(rows.get(item.name, item) for item in schema.fields))
    else:
        changed_schema = _change_row(schema, change, mapped)
    if changed_schema == schema:
        return Done(None)
    if change.widened:
        metadata = replace(metadata, configuration={**metadata.configuration, _TYPE_WIDENING: "true"})
    actions = with_schema(target.protocol, metadata, changed_schema, table=target.name)
    parameters = {
        "added": to_json([column.name for column in change.added]),
        "dropped": to_json([column.name for column in change.dropped]),
        "renamed": to_json(dict(change.renamed)),
        "widened": to_json({name: str(column.type) for name, (column, _) in change.widened.items()}),
    }
    return Done(ProposedCommit(tuple(actions), "CHANGE COLUMNS", parameters))


def _change_row(row: StructType, change: ColumnChange, mapped: bool) -> StructType:
    dropped = {column.name for column in change.dropped} if mapped else set()
    fields = [_keep_field(item, change) for item in row.fields if item.name not in dropped]
    by_name = {item.name: item for item in fields}
    for column in change.added:
        existing = by_name.get(column.name)
        if existing is None:
            fields.append(StructField(column.name, column.type, True))
        elif existing.type != column.type:
            raise SchemaMismatchError(
                f"the lake still has a column {column.name} of type {existing.type}, which the source had dropped, and "
                f"the new one is {column.type}"
            )
    return StructType(tuple(fields))


def _keep_field(item: StructField, change: ColumnChange) -> StructField:
    if item.name in change.widened:
        column, steps = change.widened[item.name]
        recorded = [
            {"fromType": step.from_type, "toType": step.to_type, "fieldPath": step.field_path}
            if step.field_path
            else {"fromType": step.from_type, "toType": step.to_type}
            for step in steps
        ]
        metadata = {**item.metadata, _TYPE_CHANGES: [*item.metadata.get(_TYPE_CHANGES, []), *recorded]}
        item = replace(item, type=column.type, metadata=metadata)
    return replace(item, name=change.renamed.get(item.name, item.name))


def fill_columns(target: Target, values: Mapping[str, pa.Scalar]) -> Done:
    """Set some columns to the same values in every row of a table."""
    matches = find_rows(target, None)
    if not matches.files:
        return Done(None, {}, matches.read)

    def filled(rows: pa.RecordBatch) -> pa.RecordBatch:
        arrays = dict(zip(rows.schema.names, rows.columns, strict=True))
        for name, value in values.items():
            kind = rows.schema.field(name).type
            arrays[name] = pa.repeat(value.cast(kind), len(rows)) if value.is_valid else pa.nulls(len(rows), kind)
        return pa.RecordBatch.from_arrays(list(arrays.values()), schema=rows.schema)

    with ChangeWriter(target) if feeds_changes(target) else nullcontext() as changes:
        rewritten = replace_rows(target, matches.files, filled, frozenset(values), changes=changes)
        change_files = () if changes is None else changes.finish()
    parameters = {"predicate": "true", "columns": to_json(list(values))}
    return Done(ProposedCommit((*rewritten.actions, *change_files), "UPDATE", parameters, read=matches.read))


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
