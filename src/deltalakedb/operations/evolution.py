"""Owns how data changes a table's definition on its way in: columns it adds, a schema it replaces."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, TypeAlias

from deltalakedb.definitions.table import with_schema
from deltalakedb.exceptions import DeltaError, SchemaMismatchError
from deltalakedb.log.actions import Action, Metadata, Protocol
from deltalakedb.log.feature_use import GENERATION_EXPRESSION
from deltalakedb.log.types import StructField, StructType, parse_schema

if TYPE_CHECKING:
    import pyarrow as pa

    from deltalakedb.operations.target import Target

SchemaMode: TypeAlias = Literal["merge", "overwrite"] | None

_COMPUTED = (GENERATION_EXPRESSION, "CURRENT_DEFAULT", "delta.identity.start")
"""A field with one of these in its metadata need not be in the data."""


@dataclass(frozen=True, slots=True)
class Definition:
    """What a table is once a commit is made, and the actions that say so; none when nothing changes."""

    protocol: Protocol
    metadata: Metadata
    actions: tuple[Action, ...] = ()

    @classmethod
    def of(cls, target: Target, actions: Sequence[Action] = ()) -> Definition:
        """The table's definition with these actions on top."""
        protocol = next((action for action in actions if isinstance(action, Protocol)), target.protocol)
        metadata = next((action for action in actions if isinstance(action, Metadata)), target.metadata)
        return cls(protocol, metadata, tuple(actions))

    @property
    def schema(self) -> StructType:
        return parse_schema(self.metadata.schema_string)


def evolve(
    target: Target,
    arrow: pa.Schema,
    schema_mode: SchemaMode = None,
    partition_by: Sequence[str] | None = None,
) -> Definition:
    """The definition that a table has once data of this Arrow schema is written into it.

    `merge` adds the columns it does not have, `overwrite` takes the data's schema, and partition columns, instead of
    the table's. Otherwise the data must have the columns of the table, and `partition_by` must name its own.
    """
    from deltalakedb.data import arrow_to_schema, check_schema

    if schema_mode == "overwrite":
        return _replaced(target, arrow_to_schema(arrow), partition_by)
    check_partitioning(target.metadata, partition_by, target.name)
    if schema_mode is None:
        refuse_missing(target.schema, list(arrow), target.name)
    known = _with_computed_optional(target.schema)
    merged = check_schema(arrow, known, schema_mode="merge" if schema_mode == "merge" else None, table_name=target.name)
    if merged is known:
        return Definition.of(target)
    nullable = {item.name: item.nullable for item in target.schema.fields}
    merged = StructType(tuple(replace(item, nullable=nullable.get(item.name, True)) for item in merged.fields))
    return Definition.of(
        target, with_schema(target.protocol, target.metadata, merged, table=target.name, history=target.history)
    )


def _with_computed_optional(schema: StructType) -> StructType:
    """The schema as data may come: what the table computes may be missing, even where it must not be null."""
    return StructType(
        tuple(
            replace(item, nullable=item.nullable or any(key in item.metadata for key in _COMPUTED))
            for item in schema.fields
        )
    )


def _replaced(target: Target, schema: StructType, partition_by: Sequence[str] | None) -> Definition:
    kept = list(target.metadata.partition_columns)
    columns = kept if partition_by is None else list(partition_by)
    missing = [name for name in columns if schema.field(name) is None]
    if missing:
        raise SchemaMismatchError(
            f"table {target.name} is partitioned by {', '.join(columns)}, and the new schema has no column "
            f"{missing[0]}; name its partition columns with partition_by"
        )
    if columns == kept and _same_columns(schema, target.schema):
        return Definition.of(target)
    actions = with_schema(
        target.protocol, target.metadata, schema, table=target.name, partition_by=columns, history=target.history
    )
    return Definition.of(target, actions)


def _same_columns(one: StructType, other: StructType) -> bool:
    """Whether two schemas have the same columns, in any order, but for what a table notes of its fields."""
    same = _in_any_order(one) == _in_any_order(other)
    return same and not any(key in f.metadata for f in other.fields for key in _COMPUTED)


def _in_any_order(struct: StructType) -> StructType:
    bare = [
        StructField(f.name, _in_any_order(f.type) if isinstance(f.type, StructType) else f.type, f.nullable)
        for f in struct.fields
    ]
    return StructType(tuple(sorted(bare, key=lambda item: item.name)))


def refuse_missing(table: StructType, data: Sequence[pa.Field], name: str, above: tuple[str, ...] = ()) -> None:
    """Data that leaves out a column is refused, as `deltalake` does, unless the table fills it in."""
    import pyarrow.types as pt

    given = {item.name.casefold(): item for item in data}
    for item in table.fields:
        path = (*above, item.name)
        found = given.get(item.name.casefold())
        if found is None:
            if str(item.type) == "void" or any(key in item.metadata for key in _COMPUTED):
                continue
            raise SchemaMismatchError(
                f"table {name}: the column {'.'.join(path)!r} is not in the data; bring it, or write with "
                "schema_mode='merge' to leave it null"
            )
        if isinstance(item.type, StructType) and pt.is_struct(found.type):
            refuse_missing(item.type, list(found.type), name, path)


def check_partitioning(metadata: Metadata, partition_by: Sequence[str] | str | None, table: str) -> None:
    """A table keeps the partition columns it has."""
    if partition_by is None:
        return
    wanted = [partition_by] if isinstance(partition_by, str) else list(partition_by)
    if [name.casefold() for name in wanted] != [name.casefold() for name in metadata.partition_columns]:
        now = ", ".join(metadata.partition_columns) or "no column"
        raise SchemaMismatchError(
            f"table {table} is partitioned by {now}, not by {', '.join(wanted) or 'no column'}; leave partition_by "
            "out, or replace the whole table with mode='overwrite' and schema_mode='overwrite'"
        )


def check_schema_mode(schema_mode: str | None, mode: str) -> None:
    """A schema is replaced with the rows, not beside them."""
    if schema_mode not in (None, "merge", "overwrite"):
        raise DeltaError(f"schema_mode is merge or overwrite, not {schema_mode!r}")
    if schema_mode == "overwrite" and mode != "overwrite":
        raise DeltaError(
            f"schema_mode='overwrite' goes with mode='overwrite'; mode={mode!r} keeps the rows: use 'merge'"
        )
