"""Owns the table features: which exist, which a protocol asks for, and which of them this code can read or write."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from deltalakedb.exceptions import UnsupportedFeatureError
from deltalakedb.log.actions import Protocol

# A legacy reader or writer version stands for these features (PROTOCOL.md, "Table Features").
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
"""Reader features this code understands. Left out on purpose: catalogManaged (another catalog is the authority),
redirects (the data lies elsewhere), adaptiveMetadata (another log format), geospatial (other types)."""

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
"""Writer features this code knows by name; reading a table never depends on them."""

# What a commit of ours can keep true. The rest of WRITER_FEATURES asks for work that the write path has to learn first.
_WRITABLE: Final = frozenset({"appendOnly", "invariants", "timestampNtz", "v2Checkpoint", "vacuumProtocolCheck"})

MAX_READER_VERSION: Final = 3
MAX_WRITER_VERSION: Final = 7
_HINTS: Final = {
    "catalogManaged": "Another catalog decides about this table: read it through that catalog.",
    "catalogOwned-preview": "Another catalog decides about this table: read it through that catalog.",
}


def reader_features(protocol: Protocol) -> frozenset[str]:
    """What a reader must understand, legacy versions spelled out."""
    if protocol.min_reader_version >= MAX_READER_VERSION:
        return frozenset(protocol.reader_features or ())
    return frozenset(name for name, since in _LEGACY_READER.items() if since <= protocol.min_reader_version)


def writer_features(protocol: Protocol) -> frozenset[str]:
    """What a writer must keep true, legacy versions spelled out."""
    if protocol.min_writer_version >= MAX_WRITER_VERSION:
        return frozenset(protocol.writer_features or ())
    return frozenset(legacy_writer_features(protocol.min_writer_version))


def legacy_writer_features(version: int) -> tuple[str, ...]:
    """What a writer version below 7 stands for, always in the same order."""
    return tuple(name for name, since in _LEGACY_WRITER.items() if since <= version)


def check_readable(protocol: Protocol, table: str) -> None:
    """Refuse a table whose protocol asks a reader for more than this code can do."""
    unsupported = set(reader_features(protocol) - READER_FEATURES)
    if protocol.min_reader_version > MAX_READER_VERSION:
        unsupported.add(f"reader version {protocol.min_reader_version}")
    _refuse(unsupported, table, "read")


def check_writable(protocol: Protocol, table: str) -> None:
    """Refuse a table whose protocol asks a writer for more than this code can do."""
    check_readable(protocol, table)
    unsupported = set(writer_features(protocol) - _WRITABLE)
    if protocol.min_writer_version > MAX_WRITER_VERSION:
        unsupported.add(f"writer version {protocol.min_writer_version}")
    _refuse(unsupported, table, "written")


def _refuse(unsupported: set[str], table: str, purpose: str) -> None:
    if unsupported:
        hints = dict.fromkeys(_HINTS[name] for name in sorted(unsupported) if name in _HINTS)
        raise UnsupportedFeatureError(table, unsupported, purpose=purpose, hint=" ".join(hints))


def is_enabled(configuration: Mapping[str, str | None], name: str) -> bool:
    """Whether a boolean table property, such as delta.enableInCommitTimestamps, is on."""
    return (configuration.get(name) or "").strip().lower() == "true"
