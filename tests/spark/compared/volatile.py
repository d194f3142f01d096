"""The one place that says what may differ between two runs of a statement: identifiers, times, paths, sizes."""

import re
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

_DAYS = timedelta(days=2)

TEXTS = (
    (r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "<uuid>"),
    (r"part-\d{5}-<uuid>(\.c\d+)?(-c000|\.c000)?(\.\w+)?\.parquet", "<file>"),
    (r"(Mon|Tue|Wed|Thu|Fri|Sat|Sun) [A-Z][a-z]{2} \d\d \d\d:\d\d:\d\d \w+ \d{4}", "<time>"),
    (r"20\d\d-\d\d-\d\d[T ]\d\d:\d\d:\d\d\.\d+Z?", "<time>"),  # user data of the scripts has whole seconds
    (r"\b1[789]\d{11}\b", "<milliseconds>"),
    (r"#\d+L?\b", "#<id>"),
    (r"(\$warehouse/\w+)\.db\b", r"\1"),  # how a catalog calls the folder of a database
)
"""Texts that stand for what is new in every run."""

METRICS = re.compile(r".*(Bytes|Size|Ms|TimeMs|time|Time|size)$")
"""Numbers of DESCRIBE HISTORY and DETAIL that depend on the clock or on a compressed file's length."""


def steady(value: Any, places: Mapping[str, str], now: datetime) -> Any:
    """A result without what is new in every run. `places` are the folders of this run, and what stands for them."""
    if isinstance(value, str):
        return steady_text(value, places)
    if isinstance(value, datetime):
        return "<now>" if abs(value.replace(tzinfo=None) - now) < _DAYS else value.isoformat()
    if isinstance(value, dict):
        return {
            str(steady(key, places, now)): "<number>" if METRICS.fullmatch(str(key)) else steady(one, places, now)
            for key, one in sorted(value.items(), key=repr)
        }
    if hasattr(value, "asDict"):  # a Row: a list would lose the names of nested fields
        return {
            name: "<number>" if METRICS.fullmatch(name) else steady(value[name], places, now)
            for name in value.__fields__
        }
    if isinstance(value, (list, tuple)):
        return [steady(one, places, now) for one in value]
    if value is None or isinstance(value, (bool, int, float)):
        return value
    return steady_text(repr(value), places)


def steady_text(text: str, places: Mapping[str, str]) -> str:
    for place, name in places.items():
        text = text.replace(place, name)
    for pattern, name in TEXTS:
        text = re.sub(pattern, name, text)
    return text
