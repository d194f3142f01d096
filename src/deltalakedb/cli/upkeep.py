"""`dl optimize`, `dl vacuum`, `dl restore`: upkeep of a table's files, and restoring an older version."""

from __future__ import annotations

from typing import Annotated, Any

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


def add_to(app: typer.Typer) -> None:
    command(app, "optimize", optimize)
    command(app, "vacuum", vacuum)
    command(app, "restore", restore)


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
