"""Instants as people give them (a datetime, ISO 8601 text, epoch milliseconds), and as epoch milliseconds."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

Instant = datetime | int | str

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def to_epoch_ms(instant: Instant) -> int:
    """Epoch milliseconds of an instant; UTC where no zone is given."""
    if isinstance(instant, bool) or not isinstance(instant, datetime | int | str):
        raise TypeError(f"a time is a datetime, a text or epoch milliseconds, not {type(instant).__name__}")
    if isinstance(instant, int):
        return instant
    moment = _parse(instant) if isinstance(instant, str) else instant
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return (moment - _EPOCH) // timedelta(milliseconds=1)


def to_iso(epoch_ms: int) -> str:
    """Epoch milliseconds as people read them; a number beyond the calendar as it is."""
    try:
        moment = _EPOCH + timedelta(milliseconds=epoch_ms)
    except OverflowError:
        return f"{epoch_ms} ms"
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _parse(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text.strip())
    except ValueError:
        raise ValueError(f"{text!r} is not a time in ISO 8601 form, such as 2026-01-31T12:00:00Z") from None
