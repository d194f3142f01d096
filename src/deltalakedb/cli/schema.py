"""`dl init` and `dl migrate`: create the metadata schema, and take it up or down."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from deltalakedb.cli import output
from deltalakedb.cli.group import CommandGroup
from deltalakedb.cli.options import CatalogOption, DryRunOption, command

if TYPE_CHECKING:
    from deltalakedb.store import SchemaMode, Store
    from deltalakedb.uri import CatalogUri

ToOption = Annotated[int | None, typer.Option("--to", metavar="N", min=0, help="The schema version to end at.")]


def add_to(app: typer.Typer) -> None:
    command(app, "init", init)
    group = typer.Typer(
        cls=CommandGroup, help="Take the metadata schema up or down, or show where it is.", no_args_is_help=True
    )
    command(group, "up", up)
    command(group, "down", down)
    command(group, "status", status)
    app.add_typer(group, name="migrate")


def init(catalog: CatalogOption = None) -> None:
    """Create the catalog's metadata schema, or bring it up to date."""
    from deltalakedb.store import migrations

    address, store = _open(catalog, schema="create_if_missing")
    with store:
        version = len(migrations.status(store))
    value = {"catalog": str(address), "engine": address.engine, "schema_version": version}
    output.emit(value, lambda: print(f"{address} is at schema version {version}"))


def up(
    catalog: CatalogOption = None,
    to: ToOption = None,
    dry_run: DryRunOption = False,
) -> None:
    """Apply the migrations that are missing, up to --to or all of them."""
    _migrate(catalog, to, dry_run, down=False)


def down(
    to: Annotated[
        int, typer.Option("--to", metavar="N", min=0, help="The schema version to end at; 0 removes everything.")
    ],
    catalog: CatalogOption = None,
    dry_run: DryRunOption = False,
) -> None:
    """Take migrations back; what they hold is lost."""
    _migrate(catalog, to, dry_run, down=True)


def status(catalog: CatalogOption = None) -> None:
    """Which migrations are applied, and when."""
    from deltalakedb.store import migrations

    _, store = _open(catalog)
    with store:
        found = migrations.status(store)
    rows = [(f"{m.number:04d}", m.name, output.iso_ms(m.applied_at_ms) or "not applied") for m in found]
    output.emit([asdict(m) for m in found], lambda: output.table(("migration", "name", "applied"), rows))


def _migrate(catalog: str | None, to: int | None, dry_run: bool, *, down: bool) -> None:
    from deltalakedb.store import migrations

    address, store = _open(catalog)
    with store:
        found = migrations.status(store)
        now = sum(1 for migration in found if migration.applied_at_ms is not None)
        target = len(found) if to is None else to
        if (target > now) if down else (target < now):
            other = "up" if down else "down"
            raise typer.BadParameter(
                f"the schema is at version {now}; use `dl migrate {other} --to {target}`", param_hint="--to"
            )
        if target > len(found):
            raise typer.BadParameter(f"this code knows schema versions 0 to {len(found)}", param_hint="--to")
        done = _planned(now, target) if dry_run else migrations.migrate(store, target)
    verb = "would run" if dry_run else "ran"
    value = {"catalog": str(address), "from": now, "to": target, "migrations": done, "dry_run": dry_run}
    names = ", ".join(f"{number:04d}" for number in done) or "nothing"
    output.emit(value, lambda: print(f"{address}: {verb} {names}; schema version {now} -> {target}"))


def _planned(now: int, target: int) -> list[int]:
    return list(range(now + 1, target + 1)) if target >= now else list(range(now, target, -1))


def _open(catalog: str | None, schema: SchemaMode = "manual") -> tuple[CatalogUri, Store]:
    """The database; `manual` takes it as it is, whatever its schema."""
    from deltalakedb.catalog import locate_catalog, open_catalog_store

    address, settings = locate_catalog(catalog)
    return address, open_catalog_store(address, settings, schema=schema)
