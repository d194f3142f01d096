"""`dl cdc`: change capture of a Postgres database, started, watched, stopped, and begun anew."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from deltalakedb.cli import cdc_output, output
from deltalakedb.cli.metrics_port import MetricsPortOption, served_metrics
from deltalakedb.cli.options import CatalogOption, DryRunOption, command, open_catalog
from deltalakedb.cli.signals import ended_by_signal
from deltalakedb.exceptions import CaptureError, ConfigError, redact

if TYPE_CHECKING:
    from deltalakedb.catalog import Catalog
    from deltalakedb.cdc.settings import CaptureSettings

# What of the arguments of `dl cdc start` is no setting of a capture.
_NOT_SETTINGS = frozenset({"once", "metrics_port", "config", "catalog", "warehouse"})

SourceOption = Annotated[
    str | None,
    typer.Option(
        "--source",
        envvar="DL_CDC_SOURCE",
        metavar="DSN",
        help="The Postgres to capture: a DSN of libpq. Passwords belong into ~/.pgpass, PGPASSWORD or a file.",
    ),
]
PublicationOption = Annotated[
    str | None, typer.Option("--publication", envvar="DL_CDC_PUBLICATION", metavar="NAME", help="What is published.")
]
SlotOption = Annotated[
    str | None,
    typer.Option(
        "--slot", envvar="DL_CDC_SLOT", metavar="NAME", help="The replication slot; dl_ and the publication by default."
    ),
]
NamespaceOption = Annotated[
    str | None,
    typer.Option(
        "--namespace",
        envvar="DL_CDC_NAMESPACE",
        metavar="NAME",
        help="Where all tables go; without it a table goes into a namespace named as its schema is.",
    ),
]
TablesOption = Annotated[
    list[str] | None,
    typer.Option(
        "--tables",
        envvar="DL_CDC_TABLES",
        metavar="TABLE,...",
        help="Source tables (schema.name, or a name in public), repeatable; all that are published by default.",
    ),
]
BatchSizeOption = Annotated[
    str | None,
    typer.Option(
        "--batch-size", envvar="DL_CDC_BATCH_SIZE", metavar="SIZE", help="So much log ends a batch; 64MB by default."
    ),
]
BatchWindowOption = Annotated[
    str | None,
    typer.Option(
        "--batch-window",
        envvar="DL_CDC_BATCH_WINDOW",
        metavar="TIME",
        help="After so long a batch ends, however small it is; 5s by default.",
    ),
]
HeartbeatOption = Annotated[
    str | None,
    typer.Option(
        "--heartbeat",
        envvar="DL_CDC_HEARTBEAT",
        metavar="TIME",
        help="How often progress is noted while there is nothing to capture; 60s by default.",
    ),
]
ParallelismOption = Annotated[
    int | None,
    typer.Option(
        "--parallelism",
        envvar="DL_CDC_PARALLELISM",
        metavar="N",
        min=0,
        help="Tasks that read a batch or copy tables side by side; as many as Spark runs by default.",
    ),
]
BucketsOption = Annotated[
    int | None,
    typer.Option(
        "--buckets",
        envvar="DL_CDC_BUCKETS",
        metavar="N",
        min=0,
        help="New tables of current rows are partitioned by a hash of their key into so many parts.",
    ),
]
FeedOption = Annotated[
    bool | None,
    typer.Option(
        "--change-data-feed/--no-change-data-feed",
        envvar="DL_CDC_CHANGE_DATA_FEED",
        help="New tables of current rows have Delta's change data feed.",
    ),
]
VectorsOption = Annotated[
    bool | None,
    typer.Option(
        "--deletion-vectors/--no-deletion-vectors",
        envvar="DL_CDC_DELETION_VECTORS",
        help="New tables of current rows have deletion vectors; they do by default.",
    ),
]
MappingOption = Annotated[
    bool | None,
    typer.Option(
        "--column-mapping/--no-column-mapping",
        envvar="DL_CDC_COLUMN_MAPPING",
        help="New tables can follow renamed and dropped columns.",
    ),
]
TextColumnsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--text-columns",
        envvar="DL_CDC_TEXT_COLUMNS",
        metavar="COLUMN,...",
        help="Columns (schema.table.column) captured as the text that Postgres prints, repeatable.",
    ),
]
OptimizeOption = Annotated[
    int | None,
    typer.Option(
        "--optimize-files",
        envvar="DL_CDC_OPTIMIZE_FILES",
        metavar="N",
        min=0,
        help="Small files of a table are compacted once there are so many; 32 by default, 0 for never.",
    ),
]
ConfigOption = Annotated[
    Path | None,
    typer.Option("--config", envvar="DL_CONFIG", metavar="FILE", help="A TOML file with the settings, section [cdc]."),
]

group = typer.Typer(help="Change capture: a Postgres database as tables of the lake.", no_args_is_help=True)


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
    given |= {"tables": _split(tables), "text_columns": _split(text_columns)}
    given = {name: value for name, value in given.items() if value is not None}
    with _settings_of(config), open_catalog(catalog, warehouse=warehouse) as cat, _warnings_to_stderr():
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
        opened_session(None) as spark,
    ):
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
    with _settings_of(config), open_catalog(catalog) as cat:
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
    with _settings_of(config), open_catalog(catalog) as cat:
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
    """Have tables copied anew by the next dl cdc start; until a copy is whole its table stays as it is."""
    from deltalakedb.cdc.configured import find_settings
    from deltalakedb.cdc.control import load_capture
    from deltalakedb.cdc.copying import choose_tables, request_resnapshot
    from deltalakedb.cdc.presence import RunnerPresence
    from deltalakedb.cdc.status import capture_status

    given = _named(source, publication, slot, namespace)
    with _settings_of(config), open_catalog(catalog) as cat:
        settings = _with_source(find_settings(cat, given))
        # Nobody runs the capture while its tables change hands.
        with RunnerPresence(settings.source, settings.slot):
            capture = load_capture(cat, settings)
            if capture is None:
                raise CaptureError(f"the capture {settings.slot} was never started: dl cdc start copies its tables")
            if dry_run:
                lost = capture_status(cat, settings).is_slot_lost
                chosen = choose_tables(capture, () if lost else tables or ())
            else:
                capture = request_resnapshot(cat, settings, tables or ())
                chosen = {table.source for table in capture.tables.values() if table.stage == "pending"}
    told = "would be copied anew" if dry_run else "will be copied anew by the next dl cdc start"
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


def _split(values: list[str] | None) -> list[str] | None:
    """Each value may be several, with commas between them."""
    parts = [part.strip() for value in values or () for part in value.split(",")]
    return [part for part in parts if part] or None


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


@contextmanager
def _settings_of(config: Path | None) -> Iterator[None]:
    """With --config its file is the one that every setting is looked up in, the catalog's too."""
    before = os.environ.get("DL_CONFIG")
    if config is not None:
        os.environ["DL_CONFIG"] = str(config)
    try:
        yield
    finally:
        if before is None:
            os.environ.pop("DL_CONFIG", None)
        else:
            os.environ["DL_CONFIG"] = before
