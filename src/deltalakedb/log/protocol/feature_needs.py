"""The table features that columns and properties need, and the smallest protocol that has them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from deltalakedb.exceptions import ConfigError
from deltalakedb.log.protocol.actions import Metadata, Protocol
from deltalakedb.log.protocol.features import (
    MAX_READER_VERSION,
    MAX_WRITER_VERSION,
    PREVIEWS,
    READER_FEATURES,
    WRITER_FEATURES,
    features_in_use,
    legacy_versions,
    legacy_writer_features,
    reader_features,
    writer_features,
)
from deltalakedb.log.schema.types import StructType, parse_schema

MetadataHistory: TypeAlias = Callable[[], Iterable[Metadata] | None]
"""The metadata of every version that a table has had; None if some of them are unknown."""

# Features that require others.
_NEEDS: Final = {
    "rowTracking": ("domainMetadata",),
    "clustering": ("domainMetadata",),
    "icebergCompatV1": ("columnMapping",),
    "icebergCompatV2": ("columnMapping",),
}
_FEATURE_PREFIX: Final = "delta.feature."
_VERSION_PROPERTIES: Final = {"delta.minReaderVersion": (1, 3), "delta.minWriterVersion": (2, 7)}
"""The properties that set a protocol version, with their lowest and highest values."""


@dataclass(frozen=True, slots=True)
class Wishes:
    """What table properties request of the protocol by name, and the properties that stay in the metadata."""

    properties: dict[str, str]
    features: frozenset[str] = frozenset()
    reader_version: int = 1
    writer_version: int = 1

    @classmethod
    def of(cls, properties: Mapping[str, str]) -> Wishes:
        """Parse `delta.feature.x = supported`, which is dropped, and `delta.min{Reader,Writer}Version`, which stay."""
        remaining: dict[str, str] = {}
        features: set[str] = set()
        for key, value in properties.items():
            if not key.startswith(_FEATURE_PREFIX):
                remaining[key] = value
                continue
            name = key.removeprefix(_FEATURE_PREFIX)
            if name not in WRITER_FEATURES or value not in ("supported", "enabled"):
                raise ConfigError(f"{key} = {value}: not a table feature that this package knows, or not `supported`")
            features.add(name)
        reader, writer = (_version_in(remaining, key, *range_) for key, range_ in _VERSION_PROPERTIES.items())
        return cls(remaining, frozenset(features), reader, writer)

    def apply(self, protocol: Protocol, used: Iterable[str], history: MetadataHistory | None) -> Protocol:
        """The protocol with the requested versions and features, and the features that the metadata uses."""
        raised = with_versions(protocol, self.reader_version, self.writer_version)
        return with_features(raised, {*used, *self.features}, history=history)


def _version_in(properties: Mapping[str, str], key: str, lowest: int, highest: int) -> int:
    text = properties.get(key)
    if text is None:
        return 1
    if not (text.isascii() and text.isdecimal()) or not lowest <= int(text) <= highest:
        valid = ",".join(f"'{version}'" for version in range(lowest, highest + 1))
        raise ConfigError(f"{key} = '{text}' is invalid, valid values are [{valid}]")
    return int(text)


def needed_features(schema: StructType, configuration: Mapping[str, str | None]) -> set[str]:
    """The features that a table with these columns and properties needs."""
    return set(features_in_use(schema, configuration))


def with_versions(protocol: Protocol, reader: int, writer: int) -> Protocol:
    """The protocol with at least these versions; version 7 lists the features that a legacy version implied."""
    raised = protocol
    if writer > protocol.min_writer_version:
        listed = legacy_writer_features(protocol.min_writer_version) if writer == MAX_WRITER_VERSION else None
        raised = replace(raised, min_writer_version=writer, writer_features=listed)
    if reader > protocol.min_reader_version:
        if reader == MAX_READER_VERSION and raised.min_writer_version < MAX_WRITER_VERSION:
            raise ConfigError("delta.minReaderVersion = 3 needs delta.minWriterVersion = 7: set both")
        listed_for_readers = tuple(sorted(reader_features(protocol))) if reader == MAX_READER_VERSION else None
        raised = replace(raised, min_reader_version=reader, reader_features=listed_for_readers)
    unlisted = reader_features(raised) - writer_features(raised)
    if unlisted and raised.min_writer_version == MAX_WRITER_VERSION:
        raised = replace(raised, writer_features=(*(raised.writer_features or ()), *sorted(unlisted)))
    return raised


def with_features(protocol: Protocol, features: Iterable[str], *, history: MetadataHistory | None = None) -> Protocol:
    """The smallest protocol that also has these features; the same object if it has them.

    Uses legacy versions if possible, else lists features: of those that the legacy version implied, the ones in use at
    any version (PROTOCOL.md, "Table Features for New and Existing Tables"), or all without `history`.
    """
    required = _with_needed(features)
    listed_before = writer_features(protocol)
    required -= {name for name, preview in PREVIEWS.items() if preview in listed_before}
    missing = required - listed_before | (required & READER_FEATURES) - reader_features(protocol)
    if not missing:
        return protocol
    if protocol.min_writer_version < MAX_WRITER_VERSION:
        versions = legacy_versions(missing)
        if versions is not None:
            return with_versions(protocol, *versions)
    return _listing(protocol, required, history)


def with_listed_features(protocol: Protocol, features: Iterable[str], history: MetadataHistory) -> Protocol:
    """The protocol with these features in its lists, even if a legacy version would imply them."""
    required = _with_needed(features)
    for_readers = required & READER_FEATURES
    if required <= set(protocol.writer_features or ()) and for_readers <= set(protocol.reader_features or ()):
        return protocol
    raised = _listing(protocol, required, history)
    return with_versions(raised, MAX_READER_VERSION, MAX_WRITER_VERSION) if for_readers else raised


def _with_needed(features: Iterable[str]) -> set[str]:
    names = set(features)
    return names | {other for name in names for other in _NEEDS.get(name, ())}


def _listing(protocol: Protocol, wanted: set[str], history: MetadataHistory | None) -> Protocol:
    """The protocol with these features listed; the reader version is raised only if necessary."""
    if protocol.min_writer_version < MAX_WRITER_VERSION:
        legacy = legacy_writer_features(protocol.min_writer_version)
        used = _used_features(history)
        listed = tuple(name for name in legacy if used is None or name in used | wanted | reader_features(protocol))
    else:
        listed = tuple(protocol.writer_features or ())
    raised = replace(
        protocol,
        min_writer_version=MAX_WRITER_VERSION,
        writer_features=(*listed, *sorted(wanted.difference(listed))),
    )
    for_readers = (reader_features(protocol) | wanted) & READER_FEATURES
    if protocol.min_reader_version < MAX_READER_VERSION:
        versions = legacy_versions(for_readers)
        if versions is not None:
            # Reader version 2 implies column mapping alone, and more readers support it than table features.
            return replace(raised, min_reader_version=max(versions[0], protocol.min_reader_version))
        return replace(raised, min_reader_version=MAX_READER_VERSION, reader_features=tuple(sorted(for_readers)))
    listed_before = tuple(protocol.reader_features or ())
    return replace(raised, reader_features=(*listed_before, *sorted(for_readers.difference(listed_before))))


def _used_features(history: MetadataHistory | None) -> set[str] | None:
    """The features that any version used; None if unknown."""
    metadata = None if history is None else history()
    if metadata is None:
        return None
    return {
        name
        for version_metadata in metadata
        for name in features_in_use(parse_schema(version_metadata.schema_string), version_metadata.configuration)
    }
