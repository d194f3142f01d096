"""`dl promote`, `dl detach`, `dl mirror resolve`: who decides about a table, and what to do about other writers."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from deltalakedb.cli import mirror, output
from deltalakedb.cli.options import (
    CatalogOption,
    DryRunOption,
    StorageOption,
    TableArgument,
    command,
    open_catalog,
    storage_options,
)
from deltalakedb.exceptions import DeltaError

if TYPE_CHECKING:
    from deltalakedb.catalog.catalog import Catalog
    from deltalakedb.mirror.resolve import Resolution
    from deltalakedb.table import DeltaTable

TablesArgument = Annotated[list[str], typer.Argument(metavar="TABLE", help="The tables, as namespace.name.")]


def add_to(app: typer.Typer) -> None:
    command(app, "promote", promote)
    command(app, "detach", detach)
    command(mirror.group, "resolve", resolve)


def promote(
    tables: TablesArgument,
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
    tables: TablesArgument,
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
        "recommitted": [
            {"from": commit.old_version, "to": commit.new_version, "txn_id": commit.txn_id}
            for commit in done.recommitted
        ],
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
