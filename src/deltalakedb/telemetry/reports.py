"""Reports what happens, without secrets: log events, spans, and a function for each metric; recording never raises."""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, astuple, dataclass
from functools import wraps
from typing import Any, ParamSpec

from deltalakedb.exceptions import redact
from deltalakedb.log.protocol.actions import Action, AddFile, RemoveFile
from deltalakedb.telemetry import metrics
from deltalakedb.telemetry.metrics import (
    CDC_BATCH_SECONDS,
    CDC_BATCHES,
    CDC_FAILURES,
    CDC_LAG_BYTES,
    CDC_LAG_SECONDS,
    CDC_ROWS,
    CDC_SLOT_LEFT,
    CDC_SLOT_RETAINED,
    CDC_TABLE_CHANGED,
    CDC_TABLE_STREAMING,
    COMMIT_LATENCY,
    CONFLICTS,
    FILES,
    ICEBERG_REPORTS,
    METRICS,
    MIRROR_FAILURES,
    MIRROR_LAG,
    MIRROR_LATENCY,
    OPEN_LATENCY,
    PREFIX,
    SPARK_SCANS,
    VERSIONS,
    Described,
    lines_of,
)

logger = logging.getLogger("deltalakedb.telemetry")
P = ParamSpec("P")


def never_raises(function: Callable[P, None]) -> Callable[P, None]:
    """Log an error at level DEBUG instead of raising it."""

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            function(*args, **kwargs)
        except Exception:  # no commit may fail because it could not be counted
            logger.debug("telemetry could not record %s", function.__name__, exc_info=True)

    return call


events = logging.getLogger("deltalakedb.events")
events.addHandler(logging.NullHandler())  # without a handler Python prints warnings to stderr


class _JsonText:
    """JSON that is rendered only when a handler formats the record."""

    __slots__ = ("_fields",)

    def __init__(self, fields: Mapping[str, Any]) -> None:
        self._fields = fields

    def __str__(self) -> str:
        return json.dumps(self._fields, ensure_ascii=False, default=str)


@never_raises
def log_event(name: str, *, level: int = logging.INFO, **fields: Any) -> None:
    """Log a structured record: its text is `name {json}`, its attribute `event` the same as a dict, secrets masked."""
    if not events.isEnabledFor(level):
        return
    event = {"event": name, **{key: masked(value) for key, value in fields.items() if value is not None}}
    events.log(level, "%s %s", name, _JsonText(event), extra={"event": event})


def masked(value: Any) -> Any:
    """A value of an event or a span, with the secrets in its texts masked."""
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, Mapping):
        return {str(key): masked(item) for key, item in value.items()}
    return [masked(item) for item in value] if isinstance(value, list | tuple) else value


_NO_SPAN: AbstractContextManager[None] = nullcontext()
_recording = False


def record_spans() -> None:
    """Open spans from now on. Without this none is opened, as in `deltalake`."""
    global _recording
    _recording = True


def span(name: str, **attributes: str | int | float | bool) -> AbstractContextManager[None]:
    """A span around a block; does nothing unless spans are recorded and the application has set up a tracer."""
    trace = sys.modules.get("opentelemetry.trace") if _recording else None
    if trace is None:
        return _NO_SPAN
    try:
        provider = trace.get_tracer_provider()
        if isinstance(provider, trace.ProxyTracerProvider):
            return _NO_SPAN
        safe = {key: masked(value) for key, value in attributes.items()}
        # We add the error's text, masked: the tracer would record it unmasked.
        exception_options = {"record_exception": False, "set_status_on_exception": False}
        return _Span(
            provider.get_tracer("deltalakedb").start_as_current_span(name, attributes=safe, **exception_options)
        )
    except Exception:  # as in `never_raises`: an error in the application's tracer must not fail the operation
        logger.debug("no span could be opened for %s", name, exc_info=True)
        return _NO_SPAN


class _Span:
    """An OpenTelemetry span that never raises when it is entered or left."""

    __slots__ = ("_manager", "_span")

    def __init__(self, manager: Any) -> None:
        self._manager: Any = manager
        self._span: Any = None

    @never_raises
    def __enter__(self) -> None:
        self._span = self._manager.__enter__()

    @never_raises
    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: Any) -> None:
        if self._span is None:
            return
        if error is not None:
            from opentelemetry.trace import Status, StatusCode

            self._span.set_attribute("error.type", type(error).__name__)
            self._span.set_status(Status(StatusCode.ERROR, redact(str(error))))
        self._manager.__exit__(None, None, None)


@dataclass(frozen=True, slots=True)
class CommittedVersion:
    """One version of a commit, for its metrics and its log event."""

    table: str
    version: int
    operation: str = ""
    num_actions: int = 0
    num_files: int | None = None
    """Live files after the commit."""
    table_id: int | None = None
    actions: Sequence[Action] = ()
    """The actions of the commit; read only if log events are enabled."""


@dataclass(frozen=True, slots=True)
class FileChanges:
    """The number and size of the files that commits add and remove, from their actions."""

    num_added_files: int = 0
    added_bytes: int = 0
    num_removed_files: int = 0
    removed_bytes: int = 0
    num_removed_without_size: int = 0
    """Removed files whose action has no size, which is optional; `removed_bytes` does not include them."""

    @classmethod
    def of(cls, actions: Iterable[Action]) -> FileChanges:
        added_sizes: list[int] = []
        removed_sizes: list[int | None] = []
        for action in actions:
            if isinstance(action, AddFile):
                added_sizes.append(action.size)
            elif isinstance(action, RemoveFile):
                removed_sizes.append(action.size)
        sizes = [size for size in removed_sizes if size is not None]
        return cls(len(added_sizes), sum(added_sizes), len(removed_sizes), sum(sizes), len(removed_sizes) - len(sizes))

    def __add__(self, other: FileChanges) -> FileChanges:
        return FileChanges(*(mine + theirs for mine, theirs in zip(astuple(self), astuple(other), strict=True)))

    def to_fields(self) -> dict[str, int]:
        """The fields of an event; the number of files without a size only if there are some."""
        fields = asdict(self)
        if not self.num_removed_without_size:
            del fields["num_removed_without_size"]
        return fields


@never_raises
def observe_open(milliseconds: float) -> None:
    """Record the opening of a table."""
    _record(OPEN_LATENCY, value=milliseconds)


@never_raises
def observe_commit(
    *,
    txn_id: str,
    milliseconds: float,
    versions: Sequence[CommittedVersion],
    committed_at_ms: int | None = None,
    attempts: int = 1,
    actor: str | None = None,
    message: str | None = None,
    repeated: bool = False,
) -> None:
    """Record a transaction that was committed in SQL, once however many tables it has.

    `repeated`: an earlier attempt had committed it, which is known only now.
    """
    _record(COMMIT_LATENCY, value=milliseconds)
    for version in versions:
        _record(VERSIONS, version.table)
        if version.num_files is not None:
            _record(FILES, version.table, value=version.num_files)
    if events.isEnabledFor(logging.INFO):
        changes = [FileChanges.of(version.actions) for version in versions]
        log_event(
            "commit",
            txn_id=txn_id,
            committed_at_ms=committed_at_ms,
            milliseconds=round(milliseconds, 3),
            attempts=attempts,
            actor=actor,
            message=message,
            repeated=repeated or None,
            **sum(changes, FileChanges()).to_fields(),
            versions=[_version_fields(*version_changes) for version_changes in zip(versions, changes, strict=True)],
        )


def _version_fields(version: CommittedVersion, changes: FileChanges) -> dict[str, object]:
    return {
        "table": version.table,
        **({} if version.table_id is None else {"table_id": version.table_id}),
        "version": version.version,
        "operation": version.operation,
        "num_actions": version.num_actions,
        **changes.to_fields(),
    }


@never_raises
def conflict(reason: str) -> None:
    """Record a refused commit; the reason is the name of its exception."""
    _record(CONFLICTS, reason)


@never_raises
def iceberg_report(report: str) -> None:
    """Count a report that an Iceberg client sent about a scan or a commit of its own."""
    _record(ICEBERG_REPORTS, report)


@never_raises
def spark_scan(planner: str, reason: str = "") -> None:
    """Count a scan of Spark SQL that the `database` planned, or that was left to `delta` for a reason."""
    _record(SPARK_SCANS, planner, reason)


@never_raises
def observe_mirror(milliseconds: float) -> None:
    """Record a commit that was written into `_delta_log`."""
    _record(MIRROR_LATENCY, value=milliseconds)


@never_raises
def mirror_failed(table: str, version: int, error: BaseException | str) -> None:
    """Record that a version could not be written into `_delta_log`; it is retried."""
    _record(MIRROR_FAILURES, table)
    log_event("mirror_failed", level=logging.WARNING, table=table, version=version, error=str(error))


@never_raises
def mirror_lag(table: str, seconds: float) -> None:
    """Set the age of the oldest commit that `_delta_log` lacks; 0 if it has all."""
    _record(MIRROR_LAG, table, value=seconds)


@never_raises
def files_active(table: str, num_files: int) -> None:
    """Set the number of live files at the head."""
    _record(FILES, table, value=num_files)


@never_raises
def forget_table(table: str) -> None:
    """Drop the gauges of a table that was dropped, renamed or detached; otherwise they would keep their last values."""
    for metric in (MIRROR_LAG, FILES):
        metrics.forget(metric, (table,))


@never_raises
def capture_batch(slot: str, seconds: float, rows: Mapping[tuple[str, str], int]) -> None:
    """Record a committed batch of a capture, with its number of changes by source table and operation."""
    _record(CDC_BATCH_SECONDS, value=seconds)
    _record(CDC_BATCHES, slot)
    for (table, op), count in rows.items():
        _record(CDC_ROWS, table, op, value=count)
    for table in {table for table, _ in rows}:
        _record(CDC_TABLE_CHANGED, slot, table, value=time.time())


@never_raises
def capture_slot(slot: str, *, retained_bytes: int, left_bytes: int | None) -> None:
    """Set how much log the source keeps for a capture's slot, and how much is left; None: limited only by the disk."""
    _record(CDC_SLOT_RETAINED, slot, value=retained_bytes)
    if left_bytes is None:
        metrics.forget(CDC_SLOT_LEFT, (slot,))
    else:
        _record(CDC_SLOT_LEFT, slot, value=left_bytes)


@never_raises
def capture_tables(slot: str, streaming: Mapping[str, bool]) -> None:
    """Set which of its source tables a capture is following."""
    for table, is_streaming in streaming.items():
        _record(CDC_TABLE_STREAMING, slot, table, value=float(is_streaming))


@never_raises
def capture_lag(slot: str, *, num_bytes: int | None = None, seconds: float | None = None) -> None:
    """Set how far a capture is behind its source; None keeps the last value."""
    if num_bytes is not None:
        _record(CDC_LAG_BYTES, slot, value=num_bytes)
    if seconds is not None:
        _record(CDC_LAG_SECONDS, slot, value=seconds)


@never_raises
def capture_failed(slot: str, error: BaseException) -> None:
    """Record a failure of a capture, in the stream or in its upkeep; the event has the error."""
    _record(CDC_FAILURES, slot, type(error).__name__)
    log_event("cdc_failed", level=logging.WARNING, slot=slot, error=f"{type(error).__name__}: {error}")


# -- each value is counted here, and passed on to the application's meters if it has any


def _record(metric: Described, *labels: str, value: float = 1) -> None:
    metrics.record(metric, labels, value)
    if "opentelemetry.metrics" in sys.modules:
        _record_in_meters(metric, value, labels)


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


def _record_in_meters(metric: Described, value: float, labels: tuple[str, ...]) -> None:
    """Record a value in the application's meters, if it has set them up."""
    global _instruments
    provider = sys.modules["opentelemetry.metrics"].get_meter_provider()
    if _instruments is None or _instruments.provider is not provider:
        _instruments = _Instruments(provider)
    _instruments.record(metric, value, labels)


def _forget_instruments() -> None:
    """Reset the instruments in a forked child, which creates its own."""
    global _instruments
    _instruments = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_instruments)
