"""Owns the table features: which exist, which a table uses and its protocol requires, which this code can evaluate."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cache, lru_cache
from typing import Final, NoReturn

from deltalakedb.exceptions import UnsupportedFeatureError, UnsupportedWriteError
from deltalakedb.log.protocol.actions import Metadata, Protocol
from deltalakedb.log.schema.types import (
    ArrayType,
    DataType,
    MapType,
    StructField,
    StructType,
    VariantType,
    parse_schema,
)

# A legacy reader or writer version implies these features (PROTOCOL.md, "Table Features").
_LEGACY_READER: Final = {"columnMapping": 2}
_LEGACY_WRITER: Final = {
    "appendOnly": 2,
    "invariants": 2,
    "checkConstraints": 3,
    "changeDataFeed": 4,
    "generatedColumns": 4,
    "columnMapping": 5,
    "identityColumns": 6,
}

READER_FEATURES: Final = frozenset(
    {
        "columnMapping",
        "deletionVectors",
        "timestampNtz",
        "v2Checkpoint",
        "vacuumProtocolCheck",
        "typeWidening",
        "typeWidening-preview",
        "variantType",
        "variantType-preview",
        "variantShredding",
        "variantShredding-preview",
    }
)
"""Supported reader features. Left out on purpose: catalogManaged (another catalog is the authority), redirects (the
data is elsewhere), adaptiveMetadata (another log format), geospatial (other types)."""

WRITER_FEATURES: Final = (
    READER_FEATURES
    | frozenset(_LEGACY_WRITER)
    | {
        "rowTracking",
        "domainMetadata",
        "icebergCompatV1",
        "icebergCompatV2",
        "icebergCompatV3",
        "clustering",
        "allowColumnDefaults",
        "inCommitTimestamp",
        "checkpointProtection",
        "materializePartitionColumns",
        "coordinatedCommits-preview",
        "redirectWriterOnly-preview",
    }
)
"""Writer features known by name; reading a table never depends on them."""

_NOT_WRITABLE: Final = {
    "coordinatedCommits-preview": "Another commit coordinator decides about this table: write through it.",
    "redirectWriterOnly-preview": "Writers are sent to another table: write there.",
    # Only the mirror shows our fence; SQL, and so every proposal, holds the protocol without it.
    "deltalakedb": "Take that one out: the fence is not part of a table's own protocol.",
}
"""Features that our commits do not support, and what to do instead. All other WRITER_FEATURES are respected: by the
checks of a commit (appendOnly, deletionVectors, columnMapping, domainMetadata, ...), by the writer (row ids, in-commit
timestamps, classic checkpoints, which v2Checkpoint allows), or by the caller that supplies finished files with its
actions (constraints, generated and identity columns, Iceberg compatibility); our own files are checked by
`data_writable`."""

_NOT_EVALUATED: Final = {
    "invariants": "an invariant",
    "checkConstraints": "a check constraint",
    "generatedColumns": "a generated column",
    "identityColumns": "an identity column",
    "allowColumnDefaults": "a column default",
    "variantType": "a variant column",
    "collations": "a collation",
    "icebergCompatV1": "compatibility with Iceberg",
    "icebergCompatV2": "compatibility with Iceberg",
    "icebergCompatV3": "compatibility with Iceberg",
}
"""Features that a writer of rows must compute or check, if a table uses them."""

_EVALUATED: Final = frozenset({"invariants", "checkConstraints", "generatedColumns", "allowColumnDefaults"})
"""Those of _NOT_EVALUATED that `operations/rules.py` implements."""

MAX_READER_VERSION: Final = 3
MAX_WRITER_VERSION: Final = 7
_HINTS: Final = {
    "catalogManaged": "Another catalog decides about this table: read it through that catalog.",
    "catalogOwned-preview": "Another catalog decides about this table: read it through that catalog.",
}


def reader_features(protocol: Protocol) -> frozenset[str]:
    """The features that a reader must support, including those implied by a legacy version."""
    if protocol.min_reader_version >= MAX_READER_VERSION:
        return frozenset(protocol.reader_features or ())
    return frozenset(name for name, since in _LEGACY_READER.items() if since <= protocol.min_reader_version)


def writer_features(protocol: Protocol) -> frozenset[str]:
    """The features that a writer must respect, including those implied by a legacy version."""
    if protocol.min_writer_version >= MAX_WRITER_VERSION:
        return frozenset(protocol.writer_features or ())
    return frozenset(legacy_writer_features(protocol.min_writer_version))


@cache
def legacy_writer_features(version: int) -> tuple[str, ...]:
    """The features that a writer version below 7 implies, always in the same order."""
    return tuple(name for name, since in _LEGACY_WRITER.items() if since <= version)


def legacy_versions(features: Iterable[str]) -> tuple[int, int] | None:
    """The lowest legacy reader and writer versions that imply all of these features; None if none do."""
    names = set(features)
    if not names <= _LEGACY_WRITER.keys():
        return None
    reader = max((_LEGACY_READER.get(name, 1) for name in names), default=1)
    return reader, max((_LEGACY_WRITER[name] for name in names), default=1)


def check_readable(protocol: Protocol, table: str) -> None:
    """Raises if the protocol requires more of a reader than this code supports."""
    if unsupported := _not_readable(protocol):
        _refuse(unsupported, table, "read")


def check_writable(protocol: Protocol, table: str) -> None:
    """Raises if the protocol requires more of a writer than this code supports."""
    if unsupported := _not_readable(protocol):
        _refuse(unsupported, table, "read")
    if unsupported := _not_writable(protocol):
        _refuse(unsupported, table, "written")


@lru_cache(maxsize=64)
def _not_readable(protocol: Protocol) -> frozenset[str]:
    """What the protocol requires of a reader and this code does not support."""
    unsupported = reader_features(protocol) - READER_FEATURES
    if protocol.min_reader_version > MAX_READER_VERSION:
        unsupported |= {f"reader version {protocol.min_reader_version}"}
    return unsupported


@lru_cache(maxsize=64)
def _not_writable(protocol: Protocol) -> frozenset[str]:
    """What the protocol requires of a writer and this code does not support."""
    features = writer_features(protocol)
    unsupported = features - WRITER_FEATURES | features & _NOT_WRITABLE.keys()
    if protocol.min_writer_version > MAX_WRITER_VERSION:
        unsupported |= {f"writer version {protocol.min_writer_version}"}
    return unsupported


def data_writable(protocol: Protocol, metadata: Metadata, table: str, *, evaluates: bool = False) -> None:
    """Raises if our own data plane would write wrong files; `evaluates`: rows are checked against the table's rules.

    A feature that is only listed is no obstacle: most protocols list invariants and constraints without having any.
    """
    check_writable(protocol, table)
    uses_by_feature = _not_evaluated(protocol, metadata.schema_string, tuple(metadata.configuration.items()))
    unsupported = {name: why for name, why in uses_by_feature.items() if not (evaluates and name in _EVALUATED)}
    if unsupported:
        uses = "; ".join(f"{_NOT_EVALUATED.get(name, name)} ({why})" for name, why in sorted(unsupported.items()))
        hint = (
            f"Rows written here would not keep it true: {uses}. Write them with an engine that does, such as Spark, "
            "or bring finished files with commit_actions."
        )
        raise UnsupportedWriteError(table, unsupported, purpose="written by this data plane", hint=hint)


@lru_cache(maxsize=64)
def _not_evaluated(
    protocol: Protocol, schema_string: str, configuration: tuple[tuple[str, str | None], ...]
) -> Mapping[str, str]:
    """The features that a writer of rows must compute or check, each with what uses it."""
    used = features_in_use(parse_schema(schema_string), dict(configuration))
    uses = {feature: why for feature, why in used.items() if feature in _NOT_EVALUATED}
    if "materializePartitionColumns" in writer_features(protocol):
        uses["materializePartitionColumns"] = "its protocol"
    return uses


def _refuse(unsupported: frozenset[str], table: str, purpose: str) -> NoReturn:
    hints_by_feature = _HINTS | _NOT_WRITABLE
    hints = dict.fromkeys(hints_by_feature[name] for name in sorted(unsupported) if name in hints_by_feature)
    error = UnsupportedFeatureError if purpose == "read" else UnsupportedWriteError
    raise error(table, unsupported, purpose=purpose, hint=" ".join(hints))


def is_enabled(configuration: Mapping[str, str | None], name: str) -> bool:
    """Whether a boolean table property, such as delta.enableInCommitTimestamps, is on."""
    return (configuration.get(name) or "").strip().lower() == "true"


CONSTRAINT_PREFIX: Final = "delta.constraints."
COLUMN_MAPPING_MODE: Final = "delta.columnMapping.mode"
GENERATION_EXPRESSION: Final = "delta.generationExpression"

BY_PROPERTY: Final[Mapping[str, str]] = {
    "delta.appendOnly": "appendOnly",
    "delta.enableChangeDataFeed": "changeDataFeed",
    "delta.enableDeletionVectors": "deletionVectors",
    "delta.enableInCommitTimestamps": "inCommitTimestamp",
    "delta.enableRowTracking": "rowTracking",
    "delta.enableTypeWidening": "typeWidening",
    "delta.enableVariantShredding": "variantShredding",
    "delta.enableIcebergCompatV1": "icebergCompatV1",
    "delta.enableIcebergCompatV2": "icebergCompatV2",
    "delta.enableIcebergCompatV3": "icebergCompatV3",
}
"""Properties, and the feature that each turns on if it is true."""

BY_FIELD: Final[Mapping[str, str]] = {
    "delta.invariants": "invariants",
    GENERATION_EXPRESSION: "generatedColumns",
    "delta.identity.start": "identityColumns",
    "delta.identity.step": "identityColumns",
    "delta.typeChanges": "typeWidening",
    "CURRENT_DEFAULT": "allowColumnDefaults",
    "__COLLATIONS": "collations",
}
"""Keys of a field's metadata, and the feature that defines each."""

PREVIEWS: Final[Mapping[str, str]] = {
    name: f"{name}-preview" for name in ("typeWidening", "variantType", "variantShredding", "collations")
}
"""Features that had another name before they were final; either name is accepted."""


def features_in_use(schema: StructType, configuration: Mapping[str, str | None]) -> dict[str, str]:
    """The features in use, each with the property or column that uses it."""
    used: dict[str, str] = {}
    for key, value in configuration.items():
        feature = _by_property(key, (value or "").strip().lower())
        if feature is not None:
            used.setdefault(feature, f"the property {key}={value}")
    for path, data_type in every_type(schema):
        feature = "variantType" if isinstance(data_type, VariantType) else None
        feature = "timestampNtz" if str(data_type) == "timestamp_ntz" else feature
        if feature is not None:
            used.setdefault(feature, f"the type {data_type} of column {path}")
    for path, item in every_field(schema):
        for key, feature in BY_FIELD.items():
            if key in item.metadata:
                used.setdefault(feature, f"{key} of column {path}")
    return used


def _by_property(key: str, value: str) -> str | None:
    if key.startswith(CONSTRAINT_PREFIX):
        return "checkConstraints"
    if key == COLUMN_MAPPING_MODE:
        return None if value in ("", "none") else "columnMapping"
    if key == "delta.checkpointPolicy":
        return "v2Checkpoint" if value == "v2" else None
    return BY_PROPERTY.get(key) if value == "true" else None


def every_field(data_type: DataType, above: str = "") -> Iterator[tuple[str, StructField]]:
    """Yields each field with its dotted path, including those inside arrays and maps."""
    match data_type:
        case StructType():
            for item in data_type.fields:
                yield f"{above}{item.name}", item
                yield from every_field(item.type, f"{above}{item.name}.")
        case ArrayType():
            yield from every_field(data_type.element_type, f"{above}element.")
        case MapType():
            yield from every_field(data_type.key_type, f"{above}key.")
            yield from every_field(data_type.value_type, f"{above}value.")


def every_type(data_type: DataType, path: tuple[str, ...] = ()) -> Iterator[tuple[str, DataType]]:
    """Yields each type with its dotted path; the schema itself comes first, with an empty path."""
    yield ".".join(path), data_type
    match data_type:
        case StructType():
            for item in data_type.fields:
                yield from every_type(item.type, (*path, item.name))
        case ArrayType():
            yield from every_type(data_type.element_type, (*path, "element"))
        case MapType():
            yield from every_type(data_type.key_type, (*path, "key"))
            yield from every_type(data_type.value_type, (*path, "value"))
