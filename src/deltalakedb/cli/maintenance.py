"""`dl validate`, `dl gc`, `dl optimize`, `dl vacuum`, `dl restore`: upkeep of a table's log and of its files."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from deltalakedb.cli import output
from deltalakedb.cli.options import (
    CatalogOption,
    DryRunOption,
    StorageOption,
    TableArgument,
    command,
    open_catalog,
    storage_options,
    travel_time,
)
from deltalakedb.exceptions import DeltaError

if TYPE_CHECKING:
    from deltalakedb.catalog.catalog import Catalog
    from deltalakedb.store.gc import CollectedTable, GcReport


def add_to(app: typer.Typer) -> None:
    command(app, "validate", validate)
    command(app, "gc", gc)
    command(app, "optimize", optimize)
    command(app, "vacuum", vacuum)
    command(app, "restore", restore)


def validate(
    tables: Annotated[list[str] | None, typer.Argument(metavar="TABLE", help="The tables to compare.")] = None,
    all_tables: Annotated[
        bool, typer.Option("--all", envvar="DL_VALIDATE_ALL", help="Every table of the catalog.")
    ] = False,
    repair: Annotated[
        bool, typer.Option("--repair", help="First restore what the files of managed tables have lost.")
    ] = False,
    storage_option: StorageOption = None,
    catalog: CatalogOption = None,
) -> None:
    """Compare SQL with the files, version by version; if they differ, exit with 1 and print what to do."""
    if bool(tables) == all_tables:
        raise typer.BadParameter("give the tables, or --all", param_hint="TABLE")
    options = storage_options(storage_option)
    with open_catalog(catalog) as cat:
        if repair:
            _repair(cat, tables, options)
        reports = [_validate_one(cat, name, options) for name in tables or cat.tables()]
    output.emit(reports, lambda: _show_validation(reports))
    if any(report["drift"] or report["error"] for report in reports):
        raise typer.Exit(1)


def _repair(cat: Catalog, tables: list[str] | None, options: dict[str, str] | None) -> None:
    for name in tables or [info.full_name for info in cat.table_infos() if info.mode == "managed"]:
        repaired = cat.repair(name, storage_options=options)
        if repaired.versions:
            output.say(
                f"{name}: {len(repaired.versions)} commits were put back, the first is version {repaired.versions[0]}"
            )
        if repaired.checkpoint is not None:
            output.say(f"{name}: a checkpoint of version {repaired.checkpoint} was written")


def _validate_one(cat: Catalog, name: str, options: dict[str, str] | None) -> dict[str, Any]:
    try:
        with output.progress(f"validating {name}", "versions") as advance:
            report = cat.validate(name, storage_options=options, progress=advance)
    except DeltaError as error:
        output.fail(error)
        return {"table": name, "drift": None, "drifts": [], "error": " ".join(str(error).split())}
    drifts = [asdict(drift) for drift in report.drifts]
    return {
        "table": report.table.full_name,
        "mode": report.table.mode,
        "state": report.table.state,
        "sql_version": report.sql_version,
        "files_version": report.files_version,
        "lag": report.lag,
        "commits_compared": report.num_commits_compared,
        "states_compared": report.num_states_compared,
        "checkpoints_compared": report.num_checkpoints_compared,
        "checksums_compared": report.num_checksums_compared,
        "drift": drifts[0] if drifts else None,
        "drifts": drifts,
        "error": None,
    }


def _show_validation(reports: list[dict[str, Any]]) -> None:
    """Print one line per table; then, for each drift, its version, the difference, and what to do."""
    if all(report["error"] for report in reports):
        return  # each failure was printed already
    compared = ("commits", "states", "checkpoints", "checksums")
    columns = ("table", "result", "sql", "files", "lag", *compared)
    rows = []
    for report in reports:
        counts = [report.get(f"{name}_compared") for name in compared]
        values = (report.get("sql_version"), report.get("files_version"), report.get("lag"))
        rows.append((report["table"], _result(report), *values, *counts))
    output.table(columns, rows, right=columns[2:])
    for report in reports:
        for drift in report["drifts"]:
            print(f"{report['table']}: DRIFT at version {drift['version']}: {drift['difference']}")
            print(f"  what to do: {drift['remedy']}")


def _result(report: dict[str, Any]) -> str:
    if report["error"]:
        return "failed"
    if report["drift"]:
        return f"DRIFT at version {report['drift']['version']}"
    return f"agree up to version {min(report['sql_version'], report['files_version'])}"


def gc(
    table: Annotated[
        str | None, typer.Argument(metavar="TABLE", help="One table; by default the whole catalog.")
    ] = None,
    audit_days: Annotated[
        float | None,
        typer.Option(
            "--audit-days",
            metavar="DAYS",
            min=0,
            help="Also remove audit rows older than this; by default they are kept.",
        ),
    ] = None,
    dry_run: DryRunOption = False,
    catalog: CatalogOption = None,
) -> None:
    """Remove history from SQL that is older than the retention; every version since then still opens."""
    if table is not None and audit_days is not None:
        raise typer.BadParameter(
            "the audit trail belongs to the whole catalog; leave TABLE out", param_hint="--audit-days"
        )
    with open_catalog(catalog) as cat, output.progress("collecting", "rows") as advance:
        report = cat.gc(table, dry_run=dry_run, audit_days=audit_days, progress=advance)
    rows = [_gc_row(done) for done in report.tables]
    value = {
        "dry_run": report.dry_run,
        "rows_removed": report.rows_removed,
        "transactions_removed": report.transactions_removed,
        "leases_removed": report.leases_removed,
        "audit_rows_removed": report.audit_rows_removed,
        "tables": rows,
    }
    output.emit(value, lambda: _show_gc(report, rows))


def _gc_row(done: CollectedTable) -> dict[str, Any]:
    return {
        "table": done.table.full_name,
        "first_version": done.base_version,
        "versions_removed": done.versions_removed,
        "rows_removed": done.rows_removed,
        "dropped": done.dropped,
        "kept_because": done.kept_because,
    }


def _show_gc(report: GcReport, rows: list[dict[str, Any]]) -> None:
    columns = ("table", "starts at", "versions removed", "rows removed", "note")
    cells = [
        (
            row["table"],
            row["first_version"],
            row["versions_removed"],
            row["rows_removed"],
            row["kept_because"] or ("dropped" if row["dropped"] else None),
        )
        for row in rows
    ]
    output.table(columns, cells, right=columns[1:4])
    others = (
        f"{report.transactions_removed} transactions, {report.leases_removed} leases and "
        f"{report.audit_rows_removed} audit rows"
    )
    verb = "would be removed" if report.dry_run else "removed"
    output.say(f"{report.rows_removed} rows {verb}, among them {others} of the whole catalog")


def optimize(
    table: TableArgument,
    zorder: Annotated[
        str | None,
        typer.Option(
            "--zorder", metavar="COLUMNS", help="Sort along a Z-order curve of these columns, separated by commas."
        ),
    ] = None,
    partitions: Annotated[
        list[str] | None,
        typer.Option("--partition", metavar="COLUMN=VALUE", help="Only this partition; repeatable, all must hold."),
    ] = None,
    target_size: Annotated[
        int | None,
        typer.Option("--target-size", metavar="BYTES", min=1, help="The size of new files; 100 MB by default."),
    ] = None,
    tasks: Annotated[
        int | None, typer.Option("--tasks", metavar="N", min=1, help="How many files are written at a time.")
    ] = None,
    storage_option: StorageOption = None,
    dry_run: DryRunOption = False,
    catalog: CatalogOption = None,
) -> None:
    """Compact small files, or sort rows for faster reading; the rows do not change."""
    from deltalakedb.operations.optimize import Request

    columns = None if zorder is None else tuple(part.strip() for part in zorder.split(",") if part.strip())
    filters = [_partition(text) for text in partitions or ()]
    with open_catalog(catalog) as cat, output.progress(f"optimizing {table}", "files") as advance:
        request = Request(
            columns=columns,
            partition_filters=filters or None,
            target_size=target_size,
            max_concurrent_tasks=tasks,
            progress=advance,
        )
        if dry_run:
            # A transaction that is rolled back leaves nothing, its files included.
            with cat.begin(tables=[table]) as tx:
                tx.use_options(table, storage_options(storage_option))
                metrics = tx.table(table).optimize.run(request)
                tx.rollback()
        else:
            opened = cat.table(table, storage_options=storage_options(storage_option))
            metrics = opened.optimize.run(request)
    value = {"table": table, "dry_run": dry_run, **metrics}
    output.emit(value, lambda: _show_optimized(value))


def _partition(text: str) -> tuple[str, str, str]:
    column, equals, value = text.partition("=")
    if not equals or not column:
        raise typer.BadParameter(f"{text!r} is not of the form COLUMN=VALUE", param_hint="--partition")
    return column, "=", value


def _show_optimized(value: dict[str, Any]) -> None:
    verb = "would become" if value["dry_run"] else "became"
    print(f"{value['table']}: {value['numFilesRemoved']} files {verb} {value['numFilesAdded']}")


def vacuum(
    table: TableArgument,
    retention_hours: Annotated[
        float | None,
        typer.Option(
            "--retention-hours",
            metavar="HOURS",
            min=0,
            help="Keep files that were removed within these hours; by default the table's own retention.",
        ),
    ] = None,
    no_check: Annotated[
        bool, typer.Option("--no-retention-check", help="Allow fewer hours than the table's own retention.")
    ] = False,
    full: Annotated[bool, typer.Option("--full", help="Also delete files that no commit names.")] = False,
    keep_versions: Annotated[
        list[int] | None, typer.Option("--keep-version", metavar="N", help="Keep the files of a version; repeatable.")
    ] = None,
    storage_option: StorageOption = None,
    dry_run: DryRunOption = False,
    catalog: CatalogOption = None,
) -> None:
    """Delete files that no version within the retention needs."""
    from deltalakedb.tables import upkeep

    with open_catalog(catalog) as cat, output.progress(f"vacuuming {table}", "files") as advance:
        opened = cat.table(table, storage_options=storage_options(storage_option))
        deleted = upkeep.vacuum(
            opened,
            retention_hours,
            dry_run=dry_run,
            enforced=not no_check,
            full=full,
            keep=keep_versions or (),
            progress=advance,
        )
    value = {"table": opened.name, "dry_run": dry_run, "files": deleted}
    output.emit(value, lambda: output.table(["file"], [(path,) for path in deleted]))
    output.say(f"{len(deleted)} files of {opened.name} {'would be' if dry_run else 'are'} deleted")


def restore(
    table: TableArgument,
    to: Annotated[str, typer.Option("--to", metavar="VERSION|TIME", help="A version, or a time (ISO 8601).")],
    ignore_missing: Annotated[
        bool,
        typer.Option("--ignore-missing", help="Continue if files of that version are gone; their rows cannot be read."),
    ] = False,
    allow_downgrade: Annotated[
        bool, typer.Option("--allow-downgrade", help="Also restore the protocol of that version.")
    ] = False,
    storage_option: StorageOption = None,
    dry_run: DryRunOption = False,
    catalog: CatalogOption = None,
) -> None:
    """Make a new version that equals an older one; no version in between is lost."""
    target = int(to) if to.isdecimal() else travel_time(to, "--to")
    assert target is not None
    with open_catalog(catalog) as cat, cat.begin(tables=[table]) as tx:
        tx.use_options(table, storage_options(storage_option))
        opened = tx.table(table)
        try:
            metrics = opened.restore(
                target, ignore_missing_files=ignore_missing, protocol_downgrade_allowed=allow_downgrade
            )
        except ValueError as error:
            raise typer.BadParameter(str(error), param_hint="--to") from None
        if dry_run:
            tx.rollback()
    value = {"table": opened.name, "dry_run": dry_run, "version": opened.version(), **metrics}
    output.emit(value, lambda: _show_restored(value))


def _show_restored(value: dict[str, Any]) -> None:
    verb = "would be" if value["dry_run"] else "is"
    print(
        f"{value['table']} {verb} restored as version {value['version']}: {value['numRestoredFile']} files come back, "
        f"{value['numRemovedFile']} go"
    )
