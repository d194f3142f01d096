"""The metrics as OpenTelemetry instruments, for an application that has set up a meter provider."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

from deltalakedb.telemetry.metrics import METRICS, PREFIX, Described, lines_of


class _Instruments:
    """The metrics as instruments of the application's meter provider; empty until it has one."""

    def __init__(self, provider: Any) -> None:
        self.provider = provider
        self._made: dict[str, Callable[..., None]] = {}
        # Until the application sets a provider up, there is a placeholder of a private class.
        if type(provider).__name__.startswith("_Proxy"):
            return
        meter = provider.get_meter("deltalakedb")
        for metric in METRICS:
            name = PREFIX + metric.name
            if metric.kind == "histogram":
                self._made[metric.name] = meter.create_histogram(name, _unit(metric), metric.help).record
            elif metric.kind == "counter":
                self._made[metric.name] = meter.create_counter(name, "", metric.help).add
            else:
                meter.create_observable_gauge(name, [_observed(metric)], "", metric.help)

    def record(self, metric: Described, value: float, labels: tuple[str, ...]) -> None:
        if metric.name in self._made:
            self._made[metric.name](value, dict(zip(metric.labels, labels, strict=True)))


def _unit(metric: Described) -> str:
    return "ms" if metric.name.endswith("_ms") else "s"


def _observed(metric: Described) -> Callable[[Any], list[Any]]:
    def observe(_options: Any) -> list[Any]:
        from opentelemetry.metrics import Observation

        return [
            Observation(value, dict(zip(metric.labels, labels, strict=True))) for labels, value, _ in lines_of(metric)
        ]

    return observe


_instruments: _Instruments | None = None


def tell(metric: Described, value: float, labels: tuple[str, ...]) -> None:
    """Record a value in the application's meters; if it has set them up, their module is imported."""
    global _instruments
    metrics = sys.modules.get("opentelemetry.metrics")
    if metrics is None:
        return
    provider = metrics.get_meter_provider()
    if _instruments is None or _instruments.provider is not provider:
        _instruments = _Instruments(provider)
    _instruments.record(metric, value, labels)


def _forget() -> None:
    """Reset the instruments in a forked child, which creates its own."""
    global _instruments
    _instruments = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
