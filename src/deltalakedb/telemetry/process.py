"""Functions of `deltalake` for the whole process: tracing, nanosecond timestamps, the version of the core."""

from __future__ import annotations

import atexit
import os
from importlib import import_module

from deltalakedb.runtime.arguments import check_text
from deltalakedb.runtime.version import __version__
from deltalakedb.telemetry import record_spans

DEFAULT_ENDPOINT = "http://localhost:4318/v1/traces"


def init_tracing(endpoint: str | None = None) -> None:
    """Send spans to an OTLP endpoint over HTTP, until the process ends.

    The default endpoint is OTEL_EXPORTER_OTLP_ENDPOINT, else a collector on this machine. If the application has its
    own tracer, call `telemetry.record_spans` instead.
    """
    check_text(endpoint)
    try:
        from opentelemetry import trace
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        exporter = import_module("opentelemetry.exporter.otlp.proto.http.trace_exporter").OTLPSpanExporter
    except ImportError as error:
        raise RuntimeError(
            "tracing cannot be set up: pip install opentelemetry-sdk opentelemetry-exporter-otlp-proto-http"
        ) from error
    otlp_endpoint = endpoint or (None if os.environ.get("OTEL_EXPORTER_OTLP_ENDPOINT") else DEFAULT_ENDPOINT)
    provider = TracerProvider(resource=Resource.create({"service.name": "deltalakedb"}), shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(exporter(endpoint=otlp_endpoint)))
    trace.set_tracer_provider(provider)
    record_spans()
    atexit.register(provider.shutdown)


def enable_nanosecond_timestamps() -> None:
    """Raise RuntimeError: Delta's timestamps have microseconds, and other readers do not know the experimental type."""
    raise RuntimeError(
        "nanosecond timestamps are no type of the Delta protocol, and this package does not write them; store "
        "microseconds, or nanoseconds as a long"
    )


def rust_core_version() -> str:
    """Return the version of the core. There is no Rust core here, so it is the package's version."""
    return __version__
