"""Which table features a table's columns and properties need, and the plainest protocol that has them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Final

from .exceptions import ConfigError
from .log.actions import Protocol
from .log.features import (
    MAX_READER_VERSION,
    MAX_WRITER_VERSION,
    READER_FEATURES,
    WRITER_FEATURES,
    legacy_writer_features,
    reader_features,
    writer_features,
)
from .log.types import ArrayType, DataType, MapType, StructField, StructType, VariantType

# A property that is on, and the feature that it is part of.
_BY_PROPERTY: Final = {
    "delta.appendOnly": "appendOnly",
    "delta.enableDeletionVectors": "deletionVectors",
    "delta.enableChangeDataFeed": "changeDataFeed",
    "delta.enableInCommitTimestamps": "inCommitTimestamp",
    "delta.enableRowTracking": "rowTracking",
    "delta.enableTypeWidening": "typeWidening",
    "delta.enableIcebergCompatV1": "icebergCompatV1",
    "delta.enableIcebergCompatV2": "icebergCompatV2",
    "delta.enableVariantShredding": "variantShredding",
}
_BY_COLUMN: Final = {
    "delta.invariants": "invariants",
    "delta.generationExpression": "generatedColumns",
    "delta.identity.start": "identityColumns",
    "delta.typeChanges": "typeWidening",
    "CURRENT_DEFAULT": "allowColumnDefaults",
}
# A feature that cannot be without another.
_NEEDS: Final = {
    "rowTracking": ("domainMetadata",),
    "clustering": ("domainMetadata",),
    "icebergCompatV1": ("columnMapping",),
    "icebergCompatV2": ("columnMapping",),
}
_FEATURE_PREFIX: Final = "delta.feature."
_VERSION_PROPERTIES: Final = ("delta.minReaderVersion", "delta.minWriterVersion")
_LEGACY_MAPPING_READER: Final = 2


def needed_features(schema: StructType, configuration: Mapping[str, str | None]) -> set[str]:
    """What a table with these columns and properties needs."""
    found = {name for key, name in _BY_PROPERTY.items() if (configuration.get(key) or "").lower() == "true"}
    if (configuration.get("delta.columnMapping.mode") or "none").lower() != "none":
        found.add("columnMapping")
    if (configuration.get("delta.checkpointPolicy") or "").lower() == "v2":
        found.add("v2Checkpoint")
    if any(key.startswith("delta.constraints.") for key in configuration):
        found.add("checkConstraints")
    for item in _every_field(schema):
        found |= {name for key, name in _BY_COLUMN.items() if key in item.metadata}
    for kind in _every_type(schema):
        if isinstance(kind, VariantType):
            found.add("variantType")
        elif str(kind) == "timestamp_ntz":
            found.add("timestampNtz")
    return found


def split_feature_properties(properties: Mapping[str, str]) -> tuple[dict[str, str], set[str]]:
    """The properties that stay, and the features asked for by name (`delta.feature.x = supported`), as in Spark."""
    kept: dict[str, str] = {}
    features: set[str] = set()
    for key, value in properties.items():
        if key in _VERSION_PROPERTIES:
            raise ConfigError(
                f"{key} is not set by hand: a table's protocol follows from its columns and properties; "
                f"a single feature is asked for by `{_FEATURE_PREFIX}<name> = supported`"
            )
        if not key.startswith(_FEATURE_PREFIX):
            kept[key] = value
            continue
        name = key.removeprefix(_FEATURE_PREFIX)
        if name not in WRITER_FEATURES or value not in ("supported", "enabled"):
            raise ConfigError(f"{key} = {value}: not a table feature that this package knows, or not `supported`")
        features.add(name)
    return kept, features


def with_features(protocol: Protocol, features: Iterable[str]) -> Protocol:
    """The protocol with these features too; the same object when it has them. The reader version rises last."""
    wanted = set(features)
    wanted |= {other for name in wanted for other in _NEEDS.get(name, ())}
    missing = wanted - writer_features(protocol) | (wanted & READER_FEATURES) - reader_features(protocol)
    if not missing:
        return protocol
    if protocol.min_writer_version < MAX_WRITER_VERSION:
        listed = legacy_writer_features(protocol.min_writer_version)
    else:
        listed = tuple(protocol.writer_features or ())
    raised = replace(
        protocol,
        min_writer_version=MAX_WRITER_VERSION,
        writer_features=(*listed, *sorted(missing.difference(listed))),
    )
    for_readers = (reader_features(protocol) | missing) & READER_FEATURES
    if protocol.min_reader_version < MAX_READER_VERSION:
        if for_readers <= {"columnMapping"}:
            # Reader version 2 stands for column mapping alone, and more readers know it than table features.
            version = _LEGACY_MAPPING_READER if for_readers else protocol.min_reader_version
            return replace(raised, min_reader_version=max(version, protocol.min_reader_version))
        return replace(raised, min_reader_version=MAX_READER_VERSION, reader_features=tuple(sorted(for_readers)))
    known = tuple(protocol.reader_features or ())
    return replace(raised, reader_features=(*known, *sorted(for_readers.difference(known))))


def _every_field(kind: DataType) -> Iterator[StructField]:
    match kind:
        case StructType():
            for item in kind.fields:
                yield item
                yield from _every_field(item.type)
        case ArrayType():
            yield from _every_field(kind.element_type)
        case MapType():
            yield from _every_field(kind.key_type)
            yield from _every_field(kind.value_type)
        case _:
            return


def _every_type(kind: DataType) -> Iterator[DataType]:
    yield kind
    match kind:
        case StructType():
            for item in kind.fields:
                yield from _every_type(item.type)
        case ArrayType():
            yield from _every_type(kind.element_type)
        case MapType():
            yield from _every_type(kind.key_type)
            yield from _every_type(kind.value_type)
        case _:
            return
