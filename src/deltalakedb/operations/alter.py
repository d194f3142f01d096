"""ALTER TABLE: changes a table's definition; its rows stay unchanged."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from deltalakedb.exceptions import DeltaError, SchemaMismatchError, redact
from deltalakedb.log.checks.properties import TAG_PREFIX
from deltalakedb.log.checks.secret_checks import refuse_new_secrets
from deltalakedb.log.checks.table_checks import DROP_PROTECTION
from deltalakedb.log.protocol.actions import Action, Metadata
from deltalakedb.log.protocol.codec import to_json
from deltalakedb.log.protocol.feature_needs import with_features, with_listed_features
from deltalakedb.log.protocol.features import (
    BY_PROPERTY,
    COLUMN_MAPPING_MODE,
    CONSTRAINT_PREFIX,
    READER_FEATURES,
    features_in_use,
)
from deltalakedb.log.protocol.proposal import DEFINITION, NOTHING_READ, WHOLE_TABLE, ProposedCommit, ReadSet
from deltalakedb.log.schema.types import ArrayType, DataType, MapType, StructField, StructType, parse_schema
from deltalakedb.operations.definition import refuse_generated, with_properties, with_schema
from deltalakedb.operations.expression_text import constraint_text
from deltalakedb.operations.expressions import Expression
from deltalakedb.operations.target import Done, Target, open_engine

_MAX_NAME: Final = 255
_MAX_DESCRIPTION: Final = 4000
_ROW_TRACKING: Final = "delta.enableRowTracking"
_FEATURE_READER, _FEATURE_WRITER = 3, 7
_ARROW_NAMES: Final = {"BIGINT": "Int64", "INTEGER": "Int32", "DOUBLE": "Float64", "VARCHAR": "Utf8", "DATE": "Date32"}
_NANOSECONDS: Final = "timestampNanos"
_NAMES_IN_COMMITS: Final = {"variantType-preview": "variantTypePreview"}
"""Features whose names in `deltalake`'s commit info differ from the protocol's."""
KNOWN_PROPERTIES: Final = frozenset(
    {
        *BY_PROPERTY,
        DROP_PROTECTION,
        COLUMN_MAPPING_MODE,
        "delta.autoOptimize.autoCompact",
        "delta.autoOptimize.optimizeWrite",
        "delta.checkpoint.writeStatsAsJson",
        "delta.checkpoint.writeStatsAsStruct",
        "delta.checkpointInterval",
        "delta.checkpointPolicy",
        "delta.columnMapping.maxColumnId",
        "delta.compatibility.symlinkFormatManifest.enabled",
        "delta.dataSkippingNumIndexedCols",
        "delta.dataSkippingStatsColumns",
        "delta.deletedFileRetentionDuration",
        "delta.enableExpiredLogCleanup",
        "delta.inCommitTimestampEnablementTimestamp",
        "delta.inCommitTimestampEnablementVersion",
        "delta.isolationLevel",
        "delta.logRetentionDuration",
        "delta.minReaderVersion",
        "delta.minWriterVersion",
        "delta.parquet.compression.codec",
        "delta.randomizeFilePrefixes",
        "delta.randomPrefixLength",
        "delta.requireCheckpointProtectionBeforeVersion",
        "delta.rowTrackingSuspended",
        "delta.setTransactionRetentionDuration",
        "delta.targetFileSize",
        "delta.tuneFileSizesForRewrites",
        "delta.universalFormat.enabledFormats",
    }
)
"""Known table properties, besides `delta.feature.*` and tags; others need `raise_if_not_exists=False`."""


def add_columns(target: Target, fields: Sequence[StructField]) -> Done:
    """Add columns at the end of the schema; an existing struct gets the fields that it lacks."""
    refuse_generated(fields, target.name)
    names = [item.name.casefold() for item in fields]
    column = next((item.name for item in fields if names.count(item.name.casefold()) > 1), None)
    if column is not None:
        raise SchemaMismatchError(
            f"Schema error: Duplicate field name (case-insensitive): '{column}'. table {target.name}: a new column is "
            "given twice"
        )
    merged = _merge(target.schema, fields, target)
    actions = with_schema(target.protocol, target.metadata, merged, table=target.name, history=target.history)
    parameters = {"fields": to_json([_field_json(item) for item in fields])}
    return _done(target, "ADD COLUMN", parameters, actions or [target.metadata])


def add_constraint(target: Target, constraints: Mapping[str, str]) -> Done:
    """Add conditions that every row must satisfy; the existing rows are checked first."""
    if not constraints:
        raise DeltaError(f"table {target.name}: No check constraint (Name and Expression) provided")
    parsed = {name: Expression.parse_rule(text, target.schema, any_case=False) for name, text in constraints.items()}
    texts = {name: constraint_text(text) for name, text in constraints.items()}
    configuration = dict(target.metadata.configuration)
    for name, text in texts.items():
        existing = configuration.get(f"{CONSTRAINT_PREFIX}{name}")
        if existing is not None and constraint_text(existing) != text:
            raise DeltaError(
                f"table {target.name}: Cannot add constraint '{name}': a constraint with this name already exists with "
                f"a different expression. Existing: '{existing}', New: '{text}'; drop it first"
            )
        configuration[f"{CONSTRAINT_PREFIX}{name}"] = text
    _check_rows(target, parsed)
    parameters = {"constraints": to_json([{"name": name, "expr": text} for name, text in texts.items()])}
    metadata = replace(target.metadata, configuration=configuration)
    features = features_in_use(target.schema, configuration)
    protocol = with_features(target.protocol, features, history=target.history)
    return _done(target, "ADD CONSTRAINT", parameters, [protocol, metadata], read=WHOLE_TABLE)


def drop_constraint(target: Target, name: str, *, raise_if_not_exists: bool) -> Done:
    key = f"{CONSTRAINT_PREFIX}{name}"
    if key not in target.metadata.configuration:
        if raise_if_not_exists:
            constraint_keys = [key for key in target.metadata.configuration if key.startswith(CONSTRAINT_PREFIX)]
            names = ", ".join(key.removeprefix(CONSTRAINT_PREFIX) for key in constraint_keys) or "none"
            raise DeltaError(
                f"Constraint with name '{name}' does not exist. The constraints of table {target.name}: {names}"
            )
        return Done(None, read=DEFINITION)
    configuration = {other: value for other, value in target.metadata.configuration.items() if other != key}
    metadata = replace(target.metadata, configuration=configuration)
    return _done(target, "DROP CONSTRAINT", {"name": name}, [metadata])


def drop_column_not_null(target: Target, column: str) -> Done:
    """Make a column nullable."""
    if not column:
        raise DeltaError(f"table {target.name}: No column name provided")
    item = _column(target, column, f"No column with the name '{column}' in the schema")
    if item.nullable:
        raise DeltaError(f"table {target.name}: Column '{column}' is already nullable")
    changed = replace(item, nullable=True)
    parameters = {"column": to_json(_field_json(changed))}
    return _done(target, "CHANGE COLUMN", parameters, [_with_field(target, changed)])


def set_column_metadata(target: Target, column: str, metadata: Mapping[str, str]) -> Done:
    """Set entries of a column's metadata; its other entries stay. Delta's own entries are refused: they describe the
    data."""
    item = _column(target, column, f"No field with the provided name in the schema: '{column}'")
    entry = next((key for key in metadata if key.startswith("delta.")), None)
    if entry is not None:
        raise DeltaError(
            f"table {target.name}: Not allowed to modify protected metadata e.g. `delta.columnMapping.id`: {entry} of "
            f"the column {column}"
        )
    changed = _with_field(target, replace(item, metadata={**item.metadata, **metadata}))
    fields = parse_schema(changed.schema_string).fields
    parameters = {"fields": to_json([_field_json(field) for field in fields])}
    return _done(target, "UPDATE FIELD METADATA", parameters, [changed])


def add_feature(target: Target, features: Sequence[str], *, allow_protocol_versions_increase: bool) -> Done:
    """Add table features, by the protocol's names; properties then enable their use."""
    if not features:
        raise DeltaError(f"table {target.name}: No features provided")
    if _NANOSECONDS in features:
        raise DeltaError(
            f"table {target.name}: nanosecond timestamps are no type of the Delta protocol, and this package does not "
            "write them"
        )
    protocol = target.protocol
    for_readers = any(name in READER_FEATURES for name in features)
    listed = protocol.min_writer_version >= _FEATURE_WRITER and (
        not for_readers or protocol.min_reader_version >= _FEATURE_READER
    )
    if not listed and not allow_protocol_versions_increase:
        kinds, short, versions = (
            ("reader and writer", "reader is not v3, and writer not v7", "versions")
            if for_readers
            else ("writer", "min_writer is not v7", "version")
        )
        raise DeltaError(
            f"Generic DeltaTable error: Table feature enables {kinds} feature, but {short}. Set "
            f"allow_protocol_versions_increase or increase {versions} explicitly through set_tbl_properties "
            f"(set_table_properties): table {target.name} has versions {protocol.min_reader_version} and "
            f"{protocol.min_writer_version}, and readers and writers that do not know {', '.join(features)} then "
            "cannot use it"
        )
    new_protocol = with_listed_features(protocol, features, target.history)
    names = [_NAMES_IN_COMMITS.get(name, name) for name in features]
    return _done(target, "ADD FEATURE", {"name": to_json(names)}, [new_protocol])


def set_properties(target: Target, properties: Mapping[str, str], *, raise_if_not_exists: bool) -> Done:
    """Set table properties; if one needs a table feature, the protocol is upgraded too."""
    for key, value in properties.items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise TypeError(f"a table property is a name and a text, not {key!r} = {value!r}")
        if key.startswith(CONSTRAINT_PREFIX):
            raise DeltaError(
                f"table {target.name}: Error parsing property '{key}':'{redact(value)}': it is set by add_constraint, "
                "which looks at the rows first"
            )
        if raise_if_not_exists and key not in KNOWN_PROPERTIES and not key.startswith(("delta.feature.", TAG_PREFIX)):
            raise DeltaError(
                f"table {target.name}: Error parsing property '{key}':'{redact(value)}': it is no property of Delta "
                "tables; with raise_if_not_exists=False any name can be set"
            )
    parameters = {"properties": to_json(dict(properties))}
    if not properties:
        return _done(target, "SET TBLPROPERTIES", parameters, [target.metadata])
    has_files = _ROW_TRACKING in properties and target.snapshot.files_table(["path"]).num_rows > 0
    actions = with_properties(
        target.protocol,
        target.metadata,
        properties,
        table=target.name,
        has_files=has_files,
        history=target.history,
    )
    return _done(target, "SET TBLPROPERTIES", parameters, actions or [target.metadata])


def set_name(target: Target, name: str) -> Done:
    """Set the name in the table's own metadata, which is independent of its name in a catalog."""
    if not 0 < len(name) <= _MAX_NAME:
        raise DeltaError(
            f"table {target.name}: Table metadata is invalid: name: Table name cannot be empty and cannot exceed "
            f"{_MAX_NAME} characters; it has {len(name)}"
        )
    parameters = {"metadataUpdate": to_json({"name": name, "description": None})}
    return _done(target, "UPDATE TABLE METADATA", parameters, [replace(target.metadata, name=name)])


def set_description(target: Target, description: str) -> Done:
    if len(description) > _MAX_DESCRIPTION:
        raise DeltaError(
            f"table {target.name}: Table metadata is invalid: description: Table description cannot exceed "
            f"{_MAX_DESCRIPTION} characters; it has {len(description)}"
        )
    parameters = {"metadataUpdate": to_json({"name": None, "description": description})}
    return _done(target, "UPDATE TABLE METADATA", parameters, [replace(target.metadata, description=description)])


def _done(
    target: Target,
    operation: str,
    parameters: Mapping[str, Any],
    actions: Iterable[Action],
    *,
    read: ReadSet = NOTHING_READ,
) -> Done:
    """Return the commit, with the protocol upgraded if the metadata needs it."""
    commit_actions = list(actions)
    for action in list(commit_actions):
        if isinstance(action, Metadata):
            refuse_new_secrets(action, target.metadata, what=f"table {target.name}")
            features = features_in_use(parse_schema(action.schema_string), action.configuration)
            new_protocol = with_features(target.protocol, features, history=target.history)
            if new_protocol != target.protocol and not any(
                type(other) is type(new_protocol) for other in commit_actions
            ):
                commit_actions.insert(0, new_protocol)
    return Done(ProposedCommit(tuple(commit_actions), operation, dict(parameters), read=read))


def _check_rows(target: Target, checks: Mapping[str, Expression]) -> None:
    """Raise DeltaError if existing rows violate a check; only the columns of the checks are read."""
    used_columns = sorted(frozenset[str]().union(*(check.columns for check in checks.values())))
    columns = used_columns or list(target.schema.names[:1])
    counts = ", ".join(f"count(*) filter (not coalesce({check.sql}, false))" for check in checks.values())
    with open_engine(target) as engine:
        engine.register("rows", target.read(target.snapshot.files_table(), columns))
        for check in checks.values():
            kind = engine.execute(f"describe select {check.sql} from rows")[0][1]
            if kind != "BOOLEAN":
                arrow_name = _ARROW_NAMES.get(kind, kind)
                raise DeltaError(
                    f"Data validation expression must return boolean values, got {arrow_name}: {check.text}"
                )
        violations = engine.execute(f"select {counts} from rows")[0]
    for (name, check), broken in zip(checks.items(), violations, strict=True):
        if broken:
            raise DeltaError(
                f"Invalid data found: {broken} rows failed validation check.\n{_preview(target, check)}\ntable "
                f"{target.name} version {target.snapshot.version}: they break the constraint {name}, {check.text}; "
                "change or delete them first"
            )


def _preview(target: Target, check: Expression) -> str:
    """The first rows that break a check."""
    from deltalakedb.data.conform import PREVIEW, preview

    with open_engine(target) as engine:
        engine.register("rows", target.read(target.snapshot.files_table(), target.schema.names))
        rows = engine.table(f"select * from rows where not coalesce({check.sql}, false) limit {PREVIEW}")
    return preview(rows.column_names, rows.columns)


def _column(target: Target, name: str, missing: str) -> StructField:
    for item in target.schema.fields:
        if item.name == name:
            return item
    raise DeltaError(f"table {target.name}: {missing}; it has {', '.join(target.schema.names)}")


def _with_field(target: Target, changed: StructField) -> Metadata:
    fields = tuple(changed if item.name == changed.name else item for item in target.schema.fields)
    return replace(target.metadata, schema_string=StructType(fields).to_json())


def _field_json(item: StructField) -> Any:
    return json.loads(StructType((item,)).to_json())["fields"][0]


def _merge(schema: StructType, fields: Sequence[StructField], target: Target, above: str = "") -> StructType:
    merged = list(schema.fields)
    indexes = {item.name: index for index, item in enumerate(merged)}
    for item in fields:
        index = indexes.get(item.name)
        if index is not None:
            existing = merged[index]
            kind = _merge_types(existing.type, item.type, target, f"{above}{item.name}")
            merged[index] = replace(existing, type=kind, metadata={**existing.metadata, **item.metadata})
            continue
        if not item.nullable and target.snapshot.files_table(["path"]).num_rows:
            raise SchemaMismatchError(
                f"table {target.name}: the new column {above}{item.name} must be nullable: files that are there do not "
                "have it"
            )
        indexes[item.name] = len(merged)
        merged.append(item)
    return StructType(tuple(merged))


def _merge_types(known: DataType, given: DataType, target: Target, path: str) -> DataType:
    if isinstance(known, StructType) and isinstance(given, StructType):
        return _merge(known, given.fields, target, f"{path}.")
    if isinstance(known, ArrayType) and isinstance(given, ArrayType):
        element = _merge_types(known.element_type, given.element_type, target, f"{path}.element")
        return replace(known, element_type=element)
    if isinstance(known, MapType) and isinstance(given, MapType):
        value = _merge_types(known.value_type, given.value_type, target, f"{path}.value")
        return replace(known, value_type=value)
    if known != given:
        raise SchemaMismatchError(
            f"table {target.name}: Cannot merge types {known} and {given}: the column {path} cannot change its type"
        )
    return known
