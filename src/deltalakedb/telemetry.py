"""Telemetry: counts and times what the package does, opens spans, and writes one log event per commit.

Recording never raises and imports nothing: values are counted here, in plain Python. prometheus-client (70 ms to
import) is loaded when somebody asks for the metrics, OpenTelemetry is used when the application has set it up.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
import time
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import wraps
from typing import TYPE_CHECKING, Any, ParamSpec

from .exceptions import MissingExtraError, redact

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric
    from prometheus_client.registry import CollectorRegistry

PREFIX = "deltalakedb_"
BUCKETS_MS = (0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 30_000, 60_000)
MAX_SERIES = 10_000
"""Tables a metric tells apart; those that come later share the label `other`: a process must not grow for ever."""

events = logging.getLogger("deltalakedb.events")
events.addHandler(logging.NullHandler())  # for who listens; without it Python prints warnings nobody asked for
logger = logging.getLogger(__name__)
P = ParamSpec("P")


@dataclass(frozen=True, slots=True)
class Described:
    """A metric: its name without prefix, what it says, and the label its series differ by ('' for none)."""

    kind: str
    name: str
    help: str
    label: str = ""


OPEN_LATENCY = Described("histogram", "metadata_open_latency_ms", "Time to open a table from SQL.")
COMMIT_LATENCY = Described("histogram", "commit_latency_ms", "Time of the SQL part of a commit, retries included.")
MIRROR_LATENCY = Described("histogram", "mirror_latency_ms", "Time to write one commit into _delta_log.")
MIRROR_LAG = Described(
    "gauge", "mirror_lag_seconds", "Age of the oldest commit that _delta_log does not have.", "table"
)
MIRROR_FAILURES = Described("counter", "mirror_failures_total", "Attempts to write to _delta_log that failed.", "table")
VERSIONS = Described("counter", "versions_committed_total", "Versions committed.", "table")
CONFLICTS = Described("counter", "commit_conflicts_total", "Commits refused because of a conflict.", "reason")
FILES = Described("gauge", "files_active_gauge", "Live files at the head.", "table")
METRICS = (OPEN_LATENCY, COMMIT_LATENCY, MIRROR_LATENCY, MIRROR_LAG, MIRROR_FAILURES, VERSIONS, CONFLICTS, FILES)


@dataclass(slots=True)
class _Series:
    """One line of a metric: a value, or for a histogram its sum and how many fell into each bucket."""

    value: float = 0.0
    buckets: list[int] = field(default_factory=list)


_series: dict[str, dict[str, _Series]] = {}
_lock = threading.Lock()


def _reset() -> None:
    """Forget everything counted; a forked child starts from nothing, with a lock that nobody holds."""
    global _lock, _otel
    _lock, _otel = threading.Lock(), None
    _series.clear()
    _series.update({metric.name: {} for metric in METRICS})


def _never_raises(function: Callable[P, None]) -> Callable[P, None]:
    """Whatever goes wrong in here must not fail the commit it is told about."""

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            function(*args, **kwargs)
        except Exception:
            logger.debug("telemetry could not record %s", function.__name__, exc_info=True)

    return call


# -- what the package reports


@dataclass(frozen=True, slots=True)
class CommittedVersion:
    """One version of a commit, for its metrics and its log event."""

    table: str
    version: int
    operation: str = ""
    num_actions: int = 0
    num_files: int | None = None
    """Live files after it."""


@_never_raises
def observe_open(milliseconds: float) -> None:
    """A table was opened."""
    _observe(OPEN_LATENCY, milliseconds)


@_never_raises
def observe_commit(
    *,
    txn_id: str,
    milliseconds: float,
    versions: Sequence[CommittedVersion],
    committed_at_ms: int | None = None,
    attempts: int = 1,
    actor: str | None = None,
    message: str | None = None,
) -> None:
    """A transaction was committed in SQL; once per transaction, however many tables it has."""
    _observe(COMMIT_LATENCY, milliseconds)
    for version in versions:
        _add(VERSIONS, version.table)
        if version.num_files is not None:
            _set(FILES, version.table, version.num_files)
    if events.isEnabledFor(logging.INFO):
        log_event(
            "commit",
            txn_id=txn_id,
            committed_at_ms=committed_at_ms,
            milliseconds=round(milliseconds, 3),
            attempts=attempts,
            actor=actor,
            message=message,
            versions=[
                {"table": v.table, "version": v.version, "operation": v.operation, "num_actions": v.num_actions}
                for v in versions
            ],
        )


@_never_raises
def conflict(reason: str) -> None:
    """A commit was refused; the reason is the name of its exception."""
    _add(CONFLICTS, reason)


@_never_raises
def observe_mirror(milliseconds: float) -> None:
    """One commit was written into `_delta_log`."""
    _observe(MIRROR_LATENCY, milliseconds)


@_never_raises
def mirror_failed(table: str, version: int, error: BaseException | str) -> None:
    """A version could not be written into `_delta_log`; it will be tried again."""
    _add(MIRROR_FAILURES, table)
    log_event("mirror_failed", level=logging.WARNING, table=table, version=version, error=str(error))


@_never_raises
def mirror_lag(table: str, seconds: float) -> None:
    """How old the oldest commit is that `_delta_log` does not have; 0 when it has all."""
    _set(MIRROR_LAG, table, seconds)


@_never_raises
def files_active(table: str, num_files: int) -> None:
    """How many files are live at the head."""
    _set(FILES, table, num_files)


@_never_raises
def forget_table(table: str) -> None:
    """A table was dropped, renamed or detached: its gauges would stand still for ever."""
    with _lock:
        for metric in (MIRROR_LAG, FILES):
            _series[metric.name].pop(table, None)


class Stopwatch:
    """Milliseconds since it was made."""

    __slots__ = ("_start",)

    def __init__(self) -> None:
        self._start = time.perf_counter()

    @property
    def milliseconds(self) -> float:
        return (time.perf_counter() - self._start) * 1000


# -- log events


class _JsonText:
    """JSON made only when a handler prints it."""

    __slots__ = ("_fields",)

    def __init__(self, fields: Mapping[str, Any]) -> None:
        self._fields = fields

    def __str__(self) -> str:
        return json.dumps(self._fields, ensure_ascii=False, default=str)


@_never_raises
def log_event(name: str, *, level: int = logging.INFO, **fields: Any) -> None:
    """One structured record: its text is `name {json}`, its attribute `event` the same as a dict, secrets masked."""
    if not events.isEnabledFor(level):
        return
    event = {"event": name, **{key: _masked(value) for key, value in fields.items() if value is not None}}
    events.log(level, "%s %s", name, _JsonText(event), extra={"event": event})


def _masked(value: Any) -> Any:
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, Mapping):
        return {str(key): _masked(item) for key, item in value.items()}
    return [_masked(item) for item in value] if isinstance(value, list | tuple) else value


# -- counting


def _line(metric: Described, label: str) -> _Series:
    lines = _series[metric.name]
    line = lines.get(label)
    if line is None:
        if len(lines) >= MAX_SERIES:
            return lines.setdefault("other", _Series())
        line = lines[label] = _Series(buckets=[0] * (len(BUCKETS_MS) + 1) if metric.kind == "histogram" else [])
    return line


def _observe(metric: Described, milliseconds: float) -> None:
    with _lock:
        line = _line(metric, "")
        line.value += milliseconds
        line.buckets[bisect_left(BUCKETS_MS, milliseconds)] += 1
    _tell_otel(metric, milliseconds, "")


def _add(metric: Described, label: str) -> None:
    with _lock:
        _line(metric, label).value += 1
    _tell_otel(metric, 1, label)


def _set(metric: Described, label: str, value: float) -> None:
    with _lock:
        _line(metric, label).value = value
    _tell_otel(metric, value, label)


def _lines(metric: Described) -> list[tuple[str, float, list[int]]]:
    """The series of a metric as they are now."""
    with _lock:
        return [(label, line.value, list(line.buckets)) for label, line in _series[metric.name].items()]


# -- Prometheus


class MetricsCollector:
    """Our metrics as prometheus-client wants them: `REGISTRY.register(telemetry.MetricsCollector())`."""

    def collect(self) -> Iterator[Metric]:
        from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

        for metric in METRICS:
            name, labels = PREFIX + metric.name, [metric.label] if metric.label else []
            if metric.kind == "histogram":
                histogram = HistogramMetricFamily(name, metric.help, labels=labels)
                for _, total, counts in _lines(metric) or [("", 0.0, [0] * (len(BUCKETS_MS) + 1))]:
                    histogram.add_metric([], _cumulative(counts), total)
                yield histogram
                continue
            kind = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
            family = kind(name, metric.help, labels=labels)
            for label, value, _ in _lines(metric):
                family.add_metric([label], value)
            yield family


def _cumulative(counts: Sequence[int]) -> list[tuple[str, float]]:
    """Prometheus counts in each bucket what is in the smaller ones too."""
    sofar, buckets = 0, []
    for edge, count in zip([*map(str, map(float, BUCKETS_MS)), "+Inf"], counts, strict=True):
        sofar += count
        buckets.append((edge, float(sofar)))
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


# -- OpenTelemetry


class _Instruments:
    """The same metrics as instruments of the application's meter provider; none before it has one."""

    def __init__(self, provider: Any) -> None:
        self.provider = provider
        self._made: dict[str, Callable[..., None]] = {}
        # Until the application sets a provider up there is a stand-in, of a private class.
        if type(provider).__name__.startswith("_Proxy"):
            return
        meter = provider.get_meter("deltalakedb")
        for metric in METRICS:
            name = PREFIX + metric.name
            if metric.kind == "histogram":
                self._made[metric.name] = meter.create_histogram(name, "ms", metric.help).record
            elif metric.kind == "counter":
                self._made[metric.name] = meter.create_counter(name, "", metric.help).add
            else:
                meter.create_observable_gauge(name, [_observed(metric)], "", metric.help)

    def record(self, metric: Described, value: float, label: str) -> None:
        if metric.name in self._made:
            self._made[metric.name](value, {metric.label: label} if metric.label else {})


def _observed(metric: Described) -> Callable[[Any], list[Any]]:
    def observe(_options: Any) -> list[Any]:
        from opentelemetry.metrics import Observation

        return [Observation(value, {metric.label: label}) for label, value, _ in _lines(metric)]

    return observe


_otel: _Instruments | None = None


def _tell_otel(metric: Described, value: float, label: str) -> None:
    """Pass a value on to the application's meters; whoever has set them up has imported their module."""
    global _otel
    metrics = sys.modules.get("opentelemetry.metrics")
    if metrics is None:
        return
    provider = metrics.get_meter_provider()
    if _otel is None or _otel.provider is not provider:
        _otel = _Instruments(provider)
    _otel.record(metric, value, label)


_NO_SPAN: AbstractContextManager[None] = nullcontext()


def span(name: str, **attributes: str | int | float | bool) -> AbstractContextManager[None]:
    """A span around a block; nothing at all unless the application has set up an OpenTelemetry tracer."""
    trace = sys.modules.get("opentelemetry.trace")
    if trace is None:
        return _NO_SPAN
    try:
        provider = trace.get_tracer_provider()
        if isinstance(provider, trace.ProxyTracerProvider):
            return _NO_SPAN
        masked = {key: _masked(value) for key, value in attributes.items()}
        # The error's text is added by us, masked: the tracer's own way would keep it as it is.
        plain = {"record_exception": False, "set_status_on_exception": False}
        return _Span(provider.get_tracer("deltalakedb").start_as_current_span(name, attributes=masked, **plain))
    except Exception:
        logger.debug("no span could be opened for %s", name, exc_info=True)
        return _NO_SPAN


class _Span:
    """A span of OpenTelemetry that fails nobody: not when it is entered, not when it is left."""

    __slots__ = ("_manager", "_span")

    def __init__(self, manager: Any) -> None:
        self._manager: Any = manager
        self._span: Any = None

    @_never_raises
    def __enter__(self) -> None:
        self._span = self._manager.__enter__()

    @_never_raises
    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: Any) -> None:
        if self._span is None:
            return
        if error is not None:
            from opentelemetry.trace import Status, StatusCode

            self._span.set_attribute("error.type", type(error).__name__)
            self._span.set_status(Status(StatusCode.ERROR, redact(str(error))))
        self._manager.__exit__(None, None, None)


_reset()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset)
