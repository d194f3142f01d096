"""What `deltalake` sets for a whole process: tracing, nanoseconds, the core's version."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

import deltalakedb
from deltalakedb.warnings import ExperimentalWarning


def test_tracing_without_an_exporter_says_what_to_install() -> None:
    with pytest.raises(RuntimeError, match="pip install opentelemetry-sdk"):
        deltalakedb.init_tracing()


def test_spans_go_to_the_endpoint_that_was_named() -> None:
    """In a process of its own: a tracer is set once. The exporter stands in for the one that would send them."""
    script = """
        import sys, types
        from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
        class OTLPSpanExporter(SpanExporter):
            def __init__(self, endpoint=None):
                print("endpoint", endpoint)
            def export(self, spans):
                print(*[span.name for span in spans])
                return SpanExportResult.SUCCESS
        path = "opentelemetry.exporter"
        for part in ("", ".otlp", ".otlp.proto", ".otlp.proto.http", ".otlp.proto.http.trace_exporter"):
            sys.modules[path + part] = types.ModuleType(path + part)
        sys.modules[path + ".otlp.proto.http.trace_exporter"].OTLPSpanExporter = OTLPSpanExporter
        import deltalakedb
        from deltalakedb import telemetry
        deltalakedb.init_tracing("http://collector:4318/v1/traces")
        with telemetry.span("one.step"):
            pass
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout.split("\n")[:2] == ["endpoint http://collector:4318/v1/traces", "one.step"], done.stderr


def test_nanosecond_timestamps_are_refused_as_by_a_deltalake_without_them() -> None:
    with pytest.raises(RuntimeError, match="microseconds"):
        deltalakedb.enable_nanosecond_timestamps()


def test_the_core_has_the_version_of_the_package() -> None:
    assert deltalakedb.rust_core_version() == deltalakedb.__version__


def test_the_warning_is_a_warning() -> None:
    assert issubclass(ExperimentalWarning, Warning)
