"""Which table features a table's columns and properties need, and the smallest protocol that has them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from deltalakedb.exceptions import ConfigError
from deltalakedb.log.actions import Metadata, Protocol
from deltalakedb.log.feature_use import PREVIEWS, features_in_use
from deltalakedb.log.features import (
    MAX_READER_VERSION,
    MAX_WRITER_VERSION,
    READER_FEATURES,
    WRITER_FEATURES,
    legacy_versions,
    legacy_writer_features,
    reader_features,
    writer_features,
)
from deltalakedb.log.types import StructType, parse_schema

MetadataHistory: TypeAlias = Callable[[], Iterable[Metadata] | None]
"""The metadata of every version a table has had; None where some of them are not known."""

# A feature that cannot be without another.
_NEEDS: Final = {
    "rowTracking": ("domainMetadata",),
    "clustering": ("domainMetadata",),
    "icebergCompatV1": ("columnMapping",),
    "icebergCompatV2": ("columnMapping",),
}
_FEATURE_PREFIX: Final = "delta.feature."
_VERSION_PROPERTIES: Final = {"delta.minReaderVersion": (1, 3), "delta.minWriterVersion": (2, 7)}
"""The properties that ask for a protocol version, with the lowest and the highest they take."""


@dataclass(frozen=True, slots=True)
class Wishes:
    """What table properties ask of the protocol by name, and the properties that stay in the metadata."""

    properties: dict[str, str]
    features: frozenset[str] = frozenset()
    reader_version: int = 1
    writer_version: int = 1

    @classmethod
    def of(cls, properties: Mapping[str, str]) -> Wishes:
        """Reads `delta.feature.x = supported`, which does not stay, and `delta.minReaderVersion`, which does."""
        kept: dict[str, str] = {}
        features: set[str] = set()
        for key, value in properties.items():
            if not key.startswith(_FEATURE_PREFIX):
                kept[key] = value
                continue
            name = key.removeprefix(_FEATURE_PREFIX)
            if name not in WRITER_FEATURES or value not in ("supported", "enabled"):
                raise ConfigError(f"{key} = {value}: not a table feature that this package knows, or not `supported`")
            features.add(name)
        reader, writer = (_version_in(kept, key, *range_) for key, range_ in _VERSION_PROPERTIES.items())
        return cls(kept, frozenset(features), reader, writer)

    def apply(self, protocol: Protocol, used: Iterable[str], history: MetadataHistory | None) -> Protocol:
        """The protocol with what is asked for by name, and with the features that the metadata makes use of."""
        raised = with_versions(protocol, self.reader_version, self.writer_version)
        return with_features(raised, {*used, *self.features}, history=history)


def _version_in(properties: Mapping[str, str], key: str, lowest: int, highest: int) -> int:
    text = properties.get(key)
    if text is None:
        return 1
    if not (text.isascii() and text.isdecimal()) or not lowest <= int(text) <= highest:
        raise ConfigError(f"{key} = {text}: it is a version from {lowest} to {highest}")
    return int(text)


def needed_features(schema: StructType, configuration: Mapping[str, str | None]) -> set[str]:
    """What a table with these columns and properties needs."""
    return set(features_in_use(schema, configuration))


def with_versions(protocol: Protocol, reader: int, writer: int) -> Protocol:
    """The protocol with at least these versions; what a legacy version stands for is listed from version 7 on."""
    raised = protocol
    if writer > protocol.min_writer_version:
        listed = legacy_writer_features(protocol.min_writer_version) if writer == MAX_WRITER_VERSION else None
        raised = replace(raised, min_writer_version=writer, writer_features=listed)
    if reader > protocol.min_reader_version:
        if reader == MAX_READER_VERSION and raised.min_writer_version < MAX_WRITER_VERSION:
            raise ConfigError("delta.minReaderVersion = 3 needs delta.minWriterVersion = 7: set both")
        for_readers = tuple(sorted(reader_features(protocol))) if reader == MAX_READER_VERSION else None
        raised = replace(raised, min_reader_version=reader, reader_features=for_readers)
    unlisted = reader_features(raised) - writer_features(raised)
    if unlisted and raised.min_writer_version == MAX_WRITER_VERSION:
        raised = replace(raised, writer_features=(*(raised.writer_features or ()), *sorted(unlisted)))
    return raised


def with_features(protocol: Protocol, features: Iterable[str], *, history: MetadataHistory | None = None) -> Protocol:
    """The smallest protocol that has these features too; the same object when it has them.

    Legacy versions go as far as they can. Beyond them features are listed: of those that the legacy version stood for,
    the ones in use at any version (PROTOCOL.md, "Table Features for New and Existing Tables"), all without `history`.
    """
    wanted = _with_needed(features)
    listed_before = writer_features(protocol)
    wanted -= {name for name, preview in PREVIEWS.items() if preview in listed_before}
    missing = wanted - listed_before | (wanted & READER_FEATURES) - reader_features(protocol)
    if not missing:
        return protocol
    if protocol.min_writer_version < MAX_WRITER_VERSION:
        versions = legacy_versions(missing)
        if versions is not None:
            return with_versions(protocol, *versions)
    return _listing(protocol, wanted, history)


def with_listed_features(protocol: Protocol, features: Iterable[str], history: MetadataHistory) -> Protocol:
    """The protocol with these features in its lists, even where a legacy version would stand for them."""
    wanted = _with_needed(features)
    for_readers = wanted & READER_FEATURES
    if wanted <= set(protocol.writer_features or ()) and for_readers <= set(protocol.reader_features or ()):
        return protocol
    raised = _listing(protocol, wanted, history)
    return with_versions(raised, MAX_READER_VERSION, MAX_WRITER_VERSION) if for_readers else raised


def _with_needed(features: Iterable[str]) -> set[str]:
    wanted = set(features)
    return wanted | {other for name in wanted for other in _NEEDS.get(name, ())}


def _listing(protocol: Protocol, wanted: set[str], history: MetadataHistory | None) -> Protocol:
    """The protocol with these features listed; the reader version rises last."""
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
            # Reader version 2 stands for column mapping alone, and more readers know it than table features.
            return replace(raised, min_reader_version=max(versions[0], protocol.min_reader_version))
        return replace(raised, min_reader_version=MAX_READER_VERSION, reader_features=tuple(sorted(for_readers)))
    known = tuple(protocol.reader_features or ())
    return replace(raised, reader_features=(*known, *sorted(for_readers.difference(known))))


def _used_features(history: MetadataHistory | None) -> set[str] | None:
    """What any version made use of; None where that is not known."""
    metadata = None if history is None else history()
    if metadata is None:
        return None
    return {name for one in metadata for name in features_in_use(parse_schema(one.schema_string), one.configuration)}
