"""Which table features a table's columns and properties need, and the plainest protocol that has them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from deltalakedb.exceptions import ConfigError
from deltalakedb.log.actions import Protocol
from deltalakedb.log.feature_use import PREVIEWS, features_in_use
from deltalakedb.log.features import (
    MAX_READER_VERSION,
    MAX_WRITER_VERSION,
    READER_FEATURES,
    WRITER_FEATURES,
    legacy_writer_features,
    reader_features,
    writer_features,
)
from deltalakedb.log.types import StructType

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
    return set(features_in_use(schema, configuration))


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
    listed_before = writer_features(protocol)
    wanted -= {name for name, preview in PREVIEWS.items() if preview in listed_before}
    missing = wanted - listed_before | (wanted & READER_FEATURES) - reader_features(protocol)
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
