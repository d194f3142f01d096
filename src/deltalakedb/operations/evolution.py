"""Schema evolution by a write: columns that data adds, or a schema that it replaces."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from deltalakedb.exceptions import CommitFailedError, SchemaMismatchError
from deltalakedb.log.protocol.actions import Action, Metadata, Protocol
from deltalakedb.log.protocol.features import GENERATION_EXPRESSION, writer_features
from deltalakedb.log.schema.types import StructField, StructType, parse_schema
from deltalakedb.operations.definition import with_schema

if TYPE_CHECKING:
    import pyarrow as pa

    from deltalakedb.operations.target import Target

SchemaMode: TypeAlias = Literal["merge", "overwrite"] | None

_COMPUTED = (GENERATION_EXPRESSION, "CURRENT_DEFAULT", "delta.identity.start")
"""A field with one of these in its metadata may be missing in the data."""
_MAPPING = "delta.columnMapping."


@dataclass(frozen=True, slots=True)
class Definition:
    """A table's definition after a commit, and the actions that change it; none if nothing changes."""

    protocol: Protocol
    metadata: Metadata
    actions: tuple[Action, ...] = ()

    @classmethod
    def of(cls, target: Target, actions: Sequence[Action] = ()) -> Definition:
        """Return the table's definition after these actions."""
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
    """Return the definition of a table after data with this Arrow schema is written.

    `merge` adds the columns that the table lacks; `overwrite` replaces the table's schema and partition columns by the
    data's. Otherwise the data must have the table's columns, and `partition_by` must name its partition columns.
    """
    from deltalakedb.data import arrow_to_schema, check_schema

    if schema_mode == "overwrite":
        return _replaced(target, arrow_to_schema(arrow), partition_by)
    # Data with exactly the table's columns, in order, and no metadata on them: nothing can differ.
    has_same_columns = arrow == target.schema.to_arrow() and not any(item.metadata for item in arrow)
    if not has_same_columns:
        _refuse_other_notes(target, arrow)
    if partition_by is not None:
        check_partitioning(target.metadata, partition_by, target.name)
    if has_same_columns:
        if schema_mode is None:
            _refuse_local_times(target, arrow)
        return Definition(target.protocol, target.metadata)
    _refuse_other_case(target, arrow, schema_mode)
    if schema_mode is None:
        _refuse_local_times(target, arrow)
        _refuse_other_count(target.schema, list(arrow), target.name)
    table_schema = _with_computed_optional(target.schema)
    merged = check_schema(
        arrow, table_schema, schema_mode="merge" if schema_mode == "merge" else None, table_name=target.name
    )
    if schema_mode is None:
        refuse_missing(target.schema, list(arrow), target.name)
    if merged is table_schema:
        return Definition.of(target)
    nullable = {item.name: item.nullable for item in target.schema.fields}
    merged = StructType(tuple(replace(item, nullable=nullable.get(item.name, True)) for item in merged.fields))
    merged = partitions_last(merged, target)
    return Definition.of(
        target, with_schema(target.protocol, target.metadata, merged, table=target.name, history=target.history)
    )


def partitions_last(schema: StructType, target: Target) -> StructType:
    """Return the table's columns with its partition columns last, followed by new columns: `deltalake`'s order."""
    parts = target.metadata.partition_columns
    fields = {item.name: item for item in schema.fields}
    data_columns = [name for name in target.schema.names if name not in parts]
    names = dict.fromkeys([*data_columns, *(name for name in target.schema.names if name in parts), *fields])
    return StructType(tuple(fields[name] for name in names))


def _refuse_other_case(target: Target, arrow: pa.Schema, schema_mode: SchemaMode) -> None:
    """Raise if a column's name differs from a table column only in case: it is not that column, and cannot be added."""
    for name in arrow.names:
        item = target.schema.field(name)
        if item is not None and item.name != name:
            what = (
                f"Field {name} not found in schema" if schema_mode is None
                else f"Schema error: Duplicate field name (case-insensitive): {name!r}"
            )  # fmt: skip
            raise SchemaMismatchError(f"{what}; the table {target.name} has {item.name}")


def _refuse_local_times(target: Target, arrow: pa.Schema) -> None:
    """Raise for times without a zone if the table lacks the feature for them; a schema merge reads them as UTC."""
    import pyarrow.types as pt

    if "timestampNtz" in writer_features(target.protocol):
        return
    for item in arrow:
        if pt.is_timestamp(item.type) and item.type.tz is None:
            raise CommitFailedError(
                "Table features must be specified, please specify: TimestampWithoutTimezone; column "
                f"{item.name!r} of the data has times without a zone, and table {target.name} has none: give them a "
                "zone, or write with schema_mode='merge' to have them taken as UTC",
                table=target.name,
                version=target.snapshot.version,
            )


def _refuse_other_count(table: StructType, data: Sequence[pa.Field], name: str) -> None:
    """Raise unless data has as many columns (and structs as many fields) as the table, without computed ones."""
    import pyarrow.types as pt

    optional = {item.name for item in table.fields if _may_be_missing(item)}
    columns = {item.name: item for item in data}
    expected = [field for field in table.names if field not in optional]
    provided = [field for field in columns if field not in optional]
    if len(provided) != len(expected):
        missing = [field for field in expected if field not in columns]
        others = missing or [field for field in provided if field not in expected]
        raise SchemaMismatchError(
            f"Cannot cast schema, number of fields does not match: {len(columns)} vs {len(table.names)}; table {name}: "
            f"{', '.join(map(repr, others))} is {'missing' if missing else 'new'}; schema_mode='merge' adds columns, "
            "and leaves missing ones null"
        )
    for item in table.fields:
        data_field = columns.get(item.name)
        if data_field is not None and isinstance(item.type, StructType) and pt.is_struct(data_field.type):
            _refuse_other_count(item.type, list(data_field.type), name)


def _may_be_missing(item: StructField) -> bool:
    return str(item.type) == "void" or any(key in item.metadata for key in _COMPUTED)


def _with_computed_optional(schema: StructType) -> StructType:
    """Return the schema with computed columns nullable: they may be missing in the data, even if they are NOT NULL."""
    return StructType(
        tuple(
            replace(item, nullable=item.nullable or any(key in item.metadata for key in _COMPUTED))
            for item in schema.fields
        )
    )


def _replaced(target: Target, schema: StructType, partition_by: Sequence[str] | None) -> Definition:
    table_columns = list(target.metadata.partition_columns)
    columns = table_columns if partition_by is None else list(partition_by)
    missing = [name for name in columns if schema.field(name) is None]
    if missing:
        raise SchemaMismatchError(
            f"Partition column(s) not found in write schema: {', '.join(missing)}; table {target.name} is partitioned "
            f"by {', '.join(columns)}: name its partition columns with partition_by"
        )
    if columns == table_columns and _same_columns(schema, target.schema):
        return Definition.of(target)
    actions = with_schema(
        target.protocol, target.metadata, schema, table=target.name, partition_by=columns, history=target.history
    )
    return Definition.of(target, actions)


def _same_columns(one: StructType, other: StructType) -> bool:
    """Return whether two schemas have the same columns, in any order, with the same metadata."""
    return _in_any_order(one) == _in_any_order(other)


def _in_any_order(struct: StructType) -> StructType:
    fields = [
        StructField(
            f.name, _in_any_order(f.type) if isinstance(f.type, StructType) else f.type, f.nullable, _notes(f.metadata)
        )
        for f in struct.fields
    ]
    return StructType(tuple(sorted(fields, key=lambda item: item.name)))


def _notes(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return a field's metadata without column mapping, which data does not have."""
    return {key: value for key, value in metadata.items() if not key.startswith(_MAPPING)}


def _refuse_other_notes(target: Target, arrow: pa.Schema) -> None:
    """Raise if the metadata of the data's columns contradicts the table's; only an overwrite replaces it.

    Generation expressions are not compared: the table's expression applies, and the data's values are checked by it.
    """
    from deltalakedb.data.arrow_types import field_metadata

    for item in arrow:
        column = target.schema.field(item.name)
        for key, value in _notes(field_metadata(item.metadata)).items():
            if column is not None and key != GENERATION_EXPRESSION and column.metadata.get(key, value) != value:
                raise SchemaMismatchError(
                    f"Schema error: Cannot merge metadata with different values for key {key}: the column "
                    f"{item.name!r} of the data has {value!r}, that of table {target.name} {column.metadata[key]!r}"
                )


def refuse_missing(table: StructType, data: Sequence[pa.Field], name: str, above: tuple[str, ...] = ()) -> None:
    """Raise if data lacks a column that the table does not compute, as `deltalake` does."""
    import pyarrow.types as pt

    data_fields = {item.name.casefold(): item for item in data}
    for item in table.fields:
        path = (*above, item.name)
        data_field = data_fields.get(item.name.casefold())
        if data_field is None:
            if _may_be_missing(item):
                continue
            raise SchemaMismatchError(
                f"table {name}: the column {'.'.join(path)!r} is not in the data; bring it, or write with "
                "schema_mode='merge' to leave it null"
            )
        if isinstance(item.type, StructType) and pt.is_struct(data_field.type):
            refuse_missing(item.type, list(data_field.type), name, path)


def check_partitioning(metadata: Metadata, partition_by: Sequence[str] | str | None, table: str) -> None:
    """Raise if `partition_by` differs from the table's partition columns."""
    if partition_by is None:
        return
    requested = [partition_by] if isinstance(partition_by, str) else list(partition_by)
    if [name.casefold() for name in requested] != [name.casefold() for name in metadata.partition_columns]:
        raise other_partitioning(metadata, requested, table)


def other_partitioning(metadata: Metadata, wanted: Sequence[str], table: str) -> SchemaMismatchError:
    """Return the error for a write with other partition columns than the table's."""
    return SchemaMismatchError(
        "Generic error: Specified table partitioning does not match table partitioning: expected: "
        f"{json.dumps(metadata.partition_columns)}, got: {json.dumps(wanted)}. To change partition columns, use full "
        "table overwrite with schema overwrite and no replaceWhere predicate: mode='overwrite' with "
        f"schema_mode='overwrite' replaces {table}"
    )
