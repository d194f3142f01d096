"""The metrics: their descriptions, and the values that this process has counted, in plain Python and for Prometheus."""

from __future__ import annotations

import os
import threading
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from deltalakedb.exceptions import MissingExtraError

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric
    from prometheus_client.registry import CollectorRegistry

PREFIX = "deltalakedb_"
BUCKETS_MS = (0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 30_000, 60_000)
BUCKETS_SECONDS = (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300)
MAX_SERIES = 10_000
"""How many label combinations a metric has at most; later ones share the label `other`, to bound memory."""


@dataclass(frozen=True, slots=True)
class Described:
    """A metric: its name without prefix, its description, and the labels of its series."""

    kind: str
    name: str
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = BUCKETS_MS


OPEN_LATENCY = Described("histogram", "metadata_open_latency_ms", "Time to open a table from SQL.")
COMMIT_LATENCY = Described("histogram", "commit_latency_ms", "Time of the SQL part of a commit, retries included.")
MIRROR_LATENCY = Described("histogram", "mirror_latency_ms", "Time to write one commit into _delta_log.")
MIRROR_LAG = Described(
    "gauge", "mirror_lag_seconds", "Age of the oldest commit that _delta_log does not have.", ("table",)
)
MIRROR_FAILURES = Described(
    "counter", "mirror_failures_total", "Attempts to write to _delta_log that failed.", ("table",)
)
VERSIONS = Described("counter", "versions_committed_total", "Versions committed.", ("table",))
CONFLICTS = Described("counter", "commit_conflicts_total", "Commits refused because of a conflict.", ("reason",))
FILES = Described("gauge", "files_active_gauge", "Live files at the head.", ("table",))
CDC_LAG_BYTES = Described("gauge", "cdc_lag_bytes", "The source's log that is not in the lake.", ("slot",))
CDC_LAG_SECONDS = Described("gauge", "cdc_lag_seconds", "How old what the lake has of the source is.", ("slot",))
CDC_ROWS = Described("counter", "cdc_rows_total", "Changes captured, by source table.", ("table", "op"))
CDC_BATCHES = Described("counter", "cdc_batches_total", "Batches committed.", ("slot",))
CDC_BATCH_SECONDS = Described(
    "histogram", "cdc_batch_seconds", "Time of a batch, from reading to its commit.", buckets=BUCKETS_SECONDS
)
CDC_FAILURES = Described("counter", "cdc_failures_total", "What failed in a capture, by its error.", ("slot", "reason"))
CDC_SLOT_RETAINED = Described(
    "gauge", "cdc_slot_retained_bytes", "Log that the source keeps for the slot of a capture.", ("slot",)
)
CDC_SLOT_LEFT = Described(
    "gauge", "cdc_slot_left_bytes", "Log that the source may still write before the slot is lost.", ("slot",)
)
CDC_TABLE_STREAMING = Described(
    "gauge",
    "cdc_table_streaming",
    "Whether a source table is followed (1), or waits or is stopped (0).",
    ("slot", "table"),
)
CDC_TABLE_CHANGED = Described(
    "gauge",
    "cdc_table_changed_seconds",
    "When changes of a source table were last committed, in seconds since 1970.",
    ("slot", "table"),
)
ICEBERG_REPORTS = Described(
    "counter", "iceberg_reports_total", "Reports of scans and commits that Iceberg clients sent.", ("report",)
)
SPARK_SCANS = Described(
    "counter",
    "spark_scans_total",
    "Scans of Spark SQL that the database planned, or that Delta did, and why.",
    ("planner", "reason"),
)
METRICS = (
    OPEN_LATENCY,
    COMMIT_LATENCY,
    MIRROR_LATENCY,
    MIRROR_LAG,
    MIRROR_FAILURES,
    VERSIONS,
    CONFLICTS,
    FILES,
    CDC_LAG_BYTES,
    CDC_LAG_SECONDS,
    CDC_ROWS,
    CDC_BATCHES,
    CDC_BATCH_SECONDS,
    CDC_FAILURES,
    CDC_SLOT_RETAINED,
    CDC_SLOT_LEFT,
    CDC_TABLE_STREAMING,
    CDC_TABLE_CHANGED,
    ICEBERG_REPORTS,
    SPARK_SCANS,
)


@dataclass(slots=True)
class _Series:
    """One series of a metric: a value, or for a histogram the sum and the count of each bucket."""

    value: float = 0.0
    buckets: list[int] = field(default_factory=list)


_series: dict[str, dict[tuple[str, ...], _Series]] = {}
_lock = threading.Lock()


def reset() -> None:
    """Reset all values; also in a forked child, which needs a new lock."""
    global _lock
    _lock = threading.Lock()
    _series.clear()
    _series.update({metric.name: {} for metric in METRICS})


def record(metric: Described, labels: tuple[str, ...], value: float) -> None:
    """Record a value: increase a counter by it, set a gauge to it, or add it to a histogram."""
    with _lock:
        line = _series[metric.name].get(labels) or _new_series(metric, labels)
        line.value = value if metric.kind == "gauge" else line.value + value
        if metric.kind == "histogram":
            line.buckets[bisect_left(metric.buckets, value)] += 1


def forget(metric: Described, labels: tuple[str, ...]) -> None:
    """Drop the gauge's series."""
    with _lock:
        _series[metric.name].pop(labels, None)


def _new_series(metric: Described, labels: tuple[str, ...]) -> _Series:
    lines = _series[metric.name]
    if len(lines) >= MAX_SERIES:
        return lines.setdefault(("other",) * len(metric.labels), _Series())
    lines[labels] = _Series(buckets=[0] * (len(metric.buckets) + 1) if metric.kind == "histogram" else [])
    return lines[labels]


def value_of(metric: Described, *labels: str) -> float | None:
    """The current value of a counter or gauge in this process; None if it was never set."""
    with _lock:
        line = _series[metric.name].get(labels)
        return None if line is None else line.value


def total_of(metric: Described) -> float:
    """The sum of all series of a counter."""
    return sum(value for _, value, _ in lines_of(metric))


def lines_of(metric: Described) -> list[tuple[tuple[str, ...], float, list[int]]]:
    """A copy of all series of a metric."""
    with _lock:
        return [(labels, line.value, list(line.buckets)) for labels, line in _series[metric.name].items()]


reset()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=reset)


class MetricsCollector:
    """A collector for prometheus-client: `REGISTRY.register(telemetry.MetricsCollector())`."""

    def collect(self) -> Iterator[Metric]:
        from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

        for metric in METRICS:
            name, labels = PREFIX + metric.name, list(metric.labels)
            if metric.kind == "histogram":
                histogram = HistogramMetricFamily(name, metric.help, labels=labels)
                for _, total, counts in lines_of(metric) or [((), 0.0, [0] * (len(metric.buckets) + 1))]:
                    histogram.add_metric([], _cumulative(metric.buckets, counts), total)
                yield histogram
                continue
            kind = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
            family = kind(name, metric.help, labels=labels)
            for values, value, _ in lines_of(metric):
                family.add_metric(list(values), value)
            yield family


def _cumulative(edges: Sequence[float], counts: Sequence[int]) -> list[tuple[str, float]]:
    """Cumulative bucket counts: in Prometheus each bucket includes the smaller ones."""
    total, buckets = 0, []
    for edge, count in zip([*map(str, map(float, edges)), "+Inf"], counts, strict=True):
        total += count
        buckets.append((edge, float(total)))
    return buckets


def exposition() -> bytes:
    """This process's metrics in Prometheus' text format."""
    try:
        from prometheus_client import CollectorRegistry, generate_latest
    except ImportError:
        raise MissingExtraError("the Prometheus text of the metrics", "serve") from None
    registry: CollectorRegistry = CollectorRegistry(auto_describe=False)
    registry.register(MetricsCollector())
    return generate_latest(registry)
