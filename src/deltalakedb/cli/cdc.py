"""`dl cdc`: change capture of a Postgres database: starts, shows, stops and changes a capture."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from deltalakedb.cli import cdc_output, output
from deltalakedb.cli.cdc_options import CHOICE, IDENTITY, OPTIONS, ConfigOption, settings_of, takes_settings
from deltalakedb.cli.options import CatalogOption, CommandGroup, DryRunOption, WarehouseOption, command, open_catalog
from deltalakedb.exceptions import CaptureError, ConfigError, MissingExtraError, redact
from deltalakedb.runtime.signals import ended_by_signal

if TYPE_CHECKING:
    from deltalakedb.catalog.catalog import Catalog
    from deltalakedb.cdc.settings import CaptureSettings

_VECTORS = (
    "new tables of current rows have deletion vectors; of the usual readers only to_pyarrow_table, to_pyarrow_dataset "
    "and to_pandas of deltalake do not read them: --no-deletion-vectors makes tables for these"
)

MetricsPortOption = Annotated[
    int | None,
    typer.Option(
        "--metrics-port",
        metavar="N",
        min=0,
        max=65535,
        help="Serve this process's metrics for Prometheus at http://127.0.0.1:N/metrics; 0 chooses a free port.",
    ),
]

group = typer.Typer(
    cls=CommandGroup, help="Change capture: a Postgres database as tables of the lake.", no_args_is_help=True
)


def add_to(app: typer.Typer) -> None:
    command(group, "start", start)
    command(group, "status", status)
    command(group, "stop", stop)
    command(group, "resnapshot", resnapshot)
    command(group, "apply", apply)
    app.add_typer(group, name="cdc")


@takes_settings(tuple(OPTIONS))
def start(
    keywords: dict[str, Any],
    once: Annotated[
        bool, typer.Option("--once", help="End when everything is captured that was committed before the start.")
    ] = False,
    metrics_port: MetricsPortOption = None,
    config: ConfigOption = None,
    warehouse: WarehouseOption = None,
    catalog: CatalogOption = None,
) -> None:
    """Capture the changes of a Postgres publication until SIGINT, SIGTERM or dl cdc stop; the last batch is finished.

    The first start copies the tables. Every later one continues where the last one ended, even if it was killed.
    """
    with (
        settings_of(config),
        open_catalog(catalog, creates=True, warehouse=warehouse) as cat,
        _warnings_to_stderr(),
    ):
        _start(cat, keywords, once=once, metrics_port=metrics_port)


def _start(cat: Catalog, keywords: dict[str, Any], *, once: bool, metrics_port: int | None) -> None:
    from deltalakedb.cdc.control import load_capture
    from deltalakedb.cdc.run.configured import load_settings
    from deltalakedb.cdc.run.start import check_before_spark, run_on_spark

    settings = load_settings(keywords, cat)
    check_before_spark(cat, settings)
    if settings.deletion_vectors and load_capture(cat, settings) is None:
        output.say(_VECTORS)
    output.say(f"capturing {settings.publication} into {cat.uri}; SIGINT, SIGTERM or dl cdc stop ends it")
    with (
        served_metrics(metrics_port),
        cdc_output.RunView(settings.slot) as view,
        ended_by_signal() as ended,
    ):
        try:
            report = run_on_spark(
                cat, settings, ended, once=once, progress=view, on_batch=view.batch_done, on_spark=view.spark_started
            )
        except KeyboardInterrupt:
            report = None
        if report is None or not report.lsn:  # starting Spark takes seconds and cannot be interrupted
            output.say("stopped before anything was captured")
            return
    if output.settings.json:
        output.emit_json(cdc_output.report_value(report), indent=None)
    output.say(str(report))
    if report.stopped:
        for source, reason in report.stopped.items():
            output.warn(f"{source} is stopped: {reason}")
        raise typer.Exit(1 if once else 0)


@takes_settings(IDENTITY)
def status(
    keywords: dict[str, Any],
    watch: Annotated[
        bool, typer.Option("--watch", help="Print the status again and again, until SIGINT or SIGTERM.")
    ] = False,
    interval: Annotated[
        float, typer.Option("--interval", metavar="SECONDS", min=0.1, help="With --watch: how often to print it.")
    ] = 2.0,
    config: ConfigOption = None,
    catalog: CatalogOption = None,
) -> None:
    """Show how far a capture is behind, which process runs it, its slot, and the state of each table.

    Exits with 1 if there are problems; each is listed with what to do.
    """
    from deltalakedb.cdc.run.configured import find_settings
    from deltalakedb.cdc.run.status import capture_status

    with settings_of(config), open_catalog(catalog) as cat:
        if not watch:
            capture_state = capture_status(cat, find_settings(cat, keywords))
            output.emit(capture_state.to_value(), lambda: cdc_output.show_status(capture_state))
            if capture_state.problems:
                raise typer.Exit(1)
            return
        with ended_by_signal() as ended:
            while not ended.is_set():
                capture_state = capture_status(cat, find_settings(cat, keywords))
                if output.settings.json:
                    output.emit_json(capture_state.to_value(), indent=None)
                else:
                    cdc_output.clear_screen()
                    cdc_output.show_status(capture_state)
                ended.wait(interval)


@takes_settings(IDENTITY)
def stop(
    keywords: dict[str, Any],
    timeout: Annotated[
        float, typer.Option("--timeout", metavar="SECONDS", min=0, help="How long to wait until it has stopped.")
    ] = 60.0,
    config: ConfigOption = None,
    catalog: CatalogOption = None,
) -> None:
    """Ask the process that runs a capture to stop, and wait until it has; the running batch is finished first."""
    from deltalakedb.cdc.run.configured import find_settings
    from deltalakedb.cdc.run.presence import request_stop
    from deltalakedb.cdc.source.postgres import connect, translate_errors

    with settings_of(config), open_catalog(catalog) as cat:
        settings = _with_source(find_settings(cat, keywords))
    with connect(settings.source) as conn, translate_errors():
        runner = request_stop(conn, settings.slot, timeout)
    ended = None if runner is None else {"pid": runner.pid, "host": runner.host}
    text = "no process runs the capture" if runner is None else f"stopped: {runner}"
    output.emit({"slot": settings.slot, "stopped": ended}, lambda: output.say(f"{settings.slot}: {text}"))


@takes_settings(IDENTITY)
def resnapshot(
    keywords: dict[str, Any],
    tables: Annotated[
        list[str] | None,
        typer.Argument(metavar="TABLE", help="Source tables, as schema.name; by default all."),
    ] = None,
    dry_run: DryRunOption = False,
    config: ConfigOption = None,
    catalog: CatalogOption = None,
) -> None:
    """Copy tables again: the running capture does it, or its next start. Until then they stay as they are."""
    from deltalakedb.cdc.control import load_capture
    from deltalakedb.cdc.copy.resnapshot import choose_tables
    from deltalakedb.cdc.copy.resnapshot import resnapshot as request
    from deltalakedb.cdc.run.configured import find_settings
    from deltalakedb.cdc.run.status import capture_status

    with settings_of(config), open_catalog(catalog) as cat:
        settings = _with_source(find_settings(cat, keywords))
        capture = load_capture(cat, settings)
        if capture is None:
            raise CaptureError(f"the capture {settings.slot} was never started: dl cdc start copies its tables")
        if dry_run:
            lost = capture_status(cat, settings).is_slot_lost
            chosen, outcome = choose_tables(capture, () if lost else tables or ()), "would be copied again"
        else:
            capture, is_running = request(cat, settings, tables or ())
            chosen = {table.source for table in capture.tables.values() if table.stage == "pending"}
            outcome = f"will be copied again by {'the running capture' if is_running else 'the next dl cdc start'}"
    result = {"slot": settings.slot, "tables": sorted(chosen), "dry_run": dry_run}
    output.emit(result, lambda: print("\n".join(f"{name} {outcome}" for name in sorted(chosen))))


@takes_settings(CHOICE)
def apply(
    keywords: dict[str, Any],
    dry_run: DryRunOption = False,
    config: ConfigOption = None,
    catalog: CatalogOption = None,
) -> None:
    """Apply changed settings to a capture: show what happens to each table, and do it.

    Tables that need a new copy are copied by the running capture, or by its next start.
    """
    from deltalakedb.cdc.run.choice_changes import apply_choice, plan_choice
    from deltalakedb.cdc.run.configured import load_settings

    with settings_of(config), open_catalog(catalog) as cat:
        settings = load_settings(keywords)
        plan, is_running = (plan_choice(cat, settings), False) if dry_run else apply_choice(cat, settings)
    value = cdc_output.plan_value(plan, dry_run=dry_run)
    output.emit(value, lambda: cdc_output.show_plan(plan, dry_run=dry_run, is_running=is_running))
    if dry_run and plan.problems:
        raise typer.Exit(1)


def _with_source(settings: CaptureSettings) -> CaptureSettings:
    if not settings.source:
        raise ConfigError(
            "the source is needed: give --source DSN, set DL_CDC_SOURCE, or write it into the section [cdc] of the "
            "configuration file"
        )
    return settings


@contextmanager
def _warnings_to_stderr() -> Iterator[None]:
    """Print the package's warnings while it runs, for example about a broken connection that is retried."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Redacted("%(levelname)s: %(message)s"))
    handler.setLevel(logging.WARNING)
    logger = logging.getLogger("deltalakedb.cdc")
    logger.addHandler(handler)
    # py4j logs pages of Java for errors that we get as exceptions anyway.
    null_handler = logging.NullHandler()
    logging.getLogger("py4j").addHandler(null_handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logging.getLogger("py4j").removeHandler(null_handler)


class _Redacted(output.LogLines):
    def format(self, record: logging.LogRecord) -> str:
        return redact(super().format(record)).replace("WARNING", "warning", 1).replace("ERROR", "error", 1)


@contextmanager
def served_metrics(port: int | None) -> Iterator[int | None]:
    """Serve the metrics for the duration of the block; yields the port. Without a port nothing is served."""
    if port is None:
        yield None
        return
    try:
        from prometheus_client import CollectorRegistry, start_http_server
    except ImportError:
        raise MissingExtraError("--metrics-port", "serve") from None
    from deltalakedb.telemetry import MetricsCollector

    registry = CollectorRegistry(auto_describe=False)
    registry.register(MetricsCollector())
    try:
        server, thread = start_http_server(port, addr="127.0.0.1", registry=registry)
    except OSError as error:
        raise ConfigError(f"the metrics cannot be served at port {port}: {error.strerror}") from error
    try:
        output.say(f"metrics: http://127.0.0.1:{server.server_port}/metrics")
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
