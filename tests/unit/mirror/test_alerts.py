"""Alerts: once per trouble, by event, metric and command; nothing the command does can hold the mirror up."""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from pathlib import Path

import pytest

from deltalakedb import telemetry
from deltalakedb.mirror.alerts import Alerts, run_command
from deltalakedb.runtime.config import Config


def alerts(command: str | None = None, after: float = 10.0) -> Alerts:
    return Alerts(replace(Config(), mirror_alert_after=after, mirror_alert_command=command))


def told(caplog: pytest.LogCaptureFixture) -> list[dict[str, object]]:
    events = [record.event for record in caplog.records if hasattr(record, "event")]
    return [event for event in events if event["event"] == "mirror_alert"]


def test_a_lag_is_told_once_until_the_table_is_well_again(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "deltalakedb.events")
    one = alerts()
    for seconds in (3.0, 11.0, 12.0):
        one.lag("sales.orders", seconds, version=7, error="disk full")
    assert told(caplog) == [
        {
            "event": "mirror_alert",
            "kind": "mirror_lag",
            "table": "sales.orders",
            "version": 7,
            "lag_seconds": 11.0,
            "error": "disk full",
        }
    ]
    one.lag("sales.orders", 0.0, version=8)
    one.lag("sales.orders", 20.0, version=9)
    assert len(told(caplog)) == 2


def test_each_table_has_its_own_alert_and_a_metric(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "deltalakedb.events")
    one = alerts()
    one.lag("a", 20.0, version=1)
    one.lag("b", 30.0, version=1)
    assert [event["table"] for event in told(caplog)] == ["a", "b"]
    text = telemetry.exposition().decode()
    assert 'deltalakedb_mirror_lag_seconds{table="a"} 20.0' in text
    assert 'deltalakedb_mirror_lag_seconds{table="b"} 30.0' in text


def test_a_command_gets_what_it_needs_in_its_environment(tmp_path: Path) -> None:
    out = tmp_path / "out"
    one = alerts(
        f'echo "$DL_ALERT_KIND|$DL_ALERT_TABLE|$DL_ALERT_VERSION|$DL_ALERT_LAG_SECONDS|$DL_ALERT_ERROR" > {out}'
    )
    one.external_writer("sales.orders", 4, "somebody; wrote `it` $(really) password=hunter2")
    one.close()
    assert out.read_text() == "external_writer|sales.orders|4|0.000|somebody; wrote `it` $(really) password=***\n"


def test_a_command_that_fails_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    run_command("echo because >&2; exit 3", {})
    assert "failed with exit code 3: because" in caplog.text


def test_a_command_that_hangs_is_ended_with_everything_it_started(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    late = tmp_path / "late"
    run_command(f"(sleep 3; touch {late}) & wait", {}, timeout_seconds=0.3)
    assert "was ended after 0.3 seconds" in caplog.text
    time.sleep(3.2)
    assert not late.exists()


def test_a_slow_command_does_not_hold_the_caller_up() -> None:
    one = alerts("sleep 2")
    started = time.monotonic()
    one.lag("sales.orders", 60.0, version=1)
    assert time.monotonic() - started < 1
    one.close()
    assert time.monotonic() - started >= 1.5


def test_trouble_with_the_files_of_others_is_told_even_after_a_lag(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "deltalakedb.events")
    one = alerts()
    one.lag("sales.orders", 60.0, version=1)
    one.external_writer("sales.orders", 2, "not ours")
    assert [event["kind"] for event in told(caplog)] == ["mirror_lag", "external_writer"]
