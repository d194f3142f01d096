"""`dl cdc`: change capture of a Postgres database, started, watched, stopped, and begun anew."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from deltalakedb.cli import cdc_output, output
from deltalakedb.cli.cdc_options import (
    BatchSizeOption,
    BatchWindowOption,
    BucketsOption,
    ConfigOption,
    FeedOption,
    HeartbeatOption,
    MappingOption,
    NamespaceOption,
    OptimizeOption,
    ParallelismOption,
    PublicationOption,
    SlotOption,
    SourceOption,
    TablesOption,
    TextColumnsOption,
    VectorsOption,
    settings_of,
    split,
)
from deltalakedb.cli.group import CommandGroup
from deltalakedb.cli.metrics_port import MetricsPortOption, served_metrics
from deltalakedb.cli.options import CatalogOption, DryRunOption, command, open_catalog
from deltalakedb.exceptions import CaptureError, ConfigError, redact
from deltalakedb.signals import ended_by_signal

if TYPE_CHECKING:
    from deltalakedb.catalog import Catalog
    from deltalakedb.cdc.settings import CaptureSettings

# What of the arguments of `dl cdc start` is no setting of a capture.
_NOT_SETTINGS = frozenset({"once", "metrics_port", "config", "catalog", "warehouse"})

group = typer.Typer(
    cls=CommandGroup, help="Change capture: a Postgres database as tables of the lake.", no_args_is_help=True
)


def add_to(app: typer.Typer) -> None:
    command(group, "start", start)
    command(group, "status", status)
    command(group, "stop", stop)
    command(group, "resnapshot", resnapshot)
    app.add_typer(group, name="cdc")


def start(
    source: SourceOption = None,
    publication: PublicationOption = None,
    tables: TablesOption = None,
    namespace: NamespaceOption = None,
    slot: SlotOption = None,
    batch_size: BatchSizeOption = None,
    batch_window: BatchWindowOption = None,
    once: Annotated[
        bool, typer.Option("--once", help="End when all is captured that was committed at the start; for schedulers.")
    ] = False,
    heartbeat: HeartbeatOption = None,
    parallelism: ParallelismOption = None,
    buckets: BucketsOption = None,
    change_data_feed: FeedOption = None,
    deletion_vectors: VectorsOption = None,
    column_mapping: MappingOption = None,
    text_columns: TextColumnsOption = None,
    optimize_files: OptimizeOption = None,
    metrics_port: MetricsPortOption = None,
    config: ConfigOption = None,
    warehouse: Annotated[
        str | None,
        typer.Option("--warehouse", envvar="DL_WAREHOUSE", metavar="PLACE", help="Where the lake's tables lie."),
    ] = None,
    catalog: CatalogOption = None,
) -> None:
    """Capture the changes of a Postgres publication until SIGINT, SIGTERM or dl cdc stop; the batch is finished first.

    The first start copies the tables that are there. A later one goes on where the last one ended, whatever ended it.
    """
    given = {name: value for name, value in locals().items() if name not in _NOT_SETTINGS}
    given |= {"tables": split(tables), "text_columns": split(text_columns)}
    given = {name: value for name, value in given.items() if value is not None}
    with (
        settings_of(config),
        open_catalog(catalog, creates=True, warehouse=warehouse) as cat,
        _warnings_to_stderr(),
    ):
        _start(cat, given, once=once, metrics_port=metrics_port)


def _start(cat: Catalog, given: dict[str, Any], *, once: bool, metrics_port: int | None) -> None:
    from deltalakedb.cdc import run
    from deltalakedb.cdc.configured import load_settings
    from deltalakedb.cdc.sessions import opened_session

    settings = load_settings(given)
    _check(settings)  # what is wrong is said before Spark takes its time to start
    output.say(f"capturing {settings.publication} into {cat.uri}; SIGINT, SIGTERM or dl cdc stop ends it")
    with (
        served_metrics(metrics_port),
        cdc_output.RunView(settings.slot) as view,
        ended_by_signal() as ended,
        ExitStack() as stack,
    ):
        try:
            spark = stack.enter_context(opened_session(None, ended))
        except KeyboardInterrupt:
            ended.set()
        if ended.is_set():  # Spark took its time to start, and takes no interruption meanwhile
            output.say("stopped before anything was captured")
            return
        view.phase = "looking at the source"
        report = run(cat, **given, once=once, spark=spark, progress=view, on_batch=view.batch_done)
    if output.settings.json:
        output.emit_json(cdc_output.report_value(report), indent=None)
    output.say(str(report))
    if report.stopped:
        for source, reason in report.stopped.items():
            output.warn(f"{source} is stopped: {reason}")
        raise typer.Exit(1 if once else 0)


def _check(settings: CaptureSettings) -> None:
    from deltalakedb.cdc.presence import find_runner, running_error
    from deltalakedb.cdc.server import check_source, connect, translate_errors

    with connect(settings.source) as conn, translate_errors():
        check_source(conn, settings)
        runner = find_runner(conn, settings.slot)
    if runner is not None:
        raise running_error(settings.slot, runner)


def status(
    source: SourceOption = None,
    publication: PublicationOption = None,
    slot: SlotOption = None,
    namespace: NamespaceOption = None,
    watch: Annotated[bool, typer.Option("--watch", help="Look again and again, until SIGINT or SIGTERM.")] = False,
    interval: Annotated[
        float, typer.Option("--interval", metavar="SECONDS", min=0.1, help="With --watch: how long between two looks.")
    ] = 2.0,
    config: ConfigOption = None,
    catalog: CatalogOption = None,
) -> None:
    """Show how far a capture is behind, who runs it, what its slot holds, and the state of each table."""
    from deltalakedb.cdc.configured import find_settings
    from deltalakedb.cdc.status import capture_status

    given = _named(source, publication, slot, namespace)
    with settings_of(config), open_catalog(catalog) as cat:
        if not watch:
            found = capture_status(cat, find_settings(cat, given))
            output.emit(found.to_value(), lambda: cdc_output.show_status(found))
            return
        with ended_by_signal() as ended:
            while not ended.is_set():
                found = capture_status(cat, find_settings(cat, given))
                if output.settings.json:
                    output.emit_json(found.to_value(), indent=None)
                else:
                    cdc_output.clear_screen()
                    cdc_output.show_status(found)
                ended.wait(interval)


def stop(
    source: SourceOption = None,
    publication: PublicationOption = None,
    slot: SlotOption = None,
    namespace: NamespaceOption = None,
    timeout: Annotated[
        float, typer.Option("--timeout", metavar="SECONDS", min=0, help="How long to wait until it has stopped.")
    ] = 60.0,
    config: ConfigOption = None,
    catalog: CatalogOption = None,
) -> None:
    """Ask the process that runs a capture to stop, and wait until it has; the batch at hand is finished first."""
    from deltalakedb.cdc.configured import find_settings
    from deltalakedb.cdc.presence import request_stop
    from deltalakedb.cdc.server import connect, translate_errors

    given = _named(source, publication, slot, namespace)
    with settings_of(config), open_catalog(catalog) as cat:
        settings = _with_source(find_settings(cat, given))
    with connect(settings.source) as conn, translate_errors():
        runner = request_stop(conn, settings.slot, timeout)
    ended = None if runner is None else {"pid": runner.pid, "host": runner.host}
    told = "no process runs the capture" if runner is None else f"stopped: {runner}"
    output.emit({"slot": settings.slot, "stopped": ended}, lambda: output.say(f"{settings.slot}: {told}"))


def resnapshot(
    tables: Annotated[
        list[str] | None,
        typer.Argument(metavar="TABLE", help="Source tables, as schema.name; without one all of them."),
    ] = None,
    source: SourceOption = None,
    publication: PublicationOption = None,
    slot: SlotOption = None,
    namespace: NamespaceOption = None,
    dry_run: DryRunOption = False,
    config: ConfigOption = None,
    catalog: CatalogOption = None,
) -> None:
    """Have tables copied anew, by the capture that runs or by its next start; until then a table stays as it is."""
    from deltalakedb.cdc.configured import find_settings
    from deltalakedb.cdc.control import load_capture
    from deltalakedb.cdc.resnapshot import choose_tables
    from deltalakedb.cdc.resnapshot import resnapshot as request
    from deltalakedb.cdc.status import capture_status

    given = _named(source, publication, slot, namespace)
    with settings_of(config), open_catalog(catalog) as cat:
        settings = _with_source(find_settings(cat, given))
        capture = load_capture(cat, settings)
        if capture is None:
            raise CaptureError(f"the capture {settings.slot} was never started: dl cdc start copies its tables")
        if dry_run:
            lost = capture_status(cat, settings).is_slot_lost
            chosen, told = choose_tables(capture, () if lost else tables or ()), "would be copied anew"
        else:
            capture, is_running = request(cat, settings, tables or ())
            chosen = {table.source for table in capture.tables.values() if table.stage == "pending"}
            told = f"will be copied anew by {'the capture that runs' if is_running else 'the next dl cdc start'}"
    result = {"slot": settings.slot, "tables": sorted(chosen), "dry_run": dry_run}
    output.emit(result, lambda: print("\n".join(f"{one} {told}" for one in sorted(chosen))))


def _named(source: str | None, publication: str | None, slot: str | None, namespace: str | None) -> dict[str, Any]:
    """What tells one capture from another."""
    return {"source": source, "publication": publication, "slot": slot, "namespace": namespace}


def _with_source(settings: CaptureSettings) -> CaptureSettings:
    if not settings.source:
        raise ConfigError(
            "the source must be asked: give --source DSN, set DL_CDC_SOURCE, or write it into the section [cdc] of the "
            "configuration file"
        )
    return settings


@contextmanager
def _warnings_to_stderr() -> Iterator[None]:
    """What the package warns of while it runs, such as a connection that broke and is tried again."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Redacted("%(levelname)s: %(message)s"))
    handler.setLevel(logging.WARNING)
    logger = logging.getLogger("deltalakedb.cdc")
    logger.addHandler(handler)
    # py4j logs pages of Java for what reaches us as an exception anyway.
    unheard = logging.NullHandler()
    logging.getLogger("py4j").addHandler(unheard)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logging.getLogger("py4j").removeHandler(unheard)


class _Redacted(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return redact(super().format(record)).replace("WARNING", "warning", 1).replace("ERROR", "error", 1)
