"""What a new table is, and what new columns or properties make of it: its metadata and its protocol."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from deltalakedb.definitions.column_mapping import map_columns, mapping_mode
from deltalakedb.definitions.ddl import parse_ddl
from deltalakedb.definitions.features import MetadataHistory, Wishes, needed_features, with_features
from deltalakedb.definitions.properties import check_own_properties
from deltalakedb.exceptions import ConfigError, InvalidCommitError, SchemaMismatchError
from deltalakedb.log.actions import Action, Format, Metadata, Protocol
from deltalakedb.log.feature_use import GENERATION_EXPRESSION, every_field
from deltalakedb.log.features import is_enabled
from deltalakedb.log.secret_checks import refuse_new_secrets
from deltalakedb.log.types import DecimalType, PrimitiveType, StructField, StructType, parse_schema

if TYPE_CHECKING:
    import pyarrow as pa

SchemaLike = Any
"""A Schema of ours or of `deltalake`, an Arrow schema, the protocol's JSON, or text such as "id long, day date"."""

PropertyValue = str | bool | int | float

_ROW_TRACKING = "delta.enableRowTracking"
_ROW_ID_COLUMN = "delta.rowTracking.materializedRowIdColumnName"
_ROW_VERSION_COLUMN = "delta.rowTracking.materializedRowCommitVersionColumnName"

_PLAINEST = Protocol(1, 2)
"""Every reader there is can read it."""


def to_schema(schema: SchemaLike) -> StructType:
    """The columns of a new table, in whatever form they were given."""
    if isinstance(schema, StructType):
        return schema
    if isinstance(schema, str):
        return parse_schema(schema) if schema.lstrip().startswith("{") else parse_ddl(schema)
    if hasattr(schema, "to_json"):  # a Schema: ours, or that of `deltalake`
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
    """Protocol and metadata of a table's first version; the protocol asks for no more than the table needs."""
    if not schema.fields:
        raise SchemaMismatchError(f"table {table} has no columns: give at least one")
    _refuse_twins(schema, table)
    partition_columns = _partition_columns(schema, partition_by, table)
    wishes = Wishes.of(to_texts(properties))
    given = wishes.properties
    check_own_properties(given, table=table)
    configuration: dict[str, str | None] = {**given, **_names_of_row_ids(given)}
    if mapping_mode(configuration) != "none":
        schema, configuration = map_columns(schema, configuration, fresh=True)
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
    """The actions that set table properties, the protocol raised where they need it."""
    if not properties:
        raise ConfigError(f"table {table}: no property is given to be set")
    wishes = Wishes.of(to_texts(properties))
    given = wishes.properties
    check_own_properties(given, table=table)
    configuration = {**metadata.configuration, **given}
    configuration |= _names_of_row_ids(configuration)
    schema = parse_schema(metadata.schema_string)
    before, after = mapping_mode(metadata.configuration), mapping_mode(configuration)
    if before != after:
        if (before, after) != ("none", "name"):
            raise InvalidCommitError(
                f"table {table}: column mapping cannot change from {before} to {after}, only from none to name: "
                "the names in its data files would not fit any more"
            )
        schema, configuration = map_columns(schema, configuration, fresh=False)
    newly = is_enabled(configuration, _ROW_TRACKING) and not is_enabled(metadata.configuration, _ROW_TRACKING)
    if has_files and newly:
        raise InvalidCommitError(
            f"table {table}: {_ROW_TRACKING} can be set only while the table is empty: the rows it has have no ids"
        )
    changed = replace(metadata, schema_string=schema.to_json(), configuration=configuration)
    if not given:
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
    """The actions that add columns at the end of the schema; in the files that are there they are null."""
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
    """A generated column cannot be added: the rows that are there would not have its values."""
    for path, item in every_field(StructType(tuple(fields))):
        if GENERATION_EXPRESSION in item.metadata:
            raise SchemaMismatchError(
                f"table {table}: the new column {path} cannot be a generated column, since rows that are there have no "
                "value of it; create the table with it, or overwrite it with schema_mode='overwrite'"
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
    """The actions that give a table another schema, and other partition columns when they are given.

    Under column mapping a field without an id is a new one; whoever keeps a column keeps its field.
    """
    _refuse_twins(schema, table)
    columns = metadata.partition_columns if partition_by is None else _partition_columns(schema, partition_by, table)
    configuration = metadata.configuration
    if mapping_mode(configuration) != "none":
        schema, configuration = map_columns(schema, configuration, fresh=True)
    changed = replace(metadata, schema_string=schema.to_json(), partition_columns=columns, configuration=configuration)
    refuse_new_secrets(changed, metadata, what=f"table {table}")
    raised = with_features(protocol, needed_features(schema, configuration), history=history)
    return _changes((protocol, metadata), (raised, changed))


def to_texts(properties: Mapping[str, PropertyValue]) -> dict[str, str]:
    """Property values as the protocol has them."""
    texts = {}
    for key, value in properties.items():
        if not isinstance(key, str) or not key or not isinstance(value, str | bool | int | float):
            raise ConfigError(f"a table property is a name and a text, not {key!r} = {value!r}")
        texts[key] = str(value).lower() if isinstance(value, bool) else str(value)
    return texts


def _names_of_row_ids(configuration: Mapping[str, str | None]) -> dict[str, str | None]:
    """Rewritten rows keep their ids in columns of these names (PROTOCOL.md, "Row Tracking"), chosen once."""
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
        return tuple(item for one in columns for item in _as_fields(one))
    if hasattr(columns, "to_json") and not isinstance(columns, StructType):  # a Field or Schema of `deltalake`
        value = json.loads(columns.to_json())
        whole = value if value.get("type") == "struct" and "fields" in value else {"type": "struct", "fields": [value]}
        return parse_schema(json.dumps(whole)).fields
    if type(columns).__name__ == "Field" and hasattr(columns, "nullable"):  # of pyarrow
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
        "a schema is an Arrow schema, a Schema, its JSON or text such as 'id long, day date', "
        f"not {type(schema).__name__}"
    )


def _from_arrow(schema: pa.Schema) -> StructType:
    from deltalakedb.data import arrow_to_schema

    return arrow_to_schema(schema)


def _partition_columns(schema: StructType, partition_by: str | Sequence[str], table: str) -> tuple[str, ...]:
    names: list[str] = []
    for wanted in [partition_by] if isinstance(partition_by, str) else partition_by:
        item = schema.field(wanted)
        if item is None:
            raise SchemaMismatchError(
                f"table {table} cannot be partitioned by {wanted}: its columns are {', '.join(schema.names)}"
            )
        if not isinstance(item.type, PrimitiveType | DecimalType):
            raise SchemaMismatchError(f"table {table} cannot be partitioned by {wanted}, which is {item.type}")
        if item.name in names:
            raise SchemaMismatchError(f"table {table}: the partition column {item.name} is named twice")
        names.append(item.name)
    if names and len(names) == len(schema.fields):
        raise SchemaMismatchError(f"table {table}: not every column can be a partition column; data files need one")
    return tuple(names)


def _refuse_twins(schema: StructType, table: str) -> None:
    seen: dict[str, str] = {}
    for name in schema.names:
        if not name:
            raise SchemaMismatchError(f"table {table}: a column has an empty name")
        other = seen.get(name.casefold())
        if other is not None:
            raise SchemaMismatchError(
                f"table {table}: {other} and {name} are the same column name; case does not tell names apart"
            )
        seen[name.casefold()] = name
