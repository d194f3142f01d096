"""Protocol and metadata of a new table, and of a table with new columns or properties."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from deltalakedb.exceptions import ConfigError, InvalidCommitError, SchemaMismatchError
from deltalakedb.log.checks.properties import check_own_properties
from deltalakedb.log.checks.secret_checks import refuse_new_secrets
from deltalakedb.log.protocol.actions import Action, Format, Metadata, Protocol
from deltalakedb.log.protocol.feature_needs import MetadataHistory, Wishes, needed_features, with_features
from deltalakedb.log.protocol.features import GENERATION_EXPRESSION, every_field, is_enabled
from deltalakedb.log.schema.column_mapping import map_columns, mapping_mode
from deltalakedb.log.schema.ddl import parse_ddl
from deltalakedb.log.schema.types import DecimalType, PrimitiveType, StructField, StructType, parse_schema

if TYPE_CHECKING:
    import pyarrow as pa

SchemaLike = Any
"""A Schema of ours or of `deltalake`, an Arrow schema, the protocol's JSON, or text such as "id long, day date"."""

PropertyValue = str | bool | int | float

_ROW_TRACKING = "delta.enableRowTracking"
_ROW_ID_COLUMN = "delta.rowTracking.materializedRowIdColumnName"
_ROW_VERSION_COLUMN = "delta.rowTracking.materializedRowCommitVersionColumnName"

_PLAINEST = Protocol(1, 2)
"""The protocol that every reader can read."""


def to_schema(schema: SchemaLike) -> StructType:
    """The columns of a new table, from any accepted form of schema."""
    if isinstance(schema, StructType):
        return schema
    if isinstance(schema, str):
        return parse_schema(schema) if schema.lstrip().startswith("{") else parse_ddl(schema)
    if hasattr(schema, "to_json"):  # a Schema of ours or of `deltalake`
        return parse_schema(schema.to_json())
    return _from_arrow(_as_arrow(schema))


def new_table(
    schema: StructType,
    partition_by: str | Sequence[str],
    properties: Mapping[str, PropertyValue],
    *,
    table: str,
    name: str | None,
    description: str | None,
    created_ms: int,
) -> tuple[Protocol, Metadata]:
    """Protocol and metadata of a table's first version; the protocol requires only what the table needs."""
    if not schema.fields:
        raise SchemaMismatchError(f"table {table}: At least one column must be defined to create a table.")
    _refuse_twins(schema, table)
    partition_columns = _partition_columns(schema, partition_by, table)
    wishes = Wishes.of(to_texts(properties))
    remaining = wishes.properties
    check_own_properties(remaining, table=table)
    configuration: dict[str, str | None] = {**remaining, **_names_of_row_ids(remaining)}
    if mapping_mode(configuration) != "none":
        schema, configuration = map_columns(schema, configuration, new_name=_new_physical_name)
    metadata = Metadata(
        id=str(uuid.uuid4()),
        format=Format(),
        schema_string=schema.to_json(),
        partition_columns=partition_columns,
        configuration=configuration,
        name=name,
        description=description,
        created_time=created_ms,
    )
    refuse_new_secrets(metadata, None, what=f"table {table}")
    return wishes.apply(_PLAINEST, needed_features(schema, configuration), history=tuple), metadata


def with_properties(
    protocol: Protocol,
    metadata: Metadata,
    properties: Mapping[str, PropertyValue],
    *,
    table: str,
    has_files: bool,
    history: MetadataHistory | None = None,
) -> list[Action]:
    """The actions that set table properties, raising the protocol if needed."""
    if not properties:
        raise ConfigError(f"table {table}: no property is given to be set")
    wishes = Wishes.of(to_texts(properties))
    remaining = wishes.properties
    check_own_properties(remaining, table=table)
    configuration = {**metadata.configuration, **remaining}
    configuration |= _names_of_row_ids(configuration)
    schema = parse_schema(metadata.schema_string)
    old, new = mapping_mode(metadata.configuration), mapping_mode(configuration)
    if old != new:
        if (old, new) != ("none", "name"):
            raise InvalidCommitError(
                f"table {table}: Column mapping is not supported for this change: delta.columnMapping.mode cannot go "
                f"from {old} to {new}, only from none to name; the names in its data files would not fit any more"
            )
        schema, configuration = map_columns(schema, configuration, new_name=None)
    enables_row_tracking = is_enabled(configuration, _ROW_TRACKING) and not is_enabled(
        metadata.configuration, _ROW_TRACKING
    )
    if has_files and enables_row_tracking:
        raise InvalidCommitError(
            f"table {table}: {_ROW_TRACKING} can be set only while the table is empty: the rows it has have no ids"
        )
    changed = replace(metadata, schema_string=schema.to_json(), configuration=configuration)
    if not remaining:
        changed = metadata
    refuse_new_secrets(changed, metadata, what=f"table {table}")
    raised = wishes.apply(protocol, needed_features(schema, configuration), history)
    return _changes((protocol, metadata), (raised, changed))


def with_columns(
    protocol: Protocol,
    metadata: Metadata,
    columns: SchemaLike,
    *,
    table: str,
    history: MetadataHistory | None = None,
) -> list[Action]:
    """The actions that add columns at the end of the schema; existing files have nulls in them."""
    schema = parse_schema(metadata.schema_string)
    fields = _as_fields(columns)
    refuse_generated(fields, table)
    for item in fields:
        if not item.nullable:
            raise SchemaMismatchError(
                f"table {table}: the new column {item.name} must be nullable: files that are there do not have it"
            )
    return with_schema(protocol, metadata, StructType((*schema.fields, *fields)), table=table, history=history)


def refuse_generated(fields: Sequence[StructField], table: str) -> None:
    """Refuse to add a generated column: existing rows would not have its values."""
    for path, item in every_field(StructType(tuple(fields))):
        if GENERATION_EXPRESSION in item.metadata:
            raise SchemaMismatchError(
                f"table {table}: New columns cannot be a generated column: rows that are there have no value of "
                f"{path}; create the table with it, or overwrite it with schema_mode='overwrite'"
            )


def with_schema(
    protocol: Protocol,
    metadata: Metadata,
    schema: StructType,
    *,
    table: str,
    partition_by: str | Sequence[str] | None = None,
    history: MetadataHistory | None = None,
) -> list[Action]:
    """The actions that give a table another schema, and other partition columns if given.

    With column mapping a field without an id is new; to keep a column, pass its existing field.
    """
    _refuse_twins(schema, table)
    columns = metadata.partition_columns if partition_by is None else _partition_columns(schema, partition_by, table)
    configuration = metadata.configuration
    if mapping_mode(configuration) != "none":
        schema, configuration = map_columns(schema, configuration, new_name=_new_physical_name)
    changed = replace(metadata, schema_string=schema.to_json(), partition_columns=columns, configuration=configuration)
    refuse_new_secrets(changed, metadata, what=f"table {table}")
    raised = with_features(protocol, needed_features(schema, configuration), history=history)
    return _changes((protocol, metadata), (raised, changed))


def to_texts(properties: Mapping[str, PropertyValue]) -> dict[str, str]:
    """Property values as strings, as the protocol has them."""
    texts = {}
    for key, value in properties.items():
        if not isinstance(key, str) or not key or not isinstance(value, str | bool | int | float):
            raise ConfigError(f"a table property is a name and a text, not {key!r} = {value!r}")
        texts[key] = str(value).lower() if isinstance(value, bool) else str(value)
    return texts


def _new_physical_name() -> str:
    return f"col-{uuid.uuid4()}"


def _names_of_row_ids(configuration: Mapping[str, str | None]) -> dict[str, str | None]:
    """The columns in which rewritten rows keep their ids (PROTOCOL.md, "Row Tracking"); chosen once."""
    if not is_enabled(configuration, _ROW_TRACKING):
        return {}
    names = {
        _ROW_ID_COLUMN: f"_row-id-col-{uuid.uuid4()}",
        _ROW_VERSION_COLUMN: f"_row-commit-version-col-{uuid.uuid4()}",
    }
    return {key: configuration.get(key) or name for key, name in names.items()}


def _changes(before: tuple[Protocol, Metadata], after: tuple[Protocol, Metadata]) -> list[Action]:
    protocol, metadata = after
    return [*([protocol] if protocol != before[0] else ()), *([metadata] if metadata != before[1] else ())]


def _as_fields(columns: SchemaLike) -> tuple[StructField, ...]:
    if isinstance(columns, StructField):
        return (columns,)
    if isinstance(columns, Sequence) and not isinstance(columns, str):
        return tuple(item for column in columns for item in _as_fields(column))
    if hasattr(columns, "to_json") and not isinstance(columns, StructType):  # a Field or Schema of `deltalake`
        value = json.loads(columns.to_json())
        struct = value if value.get("type") == "struct" and "fields" in value else {"type": "struct", "fields": [value]}
        return parse_schema(json.dumps(struct)).fields
    if type(columns).__name__ == "Field" and hasattr(columns, "nullable"):  # a pyarrow Field
        import pyarrow as pa

        return _from_arrow(pa.schema([columns])).fields
    return to_schema(columns).fields


def _as_arrow(schema: Any) -> pa.Schema:
    import pyarrow as pa

    if isinstance(schema, pa.Schema):
        return schema
    if hasattr(schema, "__arrow_c_schema__"):
        return pa.schema(schema)
    if hasattr(schema, "to_arrow"):
        return pa.schema(schema.to_arrow())
    raise ValueError(
        "Expected an object with dunder __arrow_c_schema__: a schema is an Arrow schema, a Schema, its JSON or text "
        f"such as 'id long, day date', not {type(schema).__name__}"
    )


def _from_arrow(schema: pa.Schema) -> StructType:
    from deltalakedb.data.arrow_types import arrow_to_schema, check_declared

    for item in schema:
        check_declared(item.type, (item.name,))
    return arrow_to_schema(schema)


def _partition_columns(schema: StructType, partition_by: str | Sequence[str], table: str) -> tuple[str, ...]:
    names: list[str] = []
    for column in [partition_by] if isinstance(partition_by, str) else partition_by:
        item = next((item for item in schema.fields if item.name == column), None)
        if item is None:
            raise SchemaMismatchError(
                f"table {table}: Partition column '{column}' not found in schema; its columns are "
                f"{', '.join(schema.names)}"
            )
        if not isinstance(item.type, PrimitiveType | DecimalType):
            raise SchemaMismatchError(f"table {table} cannot be partitioned by {column}, which is {item.type}")
        if item.name in names:
            raise SchemaMismatchError(f"table {table}: Duplicate partition column: '{item.name}'")
        names.append(item.name)
    return tuple(names)


def _refuse_twins(schema: StructType, table: str) -> None:
    names_by_folded: dict[str, str] = {}
    for name in schema.names:
        if not name:
            raise SchemaMismatchError(f"table {table}: a column has an empty name")
        other = names_by_folded.get(name.casefold())
        if other is not None:
            raise SchemaMismatchError(f"table {table}: Schema error: Duplicate field name (case-insensitive): '{name}'")
        names_by_folded[name.casefold()] = name
