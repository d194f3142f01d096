"""Owns a table's properties: which names are known, validation of their values, retention, tags and comments."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from deltalakedb.exceptions import ConfigError, DeltaError, redact
from deltalakedb.log.checks.table_checks import DROP_PROTECTION
from deltalakedb.log.protocol.features import BY_PROPERTY, CONSTRAINT_PREFIX
from deltalakedb.log.schema.types import StructField

TAG_PREFIX: Final = "tag."
"""The prefix of tags among a table's properties and in a column's metadata."""

COMMENT: Final = "comment"
"""The key of a column's comment in its metadata; a table's is `metaData.description`."""

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


def tags_of(entries: Mapping[str, Any]) -> dict[str, str]:
    """The tags among a table's properties or in a column's metadata, by name."""
    return {
        key.removeprefix(TAG_PREFIX): str(value)
        for key, value in entries.items()
        if key.startswith(TAG_PREFIX) and value is not None
    }


def comment_of(item: StructField) -> str | None:
    """A column's comment."""
    comment = item.metadata.get(COMMENT)
    return comment if isinstance(comment, str) else None


LOG_RETENTION = "delta.logRetentionDuration"
DELETED_FILE_RETENTION = "delta.deletedFileRetentionDuration"
LOG_CLEANUP = "delta.enableExpiredLogCleanup"

_MICROSECONDS = {
    "microsecond": 1,
    "millisecond": 1_000,
    "second": 1_000_000,
    "minute": 60_000_000,
    "hour": 3_600_000_000,
    "day": 86_400_000_000,
    "week": 604_800_000_000,
}
_PART = re.compile(r"\s*([+-]?\d+)\s*([a-z]+?)s?(?=[\s\d+-]|$)")


def duration_ms(text: str) -> int:
    """Milliseconds of an interval such as `interval 30 days` or `2 weeks 12 hours`; raises ValueError for others.

    Months and years are not accepted: Delta rejects them too.
    """
    rest = text.strip().lower().removeprefix("interval").strip()
    total, end = 0, 0
    while (part := _PART.match(rest, end)) and part[2] in _MICROSECONDS:
        total += int(part[1]) * _MICROSECONDS[part[2]]
        end = part.end()
    if not rest or end != len(rest) or total < 0:
        raise ValueError(f"{text!r} is not an interval such as `interval 30 days`")
    return total // 1_000


def log_retention_ms(configuration: Mapping[str, str | None], default_ms: int) -> int:
    """How long commits are kept; raises ValueError if the table's own value cannot be read."""
    return _setting(configuration, LOG_RETENTION, default_ms)


def deleted_file_retention_ms(configuration: Mapping[str, str | None], default_ms: int) -> int:
    """How long the tombstone of a removed file is kept; raises ValueError if the table's own value cannot be read."""
    return _setting(configuration, DELETED_FILE_RETENTION, default_ms)


def cleans_up(configuration: Mapping[str, str | None]) -> bool:
    """Whether old commits of the table may be removed; true unless its property is false."""
    return (configuration.get(LOG_CLEANUP) or "true").strip().lower() != "false"


def _setting(configuration: Mapping[str, str | None], key: str, default_ms: int) -> int:
    text = configuration.get(key)
    return default_ms if text is None else duration_ms(text)
