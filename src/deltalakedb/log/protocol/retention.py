"""Owns a table's retention: the durations in its configuration, as Delta's writers spell them."""

import re
from collections.abc import Mapping

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
