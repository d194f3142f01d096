"""docs/telemetry.md names every metric, span and event that the code has, and nothing else."""

from __future__ import annotations

import re
from pathlib import Path

from deltalakedb import telemetry

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "telemetry.md").read_text(encoding="utf-8")
SOURCE = "".join(file.read_text(encoding="utf-8") for file in (ROOT / "src" / "deltalakedb").rglob("*.py"))


def test_every_metric_is_in_the_table_with_its_kind_and_label() -> None:
    rows = re.findall(r"^\| `(deltalakedb_\w+)` \| (\w+) \| ([`\w, ]*) ?\|", PAGE, re.MULTILINE)
    assert [(name, kind, tuple(re.findall(r"\w+", labels))) for name, kind, labels in rows] == [
        (telemetry.PREFIX + metric.name, metric.kind, metric.labels) for metric in telemetry.METRICS
    ]


def test_every_span_is_in_the_table() -> None:
    assert set(re.findall(r"^\| `(deltalakedb\.\w+)` \|", PAGE, re.MULTILINE)) == set(
        re.findall(r'telemetry\.span\(\s*"([\w.]+)"', SOURCE)
    )


def test_every_event_is_in_the_table() -> None:
    told = re.findall(r'(?<!def )log_event\(\s*"(\w+)"', SOURCE)
    assert set(re.findall(r"^\| `(\w+)` \| (?:INFO|WARNING|ERROR) \|", PAGE, re.MULTILINE)) == set(told)
