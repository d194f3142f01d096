"""Converts instants (a datetime, ISO 8601 text, epoch milliseconds) to and from epoch milliseconds."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

Instant = datetime | int | str

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_RFC3339 = re.compile(r"\d{4}-\d{2}-\d{2}[Tt ]\d{2}:\d{2}:\d{2}(\.\d+)?([Zz]|[+-]\d{2}:\d{2})", re.ASCII)


def to_epoch_ms(instant: Instant) -> int:
    """Return the epoch milliseconds of an instant; without a zone it is UTC."""
    if isinstance(instant, bool) or not isinstance(instant, datetime | int | str):
        raise TypeError(f"a time is a datetime, a text or epoch milliseconds, not {type(instant).__name__}")
    if isinstance(instant, int):
        return instant
    moment = _parse(instant) if isinstance(instant, str) else instant
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return (moment - _EPOCH) // timedelta(milliseconds=1)


def travel_time_ms(moment: str | datetime) -> int:
    """Return the epoch milliseconds of a time to travel to; a text must be RFC 3339, as in `deltalake`."""
    if isinstance(moment, datetime):
        return to_epoch_ms(moment)
    try:
        return to_epoch_ms(parse_rfc3339(moment))
    except ValueError as error:
        raise ValueError(f"Failed to parse datetime string: {error}") from None


def to_iso(epoch_ms: int) -> str:
    """Return epoch milliseconds as ISO 8601 text; a number outside the calendar as it is."""
    try:
        moment = _EPOCH + timedelta(milliseconds=epoch_ms)
    except OverflowError:
        return f"{epoch_ms} ms"
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def parse_rfc3339(text: str) -> datetime:
    """Parse RFC 3339 with a zone, the only form `deltalake` accepts for time travel; ValueError for other texts."""
    if _RFC3339.fullmatch(text):
        try:
            return datetime.fromisoformat(text.upper())
        except ValueError:
            why = "input is out of range"
    elif len(text) < len("2026-01-31T12:00:00Z") or _RFC3339.match(f"{text}Z"):
        why = "premature end of input"
    else:
        why = "trailing input" if _RFC3339.match(text) else "input contains invalid characters"
    raise ValueError(f"{why}: {text!r} is not a time in the form of RFC 3339, such as 2026-01-31T12:00:00Z")


def _parse(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text.strip())
    except ValueError:
        raise ValueError(f"{text!r} is not a time in ISO 8601 form, such as 2026-01-31T12:00:00Z") from None
