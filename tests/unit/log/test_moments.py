"""Dates and timestamps as text."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deltalakedb.log.statistics.moments import Zone, parse_date, parse_dates, parse_timestamp, parse_timestamps

EPOCH = datetime(1970, 1, 1)


@given(st.dates())
def test_days_are_counted_as_python_counts_them(day: date) -> None:
    assert parse_date(day.isoformat()) == day.toordinal() - date(1970, 1, 1).toordinal()


@given(
    st.datetimes(),
    st.sampled_from(["T", " "]),
    st.integers(-1080, 1080),
    st.sampled_from(["seconds", "milliseconds", "microseconds"]),
)
def test_timestamps_are_counted_as_python_counts_them(moment: datetime, sep: str, minutes: int, precision: str) -> None:
    zoned = moment.replace(tzinfo=timezone(timedelta(minutes=minutes)))
    text = zoned.isoformat(sep, precision)
    cut = (
        datetime.fromisoformat(text).replace(tzinfo=None) - timedelta(minutes=minutes)
        if 1 < moment.year < 9999
        else None
    )
    if cut is not None:
        expected = (cut - EPOCH) // timedelta(microseconds=1)
        assert parse_timestamp(text) == (expected, Zone.OFFSET if minutes else Zone.UTC)
    local = moment.isoformat(sep, precision)
    in_utc = parse_timestamp(local + "Z")
    assert in_utc is not None
    assert in_utc.zone is Zone.UTC
    assert parse_timestamp(local) == (in_utc.micros, Zone.NONE)


pieces = st.sampled_from(["0", "1", "9", "-", ":", "T", " ", ".", "Z", "+", "2020-01-01", "00:00:00", "ü", "\0", "x"])
spelled = st.datetimes().flatmap(
    lambda moment: st.sampled_from(
        [
            moment.isoformat(),
            moment.isoformat(" ", "milliseconds") + "Z",
            moment.replace(tzinfo=UTC).isoformat(timespec="milliseconds"),
            moment.replace(tzinfo=timezone(timedelta(hours=-7))).isoformat(),
            moment.isoformat(timespec="microseconds") + "999Z",
            moment.date().isoformat(),
        ]
    )
)
anything: st.SearchStrategy[Any] = st.one_of(
    st.none(), st.integers(), st.lists(pieces, max_size=12).map("".join), st.text(max_size=40), spelled, spelled
)


@given(st.lists(anything, max_size=8))
def test_a_column_reads_as_its_values_one_by_one(texts: list[Any]) -> None:
    moments = parse_timestamps(texts)
    for place, text in enumerate(texts):
        alone = parse_timestamp(text) if isinstance(text, str) else None
        if alone is None:
            assert moments.zone[place] == Zone.UNREADABLE
        else:
            assert (moments.micros[place], moments.zone[place]) == alone
    days, readable = parse_dates(texts)
    for place, text in enumerate(texts):
        alone_date = parse_date(text) if isinstance(text, str) else None
        assert readable[place] == (alone_date is not None)
        assert not readable[place] or days[place] == alone_date


@given(st.lists(spelled, min_size=1, max_size=8))
def test_a_column_of_the_usual_spellings_is_readable(texts: list[str]) -> None:
    assert (parse_timestamps(texts).zone != Zone.UNREADABLE).all()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "2020",
        "2020-1-1",
        "2020-02-30",
        "2020-13-01",
        "2020-00-10",
        "2020-01-00",
        "today",
        "２０２０-01-01",
        "2020-01-01\n",
    ],
)
def test_what_is_no_date_is_none(text: str) -> None:
    assert parse_date(text) is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "2020-01-01T24:00:00",
        "2020-01-01T00:60:00",
        "2020-01-01T00:00:60",
        "2020-01-01T00:00:00.Z",
        "2020-01-01T00:00:00 CET",
        "now",
        "+999999-01-01T00:00:00Z",
    ],
)
def test_what_is_no_timestamp_is_none(text: str) -> None:
    assert parse_timestamp(text) is None
    assert parse_timestamps([text]).zone.tolist() == [Zone.UNREADABLE]


def test_years_beyond_pythons_are_known() -> None:
    assert parse_date("+10000-01-01") == 2932897
    assert parse_date("10000-01-01") == 2932897
    assert parse_date("-0001-01-01") == -719893
    moment = parse_timestamp("+10000-01-01T00:00:00Z")
    assert moment is not None
    assert moment.micros == 2932897 * 86_400_000_000
