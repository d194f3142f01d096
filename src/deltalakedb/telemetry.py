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
BUCKETS_SECONDS = (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300)
MAX_SERIES = 10_000
"""Tables a metric tells apart; those that come later share the label `other`: a process must not grow for ever."""

events = logging.getLogger("deltalakedb.events")
events.addHandler(logging.NullHandler())  # for who listens; without it Python prints warnings nobody asked for
logger = logging.getLogger(__name__)
P = ParamSpec("P")


@dataclass(frozen=True, slots=True)
class Described:
    """A metric: its name without prefix, what it says, and the labels its series differ by."""

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
)


@dataclass(slots=True)
class _Series:
    """One line of a metric: a value, or for a histogram its sum and how many fell into each bucket."""

    value: float = 0.0
    buckets: list[int] = field(default_factory=list)


_series: dict[str, dict[tuple[str, ...], _Series]] = {}
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
            _series[metric.name].pop((table,), None)


@_never_raises
def capture_batch(slot: str, seconds: float, rows: Mapping[tuple[str, str], int]) -> None:
    """A batch of a capture was committed, with so many changes by source table and operation."""
    _observe(CDC_BATCH_SECONDS, seconds)
    _add(CDC_BATCHES, slot)
    for (table, op), count in rows.items():
        _add(CDC_ROWS, table, op, value=count)


@_never_raises
def capture_lag(slot: str, *, num_bytes: int | None = None, seconds: float | None = None) -> None:
    """How far a capture is behind its source; what is None stays as it was."""
    if num_bytes is not None:
        _set(CDC_LAG_BYTES, slot, num_bytes)
    if seconds is not None:
        _set(CDC_LAG_SECONDS, slot, seconds)


@_never_raises
def capture_failed(slot: str, error: BaseException) -> None:
    """Something of a capture failed; what it was, the stream or its upkeep, says the event."""
    _add(CDC_FAILURES, slot, type(error).__name__)
    log_event("cdc_failed", level=logging.WARNING, slot=slot, error=f"{type(error).__name__}: {error}")


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


def _line(metric: Described, labels: tuple[str, ...]) -> _Series:
    lines = _series[metric.name]
    line = lines.get(labels)
    if line is None:
        if len(lines) >= MAX_SERIES:
            return lines.setdefault(("other",) * len(metric.labels), _Series())
        line = lines[labels] = _Series(buckets=[0] * (len(metric.buckets) + 1) if metric.kind == "histogram" else [])
    return line


def _observe(metric: Described, value: float) -> None:
    with _lock:
        line = _line(metric, ())
        line.value += value
        line.buckets[bisect_left(metric.buckets, value)] += 1
    _tell_otel(metric, value, ())


def _add(metric: Described, *labels: str, value: float = 1) -> None:
    with _lock:
        _line(metric, labels).value += value
    _tell_otel(metric, value, labels)


def _set(metric: Described, label: str, value: float) -> None:
    with _lock:
        _line(metric, (label,)).value = value
    _tell_otel(metric, value, (label,))


def value_of(metric: Described, *labels: str) -> float | None:
    """What a counter or gauge of this process says now; None before it was first told."""
    with _lock:
        line = _series[metric.name].get(labels)
        return None if line is None else line.value


def total_of(metric: Described) -> float:
    """All series of a counter together."""
    return sum(value for _, value, _ in _lines(metric))


def _lines(metric: Described) -> list[tuple[tuple[str, ...], float, list[int]]]:
    """The series of a metric as they are now."""
    with _lock:
        return [(labels, line.value, list(line.buckets)) for labels, line in _series[metric.name].items()]


# -- Prometheus


class MetricsCollector:
    """Our metrics as prometheus-client wants them: `REGISTRY.register(telemetry.MetricsCollector())`."""

    def collect(self) -> Iterator[Metric]:
        from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

        for metric in METRICS:
            name, labels = PREFIX + metric.name, list(metric.labels)
            if metric.kind == "histogram":
                histogram = HistogramMetricFamily(name, metric.help, labels=labels)
                for _, total, counts in _lines(metric) or [((), 0.0, [0] * (len(metric.buckets) + 1))]:
                    histogram.add_metric([], _cumulative(metric.buckets, counts), total)
                yield histogram
                continue
            kind = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
            family = kind(name, metric.help, labels=labels)
            for values, value, _ in _lines(metric):
                family.add_metric(list(values), value)
            yield family


def _cumulative(edges: Sequence[float], counts: Sequence[int]) -> list[tuple[str, float]]:
    """Prometheus counts in each bucket what is in the smaller ones too."""
    sofar, buckets = 0, []
    for edge, count in zip([*map(str, map(float, edges)), "+Inf"], counts, strict=True):
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
            Observation(value, dict(zip(metric.labels, labels, strict=True))) for labels, value, _ in _lines(metric)
        ]

    return observe


_otel: _Instruments | None = None


def _tell_otel(metric: Described, value: float, labels: tuple[str, ...]) -> None:
    """Pass a value on to the application's meters; whoever has set them up has imported their module."""
    global _otel
    metrics = sys.modules.get("opentelemetry.metrics")
    if metrics is None:
        return
    provider = metrics.get_meter_provider()
    if _otel is None or _otel.provider is not provider:
        _otel = _Instruments(provider)
    _otel.record(metric, value, labels)


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
