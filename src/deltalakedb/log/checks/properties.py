"""The properties that Delta or this package knows by name, and the validation of `configuration`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from deltalakedb.exceptions import ConfigError, DeltaError, redact
from deltalakedb.log.checks.table_checks import DROP_PROTECTION
from deltalakedb.log.protocol.descriptions import TAG_PREFIX
from deltalakedb.log.protocol.feature_use import BY_PROPERTY, CONSTRAINT_PREFIX

_PREFIXES: Final = (
    CONSTRAINT_PREFIX,
    "delta.feature.",
    "delta.universalFormat.",
    "delta.rowTracking.",
    "deltalakedb.",
    TAG_PREFIX,
)
_KNOWN: Final = frozenset(BY_PROPERTY) | {
    DROP_PROTECTION,
    "delta.autoOptimize.autoCompact",
    "delta.autoOptimize.optimizeWrite",
    "delta.checkpoint.writeStatsAsJson",
    "delta.checkpoint.writeStatsAsStruct",
    "delta.checkpointInterval",
    "delta.checkpointPolicy",
    "delta.checkpointRetentionDuration",
    "delta.columnMapping.maxColumnId",
    "delta.columnMapping.mode",
    "delta.compatibility.symlinkFormatManifest.enabled",
    "delta.dataSkippingNumIndexedCols",
    "delta.dataSkippingStatsColumns",
    "delta.deletedFileRetentionDuration",
    "delta.enableExpiredLogCleanup",
    "delta.enableFullRetentionRollback",
    "delta.inCommitTimestampEnablementTimestamp",
    "delta.inCommitTimestampEnablementVersion",
    "delta.isolationLevel",
    "delta.logRetentionDuration",
    "delta.minReaderVersion",
    "delta.minWriterVersion",
    "delta.parquet.compression.codec",
    "delta.randomPrefixLength",
    "delta.randomizeFilePrefixes",
    "delta.requireCheckpointProtectionBeforeVersion",
    "delta.rowTrackingSuspended",
    "delta.sampleRetentionDuration",
    "delta.setTransactionRetentionDuration",
    "delta.targetFileSize",
    "delta.tuneFileSizesForRewrites",
}


def unknown_properties(names: Iterable[str]) -> list[str]:
    """The names that neither Delta nor this package knows, sorted."""
    return sorted(name for name in names if name not in _KNOWN and not name.startswith(_PREFIXES))


def to_properties(
    configuration: Mapping[str, str | None] | None, *, table: str, refuses_unknown: bool = True
) -> dict[str, str]:
    """The properties that `configuration` sets; None sets nothing; DeltaError for a key that Delta does not know."""
    properties = {key: value for key, value in (configuration or {}).items() if value is not None}
    unknown = unknown_properties(properties)
    if unknown and refuses_unknown:
        pairs = ", ".join(f"'{name}':'{redact(properties[name])}'" for name in unknown)
        raise DeltaError(
            f"table {table}: Error parsing property {pairs}: Delta knows no such property; a property of your own is "
            "set by DeltaTable.create(..., raise_if_key_not_exists=False)"
        )
    return properties


def check_own_properties(properties: Mapping[str, str], *, table: str) -> None:
    """ConfigError for a property of this package with an invalid value."""
    value = properties.get(DROP_PROTECTION)
    if value is not None and value.strip().lower() not in ("true", "false"):
        raise ConfigError(f"table {table}: {DROP_PROTECTION} is true or false, not {redact(value)!r}")
