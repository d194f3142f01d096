"""Exports the metrics to Prometheus; prometheus-client is loaded (70 ms) only when they are requested."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from deltalakedb.exceptions import MissingExtraError
from deltalakedb.telemetry.metrics import METRICS, PREFIX, lines_of

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric
    from prometheus_client.registry import CollectorRegistry


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
