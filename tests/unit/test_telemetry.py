"""Telemetry counts what it is told, exports it twice, keeps secrets, and never fails or slows down who reports."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from deltalakedb import telemetry
from deltalakedb.exceptions import MissingExtraError
from deltalakedb.log.protocol.actions import AddFile, RemoveFile
from deltalakedb.telemetry import CommittedVersion


@pytest.fixture(autouse=True)
def from_nothing() -> Iterator[None]:
    telemetry.metrics.reset()
    yield
    telemetry.metrics.reset()


def samples() -> dict[str, float]:
    lines = [line for line in telemetry.exposition().decode().splitlines() if not line.startswith("#")]
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}


def added(size: int) -> AddFile:
    return AddFile(f"{size}.parquet", {}, size, 0, True)


def removed(size: int | None) -> RemoveFile:
    return RemoveFile(f"{size}.parquet", True, size=size)


def report_everything() -> None:
    telemetry.observe_open(0.4)
    telemetry.observe_commit(
        txn_id="t1",
        milliseconds=7,
        versions=[CommittedVersion("s.a", 3, "WRITE", 4, 10), CommittedVersion("s.b", 1, "DELETE", 2, 5)],
        message="nightly",
    )
    telemetry.conflict("ConcurrentAppendError")
    telemetry.observe_mirror(80_000)
    telemetry.mirror_failed("s.a", 3, OSError("disk full"))
    telemetry.mirror_lag("s.a", 2.5)


def test_the_metrics_are_those_of_the_public_surface() -> None:
    assert {telemetry.PREFIX + metric.name for metric in telemetry.METRICS} == {
        "deltalakedb_metadata_open_latency_ms",
        "deltalakedb_commit_latency_ms",
        "deltalakedb_mirror_latency_ms",
        "deltalakedb_mirror_lag_seconds",
        "deltalakedb_mirror_failures_total",
        "deltalakedb_versions_committed_total",
        "deltalakedb_commit_conflicts_total",
        "deltalakedb_files_active_gauge",
        "deltalakedb_cdc_lag_bytes",
        "deltalakedb_cdc_lag_seconds",
        "deltalakedb_cdc_rows_total",
        "deltalakedb_cdc_batches_total",
        "deltalakedb_cdc_batch_seconds",
        "deltalakedb_cdc_failures_total",
        "deltalakedb_cdc_slot_left_bytes",
        "deltalakedb_cdc_slot_retained_bytes",
        "deltalakedb_cdc_table_changed_seconds",
        "deltalakedb_cdc_table_streaming",
        "deltalakedb_iceberg_reports_total",
        "deltalakedb_spark_scans_total",
    }


def test_prometheus_reads_what_was_counted() -> None:
    report_everything()
    found = samples()
    assert found['deltalakedb_versions_committed_total{table="s.a"}'] == 1
    assert found['deltalakedb_versions_committed_total{table="s.b"}'] == 1
    assert found['deltalakedb_files_active_gauge{table="s.b"}'] == 5
    assert found['deltalakedb_commit_conflicts_total{reason="ConcurrentAppendError"}'] == 1
    assert found['deltalakedb_mirror_failures_total{table="s.a"}'] == 1
    assert found['deltalakedb_mirror_lag_seconds{table="s.a"}'] == 2.5
    assert found["deltalakedb_commit_latency_ms_sum"] == 7


def test_a_histogram_counts_each_value_in_its_bucket_and_all_larger_ones() -> None:
    for milliseconds in (0.5, 3, 3, 90_000):
        telemetry.observe_commit(txn_id="t", milliseconds=milliseconds, versions=[])
    found = samples()
    bucket = "deltalakedb_commit_latency_ms_bucket"
    assert [found[f'{bucket}{{le="{le}"}}'] for le in ("0.5", "2.0", "5.0", "60000.0", "+Inf")] == [1, 1, 3, 3, 4]
    assert found["deltalakedb_commit_latency_ms_count"] == 4


def test_before_anything_happened_the_histograms_are_there_and_empty() -> None:
    found = samples()
    assert found["deltalakedb_commit_latency_ms_count"] == 0
    assert not [name for name in found if "{table=" in name]


def test_an_application_serves_our_metrics_from_its_own_registry() -> None:
    from prometheus_client import CollectorRegistry, generate_latest

    registry = CollectorRegistry()
    registry.register(telemetry.MetricsCollector())
    telemetry.conflict("MetadataChangedError")
    assert b'deltalakedb_commit_conflicts_total{reason="MetadataChangedError"} 1.0' in generate_latest(registry)


def test_the_gauges_of_a_dropped_table_are_forgotten_and_its_counters_stay() -> None:
    report_everything()
    telemetry.forget_table("s.a")
    found = samples()
    assert 'deltalakedb_files_active_gauge{table="s.a"}' not in found
    assert 'deltalakedb_versions_committed_total{table="s.a"}' in found


def test_tables_beyond_the_limit_share_a_series(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(telemetry.metrics, "MAX_SERIES", 3)
    for number in range(10):
        telemetry.mirror_failed(f"s.t{number}", 0, "x")
    found = {name: value for name, value in samples().items() if "mirror_failures" in name}
    assert len(found) == 4
    assert found['deltalakedb_mirror_failures_total{table="other"}'] == 7


def test_one_commit_is_one_structured_log_event(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="deltalakedb.events"):
        telemetry.observe_commit(
            txn_id="t1",
            milliseconds=1.23456,
            committed_at_ms=99,
            versions=[
                CommittedVersion("s.a", 3, "WRITE", 4, 10, 7, [added(100), added(20), removed(50)]),
                CommittedVersion("s.b", 1, "CREATE TABLE", 2),
            ],
            actor="ann",
        )
    (record,) = caplog.records
    event = record.__dict__["event"]
    assert event == {
        "event": "commit",
        "txn_id": "t1",
        "committed_at_ms": 99,
        "milliseconds": 1.235,
        "attempts": 1,
        "actor": "ann",
        "num_added_files": 2,
        "added_bytes": 120,
        "num_removed_files": 1,
        "removed_bytes": 50,
        "versions": [
            {
                "table": "s.a",
                "table_id": 7,
                "version": 3,
                "operation": "WRITE",
                "num_actions": 4,
                "num_added_files": 2,
                "added_bytes": 120,
                "num_removed_files": 1,
                "removed_bytes": 50,
            },
            {
                "table": "s.b",
                "version": 1,
                "operation": "CREATE TABLE",
                "num_actions": 2,
                "num_added_files": 0,
                "added_bytes": 0,
                "num_removed_files": 0,
                "removed_bytes": 0,
            },
        ],
    }
    assert record.getMessage().startswith('commit {"event": "commit", "txn_id": "t1"')


def test_a_commit_event_counts_removed_files_of_unknown_size_apart(caplog: pytest.LogCaptureFixture) -> None:
    actions = [removed(30), removed(None), removed(None)]
    with caplog.at_level(logging.INFO, logger="deltalakedb.events"):
        telemetry.observe_commit(
            txn_id="t1", milliseconds=1, versions=[CommittedVersion("s.a", 3, actions=actions)], repeated=True
        )
    event = caplog.records[0].__dict__["event"]
    for fields in (event, event["versions"][0]):
        assert (fields["num_removed_files"], fields["removed_bytes"], fields["num_removed_without_size"]) == (3, 30, 2)
    assert event["repeated"] is True


def test_secrets_never_reach_a_log_event(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="deltalakedb.events"):
        telemetry.mirror_failed("s.a", 1, "cannot reach s3://b with secret_access_key=hunter2")
        telemetry.log_event("x", deep={"list": ["postgresql://u:hunter2@h/db"]})
    assert len(caplog.records) == 2
    assert "hunter2" not in caplog.text + str([record.__dict__["event"] for record in caplog.records])


def test_recording_never_raises(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, logger="deltalakedb.telemetry"):
        telemetry.observe_commit(txn_id="t", milliseconds="soon", versions=None)  # type: ignore[arg-type]
    assert "could not record observe_commit" in caplog.text


def test_without_listeners_a_report_costs_less_than_writing_one_down() -> None:
    versions = [CommittedVersion("s.a", 3, "WRITE", 4, 10)]

    def report() -> None:
        with telemetry.span("sql.commit", table="s.a"):
            telemetry.observe_commit(txn_id="t1", milliseconds=7, versions=versions)

    def write_down() -> None:
        fields = {"event": "commit", "txn_id": "t1", "milliseconds": 7, "versions": [vars(one) for one in written]}
        json.loads(json.dumps(fields))

    written = [SimpleNamespace(table="s.a", version=3, operation="WRITE", files=4, rows=10)] * 2

    def fastest(call: Callable[[], None], rounds: int = 2_000) -> float:
        def once() -> float:
            start = time.thread_time()
            for _ in range(rounds):
                call()
            return time.thread_time() - start

        return min(once() for _ in range(10))

    assert fastest(report) < fastest(write_down)


def test_a_forked_child_counts_for_itself() -> None:
    telemetry.conflict("X")
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(write, str(telemetry.value_of(telemetry.metrics.CONFLICTS, "X")).encode())
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert os.read(read, 10) == b"None"
    assert samples()['deltalakedb_commit_conflicts_total{reason="X"}'] == 1
    os.close(read)
    os.close(write)


def test_without_prometheus_the_metrics_say_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(MissingExtraError, match="serve"):
        telemetry.exposition()


def python(script: str) -> str:
    """A process of its own: OpenTelemetry's providers can be set once only."""
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_reporting_imports_neither_prometheus_nor_opentelemetry() -> None:
    out = python("""
        import sys
        from deltalakedb import telemetry
        with telemetry.span("a", table="t"):
            telemetry.observe_open(1)
        print([m for m in sys.modules if m.startswith(("prometheus", "opentelemetry"))])
    """)
    assert out.strip() == "[]"


def test_spans_reach_the_tracer_that_the_application_set_up_with_secrets_masked() -> None:
    out = python("""
        from deltalakedb import telemetry
        from opentelemetry import trace
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import SimpleSpanProcessor
        from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
        telemetry.record_spans()
        with telemetry.span("before any tracer"):
            pass
        spans = InMemorySpanExporter()
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(spans))
        trace.set_tracer_provider(provider)
        try:
            with telemetry.span("sql.commit", table="s.a", versions=2):
                with telemetry.span("mirror.put", url="s3://u:hunter2@b"):
                    raise ValueError("password=hunter2 is wrong")
        except ValueError:
            pass
        for span in spans.get_finished_spans():
            print(span.name, dict(span.attributes), span.status.status_code.name, span.status.description,
                  span.parent is not None)
    """)
    assert out.splitlines() == [
        "mirror.put {'url': 's3://u:***@b', 'error.type': 'ValueError'} ERROR password=*** is wrong True",
        "sql.commit {'table': 's.a', 'versions': 2, 'error.type': 'ValueError'} ERROR password=*** is wrong False",
    ]


def test_the_same_values_reach_opentelemetry_meters() -> None:
    out = python("""
        from deltalakedb import telemetry
        from opentelemetry import metrics
        from opentelemetry.sdk.metrics import MeterProvider
        from opentelemetry.sdk.metrics.export import InMemoryMetricReader
        telemetry.conflict("before any meter")
        reader = InMemoryMetricReader()
        metrics.set_meter_provider(MeterProvider([reader]))
        telemetry.conflict("X")
        telemetry.conflict("X")
        telemetry.observe_mirror(12)
        telemetry.mirror_lag("s.a", 3)
        for scope in reader.get_metrics_data().resource_metrics[0].scope_metrics:
            for metric in scope.metrics:
                for point in metric.data.data_points:
                    print(metric.name, dict(point.attributes), getattr(point, "value", None) or point.sum)
    """)
    assert sorted(out.splitlines()) == [
        "deltalakedb_commit_conflicts_total {'reason': 'X'} 2",
        "deltalakedb_mirror_lag_seconds {'table': 's.a'} 3",
        "deltalakedb_mirror_latency_ms {} 12",
    ]


def test_a_commit_opens_spans_around_its_transaction_and_each_file_it_writes(tmp_path: Path) -> None:
    out = python(f"""
        import deltalakedb as dl, logging, pyarrow as pa
        from deltalakedb import telemetry
        from opentelemetry import trace
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import SimpleSpanProcessor
        from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
        logging.basicConfig(level=logging.INFO, format="%(message)s", stream=__import__("sys").stdout)
        with dl.connect({str(tmp_path / "c.db")!r}, warehouse={str(tmp_path / "lake")!r}) as cat:
            cat.create_table("s.t", "id long")
            spans = InMemorySpanExporter()
            provider = TracerProvider()
            provider.add_span_processor(SimpleSpanProcessor(spans))
            trace.set_tracer_provider(provider)
            with cat.begin(message="one") as tx:
                tx.write("s.t", pa.table({{"id": [1]}}), mode="append")
            cat.table("s.t")
            cat.mirror.flush()
        for span in spans.get_finished_spans():
            print(span.name, str(span.attributes.get("file", ""))[-8:])
        print(telemetry.exposition().decode())
    """)
    lines = out.splitlines()
    assert {
        "deltalakedb.put .parquet",
        "deltalakedb.commit ",
        "deltalakedb.put 001.json",
        "deltalakedb.mirror ",
        "deltalakedb.put 0001.crc",
    } <= set(lines)
    assert any(line.startswith('commit {"event": "commit"') and '"message": "one"' in line for line in lines)
    assert 'deltalakedb_versions_committed_total{table="s.t"} 2.0' in lines
    assert 'deltalakedb_files_active_gauge{table="s.t"} 1.0' in lines
    assert "deltalakedb_commit_latency_ms_count 2.0" in lines
    assert "deltalakedb_mirror_latency_ms_count 2.0" in lines
    assert not [line for line in lines if line == "deltalakedb_metadata_open_latency_ms_count 0.0"]


def test_what_deltalake_names_puts_no_span_into_the_applications_tracer(tmp_path: Path) -> None:
    out = python(f"""
        import os
        os.environ["DL_WAREHOUSE"] = {str(tmp_path / "lake")!r}
        import deltalakedb as dl, pyarrow as pa
        from opentelemetry import trace
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import SimpleSpanProcessor
        from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
        spans = InMemorySpanExporter()
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(spans))
        trace.set_tracer_provider(provider)
        for address in ({str(tmp_path / "t")!r}, "deltasql://sqlite/{tmp_path / "c.db"}?table=s.t"):
            dl.write_deltalake(address, pa.table({{"id": [1]}}))
            assert dl.DeltaTable(address).to_pyarrow_table().num_rows == 1
        print(len(spans.get_finished_spans()))
    """)
    assert out.strip() == "0"
