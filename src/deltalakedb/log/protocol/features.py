"""Owns the table features: which exist, which a protocol requires, and which of them this code can read or write."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Final

from deltalakedb.exceptions import UnsupportedFeatureError
from deltalakedb.log.protocol.actions import Metadata, Protocol
from deltalakedb.log.protocol.feature_use import features_in_use
from deltalakedb.log.schema.types import parse_schema

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
    unsupported = set(reader_features(protocol) - READER_FEATURES)
    if protocol.min_reader_version > MAX_READER_VERSION:
        unsupported.add(f"reader version {protocol.min_reader_version}")
    _refuse(unsupported, table, "read")


def check_writable(protocol: Protocol, table: str) -> None:
    """Raises if the protocol requires more of a writer than this code supports."""
    check_readable(protocol, table)
    unsupported = set(writer_features(protocol) - WRITER_FEATURES | writer_features(protocol) & _NOT_WRITABLE.keys())
    if protocol.min_writer_version > MAX_WRITER_VERSION:
        unsupported.add(f"writer version {protocol.min_writer_version}")
    _refuse(unsupported, table, "written")


def data_writable(protocol: Protocol, metadata: Metadata, table: str, *, evaluates: bool = False) -> None:
    """Raises if our own data plane would write wrong files; `evaluates`: rows are checked against the table's rules.

    A feature that is only listed is no obstacle: most protocols list invariants and constraints without having any.
    """
    check_writable(protocol, table)
    used = features_in_use(parse_schema(metadata.schema_string), metadata.configuration)
    unmet = _NOT_EVALUATED.keys() - (_EVALUATED if evaluates else ())
    unsupported = {feature: why for feature, why in used.items() if feature in unmet}
    if "materializePartitionColumns" in writer_features(protocol):
        unsupported["materializePartitionColumns"] = "its protocol"
    if unsupported:
        uses = "; ".join(f"{_NOT_EVALUATED.get(name, name)} ({why})" for name, why in sorted(unsupported.items()))
        hint = (
            f"Rows written here would not keep it true: {uses}. Write them with an engine that does, such as Spark, "
            "or bring finished files with commit_actions."
        )
        raise UnsupportedFeatureError(table, unsupported, purpose="written by this data plane", hint=hint)


def _refuse(unsupported: set[str], table: str, purpose: str) -> None:
    if unsupported:
        hints_by_feature = _HINTS | _NOT_WRITABLE
        hints = dict.fromkeys(hints_by_feature[name] for name in sorted(unsupported) if name in hints_by_feature)
        raise UnsupportedFeatureError(table, unsupported, purpose=purpose, hint=" ".join(hints))


def is_enabled(configuration: Mapping[str, str | None], name: str) -> bool:
    """Whether a boolean table property, such as delta.enableInCommitTimestamps, is on."""
    return (configuration.get(name) or "").strip().lower() == "true"
