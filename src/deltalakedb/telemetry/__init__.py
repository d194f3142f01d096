"""Telemetry: counts and times what the package does, opens spans, and writes one log event per commit.

Recording never raises and imports nothing: prometheus-client is loaded when the metrics are requested, OpenTelemetry is
used if the application has set it up.
"""

from deltalakedb.telemetry.events import events, log_event
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
    METRICS,
    PREFIX,
    VERSIONS,
    Described,
    total_of,
    value_of,
)
from deltalakedb.telemetry.prometheus import MetricsCollector, exposition
from deltalakedb.telemetry.reports import (
    CommittedVersion,
    Stopwatch,
    capture_batch,
    capture_failed,
    capture_lag,
    capture_slot,
    capture_tables,
    conflict,
    files_active,
    forget_table,
    mirror_failed,
    mirror_lag,
    observe_commit,
    observe_mirror,
    observe_open,
)
from deltalakedb.telemetry.spans import record_spans, span

__all__ = [
    "CDC_BATCHES",
    "CDC_BATCH_SECONDS",
    "CDC_FAILURES",
    "CDC_LAG_BYTES",
    "CDC_LAG_SECONDS",
    "CDC_ROWS",
    "CDC_SLOT_LEFT",
    "CDC_SLOT_RETAINED",
    "CDC_TABLE_CHANGED",
    "CDC_TABLE_STREAMING",
    "METRICS",
    "PREFIX",
    "VERSIONS",
    "CommittedVersion",
    "Described",
    "MetricsCollector",
    "Stopwatch",
    "capture_batch",
    "capture_failed",
    "capture_lag",
    "capture_slot",
    "capture_tables",
    "conflict",
    "events",
    "exposition",
    "files_active",
    "forget_table",
    "log_event",
    "mirror_failed",
    "mirror_lag",
    "observe_commit",
    "observe_mirror",
    "observe_open",
    "record_spans",
    "span",
    "total_of",
    "value_of",
]
