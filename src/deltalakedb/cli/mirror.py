"""`dl promote`, `dl detach`, `dl mirror`: who decides about a table, and how far `_delta_log` is behind SQL."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from deltalakedb.cli import output
from deltalakedb.cli.options import (
    CatalogOption,
    CommandGroup,
    DryRunOption,
    StorageOption,
    TableArgument,
    command,
    open_catalog,
    storage_options,
)
from deltalakedb.exceptions import DeltaError
from deltalakedb.runtime.signals import ended_by_signal

if TYPE_CHECKING:
    from deltalakedb.catalog.catalog import Catalog
    from deltalakedb.mirror.engine import MirrorResult
    from deltalakedb.mirror.reconciler import Reconciler
    from deltalakedb.mirror.resolve import Resolution
    from deltalakedb.table import DeltaTable

ChangedTablesArgument = Annotated[list[str], typer.Argument(metavar="TABLE", help="The tables, as namespace.name.")]


def add_to(app: typer.Typer) -> None:
    command(app, "promote", promote)
    command(app, "detach", detach)
    command(group, "resolve", resolve)
    command(group, "status", status)
    command(group, "once", once)
    command(group, "run", run)
    app.add_typer(group, name="mirror")


def promote(
    tables: ChangedTablesArgument,
    dry_run: DryRunOption = False,
    storage_option: StorageOption = None,
    catalog: CatalogOption = None,
) -> None:
    """Make followers managed: SQL decides about commits, and a fence in the files keeps other writers out."""
    options = storage_options(storage_option)

    def do(cat: Catalog, name: str) -> DeltaTable:
        with output.progress(f"promoting {name}", "file actions") as advance:
            return cat.promote_table(name, storage_options=options, progress=advance)

    _change_all(catalog, tables, "managed", do, dry_run=dry_run)


def detach(
    tables: ChangedTablesArgument,
    dry_run: DryRunOption = False,
    storage_option: StorageOption = None,
    catalog: CatalogOption = None,
) -> None:
    """Give managed tables back to their files: mirror everything, and remove the fence that keeps writers out."""
    options = storage_options(storage_option)
    _change_all(catalog, tables, "detached", lambda cat, name: cat.detach_table(name, options), dry_run=dry_run)


def _change_all(
    catalog: str | None,
    tables: list[str],
    mode: str,
    change: Callable[[Catalog, str], DeltaTable],
    *,
    dry_run: bool,
) -> None:
    rows: list[dict[str, Any]] = []
    failed = False
    with open_catalog(catalog) as cat:
        for name in tables:
            try:
                before = cat.table(name)
                after = before if dry_run else change(cat, name)
            except DeltaError as error:  # one table among many: the others are still changed
                failed = True
                output.fail(error)
                continue
            rows.append(_changed_row(before, after, mode))
            output.say(_changed_text(rows[-1], dry_run=dry_run))
    output.emit(rows, lambda: None)
    if failed:
        raise typer.Exit(1)


def _changed_row(before: DeltaTable, after: DeltaTable, mode: str) -> dict[str, Any]:
    return {
        "table": after.name,
        "from": before.mode,
        "to": mode,
        "version": after.version(),
        "location": after.table_uri,
    }


def _changed_text(row: dict[str, Any], *, dry_run: bool) -> str:
    if row["from"] == row["to"]:
        return f"{row['table']} is {row['to']} already, at version {row['version']}"
    if dry_run:
        return f"{row['table']} is {row['from']}, at version {row['version']}: it would become {row['to']}"
    return f"{row['table']} is {row['to']} now, at version {row['version']}: {row['location']}"


def resolve(
    table: TableArgument,
    adopt: Annotated[
        bool, typer.Option("--adopt", help="Import what the files have, and commit ours again after it.")
    ] = False,
    overrule: Annotated[
        bool, typer.Option("--overrule", help="Import it and undo it by a commit, so that the state is ours.")
    ] = False,
    dry_run: DryRunOption = False,
    storage_option: StorageOption = None,
    catalog: CatalogOption = None,
) -> None:
    """Reconcile SQL and the files after another writer or a restored backup; nothing is ever overwritten."""
    if adopt == overrule:
        raise typer.BadParameter("give --adopt or --overrule", param_hint="--adopt / --overrule")
    options = storage_options(storage_option)
    with open_catalog(catalog) as cat:
        resolution = cat.resolve_table(table, "adopt" if adopt else "overrule", options, dry_run=dry_run)
    output.emit(_resolution_value(resolution), lambda: print(_resolution_text(resolution)))


def _resolution_value(done: Resolution) -> dict[str, Any]:
    return {
        "table": done.table.full_name,
        "decision": done.decision,
        "dry_run": done.dry_run,
        "state": done.table.state,
        "version": done.version,
        "first_version": done.first_version,
        "last_version": done.last_version,
        "own_versions_taken_in": done.num_own,
        "compensating_version": done.compensating_version,
        "fence_version": done.fence_version,
        "recommitted": [commit.to_value() for commit in done.recommitted],
    }


def _resolution_text(done: Resolution) -> str:
    name = done.table.full_name
    if done.first_version is None:
        return f"{name}: SQL and the files agree up to version {done.version}, there is nothing to resolve"
    taken_in, undoes, fences, becomes = (
        ("would be taken in", "would undo", "would put the fence back", "would become")
        if done.dry_run
        else ("are taken in", "undoes", "puts the fence back", "is now")
    )
    own_text = f", {done.num_own} of them made by this catalog" if done.num_own else ""
    lines = [f"{name}: versions {done.first_version} to {done.last_version} of the files {taken_in}{own_text}"]
    if done.compensating_version is not None:
        lines.append(f"version {done.compensating_version} {undoes} what they did")
    if done.fence_version is not None:
        lines.append(f"version {done.fence_version} {fences}")
    lines += [f"our version {commit.old_version} {becomes} version {commit.new_version}" for commit in done.recommitted]
    return "\n".join(lines)


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
    with open_catalog(catalog) as cat:
        table_ids = _table_ids(cat, tables)
        with _reconciler(cat, workers, storage_option) as reconciler:
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
    with open_catalog(catalog) as cat, ended_by_signal() as ended:
        reconciler = _reconciler(cat, workers, storage_option, stop=ended)
        output.say(f"mirroring {cat.uri}; SIGINT or SIGTERM ends it")
        with reconciler:
            reconciler.run(interval, _report, output.fail)
    output.say("stopped")


def _reconciler(
    cat: Catalog, workers: int, storage_option: list[str] | None, stop: threading.Event | None = None
) -> Reconciler:
    from deltalakedb.catalog.storage_options import options_of
    from deltalakedb.mirror.reconciler import Reconciler

    options = storage_options(storage_option)
    return Reconciler(
        cat.store,
        config=cat.config,
        options_of=lambda row: options_of(row, options),
        workers=workers,
        stop=stop,
        address=str(cat.uri),
    )


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
