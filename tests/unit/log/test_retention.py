"""A table's retention settings are read as Delta's writers spell them."""

import pytest

from deltalakedb.log.checks.properties import cleans_up, deleted_file_retention_ms, duration_ms, log_retention_ms

DAY = 86_400_000


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("interval 30 days", 30 * DAY),
        ("interval 1 day", DAY),
        ("INTERVAL 1 WEEK", 7 * DAY),
        ("2 weeks 12 hours", 14 * DAY + DAY // 2),
        ("interval 168 hours", 7 * DAY),
        ("interval 0 days", 0),
        ("interval 90 seconds 500 milliseconds", 90_500),
        ("interval 1999 microseconds", 1),
        ("interval 2 days -1 hour", 2 * DAY - 3_600_000),
        ("  interval   5   minutes ", 300_000),
    ],
)
def test_an_interval_is_so_many_milliseconds(text: str, milliseconds: int) -> None:
    assert duration_ms(text) == milliseconds


@pytest.mark.parametrize(
    "text",
    [
        "",
        "interval",
        "30",
        "interval 1 month",
        "interval 1 year",
        "forever",
        "interval 1 day and",
        "-1 day",
        "1.5 days",
    ],
)
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="interval 30 days"):
        duration_ms(text)


def test_the_tables_own_setting_goes_before_the_default() -> None:
    assert log_retention_ms({}, 5) == 5
    assert log_retention_ms({"delta.logRetentionDuration": "interval 2 days"}, 5) == 2 * DAY
    assert deleted_file_retention_ms({"delta.deletedFileRetentionDuration": "interval 1 week"}, 5) == 7 * DAY


def test_a_table_lets_its_past_go_unless_it_says_no() -> None:
    assert cleans_up({})
    assert cleans_up({"delta.enableExpiredLogCleanup": "true"})
    assert not cleans_up({"delta.enableExpiredLogCleanup": "False"})
