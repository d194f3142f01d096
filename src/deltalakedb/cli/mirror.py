"""`dl mirror`: how far `_delta_log` is behind SQL; brings it up to date, once or as a daemon."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from deltalakedb.cli import output
from deltalakedb.cli.group import CommandGroup
from deltalakedb.cli.options import CatalogOption, StorageOption, command, open_catalog, storage_options
from deltalakedb.runtime.signals import ended_by_signal

if TYPE_CHECKING:
    from deltalakedb.catalog.catalog import Catalog
    from deltalakedb.mirror.engine import MirrorResult

WorkersOption = Annotated[
    int, typer.Option("--workers", metavar="N", min=1, max=64, help="How many tables to mirror at the same time.")
]
TablesArgument = Annotated[
    list[str] | None, typer.Argument(metavar="TABLE", help="The tables; by default all managed ones.")
]

group = typer.Typer(
    cls=CommandGroup,
    help="Write the mirror, the copy of the log in `_delta_log`, and show its status.",
    no_args_is_help=True,
)


def add_to(app: typer.Typer) -> None:
    command(group, "status", status)
    command(group, "once", once)
    command(group, "run", run)
    app.add_typer(group, name="mirror")


def status(tables: TablesArgument = None, catalog: CatalogOption = None) -> None:
    """Show how far each table's files are behind SQL, what failed, and when it is retried."""
    with open_catalog(catalog) as cat:
        table_ids = _table_ids(cat, tables)
        with cat.store.read() as conn:
            now_ms = conn.now_ms()
            rows = [_status_row(row, now_ms) for row in conn.all("select_mirror_lag") if row["mode"] != "follower"]
    shown = [row for row in rows if table_ids is None or row["table_id"] in table_ids]
    columns = ("table", "state", "version", "mirrored", "behind", "lag", "checkpoint", "attempts", "next try", "error")
    cells = [
        (
            row["table"],
            row["state"],
            row["version"],
            row["mirrored_version"],
            row["versions_behind"],
            f"{row['lag_seconds']:g} s",
            row["checkpoint_version"],
            row["attempts"],
            output.iso_ms(row["next_try_ms"]),
            row["error"],
        )
        for row in shown
    ]
    output.emit(shown, lambda: output.table(columns, cells, right=("version", "mirrored", "behind", "lag")))


def once(
    tables: TablesArgument = None,
    workers: WorkersOption = 4,
    storage_option: StorageOption = None,
    catalog: CatalogOption = None,
) -> None:
    """Write what is missing in the files: commits, then checkpoints and clean-up that are due; exit 1 if any failed."""
    from deltalakedb.catalog.storage_options import options_of
    from deltalakedb.mirror.reconciler import Reconciler

    options = storage_options(storage_option)
    with open_catalog(catalog) as cat:
        table_ids = _table_ids(cat, tables)
        with Reconciler(
            cat.store,
            config=cat.config,
            options_of=lambda row: options_of(row, options),
            workers=workers,
            address=str(cat.uri),
        ) as reconciler:
            results = [_result_row(result) for result in reconciler.once(table_ids)]
    columns = ("table", "from_version", "to_version", "written", "error")
    output.emit(results, lambda: output.table(columns, [tuple(row.values()) for row in results]))
    if any(row["error"] for row in results):
        raise typer.Exit(1)


def run(
    interval: Annotated[
        float, typer.Option("--interval", metavar="SECONDS", min=0.01, help="How long to wait between two rounds.")
    ] = 0.5,
    workers: WorkersOption = 4,
    storage_option: StorageOption = None,
    catalog: CatalogOption = None,
) -> None:
    """Keep the files up to date with SQL until SIGINT or SIGTERM; the current file is finished first."""
    from deltalakedb.catalog.storage_options import options_of
    from deltalakedb.mirror.reconciler import Reconciler

    options = storage_options(storage_option)
    with open_catalog(catalog) as cat, ended_by_signal() as ended:
        reconciler = Reconciler(
            cat.store,
            config=cat.config,
            options_of=lambda row: options_of(row, options),
            workers=workers,
            stop=ended,
            address=str(cat.uri),
        )
        output.say(f"mirroring {cat.uri}; SIGINT or SIGTERM ends it")
        with reconciler:
            reconciler.run(interval, _report, output.fail)
    output.say("stopped")


def _report(result: MirrorResult) -> None:
    row = _result_row(result)
    if output.settings.json:
        output.emit_json(row, indent=None)
    elif result.error is not None:
        output.warn(f"{row['table']}: {result.error}")
    else:
        print(f"{row['table']}: version {row['from_version']} -> {row['to_version']}", flush=True)


def _table_ids(cat: Catalog, tables: list[str] | None) -> set[int] | None:
    from deltalakedb.catalog.entries import require_table
    from deltalakedb.store.names import parse_table_name

    if not tables:
        return None
    with cat.store.read() as conn:
        return {require_table(conn, parse_table_name(name)).table_id for name in tables}


def _status_row(row: dict[str, Any], now_ms: int) -> dict[str, Any]:
    oldest = row["oldest_unmirrored_ms"]
    return {
        "table": f"{row['namespace']}.{row['name']}",
        "table_id": row["table_id"],
        "mode": row["mode"],
        "state": row["state"],
        "version": row["current_version"],
        "mirrored_version": row["mirrored_version"],
        "versions_behind": row["versions_behind"],
        "lag_seconds": 0.0 if oldest is None else max(0, now_ms - oldest) / 1000,
        "checkpoint_version": row["checkpoint_version"],
        "attempts": row["attempts"] or 0,
        "next_try_ms": row["next_try_ms"],
        "error": row["error"],
    }


def _result_row(result: MirrorResult) -> dict[str, Any]:
    return {
        "table": result.table.full_name,
        "from_version": result.from_version,
        "to_version": result.to_version,
        "written": result.num_written,
        "error": result.error,
    }
