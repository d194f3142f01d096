"""Checks protocol and metaData actions before they are committed: each alone, together, and as a change."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final, NoReturn

from deltalakedb.exceptions import InvalidCommitError, MalformedLogError, SchemaMismatchError, redact
from deltalakedb.log.protocol.actions import Metadata, Protocol
from deltalakedb.log.protocol.features import (
    BY_PROPERTY,
    COLUMN_MAPPING_MODE,
    MAX_READER_VERSION,
    MAX_WRITER_VERSION,
    PREVIEWS,
    READER_FEATURES,
    every_field,
    every_type,
    features_in_use,
    is_enabled,
    reader_features,
    writer_features,
)
from deltalakedb.log.schema.types import (
    ArrayType,
    DataType,
    DecimalType,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
    VariantType,
    parse_schema,
)

_TYPES: Final = frozenset(
    {
        "string", "long", "integer", "short", "byte", "float", "double", "boolean", "binary",
        "date", "timestamp", "timestamp_ntz", "void",
    }
)  # fmt: skip
DROP_PROTECTION: Final = "drop_protection"
"""A table property of this package: while it is true, the catalog does not drop the table."""

_MODES: Final = ("none", "name", "id")
_MAX_COLUMN_ID: Final = "delta.columnMapping.maxColumnId"
_NEEDS: Final = {
    "rowTracking": "domainMetadata",
    "clustering": "domainMetadata",
    "icebergCompatV1": "columnMapping",
    "icebergCompatV2": "columnMapping",
    "icebergCompatV3": "columnMapping",
}
"""Features, and the feature that each requires."""


def check_protocol(new: Protocol, old: Protocol | None, where: str, *, drops: bool = False) -> None:
    """Checks a protocol action alone (PROTOCOL.md, "Protocol Evolution"), and against the one before.

    `drops`: the writer has made sure that nothing in the table needs a feature that the action drops.
    """
    reader, writer = new.min_reader_version, new.min_writer_version
    if reader < 1 or writer < 1:
        _refuse(where, f"sets the protocol to ({reader},{writer})", "versions begin at 1")
    for kind, features, version, needed in (
        ("readerFeatures", new.reader_features, reader, MAX_READER_VERSION),
        ("writerFeatures", new.writer_features, writer, MAX_WRITER_VERSION),
    ):
        if (features is not None) != (version == needed):
            _refuse(where, f"gives {kind} with version {version}", f"they go with version {needed}, and it with them")
        if features is not None and len(set(features)) < len(features):
            _refuse(where, f"lists a feature twice in {kind}", "list each once")
    if reader == MAX_READER_VERSION and writer != MAX_WRITER_VERSION:
        _refuse(where, f"sets the protocol to ({reader},{writer})", "reader version 3 needs writer version 7")
    for_readers, for_writers = reader_features(new), writer_features(new)
    # Before table features, reader version 2 was possible without writer version 5, which alone gives it a meaning.
    for name in sorted(for_readers - for_writers if writer == MAX_WRITER_VERSION else ()):
        _refuse(where, f"asks readers for {name}, and writers not", "list it in writerFeatures too")
    # Before table features, writer version 5 brought column mapping also to tables that readers see without it.
    for name in sorted((for_writers & READER_FEATURES) - for_readers - {"columnMapping"}):
        _refuse(
            where, f"asks writers for {name}, and readers not", "use reader version 3 and list it in readerFeatures"
        )
    for name, other in _NEEDS.items():
        if name in for_writers and other not in for_writers:
            _refuse(where, f"lists the feature {name} without {other}", "list both")
    for name in sorted(reader_features(old) - for_readers if old is not None and not drops else ()):
        advice = "write the rows into a new table; files and versions of this one may need it"
        _refuse(where, f"drops the feature {name}, which readers were told of", advice)


def check_metadata(
    new: Metadata,
    old: Metadata | None,
    protocol: Protocol,
    before: Protocol | None,
    where: str,
    *,
    replaces: bool = False,
) -> None:
    """Checks a metaData action alone, under the protocol in force after the commit, and against the ones before.

    A table of another writer may already break a rule; a commit that leaves this unchanged is accepted.
    """
    if old is not None and new.id != old.id and not replaces:
        _refuse(where, f"changes metaData.id from {old.id} to {new.id}", "keep it: it says that this is the same table")
    if new.format.provider != "parquet":
        _refuse(where, f"has files of the format {new.format.provider}", "Delta tables are made of parquet")
    try:
        schema = parse_schema(new.schema_string)
    except MalformedLogError as error:
        _refuse(where, f"has no readable schema ({error})", "give a schemaString as PROTOCOL.md describes it")
    same_schema = old is not None and old.schema_string == new.schema_string
    if not same_schema:
        _check_columns(schema, where)
    if not same_schema or (old is not None and old.partition_columns != new.partition_columns):
        _check_partition_columns(schema, new.partition_columns, where)
    _check_properties(new.configuration, {} if old is None else old.configuration, where)
    _check_features(schema, new, old, protocol, before, where)
    if not same_schema or (old is not None and _mode(old.configuration) != _mode(new.configuration)):
        _check_mapping(schema, new, where)


def _check_features(
    schema: StructType, new: Metadata, old: Metadata | None, protocol: Protocol, before: Protocol | None, where: str
) -> None:
    used = features_in_use(schema, new.configuration)
    unlisted = [feature for feature in sorted(used) if not _is_listed(feature, protocol)]
    if unlisted and old is not None and before is not None:
        broken = features_in_use(parse_schema(old.schema_string), old.configuration)
        unlisted = [feature for feature in unlisted if feature not in broken or _is_listed(feature, before)]
    for feature in unlisted:
        _refuse(
            where,
            f"uses the feature {feature} ({used[feature]}), which the protocol does not list",
            "add a protocol action that lists it, for readers too where they need it, to the same commit",
        )


def _is_listed(feature: str, protocol: Protocol) -> bool:
    names = {feature, PREVIEWS.get(feature, feature)}
    listed_for_readers = feature not in READER_FEATURES or not reader_features(protocol).isdisjoint(names)
    return listed_for_readers and not writer_features(protocol).isdisjoint(names)


def check_rewritten(
    new: Metadata, old: Metadata, protocol: Protocol, before: Protocol | None, remaining: int, where: str
) -> None:
    """Raises if files that stay in the table do not fit the new metadata; `remaining` is their number."""
    if remaining <= 0:
        return
    old_mode, mode = _mode(old.configuration), _mode(new.configuration)
    if old_mode != mode and (old_mode, mode) != ("none", "name"):
        _refuse(
            where, f"changes column mapping from {old_mode} to {mode} and keeps {remaining} files", "rewrite them all"
        )
    if _partition_names(new) != _partition_names(old):
        _refuse(where, f"changes the partition columns and keeps {remaining} files", "replace them all, or none")
    if is_enabled(new.configuration, "delta.enableRowTracking"):
        was_listed = before is not None and "rowTracking" in writer_features(before)
        if not was_listed and not is_enabled(old.configuration, "delta.enableRowTracking"):
            _refuse(where, f"turns row tracking on and keeps {remaining} files without row ids", "rewrite them first")
    widening = not writer_features(protocol).isdisjoint({"typeWidening", PREVIEWS["typeWidening"]})
    changed = _retyped(parse_schema(old.schema_string), parse_schema(new.schema_string), widening=widening)
    if changed:
        message = f"{where}: the commit changes {changed} and keeps {remaining} files; nothing was committed"
        raise SchemaMismatchError(redact(f"{message}: add a column of the new type, or overwrite the table"))


def _partition_names(metadata: Metadata) -> list[str]:
    """Physical names: under column mapping a renamed column is still the same."""
    names = {item.name: item.physical_name for item in parse_schema(metadata.schema_string).fields}
    return [names.get(column, column) for column in metadata.partition_columns]


def _check_columns(schema: StructType, where: str) -> None:
    for path, data_type in every_type(schema):
        if isinstance(data_type, StructType):
            _check_names(path, data_type.fields, where)
        elif isinstance(data_type, PrimitiveType) and data_type.name not in _TYPES:
            _refuse(where, f"has the column {path} of the unknown type {data_type.name}", "a newer release may know it")
        elif isinstance(data_type, DecimalType) and not 0 <= data_type.scale <= data_type.precision <= 38:
            _refuse(where, f"has the column {path} of type {data_type}", "a decimal has up to 38 digits")


def _check_names(path: str, fields: Iterable[StructField], where: str) -> None:
    """Names must be unique ignoring case: Spark, and most readers, do not distinguish case."""
    inside = f" inside of {path}" if path else ""
    names = [item.name for item in fields]
    if "" in names:
        _refuse(where, f"has a column without a name{inside}", "give every column a name")
    for kind, candidates in (("column", names), ("physical name", [item.physical_name for item in fields])):
        twice = [name for name, count in Counter(map(str.casefold, candidates)).items() if count > 1]
        if twice:
            _refuse(where, f"has the {kind} {twice[0]} more than once{inside}", "give each a name of its own")


def _check_partition_columns(schema: StructType, columns: tuple[str, ...], where: str) -> None:
    if len(set(columns)) < len(columns):
        _refuse(where, f"has a partition column twice: {', '.join(columns)}", "name each once")
    for column in columns:
        item = next((item for item in schema.fields if item.name == column), None)
        if item is None:
            _refuse(where, f"has the partition column {column}, which is not in the schema", "add it to the schema")
        if isinstance(item.type, StructType | ArrayType | MapType | VariantType):
            _refuse(where, f"is partitioned by {column} of type {item.type}", "choose a column with plain values")


def _check_properties(configuration: Mapping[str, str | None], before: Mapping[str, str | None], where: str) -> None:
    for name in sorted((BY_PROPERTY.keys() | {DROP_PROTECTION}) & configuration.keys()):
        changed = configuration[name] != before.get(name)
        if changed and (configuration[name] or "").strip().lower() not in ("true", "false"):
            _refuse(where, f"sets {name} to {configuration[name]!r}", "it is either true or false")
    if _mode(configuration) not in _MODES:
        _refuse(where, f"sets {COLUMN_MAPPING_MODE} to {configuration[COLUMN_MAPPING_MODE]}", "it is none, name or id")


def _mode(configuration: Mapping[str, str | None]) -> str:
    return (configuration.get(COLUMN_MAPPING_MODE) or "none").strip().lower()


def _check_mapping(schema: StructType, new: Metadata, where: str) -> None:
    mode = _mode(new.configuration)
    if mode == "none":
        return
    ids: set[int] = set()
    for path, item in every_field(schema):
        if item.id is None or "delta.columnMapping.physicalName" not in item.metadata:
            _refuse(where, f"has the column {path} without an id or a physical name", f"column mapping is {mode}")
        if item.id in ids:
            _refuse(where, f"gives the column {path} the id {item.id}, which another has", "give each its own")
        ids.add(item.id)
    largest = new.configuration.get(_MAX_COLUMN_ID) or ""
    if ids and not (largest.isdecimal() and int(largest) >= max(ids)):
        _refuse(where, f"has {_MAX_COLUMN_ID}={largest or 'nothing'}", f"column ids go up to {max(ids)}")


def _retyped(old: StructType, new: StructType, *, widening: bool) -> str:
    """The first column whose files cannot be read with the new type; a widened type can, if the feature is listed."""
    fields = {item.physical_name: item for item in new.fields}
    for item in old.fields:
        other = fields.get(item.physical_name)
        if other is None:
            continue
        # Changes inside of arrays and maps are recorded at the field that contains them.
        if change := _unreadable(item.type, other.type, widening=widening, noted=bool(other.type_changes)):
            return change if change.startswith("column ") else f"column {item.name} {change}"
    return ""


def _unreadable(old: DataType, new: DataType, *, widening: bool, noted: bool) -> str:
    """How a type changed so that its files cannot be read, or ''; structs may gain fields anywhere."""
    match old, new:
        case StructType(), StructType():
            return _retyped(old, new, widening=widening)
        case ArrayType(), ArrayType() if new.contains_null or not old.contains_null:
            return _unreadable(old.element_type, new.element_type, widening=widening, noted=noted)
        case MapType(), MapType() if new.value_contains_null or not old.value_contains_null:
            return _unreadable(old.key_type, new.key_type, widening=widening, noted=noted) or _unreadable(
                old.value_type, new.value_type, widening=widening, noted=noted
            )
    if old == new or (widening and (noted or _is_nested(new))):
        return ""
    return f"from {old} to {new}"


def _is_nested(data_type: DataType) -> bool:
    return isinstance(data_type, StructType | ArrayType | MapType)


def _refuse(where: str, what: str, advice: str) -> NoReturn:
    raise InvalidCommitError(redact(f"{where}: the commit {what}; nothing was committed: {advice}"))
