"""Instants: every way to give one, to the millisecond."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deltalakedb.catalog.instants import to_epoch_ms, to_iso


@given(st.datetimes(min_value=datetime(1, 1, 2), max_value=datetime(9999, 12, 30), timezones=st.just(UTC)))
def test_a_datetime_is_cut_to_its_millisecond_and_never_rounded(moment: datetime) -> None:
    whole = moment.replace(microsecond=moment.microsecond // 1000 * 1000)
    assert to_epoch_ms(moment) == to_epoch_ms(whole)
    assert to_epoch_ms(to_iso(to_epoch_ms(moment))) == to_epoch_ms(whole)


@pytest.mark.parametrize(
    "instant",
    [
        1_767_225_600_123,
        "2026-01-01T00:00:00.123Z",
        " 2026-01-01 00:00:00.123 ",
        "2026-01-01T01:30:00.123+01:30",
        datetime(2026, 1, 1, 0, 0, 0, 123_999),  # without a zone it is UTC
        datetime(2025, 12, 31, 16, 0, 0, 123_000, tzinfo=timezone(timedelta(hours=-8))),
    ],
)
def test_every_spelling_of_an_instant_is_the_same_instant(instant: datetime | int | str) -> None:
    assert to_epoch_ms(instant) == 1_767_225_600_123


def test_a_date_is_its_midnight() -> None:
    assert to_epoch_ms("2026-01-01") == 1_767_225_600_000


def test_before_1970_counts_downwards() -> None:
    assert to_epoch_ms("1969-12-31T23:59:59.999Z") == -1
    assert to_iso(-1) == "1969-12-31T23:59:59.999Z"


@pytest.mark.parametrize("text", ["", "yesterday", "2026-13-01", "12:00"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="ISO 8601"):
        to_epoch_ms(text)


@pytest.mark.parametrize("wrong", [None, 1.5, True, b"2026-01-01"])
def test_another_type_is_refused(wrong: object) -> None:
    with pytest.raises(TypeError):
        to_epoch_ms(wrong)  # type: ignore[arg-type]


def test_a_number_beyond_the_calendar_is_shown_as_it_is() -> None:
    assert to_iso(2**63 - 1) == "9223372036854775807 ms"
