"""Owns ALTER TABLE: what changes a table's definition, and no row of it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from deltalakedb.definitions.features import with_features, with_listed_features
from deltalakedb.definitions.table import refuse_generated, with_properties, with_schema
from deltalakedb.exceptions import DeltaError, SchemaMismatchError
from deltalakedb.log.actions import Action, Metadata
from deltalakedb.log.codec import to_json
from deltalakedb.log.descriptions import TAG_PREFIX
from deltalakedb.log.feature_use import BY_PROPERTY, COLUMN_MAPPING_MODE, CONSTRAINT_PREFIX, features_in_use
from deltalakedb.log.features import READER_FEATURES
from deltalakedb.log.proposal import DEFINITION, NOTHING_READ, WHOLE_TABLE, ProposedCommit, ReadSet
from deltalakedb.log.secret_checks import refuse_new_secrets
from deltalakedb.log.table_checks import DROP_PROTECTION
from deltalakedb.log.types import ArrayType, DataType, MapType, StructField, StructType, parse_schema
from deltalakedb.operations.engines import open_engine
from deltalakedb.operations.expression_text import constraint_text
from deltalakedb.operations.expressions import Expression
from deltalakedb.operations.target import Done, Target

_MAX_NAME: Final = 255
_MAX_DESCRIPTION: Final = 4000
_ROW_TRACKING: Final = "delta.enableRowTracking"
_FEATURE_READER, _FEATURE_WRITER = 3, 7
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
"""What a table property may be called, beside `delta.feature.*` and tags; any other name has to be insisted on."""


def add_columns(target: Target, fields: Sequence[StructField]) -> Done:
    """New columns at the end of the schema; a struct that is there gets the fields it does not have."""
    refuse_generated(fields, target.name)
    names = [item.name.casefold() for item in fields]
    if len(set(names)) < len(names):
        raise SchemaMismatchError(f"table {target.name}: a new column is given twice: {', '.join(names)}")
    merged = _merge(target.schema, fields, target)
    actions = with_schema(target.protocol, target.metadata, merged, table=target.name, history=target.history)
    parameters = {"fields": to_json([_field_json(item) for item in fields])}
    return _done(target, "ADD COLUMN", parameters, actions)


def add_constraint(target: Target, constraints: Mapping[str, str]) -> Done:
    """Conditions that every row must keep from now on; the rows that are there are looked at first."""
    if not constraints:
        raise DeltaError(f"table {target.name}: no constraint is given; give a name and a condition")
    parsed = {name: Expression.parse_rule(text, target.schema) for name, text in constraints.items()}
    _check_rows(target, parsed)
    texts = {name: constraint_text(text) for name, text in constraints.items()}
    configuration = dict(target.metadata.configuration)
    for name, text in texts.items():
        known = configuration.get(_constraint_key(configuration, name) or "")
        if known is not None and constraint_text(known) != text:
            raise DeltaError(f"table {target.name} has a constraint {name} already: {known}; drop it first")
        configuration[_constraint_key(configuration, name) or f"{CONSTRAINT_PREFIX}{name}"] = text
    parameters = {"constraints": to_json([{"name": name, "expr": text} for name, text in texts.items()])}
    metadata = replace(target.metadata, configuration=configuration)
    return _done(target, "ADD CONSTRAINT", parameters, [metadata], read=WHOLE_TABLE)


def drop_constraint(target: Target, name: str, *, raise_if_not_exists: bool) -> Done:
    key = _constraint_key(target.metadata.configuration, name)
    if key is None:
        if raise_if_not_exists:
            known = [key for key in target.metadata.configuration if key.startswith(CONSTRAINT_PREFIX)]
            shown = ", ".join(key.removeprefix(CONSTRAINT_PREFIX) for key in known) or "none"
            raise DeltaError(f"table {target.name} has no constraint {name}; it has: {shown}")
        return Done(None, read=DEFINITION)
    configuration = {other: value for other, value in target.metadata.configuration.items() if other != key}
    metadata = replace(target.metadata, configuration=configuration)
    return _done(target, "DROP CONSTRAINT", {"name": name}, [metadata])


def drop_column_not_null(target: Target, column: str) -> Done:
    """Let a column be null from now on."""
    item = _column(target, column)
    if item.nullable:
        raise DeltaError(f"table {target.name}: the column {column} may be null already")
    changed = replace(item, nullable=True)
    parameters = {"column": to_json(_field_json(changed))}
    return _done(target, "CHANGE COLUMN", parameters, [_with_field(target, changed)])


def set_column_metadata(target: Target, column: str, metadata: Mapping[str, str]) -> Done:
    """Entries of a column's metadata; those it has under other keys stay. Delta's own say what the data is."""
    item = _column(target, column)
    own = next((key for key in metadata if key.startswith("delta.")), None)
    if own is not None:
        raise DeltaError(f"table {target.name}: {own} of the column {column} is Delta's own, and is not set by hand")
    changed = _with_field(target, replace(item, metadata={**item.metadata, **metadata}))
    fields = parse_schema(changed.schema_string).fields
    parameters = {"fields": to_json([_field_json(one) for one in fields])}
    return _done(target, "UPDATE FIELD METADATA", parameters, [changed])


def add_feature(target: Target, features: Sequence[str], *, allow_protocol_versions_increase: bool) -> Done:
    """Table features by the protocol's names; what uses them is set by properties."""
    if not features:
        raise DeltaError(f"table {target.name}: no table feature is given")
    protocol = target.protocol
    for_readers = any(name in READER_FEATURES for name in features)
    listed = protocol.min_writer_version >= _FEATURE_WRITER and (
        not for_readers or protocol.min_reader_version >= _FEATURE_READER
    )
    if not listed and not allow_protocol_versions_increase:
        needed = f"reader version {_FEATURE_READER} and " if for_readers else ""
        raise DeltaError(
            f"table {target.name}: {', '.join(features)} needs {needed}writer version {_FEATURE_WRITER}, and the table "
            f"has {protocol.min_reader_version} and {protocol.min_writer_version}; allow_protocol_versions_increase "
            "raises them, and older readers and writers then cannot use the table"
        )
    raised = with_listed_features(protocol, features, target.history)
    return _done(target, "ADD FEATURE", {"name": to_json(list(features))}, [] if raised == protocol else [raised])


def set_properties(target: Target, properties: Mapping[str, str], *, raise_if_not_exists: bool) -> Done:
    """Table properties; where one needs a table feature, the protocol is raised with it."""
    for key, value in properties.items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise TypeError(f"a table property is a name and a text, not {key!r} = {value!r}")
        if key.startswith(CONSTRAINT_PREFIX):
            raise DeltaError(f"table {target.name}: {key} is set by add_constraint, which looks at the rows first")
        if raise_if_not_exists and key not in KNOWN_PROPERTIES and not key.startswith(("delta.feature.", TAG_PREFIX)):
            raise DeltaError(
                f"table {target.name}: {key} is no property of Delta tables; with raise_if_not_exists=False any name "
                "can be set"
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
    return _done(target, "SET TBLPROPERTIES", parameters, actions)


def set_name(target: Target, name: str) -> Done:
    """The name in the table's own metadata; what a catalog calls the table is another matter."""
    if not 0 < len(name) <= _MAX_NAME:
        raise DeltaError(f"table {target.name}: a table's name has 1 to {_MAX_NAME} characters, not {len(name)}")
    parameters = {"metadataUpdate": to_json({"name": name, "description": None})}
    return _done(target, "UPDATE TABLE METADATA", parameters, [replace(target.metadata, name=name)])


def set_description(target: Target, description: str) -> Done:
    if len(description) > _MAX_DESCRIPTION:
        raise DeltaError(
            f"table {target.name}: a description has up to {_MAX_DESCRIPTION} characters, not {len(description)}"
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
    """The commit, the protocol raised as far as the metadata needs it."""
    made = list(actions)
    for action in list(made):
        if isinstance(action, Metadata):
            refuse_new_secrets(action, target.metadata, what=f"table {target.name}")
            used = features_in_use(parse_schema(action.schema_string), action.configuration)
            raised = with_features(target.protocol, used, history=target.history)
            if raised != target.protocol and not any(type(one) is type(raised) for one in made):
                made.insert(0, raised)
    return Done(ProposedCommit(tuple(made), operation, dict(parameters), read=read))


def _check_rows(target: Target, checks: Mapping[str, Expression]) -> None:
    """DeltaError when rows of the table break one; only the columns that are looked at are read."""
    from deltalakedb.data import read_files

    used = sorted(frozenset[str]().union(*(check.columns for check in checks.values())))
    columns = used or list(target.schema.names[:1])
    reader = read_files(
        target.snapshot.files_table(),
        storage=target.storage,
        schema=target.schema,
        partition_columns=target.metadata.partition_columns,
        configuration=target.metadata.configuration,
        columns=columns,
    )
    counts = ", ".join(f"count(*) filter (not coalesce({check.sql}, false))" for check in checks.values())
    with open_engine(target) as engine:
        engine.register("rows", reader)
        found = engine.execute(f"select {counts} from rows")[0]
    for (name, check), broken in zip(checks.items(), found, strict=True):
        if broken:
            raise DeltaError(
                f"table {target.name} version {target.snapshot.version}: {broken} rows break the constraint {name}, "
                f"{check.text}; change or delete them first"
            )


def _constraint_key(configuration: Mapping[str, str | None], name: str) -> str | None:
    """The property that holds a constraint; names of constraints do not tell case apart."""
    wanted = f"{CONSTRAINT_PREFIX}{name}".casefold()
    return next((key for key in configuration if key.casefold() == wanted), None)


def _column(target: Target, name: str) -> StructField:
    for item in target.schema.fields:
        if item.name == name:
            return item
    raise DeltaError(f"table {target.name} has no column {name}; it has {', '.join(target.schema.names)}")


def _with_field(target: Target, changed: StructField) -> Metadata:
    fields = tuple(changed if item.name == changed.name else item for item in target.schema.fields)
    return replace(target.metadata, schema_string=StructType(fields).to_json())


def _field_json(item: StructField) -> Any:
    return json.loads(StructType((item,)).to_json())["fields"][0]


def _merge(schema: StructType, fields: Sequence[StructField], target: Target, above: str = "") -> StructType:
    merged = list(schema.fields)
    places = {item.name: place for place, item in enumerate(merged)}
    for item in fields:
        place = places.get(item.name)
        if place is not None:
            known = merged[place]
            kind = _merge_types(known.type, item.type, target, f"{above}{item.name}")
            merged[place] = replace(known, type=kind)
            continue
        if not item.nullable and target.snapshot.files_table(["path"]).num_rows:
            raise SchemaMismatchError(
                f"table {target.name}: the new column {above}{item.name} must be nullable: files that are there do not "
                "have it"
            )
        places[item.name] = len(merged)
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
        raise SchemaMismatchError(f"table {target.name}: the column {path} is {known}, and cannot become {given}")
    return known
